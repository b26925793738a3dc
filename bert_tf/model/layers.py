"""Building blocks of BERT's layers: initial values, dense layers, LayerNorm, a gather.

Dimension letters and dtypes: see `bert_tf/modeling.py`.
"""

import math

import keras
import tensorflow as tf

from bert_tf.model.activations import Activation, get_activation
from bert_tf.model.answering import answers_in_bfloat16, layer_norm
from bert_tf.model.configuration import BertConfig
from bert_tf.model.ranges import in_range
from bert_tf.model.saving import Savable, register
from bert_tf.model.shapes import get_shape_list
from bert_tf.seeds import initial_weights


def create_initializer(initializer_range: float = 0.02) -> keras.initializers.Initializer:
    """Returns a truncated normal initializer (original: modeling.create_initializer).

    Its seed is drawn from Python's `random`, so each initializer gives different values. Inside
    `seeds.reading_weights` nothing is drawn.

    Args:
        initializer_range: standard deviation before the tails beyond two deviations are cut off.
    """
    return _not_drawn() or keras.initializers.TruncatedNormal(stddev=initializer_range)


def glorot_initializer() -> keras.initializers.Initializer:
    """Returns the default of `tf.layers.dense`, which some layers of ELECTRA keep; see above."""
    return _not_drawn() or keras.initializers.GlorotUniform()


def _not_drawn() -> keras.initializers.Initializer | None:
    """Returns the initializer inside `seeds.reading_weights`; None outside of it."""
    kinds = {"zeros": keras.initializers.Zeros, "unset": _Unset}
    kind = initial_weights()
    return None if kind == "drawn" else kinds[kind]()


class _Unset(keras.initializers.Initializer):
    """Gives memory as it is, for a weight that is set before it is used."""

    def __call__(self, shape, dtype=None):
        return tf.raw_ops.Empty(shape=shape, dtype=dtype or tf.float32, init=False)


def head_initializer(glorot: bool) -> keras.initializers.Initializer:
    """Returns the initializer of a head's weights; `glorot`: see `BertConfig.glorot_heads`."""
    return glorot_initializer() if glorot else create_initializer()


def make_dense(
    units: int,
    input_size: int,
    config: BertConfig,
    dtype: keras.DTypePolicy | str,
    name: str,
    activation: Activation | None = None,
    glorot: bool = False,
) -> keras.layers.Dense:
    """Returns a built `keras.layers.Dense` with the original's initial values.

    `glorot`: where the original, ELECTRA's, gives no initializer.
    """
    layer = keras.layers.Dense(
        units,
        activation=activation,
        kernel_initializer=(
            glorot_initializer() if glorot else create_initializer(config.initializer_range)
        ),
        dtype=dtype,
        name=name,
    )
    layer.build((None, input_size))
    return layer


def gather_indexes(sequence_tensor: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    """Returns the vectors of a float [B, S, H] tensor at int32 [B, P] positions, float [B*P, H]."""
    batch_size, seq_length, width = get_shape_list(sequence_tensor, expected_rank=3)
    positions = in_range(positions, "positions", seq_length, "the length of the sequence")
    offsets = tf.range(batch_size)[:, tf.newaxis] * seq_length  # [B, 1]
    flat_positions = tf.reshape(positions + offsets, [-1])
    return tf.gather(tf.reshape(sequence_tensor, [-1, width]), flat_positions)


def weighted_sum(weights: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
    """Returns the sum of vectors, float [B, S, ...], over S with float [B, S] weights: [B, ...].

    The product that `tf.einsum` makes of it has the same bits, but converters to other formats lose
    axes of einsum's reshapes.
    """
    batch_size, seq_length, *sizes = get_shape_list(vectors)
    matrix = tf.reshape(vectors, [batch_size, seq_length, math.prod(sizes)])
    total = tf.matmul(tf.expand_dims(weights, 1), matrix)  # [B, 1, ...]
    return tf.reshape(total, [batch_size, *sizes])


@register
class LayerNorm(Savable, keras.layers.LayerNormalization):
    """Normalises the last axis; statistics, scale and shift are float32.

    `call` takes float [..., H] and returns float32 [..., H], under a bfloat16 policy too. `cast_to`
    returns the result in the caller's compute dtype.
    """

    def __init__(self, config: BertConfig, name: str = "LayerNorm"):
        super().__init__(epsilon=config.layer_norm_eps, dtype="float32", name=name)
        self.hidden_size = config.hidden_size

    def build(self, input_shape=None):
        super().build(input_shape or (None, self.hidden_size))

    def cast_to(self, dtype: str, inputs: tf.Tensor) -> tf.Tensor:
        """Returns the normalised inputs, in a dtype."""
        if answers_in_bfloat16(inputs.dtype):
            inputs = layer_norm(inputs, self.gamma.value, self.beta.value, self.epsilon)
            return tf.cast(inputs, dtype)
        return tf.cast(self(inputs), dtype)


class Composite(keras.layers.Layer):
    """A layer that consists of other layers; `build` builds them in the order of its attributes."""

    def build(self, input_shape=None):
        for layer in self._flatten_layers(include_self=False, recursive=False):
            layer.build()


@register
class NamedDense(Savable, keras.layers.Layer):
    """A dense layer in its own scope, such as `intermediate/dense` or `pooler/dense`.

    For the activation see `get_activation`. An `input_size` of None is `hidden_size`.
    """

    def __init__(
        self,
        config: BertConfig,
        units: int,
        activation: str | Activation | None,
        name: str,
        dtype: keras.DTypePolicy | str,
        input_size: int | None = None,
    ):
        super().__init__(name=name, dtype=dtype)
        self.config = config
        self.units = units
        self.input_size = input_size or config.hidden_size
        self.activation = get_activation(activation)

    def build(self, input_shape=None):
        sizes = self.units, self.input_size
        self.dense = make_dense(*sizes, self.config, self.dtype_policy, "dense", self.activation)

    def call(self, inputs):
        """Returns float [..., units] for inputs, float [..., input_size]."""
        return self.dense(inputs)
