"""Makes pre-training records in shards, with any number of workers (create_pretraining_data.py).

A document's key is its file and its number in the file, or its id in TensorFlow Datasets. A
document's shard, unless it is held out, and its place there depend only on the key, the seed and
the number of shards.
"""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from bert_tf.datasets.documents import (
    EmptyReport,
    Lines,
    count_repeated,
    document_digest,
    is_heldout,
    warn_of_empty_documents,
)
from bert_tf.datasets.text_files import read_files
from bert_tf.datasets.tfds import read_tfds_documents
from bert_tf.engine import interrupts
from bert_tf.errors import UserError, quoted
from bert_tf.files.whole_files import read_bytes, read_json, write_whole
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.pretraining.records import data
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.records.manifest import RecordCounts, counts_of
from bert_tf.tasks.pretraining.records.shuffling import SpillFile
from bert_tf.text.base_tokenizer import Tokenizer
from bert_tf.text.tokenizers import vocabulary_files

_LINES_PER_BATCH = 10_000
# Settings that do not affect the records.
_OF_THE_COURSE = (
    *("output_file", "heldout_output_file", "spill_dir", "num_workers", "worker_index"),
    *("tfds_data_dir", "init_checkpoint"),
)
# Settings that earlier versions did not have.
_LATER = ("split_sentences", "heldout_fraction", "blanks_separate_docs")
_SECONDS_TO_END = 30.0


class HashedDocument(NamedTuple):
    """A document with the hash of its key."""

    value: int  # the hash
    key: str
    text: bytes  # the lines, in UTF-8
    digest: int  # the `document_digest`, or 0 if it is not needed


def create_shards(settings: PretrainingDataSettings) -> None:
    """Writes the missing shards, and the held-out documents as an additional shard.

    A shard has the records that `create_pretraining_data` makes from the shard's documents with
    the shard's seed. Each worker reads the whole text once and keeps its shards' documents in a
    temporary file. Memory holds one shard's text at a time.
    """
    if settings.worker_index is None and settings.num_workers > 1:
        workers = [
            dataclasses.replace(settings, worker_index=i) for i in range(settings.num_workers)
        ]
        run_workers(create_shards, workers)
        data.report(counts_of(training_files(settings)), settings)
        return
    worker = settings.worker_index or 0
    tokenizer, names, files = begin_shards(settings)
    own = range(worker, len(names), settings.num_workers)
    missing = [shard for shard in own if not tf.io.gfile.exists(names[shard])]
    logging.info(
        "Worker %d of %d: %d of its %d shards already exist",
        *(worker, settings.num_workers, len(own) - len(missing), len(own)),
    )
    if not missing:
        return
    with DocumentSpill(settings.spill_dir, settings.output_file) as spill:
        counts = array("Q", bytes(8 * len(names)))
        digests = array("Q")
        kept = frozenset(missing)
        for shard, document in read_documents(settings, files, with_digests=not worker):
            counts[shard] += 1
            if not worker:  # the first worker reports for all
                digests.append(document.digest)
            if shard in kept:
                spill.add_document(shard, document)
        if 0 in counts:
            # No shard was written, and the next command will have different settings.
            with contextlib.suppress(tf.errors.NotFoundError):
                tf.io.gfile.remove(_settings_file(settings))
            raise no_document(settings, counts.index(0), sum(counts))
        for number, shard in enumerate(missing):
            logging.info("Shard %d: %s (%d more)", shard, names[shard], len(missing) - number - 1)
            write_shard(spill, shard, tokenizer, settings)
    if not worker:
        data.report_repeated(count_repeated(np.array(digests)), sum(counts))
    of_training = set(training_files(settings))
    mine = [names[shard] for shard in own if names[shard] in of_training]
    data.report(counts_of(mine), settings)


def begin_shards(settings: PretrainingDataSettings) -> tuple[Tokenizer, list[str], dict[str, str]]:
    """Finds the text, and saves the settings next to the shards, or checks the saved ones.

    Returns the tokenizer, the paths of all shards (the held-out one last), and the key of each
    text file ({} with --tfds).
    """
    names = training_files(settings)
    tokenizer, files = data.prepare(settings, names)
    if settings.heldout_fraction:
        names.append(settings.heldout_output_file)
    keys = file_keys(files)
    _check_earlier_shards(settings, keys)
    return tokenizer, names, keys


