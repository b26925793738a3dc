"""Shuffles as `random.Random.shuffle` does: values in memory, and records in a temporary file."""

import contextlib
import errno
import os
import random
import tempfile
from array import array
from collections.abc import Iterable, Iterator, MutableSequence
from typing import Self

import numpy as np

from bert_tf.errors import UserError
from bert_tf.progress import Progress
from bert_tf.runs.flags.settings import MAX_LENGTH


def shuffle(values: MutableSequence, rng: random.Random) -> None:
    """Shuffles `values` with the same result as `rng.shuffle`, but faster.

    `random.Random.shuffle` calls a Python function for each number. Here the function's few lines
    are inlined: to get a number below n, draw n.bit_length() bits until they are below n.
    """
    getrandbits = rng.getrandbits
    last = len(values) - 1
    while last > 0:
        bits = (last + 1).bit_length()
        stop = max((1 << bits - 1) - 2, 0)  # for all i above it, i + 1 has `bits` bits
        for i in range(last, stop, -1):
            j = getrandbits(bits)
            while j > i:
                j = getrandbits(bits)
            values[i], values[j] = values[j], values[i]
        last = stop


_SIZE_BYTES = 5
_RECORDS_AT_ONCE = 256  # between updates of the progress
_TOKEN_BITS = MAX_LENGTH.bit_length()


class SpillFile:
    """Records in a temporary file, which can be shuffled; a context manager.

    Each record takes 8 bytes of memory. Where the system allows it, the file has no name, so
    nothing is left of it even if the program is killed. It is in `directory`; by default in the
    folder of the first output file, `output_file`, or, if that folder is not local, in the system's
    temporary folder.
    """

    def __init__(self, directory: str | None, output_file: str):
        if not directory:
            # The output's folder must have space for as many records anyway.
            remote = "://" in output_file
            directory = tempfile.gettempdir() if remote else os.path.dirname(output_file) or "."
        self._directory = directory
        # Each record's offset in the file and, in the lower bits, its number of tokens.
        self._entries = array("Q")
        self._end = 0
        self._longest = 0  # bytes of the longest record, including its size
        try:
            self._file = tempfile.TemporaryFile(dir=directory, buffering=1 << 20)
        except OSError as error:
            raise self._explanation(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused) -> None:
        with contextlib.suppress(OSError):  # a full disk, already reported
            self._file.close()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, record: bytes, num_tokens: int = 0) -> None:
        try:
            self._file.write(len(record).to_bytes(_SIZE_BYTES, "little") + record)
        except OSError as error:  # a context manager would be slow for every record
            raise self._explanation(error) from error
        self._entries.append(self._end << _TOKEN_BITS | num_tokens)
        size = _SIZE_BYTES + len(record)
        self._end += size
        if size > self._longest:
            self._longest = size

    def shuffle(self, rng: random.Random) -> None:
        """Shuffles the records, in the same way as `rng.shuffle` shuffles a list."""
        shuffle(self._entries, rng)

    def num_tokens(self) -> np.ndarray:
        """Returns the number of tokens of each record, int64 [len(self)]."""
        return (np.array(self._entries) & ((1 << _TOKEN_BITS) - 1)).astype(np.int64)

    def in_order(self) -> Iterator[bytes]:
        with Progress("writing records", "records", len(self)) as work:
            for first in range(0, len(self), _RECORDS_AT_ONCE):
                numbers = range(first, min(first + _RECORDS_AT_ONCE, len(self)))
                yield from self.read(numbers)
                work.advance(len(numbers))

    def read(self, numbers: Iterable[int]) -> Iterator[bytes]:
        try:
            self._file.flush()
            file = self._file.fileno()
            for number in numbers:
                start = self._entries[number] >> _TOKEN_BITS
                data = os.pread(file, self._longest, start)
                yield data[_SIZE_BYTES : _SIZE_BYTES + int.from_bytes(data[:_SIZE_BYTES], "little")]
        except OSError as error:
            raise self._explanation(error) from error

    def _explanation(self, error: OSError) -> OSError | UserError:
        permanent = (FileNotFoundError, NotADirectoryError, PermissionError)
        is_permanent = error.errno == errno.EROFS or isinstance(error, permanent)
        return (UserError if is_permanent else OSError)(
            f"Cannot write a temporary file in {self._directory}: {error.strerror}. It takes"
            " about as much space as the output. Choose a different folder with --spill_dir"
        )
