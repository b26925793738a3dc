"""Heads: hidden states -> logits, and their cross-entropy.

Dimension letters: B batch size, S sequence length, H hidden size, V vocabulary size, P masked
positions in a sequence.
"""

import keras
import tensorflow as tf

from bert_tf.model.dropout import dropout
from bert_tf.model.layers import create_initializer
from bert_tf.model.shapes import get_shape_list
from bert_tf.seeds import fold_in

# Of what `OutputLayer` is given; the original's, whatever the configuration says.
OUTPUT_DROPOUT_PROB = 0.1


def linear(hidden: tf.Tensor, weights: tf.Tensor, bias: tf.Tensor | None) -> tf.Tensor:
    """Returns float32 logits, [..., outputs]: a product in the dtype of `hidden`, and the bias.

    Args:
        hidden: float [..., size].
        weights: float32 [outputs, size].
        bias: float32 [outputs], if there is one.
    """
    # In two dimensions: a product that broadcasts has a gradient of shapes unknown to a TPU.
    *outer, size = get_shape_list(hidden)
    weights = tf.cast(weights, hidden.dtype)
    logits = tf.matmul(tf.reshape(hidden, [-1, size]), weights, transpose_b=True)
    logits = tf.cast(logits, tf.float32)
    if bias is not None:
        logits += bias
    return tf.reshape(logits, [*outer, logits.shape[-1]])


class OutputLayer(keras.layers.Layer):
    """A linear layer after dropout, the head of fine-tuning (original: create_model).

    Its variables are `output_weights` and `output_bias`, outside of any scope.

    Args:
        num_outputs: how many numbers it gives.
        size: of what it is given.
        use_bias: whether it has a bias.
    """

    def __init__(self, num_outputs: int, size: int, use_bias: bool = True):
        super().__init__(name="output")
        # Made here and not in build: there the layer's name would stand before theirs.
        self.output_weights = keras.Variable(
            create_initializer(), shape=(num_outputs, size), name="output_weights"
        )
        self.output_bias = None
        if use_bias:
            self.output_bias = keras.Variable("zeros", shape=(num_outputs,), name="output_bias")
        self.built = True

    def call(self, hidden, training=False, dropout_seed=None):
        """Returns float32 logits, [..., num_outputs].

        Args:
            hidden: float [..., size].
            training: whether dropout is on.
            dropout_seed: int32 [2], the model's.
        """
        if training:
            hidden = dropout(hidden, OUTPUT_DROPOUT_PROB, fold_in(dropout_seed, 2))
        bias = None if self.output_bias is None else self.output_bias.value
        return linear(hidden, self.output_weights.value, bias)


def cross_entropy(logits: tf.Tensor, label_ids: tf.Tensor) -> tf.Tensor:
    """Returns the loss of each row of logits, float32 [...].

    Args:
        logits: float32 [..., classes].
        label_ids: int32 [...].
    """
    one_hot_labels = tf.one_hot(label_ids, logits.shape[-1], dtype=tf.float32)
    return -tf.reduce_sum(tf.nn.log_softmax(logits) * one_hot_labels, axis=-1)


def model_logits(model: keras.Model, features, training=False, dropout_seed=None):
    """Returns what a fine-tuning model gives for a batch of its records.

    Args:
        model: called with `input_ids`, `input_mask` and `segment_ids`.
        features: of the batch, these among them.
        training: whether dropout is on.
        dropout_seed: int32 [2].
    """
    return model(
        features["input_ids"],
        features["input_mask"],
        features["segment_ids"],
        training=training,
        dropout_seed=dropout_seed,
    )
