"""Building blocks of BERT's layers: initial values, dense layers, LayerNorm, a gather, dropout.

Dimension letters and dtypes: see `bert_tf/modeling.py`.

Dropout's masks are determined by one seed for each call of a model. Each dropout uses the call's
seed with these numbers folded in, in this order (`bert_tf.seeds.fold_in`):

    0        embeddings
    1, i, 0  encoder layer i, attention probabilities
    1, i, 1  encoder layer i, output of the attention
    1, i, 2  encoder layer i, output of the layer
    2        input of the task's output layer (`heads.OutputLayer`)

In ALBERT the number of the inner group comes after the layer's: 1, i, j, 0 and so on, j from 0.
"""

import contextlib
import contextvars
import functools
import math
import os
from typing import Any

import keras
import tensorflow as tf

from bert_tf.bounds import switched
from bert_tf.errors import UserError, quoted
from bert_tf.model.activations import Activation, get_activation
from bert_tf.model.configuration import BertConfig
from bert_tf.model.inputs import get_shape_list, in_range
from bert_tf.model.saving import Savable, Unquantized, register
from bert_tf.seeds import initial_weights, initializer_seed, random_bits


def create_initializer(initializer_range: float = 0.02) -> keras.initializers.Initializer:
    """Returns a truncated normal initializer (original: modeling.create_initializer).

    Each initializer draws a new seed, from Python's `random` or as `seeds.seeded` says, so its
    values differ from other initializers'. Inside `seeds.reading_weights` nothing is drawn.

    Args:
        initializer_range: standard deviation before the tails beyond two deviations are cut off.
    """
    return _not_drawn() or keras.initializers.TruncatedNormal(
        stddev=initializer_range, seed=initializer_seed()
    )


def glorot_initializer() -> keras.initializers.Initializer:
    """Returns Glorot's uniform initializer, the default of `tf.layers.dense`, as in ELECTRA."""
    return _not_drawn() or keras.initializers.GlorotUniform(initializer_seed())


def _not_drawn() -> keras.initializers.Initializer | None:
    """Returns the initializer inside `seeds.reading_weights`; None outside of it."""
    kinds = {"zeros": keras.initializers.Zeros, "unset": _Unset}
    kind = initial_weights()
    return None if kind == "drawn" else kinds[kind]()


class _Unset(keras.initializers.Initializer):
    """Returns uninitialized memory, for a weight that is set before it is used."""

    def __call__(self, shape, dtype=None):
        return tf.raw_ops.Empty(shape=shape, dtype=dtype or tf.float32, init=False)


def head_initializer(glorot: bool) -> keras.initializers.Initializer:
    return glorot_initializer() if glorot else create_initializer()


@register
class Dense(Unquantized, keras.layers.Dense):
    """Keras's `Dense`, without its `quantize`."""


