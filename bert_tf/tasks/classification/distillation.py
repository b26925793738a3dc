"""Fine-tunes a student on a fine-tuned teacher's probabilities and vectors.

Sources: https://arxiv.org/abs/1503.02531, section 2, for the probabilities; DistilBERT
(https://arxiv.org/abs/1910.01108), section 3, for the vectors. Dimension letters and dtypes: see
`bert_tf/modeling.py`.
"""

import tensorflow as tf
from absl import logging

from bert_tf.model.distillation import (
    soft_binary_cross_entropy,
    soft_cross_entropy,
    squared_distance,
)
from bert_tf.model.heads import example_weights
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.distilled import Distilled

_HEAD = ("bert/pooler/", "output_")


class DistilledClassification(Distilled):
    """A student that learns classification or regression from a teacher.

    Args:
        alphas: the weights of the losses: `ce`, the cross entropy with the teacher's probabilities
            (the mean over the classes, if a text can have several), or in a regression the squared
            difference from its output; `labels`, the loss of the examples' own labels; `cos`, see
            `Distilled`, also for the other arguments.
        temperature: ignored in a regression.
    """

    def outputs_of(self, model: ClassificationModel, features, training: bool, dropout_seed):
        """Returns the layers' outputs, float [B, S, H] each, and logits, float32 [B, classes]."""
        inputs = [features[name] for name in ("input_ids", "input_mask", "segment_ids")]
        return model.layers_and_logits(*inputs, training, dropout_seed)

    def loss_and_metrics(self, outputs, features, normalizers):
        """Returns what `Distilled` returns, and the accuracy as a metric."""
        loss, sums = super().loss_and_metrics(outputs, features, normalizers)
        (_, logits), _ = outputs
        return loss, sums | self.student.accuracy(logits, features)

    def parts(self, layers, logits, targets, features, normalizers):
        """Returns the losses except `cos` as one part, since they share a normalizer; metrics."""
        if self.student.is_regression:
            soft = squared_distance(logits, targets)
        elif self.student.is_multi_label:
            soft = soft_binary_cross_entropy(logits, targets, self._temperature)
        else:
            soft = soft_cross_entropy(logits, targets, self._temperature)
        weights = example_weights(features)
        weight = tf.reduce_sum(weights)
        ce_loss = tf.reduce_sum(weights * soft)
        label_loss = tf.reduce_sum(weights * self.student.training_losses(logits, features))
        total = self.alphas["ce"] * ce_loss + self.alphas["labels"] * label_loss
        sums = {"ce_loss": (ce_loss, weight), "label_loss": (label_loss, weight)}
        return [(1.0, total, normalizers["examples"])], sums


def copy_head(student: ClassificationModel, teacher: ClassificationModel) -> None:
    """Copies the teacher's pooler and classifier into the student."""
    values = {variable.path: variable.value for variable in teacher.variables}
    for variable in student.variables:
        if variable.path.startswith(_HEAD):
            variable.assign(values[variable.path].numpy())
    logging.info("Copied the teacher's pooler and classifier into the student")
