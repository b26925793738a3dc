"""Classification and regression of texts or pairs of texts: model, loss, predictions.

Dimension letters and dtypes: see `bert_tf/modeling.py`.
"""

from typing import Any

import tensorflow as tf

from bert_tf.engine.steps import Features, Sums
from bert_tf.errors import UserError
from bert_tf.model.configuration import OUTPUT_DROPOUT_PROB, BertConfig
from bert_tf.model.heads import binary_cross_entropy, cross_entropy, example_weights, squared_errors
from bert_tf.model.inputs import finite, get_shape_list, in_range, shaped
from bert_tf.model.saving import register
from bert_tf.modeling import BertOutput
from bert_tf.tasks.task_model import TaskModel


@register
class ClassificationModel(TaskModel):
    """BERT with a linear layer on its pooled output (original: run_classifier.create_model).

    Args:
        num_labels: number of classes; 1 for regression.
        config: with a `problem_type` of "multi_label_classification", a text can have several of
            the classes: `label_ids` have a 1 for each, the loss is the mean of the classes' binary
            cross entropies, and `predictions` returns the sigmoid of each class's logit, even if
            there is only one class.
        output_dropout_prob: dropout before the head, a constant in the original.
        label_smoothing: share of each target that `loss_and_metrics` spreads evenly over all
            classes, at least 0 and below 1. `predictions` ignores it.
        **options: see `BertModel`.

    Raises:
        UserError: `label_smoothing` is out of range.
    """

    label_names = ("label_ids",)

    def __init__(
        self,
        config: BertConfig,
        num_labels: int,
        output_dropout_prob: float = OUTPUT_DROPOUT_PROB,
        label_smoothing: float = 0.0,
        **options: Any,
    ):
        super().__init__(config, **options)
        if not 0.0 <= label_smoothing < 1.0:
            raise UserError(
                f"label_smoothing must be at least 0 and below 1; received {label_smoothing}"
            )
        self.label_smoothing = label_smoothing
        self.num_labels = num_labels
        self.is_multi_label = config.is_multi_label
        self._threshold = config.threshold
        self.is_regression = num_labels == 1 and not self.is_multi_label
        self.task_metrics = () if self.is_regression else ("accuracy",)
        self.head = self.output_layer(num_labels, output_dropout_prob)

    def head_outputs(self, output: BertOutput, input_mask: Any, **dropout: Any) -> tf.Tensor:
        """Returns logits, float32 [B, num_labels]."""
        return self.head(output.pooled_output, **dropout)

    def checked_labels(self, features: Features) -> dict[str, tf.Tensor]:
        """Returns `label_ids`: classes, int32 [B], or numbers, float32 [B].

        If a text can have several classes, they are 0 or 1, int32 [B, num_labels].
        """
        batch = get_shape_list(features["input_ids"])[:1]
        counted = example_weights(features) > 0.0
        if self.is_multi_label:
            meaning = "a 0 or 1 for each class of each example"
            labels = features["label_ids"]
            labels = shaped(labels, "label_ids", [*batch, self.num_labels], meaning)
            source = "1 for each class that the text has"
            labels = in_range(labels, "label_ids", 2, source, counted[:, tf.newaxis])
            return {"label_ids": labels}
        meaning = "one number" if self.is_regression else "one class (an index, not one-hot)"
        meaning += " for each example"
        labels = shaped(features["label_ids"], "label_ids", batch, meaning)
        if self.is_regression:
            return {"label_ids": finite(labels, "label_ids", counted)}
        labels = in_range(labels, "label_ids", self.num_labels, "num_labels", counted)
        return {"label_ids": labels}

    def loss_and_metrics(
        self, outputs: Any, features: Features, normalizers: Features
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the mean loss, float32 [], and the result of `accuracy`."""
        losses = self.training_losses(outputs, features)
        loss = tf.reduce_sum(example_weights(features) * losses)
        loss = tf.math.divide_no_nan(loss, normalizers["examples"])
        return loss, self.accuracy(outputs, features)

    def accuracy(self, logits: tf.Tensor, features: Features) -> Sums:
        """Returns the total weight of right examples and of all, float32 []; {} for a regression.

        If a text can have several classes, all of them must be right.
        """
        if self.is_regression:
            return {}
        weights = example_weights(features)
        if self.is_multi_label:
            predictions = tf.cast(tf.sigmoid(logits) >= self._threshold, tf.int32)
            right = tf.reduce_all(predictions == features["label_ids"], axis=-1)
        else:
            predictions = tf.argmax(logits, axis=-1, output_type=tf.int32)
            right = predictions == features["label_ids"]
        right = tf.cast(right, tf.float32)
        return {"accuracy": (tf.reduce_sum(weights * right), tf.reduce_sum(weights))}

    def predictions(self, outputs: Any, features: Features) -> dict[str, tf.Tensor]:
        """Returns the prediction and the loss of each example.

        `outputs`: probabilities of the classes, float32 [B, num_labels], or the values of a
        regression, float32 [B]. `label_ids`: the records' labels. `per_example_loss`: float32 [B].
        `example_weight`: the records' weights, if they have any.
        """
        probabilities = tf.sigmoid if self.is_multi_label else tf.nn.softmax
        weighted = "example_weight" in features
        return {
            "outputs": outputs[:, 0] if self.is_regression else probabilities(outputs),
            "label_ids": features["label_ids"],
            "per_example_loss": self.example_losses(outputs, features),
            **({"example_weight": features["example_weight"]} if weighted else {}),
        }

    def training_losses(self, logits: tf.Tensor, features: Features) -> tf.Tensor:
        """Returns the `example_losses`, float32 [B], with smoothed targets."""
        losses = self.example_losses(logits, features)
        if not self.label_smoothing or self.is_regression:
            return losses
        if self.is_multi_label:
            even = binary_cross_entropy(logits, 0.5 * tf.ones_like(logits))
        else:
            even = -tf.reduce_mean(tf.nn.log_softmax(logits), axis=-1)  # mean over the classes
        return (1.0 - self.label_smoothing) * losses + self.label_smoothing * even

    def example_losses(self, logits: tf.Tensor, features: Features) -> tf.Tensor:
        """Returns the cross entropy, or the squared error, of each example, float32 [B].

        If a text can have several classes, it is the mean of their binary cross entropies, as in
        PyTorch's `BCEWithLogitsLoss`.
        """
        label_ids = features["label_ids"]
        if self.is_multi_label:
            return binary_cross_entropy(logits, label_ids)
        if self.is_regression:
            return squared_errors(logits[:, 0], label_ids)
        return cross_entropy(logits, label_ids)
