"""Writes the files that the programs, the tools and `bert_tf.load` read in a model's folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence

from bert_tf.errors import UserError
from bert_tf.files import checkpoints
from bert_tf.files.model_notes import LABELS_FILE, MODEL_INPUT_FILE, write_labels
from bert_tf.files.whole_files import read_bytes, write_whole
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import CONFIG_FILES, read_config
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.text.byte_pairs import MERGES
from bert_tf.text.casing import write_casing
from bert_tf.text.tokenizer_settings import TOKENIZER_CONFIG
from bert_tf.text.tokenizers import BYTE_PAIRS, FAIRSEQ_PIECES, SENTENCE_PIECES, WORD_PIECES

CHECKPOINT_NAME = "bert_model.ckpt"
CONFIG_FILE = CONFIG_FILES[0]
_CHECKPOINT_FILES = tuple(f"{CHECKPOINT_NAME}.{x}" for x in ("index", "data-00000-of-00001"))
VOCABULARIES = (WORD_PIECES, SENTENCE_PIECES, BYTE_PAIRS, MERGES, FAIRSEQ_PIECES)
# Files that may be beside a checkpoint.
COMPANIONS = (CONFIG_FILE, *VOCABULARIES, TOKENIZER_CONFIG, LABELS_FILE, MODEL_INPUT_FILE)
MODEL_NAMES = (*_CHECKPOINT_FILES, *COMPANIONS)  # the files that `write_model` may write


def write_model(
    folder: str,
    weights: Mapping[str, tf.Tensor | tf.Variable | object],
    config: BertConfig,
    vocabulary: Mapping[str, str | bytes],
    do_lower_case: bool | None,
    labels: Sequence[str] | None,
    write: Callable[..., None] = checkpoints.write,
) -> None:
    """Writes a folder like a released model's, plus casing and classes.

    `write` writes the checkpoint.
    """
    write(os.path.join(folder, CHECKPOINT_NAME), weights)
    write_model_files(folder, config, vocabulary, do_lower_case)
    write_labels(folder, labels)


def write_model_files(
    folder: str,
    config: BertConfig,
    vocabulary: Mapping[str, str | bytes],
    do_lower_case: bool | None,
) -> None:
    """Writes `bert_config.json`, the vocabulary and the casing."""
    write_config(folder, config)
    write_vocabulary(folder, vocabulary, do_lower_case)


def write_config(folder: str, config: BertConfig) -> None:
    """Writes `bert_config.json`, unless the folder has one with the same values."""
    path = os.path.join(folder, CONFIG_FILE)
    if tf.io.gfile.exists(path):
        with contextlib.suppress(UserError):  # damaged, or from an earlier model
            if read_config(path).to_dict() == config.to_dict():
                return  # it may be the user's own file, the --bert_config_file
    write_whole(path, config.to_json_string())


def write_vocabulary(
    folder: str, vocabulary: Mapping[str, str | bytes], do_lower_case: bool | None
) -> None:
    """Writes a vocabulary and its casing; skips files that already have this content."""
    files = dict(vocabulary)
    settings = files.pop(TOKENIZER_CONFIG, "{}")
    for name, text in files.items():
        path = os.path.join(folder, name)
        content = text.encode() if isinstance(text, str) else text
        if not tf.io.gfile.exists(path) or read_bytes(path, path) != content:
            write_whole(path, content)
    write_casing(folder, do_lower_case, settings)
