"""Manifests: a small JSON file beside each record file that says what made it.

Records are numbers. Nothing in them tells which vocabulary the ids are from, so records of another
vocabulary or casing train a model on nonsense without an error. Every maker of records writes a
manifest, and `check_manifest` compares it with the model. Records of other programs, such as the
original's, have none, and are then not compared.
"""

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from absl import logging

from bert_tf import tokenization
from bert_tf.errors import UserError, quoted
from bert_tf.files import storage
from bert_tf.files.overwriting import real_path
from bert_tf.files.whole_files import read_json
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.schema import ELECTRA, MLM
from bert_tf.text.casing import model_folders, read_casing
from bert_tf.text.model_vocabulary import first_difference, vocabulary_digest
from bert_tf.text.tokenizers import VOCABULARY_FILES, VocabularySource

_SETTINGS = (
    "do_lower_case",
    "objective",
    "max_seq_length",
    "max_predictions_per_seq",
    "mask",
    "masked_lm_prob",
    "do_whole_word_mask",
    "short_seq_prob",
    "pack",
    "dupe_factor",
    "random_seed",
    "split_sentences",
    "heldout_fraction",
)
# Keys that a manifest must have, and their types.
_NEEDED = {"vocab_file": str, "vocabulary": str, "do_lower_case": bool, "objective": str}
_SHARD = re.compile(r"-(\d{5})-of-\d{5}(\.[^./]*)?")  # the end of a shard's name


@dataclasses.dataclass(frozen=True)
class RecordCounts:
    """Counts of what was made of a text.

    Attributes:
        documents: documents with tokens.
        sentences: their lines with tokens.
        tokens: their tokens.
        lost_tokens: how many of the tokens are in no record.
        instances: records before packing.
        real_pairs: instances whose second text follows the first; 0 with --objective=mlm.
    """

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    lost_tokens: int = 0
    instances: int = 0
    real_pairs: int = 0

    def __add__(self, other: "RecordCounts") -> "RecordCounts":
        mine, others = dataclasses.astuple(self), dataclasses.astuple(other)
        return RecordCounts(*map(sum, zip(mine, others, strict=True)))


_COUNTS = tuple(field.name for field in dataclasses.fields(RecordCounts))


def manifest_file(path: str) -> str:
    """Returns the name of a manifest: a.tfrecord.json, or of a shard a-shards-00003.json.

    A pattern that finds all shards does not find their manifests.
    """
    name = _SHARD.sub(r"-shards-\1", path) if _SHARD.search(path) else path
    return f"{name}.json"


def manifest_of(
    settings: PretrainingDataSettings, vocab: Mapping[str, int], counts: RecordCounts
) -> dict[str, Any]:
    """Returns the manifest of records that were made with these settings."""
    return {
        "vocab_file": real_path(settings.vocab_file),
        "vocabulary": vocabulary_digest(vocab),
        **{name: getattr(settings, name) for name in _SETTINGS},
        **dataclasses.asdict(counts),
    }


def beside(manifest: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, str]:
    """Returns the files to write beside record files: path -> content.

    The size of its record file is in each manifest, so that one that was left beside other records
    is recognized. A device or a pipe gets none.

    Args:
        sizes: record file -> its size in bytes.
    """
    return {
        manifest_file(path): json.dumps({**manifest, "bytes": size}, indent=2) + "\n"
        for path, size in sizes.items()
        if "://" in path or os.path.isfile(path) or not os.path.exists(path)
    }


def check_place(path: str, flag: str) -> None:
    """Raises UserError if the manifest of a record file, from --`flag`, would replace a file."""
    storage.check_file_system(path, flag)
    file = manifest_file(path)
    if not tf.io.gfile.exists(file):
        return
    rule = f"it is in the place of the manifest of --{flag}={path}: move it away, or choose another"
    rule += " name for the records"
    present = read_json(file, file, rule)
    if not isinstance(present, dict) or "vocabulary" not in present:
        raise UserError(f"{file} is not a manifest of records, but {rule}")


def record_files(patterns: str, flag: str) -> list[str]:
    """Returns `storage.expand_files` without the manifests of the files that it finds."""
    files = storage.expand_files(patterns, flag)
    manifests = set(map(manifest_file, files))
    return [path for path in files if path not in manifests]


