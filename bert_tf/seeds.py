"""Random seeds of TensorFlow's stateless operations and of Keras's initializers."""

import contextlib
import contextvars
import random
from collections.abc import Iterator

import tensorflow as tf


def fold_in(seed: tf.Tensor | None, data: int | tf.Tensor) -> tf.Tensor | None:
    """Returns a new seed, int32 [2], a function of `seed` and `data`; None if `seed` is None.

    Args:
        seed: int32 [2], or None for no random numbers.
        data: a Python integer or int32 [].
    """
    if seed is None:
        return None
    return tf.random.experimental.stateless_fold_in(seed, data, alg="philox")


_weights_are_read = contextvars.ContextVar("weights_are_read", default=False)


@contextlib.contextmanager
def reading_weights() -> Iterator[None]:
    """Models built in this context start with zeros: a checkpoint sets their weights next.

    Drawing 340 million random numbers takes seconds.
    """
    token = _weights_are_read.set(True)
    try:
        yield
    finally:
        _weights_are_read.reset(token)


def weights_are_read() -> bool:
    """Returns whether this is called inside `reading_weights`."""
    return _weights_are_read.get()


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
