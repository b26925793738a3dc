"""Dropout whose masks depend on a seed alone."""

import tensorflow as tf


def dropout(
    input_tensor: tf.Tensor, dropout_prob: float | None, seed: tf.Tensor | None
) -> tf.Tensor:
    """Returns the input with elements set to 0 at random and the others scaled up.

    The expected value of each element stays the same (original: modeling.dropout).

    Args:
        input_tensor: float [...].
        dropout_prob: probability that an element is dropped. 0 or None switches dropout off.
        seed: int32 [2]; the mask depends on nothing else. None switches dropout off.
    """
    if not dropout_prob or seed is None:
        return input_tensor
    # Raw bits against a threshold: a float conversion less than a uniform number. The algorithm is
    # pinned because the automatic choice differs between XLA and the rest.
    bits = tf.random.stateless_uniform(
        tf.shape(input_tensor), seed, minval=None, maxval=None, dtype=tf.uint32, alg="philox"
    )
    keep = bits >= tf.constant(round(dropout_prob * 2**32), tf.uint32)
    scale = tf.constant(1.0 / (1.0 - dropout_prob), input_tensor.dtype)
    return tf.where(keep, input_tensor * scale, tf.zeros([], input_tensor.dtype))
