"""Random seeds: for TensorFlow's stateless operations, and for Keras's initializers."""

import contextlib
import random
from collections.abc import Iterator

import tensorflow as tf


def fold_in(seed: tf.Tensor, data: int | tf.Tensor) -> tf.Tensor:
    """Returns a new seed, int32 [2], that depends on nothing but `seed` and `data`.

    Args:
        seed: int32 [2].
        data: an integer, or an int32 scalar.
    """
    return tf.random.experimental.stateless_fold_in(seed, data, alg="philox")


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Makes initial weights that are drawn within it follow from `seed`.

    An initializer of Keras without a seed of its own draws one from Python's `random`, whose state
    is afterwards what it was before.
    """
    state = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(state)
