"""The encoder of BERT: a stack of Transformer layers.

Hidden states are a matrix [B*S, H] between the layers: a reshape to three dimensions and back is
free on a GPU or CPU, but not on a TPU (original: transformer_model).

Arguments of the layers' `call`, here and in `bert_tf/model/albert.py`; for dimension letters and
dtypes see `bert_tf/modeling.py`:

    hidden      float [B*S, H]
    input_mask  int32 [B, S], 1 for tokens and 0 for padding; or [B, S, S], 1 where the position on
                the second axis may attend to the position on the third
    seed        int32 [2] dropout seed, or None for no dropout
"""

import contextvars
import functools

import keras
import tensorflow as tf

from bert_tf.model.attention import attend, attention_probs, is_recomputed, project
from bert_tf.model.configuration import BertConfig
from bert_tf.model.inputs import get_shape_list
from bert_tf.model.layers import (
    Composite,
    LayerNorm,
    NamedDense,
    answers_in_bfloat16,
    dropout,
    make_dense,
)
from bert_tf.model.saving import Savable, register
from bert_tf.seeds import fold_in_range

MASKED_SCORE = -10000.0  # the original's attention_layer adds this where the mask is 0


def attention_within_sequences(sequence_numbers: tf.Tensor) -> tf.Tensor:
    """Returns the mask of packed rows, int32 [B, S, S], from the tokens' sequence numbers.

    A token attends to the tokens of the same sequence (https://arxiv.org/abs/2107.02027, 3.2.2).
    `sequence_numbers` are int32 [B, S], from 1; 0 for padding.
    """
    attending = tf.expand_dims(sequence_numbers, 2)  # [B, S, 1]
    attended = tf.expand_dims(sequence_numbers, 1)  # [B, 1, S]
    return tf.cast((attending == attended) & (attended > 0), tf.int32)


@register
class SelfAttention(Savable, keras.layers.Layer):
    """Multi-head attention of a sequence to itself (original: attention_layer)."""

    def __init__(self, config: BertConfig, dtype):
        super().__init__(name="self", dtype=dtype)
        self.config = config

    def build(self, input_shape=None):
        size = self.config.hidden_size
        for name in ("query", "key", "value"):
            setattr(self, name, make_dense(size, size, self.config, self.dtype_policy, name))

    def call(self, hidden, input_mask, seed=None):
        """Returns the context, float [B*S, H], and attention probabilities, float32 [B, N, S, S].

        `input_mask` is int32 because Keras would round a float32 mask to bfloat16.
        """
        config = self.config
        num_heads = config.num_attention_heads
        head_size = config.hidden_size // num_heads
        seq_length = get_shape_list(input_mask)[1]

        if seed is not None:
            hidden = tf.reshape(hidden, [-1, seq_length, config.hidden_size])

        def split_heads(dense):  # -> [B, N, S, D]
            projected = dense(hidden) if seed is None else project(dense, hidden)
            projected = tf.reshape(projected, [-1, seq_length, num_heads, head_size])
            return tf.transpose(projected, [0, 2, 1, 3])

        query, key, value = map(split_heads, (self.query, self.key, self.value))
        dtype = tf.bfloat16 if answers_in_bfloat16(self.compute_dtype) else tf.float32
        # One mask for all heads and, unless rows are packed, for all attending positions. As in the
        # original, padding also attends.
        mask_adder = (1.0 - tf.cast(input_mask, tf.float32)) * MASKED_SCORE  # [B, S] or [B, S, S]
        # Not by tf.newaxis, which LiteRT cannot convert where S is dynamic.
        while mask_adder.shape.rank < 4:
            mask_adder = tf.expand_dims(mask_adder, 1)  # [B, 1, 1, S] or [B, 1, S, S]
        probs = attention_probs(query, key, tf.cast(mask_adder, dtype))  # [B, N, S, S]
        if seed is None:
            context = tf.matmul(tf.cast(probs, self.compute_dtype), value)  # [B, N, S, D]
        else:
            rate = config.attention_probs_dropout_prob
            context = attend(query, key, value, probs, rate, seed)
        context = tf.transpose(context, [0, 2, 1, 3])  # [B, S, N, D]
        return tf.reshape(context, [-1, config.hidden_size]), probs


