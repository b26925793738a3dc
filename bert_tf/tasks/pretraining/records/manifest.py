"""Manifests: a small JSON file beside each record file that says what made it.

Records with a wrong vocabulary or casing train a model on nonsense without an error. So
`MadeFor.check` compares manifests with the model. Records without a manifest, such as the
original's, are not compared.
"""

import contextlib
import dataclasses
import functools
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from absl import logging

from bert_tf import tokenization
from bert_tf.errors import UserError, quoted
from bert_tf.files import storage
from bert_tf.files.paths import check_overwrites, real_path
from bert_tf.files.whole_files import read_json
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.schema import ELECTRA, MLM
from bert_tf.text.casing import model_folders, read_casing
from bert_tf.text.model_vocabulary import first_difference, vocabulary_digest
from bert_tf.text.tokenizers import VOCABULARY_FILES, VocabularySource

_SETTINGS = (
    *("do_lower_case", "objective", "max_seq_length", "max_predictions_per_seq", "mask"),
    *("masked_lm_prob", "do_whole_word_mask", "short_seq_prob", "pack", "dupe_factor"),
    *("random_seed", "split_sentences", "heldout_fraction"),
)
_NEEDED = {"vocab_file", "vocabulary", "do_lower_case", "objective"}
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})(\.[^./]*)?$")  # the end of a shard's name


@dataclasses.dataclass(frozen=True)
class RecordCounts:
    """Counts of what was read and written."""

    documents: int = 0  # with tokens
    sentences: int = 0  # lines with tokens
    tokens: int = 0
    lost_tokens: int = 0  # in no record
    instances: int = 0  # records before packing
    real_pairs: int = 0  # instances whose second text follows the first; 0 with mlm and electra


def manifest_file(path: str) -> str:
    """Returns the path of a manifest: a.tfrecord.json, or for a shard a-shards-00003.json.

    A glob that matches all shards does not match their manifests.
    """
    name = _SHARD.sub(r"-shards-\1", path) if _SHARD.search(path) else path
    return f"{name}.json"


def manifest_of(settings: PretrainingDataSettings, vocab: Mapping[str, int]) -> dict[str, Any]:
    """Returns the manifest of records made with these settings, without their counts."""
    return {
        "vocab_file": real_path(settings.vocab_file),
        "vocabulary": vocabulary_digest(vocab),
        **{name: getattr(settings, name) for name in _SETTINGS},
    }


def beside(manifest: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, str]:
    """Returns the manifests to write beside record files: path -> content.

    A manifest records the size of its file, so that a stale manifest is recognized. Devices and
    pipes get none.
    """
    return {
        manifest_file(path): json.dumps({**manifest, "bytes": size}, indent=2) + "\n"
        for path, size in sizes.items()
        if "://" in path or os.path.isfile(path) or not os.path.exists(path)
    }


def check_outputs(
    outputs: Mapping[str, Sequence[str]],
    read: Mapping[str, Iterable[str]],
    sharded: Collection[str] = (),
) -> None:
    """Checks that record files and their manifests replace no other file.

    `outputs` and `read` are files by flag. Flags in `sharded` may have thousands of files, so
    existing manifests are not read for them.
    """
    for flag, files in outputs.items():
        manifests = list(map(manifest_file, files))
        check_overwrites([*files, *manifests], flag, read)
        read = {**read, flag: [*files, *manifests]}
        if flag in sharded:
            continue
        for path, file in zip(files, manifests, strict=True):
            storage.check_file_system(path, flag)
            if not tf.io.gfile.exists(file):
                continue
            rule = (
                f"its name is needed for the manifest of --{flag}={path}: move it away, or"
                " choose a different name for the records"
            )
            present = read_json(file, file, rule)
            if not isinstance(present, dict) or "vocabulary" not in present:
                raise UserError(f"{file} is not a manifest of records, but {rule}")


