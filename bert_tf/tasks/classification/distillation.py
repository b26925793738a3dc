"""Fine-tuning of a student by a fine-tuned teacher: its probabilities as soft labels.

Source: https://arxiv.org/abs/1503.02531. Dimension letters and dtypes: see `bert_tf/modeling.py`.
"""

import tensorflow as tf
from absl import logging

from bert_tf.model.distillation import soft_cross_entropy, squared_distance
from bert_tf.model.heads import example_weights, model_logits
from bert_tf.tasks.classification.model import ClassificationModel, ClassificationTask

_HEAD = ("bert/pooler/", "output_")


class DistilledClassificationTask:
    """Classification or regression by a teacher: a `FineTuningTask` and an `InitializedTask`.

    The teacher computes its answers in each step. So they fit every batch, whatever its length.

    Args:
        task: of the student; gives the predictions.
        teacher: gives targets, without dropout; it gets no gradients. Its variables are of no
            concern to whoever trains and saves the model of `build_model`.
        alpha_ce: weight of the cross entropy with the teacher's probabilities, in a regression of
            the squared error to its output.
        alpha_labels: weight of the loss of the examples' own labels.
        temperature: of the probabilities; without meaning for a regression.
        copy_head: whether the student begins with the teacher's pooler and classifier.
    """

    def __init__(
        self,
        task: ClassificationTask,
        teacher: ClassificationModel,
        alpha_ce: float,
        alpha_labels: float,
        temperature: float,
        copy_head: bool = False,
    ):
        self._task = task
        self._teacher = teacher
        self._alpha_ce = alpha_ce
        self._alpha_labels = alpha_labels
        self._temperature = temperature
        self._copy_head = copy_head
        self.build_model = task.build_model
        self.normalizers = task.normalizers
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

    def loss_and_metrics(self, model, features, normalizers, training, dropout_seed):
        """Returns the weighted mean loss, float32 [], the accuracy, and both losses as metrics."""
        logits = model_logits(model, features, training, dropout_seed)
        targets = tf.stop_gradient(model_logits(self._teacher, features))
        if self._task.num_labels:
            soft = soft_cross_entropy(logits, targets, self._temperature)
        else:
            soft = squared_distance(logits, targets)
        weights = example_weights(features)
        weight = tf.reduce_sum(weights)
        ce_loss = tf.reduce_sum(weights * soft)
        label_loss = tf.reduce_sum(weights * self._task.losses(logits, features))
        loss = self._alpha_ce * ce_loss + self._alpha_labels * label_loss
        sums = {"ce_loss": (ce_loss, weight), "label_loss": (label_loss, weight)}
        return (
            tf.math.divide_no_nan(loss, normalizers["examples"]),
            sums | self._task.metrics(logits, features),
        )
