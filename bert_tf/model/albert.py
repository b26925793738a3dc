"""How ALBERT's encoder differs from BERT's: layers share weights, and embeddings are narrower.

Read it next to `bert_tf/model/encoder.py`. Everything else is BERT's: a `BertModel` with an
`AlbertConfig` uses this encoder instead of BERT's (https://arxiv.org/abs/1909.11942, section 3.1;
original: google-research/albert, modeling.py).

Dimension letters and dtypes: see `bert_tf/modeling.py`.
"""

import keras
import tensorflow as tf

from bert_tf.model.activations import get_activation
from bert_tf.model.albert_configuration import AlbertConfig
from bert_tf.model.dropout import dropout
from bert_tf.model.encoder import SelfAttention
from bert_tf.model.layers import LayerNorm, NamedDense, make_dense
from bert_tf.model.saving import Savable, register
from bert_tf.model.shapes import get_shape_list
from bert_tf.seeds import fold_in


@register
class AlbertAttention(Savable, keras.layers.Layer):
    """Self-attention and the projection of its output: the scope `attention_1`.

    Args:
        dtype: dtype policy.
    """

    def __init__(self, config: AlbertConfig, dtype):
        super().__init__(name="attention_1", dtype=dtype)
        self.self_attention = SelfAttention(config, dtype)
        self.projection = NamedDense(config, config.hidden_size, None, "output", dtype)

    def build(self, input_shape=None):
        self.self_attention.build()
        self.projection.build()

    def call(self, hidden, input_mask, seed=None):
        """Returns the projected context, float [B*S, H], and probabilities, float32 [B, N, S, S].

        Args:
            hidden: float [B*S, H].
            input_mask: int32 [B, S] or [B, S, S]; see `SelfAttention`.
            seed: int32 [2] dropout seed of the probabilities, or None for no dropout.
        """
        context, probs = self.self_attention(hidden, input_mask, seed=seed)
        return self.projection(context), probs


@register
class Intermediate(Savable, keras.layers.Layer):
    """Both dense layers of the feed-forward network: the scope `intermediate`.

    Args:
        dtype: dtype policy.
    """

    def __init__(self, config: AlbertConfig, dtype):
        super().__init__(name="intermediate", dtype=dtype)
        self.config = config
        self.projection = NamedDense(
            config, config.hidden_size, None, "output", dtype, config.intermediate_size
        )

    def build(self, input_shape=None):
        config = self.config
        self.dense = make_dense(
            config.intermediate_size,
            config.hidden_size,
            config,
            self.dtype_policy,
            "dense",
            get_activation(config.hidden_act),
        )
        self.projection.build()

    def call(self, hidden):
        """Returns float [B*S, H] of float [B*S, H]."""
        return self.projection(self.dense(hidden))


@register
class FeedForward(Savable, keras.layers.Layer):
    """The feed-forward network: the scope `ffn_1`.

    Args:
        dtype: dtype policy.
    """

    def __init__(self, config: AlbertConfig, dtype):
        super().__init__(name="ffn_1", dtype=dtype)
        self.intermediate = Intermediate(config, dtype)

    def build(self, input_shape=None):
        self.intermediate.build()

    def call(self, hidden):
        """Returns float [B*S, H] of float [B*S, H]."""
        return self.intermediate(hidden)


@register
class InnerGroup(Savable, keras.layers.Layer):
    """Attention and feed-forward network (original: attention_ffn_block).

    Args:
        index: number within its group, from 0; part of its name.
        dtype: dtype policy.
    """

    def __init__(self, config: AlbertConfig, index: int, dtype):
        super().__init__(name=f"inner_group_{index}", dtype=dtype)
        self.config = config
        self.attention = AlbertAttention(config, dtype)
        self.attention_norm = LayerNorm(config)
        self.feed_forward = FeedForward(config, dtype)
        self.output_norm = LayerNorm(config, "LayerNorm_1")

    def build(self, input_shape=None):
        self.attention.build()
        self.feed_forward.build()
        for norm in (self.attention_norm, self.output_norm):
            norm.build((None, self.config.hidden_size))

    def call(self, hidden, input_mask, seed=None):
        """Returns the next hidden states, float [B*S, H], and probabilities, float32 [B, N, S, S].

        Args:
            hidden: float [B*S, H].
            input_mask: int32 [B, S] or [B, S, S]; see `SelfAttention`.
            seed: int32 [2] dropout seed, or None for no dropout.
        """
        rate = self.config.hidden_dropout_prob
        seeds = [None] * 3 if seed is None else [fold_in(seed, i) for i in range(3)]
        attended, probs = self.attention(hidden, input_mask, seed=seeds[0])
        attended = self.attention_norm(dropout(attended, rate, seeds[1]) + hidden)
        attended = tf.cast(attended, self.compute_dtype)
        output = dropout(self.feed_forward(attended), rate, seeds[2])
        return tf.cast(self.output_norm(output + attended), self.compute_dtype), probs


