"""Pre-training heads: hidden states -> logits of masked LM and next sentence prediction.

Dimension letters and dtypes: see `bert_tf/modeling.py`.
"""

from collections.abc import Callable

import keras
import tensorflow as tf

from bert_tf.model.activations import get_activation
from bert_tf.model.configuration import BertConfig
from bert_tf.model.heads import linear
from bert_tf.model.layers import Dense, LayerNorm, create_initializer, gather_indexes
from bert_tf.model.saving import Savable, register


@register
class Transform(Savable, keras.layers.Layer):
    """Dense layer, activation and LayerNorm before the product with the word embeddings."""

    def __init__(self, config: BertConfig, dtype, name: str = "transform"):
        super().__init__(name=name, dtype=dtype)
        self.config = config
        self.dense = Dense(
            config.embedding_width,
            activation=get_activation(config.masked_lm_act),
            kernel_initializer=create_initializer(config.initializer_range),
            dtype=dtype,
            name="dense",
        )
        self.layer_norm = LayerNorm(config)

    def build(self, input_shape=None):
        self.dense.build((None, self.config.hidden_size))
        self.layer_norm.build((None, self.config.embedding_width))

    def call(self, hidden):
        """Takes float [B*P, H] and returns float [B*P, E]."""
        return self.layer_norm.cast_to(self.compute_dtype, self.dense(hidden))


@register
class MaskedLanguageModel(Savable, keras.layers.Layer):
    """Logits over the vocabulary at masked positions (original: get_masked_lm_output).

    The output weights are the word embeddings; only the bias belongs to this head.
    """

    def __init__(self, config: BertConfig, dtype=None):
        super().__init__(name="predictions", dtype=dtype)
        self.vocab_size = config.vocab_size
        self.transform = Transform(config, self.dtype_policy)

    def build(self, input_shape=None):
        self.transform.build()
        shape, options = (self.vocab_size,), {"dtype": "float32", "autocast": False}
        self.output_bias = self.add_weight(shape, "zeros", name="output_bias", **options)

    def call(self, sequence_output, positions, embedding_table):
        """Returns logits, float32 [B*P, V].

        Args:
            sequence_output: float [B, S, H].
            positions: int32 [B, P], the masked positions; None for all, with logits [B*S, V].
            embedding_table: float [V, E], the word embeddings.
        """
        return masked_lm_logits(
            self.transform, sequence_output, positions, embedding_table, self.output_bias
        )


def masked_lm_logits(
    transform: Callable[[tf.Tensor], tf.Tensor],
    sequence_output: tf.Tensor,
    positions: tf.Tensor | None,
    embedding_table: tf.Tensor,
    output_bias: keras.Variable,
) -> tf.Tensor:
    """Returns the logits of `MaskedLanguageModel.call`, with the given layer and bias."""
    if positions is None:
        hidden = tf.reshape(sequence_output, [-1, sequence_output.shape[-1]])  # [B*S, H]
    else:
        hidden = gather_indexes(sequence_output, positions)  # [B*P, H]
    hidden = transform(hidden)  # [B*P, E]
    table = tf.cast(embedding_table, hidden.dtype)
    logits = tf.cast(tf.matmul(hidden, table, transpose_b=True), tf.float32)
    return logits + output_bias.value


@register
class NextSentence(Savable, keras.layers.Layer):
    """Logits of next sentence prediction (original: get_next_sentence_output).

    Class 0: the second sentence follows the first. Class 1: it is a random one.
    """

    def __init__(self, config: BertConfig, dtype=None):
        super().__init__(name="seq_relationship", dtype=dtype)
        self.config = config

    def build(self, input_shape=None):
        shape, options = (2, self.config.hidden_size), {"dtype": "float32", "autocast": False}
        initial = create_initializer(self.config.initializer_range)
        self.output_weights = self.add_weight(shape, initial, name="output_weights", **options)
        self.output_bias = self.add_weight((2,), "zeros", name="output_bias", **options)

    def call(self, pooled_output):
        """Returns logits, float32 [B, 2], of pooled outputs, float [B, H]; B*K rows if packed."""
        return linear(pooled_output, self.output_weights.value, self.output_bias.value)


@register
class PretrainingHeads(Savable, keras.layers.Layer):
    """Both pre-training heads (scope `cls`); RoBERTa has only the masked-LM head."""

    def __init__(self, config: BertConfig, dtype=None):
        super().__init__(name="cls", dtype=dtype)
        self.predictions = MaskedLanguageModel(config, self.dtype_policy)
        self.seq_relationship = None
        if config.has_next_sentence:
            self.seq_relationship = NextSentence(config, self.dtype_policy)
        self.build()

    def build(self, input_shape=None):
        if not self.built:
            self.predictions.build()
            if self.seq_relationship is not None:
                self.seq_relationship.build()
            self.built = True

    def call(self, sequence_output, pooled_output, positions, embedding_table):
        """Returns logits of masked LM, float32 [B*P, V], and next sentence, float32 [B, 2] or None.

        `pooled_output` is float [B, H]; for packed rows [B*K, H], with logits [B*K, 2]. For the
        rest see `MaskedLanguageModel`; Keras casts `embedding_table` to the compute dtype.
        """
        masked_lm_logits = self.predictions(sequence_output, positions, embedding_table)
        if self.seq_relationship is None:
            return masked_lm_logits, None
        return masked_lm_logits, self.seq_relationship(pooled_output)
