"""How ALBERT's encoder differs from BERT's: layers share weights, and embeddings are narrower.

Read this next to `bert_tf/model/encoder.py`. Everything else is BERT's: a `BertModel` with an
`AlbertConfig` uses this encoder instead of BERT's (https://arxiv.org/abs/1909.11942, section 3.1;
original: google-research/albert, modeling.py).

Dimension letters and dtypes: see `bert_tf/modeling.py`; arguments of `call`: see the encoder's.
"""

import functools

import keras
import tensorflow as tf

from bert_tf.model.activations import get_activation
from bert_tf.model.encoder import SelfAttention, recomputed
from bert_tf.model.family import AlbertConfig
from bert_tf.model.inputs import get_shape_list
from bert_tf.model.layers import Composite, LayerNorm, NamedDense, dropout, make_dense
from bert_tf.model.saving import Savable, register
from bert_tf.seeds import fold_in_range


@register
class AlbertAttention(Savable, Composite):
    """Self-attention and the projection of its output: the scope `attention_1`."""

    def __init__(self, config: AlbertConfig, dtype):
        super().__init__(name="attention_1", dtype=dtype)
        self.self_attention = SelfAttention(config, dtype)
        self.projection = NamedDense(config, config.hidden_size, None, "output", dtype)

    def call(self, hidden, input_mask, seed=None):
        """Returns the projected context, float [B*S, H], and attention, float32 [B, N, S, S]."""
        context, probs = self.self_attention(hidden, input_mask, seed=seed)
        return self.projection(context), probs


@register
class Intermediate(Savable, keras.layers.Layer):
    """Both dense layers of the feed-forward network: the scope `intermediate`."""

    def __init__(self, config: AlbertConfig, dtype):
        super().__init__(name="intermediate", dtype=dtype)
        self.config = config
        self.projection = NamedDense(
            config, config.hidden_size, None, "output", dtype, config.intermediate_size
        )

    def build(self, input_shape=None):
        config = self.config
        sizes, act = (config.intermediate_size, config.hidden_size), config.hidden_act
        self.dense = make_dense(*sizes, config, self.dtype_policy, "dense", get_activation(act))
        self.projection.build()

    def call(self, hidden):
        """Returns float [B*S, H]."""
        return self.projection(self.dense(hidden))


@register
class FeedForward(Savable, Composite):
    """The feed-forward network: the scope `ffn_1`."""

    def __init__(self, config: AlbertConfig, dtype):
        super().__init__(name="ffn_1", dtype=dtype)
        self.intermediate = Intermediate(config, dtype)

    def call(self, hidden):
        """Returns float [B*S, H]."""
        return self.intermediate(hidden)


@register
class InnerGroup(Savable, Composite):
    """Attention and feed-forward network (original: attention_ffn_block)."""

    def __init__(self, config: AlbertConfig, index: int, dtype):
        super().__init__(name=f"inner_group_{index}", dtype=dtype)
        self.config = config
        self.attention = AlbertAttention(config, dtype)
        self.attention_norm = LayerNorm(config)
        self.feed_forward = FeedForward(config, dtype)
        self.output_norm = LayerNorm(config, "LayerNorm_1")

    def call(self, hidden, input_mask, seed=None):
        """Returns the next hidden states, float [B*S, H], and attention, float32 [B, N, S, S]."""
        rate = self.config.hidden_dropout_prob
        seeds = fold_in_range(seed, 3)
        attended, probs = self.attention(hidden, input_mask, seed=seeds[0])
        attended = dropout(attended, rate, seeds[1]) + hidden
        attended = self.attention_norm.cast_to(self.compute_dtype, attended)
        output = dropout(self.feed_forward(attended), rate, seeds[2])
        return self.output_norm.cast_to(self.compute_dtype, output + attended), probs


@register
class LayerGroup(Savable, Composite):
    """A group of consecutive inner groups, which several layers of the encoder may share."""

    def __init__(self, config: AlbertConfig, index: int, dtype):
        super().__init__(name=f"group_{index}", dtype=dtype)
        self.inner_groups = [InnerGroup(config, i, dtype) for i in range(config.inner_group_num)]
        self.follow(self.inner_groups)

    def call(self, hidden, input_mask, seed=None):
        """Returns two lists: each inner group's outputs, and its attention probabilities."""
        outputs, all_probs = [], []
        seeds = fold_in_range(seed, len(self.inner_groups))
        for inner_group, inner_seed in zip(self.inner_groups, seeds, strict=True):
            hidden, probs = inner_group(hidden, input_mask, seed=inner_seed)
            outputs.append(hidden)
            all_probs.append(probs)
        return outputs, all_probs


@register
class Transformer(Savable, Composite):
    """ALBERT's layer stack (scope `transformer`): the groups, and which group each layer uses."""

    def __init__(self, config: AlbertConfig, recompute_activations: bool, dtype):
        super().__init__(name="transformer", dtype=dtype)
        self.recompute_activations = recompute_activations
        # As in the original, groups that no layer uses get no variables.
        used = config.used_groups
        self.groups = [LayerGroup(config, i, dtype) for i in used]
        self.follow(self.groups)
        self.order = [used.index(i) for i in config.layer_groups]

    def call(self, hidden, input_mask, seed=None):
        """Returns lists of outputs and of probabilities: one for each inner group of each layer."""
        outputs, all_probs = [], []
        seeds = fold_in_range(seed, len(self.order))
        for index, layer_seed in zip(self.order, seeds, strict=True):
            run = functools.partial(self.groups[index], seed=layer_seed)
            if self.recompute_activations:
                run = recomputed(run)
            layer_outputs, probs = run(hidden, input_mask)
            hidden = layer_outputs[-1]
            outputs += layer_outputs
            all_probs += probs
        return outputs, all_probs


@register
class AlbertEncoder(Savable, keras.layers.Layer):
    """The projection of the embeddings and the stack of layers (original: transformer_model)."""

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

    @property
    def layers(self):
        """The layers in order; layers that share weights are the same object."""
        return [self.transformer.groups[i] for i in self.transformer.order]

    def call(self, embedding_output, input_mask=None, seed=None):
        """Returns tuples of outputs, float [B, S, H], and of probabilities, float32 [B, N, S, S].

        Both have one tensor for each inner group of each layer. `embedding_output` is float
        [B, S, E]; an `input_mask` of None is all ones.
        """
        batch_size, seq_length, width = get_shape_list(embedding_output, expected_rank=3)
        if input_mask is None:
            input_mask = tf.ones([batch_size, seq_length], tf.int32)
        hidden = tf.reshape(embedding_output, [-1, width])  # [B*S, E]
        if self.mapping is not None:
            hidden = self.mapping(hidden)  # [B*S, H]
        outputs, all_probs = self.transformer(hidden, input_mask, seed=seed)
        shape = [batch_size, seq_length, self.config.hidden_size]
        return tuple(tf.reshape(output, shape) for output in outputs), tuple(all_probs)