@register
class LayerGroup(Savable, keras.layers.Layer):
    """A group of consecutive inner groups, which several layers of the encoder may share.

    Args:
        index: number of the group, from 0; part of its name.
        dtype: dtype policy.
    """

    def __init__(self, config: AlbertConfig, index: int, dtype):
        super().__init__(name=f"group_{index}", dtype=dtype)
        self.inner_groups = [InnerGroup(config, i, dtype) for i in range(config.inner_group_num)]

    def build(self, input_shape=None):
        for inner_group in self.inner_groups:
            inner_group.build()

    def call(self, hidden, input_mask, seed=None):
        """Returns the outputs and the probabilities of each inner group, two lists of tensors.

        Args:
            hidden: float [B*S, H].
            input_mask: int32 [B, S] or [B, S, S]; see `SelfAttention`.
            seed: int32 [2] dropout seed, or None for no dropout.
        """
        outputs, all_probs = [], []
        for i, inner_group in enumerate(self.inner_groups):
            inner_seed = None if seed is None else fold_in(seed, i)
            hidden, probs = inner_group(hidden, input_mask, seed=inner_seed)
            outputs.append(hidden)
            all_probs.append(probs)
        return outputs, all_probs


@register
class Transformer(Savable, keras.layers.Layer):
    """ALBERT's layer stack (scope `transformer`): the groups, and which group each layer uses.

    Args:
        recompute_activations: see `BertModel`.
        dtype: dtype policy.
    """

    def __init__(self, config: AlbertConfig, recompute_activations: bool, dtype):
        super().__init__(name="transformer", dtype=dtype)
        self.recompute_activations = recompute_activations
        # As in the original, groups that no layer uses get no variables.
        used = config.used_groups
        self.groups = [LayerGroup(config, i, dtype) for i in used]
        self.order = [used.index(i) for i in config.layer_groups]

    def build(self, input_shape=None):
        for group in self.groups:
            group.build()

    def call(self, hidden, input_mask, seed=None):
        """Returns the outputs and the probabilities of each inner group of each layer, two lists.

        Args:
            hidden: float [B*S, H].
            input_mask: int32 [B, S] or [B, S, S]; see `SelfAttention`.
            seed: int32 [2] dropout seed, or None for no dropout.
        """
        outputs, all_probs = [], []
        for i, index in enumerate(self.order):
            layer_seed = None if seed is None else fold_in(seed, i)

            def run_layer(hidden, input_mask, group=self.groups[index], layer_seed=layer_seed):
                return group(hidden, input_mask, seed=layer_seed)

            if self.recompute_activations:
                run_layer = tf.recompute_grad(run_layer)
            layer_outputs, probs = run_layer(hidden, input_mask)
            hidden = layer_outputs[-1]
            outputs += layer_outputs
            all_probs += probs
        return outputs, all_probs


@register
class AlbertEncoder(Savable, keras.layers.Layer):
    """The projection of the embeddings and the stack of layers (original: transformer_model).

    Args:
        recompute_activations: see `BertModel`.
        dtype: dtype policy.
    """

    def __init__(self, config: AlbertConfig, recompute_activations: bool, dtype):
        super().__init__(name="encoder", dtype=dtype)
        self.config = config
        self.transformer = Transformer(config, recompute_activations, dtype)

    def build(self, input_shape=None):
        config, name = self.config, "embedding_hidden_mapping_in"
        self.mapping = None
        if config.embedding_size != config.hidden_size:
            sizes = config.hidden_size, config.embedding_size
            self.mapping = make_dense(*sizes, config, self.dtype_policy, name)
        self.transformer.build()

    def call(self, embedding_output, input_mask, seed=None):
        """Returns tuples of outputs, float [B, S, H], and of probabilities, float32 [B, N, S, S].

        Both have one tensor for each inner group of each layer.

        Args:
            embedding_output: float [B, S, E].
            input_mask: int32 [B, S] or [B, S, S]; see `SelfAttention`.
            seed: int32 [2] dropout seed, or None for no dropout.
        """
        batch_size, seq_length, width = get_shape_list(embedding_output, expected_rank=3)
        hidden = tf.reshape(embedding_output, [-1, width])  # [B*S, E]
        if self.mapping is not None:
            hidden = self.mapping(hidden)  # [B*S, H]
        outputs, all_probs = self.transformer(hidden, input_mask, seed=seed)
        shape = [batch_size, seq_length, self.config.hidden_size]
        return tuple(tf.reshape(output, shape) for output in outputs), tuple(all_probs)
