"""Checks the models that a run starts from: its own, and the teacher of a distillation."""

import json
import os
import tempfile
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from bert_tf import tokenization
from bert_tf.errors import UserError
from bert_tf.files import checkpoints, storage
from bert_tf.files.checkpoint_directory import CheckpointDirectory
from bert_tf.files.model_notes import labels_in
from bert_tf.files.paths import real_path
from bert_tf.model.configuration import BertConfig
from bert_tf.model_folder.hugging_face.vector_settings import read_as_hugging_face
from bert_tf.model_folder.reader import ModelFiles
from bert_tf.model_folder.writer import write_vocabulary
from bert_tf.runs.flags.settings import FineTuningOptions, TeacherCheckpoint, TextSettings
from bert_tf.seeds import reading_weights
from bert_tf.text.base_tokenizer import Tokenizer
from bert_tf.text.casing import check_casing, read_casing
from bert_tf.text.model_vocabulary import check_model_vocabulary, check_padding
from bert_tf.text.tokenizer_settings import TOKENIZER_CONFIG
from bert_tf.text.tokenizers import load_tokenizer, vocabulary_in


def learned_labels(settings: FineTuningOptions) -> list[str] | None:
    """Returns the classes of the model that a run starts from; [] for regression, None if unknown.

    They are unknown for a new training run, which may give the head different classes. An
    --output_dir without a checkpoint is ignored: its files are from a run that stopped early.
    """
    if prefix := CheckpointDirectory(settings.output_dir).latest():
        return labels_in(os.path.dirname(prefix))
    if settings.do_train or not settings.init_checkpoint:
        return None
    return ModelFiles.of_flag(settings.init_checkpoint).labels


def make_tokenizer(
    config: BertConfig,
    settings: TextSettings,
    init_checkpoint: str | None,
    output_dir: str | None = None,
) -> Tokenizer:
    """Returns the tokenizer, after checking that it fits the checkpoint and the configuration."""
    path = settings.vocab_file
    hugging_face = read_as_hugging_face(path, init_checkpoint)
    tokenizer = load_tokenizer(
        *(path, settings.do_lower_case),
        hugging_face=hugging_face,
        drop_category_c=config.drop_category_c,
    )
    vocab = tokenizer.vocab
    check_casing(settings.do_lower_case, vocab, path, init_checkpoint, output_dir)
    check_vocabulary(vocab, path, init_checkpoint, output_dir)
    tokenization.check_vocab_size(vocab, config.vocab_size, path)
    check_padding(vocab, config.pad_token_id, f"--vocab_file={path}", "--bert_config_file")
    return tokenizer


def check_vocabulary(
    vocab: dict[str, int], vocab_file: str, init_checkpoint: str | None, output_dir: str | None
) -> None:
    """Checks the vocabulary against the checkpoint's; see `check_model_vocabulary`."""
    hugging_face = read_as_hugging_face(vocab_file, init_checkpoint)
    if init_checkpoint:
        storage.check_file_system(init_checkpoint, "init_checkpoint")
        check_model_vocabulary(vocab, vocab_file, init_checkpoint, hugging_face=hugging_face)
    # A run that stopped before its first checkpoint may have left a vocabulary: ignore it.
    if output_dir and CheckpointDirectory(output_dir).latest():
        check_model_vocabulary(vocab, vocab_file, output_dir, "output_dir", hugging_face)


def check_settings(
    config: BertConfig, settings: FineTuningOptions, one_length: bool, folder: str | None = None
) -> None:
    """Raises UserError if a setting does not fit the model or the batches.

    `one_length`: all batches are padded to --max_seq_length. `folder`: the folder of the model that
    the run starts from, if no setting names it.
    """
    config.check_seq_length(settings.max_seq_length)
    for name in ("train_batch_size", "eval_batch_size", "predict_batch_size"):
        size = getattr(settings, name, None)
        if size is not None:
            config.check_batch_size(size, settings.max_seq_length, name)
    if settings.group_by_length and one_length:
        raise UserError(
            "--group_by_length needs batches of several lengths; give several --length_buckets, or"
            " leave out --group_by_length"
        )
    folders = [settings.output_dir, os.path.join(settings.output_dir, "best")]
    for path in filter(None, (settings.init_checkpoint, settings.vocab_file, folder)):
        folders += [path, os.path.dirname(path)]
    if settings.export_dir and real_path(settings.export_dir) in map(real_path, folders):
        raise UserError(
            f"--export_dir={settings.export_dir} must not be --output_dir or the folder of"
            " --init_checkpoint or --vocab_file, whose files the export would overwrite"
        )


