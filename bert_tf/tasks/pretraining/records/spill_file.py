"""A temporary file for what waits until it is needed in another order."""

import contextlib
import errno
import os
import random
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from typing import Self

import numpy as np

from bert_tf.errors import UserError
from bert_tf.progress import Progress
from bert_tf.runs.flags.settings import MAX_LENGTH
from bert_tf.tasks.pretraining.records.shuffling import shuffle

_TOKEN_BITS = MAX_LENGTH.bit_length()


class SpillFile:
    """A temporary file that is written from its start to its end, and then read anywhere.

    A context manager. The file has no name on systems that allow it, so that nothing remains of it
    even if the program is killed. On others it is deleted when it is closed.

    Args:
        directory: a local folder; None for that of `output_file` if it is local, else the system's
            folder for temporary files.
        output_file: the first output file.

    Raises:
        UserError: the file cannot be made.
        OSError: from the methods, too: reading or writing failed in a way that may pass, such as a
            full disk.
    """

    def __init__(self, directory: str | None, output_file: str):
        if not directory:
            # The folder of the output has space for as many records.
            remote = "://" in output_file
            directory = tempfile.gettempdir() if remote else os.path.dirname(output_file) or "."
        self._directory = directory
        self._end = 0

    def __enter__(self) -> Self:
        with self._explained():
            self._file = tempfile.TemporaryFile(dir=self._directory, buffering=1 << 20)
        return self

    def __exit__(self, *unused) -> None:
        with contextlib.suppress(OSError):  # a full disk, reported before
            self._file.close()

    def append(self, data: bytes) -> int:
        """Writes bytes and returns where they begin."""
        try:
            self._file.write(data)
        except OSError as error:  # no context manager: this is called for each record
            raise self._error(error) from error
        start = self._end
        self._end += len(data)
        return start

    def read(self, places: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        """Yields the bytes at some places, each a beginning and the most bytes to read."""
        with self._explained():
            self._file.flush()
        number = self._file.fileno()
        for start, length in places:
            try:
                data = os.pread(number, length, start)
            except OSError as error:
                raise self._error(error) from error
            yield data

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._error(error) from error

    def _error(self, error: OSError) -> UserError | OSError:
        permanent = (FileNotFoundError, NotADirectoryError, PermissionError)
        readonly = error.errno == errno.EROFS
        return (UserError if readonly or isinstance(error, permanent) else OSError)(
            f"Cannot write a temporary file in {self._directory}: {error.strerror}. It takes about"
            " as much space as the output. Choose another folder with --spill_dir"
        )


class RecordSpill(SpillFile):
    """Records in a temporary file, which can be shuffled. In memory are 8 bytes for each.

    Args and errors are those of `SpillFile`.
    """

    def __init__(self, directory: str | None, output_file: str):
        super().__init__(directory, output_file)
        # Of each record where it begins, and in the lower bits its number of tokens.
        self._entries = array("Q")
        self._longest = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, record: bytes, num_tokens: int) -> None:
        """Adds a record, and the number of its tokens."""
        start = self.append(len(record).to_bytes(4, "little") + record)
        self._entries.append(start << _TOKEN_BITS | num_tokens)
        self._longest = max(self._longest, len(record))

    def shuffle(self, rng: random.Random) -> None:
        """Shuffles the records into the order that `rng.shuffle` gives a list of them."""
        shuffle(self._entries, rng)

    def num_tokens(self) -> np.ndarray:
        """Returns the number of tokens of each record, int64 [len(self)]."""
        return (np.array(self._entries) & ((1 << _TOKEN_BITS) - 1)).astype(np.int64)

    def in_order(self) -> Iterator[bytes]:
        """Yields all records in their order."""
        with Progress("writing records", "records", len(self)) as work:
            for record in self.records(range(len(self))):
                yield record
                work.advance()

    def records(self, numbers: Iterable[int]) -> Iterator[bytes]:
        """Yields the records of these numbers."""
        starts = (self._entries[number] >> _TOKEN_BITS for number in numbers)
        for data in self.read((start, 4 + self._longest) for start in starts):
            yield data[4 : 4 + int.from_bytes(data[:4], "little")]
