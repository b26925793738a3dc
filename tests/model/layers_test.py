"""Tests of bert_tf.model.layers."""

import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.model.configuration import BertConfig
from bert_tf.model.layers import (
    LayerNorm,
    create_initializer,
    glorot_initializer,
    weighted_sum,
)
from bert_tf.seeds import reading_weights
from tests.support import numpy_bert
from tests.support.numpy_bert import assert_near

B, S, H = 2, 7, 24


@pytest.mark.parametrize("deviation", [1.0, 1e-4, 1e-6, 1e-7])
def test_layer_norm_epsilon_is_1e_12(deviation):
    rng = np.random.default_rng(3)
    x = (rng.normal(size=(B, S, H)) * deviation).astype(np.float32)
    gamma, beta = rng.normal(size=(2, H)).astype(np.float32)
    norm = LayerNorm(BertConfig(9))
    norm.build((None, None, H))
    norm.gamma.assign(gamma)
    norm.beta.assign(beta)
    expected = numpy_bert.layer_norm(x.astype(np.float64), gamma, beta)
    assert_near(norm(x), expected, 1e-5)
    if deviation < 1e-5:
        without = numpy_bert.layer_norm(x.astype(np.float64), gamma, beta, epsilon=0.0)
        assert np.abs(expected - without).max() > 0.1


@pytest.mark.parametrize("shape", [(3, 7, 12), (2, 5, 4, 6), (4, 1, 3)])
def test_a_weighted_sum_has_the_bits_of_einsum(shape):
    generator = np.random.default_rng(1)
    vectors = tf.constant(generator.normal(size=shape), tf.float32)
    weights = tf.constant(generator.random(shape[:2]), tf.float32)
    expected = tf.einsum("bs,bsh->bh" if len(shape) == 3 else "bs,bslh->blh", weights, vectors)
    np.testing.assert_array_equal(weighted_sum(weights, vectors), expected)


@pytest.mark.parametrize("make", [create_initializer, glorot_initializer])
def test_nothing_is_drawn_for_weights_that_are_read(make):
    state = random.getstate()
    with reading_weights():
        assert not make()((3, 2), "float32").numpy().any()
    for dtype in ("float32", "bfloat16"):
        with reading_weights(all_are_set=True):
            value = make()((3, 2), dtype)
        assert value.shape == (3, 2) and value.dtype == dtype
    assert random.getstate() == state
    assert make()((3, 2), "float32").numpy().all() and random.getstate() != state
