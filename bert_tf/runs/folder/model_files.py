"""Writes the files beside a checkpoint with which the model can be loaded again."""

import os

import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.files.overwriting import real_path
from bert_tf.files.whole_files import write_whole
from bert_tf.model.configuration import BertConfig
from bert_tf.model.family import read_config
from bert_tf.text.casing import write_casing
from bert_tf.text.tokenizers import vocabulary_files


def write_config(folder: str, config: BertConfig) -> None:
    """Writes `bert_config.json`, unless the folder has one with the same values.

    Raises:
        UserError: it cannot be written.
        OSError: writing failed in a way that may pass, such as a full disk.
    """
    path = os.path.join(folder, "bert_config.json")
    if tf.io.gfile.exists(path):
        try:
            if read_config(path).to_dict() == config.to_dict():
                return  # it may be the user's own file, the --bert_config_file
        except UserError:
            pass  # another model's, or damaged
    write_whole(path, config.to_json_string())


def write_model_files(
    folder: str, config: BertConfig, vocab_file: str, do_lower_case: bool | None
) -> None:
    """Writes `bert_config.json`, the vocabulary and the casing; errors as `write_config`.

    Args:
        folder: of the checkpoint.
        config: of the model.
        vocab_file: the vocabulary, which may be the one in the folder.
        do_lower_case: whether text is lower-cased; None if that is unknown.
    """
    write_config(folder, config)
    for name, source in vocabulary_files(vocab_file).items():
        path = os.path.join(folder, name)
        if real_path(path) != real_path(source):
            with tf.io.gfile.GFile(source, "rb") as reader:
                write_whole(path, reader.read())
    write_casing(folder, do_lower_case)
