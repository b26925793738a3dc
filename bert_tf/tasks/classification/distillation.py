"""Fine-tuning of a student by a fine-tuned teacher: by its probabilities and its vectors.

Sources: https://arxiv.org/abs/1503.02531, section 2, for the probabilities; DistilBERT
(https://arxiv.org/abs/1910.01108), section 3, for the vectors. Dimension letters and dtypes: see
`bert_tf/modeling.py`.
"""

from collections.abc import Mapping

import tensorflow as tf
from absl import logging

from bert_tf.model.distillation import (
    layers_distance,
    soft_cross_entropy,
    squared_distance,
)
from bert_tf.model.heads import example_weights, token_weights
from bert_tf.tasks.classification.model import ClassificationModel, ClassificationTask

_HEAD = ("bert/pooler/", "output_")


class DistilledClassificationTask:
    """Classification or regression by a teacher: a `FineTuningTask` and an `InitializedTask`.

    The teacher computes its answers in each step. So they fit every batch, whatever its length.

    Args:
        task: of the student; gives the predictions.
        teacher: gives targets, without dropout; it gets no gradients. Its variables are of no
            concern to whoever trains and saves the model of `build_model`.
        alphas: the weights of the losses: `ce`, the cross entropy with the teacher's probabilities,
            in a regression the squared error to its output; `labels`, the loss of the examples'
            own labels; `cos`, the cosine distance of the layers' vectors, the mean over all
            tokens. If `cos` is 0 it is not computed.
        temperature: of the probabilities; without meaning for a regression.
        copy_head: whether the student begins with the teacher's pooler and classifier.
        cos_all_layers: whether `cos` compares all layers or the last; see `layers_distance`.
    """

    def __init__(
        self,
        task: ClassificationTask,
        teacher: ClassificationModel,
        alphas: Mapping[str, float],
        temperature: float,
        copy_head: bool = False,
        cos_all_layers: bool = False,
    ):
        self._task = task
        self._teacher = teacher
        self._alphas = dict(alphas)
        self._temperature = temperature
        self._copy_head = copy_head
        self._cos_all_layers = cos_all_layers
        self.build_model = task.build_model
        self.predictions = task.predictions

    def initialize(self, model: ClassificationModel) -> None:
        """Sets the student's pooler and classifier to the teacher's, if they are copied."""
        if not self._copy_head:
            return
        values = {variable.path: variable.value for variable in self._teacher.variables}
        for variable in model.variables:
            if variable.path.startswith(_HEAD):
                variable.assign(values[variable.path].numpy())
        logging.info("The student's pooler and classifier begin with the teacher's")

    def normalizers(self, features) -> dict[str, tf.Tensor]:
        """Returns the number of examples and, for their vectors, that of tokens, float32 []."""
        normalizers = self._task.normalizers(features)
        if self._alphas["cos"]:
            normalizers["tokens"] = tf.reduce_sum(token_weights(features))
        return normalizers

    def loss_and_metrics(self, model, features, normalizers, training, dropout_seed):
        """Returns the weighted sum of the losses, float32 [], and each loss and the accuracy."""
        inputs = [features[name] for name in ("input_ids", "input_mask", "segment_ids")]
        layers, logits = model.layers_and_logits(*inputs, training, dropout_seed)
        teacher_layers, targets = self._teacher.layers_and_logits(*inputs, False, None)
        targets = tf.stop_gradient(targets)
        if self._task.num_labels:
            soft = soft_cross_entropy(logits, targets, self._temperature)
        else:
            soft = squared_distance(logits, targets)
        weights = example_weights(features)
        weight = tf.reduce_sum(weights)
        ce_loss = tf.reduce_sum(weights * soft)
        label_loss = tf.reduce_sum(weights * self._task.losses(logits, features))
        loss = self._alphas["ce"] * ce_loss + self._alphas["labels"] * label_loss
        loss = tf.math.divide_no_nan(loss, normalizers["examples"])
        sums = {"ce_loss": (ce_loss, weight), "label_loss": (label_loss, weight)}
        if self._alphas["cos"]:
            weights = token_weights(features)
            distance = layers_distance(layers, teacher_layers, self._cos_all_layers)
            cos_loss = tf.reduce_sum(weights * distance)
            loss += self._alphas["cos"] * tf.math.divide_no_nan(cos_loss, normalizers["tokens"])
            sums["cos_loss"] = (cos_loss, tf.reduce_sum(weights))
        return loss, sums | self._task.metrics(logits, features)
