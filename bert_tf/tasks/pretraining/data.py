"""Text to pre-training records: what create_pretraining_data.py does."""

import contextlib
import os
import random
import tempfile
from array import array
from collections.abc import Iterator, Mapping

import tensorflow as tf
from absl import logging

from bert_tf import progress
from bert_tf.errors import UserError
from bert_tf.files import records, storage
from bert_tf.tasks.pretraining import instances, schema
from bert_tf.tasks.pretraining.settings import PretrainingDataSettings
from bert_tf.text import casing, fast_tokenization
from bert_tf.text import documents as documents_lib
from bert_tf.text.tfds import read_tfds

_LOGGED_INSTANCES = 20
_REQUIRED_TOKENS = ("[CLS]", "[SEP]", "[MASK]")


def create_pretraining_data(settings: PretrainingDataSettings) -> int:
    """Returns the number of records written.

    The same text, settings and seed give the records of the original's create_pretraining_data.py,
    in the same files and order. What is in memory is the tokenized text (`Documents`) and 8 bytes
    an instance; the instances themselves wait in a temporary file until they can be written in
    their final, random order.

    Raises:
        UserError: input that is missing or no UTF-8 or without tokens, an unusable vocabulary, or a
            place that cannot be written. No output file is written then.
    """
    output_files = settings.output_file.split(",")
    tokenizer = fast_tokenization.FastTokenizer(
        settings.vocab_file, settings.do_lower_case, _REQUIRED_TOKENS
    )
    casing.check_casing(settings.do_lower_case, tokenizer.vocab, settings.vocab_file)
    if settings.input_file:
        files = storage.expand_files(settings.input_file, "input_file")
        logging.info("*** Reading from input files ***")
        for path in files:
            logging.info("  %s", path)
        lines = documents_lib.read_text(files, "input_file")
    else:
        lines = read_tfds(settings.tfds, settings.tfds_data_dir, settings.tfds_text_feature)
    rng = random.Random(settings.random_seed)
    # The files are opened before the long work so that a missing directory shows at once.
    with records.write_files(output_files, "output_file") as write, contextlib.ExitStack() as stack:
        vocab_size = max(tokenizer.vocab.values()) + 1
        documents = documents_lib.read_documents(lines, tokenizer.encode, vocab_size)
        logging.info("%d documents, %d tokens", len(documents), documents.num_tokens)
        if not len(documents):
            raise UserError(f"there are no tokens in the text of {_source(settings)}")
        if len(documents) == 1:
            logging.warning(
                "all text is one document (an empty line should stand between documents), so that "
                "random next sentences come from that document too"
            )
        documents.shuffle(rng)
        spill = stack.enter_context(_Spill(settings.spill_dir, output_files[0]))
        vocabulary = instances.Vocabulary(tokenizer.vocab)
        record_schema = schema.pretraining_schema(
            settings.max_seq_length, settings.max_predictions_per_seq
        )
        total = settings.dupe_factor * len(documents)
        with progress.Progress("making instances", "documents", total) as work:
            for _ in range(settings.dupe_factor):
                for index in range(len(documents)):
                    for instance in instances.create_instances(
                        documents, index, settings, vocabulary, rng
                    ):
                        spill.append(records.serialize(instance, record_schema))
                    work.advance()
        instances.shuffle(spill.offsets, rng)
        logging.info("*** Writing to output files ***")
        for path in output_files:
            logging.info("  %s", path)
        with progress.Progress("writing records", "records", len(spill.offsets)) as work:
            for position, record in enumerate(spill):
                if position < _LOGGED_INSTANCES:
                    _log(record, tokenizer.inv_vocab)
                write(record)
                work.advance()
    logging.info("Wrote %d total instances", len(spill.offsets))
    return len(spill.offsets)


def _source(settings: PretrainingDataSettings) -> str:
    if settings.input_file:
        return f"--input_file={settings.input_file}"
    return f"--tfds={settings.tfds}"


class _Spill:
    """Records in a temporary file, read back in the order of `offsets`; a context manager.

    The file has no name (or, where that cannot be, is deleted when it is closed), so nothing is
    left of it however the program ends.
    """

    def __init__(self, directory: str | None, output_file: str):
        if not directory:
            # Beside the output there is room for the records; but it must be a local disk.
            remote = "://" in output_file
            directory = tempfile.gettempdir() if remote else os.path.dirname(output_file) or "."
        self._directory = directory
        self.offsets = array("Q")  # may be reordered by the caller
        self._end = 0
        self._longest = 0

    def __enter__(self) -> "_Spill":
        try:
            self._file = tempfile.TemporaryFile(dir=self._directory, buffering=1 << 20)
        except OSError as error:
            raise self._error(error) from error
        return self

    def __exit__(self, *unused) -> None:
        with contextlib.suppress(OSError):  # a full disk, which has been reported
            self._file.close()

    def append(self, record: bytes) -> None:
        """Adds one record."""
        try:
            self._file.write(len(record).to_bytes(4, "little") + record)
        except OSError as error:
            raise self._error(error) from error
        self.offsets.append(self._end)
        self._end += 4 + len(record)
        self._longest = max(self._longest, len(record))

    def __iter__(self) -> Iterator[bytes]:
        """Yields the records in the order of `offsets`."""
        try:
            self._file.flush()
        except OSError as error:
            raise self._error(error) from error
        number = self._file.fileno()
        for offset in self.offsets:
            data = os.pread(number, 4 + self._longest, offset)
            yield data[4 : 4 + int.from_bytes(data[:4], "little")]

    def _error(self, error: OSError) -> UserError:
        return UserError(
            f"cannot keep instances in a temporary file in {self._directory}: {error.strerror}; "
            "it takes about as much room as the output. --spill_dir chooses another directory"
        )


def _log(record: bytes, tokens: Mapping[int, str]) -> None:
    """Logs one record as the original does its first twenty."""
    features = tf.train.Example.FromString(record).features.feature
    length = sum(features["input_mask"].int64_list.value)
    ids = features["input_ids"].int64_list.value[:length]
    logging.debug("*** Example ***")
    logging.debug("tokens: %s", " ".join(tokens[id] for id in ids))
    for name in sorted(features):
        feature = features[name]
        values = feature.int64_list.value or feature.float_list.value
        logging.debug("%s: %s", name, " ".join(map(str, values)))
