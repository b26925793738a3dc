"""Checks and preparations that fine-tuning programs share."""

import os

from bert_tf import tokenization
from bert_tf.errors import UserError
from bert_tf.files import storage
from bert_tf.files.checkpoint_directory import CheckpointDirectory
from bert_tf.files.model_notes import labels_in
from bert_tf.files.paths import real_path
from bert_tf.model.configuration import BertConfig
from bert_tf.model_folder.hugging_face.vector_settings import read_as_hugging_face
from bert_tf.model_folder.reader import ModelFiles
from bert_tf.runs.flags.settings import FineTuningOptions, TextSettings
from bert_tf.text import casing
from bert_tf.text.model_vocabulary import check_model_vocabulary, check_padding
from bert_tf.text.tokenizers import Tokenizer, load_tokenizer


def learned_labels(settings: FineTuningOptions) -> list[str] | None:
    """Returns the classes of the model that a run starts from; [] for regression, None if unknown.

    They are unknown if the run trains anew, which may give the head different classes. An
    --output_dir without a checkpoint is ignored: a run that stopped early left its files.
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
    casing.check_casing(settings.do_lower_case, vocab, path, init_checkpoint, output_dir)
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

    `one_length`: all batches are padded to --max_seq_length. `folder`: of the model that the run
    starts from, if no setting names it.
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
    if settings.export_dir:
        _check_export_dir(settings.export_dir, settings, folder)


def _check_export_dir(export_dir: str, settings: FineTuningOptions, folder: str | None) -> None:
    """Checks that the run does not read or write other files in the folder."""
    folders = [settings.output_dir, os.path.join(settings.output_dir, "best")]
    for path in filter(None, (settings.init_checkpoint, settings.vocab_file, folder)):
        folders += [path, os.path.dirname(path)]
    if real_path(export_dir) in map(real_path, folders):
        raise UserError(
            f"--export_dir={export_dir} must not be --output_dir or the folder of"
            " --init_checkpoint or --vocab_file, whose files the export would overwrite"
        )