def teacher_files(settings: TeacherCheckpoint) -> ModelFiles:
    return ModelFiles.of_flag(
        settings.teacher_checkpoint,
        "teacher_checkpoint",
        settings.teacher_config_file,
        config_flag="teacher_config_file",
    )


def checked_teacher_files(
    settings: TeacherCheckpoint, student: BertConfig, tokenizer: Tokenizer
) -> ModelFiles:
    """Returns a fine-tuned teacher's files, checked against the student's vocabulary and inputs.

    `settings` are also `FineTuningOptions`.
    """
    files = teacher_files(settings)
    check_inputs(student, files.config, files.config_file, settings.max_seq_length)
    with tempfile.TemporaryDirectory(prefix="bert_tf_") as folder:
        vocab_file = settings.vocab_file
        if not vocab_file:  # the student is in memory
            write_vocabulary(folder, tokenizer.files, tokenizer.do_lower_case)
            vocab_file = vocabulary_in(folder)
        hugging_face = read_as_hugging_face(vocab_file, settings.init_checkpoint)
        check_model_vocabulary(
            *(tokenizer.vocab, vocab_file, files.home, "teacher_checkpoint", hugging_face)
        )
    casing = read_casing(files.home)
    if casing not in (None, settings.do_lower_case):
        raise UserError(
            f"--teacher_checkpoint={files.path} must use the student's casing:"
            f" do_lower_case in its {TOKENIZER_CONFIG} is {json.dumps(casing)}, but"
            f" --do_lower_case={settings.do_lower_case}. Choose another teacher, or set"
            f" --do_lower_case={casing} if the student was pre-trained with it"
        )
    return files


def check_inputs(student: BertConfig, config: BertConfig, path: str, max_seq_length: int) -> None:
    """Checks that a teacher, whose `config` is in `path`, can read the student's inputs."""
    if config.vocab_size != student.vocab_size:
        raise UserError(
            "The student and its teacher must have the same vocabulary: vocab_size of"
            f" --bert_config_file is {student.vocab_size}, and of the teacher ({path})"
            f" {config.vocab_size}. Choose another teacher, or make the student's configuration and"
            " records for the teacher's vocabulary"
        )
    if config.type_vocab_size < student.type_vocab_size:
        raise UserError(
            "The teacher must know the segments of the student's records: type_vocab_size of"
            f" --bert_config_file is {student.type_vocab_size}, and of the teacher ({path})"
            f" {config.type_vocab_size}. Choose another teacher"
        )
    if max_seq_length > config.longest_sequence:
        raise UserError(
            f"Sequences must not be longer than the teacher can read: they have {max_seq_length}"
            f" tokens, and {config.length_rule} of the teacher ({path}) is"
            f" {config.longest_sequence}. Lower --max_seq_length"
        )


def check_hidden_sizes(
    student: BertConfig, teacher: BertConfig, remedy: str = "Give --alpha_cos=0"
) -> None:
    """Raises UserError if the two models' vectors, which the loss compares, differ in size."""
    if student.hidden_size != teacher.hidden_size:
        raise UserError(
            "The loss compares vectors, which must have the same size: hidden_size of"
            f" --bert_config_file is {student.hidden_size}, and the teacher's is"
            f" {teacher.hidden_size}. {remedy}, or change --bert_config_file"
        )


def load_teacher(
    build: Callable[[], keras.Model],
    files: ModelFiles,
    strategy: tf.distribute.Strategy,
    unneeded: Sequence[str] = (),
) -> tuple[keras.Model, dict[str, tf.Variable]]:
    """Returns the frozen teacher on the devices, and its variables by name.

    The checkpoint may lack variables with a prefix in `unneeded`; these are not returned.
    """
    with strategy.scope(), reading_weights():
        teacher = build()
        teacher.trainable = False
    weights = {variable.path: variable.value for variable in teacher.variables}
    needed = [name for name in weights if not name.startswith(tuple(unneeded))]
    flag, reader = "teacher_checkpoint", files.weights
    with strategy.scope():
        found = checkpoints.initialize(weights, files.path, flag, reader, needed)
    files.forget()
    return teacher, {name: weights[name] for name in found}
