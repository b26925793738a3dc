"""The teacher of a classification: a model that was fine-tuned for the same classes."""

import functools
from collections.abc import Sequence

import tensorflow as tf

from bert_tf.errors import UserError, listed, quoted
from bert_tf.files.label_file import LABELS_FILE
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.training.options import model_options
from bert_tf.runs.training.teacher import check_hidden_sizes, checked_teacher_files, load_teacher
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.classification.settings import ClassifierSettings
from bert_tf.text.tokenizers import Tokenizer


def read_teacher(
    settings: ClassifierSettings,
    student: BertConfig,
    tokenizer: Tokenizer,
    labels: Sequence[str],
    strategy: tf.distribute.Strategy,
) -> ClassificationModel:
    """Returns the model of --teacher_checkpoint.

    Raises:
        UserError: the teacher's vocabulary, casing or classes differ, or it cannot be read.
    """
    files = checked_teacher_files(settings, student, tokenizer.vocab)
    config = files.config
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
            f" in the same order: its {LABELS_FILE} has {listed(learned) or 'none'}, and the task"
            f" {listed(labels) or 'none'}. Fine-tune the teacher for this task, or set --labels"
        )
    outputs = (files.shapes.get("output_bias", [0])[0], len(labels) or 1)
    if outputs[0] != outputs[1]:
        raise UserError(
            f"--teacher_checkpoint={settings.teacher_checkpoint} must have one classifier output"
            f" for each class of the task, or a single one for a regression, that is {outputs[1]};"
            f" it has {outputs[0]}. Fine-tune the teacher for this task first"
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
    build = functools.partial(ClassificationModel, config, outputs[1], **options)
    teacher, _ = load_teacher(build, files, strategy)
    return teacher
