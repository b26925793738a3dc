"""What stands between BERT's layers and the logits of each token.

Dimension letters: B batch size, S sequence length, H hidden size, F size of the features, U units
of the LSTM in each direction, D directions (2).
"""

from collections.abc import Callable
from typing import NamedTuple

import keras
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.modeling import BertOutput


class Features(NamedTuple):
    """How BERT's layers make the features of a token.

    of: what a `BertOutput` has -> float [B, S, F].
    layers: how many encoder layers there must be.
    width: F, in hidden sizes.
    """

    of: Callable[[BertOutput], tf.Tensor]
    layers: int = 1
    width: int = 1


# The rows of the paper's table 7. It calls the sums weighted and does not tell the weights: here
# they are plain.
FEATURE_LAYERS = {
    "embeddings": Features(lambda bert: bert.embedding_output),
    "last": Features(lambda bert: bert.all_encoder_layers[-1]),
    "second_to_last": Features(lambda bert: bert.all_encoder_layers[-2], layers=2),
    "sum_last_four": Features(lambda bert: tf.add_n(bert.all_encoder_layers[-4:]), layers=4),
    "concat_last_four": Features(
        lambda bert: tf.concat(bert.all_encoder_layers[-4:], axis=-1), layers=4, width=4
    ),
    "sum_all": Features(lambda bert: tf.add_n(bert.all_encoder_layers)),
}


def check_feature_layers(feature_layers: str, num_hidden_layers: int) -> None:
    """Returns nothing if a model of so many encoder layers has the features.

    Raises:
        UserError: it has too few.
    """
    needed = FEATURE_LAYERS[feature_layers].layers
    if num_hidden_layers < needed:
        raise UserError(
            f"--feature_layers={feature_layers} needs a model of at least {needed} layers;"
            f" num_hidden_layers of --bert_config_file is {num_hidden_layers}. Choose another of"
            f" {', '.join(FEATURE_LAYERS)}"
        )


class Direction(keras.layers.Layer):
    """The weights of an LSTM in one direction: `kernel`, `recurrent_kernel` and `bias`.

    Gates, initial values and order (input, forget, candidate, output) are those of
    `keras.layers.LSTM`. That layer itself is not used because it keeps the state of a random
    generator among its variables, and multiplies by the input at each step.
    """

    def __init__(self, input_size: int, units: int, name: str):
        super().__init__(name=name, dtype="float32")
        self.input_size = input_size
        self.units = units

    def build(self, input_shape=None):
        units = self.units

        def forget_nothing(shape, dtype=None):
            zeros, ones = tf.zeros([units], dtype), tf.ones([units], dtype)
            return tf.concat([zeros, ones, zeros, zeros], axis=0)

        for name, shape, initializer in (
            ("kernel", (self.input_size, 4 * units), "glorot_uniform"),
            ("recurrent_kernel", (units, 4 * units), "orthogonal"),
            ("bias", (4 * units,), forget_nothing),
        ):
            weight = self.add_weight(
                shape=shape, initializer=initializer, autocast=False, name=name
            )
            setattr(self, name, weight)


class BidirectionalLstm(keras.layers.Layer):
    """An LSTM from either end of the sequence, side by side.

    Padding leaves the state as it is, so that the outputs at tokens do not depend on it.
    """

    def __init__(self, input_size: int, units: int, name: str, dtype="float32"):
        super().__init__(name=name, dtype=dtype)
        self.units = units
        self.directions = [Direction(input_size, units, name) for name in ("forward", "backward")]

    def build(self, input_shape=None):
        for direction in self.directions:
            direction.build()

    def call(self, inputs, input_mask):
        """Returns the outputs of both directions, float32 [B, S, 2U].

        Args:
            inputs: float [B, S, F].
            input_mask: int32 [B, S], 1 for tokens and 0 for padding.
        """
        kernels, recurrent, biases = (
            tf.stack([getattr(direction, name).value for direction in self.directions])
            for name in ("kernel", "recurrent_kernel", "bias")
        )
        recurrent = tf.cast(recurrent, self.compute_dtype)  # [D, U, 4U]

        def both(x):  # [B, S, ...] -> [D, S, B, ...], the second from its end
            x = tf.einsum("bs...->sb...", x)
            return tf.stack([x, tf.reverse(x, [0])])

        inputs = tf.cast(inputs, self.compute_dtype)
        kernels = tf.cast(kernels, self.compute_dtype)
        # The product with the input is one for all steps; only the state's is in the loop.
        projected = tf.einsum("dsbf,dfg->sdbg", both(inputs), kernels)  # [S, D, B, 4U]
        projected = tf.cast(projected, tf.float32) + biases[:, tf.newaxis]
        is_token = tf.einsum("dsb->sdb", both(input_mask))[..., tf.newaxis] > 0  # [S, D, B, 1]

        def step(state, now):
            output, cell = state  # float32 [D, B, U]
            gates, token = now
            product = tf.matmul(tf.cast(output, self.compute_dtype), recurrent)
            i, f, c, o = tf.split(gates + tf.cast(product, tf.float32), 4, axis=-1)
            next_cell = tf.sigmoid(f) * cell + tf.sigmoid(i) * tf.tanh(c)
            next_output = tf.sigmoid(o) * tf.tanh(next_cell)
            return tf.where(token, next_output, output), tf.where(token, next_cell, cell)

        zeros = tf.zeros([2, projected.shape[2], self.units])
        outputs, _ = tf.scan(step, (projected, is_token), (zeros, zeros))  # [S, D, B, U]
        forward, backward = outputs[:, 0], tf.reverse(outputs[:, 1], [0])
        return tf.transpose(tf.concat([forward, backward], axis=-1), [1, 0, 2])


class BiLstm(keras.layers.Layer):
    """Bidirectional LSTMs on top of one another: the container `lstm` of `layer_0`, `layer_1`."""

    def __init__(self, input_size: int, units: int, num_layers: int = 2, dtype="float32"):
        super().__init__(name="lstm", dtype=dtype)
        sizes = [input_size] + [2 * units] * (num_layers - 1)
        self.lstm_layers = [
            BidirectionalLstm(size, units, f"layer_{i}", self.dtype_policy)
            for i, size in enumerate(sizes)
        ]
        self.build()

    def build(self, input_shape=None):
        if not self.built:
            for layer in self.lstm_layers:
                layer.build()
            self.built = True

    def call(self, inputs, input_mask):
        """Returns the outputs of the last layer, float32 [B, S, 2U], of float [B, S, F]."""
        for layer in self.lstm_layers:
            inputs = layer(inputs, input_mask)
        return inputs
