"""Records and checks the casing of models: whether they were trained on lower-cased text.

A wrong `do_lower_case` does not fail: words become [UNK], and results are poor. So each saved model
records it as Hugging Face's `do_lower_case` in `tokenizer_config.json`.
"""

import json
import os
import re
from collections.abc import Collection

from absl import logging

from bert_tf import tokenization
from bert_tf.errors import UserError, listed
from bert_tf.files import checkpoints, storage
from bert_tf.files.checkpoint_directory import CheckpointDirectory
from bert_tf.files.whole_files import write_json
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.text.tokenizer_files import read_tokenizer_config
from bert_tf.text.tokenizer_json import read_tokenizer_json
from bert_tf.text.tokenizer_settings import (
    DO_LOWER_CASE,
    SETTINGS_KEYS,
    TOKENIZER_CONFIG,
    TokenizerSettings,
)

# A vocabulary is cased if the entries with an upper-case letter exceed both this number and this
# share. The released English cased vocabulary has 10,898 of 28,996, the uncased one none. Words
# that users put into an uncased vocabulary's 994 [unused] lines are at most 3.3% of its entries.
_MAX_ADDED_ENTRIES = 5
_MAX_ADDED_SHARE = 0.05
_NUM_EXAMPLES = 3
# [UNK], [unused1] and the like.
_SPECIAL = re.compile(r"\[.*\]")


def read_casing(folder: str) -> bool | None:
    """Returns `do_lower_case` from a folder's files; None if it is not recorded."""
    casing = read_tokenizer_config(folder).get(DO_LOWER_CASE)
    in_json = read_tokenizer_json(folder) if casing is None else None
    if in_json:
        return in_json.switches.get(DO_LOWER_CASE)
    return checkpoints.casing_of_module(folder) if casing is None else casing


def write_casing(
    folder: str, do_lower_case: bool | None, settings: str | bytes | None = None
) -> None:
    """Records `do_lower_case`, or removes it if None; `settings` replace the other settings."""
    path = os.path.join(folder, TOKENIZER_CONFIG)
    present = read_tokenizer_config(folder)
    config = {name: x for name, x in present.items() if name != DO_LOWER_CASE}
    if settings is not None:
        config = {name: x for name, x in config.items() if name not in SETTINGS_KEYS}
        config |= json.loads(settings)
    if do_lower_case is not None:
        config[DO_LOWER_CASE] = bool(do_lower_case)
    if config == present:
        return
    if config:
        write_json(path, config)
    else:
        tf.io.gfile.remove(path)


def is_cased(vocab: Collection[str]) -> bool:
    """Returns whether many entries have upper-case letters; False in a language without case."""
    return len(_upper_case_entries(vocab)) > max(_MAX_ADDED_ENTRIES, _MAX_ADDED_SHARE * len(vocab))


def find_casing(
    folder: str,
    vocab_file: str | None,
    vocab: Collection[str],
    settings: TokenizerSettings | None = None,
    hugging_face: bool = False,
) -> bool | None:
    """Returns a model's `do_lower_case`, found without the flag; None if it is unknown.

    The sources, in this order: the records in the model's folder and in the vocabulary's, the name
    of a released model, a cased vocabulary.
    """
    beside = os.path.dirname(vocab_file) if vocab_file else folder
    casing = read_casing(folder) if beside.rstrip("/") != folder.rstrip("/") else None
    if casing is None:
        casing = settings.recorded_casing if settings else read_casing(beside)
    if casing is None:
        casing = tokenization.casing_of_released_model(os.path.basename(folder.rstrip("/")))
    if casing is None and is_cased(vocab):
        if hugging_face:
            raise UserError(
                f"{vocab_file} is a cased vocabulary, but no file sets {DO_LOWER_CASE}, and"
                f" transformers lower-cases text by default. Write the {DO_LOWER_CASE} that the"
                f" model was trained with to {os.path.join(beside, TOKENIZER_CONFIG)}, such as"
                f' {{"{DO_LOWER_CASE}": false}}'
            )
        logging.info("%s is a cased vocabulary, so do_lower_case is false", vocab_file)
        casing = False
    return casing


