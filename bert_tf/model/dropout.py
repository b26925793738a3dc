"""Dropout whose masks are determined by one seed for each call of a model.

Each dropout uses the call's seed with these numbers folded in, in this order
(`bert_tf.seeds.fold_in`):

    0        embeddings
    1, i, 0  encoder layer i, attention probabilities
    1, i, 1  encoder layer i, output of the attention
    1, i, 2  encoder layer i, output of the layer
    2        input of the task's output layer (`heads.OutputLayer`)

In ALBERT the number of the inner group comes after the layer's: 1, i, j, 0 and so on, j from 0.
"""

import tensorflow as tf

from bert_tf.seeds import random_bits


def dropout_seed_of_call(training: bool, dropout_seed: tf.Tensor | None = None) -> tf.Tensor | None:
    """Returns the seed of a call's dropout masks, int32 [2], or None if there is no dropout.

    If `dropout_seed` is None, each call in training draws one from TensorFlow's global generator.
    """
    if not training:
        return None
    if dropout_seed is None:
        return tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32)
    return dropout_seed


def dropout(
    input_tensor: tf.Tensor, dropout_prob: float | None, seed: tf.Tensor | None
) -> tf.Tensor:
    """Returns the input with elements set to 0 at random and the rest scaled up.

    The expected value of each element stays the same (original: modeling.dropout).

    Args:
        input_tensor: float [...].
        dropout_prob: probability that an element is dropped. 0 or None switches dropout off.
        seed: int32 [2]; the mask depends on nothing else. None switches dropout off.
    """
    if not dropout_prob or seed is None:
        return input_tensor
    # Comparing raw bits with a threshold saves the conversion to float.
    bits = random_bits(tf.shape(input_tensor), seed, tf.uint32)
    keep = bits >= tf.constant(round(dropout_prob * 2**32), tf.uint32)
    scale = tf.constant(1.0 / (1.0 - dropout_prob), input_tensor.dtype)
    zero = tf.zeros([], input_tensor.dtype)

    # The gradient that TensorFlow takes of `tf.where` has 20 operations.
    @tf.custom_gradient
    def drop(x: tf.Tensor):
        return tf.where(keep, x * scale, zero), lambda g: tf.where(keep, g, zero) * scale

    return drop(input_tensor)
