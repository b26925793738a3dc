"""The layers of BERT, each named as its scope in google-research/bert.

Dimension letters of the shape comments:
    B  batch size              H  hidden size
    S  sequence length         N  number of attention heads
    V  vocabulary size         D  size of one head, H / N
    L  number of layers
"""

import math

import keras
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.model.configuration import Activation, BertConfig, get_activation
from bert_tf.seeds import fold_in

LAYER_NORM_EPSILON = 1e-12  # tf.contrib.layers.layer_norm, which the original calls
MASKED_SCORE = -10000.0  # what attention_layer of the original adds where the mask is 0


def create_initializer(initializer_range: float = 0.02) -> keras.initializers.Initializer:
    """Returns a truncated normal initializer of its own seed, drawn from Keras's global one."""
    return keras.initializers.TruncatedNormal(stddev=initializer_range)


def dropout(input_tensor: tf.Tensor, dropout_prob: float | None, seed: tf.Tensor | None):
    """Returns the input with each element dropped at rate `dropout_prob`, the rest scaled up.

    Args:
        input_tensor: float [...].
        dropout_prob: rate of dropping (not of keeping).
        seed: int32 [2]; the mask is a function of it alone. None switches dropout off.
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


def get_shape_list(
    tensor: tf.Tensor, expected_rank: int | list[int] | None = None, name: str = "tensor"
) -> list[int | tf.Tensor]:
    """Returns the dimensions of a tensor, as Python numbers wherever they are static.

    Raises:
        UserError: the rank is not (one of) `expected_rank`.
    """
    if expected_rank is not None:
        ranks = [expected_rank] if isinstance(expected_rank, int) else expected_rank
        if tensor.shape.rank not in ranks:
            raise ValueError(
                f"{name} must have rank {' or '.join(map(str, ranks))}, not {tensor.shape.rank}"
                f" (shape {tensor.shape})"
            )
    static, dynamic = tensor.shape.as_list(), tf.shape(tensor)
    return [dynamic[i] if size is None else size for i, size in enumerate(static)]


class LayerNorm(keras.layers.LayerNormalization):
    """Normalises the last axis, with statistics and scale in float32 whatever the input's type.

    The result is a float32 tensor under a bfloat16 policy too (of a bfloat16 input with no more
    than its precision); that is why the callers cast it.
    """

    def __init__(self):
        super().__init__(epsilon=LAYER_NORM_EPSILON, dtype="float32", name="LayerNorm")


def _dense(units: int, input_size: int, config: BertConfig, dtype, name: str, activation=None):
    """Returns a built dense layer with the original's initial values."""
    layer = keras.layers.Dense(
        units,
        activation=activation,
        kernel_initializer=create_initializer(config.initializer_range),
        dtype=dtype,
        name=name,
    )
    layer.build((None, input_size))
    return layer


