"""Tests of bert_tf.seeds: the random bits are TensorFlow's."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.seeds import fold_in, fold_in_range, random_bits

SEEDS = [[1, 2], [-5, 7], [2**31 - 1, -(2**31)]]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_bits_are_those_of_stateless_uniform(seed, jit_compile):
    seed = tf.constant(seed, tf.int32)
    draw = tf.function(random_bits, jit_compile=jit_compile, autograph=False)
    for shape, dtype in (([], tf.int32), ([3, 65], tf.uint32)):
        expected = tf.random.stateless_uniform(shape, seed, None, None, dtype, "philox")
        np.testing.assert_array_equal(draw(shape, seed, dtype), expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_folded_seed_is_that_of_tensorflow(seed):
    seed = tf.constant(seed, tf.int32)
    expected = [tf.random.experimental.stateless_fold_in(seed, i, "philox") for i in range(3)]
    np.testing.assert_array_equal(fold_in_range(seed, 3), expected)
    np.testing.assert_array_equal(fold_in(seed, tf.constant(2)), expected[2])
    assert fold_in_range(None, 2) == [None, None] and fold_in(None, 1) is None