def make_dense(
    units: int,
    input_size: int,
    config: BertConfig,
    dtype: keras.DTypePolicy | str,
    name: str,
    activation: Activation | None = None,
    glorot: bool = False,
) -> keras.layers.Dense:
    """Builds a dense layer with the original's initial values, or ELECTRA's if `glorot`."""
    layer = Dense(
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

    `tf.einsum` gives the same bits, but converters to other formats lose axes of its reshapes.
    """
    batch_size, seq_length, *sizes = get_shape_list(vectors)
    matrix = tf.reshape(vectors, [batch_size, seq_length, math.prod(sizes)])
    total = tf.matmul(tf.expand_dims(weights, 1), matrix)  # [B, 1, ...]
    return tf.reshape(total, [batch_size, *sizes])


@register
class LayerNorm(Savable, keras.layers.LayerNormalization):
    """Normalises the last axis; statistics, scale and shift are float32.

    `call` takes float [..., H] and returns float32 [..., H], also under a bfloat16 policy.
    `cast_to` returns the result in the caller's compute dtype.
    """

    def __init__(self, config: BertConfig, name: str = "LayerNorm"):
        super().__init__(epsilon=config.layer_norm_eps, dtype="float32", name=name)
        self.hidden_size = config.hidden_size

    def build(self, input_shape=None):
        super().build(input_shape or (None, self.hidden_size))

    def cast_to(self, dtype: str, inputs: tf.Tensor) -> tf.Tensor:
        if answers_in_bfloat16(inputs.dtype):
            inputs = layer_norm(inputs, self.gamma.value, self.beta.value, self.epsilon)
            return tf.cast(inputs, dtype)
        return tf.cast(self(inputs), dtype)


class Composite(keras.layers.Layer):
    """A layer of other layers; `build` builds them in the order of its attributes."""

    def build(self, input_shape=None):
        for layer in self._flatten_layers(include_self=False, recursive=False):
            layer.build()

    def follow(self, layers: list[keras.layers.Layer]):
        """Makes a list's layers attributes: `tf.train.Checkpoint` leaves out Keras 3's lists.

        Keras's own files name a layer by its first attribute in alphabetical order: the list.
        """
        for layer in layers:
            setattr(self, f"tracked_{layer.name}", layer)


@register
class NamedDense(Savable, keras.layers.Layer):
    """A dense layer in its own scope, such as `intermediate/dense` or `pooler/dense`."""

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


_only_answers = contextvars.ContextVar("only_answers", default=False)


def only_answering() -> contextlib.AbstractContextManager[None]:
    """Marks functions traced in this context: run only on this machine, never differentiated."""
    return switched(_only_answers)


def answers_in_bfloat16(dtype: tf.DType | str) -> bool:
    """Returns whether LayerNorm and softmax may read and return `dtype`.

    They may if it is bfloat16, inside `only_answering` and with oneDNN. oneDNN's kernels compute
    in float32, so only the casts are left out.
    """
    return _only_answers.get() and tf.as_dtype(dtype) == tf.bfloat16 and _has_one_dnn()


def layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Returns bfloat16 `x` with its last axis normalized, by one kernel."""
    # TensorFlow's graph optimizer also makes this operation from others, if shapes are static.
    operation = tf.compat.v1.get_default_graph().create_op(
        "_MklLayerNorm",
        [x, *(tf.cast(tf.convert_to_tensor(y), x.dtype) for y in (gamma, beta))],
        [x.dtype],
        name="LayerNorm",
        attrs={
            "T": tf.compat.v1.AttrValue(type=x.dtype.as_datatype_enum),
            "epsilon": tf.compat.v1.AttrValue(f=epsilon),
        },
    )
    return operation.outputs[0]


@functools.cache
def _has_one_dnn() -> bool:
    """Returns whether `layer_norm` works here: TensorFlow uses oneDNN, and there is only a CPU."""
    if os.environ.get("TF_ENABLE_ONEDNN_OPTS", "").lower() in ("0", "false"):
        return False
    if {device.device_type for device in tf.config.list_physical_devices()} != {"CPU"}:
        return False
    with tf.init_scope():  # within another function's graph the operation would not run
        ones = tf.ones([1, 2], tf.bfloat16)
        try:
            tf.function(lambda: layer_norm(ones, ones[0], ones[0], 1e-12), autograph=False)()
        except (tf.errors.OpError, ValueError):  # no such kernel, or not for this processor
            return False
    return True


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
        seed: int32 [2], which determines the mask. None switches dropout off.
    """
    if not dropout_prob or seed is None:
        return input_tensor
    # Comparing raw bits with a threshold saves the conversion to float.
    bits = random_bits(get_shape_list(input_tensor), seed)
    keep = bits >= tf.constant(round(dropout_prob * 2**32), tf.uint32)
    scale = tf.constant(1.0 / (1.0 - dropout_prob), input_tensor.dtype)
    zero = tf.zeros([], input_tensor.dtype)

    # TensorFlow's own gradient of `tf.where` has 20 operations.
    @tf.custom_gradient
    def drop(x: tf.Tensor):
        return tf.where(keep, x * scale, zero), lambda g: tf.where(keep, g, zero) * scale

    return drop(input_tensor)


# Variables are always float32, so bfloat16 means Keras's mixed_bfloat16.
_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "mixed_bfloat16": "mixed_bfloat16"}
# For models that only answer: variables are also bfloat16, which halves the memory and saves casts.
ROUNDED = keras.DTypePolicy("bfloat16")


def dtype_name(dtype: Any) -> Any:
    """Returns the name of a Keras policy or a dtype; any other value unchanged."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    return name or getattr(dtype, "__name__", dtype)  # np.float32 is a class


def dtype_policy(dtype: Any = None) -> keras.DTypePolicy:
    """Returns the policy of a model's layers.

    `dtype` is a name such as "float32", "bfloat16" or "mixed_bfloat16", a dtype of TensorFlow or
    NumPy, a `keras.DTypePolicy`, `ROUNDED`, or None for `keras.config.dtype_policy()`.
    """
    if dtype is ROUNDED:
        return ROUNDED
    name = dtype_name(keras.config.dtype_policy() if dtype is None else dtype)
    if not isinstance(name, str) or name not in _POLICIES:
        source = " (keras.config.dtype_policy())" if dtype is None else ""
        raise UserError(
            "dtype must be float32, or bfloat16 or mixed_bfloat16, which both keep variables in"
            f" float32; received {quoted(name)}{source}"
        )
    return keras.DTypePolicy(_POLICIES[name])
