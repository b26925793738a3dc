"""Tagging, a label for each word: head, model, loss, predictions.

The feature-based tagger has a BiLSTM on features of a frozen BERT (the paper, 5.3). Dimension
letters and dtypes: see `bert_tf/modeling.py`; F (`input_size`) is the width of a token's features,
U (`units`) the number of units of the LSTM in each direction.
"""

from typing import Any

import keras
import tensorflow as tf

from bert_tf.engine.steps import Features, Sums
from bert_tf.errors import UserError
from bert_tf.model.configuration import OUTPUT_DROPOUT_PROB, BertConfig
from bert_tf.model.heads import cross_entropy, example_weights
from bert_tf.model.inputs import WEIGHTS, finite, get_shape_list, in_range, shaped
from bert_tf.model.layers import Composite, glorot_initializer
from bert_tf.model.saving import Savable, register
from bert_tf.seeds import initializer_seed
from bert_tf.tasks.tagging.settings import FEATURE_LAYERS
from bert_tf.tasks.task_model import TaskModel


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

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables; `input_shape` is not used."""
        units = self.units

        def forget_nothing(shape: Any, dtype: Any = None) -> tf.Tensor:
            return tf.constant([0] * units + [1] * units + [0] * (2 * units), dtype)

        orthogonal = keras.initializers.Orthogonal
        for name, shape, initializer in (
            ("kernel", (self.input_size, 4 * units), glorot_initializer()),
            ("recurrent_kernel", (units, 4 * units), orthogonal(seed=initializer_seed())),
            ("bias", (4 * units,), forget_nothing),
        ):
            weight = self.add_weight(shape, initializer, "float32", autocast=False, name=name)
            setattr(self, name, weight)


@register
class BidirectionalLstm(Savable, Composite):
    """An LSTM from left to right and one from right to left, with concatenated outputs.

    Padding leaves the state unchanged, so the outputs at tokens do not depend on it. The state and
    the gates are float32 under every dtype policy.
    """

    def __init__(self, input_size: int, units: int, name: str, dtype: Any = None):
        super().__init__(name=name, dtype=dtype)
        self.units = units
        self.directions = [Direction(input_size, units, name) for name in ("forward", "backward")]
        self.follow(self.directions)

    def call(self, inputs: tf.Tensor, input_mask: tf.Tensor) -> tf.Tensor:
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

        def both(x: tf.Tensor) -> tf.Tensor:
            # [B, S, ...] -> [2, S, B, ...], the second reversed along S
            x = tf.einsum("bs...->sb...", x)
            return tf.stack([x, tf.reverse(x, [0])])

        inputs = tf.cast(inputs, self.compute_dtype)
        kernels = tf.cast(kernels, self.compute_dtype)  # [2, F, 4U]
        # Multiply by the input once for all steps; only the product with the state is in the loop.
        projected = tf.einsum("dsbf,dfg->sdbg", both(inputs), kernels)  # [S, 2, B, 4U]
        projected = tf.cast(projected, tf.float32) + biases[:, tf.newaxis]
        is_token = tf.einsum("dsb->sdb", both(input_mask))[..., tf.newaxis] > 0  # [S, 2, B, 1]

        def step(state: Any, now: Any) -> tuple[tf.Tensor, tf.Tensor]:
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

    def __init__(self, input_size: int, units: int, dtype: Any = None):
        super().__init__(name="lstm", dtype=dtype)
        self.lstm_layers = [
            BidirectionalLstm(size, units, f"layer_{i}", self.dtype_policy)
            for i, size in enumerate((input_size, 2 * units))
        ]
        self.follow(self.lstm_layers)

    def call(self, inputs: tf.Tensor, input_mask: tf.Tensor) -> tf.Tensor:
        """Returns the second layer's outputs, float32 [B, S, 2U]; see `BidirectionalLstm.call`."""
        for layer in self.lstm_layers:
            inputs = layer(inputs, input_mask)
        return inputs