def record_files(patterns: str, flag: str) -> list[str]:
    """Returns the record files that patterns match, without manifests; no shard may be missing."""
    files = storage.expand_files(patterns, flag)
    beside_them = {*map(manifest_file, files)}
    beside_them |= {_SHARD.sub("-shards.json", path) for path in files if _SHARD.search(path)}
    files = [path for path in files if path not in beside_them]
    _check_whole(files, flag)
    return files


def _check_whole(files: Sequence[str], flag: str) -> None:
    """Checks that all shards exist, including shards that the patterns leave out."""
    shards: dict[str, None] = {}
    for path in files:
        if match := _SHARD.search(path):
            ends = (f"-{i:05}-of-{match[2]}{match[3] or ''}" for i in range(int(match[2])))
            shards |= dict.fromkeys(path[: match.start()] + end for end in ends)
    known = set(files)
    others = [path for path in shards if path not in known]
    exist = zip(others, _at_once(tf.io.gfile.exists, others), strict=True)
    missing = [path for path, exists in exist if not exists]
    if missing:
        raise UserError(
            f"--{flag}: {len(missing)} shards of these records are missing, so training would leave"
            f" out their text; the first is {missing[0]}. Put them back, or make them again. To"
            " train without them, take -of- and the number of shards out of the other files' names"
        )


def counts_of(files: Sequence[str]) -> RecordCounts:
    """Returns the sum of the counts in the manifests of the files that have one."""
    names = [field.name for field in dataclasses.fields(RecordCounts)]
    found = [manifest for manifest in _at_once(_read, files) if manifest]
    return RecordCounts(*(sum(manifest.get(name, 0) for manifest in found) for name in names))


def _at_once(function: Callable[[str], Any], paths: Iterable[str]) -> list[Any]:
    """Maps a function over paths in threads, since each path in a bucket takes a few requests."""
    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(function, paths))


def _read(file: str) -> dict[str, Any] | None:
    path = manifest_file(file)
    if not tf.io.gfile.exists(path):
        return None
    rule = "correct it, or delete it, and the records are used without a check"
    manifest = read_json(path, path, rule)
    if not isinstance(manifest, dict) or not manifest.keys() >= _NEEDED:
        raise UserError(
            f"{path} must say what made the records of {file}, with {', '.join(sorted(_NEEDED))};"
            f" {rule}"
        )
    size = tf.io.gfile.stat(file).length
    if manifest.get("bytes") != size:
        logging.warning(
            "%s is ignored: it describes a file of %s bytes, but %s has %d bytes. Whether the"
            " records fit the model is not checked",
            *(path, quoted(manifest.get("bytes")), file, size),
        )
        return None
    return manifest


def common_manifest(files: Sequence[str], flag: str) -> tuple[str, dict[str, Any]] | None:
    """Returns the first of the record files that has a manifest, and its manifest.

    All manifests must have the same vocabulary, casing and objective. A run makes all shards with
    the same settings (see `shards`), so only one of their manifests is read.
    """
    shards = {_SHARD.sub("", path): path for path in files}.values()
    read = zip(shards, _at_once(_read, shards), strict=True)
    found = [(path, manifest) for path, manifest in read if manifest is not None]
    for path, manifest in found:
        first, expected = found[0]
        for name in ("vocabulary", "do_lower_case", "objective"):
            if manifest[name] != expected[name]:
                what = f"--{name}"
                if name == "vocabulary":
                    both = (quoted(x["vocab_file"]) for x in (expected, manifest))
                    what = f"vocabularies, {' and '.join(both)}"
                raise UserError(
                    f"--{flag}: {first} and {path} were made with different {what}; name files that"
                    " match"
                )
    return found[0] if found else None