@register
class ResidualOutput(Savable, keras.layers.Layer):
    """Projection, dropout, residual and LayerNorm: both `output` scopes of an encoder layer.

    `input_size` is H after attention, `intermediate_size` after the feed-forward layer.
    """

    def __init__(self, config: BertConfig, input_size: int, dtype):
        super().__init__(name="output", dtype=dtype)
        self.config = config
        self.input_size = input_size
        self.layer_norm = LayerNorm(config)

    def build(self, input_shape=None):
        size = self.config.hidden_size
        self.dense = make_dense(size, self.input_size, self.config, self.dtype_policy, "dense")
        self.layer_norm.build()

    def call(self, branch, residual, seed=None):
        """Returns float [B*S, H] for `branch`, float [B*S, input_size], and `residual`."""
        branch = dropout(self.dense(branch), self.config.hidden_dropout_prob, seed)
        return self.layer_norm.cast_to(self.compute_dtype, branch + residual)


@register
class Attention(Savable, Composite):
    """Self-attention and its residual output: the scope `attention`."""

    def __init__(self, config: BertConfig, dtype):
        super().__init__(name="attention", dtype=dtype)
        self.self_attention = SelfAttention(config, dtype)
        self.residual_output = ResidualOutput(config, config.hidden_size, dtype)

    def call(self, hidden, input_mask, seeds=(None, None)):
        """Returns hidden states, float [B*S, H], and probabilities, float32 [B, N, S, S].

        The first of the `seeds` is for the probabilities, the second for the projection.
        """
        context, probs = self.self_attention(hidden, input_mask, seed=seeds[0])
        return self.residual_output(context, hidden, seed=seeds[1]), probs


@register
class EncoderLayer(Savable, Composite):
    """Attention and feed-forward network (original: the body of transformer_model's loop)."""

    def __init__(self, config: BertConfig, index: int, dtype):
        super().__init__(name=f"layer_{index}", dtype=dtype)
        self.attention = Attention(config, dtype)
        size, act = config.intermediate_size, config.hidden_act
        self.intermediate = NamedDense(config, size, act, "intermediate", dtype)
        self.residual_output = ResidualOutput(config, size, dtype)

    def call(self, hidden, input_mask, seed=None):
        """Returns the next hidden states, float [B*S, H], and attention, float32 [B, N, S, S]."""
        seeds = fold_in_range(seed, 3)
        attended, probs = self.attention(hidden, input_mask, seeds=seeds[:2])
        output = self.residual_output(self.intermediate(attended), attended, seed=seeds[2])
        return output, probs


def recomputed(layer):
    """Returns a function that computes a layer, and computes it again for the gradient.

    Gradients do not flow through the probabilities that it returns. `tf.recompute_grad` would
    back-propagate zeros from an unused result, at the cost of two more products a layer.
    """

    def run(hidden, input_mask):
        context = contextvars.copy_context()
        context.run(is_recomputed.set, True)
        hidden, probs = context.run(layer, hidden, input_mask)
        return hidden, tf.nest.map_structure(tf.stop_gradient, probs)

    return tf.recompute_grad(run)


@register
class Encoder(Savable, Composite):
    """The stack of encoder layers (original: transformer_model)."""

    def __init__(self, config: BertConfig, recompute_activations: bool, dtype):
        super().__init__(name="encoder", dtype=dtype)
        self.recompute_activations = recompute_activations
        self.encoder_layers = [
            EncoderLayer(config, i, dtype) for i in range(config.num_hidden_layers)
        ]
        self.follow(self.encoder_layers)

    @property
    def layers(self):
        """The layers in order, as in `AlbertEncoder`."""
        return list(self.encoder_layers)

    def call(self, embedding_output, input_mask=None, seed=None):
        """Returns L outputs, float [B, S, H], and L attention probabilities, float32 [B, N, S, S].

        `embedding_output` is float [B, S, H]. An `input_mask` of None is all ones.
        """
        shape = get_shape_list(embedding_output, expected_rank=3)
        if input_mask is None:
            input_mask = tf.ones(shape[:2], tf.int32)
        hidden = tf.reshape(embedding_output, [-1, shape[-1]])  # [B*S, H]
        outputs, all_probs = [], []
        seeds = fold_in_range(seed, len(self.encoder_layers))
        for layer, layer_seed in zip(self.encoder_layers, seeds, strict=True):
            run = functools.partial(layer, seed=layer_seed)
            if self.recompute_activations:
                run = recomputed(run)
            hidden, probs = run(hidden, input_mask)
            outputs.append(tf.reshape(hidden, shape))
            all_probs.append(probs)
        return tuple(outputs), tuple(all_probs)
