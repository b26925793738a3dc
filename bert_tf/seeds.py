"""Random seeds of TensorFlow's stateless operations and of Keras's initializers."""

import contextlib
import contextvars
import random
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

# Of TensorFlow's `_philox_scramble_seed`, and of its enumeration of algorithms.
_SCRAMBLING_KEY, _PHILOX = 0x02461E293EC8F720, 1


def random_bits(shape: Sequence[int] | tf.Tensor, seed: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Returns random integers of `dtype` that follow from `seed`, int32 [2]; all bits are random.

    They are those of `tf.random.stateless_uniform(shape, seed, None, None, dtype, "philox")`, whose
    every call adds 30 operations to a graph. The algorithm is pinned because the automatic choice
    differs between XLA and TensorFlow's own kernels.
    """

    def draw(shape: Any, key: tf.Tensor, counter: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        return tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=shape, key=key, counter=counter, dtype=dtype, alg=_PHILOX
        )

    scrambling = tf.constant([_SCRAMBLING_KEY], tf.uint64)
    mixed = draw([2], scrambling, tf.cast(seed, tf.uint64), tf.uint64)
    return draw(shape, mixed[:1], mixed * tf.constant([0, 1], tf.uint64), dtype)


def fold_in(seed: tf.Tensor | None, data: int | tf.Tensor) -> tf.Tensor | None:
    """Returns a new seed, int32 [2], a function of `seed` and `data`; None if `seed` is None.

    Args:
        seed: int32 [2], or None for no random numbers.
        data: a Python integer or int32 [].
    """
    if seed is None:
        return None
    return tf.stack([random_bits([], seed, tf.int32), data])


def fold_in_range(seed: tf.Tensor | None, count: int) -> list[tf.Tensor | None]:
    """Returns `fold_in(seed, i)` for each i below `count`."""
    if seed is None:
        return [None] * count
    first = random_bits([], seed, tf.int32)
    return [tf.stack([first, i]) for i in range(count)]


_initial_weights = contextvars.ContextVar("initial_weights", default="drawn")


@contextlib.contextmanager
def reading_weights(all_are_set: bool = False) -> Iterator[None]:
    """Models built in this context start with zeros: a checkpoint sets their weights next.

    Drawing 340 million random numbers takes seconds.

    Args:
        all_are_set: whether the caller sets every weight. They then start with whatever is in their
            memory, which takes no room before it is written.
    """
    token = _initial_weights.set("unset" if all_are_set else "zeros")
    try:
        yield
    finally:
        _initial_weights.reset(token)


def initial_weights() -> str:
    """Returns "drawn", "zeros" or "unset": what a model that is built here starts with."""
    return _initial_weights.get()


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds the initial weights of models built in this context.

    A Keras initializer without a seed draws one from Python's `random`, which is seeded here and
    restored at the end.
    """
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
