"""The feature-based tagger: features of a frozen BERT and a BiLSTM on them (the paper, 5.3).

Dimension letters and dtypes: see `bert_tf/modeling.py`; F (`input_size`) is the width of a token's
features, U (`units`) the number of units of the LSTM in each direction.
"""

import keras
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.model.layers import Composite
from bert_tf.model.saving import Savable, register
from bert_tf.model.shapes import get_shape_list
from bert_tf.tasks.tagging.schema import FEATURE_LAYERS


def check_feature_layers(feature_layers: str, num_hidden_layers: int) -> None:
    """Raises UserError if a model has too few encoder layers for the features."""
    needed = FEATURE_LAYERS[feature_layers].layers
    if num_hidden_layers < needed:
        raise UserError(
            f"--feature_layers={feature_layers} needs a model with at least {needed} layers;"
            f" num_hidden_layers of --bert_config_file is {num_hidden_layers}. Choose a different"
            f" one of {', '.join(FEATURE_LAYERS)}"
        )


@register
class Direction(Savable, keras.layers.Layer):
    """The weights of an LSTM in one direction: `kernel`, `recurrent_kernel` and `bias`.

    The gates, their order (input, forget, candidate, output) and initial values match
    `keras.layers.LSTM`. That layer is not used, because its variables include the state of a random
    generator and because it multiplies by the input at each step.
    """

    def __init__(self, input_size: int, units: int, name: str):
        super().__init__(name=name, dtype="float32")
        self.input_size = input_size
        self.units = units

    def build(self, input_shape=None):
        units = self.units

        def forget_nothing(shape, dtype=None):
            return tf.constant([0] * units + [1] * units + [0] * (2 * units), dtype)

        for name, shape, initializer in (
            ("kernel", (self.input_size, 4 * units), "glorot_uniform"),
            ("recurrent_kernel", (units, 4 * units), "orthogonal"),
            ("bias", (4 * units,), forget_nothing),
        ):
            setattr(
                self,
                name,
                self.add_weight(shape, initializer, "float32", autocast=False, name=name),
            )


@register
class BidirectionalLstm(Savable, Composite):
    """An LSTM from left to right and one from right to left, outputs concatenated.

    Padding leaves the state unchanged, so the outputs at tokens do not depend on it. The state and
    the gates are float32 under every dtype policy.
    """

    def __init__(self, input_size: int, units: int, name: str, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.units = units
        self.directions = [Direction(input_size, units, name) for name in ("forward", "backward")]

    def call(self, inputs, input_mask):
        """Returns the outputs, float32 [B, S, 2U]: left to right, then right to left.

        Args:
            inputs: float [B, S, F].
            input_mask: int32 [B, S], 1 for tokens and 0 for padding.
        """
        kernels, recurrent, biases = (
            tf.stack([getattr(direction, name).value for direction in self.directions])
            for name in ("kernel", "recurrent_kernel", "bias")
        )
        recurrent = tf.cast(recurrent, self.compute_dtype)  # [2, U, 4U]

        def both(x):  # [B, S, ...] -> [2, S, B, ...], the second reversed along S
            x = tf.einsum("bs...->sb...", x)
            return tf.stack([x, tf.reverse(x, [0])])

        inputs = tf.cast(inputs, self.compute_dtype)
        kernels = tf.cast(kernels, self.compute_dtype)  # [2, F, 4U]
        # Multiply by the input once for all steps; only the product with the state is in the loop.
        projected = tf.einsum("dsbf,dfg->sdbg", both(inputs), kernels)  # [S, 2, B, 4U]
        projected = tf.cast(projected, tf.float32) + biases[:, tf.newaxis]
        is_token = tf.einsum("dsb->sdb", both(input_mask))[..., tf.newaxis] > 0  # [S, 2, B, 1]

        def step(state, now):
            output, cell = state  # float32 [2, B, U]
            gates, token = now
            product = tf.matmul(tf.cast(output, self.compute_dtype), recurrent)
            i, f, c, o = tf.split(gates + tf.cast(product, tf.float32), 4, axis=-1)
            next_cell = tf.sigmoid(f) * cell + tf.sigmoid(i) * tf.tanh(c)
            next_output = tf.sigmoid(o) * tf.tanh(next_cell)
            return tf.where(token, next_output, output), tf.where(token, next_cell, cell)

        zeros = tf.zeros([2, get_shape_list(projected)[2], self.units])
        outputs, _ = tf.scan(step, (projected, is_token), (zeros, zeros))  # [S, 2, B, U]
        forward, backward = outputs[:, 0], tf.reverse(outputs[:, 1], [0])
        return tf.transpose(tf.concat([forward, backward], axis=-1), [1, 0, 2])


@register
class BiLstm(Savable, Composite):
    """Two bidirectional LSTMs: the scope `lstm` of `layer_0` and `layer_1`."""

    def __init__(self, input_size: int, units: int, dtype=None):
        super().__init__(name="lstm", dtype=dtype)
        self.lstm_layers = [
            BidirectionalLstm(size, units, f"layer_{i}", self.dtype_policy)
            for i, size in enumerate((input_size, 2 * units))
        ]

    def call(self, inputs, input_mask):
        """Returns the second layer's outputs, float32 [B, S, 2U]; see `BidirectionalLstm.call`."""
        for layer in self.lstm_layers:
            inputs = layer(inputs, input_mask)
        return inputs
