"""Trains a student to make a teacher's vectors, by their mean squared difference.

Source: https://arxiv.org/abs/2004.09813, section 2, and sentence-transformers' MSELoss.
"""

from typing import Any

import tensorflow as tf

from bert_tf.engine.steps import Features, Sums
from bert_tf.model.heads import example_weights
from bert_tf.tasks.distilled import TaughtStudent


class TaughtVectors(TaughtStudent):
    """A student that learns a teacher's vectors; both are models of sentences."""

    def __call__(
        self, features: Features, *, training: bool, dropout_seed: tf.Tensor | None
    ) -> Any:
        """Returns the student's and the teacher's vectors, float32 [B, T, H] each."""
        student = self.student(features, training=training, dropout_seed=dropout_seed)
        return student, tf.stop_gradient(self.teacher(features, training=False))

    def loss_and_metrics(
        self, outputs: Any, features: Features, normalizers: Features
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the mean squared difference of the elements of all vectors, float32 []."""
        student, teacher = outputs
        losses = tf.reduce_mean(tf.square(student - teacher), axis=[1, 2])
        loss = tf.reduce_sum(example_weights(features) * losses)
        return tf.math.divide_no_nan(loss, normalizers["examples"]), {}
