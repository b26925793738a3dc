"""A temporary file for data that is written in one order and read in another."""

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
    """A temporary file that is written sequentially, then read at any place; a context manager.

    On systems that allow it, the file has no name, so nothing is left of it even if the program is
    killed. On other systems it is deleted when it is closed.

    Args:
        directory: a local folder; None for the folder of `output_file` if that is local, else the
            system's folder for temporary files.
        output_file: the first output file.

    Raises:
        UserError: the file cannot be made.
        OSError: from the methods, too: reading or writing failed, but a retry may succeed, for
            example after freeing disk space.
    """

    def __init__(self, directory: str | None, output_file: str):
        if not directory:
            # The output's folder must have space for as many records anyway.
            remote = "://" in output_file
            directory = tempfile.gettempdir() if remote else os.path.dirname(output_file) or "."
        self._directory = directory
        self._end = 0

    def __enter__(self) -> Self:
        with self._explained():
            self._file = tempfile.TemporaryFile(dir=self._directory, buffering=1 << 20)
        return self

    def __exit__(self, *unused) -> None:
        with contextlib.suppress(OSError):  # a full disk, already reported
            self._file.close()

    def append(self, data: bytes) -> int:
        """Writes bytes and returns where they begin."""
        try:
            self._file.write(data)
        except OSError as error:  # not `_explained`, which is slow to enter for each record
            raise self._error(error) from error
        start = self._end
        self._end += len(data)
        return start

    def read(self, places: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        """Yields the bytes at some places, each an offset and the maximum number of bytes."""
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
    """Records in a temporary file, which can be shuffled. Each takes 8 bytes of memory.

    Args and errors: see `SpillFile`.
    """

    def __init__(self, directory: str | None, output_file: str):
        super().__init__(directory, output_file)
        # Each record's offset in the file; in the lower bits, its number of tokens.
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
        """Yields the records with these numbers."""
        starts = (self._entries[number] >> _TOKEN_BITS for number in numbers)
        for data in self.read((start, 4 + self._longest) for start in starts):
            yield data[4 : 4 + int.from_bytes(data[:4], "little")]