def check_casing(
    do_lower_case: bool,
    vocab: Collection[str],
    vocab_file: str,
    init_checkpoint: str | None = None,
    output_dir: str | None = None,
) -> None:
    """Checks that `do_lower_case` agrees with the vocabulary, the folders and the checkpoint.

    The error names the first source that contradicts: the name of a released checkpoint; the
    records (`read_casing`) in `output_dir`, if it has a checkpoint, and in the folders of
    `init_checkpoint` and `vocab_file`; the vocabulary. The vocabulary only causes a warning if a
    record agrees with the flag, or if no entry has an upper-case letter, since its language may not
    have case.
    """
    tokenization.validate_case_matches_checkpoint(do_lower_case, init_checkpoint)
    is_recorded = _check_records(do_lower_case, vocab_file, init_checkpoint, output_dir)
    upper = _upper_case_entries(vocab)
    if do_lower_case and is_cased(vocab):
        message = (
            f"--vocab_file={vocab_file} is a cased vocabulary: {len(upper)} of its {len(vocab)}"
            f" entries have upper-case letters ({listed(upper[:_NUM_EXAMPLES])}, ...), and with"
            " --do_lower_case=True text never gets their ids"
        )
        if not is_recorded:
            raise UserError(
                f"{message}; set --do_lower_case=False. If the model was trained on lowercased text"
                f' nevertheless, record that: write {{"{DO_LOWER_CASE}": true}} to'
                f" {os.path.join(os.path.dirname(vocab_file), TOKENIZER_CONFIG)}"
            )
        logging.warning("%s. A %s says that this is intended", message, TOKENIZER_CONFIG)
    elif not do_lower_case and not upper and not is_recorded:
        if any(token != token.upper() and not _SPECIAL.fullmatch(token) for token in vocab):
            logging.warning(
                "--vocab_file=%s has no entry with an upper-case letter, so with"
                " --do_lower_case=False words with capitals become [UNK]. Set --do_lower_case=True"
                " if the model was trained on lowercased text",
                vocab_file,
            )


def model_folders(init_checkpoint: str | None, output_dir: str | None) -> list[str]:
    """Returns the folders that a run starts from: `output_dir`, and the one of `init_checkpoint`.

    `output_dir` is left out if the run stopped before its first checkpoint.
    """
    folders = [output_dir] if output_dir and CheckpointDirectory(output_dir).latest() else []
    if init_checkpoint:
        storage.check_file_system(init_checkpoint, "init_checkpoint")
        folders.append(checkpoints.folder_of(init_checkpoint))
    return folders


def _check_records(
    do_lower_case: bool, vocab_file: str, init_checkpoint: str | None, output_dir: str | None
) -> bool:
    """Raises if a record contradicts `do_lower_case`; returns whether any folder has a record."""
    folders = [*model_folders(init_checkpoint, output_dir), os.path.dirname(vocab_file)]
    recorded = {folder: read_casing(folder) for folder in dict.fromkeys(folders)}
    for folder, casing in recorded.items():
        if casing not in (None, bool(do_lower_case)):
            raise UserError(
                f"{os.path.join(folder, TOKENIZER_CONFIG)} says that the model was trained on"
                f" {'lowercased' if casing else 'cased'} text ({DO_LOWER_CASE} is"
                f" {json.dumps(casing)}), but --do_lower_case={bool(do_lower_case)}; set"
                f" --do_lower_case={casing}, or correct the file if it is wrong"
            )
    return any(casing is not None for casing in recorded.values())


def _upper_case_entries(vocab: Collection[str]) -> list[str]:
    return [token for token in vocab if token != token.lower() and not _SPECIAL.fullmatch(token)]
