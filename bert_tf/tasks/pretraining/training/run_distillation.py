"""Pre-trains a student with a teacher (run_distillation.py)."""

import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import AlbertConfig, DistilBertConfig
from bert_tf.model.heads import matching_layers
from bert_tf.model_folder.reader import ModelFiles
from bert_tf.runs.folder.run import Run
from bert_tf.runs.training.fine_tuning_checks import (
    check_hidden_sizes,
    check_inputs,
    check_vocabulary,
    load_teacher,
    teacher_files,
)
from bert_tf.runs.training.trainer import Trainer, model_options
from bert_tf.tasks.matrix_products import distillation_flops
from bert_tf.tasks.pretraining.training import distillation
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from bert_tf.tasks.pretraining.training.run import Job, Vocabulary, pretrain
from bert_tf.tasks.pretraining.training.settings import DistillationSettings, RecordBatches
from bert_tf.text.model_vocabulary import check_model_vocabulary


def run_distillation(
    config: BertConfig, strategy: tf.distribute.Strategy, settings: DistillationSettings
) -> dict[str, float | int] | None:
    """Trains a student, of configuration `config`, with a teacher; see `run_pretraining`."""
    lengths = [phase.max_seq_length for phase in (*settings.phases, settings.evaluation_batches)]
    files = teacher_files(settings)
    teacher_config = files.config
    check_inputs(config, teacher_config, files.config_file, max(lengths))
    if settings.alpha_cos:
        check_hidden_sizes(config, teacher_config)
    unit = "groups" if isinstance(config, AlbertConfig) else "layers"
    layers = _copied_layers(config, teacher_config, settings, unit)
    vocabulary = _vocabulary(config, settings, files)

    def make_trainer(run: Run, *arguments, **named) -> Trainer:
        options = model_options(settings, strategy)
        teacher_options = {**options, "recompute_activations": False}  # it is never trained
        teacher, variables = load_teacher(
            lambda: PretrainingModel(teacher_config, settings.objective, **teacher_options),
            files,
            strategy,
            distillation.unneeded(settings.alphas),
        )
        losses = (settings.alphas, settings.temperature, settings.restrict_ce_to_mask)

        def initialize(student: PretrainingModel) -> None:
            if layers is not None:
                distillation.copy_weights(student, variables, teacher_config.layer_scopes, layers)
                logging.info("The student begins with the teacher's %s %s", unit, layers)

        return Trainer(
            lambda: PretrainingModel(config, settings.objective, **options),
            *(run, *arguments),
            **named,
            objective=lambda student: distillation.DistilledPretraining(
                student, teacher, *losses, settings.cos_all_layers
            ),
            initialize=initialize,
        )

    def flops(step: RecordBatches) -> int:
        return distillation_flops(config, step, teacher_config, settings.restrict_ce_to_mask)

    return pretrain(Job(config, strategy, settings, make_trainer, vocabulary, flops))


def _vocabulary(
    config: BertConfig, settings: DistillationSettings, files: ModelFiles
) -> Vocabulary | None:
    """Returns the student's vocabulary, by default the teacher's; None if neither is known."""
    path = settings.vocab_file or files.vocab_file
    if not path:
        if settings.dynamic_masking:
            raise UserError(
                "--dynamic_masking needs --vocab_file, since there is no vocabulary next to"
                " --teacher_checkpoint. Add --vocab_file, or leave out --dynamic_masking"
            )
        logging.warning(
            "There is no --vocab_file and no vocabulary next to --teacher_checkpoint, so none is"
            " written next to the student"
        )
        return None
    teacher = settings.teacher_checkpoint
    vocabulary = Vocabulary.open(path, config, settings.dynamic_masking, files.home, teacher)
    vocab = vocabulary.tokenizer.vocab
    check_model_vocabulary(vocab, path, files.home, "teacher_checkpoint")
    check_vocabulary(vocab, path, settings.init_checkpoint, settings.output_dir)
    return vocabulary


def _copied_layers(
    config: BertConfig, teacher_config: BertConfig, settings: DistillationSettings, unit: str
) -> list[int] | None:
    if settings.init_checkpoint or settings.student_layers == "none":
        return None
    both = (config, teacher_config)
    if len({BertConfig if type(x) is DistilBertConfig else type(x) for x in both}) > 1:
        raise UserError(
            "The student can begin with the teacher's weights only if both are models of the same"
            f" kind (a DistilBERT counts as BERT): --bert_config_file describes {config.NAME}, and"
            f" the teacher is {teacher_config.NAME}. {distillation.OTHER_WEIGHTS}"
        )
    heads, teacher_heads = (x.num_attention_heads for x in both)
    if heads != teacher_heads:
        raise UserError(
            "The student can begin with the teacher's weights only if both have the same number of"
            f" heads: num_attention_heads of --bert_config_file is {heads}, and the teacher's is"
            f" {teacher_heads}. {distillation.OTHER_WEIGHTS}"
        )
    counts = [len(x.layer_scopes) for x in both]
    layers = distillation.choose_layers(settings.student_layers, *counts, unit)
    if settings.cos_all_layers and settings.student_layers is None:
        return matching_layers(*counts)
    return layers