@register
class TaggingModel(TaskModel):
    """BERT with a linear layer on each token (the paper, section 5.3 and figure 4d).

    Args:
        num_labels: number of labels.
        feature_layers: None to fine-tune all of BERT. With "embeddings", "last", "second_to_last",
            "sum_last_four", "concat_last_four" or "sum_all" BERT is frozen, and a two-layer BiLSTM
            on the output of these layers is trained.
        lstm_size: units of the BiLSTM in each direction.
        output_dropout_prob: dropout before the head, a constant in the original.
        **options: see `BertModel`.

    Raises:
        UserError: BERT has too few layers for `feature_layers`.
    """

    label_names = ("label_ids", "label_mask")
    task_metrics = ("accuracy",)

    def __init__(
        self,
        config: BertConfig,
        num_labels: int,
        feature_layers: str | None = None,
        lstm_size: int = 768,
        output_dropout_prob: float = OUTPUT_DROPOUT_PROB,
        **options: Any,
    ):
        super().__init__(config, **options)
        self.bert.pooler.trainable = False  # no logit depends on it
        self.num_labels = num_labels
        self.feature_layers = feature_layers
        self.lstm: Any = None
        size = config.hidden_size
        if feature_layers:
            check_feature_layers(feature_layers, config.num_layer_outputs)
            self.bert.trainable = False
            size *= FEATURE_LAYERS[feature_layers].width
            self.lstm = BiLstm(size, lstm_size, dtype=self.bert.dtype_policy)
            self.lstm.build()
            size = 2 * lstm_size
        self.head = self.output_layer(num_labels, output_dropout_prob, size=size)

    def call(
        self,
        input_ids: tf.Tensor,
        input_mask: tf.Tensor | None = None,
        segment_ids: tf.Tensor | None = None,
        training: bool = False,
        dropout_seed: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns logits, float32 [B, S, num_labels]; for the arguments see `TaskModel.call`.

        A frozen BERT never has dropout.
        """
        if input_mask is None:
            input_mask = tf.ones(get_shape_list(input_ids), tf.int32)
        inputs = input_ids, input_mask, segment_ids
        has_dropout = training and not self.feature_layers
        output = self.bert(*inputs, training=has_dropout, dropout_seed=dropout_seed)
        tokens = output.sequence_output  # [B, S, H]
        if self.feature_layers:
            features = FEATURE_LAYERS[self.feature_layers].of(output)  # [B, S, F]
            tokens = self.lstm(tf.stop_gradient(features), input_mask)  # [B, S, 2 * lstm_size]
        return self.head(tokens, training=training, dropout_seed=dropout_seed)

    def normalizers(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns `words`, the sum of the weights of the words to tag, float32 []."""
        return {"words": tf.reduce_sum(_word_weights(features))}

    def checked_labels(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns `label_ids` and `label_mask`, int32 [B, S], and `label_weights`, float32 [B, S].

        A label that does not count may be any number. `label_weights` are left out if not given.
        """
        shape, meaning = get_shape_list(features["input_ids"]), "a number for each token"
        mask = shaped(features["label_mask"], "label_mask", shape, meaning)
        mask = in_range(mask, "label_mask", 2, "1 for a label that counts")
        checked = {"label_mask": mask}
        if "label_weights" in features:
            weights = shaped(features["label_weights"], "label_weights", shape, meaning)
            checked["label_weights"] = finite(weights, "label_weights", bounds=WEIGHTS)
        labels = shaped(features["label_ids"], "label_ids", shape, meaning)
        counted = _word_weights({**features, **checked}) > 0.0
        labels = in_range(labels, "label_ids", self.num_labels, "num_labels", counted)
        return {**checked, "label_ids": labels}

    def loss_and_metrics(
        self, outputs: Any, features: Features, normalizers: Features
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the mean cross entropy of the words to tag, float32 [], and their accuracy.

        The accuracy is two float32 []: the weights of the correct words and of all.
        `label_weights` and `example_weight` weight the loss and both numbers.
        """
        label_ids, weights = features["label_ids"], _word_weights(features)
        loss = tf.reduce_sum(weights * cross_entropy(outputs, label_ids))
        predicted = tf.argmax(outputs, axis=-1, output_type=tf.int32)
        right = weights * tf.cast(predicted == label_ids, tf.float32)
        sums = {"accuracy": (tf.reduce_sum(right), tf.reduce_sum(weights))}
        return tf.math.divide_no_nan(loss, normalizers["words"]), sums

    def predictions(self, outputs: Any, features: Features) -> dict[str, tf.Tensor]:
        """Returns each word's predicted label and loss, at its first piece.

        `predictions`: int32 [B, S], indices of labels, -1 where `label_mask` is 0. `losses`:
        float32 [B, S], the cross entropy with `label_ids`, 0 where `label_mask` is 0.
        """
        begins_word = features["label_mask"] > 0
        predicted = tf.argmax(outputs, axis=-1, output_type=tf.int32)
        losses = cross_entropy(outputs, features["label_ids"])
        return {
            "predictions": tf.where(begins_word, predicted, -1),
            "losses": tf.where(begins_word, losses, 0.0),
        }


def _word_weights(features: Features) -> tf.Tensor:
    """Returns the weight of each word to tag at its first piece, else 0: float32 [B, S].

    The weight is the word's `label_weights` times its example's weight, both 1 by default.
    """
    weights = tf.cast(features["label_mask"], tf.float32)
    if "label_weights" in features:
        weights *= features["label_weights"]
    return weights * example_weights(features)[:, tf.newaxis]
