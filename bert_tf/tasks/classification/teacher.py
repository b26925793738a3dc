"""Distillation: a student learns the answers and vectors of a model fine-tuned for the same task.

Sources: https://arxiv.org/abs/1503.02531, section 2, for the probabilities; DistilBERT
(https://arxiv.org/abs/1910.01108), section 3, for the vectors. Dimensions: `bert_tf/modeling.py`.
"""

import functools
from collections.abc import Sequence

import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError, first_of, listed, quoted
from bert_tf.files.model_notes import LABELS_FILE
from bert_tf.model.heads import (
    example_weights,
    soft_binary_cross_entropy,
    soft_cross_entropy,
    squared_distance,
)
from bert_tf.runs.training.fine_tuning_checks import (
    check_hidden_sizes,
    checked_teacher_files,
    load_teacher,
)
from bert_tf.runs.training.trainer import model_options
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.tasks.distilled import Distilled
from bert_tf.tasks.task import Start


def read_teacher(
    settings: ClassifierSettings,
    start: Start,
    labels: Sequence[str],
    strategy: tf.distribute.Strategy,
) -> ClassificationModel:
    files = checked_teacher_files(settings, start.config, start.tokenizer)
    student, config = start.config, files.config
    if config.is_multi_label != student.is_multi_label:
        kinds = "several classes for each text", "one class for each text"
        its, ours = kinds if config.is_multi_label else kinds[::-1]
        raise UserError(
            f"--teacher_checkpoint={settings.teacher_checkpoint} must have {ours}, as the student"
            f" does: problem_type in its configuration is {quoted(config.problem_type)}, so it has"
            f" {its}. Choose another teacher, or change --multi_label"
        )
    learned = files.labels
    if learned not in (None, list(labels)):
        raise UserError(
            f"--teacher_checkpoint={settings.teacher_checkpoint} must have the classes of the task"
            f" in the same order: its {LABELS_FILE} has {first_of(learned)}, and the task"
            f" has {listed(labels) or 'none'}. Fine-tune the teacher for this task, or set --labels"
        )
    if settings.alpha_cos:
        check_hidden_sizes(student, config)
    for name in ("hidden_size", "pooler_activation"):
        sizes = getattr(student, name), getattr(config, name)
        if settings.copy_teacher_head and sizes[0] != sizes[1]:
            raise UserError(
                f"--copy_teacher_head needs a student and a teacher with the same {name}: the"
                f" student's is {sizes[0]}, the teacher's {sizes[1]}. Change --bert_config_file,"
                " or leave --copy_teacher_head out"
            )
    options = model_options(settings, strategy) | {"recompute_activations": False}
    build = functools.partial(ClassificationModel, config, len(labels) or 1, **options)
    teacher, _ = load_teacher(build, files, strategy)
    return teacher


_HEAD = ("bert/pooler/", "output_")


class DistilledClassification(Distilled):
    """A student that learns classification or regression from a teacher; see `Distilled`.

    The losses, by the names of `alphas`: `ce`, the cross entropy with the teacher's probabilities
    (the mean over the classes, if a text can have several), or in a regression the squared
    difference from the teacher's output (no temperature); `labels`, the loss on the labels; `cos`.
    """

    def outputs_of(self, model: ClassificationModel, features, training: bool, dropout_seed):
        """Returns the layers' outputs, float [B, S, H] each, and logits, float32 [B, classes]."""
        inputs = [features[name] for name in ("input_ids", "input_mask", "segment_ids")]
        dropout = {"training": training, "dropout_seed": dropout_seed}
        output = model.bert(*inputs, **dropout)
        return output.all_encoder_layers, model.head_outputs(output, inputs[1], **dropout)

    def loss_and_metrics(self, outputs, features, normalizers):
        """Returns the loss and metrics of `Distilled`, and the accuracy."""
        loss, sums = super().loss_and_metrics(outputs, features, normalizers)
        (_, logits), _ = outputs
        return loss, sums | self.student.accuracy(logits, features)

    def parts(self, layers, logits, targets, features, normalizers):
        """Returns the losses except `cos` as one part (they share a normalizer), and metrics."""
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
    values = {variable.path: variable.value for variable in teacher.variables}
    for variable in student.variables:
        if variable.path.startswith(_HEAD):
            variable.assign(values[variable.path].numpy())
    logging.info("Copied the teacher's pooler and classifier into the student")
