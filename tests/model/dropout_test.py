"""Tests of bert_tf.model.dropout."""

import numpy as np
import tensorflow as tf

from bert_tf.model.dropout import dropout, dropout_seed_of_call


def test_dropout_has_its_rate_and_scale():
    x = np.full((200, 300), 3.0, np.float32)
    for rate in (0.1, 0.5, 0.9):
        y = dropout(tf.constant(x), rate, tf.constant([5, 6])).numpy()
        assert abs((y == 0).mean() - rate) < 0.006
        np.testing.assert_allclose(y[y != 0], 3.0 / (1 - rate), rtol=1e-6)


def test_dropout_is_off_without_a_seed_or_a_rate():
    x = tf.ones([3, 4])
    assert dropout(x, 0.5, None) is x
    assert dropout(x, 0.0, tf.constant([1, 2])) is x
    assert dropout(x, None, tf.constant([1, 2])) is x


def test_a_dropout_mask_is_a_function_of_its_seed_under_xla_too():
    x = tf.ones([40, 50])
    first = dropout(x, 0.3, tf.constant([1, 2])).numpy()
    np.testing.assert_array_equal(dropout(x, 0.3, tf.constant([1, 2])), first)
    for jit_compile in (False, True):
        compiled = tf.function(dropout, jit_compile=jit_compile)
        np.testing.assert_array_equal(compiled(x, 0.3, tf.constant([1, 2])) != 0, first != 0)
    for seed in ([1, 3], [2, 2], [2, 1]):
        other = dropout(x, 0.3, tf.constant(seed)).numpy()
        # Independent masks agree where both keep or both drop.
        assert abs(((other != 0) == (first != 0)).mean() - (0.7**2 + 0.3**2)) < 0.05


def test_dropout_gradient_has_the_mask_of_the_output():
    x = tf.ones([20, 30])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = dropout(x, 0.25, tf.constant([1, 2]))
    np.testing.assert_array_equal(tape.gradient(y, x), y)


def test_the_seed_of_a_call():
    seed = tf.constant([1, 2])
    assert dropout_seed_of_call(False) is None
    assert dropout_seed_of_call(False, seed) is None
    assert dropout_seed_of_call(True, seed) is seed
    tf.random.set_seed(5)
    first, second = (dropout_seed_of_call(True) for _ in range(2))
    assert first.dtype == tf.int32 and first.shape == [2]
    assert (first != second).numpy().any()
    tf.random.set_seed(5)
    np.testing.assert_array_equal(dropout_seed_of_call(True), first)
