"""Files that are read as a whole, and files that appear when all of them is written."""

import contextlib
import uuid
from collections.abc import Iterator

import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.files import storage


class UnfinishedFile:
    """A file that is written beside its name, which it gets when it is finished.

    A context manager: at its end what is not finished is gone, and a file that had the name before
    is untouched.

    Args:
        path: the name.
        place: the file as messages name it, with its flag where one names it; None is `path`.

    Raises:
        UserError: also by its methods, the file must not be written.
        OSError: the same, writing failed in another way, perhaps for the moment.
    """

    def __init__(self, path: str, place: str | None = None):
        self._path = path
        self._place = place or path
        if tf.io.gfile.isdir(path):
            raise UserError(f"{self._place} must name a file, but it is a directory")
        # Not by the process's number: in containers those of all machines of a run are the same.
        self.name = f"{path}.{uuid.uuid4().hex[:8]}.unfinished"
        self._writer = tf.io.gfile.GFile(self.name, "wb")
        self.write(b"")  # if it cannot be written, that shows now and not after hours
        self.flush()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except tf.errors.OpError as error:
            message = (
                f"{self._place} cannot be written: {error.message}. Its directory must be writable"
                f" and have room.{storage.advice(self._path)}"
            )
            raise storage.write_error(error, message) from error

    def write(self, data: bytes) -> int:
        """Returns how many bytes it has written: all."""
        with self._told():
            self._writer.write(data)
        return len(data)

    def flush(self) -> None:
        """Hands to the file system what has been written."""
        with self._told():
            self._writer.flush()

    def close(self) -> None:
        """Ends the writing; the file can be read by its `name` until the end of the block."""
        with self._told():
            self._writer.close()

    def finish(self) -> None:
        """Closes the file and gives it its name."""
        self.close()
        with self._told():
            tf.io.gfile.rename(self.name, self._path, overwrite=True)

    def __enter__(self) -> "UnfinishedFile":
        return self

    def __exit__(self, *exception) -> None:
        with contextlib.suppress(tf.errors.OpError):
            self._writer.close()
        with contextlib.suppress(tf.errors.OpError):
            tf.io.gfile.remove(self.name)


def write_whole(path: str, content: str | bytes) -> None:
    """Writes a file at once; after an error what was there is untouched.

    Raises:
        UserError: the file must not be written.
        OSError: writing failed in another way, perhaps for the moment.
    """
    with UnfinishedFile(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.finish()


def read_text(path: str, place: str, rule: str) -> str:
    """Returns the text of a UTF-8 file without its byte-order mark.

    Args:
        path: the file.
        place: the file as messages name it, with its flag where one names it.
        rule: what the file must be, for messages.

    Raises:
        UserError: the file cannot be read or is not UTF-8; the message has the line.
    """
    try:
        with tf.io.gfile.GFile(path, "rb") as reader:
            return reader.read().decode("utf-8-sig")
    except tf.errors.OpError as error:
        raise UserError(f"{place} cannot be read ({error.message}); {rule}") from error
    except UnicodeDecodeError as error:
        line = 1 + error.object.count(b"\n", 0, error.start)
        raise UserError(
            f"{place}, line {line}: not UTF-8 ({error.reason}); convert the file to UTF-8"
        ) from error