def training_files(settings: PretrainingDataSettings) -> list[str]:
    """Returns the names of the shards' files, without the held-out documents' file."""
    count = settings.num_shards
    return [shard_file(settings.output_file, i, count) for i in range(count)]


def read_documents(
    settings: PretrainingDataSettings,
    files: Mapping[str, str],
    report_empty: EmptyReport = warn_of_empty_documents,
    with_digests: bool = True,
) -> Iterator[tuple[int, HashedDocument]]:
    """Yields the documents of `files` (path -> key), or of --tfds, each with its shard.

    The shard of held-out documents is `num_shards`.
    """
    if settings.tfds:
        batches = read_tfds_documents(
            settings.tfds, settings.tfds_data_dir, settings.tfds_text_feature, report_empty
        )
        found = (document for documents in batches for document in documents)
    else:
        texts = read_files(
            list(files), "input_file", settings.text_field, report_empty, settings.split_sentences
        )
        if not settings.blanks_separate_docs:
            texts = ((file, list(filter(None, lines))) for file, lines in texts)
        found = split_documents((files[file], lines) for file, lines in texts)
    num_shards, fraction = settings.num_shards, settings.heldout_fraction
    for key, lines in found:
        if lines:
            value = document_hash(key, settings.random_seed)
            digest = document_digest(lines) if with_digests or fraction else 0
            shard = num_shards if is_heldout(digest, fraction) else value % num_shards
            yield shard, HashedDocument(value, key, "\n".join(lines).encode(), digest)


def document_hash(key: str, seed: int) -> int:
    """Returns the hash of a document, from 0 to 2^64 - 1.

    The hash modulo the number of shards is the document's shard, where documents are sorted by
    hash, then key.
    """
    return data.stable_hash(f"document\t{seed}\t{key}")


def shard_file(output_file: str, shard: int, num_shards: int) -> str:
    """Returns the name of a shard's file: for a.tfrecord, a-00003-of-00064.tfrecord."""
    root, ending = os.path.splitext(output_file)
    return f"{root}-{shard:05}-of-{num_shards:05}{ending}"


def file_keys(files: Sequence[str]) -> dict[str, str]:
    """Returns each file's path relative to the innermost folder that contains all files.

    Moving the text to a different folder changes neither keys nor records.
    """
    folder = os.path.dirname(files[0]) if files else ""
    while not all(file.startswith(f"{folder}/") for file in files) and folder:
        folder = os.path.dirname(folder) if os.path.dirname(folder) != folder else ""
    return {file: file[len(folder) :].lstrip("/") for file in files}


def split_documents(batches: Iterable[tuple[str, list[str]]]) -> Iterator[tuple[str, list[str]]]:
    """Yields each document's key and lines. Empty lines and ends of files separate documents."""
    for name, group in itertools.groupby(batches, key=lambda batch: batch[0]):
        lines = itertools.chain.from_iterable(batch for _, batch in group)
        documents = (list(found) for is_text, found in itertools.groupby(lines, bool) if is_text)
        for number, document in enumerate(documents):
            yield f"{name}\t{number}", document


def write_shard(
    spill: "DocumentSpill", shard: int, tokenizer: Tokenizer, settings: PretrainingDataSettings
) -> RecordCounts:
    documents = data.tokenized(spill.lines(shard), tokenizer, settings)
    if shard == settings.num_shards:
        return data.write_heldout(documents, tokenizer, settings)
    name = shard_file(settings.output_file, shard, settings.num_shards)
    seed = data.shard_seed(shard, settings.random_seed)
    with data.record_writer(settings, tokenizer, [name], seed) as write:
        return write(documents)


