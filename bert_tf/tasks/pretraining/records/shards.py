"""Makes pre-training records in shards, with any number of workers (create_pretraining_data.py)."""

import contextlib
import dataclasses
import hashlib
import json
import os
from array import array
from collections.abc import Iterator, Mapping

import tensorflow as tf
from absl import logging

from bert_tf.datasets.documents import EmptyReport, Lines, warn_of_empty_documents
from bert_tf.datasets.text_files import read_files
from bert_tf.datasets.tfds import read_tfds_documents
from bert_tf.errors import UserError, quoted
from bert_tf.files.whole_files import read_json, write_whole
from bert_tf.tasks.pretraining.records import sharding
from bert_tf.tasks.pretraining.records.data import input_files, make_tokenizer, write_records
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.masking import check_predictions
from bert_tf.tasks.pretraining.records.sharding import KeyedDocument
from bert_tf.tasks.pretraining.records.spill_file import SpillFile
from bert_tf.tasks.pretraining.records.workers import run_workers
from bert_tf.text.tokenizers import vocabulary_files

_LINES_PER_BATCH = 10_000
# Settings that do not affect the records.
_OF_THE_COURSE = ("output_file", "spill_dir", "num_workers", "worker_index", "tfds_data_dir")


def create_shards(settings: PretrainingDataSettings) -> None:
    """Writes the missing shards.

    A shard has the records that `create_pretraining_data` makes from the shard's documents with
    the shard's seed (see `sharding`). Each worker reads the whole text once and keeps its shards'
    documents in a temporary file. Memory holds one shard's text at a time.

    Args:
        settings: the flags; `num_shards` is given.

    Raises:
        UserError: see `create_pretraining_data`; or a shard has no document, or existing shards
            were made with different settings or from a different text.
        OSError: writing failed, but a retry may succeed, for example after freeing disk space.
        RuntimeError: a worker was killed.
    """
    if settings.worker_index is None and settings.num_workers > 1:
        workers = [
            dataclasses.replace(settings, worker_index=i) for i in range(settings.num_workers)
        ]
        run_workers(create_shards, workers)
        return
    num_shards, worker = settings.num_shards, settings.worker_index or 0
    tokenizer = make_tokenizer(settings)
    names, files = begin_shards(settings)
    own = range(worker, num_shards, settings.num_workers)
    missing = [shard for shard in own if not tf.io.gfile.exists(names[shard])]
    logging.info(
        "Worker %d of %d: %d of its %d shards are there already",
        *(worker, settings.num_workers, len(own) - len(missing), len(own)),
    )
    if not missing:
        return
    with DocumentSpill(settings.spill_dir, settings.output_file) as spill:
        counts = array("Q", bytes(8 * num_shards))
        kept = frozenset(missing)
        for document in read_keyed_documents(settings, files):
            value = sharding.document_hash(document.key, settings.random_seed)
            shard = value % num_shards
            counts[shard] += 1
            if shard in kept:
                spill.add(shard, value, document.key, "\n".join(document.lines).encode())
        if 0 in counts:
            # No worker has written a shard, and the next command will have other settings.
            with contextlib.suppress(tf.errors.NotFoundError):
                tf.io.gfile.remove(_settings_file(settings))
            raise no_document(settings, counts.index(0), sum(counts))
        for number, shard in enumerate(missing):
            logging.info("Shard %d: %s (%d more)", shard, names[shard], len(missing) - number - 1)
            seed = sharding.shard_seed(shard, settings.random_seed)
            write_records(spill.lines(shard), tokenizer, settings, [names[shard]], seed)


def begin_shards(settings: PretrainingDataSettings) -> tuple[list[str], dict[str, str]]:
    """Finds the text, and checks the settings saved next to the shards, or saves them.

    Args:
        settings: the flags; `num_shards` is given.

    Returns:
        The names of all shards' files; and the key of each text file, {} with --tfds.

    Raises:
        UserError: see `create_shards`.
    """
    if settings.mask:
        check_predictions(
            settings.max_seq_length, settings.max_predictions_per_seq, settings.masked_lm_prob
        )
    num_shards = settings.num_shards
    names = [sharding.shard_file(settings.output_file, i, num_shards) for i in range(num_shards)]
    files = sharding.file_keys(input_files(settings, names))
    _check_earlier_shards(settings, files)
    return names, files


