"""Heads: hidden states -> logits, and their cross-entropy.

Dimension letters: B batch size, S sequence length, H hidden size, V vocabulary size, P masked
positions in a sequence.
"""

import keras
import tensorflow as tf

from bert_tf.model.configuration import BertConfig, get_activation
from bert_tf.model.layers import LayerNorm, create_initializer, dropout, get_shape_list
from bert_tf.seeds import fold_in

# Of what `OutputLayer` is given; the original's, whatever the configuration says.
OUTPUT_DROPOUT_PROB = 0.1


def gather_indexes(sequence_tensor: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    """Returns the vectors at the given positions, [B*P, H] (original: gather_indexes).

    Args:
        sequence_tensor: float [B, S, H].
        positions: int32 [B, P], positions within each sequence.
    """
    batch_size, seq_length, width = get_shape_list(sequence_tensor, expected_rank=3)
    offsets = tf.range(batch_size)[:, tf.newaxis] * seq_length  # [B, 1]
    flat_positions = tf.reshape(positions + offsets, [-1])
    return tf.gather(tf.reshape(sequence_tensor, [-1, width]), flat_positions)


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


class Transform(keras.layers.Layer):
    """Dense layer, activation and LayerNorm before the vocabulary product."""

    def __init__(self, config: BertConfig, dtype):
        super().__init__(name="transform", dtype=dtype)
        self.hidden_size = config.hidden_size
        self.dense = keras.layers.Dense(
            config.hidden_size,
            activation=get_activation(config.hidden_act),
            kernel_initializer=create_initializer(config.initializer_range),
            dtype=dtype,
            name="dense",
        )
        self.layer_norm = LayerNorm()

    def build(self, input_shape=None):
        self.dense.build((None, self.hidden_size))
        self.layer_norm.build((None, self.hidden_size))

    def call(self, hidden):
        return tf.cast(self.layer_norm(self.dense(hidden)), self.compute_dtype)


class MaskedLanguageModel(keras.layers.Layer):
    """Logits over the vocabulary at masked positions (original: get_masked_lm_output).

    The output weights are the word embeddings; the bias of each word piece is this head's own.
    """

    def __init__(self, config: BertConfig, dtype="float32"):
        super().__init__(name="predictions", dtype=dtype)
        self.vocab_size = config.vocab_size
        self.transform = Transform(config, self.dtype_policy)

    def build(self, input_shape=None):
        self.transform.build()
        self.output_bias = self.add_weight(
            shape=(self.vocab_size,), initializer="zeros", autocast=False, name="output_bias"
        )

    def call(self, sequence_output, positions, embedding_table):
        """Returns float32 logits, [B*P, V].

        Args:
            sequence_output: float [B, S, H].
            positions: int32 [B, P].
            embedding_table: float32 [V, H].
        """
        hidden = self.transform(gather_indexes(sequence_output, positions))  # [B*P, H]
        table = tf.cast(embedding_table, self.compute_dtype)
        logits = tf.cast(tf.matmul(hidden, table, transpose_b=True), tf.float32)
        return logits + self.output_bias.value


class NextSentence(keras.layers.Layer):
    """Logits of "is the next sentence" (0) and "is a random one" (1).

    Original: get_next_sentence_output.
    """

    def __init__(self, config: BertConfig, dtype="float32"):
        super().__init__(name="seq_relationship", dtype=dtype)
        self.config = config

    def build(self, input_shape=None):
        self.output_weights = self.add_weight(
            shape=(2, self.config.hidden_size),
            initializer=create_initializer(self.config.initializer_range),
            autocast=False,
            name="output_weights",
        )
        self.output_bias = self.add_weight(
            shape=(2,), initializer="zeros", autocast=False, name="output_bias"
        )

    def call(self, pooled_output):
        """Returns float32 logits, [B, 2], of float [B, H]."""
        return linear(pooled_output, self.output_weights.value, self.output_bias.value)


class PretrainingHeads(keras.layers.Layer):
    """The container `cls` of both pre-training heads."""

    def __init__(self, config: BertConfig, dtype="float32"):
        super().__init__(name="cls", dtype=dtype)
        self.predictions = MaskedLanguageModel(config, self.dtype_policy)
        self.seq_relationship = NextSentence(config, self.dtype_policy)
        self.build()

    def build(self, input_shape=None):
        if not self.built:
            self.predictions.build()
            self.seq_relationship.build()
            self.built = True

    def call(self, sequence_output, pooled_output, positions, embedding_table):
        """Returns masked-LM logits, [B*P, V], and next-sentence logits, [B, 2]."""
        masked_lm_logits = self.predictions(sequence_output, positions, embedding_table)
        return masked_lm_logits, self.seq_relationship(pooled_output)


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