def read_manifests(files: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Returns the manifests of record files, of those that have one.

    All shards of a run are made alike (see `shards`), so the manifest of one of them is read.

    Raises:
        UserError: a manifest is damaged.
    """
    shards = {_SHARD.sub("", path): path for path in files}
    with ThreadPoolExecutor(16) as pool:  # in a bucket each file takes some requests
        found = zip(shards.values(), pool.map(_read, shards.values()), strict=True)
        return {path: manifest for path, manifest in found if manifest is not None}


def counts_of(files: Sequence[str]) -> RecordCounts:
    """Returns the sum of the counts in the manifests of record files, of those that have one."""
    counts = RecordCounts()
    with ThreadPoolExecutor(16) as pool:
        for manifest in filter(None, pool.map(_read, files)):
            counts += RecordCounts(*(manifest.get(name, 0) for name in _COUNTS))
    return counts


def _read(file: str) -> dict[str, Any] | None:
    path = manifest_file(file)
    if not tf.io.gfile.exists(path):
        return None
    rule = "correct it, or delete it: then nothing is known of the records, and nothing is checked"
    manifest = read_json(path, path, rule)
    for name, kind in _NEEDED.items():
        if not isinstance(manifest, dict) or not isinstance(manifest.get(name), kind):
            raise UserError(
                f"{path} must say what made the records of {file}, with {name} as a"
                f" {'truth value' if kind is bool else 'text'}; {rule}"
            )
    for name in _COUNTS:
        if type(count := manifest.get(name, 0)) is not int or count < 0:
            raise UserError(
                f"{path} must have a whole number of {name}, not {quoted(count)}; {rule}"
            )
    size = tf.io.gfile.stat(file).length
    if manifest.get("bytes") != size:
        logging.warning(
            "%s is ignored: it is of a file of %s bytes, but %s has %d bytes. So it is not checked"
            " whether the records fit the model",
            *(path, quoted(manifest.get("bytes")), file, size),
        )
        return None
    return manifest


def common_manifest(manifests: Mapping[str, dict[str, Any]], flag: str) -> dict[str, Any] | None:
    """Returns the first manifest; None if there is none.

    Raises:
        UserError: the files have different vocabularies, casings or objectives.
    """
    first = next(iter(manifests), None)
    if first is None:
        return None
    for path, manifest in manifests.items():
        for name, what in (
            ("vocabulary", f"vocabularies, {quoted(manifests[first]['vocab_file'])} and"
             f" {quoted(manifest['vocab_file'])}"),
            ("do_lower_case", "--do_lower_case"),
            ("objective", "--objective"),
        ):  # fmt: skip
            if manifest[name] != manifests[first][name]:
                raise UserError(
                    f"--{flag}: {first} and {path} were made with different {what}; name files that"
                    " were made alike"
                )
    return manifests[first]


def check_manifest(
    files: Sequence[str],
    flag: str,
    objective: str,
    vocab_file: str | None = None,
    init_checkpoint: str | None = None,
    output_dir: str | None = None,
) -> None:
    """Checks that records were made for the model that is trained or evaluated on them.

    Files without a manifest pass. Lengths are not compared, because the records have them.

    A model is in the folder of `init_checkpoint`, and in `output_dir` if that has a checkpoint. If
    its folder has a vocabulary, the records' must have all tokens of it at the same ids; it may
    have other tokens instead of [unusedN], and more at its end. If the folder records
    `do_lower_case`, the records must have been made with the same.

    Args:
        files: the record files, from --`flag`.
        objective: the training's; `mlm` takes records of any objective but `electra`.
        vocab_file: the vocabulary that the program was given; the records must have the same.
        init_checkpoint: see `checkpoints.find_prefix`; None or "" if there is none.
        output_dir: the run's folder; None if there is none.

    Raises:
        UserError: a manifest is damaged, contradicts another file's, or contradicts the model.
    """
    manifests = read_manifests(files)
    manifest = common_manifest(manifests, flag)
    if manifest is None:
        return
    file = next(iter(manifests))
    place = f"--{flag}: the records of {file}"
    anyway = f"To use them nevertheless, delete {manifest_file(file)}, which says so"
    made_for = manifest["objective"]
    is_electra = ELECTRA in (objective, made_for)
    if objective != made_for and (is_electra or objective != MLM):
        other = f"--objective={MLM}, which takes any records"
        if is_electra:
            other = f"make the records again with --objective={objective}"
        raise UserError(
            f"{place} were made with --objective={quoted(made_for)[1:-1]}, but now it"
            f" is {objective}. Give the same --objective, or {other}. {anyway}"
        )
    digest = vocabulary_digest(VocabularySource(vocab_file).vocab) if vocab_file else None
    if vocab_file and digest != manifest["vocabulary"]:
        raise UserError(
            f"{place} were made with another vocabulary, {quoted(manifest['vocab_file'])}, than"
            f" --vocab_file={vocab_file}. Give the vocabulary that made them, or make them again."
            f" {anyway}"
        )
    for folder in model_folders(init_checkpoint, output_dir):
        _check_vocabulary(manifest, place, folder, vocab_file, anyway)
        casing = read_casing(folder)
        if casing is None:
            name = os.path.basename(folder.rstrip("/"))
            casing = tokenization.casing_of_released_model(name)
        if casing not in (None, manifest["do_lower_case"]):
            raise UserError(
                f"{place} were made with --do_lower_case={manifest['do_lower_case']}, but the model"
                f" in {folder} was trained with --do_lower_case={casing}. Make the records again"
                f" with --do_lower_case={casing}. {anyway}"
            )


def _check_vocabulary(
    manifest: Mapping[str, Any], place: str, folder: str, vocab_file: str | None, anyway: str
) -> None:
    """Raises UserError if the vocabulary in a model's folder contradicts the records'."""
    paths = [os.path.join(folder, name) for name in VOCABULARY_FILES]
    vocabs = {path: VocabularySource(path).vocab for path in paths if tf.io.gfile.exists(path)}
    digest = manifest["vocabulary"]
    if not vocabs or digest in map(vocabulary_digest, vocabs.values()):
        return
    model_file, model_vocab = next(iter(vocabs.items()))
    vocab = _vocabulary_at(vocab_file or manifest["vocab_file"], digest)
    shown = ""
    if vocab is not None:
        token = first_difference(vocab, model_vocab)
        if token is None:
            return
        shown = (
            f": {quoted(token)} has the id {model_vocab[token]} in the latter and"
            f" {vocab.get(token, 'none')} in the former"
        )
    raise UserError(
        f"{place} were made with another vocabulary, {quoted(manifest['vocab_file'])}, than the"
        f" model's, {model_file}{shown}. Make them again with --vocab_file={model_file}. {anyway}"
    )


def _vocabulary_at(path: str, digest: str) -> dict[str, int] | None:
    """Returns the vocabulary of this digest if it is still at the path that a manifest gives."""
    with contextlib.suppress(UserError, OSError):
        storage.check_file_system(path, None)
        vocab = VocabularySource(path).vocab
        return vocab if vocabulary_digest(vocab) == digest else None
    return None
