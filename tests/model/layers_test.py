"""Tests of bert_tf.model.layers."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.model.configuration import BertConfig
from bert_tf.model.layers import (
    LayerNorm,
    create_initializer,
    dropout,
    dropout_seed_of_call,
    glorot_initializer,
    weighted_sum,
)
from bert_tf.seeds import reading_weights, seeded
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
def test_seeded_values_do_not_depend_on_other_threads(make):
    """Four threads draw in turns; values, too, are those of a seeded `random`."""
    random.seed(7)
    expected = [make()((4,), "float32").numpy().tolist() for _ in range(3)]
    turns = threading.Barrier(4)

    def draw(seed):
        with seeded(seed):
            found = []
            for _ in range(3):
                turns.wait()
                random.random()
                found.append(make()((4,), "float32").numpy().tolist())
        return found

    state = random.getstate()
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(draw, [7, 7, 8, 7])]
    assert found[0] == found[1] == found[3] == expected and found[2] != expected
    random.setstate(state)


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


def test_dropout_has_its_rate_and_scale_and_is_off_without_a_seed_or_a_rate():
    x = np.full((200, 300), 3.0, np.float32)
    for rate in (0.1, 0.5, 0.9):
        y = dropout(tf.constant(x), rate, tf.constant([5, 6])).numpy()
        assert abs((y == 0).mean() - rate) < 0.006
        np.testing.assert_allclose(y[y != 0], 3.0 / (1 - rate), rtol=1e-6)
    for rate, seed in ((0.5, None), (0.0, tf.constant([1, 2])), (None, tf.constant([1, 2]))):
        assert dropout(x, rate, seed) is x


def test_a_dropout_mask_is_a_function_of_its_seed_under_xla_too_and_that_of_its_gradient():
    x = tf.ones([40, 50])
    first = dropout(x, 0.3, tf.constant([1, 2])).numpy()
    np.testing.assert_array_equal(dropout(x, 0.3, tf.constant([1, 2])), first)
    for jit_compile in (False, True):
        compiled = tf.function(dropout, jit_compile=jit_compile, autograph=False)
        np.testing.assert_array_equal(compiled(x, 0.3, tf.constant([1, 2])) != 0, first != 0)
    for seed in ([1, 3], [2, 2], [2, 1]):
        other = dropout(x, 0.3, tf.constant(seed)).numpy()
        # Independent masks agree where both keep or both drop.
        assert abs(((other != 0) == (first != 0)).mean() - (0.7**2 + 0.3**2)) < 0.05
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = dropout(x, 0.25, tf.constant([1, 2]))
    np.testing.assert_array_equal(tape.gradient(y, x), y)


def test_the_seed_of_a_call():
    seed = tf.constant([1, 2])
    assert dropout_seed_of_call(False) is dropout_seed_of_call(False, seed) is None
    assert dropout_seed_of_call(True, seed) is seed
    tf.random.set_seed(5)
    first, second = (dropout_seed_of_call(True) for _ in range(2))
    assert first.dtype == tf.int32 and first.shape == [2]
    assert (first != second).numpy().any()
    tf.random.set_seed(5)
    np.testing.assert_array_equal(dropout_seed_of_call(True), first)