def read_keyed_documents(
    settings: PretrainingDataSettings,
    files: Mapping[str, str],
    report_empty: EmptyReport = warn_of_empty_documents,
) -> Iterator[KeyedDocument]:
    """Returns the documents of the files, or of --tfds.

    Args:
        files: the key of each file; not used with --tfds.
        report_empty: see `text_files.read_files`.
    """
    if settings.tfds:
        return (
            KeyedDocument(key, sentences)
            for documents in read_tfds_documents(
                settings.tfds, settings.tfds_data_dir, settings.tfds_text_feature, report_empty
            )
            for key, sentences in documents
            if sentences
        )
    batches = read_files(list(files), "input_file", settings.text_field, report_empty)
    return sharding.split_documents((files[file], lines) for file, lines in batches)


def no_document(
    settings: PretrainingDataSettings, shard: int, num_documents: int | None
) -> UserError:
    """Returns the error for a shard without documents; `num_documents` is None if unknown."""
    number = "too few" if num_documents is None else num_documents
    return UserError(
        f"--num_shards={settings.num_shards} leaves shard {shard} without a document: the text has"
        f" {number} documents, which empty lines separate. Lower --num_shards"
    )


def _settings_file(settings: PretrainingDataSettings) -> str:
    """Returns the name of the file next to the shards that holds their settings."""
    return f"{os.path.splitext(settings.output_file)[0]}-shards.json"


def _check_earlier_shards(settings: PretrainingDataSettings, files: Mapping[str, str]) -> None:
    """Saves the settings next to the shards, or checks that earlier shards have the same settings.

    Compares the names and sizes of the text's files, and every byte of the vocabulary.

    Raises:
        UserError: a setting differs.
    """
    values = {
        name: value
        for name, value in dataclasses.asdict(settings).items()
        if name not in _OF_THE_COURSE
    }
    vocabulary = hashlib.sha256()
    for path in vocabulary_files(settings.vocab_file).values():
        with tf.io.gfile.GFile(path, "rb") as reader:
            vocabulary.update(reader.read())
    values["vocab_file"] = f"sha256 {vocabulary.hexdigest()}"
    if files:
        sizes = {key: tf.io.gfile.stat(file).length for file, key in files.items()}
        digest = hashlib.sha256(json.dumps(sizes).encode()).hexdigest()
        values["input_file"] = f"{len(sizes)} files, {sum(sizes.values())} bytes, sha256 {digest}"
    path = _settings_file(settings)
    if not tf.io.gfile.exists(path):
        write_whole(path, json.dumps(values, indent=2, sort_keys=True) + "\n")
        return
    earlier = read_json(path, path, "delete it and the shards beside it")
    if not isinstance(earlier, dict):
        earlier = {}
    for name in sorted({*values, *earlier}):
        if values.get(name) != earlier.get(name):
            raise UserError(
                f"{path}: shards were begun there with --{name}={quoted(earlier.get(name))}, and"
                f" now it is {quoted(values.get(name))}. Choose another --output_file, or delete"
                " this file and any shards next to it"
            )


class DocumentSpill(SpillFile):
    """The documents of some shards, in a temporary file. Args and errors: see `SpillFile`."""

    def __init__(self, directory: str | None, output_file: str):
        super().__init__(directory, output_file)
        # Shard -> for each document: hash, key, offset in the file, number of bytes.
        self._entries: dict[int, list[tuple[int, str, int, int]]] = {}

    def add(self, shard: int, value: int, key: str, text: bytes) -> None:
        """Adds a document: its hash, its key, and its lines with line ends between them."""
        entry = (value, key, self.append(text), len(text))
        self._entries.setdefault(shard, []).append(entry)

    def lines(self, shard: int) -> Lines:
        """Yields batches of lines of a shard's documents, with an empty line after each."""
        places = [entry[2:] for entry in sorted(self._entries.get(shard, ()))]
        lines: list[str] = []
        for data in self.read(places):
            lines += data.decode().split("\n")
            lines.append("")
            if len(lines) >= _LINES_PER_BATCH:
                yield lines
                lines = []
        yield lines