class Embeddings(keras.layers.Layer):
    """Sum of word, segment and position embeddings, normalised (the paper, figure 2)."""

    def __init__(self, config: BertConfig, use_one_hot_embeddings: bool, dtype):
        super().__init__(name="embeddings", dtype=dtype)
        self.config = config
        self.use_one_hot_embeddings = use_one_hot_embeddings
        self.layer_norm = LayerNorm()

    def build(self, input_shape=None):
        config = self.config
        sizes = {
            "word_embeddings": config.vocab_size,
            "token_type_embeddings": config.type_vocab_size,
            "position_embeddings": config.max_position_embeddings,
        }
        for name, size in sizes.items():
            table = self.add_weight(
                shape=(size, config.hidden_size),
                initializer=create_initializer(config.initializer_range),
                autocast=False,  # gather in float32, cast what was gathered
                name=name,
            )
            setattr(self, name, table)
        self.layer_norm.build((None, None, config.hidden_size))

    def _one_hot_lookup(self, ids: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
        one_hot_ids = tf.one_hot(tf.reshape(ids, [-1]), table.shape[0], dtype=self.compute_dtype)
        return tf.matmul(one_hot_ids, tf.cast(table, self.compute_dtype))  # [B*S, H]

    def call(self, input_ids, token_type_ids, seed=None):
        batch_size, seq_length = get_shape_list(input_ids)
        config = self.config
        longest = config.max_position_embeddings
        rule = (
            f"must be at most max_position_embeddings ({longest}) of the configuration; lower"
            " --max_seq_length or change --bert_config_file."
        )
        checks = []
        if not isinstance(seq_length, int):
            checks.append(
                tf.debugging.assert_less_equal(
                    seq_length, longest, message=f"The sequence length {rule}"
                )
            )
        elif seq_length > longest:
            raise UserError(f"The sequence length ({seq_length}) {rule}")
        shape = [batch_size, seq_length, config.hidden_size]
        if self.use_one_hot_embeddings:
            words = self._one_hot_lookup(input_ids, self.word_embeddings.value)
        else:
            words = tf.gather(self.word_embeddings.value, tf.reshape(input_ids, [-1]))
        words = tf.reshape(words, shape)  # [B, S, H]
        # One-hot even where words are gathered: the table is tiny (original: the same).
        types = self._one_hot_lookup(token_type_ids, self.token_type_embeddings.value)
        types = tf.reshape(types, shape)  # [B, S, H]
        with tf.control_dependencies(checks):
            positions = self.position_embeddings.value[:seq_length]  # [S, H]
        float32 = tf.float32
        embeddings = tf.cast(words, float32) + tf.cast(types, float32) + positions
        embeddings = tf.cast(self.layer_norm(embeddings), self.compute_dtype)
        return dropout(embeddings, config.hidden_dropout_prob, seed)


class SelfAttention(keras.layers.Layer):
    """Multi-headed attention of a sequence to itself (original: attention_layer)."""

    def __init__(self, config: BertConfig, dtype):
        super().__init__(name="self", dtype=dtype)
        self.config = config

    def build(self, input_shape=None):
        size = self.config.hidden_size
        for name in ("query", "key", "value"):
            setattr(self, name, _dense(size, size, self.config, self.dtype_policy, name))

    def call(self, hidden, input_mask, seed=None):
        """Returns the context, [B*S, H], and the attention probabilities, [B, N, S, S].

        Args:
            hidden: float [B*S, H].
            input_mask: int32 [B, S], 1 for tokens and 0 for padding. An integer, because Keras
                would round a float32 argument to bfloat16.
            seed: int32 [2] dropout seed or None.
        """
        config = self.config
        num_heads = config.num_attention_heads
        head_size = config.hidden_size // num_heads
        seq_length = get_shape_list(input_mask)[1]

        def split_heads(x):  # [B*S, H] -> [B, N, S, D]
            x = tf.reshape(x, [-1, seq_length, num_heads, head_size])
            return tf.transpose(x, [0, 2, 1, 3])

        query, key, value = (split_heads(d(hidden)) for d in (self.query, self.key, self.value))
        scores = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32)  # [B, N, S, S]
        # Broadcast over heads and attending positions; padding attends too, to no effect.
        mask_adder = (1.0 - tf.cast(input_mask, tf.float32)) * MASKED_SCORE  # [B, S]
        mask_adder = mask_adder[:, tf.newaxis, tf.newaxis, :]
        scores = scores * (1.0 / math.sqrt(head_size)) + mask_adder
        probs = tf.nn.softmax(scores)
        dropped = dropout(probs, config.attention_probs_dropout_prob, seed)
        context = tf.matmul(tf.cast(dropped, self.compute_dtype), value)  # [B, N, S, D]
        context = tf.transpose(context, [0, 2, 1, 3])
        return tf.reshape(context, [-1, config.hidden_size]), probs


class ResidualOutput(keras.layers.Layer):
    """Projection, dropout, residual, LayerNorm: the `output` scopes of an encoder layer."""

    def __init__(self, config: BertConfig, input_size: int, dtype):
        super().__init__(name="output", dtype=dtype)
        self.config = config
        self.input_size = input_size
        self.layer_norm = LayerNorm()

    def build(self, input_shape=None):
        size = self.config.hidden_size
        self.dense = _dense(size, self.input_size, self.config, self.dtype_policy, "dense")
        self.layer_norm.build((None, size))

    def call(self, branch, residual, seed=None):
        branch = dropout(self.dense(branch), self.config.hidden_dropout_prob, seed)
        return tf.cast(self.layer_norm(branch + residual), self.compute_dtype)