@dataclasses.dataclass(frozen=True)
class MadeFor:
    """The model that records must have been made for; its files are read once.

    The model is in the folder of `init_checkpoint`, and in `output_dir` if that has a checkpoint.
    The records' vocabulary must have all tokens of the folder's vocabulary at the same ids. It may
    have other tokens instead of [unusedN], and more at its end. `do_lower_case` must be equal.
    Files that the folder lacks are not compared.

    Args:
        objective: what to train; `mlm` takes records of any objective except `electra`.
        vocab_file, vocab: the vocabulary that the program was given, which must be the records'.
    """

    objective: str
    vocab_file: str | None = None
    vocab: Mapping[str, int] | None = None
    init_checkpoint: str | None = None
    output_dir: str | None = None

    @functools.cached_property
    def _models(self) -> list[tuple[str, dict[str, Mapping[str, int]], bool | None]]:
        """The model's folders, each with its vocabularies by their paths, and its casing."""
        models = []
        for folder in model_folders(self.init_checkpoint, self.output_dir):
            paths = [os.path.join(folder, name) for name in VOCABULARY_FILES]
            vocabs = {x: VocabularySource(x).vocab for x in paths if tf.io.gfile.exists(x)}
            casing = read_casing(folder)
            if casing is None:
                name = os.path.basename(folder.rstrip("/"))
                casing = tokenization.casing_of_released_model(name)
            models.append((folder, vocabs, casing))
        return models

    def check(self, files: Sequence[str], flag: str) -> None:
        """Checks the manifests of the files of --`flag`. Lengths are checked in the records."""
        found = common_manifest(files, flag)
        if found is None:
            return
        file, manifest = found
        made_for, place = manifest["objective"], f"--{flag}: the records of {file}"
        anyway = f"To use them anyway, delete {manifest_file(file)}"
        is_electra = ELECTRA in (self.objective, made_for)
        if self.objective != made_for and (is_electra or self.objective != MLM):
            other = f"--objective={MLM}, which takes any records"
            if is_electra:
                other = f"make the records again with --objective={self.objective}"
            raise UserError(
                f"{place} were made with --objective={quoted(made_for)[1:-1]}, but now it"
                f" is {self.objective}. Give the same --objective, or {other}. {anyway}"
            )
        made_with = f"{place} were made with the vocabulary {quoted(manifest['vocab_file'])}"
        if self.vocab and vocabulary_digest(self.vocab) != manifest["vocabulary"]:
            raise UserError(
                f"{made_with}, not with --vocab_file={self.vocab_file}. Give the vocabulary that"
                f" made them, or make them again. {anyway}"
            )
        for folder, vocabs, casing in self._models:
            if (difference := self._difference(vocabs, manifest)) is not None:
                model_file = next(iter(vocabs))
                raise UserError(
                    f"{made_with}, not with the model's, {model_file}{difference}. Make them again"
                    f" with --vocab_file={model_file}. {anyway}"
                )
            if casing not in (None, manifest["do_lower_case"]):
                raise UserError(
                    f"{place} were made with --do_lower_case={manifest['do_lower_case']}, but the"
                    f" model in {folder} was trained with --do_lower_case={casing}. Make the"
                    f" records again with --do_lower_case={casing}. {anyway}"
                )

    def _difference(
        self, vocabs: Mapping[str, Mapping[str, int]], manifest: Mapping[str, Any]
    ) -> str | None:
        """Returns how a folder's vocabularies contradict the records'; None if they do not."""
        digest = manifest["vocabulary"]
        if not vocabs or digest in map(vocabulary_digest, vocabs.values()):
            return None
        vocab = self.vocab or _vocabulary_at(manifest["vocab_file"], digest)
        if vocab is None:
            return ""
        model_vocab = next(iter(vocabs.values()))
        token = first_difference(vocab, model_vocab)
        return token and (
            f": {quoted(token)} has the id {model_vocab[token]} in the model's and"
            f" {vocab.get(token, 'none')} in the records'"
        )


def _vocabulary_at(path: str, digest: str) -> dict[str, int] | None:
    """Returns the vocabulary that a manifest names, if it is still there and unchanged."""
    with contextlib.suppress(UserError, OSError):
        storage.check_file_system(path, None)
        vocab = VocabularySource(path).vocab
        return vocab if vocabulary_digest(vocab) == digest else None
    return None
