"""Distillation: the objective of a student that learns from a teacher.

Dimension letters and dtypes: see `bert_tf/modeling.py`; R counts rows: positions or examples.
"""

from collections.abc import Mapping

import keras
import tensorflow as tf

from bert_tf.model.heads import layers_distance, token_weights
from bert_tf.tasks.task_model import Sums, TaskModel

# A loss: its weight, its sum over a batch, and the normalizer that divides the sum.
Part = tuple[float, tf.Tensor, tf.Tensor]


class TaughtStudent:
    """Base class of the objectives of a student and its teacher, which gets no gradients.

    The teacher computes its answers in each step, so batches may have any length.
    """

    def __init__(self, student: TaskModel, teacher: TaskModel):
        self.student = student
        self.teacher = teacher

    @property
    def layers(self) -> list[keras.layers.Layer]:
        return self.student.layers

    @property
    def trainable_variables(self) -> list[keras.Variable]:
        return self.student.trainable_variables

    def normalizers(self, features) -> dict[str, tf.Tensor]:
        return self.student.normalizers(features)


class Distilled(TaughtStudent):
    """A student that learns the outputs and the layers of a teacher.

    Args:
        alphas: the weight of each loss. `cos` is the cosine distance between the two models' layer
            outputs, averaged over all tokens; it is skipped if its weight is 0.
        temperature: divides the logits of both models where they are compared.
        cos_all_layers: whether `cos` compares all layers or only the last; see `layers_distance`.
    """

    def __init__(
        self,
        student: TaskModel,
        teacher: TaskModel,
        alphas: Mapping[str, float],
        temperature: float,
        cos_all_layers: bool = False,
    ):
        super().__init__(student, teacher)
        self.alphas = dict(alphas)
        self._temperature = temperature
        self._cos_all_layers = cos_all_layers

    def __call__(self, features, training=False, dropout_seed=None):
        """Returns the `outputs_of` of the student and of the teacher."""
        student = self.outputs_of(self.student, features, training, dropout_seed)
        return student, self.outputs_of(self.teacher, features, False, None)

    def outputs_of(self, model: TaskModel, features, training: bool, dropout_seed):
        """Returns each layer's output, float [B, S, H], and the logits, float32 [R, classes]."""
        raise NotImplementedError

    def normalizers(self, features) -> dict[str, tf.Tensor]:
        """Returns the student's normalizers, and `tokens`: the sum of the tokens' weights."""
        tokens = tf.reduce_sum(token_weights(features))
        return {**super().normalizers(features), "tokens": tokens}

    def loss_and_metrics(self, outputs, features, normalizers) -> tuple[tf.Tensor, Sums]:
        """Returns the weighted sum of the losses, float32 [], and each loss as a metric."""
        (layers, logits), (teacher_layers, targets) = outputs
        targets = tf.stop_gradient(targets)
        parts, sums = self.parts(layers, logits, targets, features, normalizers)
        if self.alphas["cos"]:
            weights = token_weights(features)
            distance = layers_distance(layers, teacher_layers, self._cos_all_layers)
            total = tf.reduce_sum(weights * distance)
            parts.append((self.alphas["cos"], total, normalizers["tokens"]))
            sums["cos_loss"] = (total, tf.reduce_sum(weights))
        loss = tf.zeros([], tf.float32)
        for alpha, total, normalizer in parts:
            loss += alpha * tf.math.divide_no_nan(total, normalizer)
        return loss, sums

    def parts(self, layers, logits, targets, features, normalizers) -> tuple[list[Part], Sums]:
        """Returns all losses except `cos`, and the metrics."""
        raise NotImplementedError
