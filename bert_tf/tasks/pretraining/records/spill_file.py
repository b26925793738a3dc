"""A temporary file for what waits until it is needed in another order."""

import contextlib
import errno
import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator

from bert_tf.errors import UserError


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

    def __enter__(self) -> "SpillFile":
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


class RecordSpill:
    """The records in a temporary file, which are read back in the order of `offsets`.

    Args:
        file: the file.

    Attributes:
        offsets: positions of the records in the file. The caller may reorder them.
    """

    def __init__(self, file: SpillFile):
        self._file = file
        self.offsets = array("Q")
        self._longest = 0

    def append(self, record: bytes) -> None:
        """Adds one record."""
        self.offsets.append(self._file.append(len(record).to_bytes(4, "little") + record))
        self._longest = max(self._longest, len(record))

    def __iter__(self) -> Iterator[bytes]:
        """Yields the records in the order of `offsets`."""
        return self.read(self.offsets)

    def read(self, offsets: Iterable[int]) -> Iterator[bytes]:
        """Yields the records at some of the `offsets`."""
        for data in self._file.read((offset, 4 + self._longest) for offset in offsets):
            yield data[4 : 4 + int.from_bytes(data[:4], "little")]
