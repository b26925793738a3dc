"""Tagging, a label for each word: model, loss, predictions.

Dimension letters and dtypes: see `bert_tf/modeling.py`; F is the width of a token's features.
"""

from typing import Any

import tensorflow as tf

from bert_tf.engine.steps import Features, Sums
from bert_tf.model.configuration import OUTPUT_DROPOUT_PROB, BertConfig
from bert_tf.model.heads import cross_entropy, example_weights
from bert_tf.model.ranges import WEIGHTS, finite, in_range, shaped
from bert_tf.model.saving import register
from bert_tf.model.shapes import get_shape_list
from bert_tf.tasks.tagging.head import BiLstm, check_feature_layers
from bert_tf.tasks.tagging.schema import FEATURE_LAYERS
from bert_tf.tasks.task_model import TaskModel


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
        """Returns logits, float32 [B, S, num_labels].

        Args:
            input_ids: int32 [B, S].
            input_mask: int32 [B, S], 1 for tokens and 0 for padding; None is all ones.
            segment_ids: int32 [B, S], all 0; None is the same.
            training: whether dropout is on. A frozen BERT never has dropout.
            dropout_seed: int32 [2]; None draws one.
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
        """Returns the sum of the weights of the words to tag, float32 []: their number without."""
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

        The accuracy is a pair of float32 []: the number of correct predictions and of words. With
        `label_weights` or `example_weight` both are weighted, and so are the numbers of words.
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
    """Returns the weight of each word to tag at its first piece, and else 0: float32 [B, S].

    It is the product of its `label_weights` and of its example's weight, each 1 if not given.
    """
    weights = tf.cast(features["label_mask"], tf.float32)
    if "label_weights" in features:
        weights *= features["label_weights"]
    return weights * example_weights(features)[:, tf.newaxis]
