"""Tests of ranges of inputs: in eager calls, in graphs, under XLA and for trusted inputs."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.bounds import inputs_were_checked
from bert_tf.errors import UserError
from bert_tf.model.inputs import finite, get_shape_list, in_range, shaped
from tests.support.refusals import refusal


def check(numbers, below=3, counted=None):
    return in_range(tf.convert_to_tensor(numbers), "ids", below, "vocab_size", counted)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "float16", "float64"])
def test_numbers_in_range_are_returned_as_int32(dtype):
    found = check(np.array([[0, 1], [2, 0]], dtype), below=300 if dtype == "uint8" else 3)
    assert found.dtype == tf.int32
    np.testing.assert_array_equal(found, [[0, 1], [2, 0]])


@pytest.mark.parametrize(
    "numbers, message",
    [
        ([0, 2, 3], r"ids must be from 0 to 2 \(vocab_size\); received 3 at position \[2\]"),
        ([[0, 1], [-1, 9]], r"received -1 at position \[1, 0\]"),
        ([[[0, 1]], [[2, 2**32 + 1]]], r"received 4294967297 at position \[1, 0, 1\]"),
        ([0.0, 0.5], r"received 0.5 at position \[1\]"),
        ([1.0, np.nan], r"received nan at position \[1\]"),
        (np.array([255], np.uint8), r"received 255 at position \[0\]"),
    ],
)
def test_the_first_wrong_number_is_told_with_its_position(numbers, message):
    with pytest.raises(UserError, match=message):
        check(numbers)
    graph = tf.function(check, autograph=False)
    text = refusal(graph, tf.convert_to_tensor(numbers), kind=tf.errors.InvalidArgumentError)
    assert "ids must be from 0 to" in text and "vocab_size" in text and "at position" in text


def test_numbers_that_do_not_count_may_be_any():
    counted = tf.constant([True, False])
    np.testing.assert_array_equal(check([1, -100], counted=counted), [1, -100])
    with pytest.raises(UserError, match=r"received -100 at position \[0\]"):
        check([-100, 1], counted=counted)


def test_a_graph_takes_batches_of_any_size_and_none():
    spec = tf.TensorSpec([None, None], tf.int32)
    graph = tf.function(check, input_signature=[spec], autograph=False)
    for numbers in (np.zeros([0, 4]), [[2, 1, 0]], np.zeros([3, 0])):
        np.testing.assert_array_equal(graph(tf.constant(numbers, tf.int32)), numbers)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[7\] \[at position\] \[1 0\]"):
        graph(tf.constant([[2], [7]]))


def test_checked_inputs_and_steps_compiled_by_xla_have_no_assertions():
    def trusting(numbers):
        with inputs_were_checked():
            return finite(shaped(check(numbers), "ids", [None, 2], "pairs"), "ids")

    for function, expected in ((trusting, False), (check, True)):
        graph = tf.function(function, autograph=False)
        operations = graph.get_concrete_function(tf.TensorSpec([None, 2], tf.int32)).graph
        assert any(x.type == "Assert" for x in operations.get_operations()) is expected
    compiled = tf.function(check, jit_compile=True, autograph=False)
    np.testing.assert_array_equal(compiled(tf.constant([[9, -1]])), [[9, -1]])


def test_numbers_that_are_not_finite_are_refused():
    np.testing.assert_array_equal(finite(tf.constant([1, 2]), "scores"), np.float32([1, 2]))
    with pytest.raises(UserError, match=r"scores must be finite; received inf at position \[1\]"):
        finite(tf.constant([0.0, np.inf]), "scores")
    with pytest.raises(UserError, match=r"received inf at position \[0\]"):  # in float32
        finite(tf.constant([3e39], tf.float64), "scores")


def test_an_axis_of_size_1_too_many_is_removed():
    column = tf.constant([[4], [5]])
    np.testing.assert_array_equal(shaped(column, "labels", [2], "a number each"), [4, 5])
    for wrong in (tf.zeros([2, 2]), tf.zeros([3]), tf.zeros([]), tf.zeros([2, 1, 1])):
        told = refusal(shaped, wrong, "labels", [2], "a number each")
        assert told.startswith("labels must have a number each, [2]; ")
        assert f" {wrong.shape.as_list()}" in told

    @tf.function(input_signature=[tf.TensorSpec(None), tf.TensorSpec([None, 3])], autograph=False)
    def rows(labels, logits):
        return shaped(labels, "labels", [tf.shape(logits)[0]], "a number each")

    np.testing.assert_array_equal(rows(tf.ones([2]), tf.ones([2, 3])), [1.0, 1.0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="labels must have a number each"):
        rows(tf.ones([1]), tf.ones([2, 3]))


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
