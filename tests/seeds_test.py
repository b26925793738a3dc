"""Tests of bert_tf.seeds: keys are TensorFlow's, and the bits made of them look random.

Masks are compared at every distance between two positions at once, by Fourier transforms: that
includes neighbours, rows and heads. `one_multiply`, a bad hash, fails each of these tests.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.model.layers import dropout
from bert_tf.seeds import fold_in, fold_in_range, random_bits

SEEDS = [[1, 2], [-5, 7], [2**31 - 1, -(2**31)]]
SHAPE = [16, 4, 32, 64]  # as attention: batch, heads, positions, positions
RATE = 0.1


def lowbias32(x):
    """An oracle in Python's integers: https://nullprogram.com/blog/2018/07/31/."""
    x = (x ^ (x >> 16)) * 0x7FEB352D % 2**32
    x = (x ^ (x >> 15)) * 0x846CA68B % 2**32
    return x ^ (x >> 16)


def philox(shape, seed, dtype):
    return tf.random.stateless_uniform(shape, seed, None, None, dtype, "philox")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("jit_compile", [None, False, True])
def test_bits_are_a_hash_of_position_and_key(seed, jit_compile):
    seed, shape = tf.constant(seed, tf.int32), [2, 3, 65]

    def draw(seed):
        return random_bits(shape, seed)

    if jit_compile is not None:
        draw = tf.function(draw, jit_compile=jit_compile, autograph=False)
    first, second = map(int, philox([2], seed, tf.uint32).numpy())
    numbers = [lowbias32(lowbias32((i + first) % 2**32) ^ second) for i in range(2 * 3 * 65)]
    np.testing.assert_array_equal(draw(seed), np.reshape(numbers, shape))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_folded_seed_is_that_of_tensorflow(seed):
    seed = tf.constant(seed, tf.int32)
    expected = [tf.random.experimental.stateless_fold_in(seed, i, "philox") for i in range(3)]
    np.testing.assert_array_equal(fold_in_range(seed, 3), expected)
    np.testing.assert_array_equal(fold_in(seed, tf.constant(2)), expected[2])
    assert fold_in_range(None, 2) == [None, None] and fold_in(None, 1) is None


def mask(*numbers):
    """Returns a flat mask of dropout, 1 where an element is kept, of a seed with numbers folded."""
    seed = functools.reduce(fold_in, numbers, tf.constant([12345, 0]))
    return (dropout(tf.ones(SHAPE), RATE, seed).numpy() != 0).ravel()


def deviations(masks):
    """Returns how far the shares of kept elements, in rows of 64, spread, in standard deviations.

    Each row has a binomial number of kept elements: a hash that keeps exactly 9 of 10 in every row
    is as wrong as one that keeps too few.
    """
    kept = np.concatenate([m.reshape(-1, 64).sum(1) for m in masks])
    spread = ((kept - 64 * (1 - RATE)) ** 2).mean() / (64 * RATE * (1 - RATE))
    return (spread - 1) / np.sqrt(2 / len(kept))


def largest_correlation(one, other):
    """Returns the largest correlation of two masks at any distance, in standard deviations."""
    transformed = [np.fft.rfft((m - (1 - RATE)) / np.sqrt(RATE * (1 - RATE))) for m in (one, other)]
    found = np.fft.irfft(transformed[0] * transformed[1].conj()) / np.sqrt(one.size)
    return np.abs(found[1 if one is other else 0 :]).max()


def one_multiply(shape, seed):
    """A bad hash, with the arguments of `random_bits`."""
    position = tf.reshape(tf.range(tf.reduce_prod(shape)), shape)
    key = philox([2], seed, tf.uint32)
    return (tf.cast(position, tf.uint32) + key[0]) * tf.constant(0x9E3779B1, tf.uint32) ^ key[1]


@pytest.fixture(params=[True, False], ids=["random_bits", "one_multiply"])
def is_good(request, monkeypatch):
    """Whether dropout has the library's hash or a bad one."""
    if not request.param:
        monkeypatch.setattr("bert_tf.model.layers.random_bits", one_multiply)
    return request.param


# Step, replica, layer and place in the layer.
MASKS = {
    "layers": [(5, 0, 1, layer, 0) for layer in range(12)],
    "places in a layer": [(5, 0, 1, 3, place) for place in range(3)],
    "steps": [(step, 0, 1, 3, 0) for step in range(1000, 1006)],
    "replicas": [(5, replica, 1, 3, 0) for replica in range(4)],
}
# Of 131,072 distances in 25 pairs, a good hash exceeds it with one choice of seeds in 150.
LIMIT = 6.0


@pytest.mark.parametrize("numbers", [*MASKS.values(), None], ids=[*MASKS, "seeds"])
def test_masks_do_not_depend_on_each_other(numbers, is_good):
    if numbers:
        masks = [mask(*each) for each in numbers]
    else:
        seeds = (tf.constant([seed, 7]) for seed in range(4))
        masks = [(dropout(tf.ones(SHAPE), RATE, x).numpy() != 0).ravel() for x in seeds]
    pairs = zip(masks, masks[1:], strict=False)
    assert (max(largest_correlation(*pair) for pair in pairs) < LIMIT) == is_good


def test_elements_of_a_mask_are_independent_and_binomial(is_good):
    kept = mask(5, 0, 1, 3, 0)
    assert (largest_correlation(kept, kept) < LIMIT) == is_good
    assert (abs(deviations([mask(step) for step in range(10)])) < 4) == is_good


@pytest.mark.parametrize(
    "rate", [0.1, *(pytest.param(rate, marks=pytest.mark.slow) for rate in (0.25, 0.9))]
)
def test_the_rate_has_four_digits(rate):
    """Of 67 million elements, the standard deviation of the share is at most 0.00006."""

    @tf.function(jit_compile=True, autograph=False)  # in little memory
    def share(seed):
        return tf.reduce_mean(tf.cast(dropout(tf.ones([8192, 1024]), rate, seed) == 0, tf.float32))

    shares = [share(tf.constant([3, i])).numpy() for i in range(8)]
    assert abs(np.mean(shares) - rate) < 4 * np.sqrt(rate * (1 - rate) / (8 * 8192 * 1024))
    assert 4 * np.sqrt(rate * (1 - rate) / (8 * 8192 * 1024)) < 0.00022