class Attention(keras.layers.Layer):
    """Self-attention and its residual output."""

    def __init__(self, config: BertConfig, dtype):
        super().__init__(name="attention", dtype=dtype)
        self.self_attention = SelfAttention(config, dtype)
        self.residual_output = ResidualOutput(config, config.hidden_size, dtype)

    def build(self, input_shape=None):
        self.self_attention.build()
        self.residual_output.build()

    def call(self, hidden, input_mask, seeds=(None, None)):
        context, probs = self.self_attention(hidden, input_mask, seed=seeds[0])
        return self.residual_output(context, hidden, seed=seeds[1]), probs


class NamedDense(keras.layers.Layer):
    """One dense layer in a scope of its own: `intermediate/dense`, `pooler/dense`."""

    def __init__(self, config: BertConfig, units: int, activation: Activation | None, name, dtype):
        super().__init__(name=name, dtype=dtype)
        self.config = config
        self.units = units
        self.activation = activation

    def build(self, input_shape=None):
        self.dense = _dense(
            self.units,
            self.config.hidden_size,
            self.config,
            self.dtype_policy,
            "dense",
            self.activation,
        )

    def call(self, inputs):
        return self.dense(inputs)


class EncoderLayer(keras.layers.Layer):
    """Attention and feed-forward network (original: transformer_model, one turn of its loop)."""

    def __init__(self, config: BertConfig, index: int, dtype):
        super().__init__(name=f"layer_{index}", dtype=dtype)
        self.attention = Attention(config, dtype)
        self.intermediate = NamedDense(
            config,
            config.intermediate_size,
            get_activation(config.hidden_act),
            name="intermediate",
            dtype=dtype,
        )
        self.residual_output = ResidualOutput(config, config.intermediate_size, dtype)

    def build(self, input_shape=None):
        self.attention.build()
        self.intermediate.build()
        self.residual_output.build()

    def call(self, hidden, input_mask, seed=None):
        """Returns the next hidden states, [B*S, H], and the attention probabilities."""
        seeds = [None] * 3 if seed is None else [fold_in(seed, i) for i in range(3)]
        attended, probs = self.attention(hidden, input_mask, seeds=seeds[:2])
        output = self.residual_output(self.intermediate(attended), attended, seed=seeds[2])
        return output, probs


class Encoder(keras.layers.Layer):
    """The stack of encoder layers (original: transformer_model)."""

    def __init__(self, config: BertConfig, recompute_activations: bool, dtype):
        super().__init__(name="encoder", dtype=dtype)
        self.recompute_activations = recompute_activations
        self.encoder_layers = [
            EncoderLayer(config, i, dtype) for i in range(config.num_hidden_layers)
        ]

    def build(self, input_shape=None):
        for layer in self.encoder_layers:
            layer.build()

    def call(self, embedding_output, input_mask, seed=None):
        """Returns two tuples, one item a layer: [B, S, H] outputs, [B, N, S, S] probabilities."""
        shape = get_shape_list(embedding_output, expected_rank=3)
        hidden = tf.reshape(embedding_output, [-1, shape[-1]])  # [B*S, H]
        outputs, all_probs = [], []
        for i, layer in enumerate(self.encoder_layers):
            layer_seed = None if seed is None else fold_in(seed, i)

            def run_layer(hidden, input_mask, layer=layer, layer_seed=layer_seed):
                return layer(hidden, input_mask, seed=layer_seed)

            if self.recompute_activations:
                run_layer = tf.recompute_grad(run_layer)
            hidden, probs = run_layer(hidden, input_mask)
            outputs.append(tf.reshape(hidden, shape))
            all_probs.append(probs)
        return tuple(outputs), tuple(all_probs)
