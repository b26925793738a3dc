"""Tests of bert_tf.model.shapes."""

import pytest
import tensorflow as tf

from bert_tf.model.shapes import get_shape_list


def test_get_shape_list():
    assert get_shape_list(tf.zeros([3, 5]), expected_rank=[2, 3]) == [3, 5]
    with pytest.raises(ValueError, match="hidden must have rank 2 or 4, not 3"):
        get_shape_list(tf.zeros([1, 2, 3]), [2, 4], name="hidden")

    @tf.function(input_signature=[tf.TensorSpec([None, 5])])
    def second_half(x):
        batch_size, width = get_shape_list(x)
        assert isinstance(batch_size, tf.Tensor) and width == 5
        return batch_size

    assert second_half(tf.zeros([3, 5])).numpy() == 3