def no_document(
    settings: PretrainingDataSettings, shard: int, num_documents: int | None
) -> UserError:
    """Returns the error for a shard without documents; `num_documents` may be unknown."""
    if shard == settings.num_shards:
        return data.no_heldout(settings, num_documents, 0)
    number = "too few" if num_documents is None else num_documents
    separators = (
        "separated by empty lines" if settings.blanks_separate_docs else "one for each file"
    )
    return UserError(
        f"--num_shards={settings.num_shards} leaves shard {shard} without a document: the text has"
        f" {number} documents, {separators}. Lower --num_shards"
    )


def _settings_file(settings: PretrainingDataSettings) -> str:
    return f"{os.path.splitext(settings.output_file)[0]}-shards.json"


def _check_earlier_shards(settings: PretrainingDataSettings, files: Mapping[str, str]) -> None:
    """Saves the settings next to the shards, or raises UserError if the saved ones differ.

    The text's files are compared by names and sizes, the vocabulary by its bytes.
    """
    values = dataclasses.asdict(settings)
    for name in _OF_THE_COURSE:
        del values[name]
    vocabulary = vocabulary_files(settings.vocab_file).values()
    digest = hashlib.sha256(b"".join(read_bytes(path, path) for path in vocabulary)).hexdigest()
    values["vocab_file"] = f"sha256 {digest}"
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
    for name in _LATER:  # shards of an earlier version
        earlier.setdefault(name, type(settings).__dataclass_fields__[name].default)
    for name in sorted({*values, *earlier}):
        if values.get(name) != earlier.get(name):
            raise UserError(
                f"{path}: these shards were begun with --{name}={quoted(earlier.get(name))}, but"
                f" --{name} is now {quoted(values.get(name))}. Choose a different --output_file, or"
                " delete this file and any shards next to it"
            )


class DocumentSpill(SpillFile):
    """The documents of some shards, in a temporary file."""

    def __init__(self, directory: str | None, output_file: str):
        super().__init__(directory, output_file)
        # Shard -> for each document: hash, key, number in the file.
        self._documents: dict[int, list[tuple[int, str, int]]] = collections.defaultdict(list)

    def add_document(self, shard: int, document: HashedDocument) -> None:
        self._documents[shard].append((document.value, document.key, len(self)))
        self.add(document.text)

    def lines(self, shard: int) -> Lines:
        """Yields the lines of a shard's documents in batches; an empty line ends each document."""
        lines: list[str] = []
        for text in self.read(number for _, _, number in sorted(self._documents[shard])):
            lines += text.decode().split("\n")
            lines.append("")
            if len(lines) >= _LINES_PER_BATCH:
                yield lines
                lines = []
        yield lines


def run_workers(function: Callable[[Any], None], arguments: Sequence[Any]) -> None:
    """Calls a module's function with each argument in a separate process; waits for all.

    If a call fails or this process is interrupted, the remaining processes are terminated.
    """
    context = multiprocessing.get_context("spawn")  # TensorFlow's threads do not survive a fork
    errors = context.SimpleQueue()
    workers = [
        context.Process(target=_call, args=(function, argument, errors), daemon=True)
        for argument in arguments
    ]
    try:
        for worker in workers:
            worker.start()
        running = {worker.sentinel: worker for worker in workers}
        while running:
            for sentinel in multiprocessing.connection.wait(list(running)):
                worker = running.pop(sentinel)
                worker.join()
                if worker.exitcode and errors.empty():
                    raise OSError(
                        f"worker {workers.index(worker)} ended with status {worker.exitcode};"
                        " start the same command again"
                    )
                if not errors.empty():
                    raise errors.get()
    finally:
        for worker in workers:
            if worker.is_alive():
                worker.terminate()
        for worker in workers:
            if worker.pid is not None:
                worker.join(_SECONDS_TO_END)


def _call(function: Callable[[Any], None], argument: Any, errors: Any) -> None:
    interrupts.raise_on_sigterm()
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    try:
        try:
            function(argument)
        except Exception as error:  # raised again in `run_workers`, which stops the other processes
            errors.put(error)
            sys.exit(1)
    except KeyboardInterrupt as interrupt:  # also while the error is sent
        sys.exit(interrupts.exit_status(interrupt))
