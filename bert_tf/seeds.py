"""Random seeds as tensors."""

import tensorflow as tf


def fold_in(seed: tf.Tensor, data: int | tf.Tensor) -> tf.Tensor:
    """Returns a new seed, int32 [2], that depends on nothing but `seed` and `data`.

    Args:
        seed: int32 [2].
        data: an integer, or an int32 scalar.
    """
    return tf.random.experimental.stateless_fold_in(seed, data, alg="philox")
