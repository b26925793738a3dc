"""Reads text for pre-training from files: plain text, JSON lines, Parquet; compressed or not.

The name gives the format: NAME.jsonl and NAME.ndjson are JSON lines, NAME.parquet is Parquet, all
else is text. Text and JSON lines may be compressed: NAME.gz, NAME.zst.
"""

import contextlib
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

import tensorflow as tf

from bert_tf import progress, strict_json
from bert_tf.datasets.documents import EmptyReport, split_sentences, warn_of_empty_documents
from bert_tf.errors import UserError, listed, missing_package, quoted

_BYTES_PER_READ = 1 << 20
_JSON_ENDINGS = (".jsonl", ".ndjson")
_ROWS_PER_BATCH = 256
TEXT_FIELD = "text"


def read_files(
    files: Sequence[str],
    flag: str,
    text_field: str = TEXT_FIELD,
    report_empty: EmptyReport = warn_of_empty_documents,
) -> Iterator[tuple[str, list[str]]]:
    """Yields batches of stripped lines, about a megabyte each, with the name of their file.

    Text has a sentence on each line and an empty line between documents. The end of a file does not
    end a document: the next file continues it, as in the original. In JSON lines and Parquet each
    object or row is a document, and its text is split into sentences. Byte-order marks are dropped.

    Args:
        files: paths of files in UTF-8, in one of the formats above.
        flag: the flag (no dashes) that named the files, for messages.
        text_field: the field (JSON lines) or column (Parquet) that holds a document's text.
        report_empty: called at the end, with numbers for JSON lines and Parquet only.

    Raises:
        UserError: a file cannot be read, is not in the format of its name, or is truncated (the
            message names the file and line); or a package is missing.
    """
    total = sum(tf.io.gfile.stat(path).length for path in files)
    num_empty = num_documents = 0
    with progress.Progress("reading text", "bytes", total) as work:
        for path in files:
            texts_of = _texts_of(path)
            try:
                if texts_of is None:
                    for _, lines in _numbered_lines(path, work, flag):
                        yield path, [line.strip() for line in lines]
                    continue
                for texts in texts_of(path, work, flag, text_field):
                    documents = [split_sentences(text) for text in texts]
                    num_documents += len(documents)
                    num_empty += documents.count([])
                    yield path, [line for sentences in documents for line in (*sentences, "")]
            except tf.errors.OpError as error:
                raise UserError(f"--{flag}: cannot read {path}: {error.message}") from error
    report_empty(num_empty, num_documents)


def _texts_of(path: str) -> Callable[..., Iterator[list[str]]] | None:
    """Returns the function that reads a file's documents; None for text, a sentence a line."""
    if path.endswith(".parquet"):
        return _read_parquet
    if path.removesuffix(".gz").removesuffix(".zst").endswith(_JSON_ENDINGS):
        return _read_json_lines
    return None


def _read_json_lines(
    path: str, work: progress.Progress, flag: str, text_field: str
) -> Iterator[list[str]]:
    for first, lines in _numbered_lines(path, work, flag):
        texts = []
        for number, line in enumerate(lines, first):
            if not line.strip():
                continue
            try:
                value = strict_json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(
                    f"--{flag}: {path}, line {number}, is not JSON ({error}): {quoted(line)}"
                ) from error
            if not isinstance(value, dict) or not isinstance(value.get(text_field), str):
                found = listed(value) if isinstance(value, dict) else quoted(value)
                raise UserError(
                    f"--{flag}: {path}, line {number}, must be an object with a text in"
                    f" {quoted(text_field)}, which --text_field names; it has {found}"
                )
            texts.append(value[text_field])
        yield texts


def _read_parquet(
    path: str, work: progress.Progress, flag: str, text_field: str
) -> Iterator[list[str]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise missing_package(f"--{flag}: {path}", "pyarrow", "text", error) from error
    with tf.io.gfile.GFile(path, "rb") as file:
        try:
            table = parquet.ParquetFile(CountedFile(file, work))
            names = table.schema_arrow.names
            kinds = (pyarrow.types.is_string, pyarrow.types.is_large_string)
            if text_field not in names or not any(
                is_kind(table.schema_arrow.field(text_field).type) for is_kind in kinds
            ):
                raise UserError(
                    f"--{flag}: {path} must have a column {quoted(text_field)} of text, which"
                    f" --text_field names; its columns are {listed(names)}"
                )
            row = 0
            for batch in table.iter_batches(_ROWS_PER_BATCH, columns=[text_field]):
                texts = []
                for text in batch.column(0):
                    row += 1
                    texts.append(text.as_py() or "")
                yield texts
        except UnicodeDecodeError as error:
            raise UserError(
                f"--{flag}: {path}, row {row}, is not UTF-8 in column {quoted(text_field)}"
                f" ({error.reason}); write the file again with texts in UTF-8"
            ) from error
        except (pyarrow.ArrowException, OSError) as error:
            raise UserError(
                f"--{flag}: {path} is damaged or not a Parquet file: {quoted(str(error))}"
            ) from error


def _numbered_lines(
    path: str, work: progress.Progress, flag: str
) -> Iterator[tuple[int, list[str]]]:
    """Yields the lines of a file in batches, each with the number of its first line, from 1."""
    number = 1
    rest: list[bytes] = []  # the start of a line whose end has not been read yet
    with _open(path, work, flag) as reader:
        while data := reader.read(_BYTES_PER_READ):
            whole, newline, begun = data.rpartition(b"\n")
            if newline:
                lines = _decode(b"".join([*rest, whole]), path, number, flag)
                yield number, lines
                number += len(lines)
                rest = []
            rest.append(begun)
    if any(rest):
        yield number, _decode(b"".join(rest), path, number, flag)


class _ZstdError(Exception):
    """The zstandard package found truncated or damaged data."""


@contextlib.contextmanager
def _open(path: str, work: progress.Progress, flag: str) -> Iterator[BinaryIO]:
    """Opens a file that may be compressed; damage found while reading raises a UserError."""
    with tf.io.gfile.GFile(path, "rb") as file:
        reader = CountedFile(file, work)
        if path.endswith(".gz"):
            reader = gzip.GzipFile(fileobj=reader, mode="rb")
        elif path.endswith(".zst"):
            try:
                import zstandard
            except ImportError as error:
                raise missing_package(f"--{flag}: {path}", "zstandard", "text", error) from error
            reader = _Zstd(zstandard, reader)
        try:
            yield reader
        except (EOFError, zlib.error, gzip.BadGzipFile, _ZstdError) as error:
            raise UserError(
                f"--{flag}: {path} is cut off or damaged, so it cannot be decompressed ({error});"
                " copy or download it again"
            ) from error


class CountedFile(io.RawIOBase):
    """A file that advances a progress display while it is read."""

    def __init__(self, file: Any, work: progress.Progress):
        self._file = file
        self._work = work

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._work.advance(len(data))
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self._file.tell()

    def tell(self) -> int:
        return self._file.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


class _Zstd:
    """The content of a zstd file, which may have several frames."""

    def __init__(self, zstandard: Any, file: BinaryIO):
        self._error = zstandard.ZstdError
        self._new = zstandard.ZstdDecompressor().decompressobj
        self._file = file
        self._frame = None
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Returns the next bytes, at least one; b"" at the end."""
        try:
            while True:
                data = self._rest or self._file.read(size)
                self._rest = b""
                if not data:
                    if self._frame is not None:
                        raise _ZstdError("it ends within a frame")
                    return b""
                if self._frame is None:
                    self._frame = self._new()
                found = self._frame.decompress(data)
                if self._frame.eof:
                    self._rest = self._frame.unused_data
                    self._frame = None
                if found:
                    return found
        except self._error as error:
            raise _ZstdError(str(error)) from error


def _decode(data: bytes, path: str, line_number: int, flag: str) -> list[str]:
    try:
        # GFile.readline, which the original calls, drops every carriage return, even mid-line.
        text = data.replace(b"\r", b"").decode("utf-8-sig" if line_number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line_number += error.object.count(b"\n", 0, error.start)
        raise UserError(
            f"--{flag}: {path}, line {line_number}, is not UTF-8 ({error.reason}); "
            "convert the file, e.g. with iconv"
        ) from error
    return text.split("\n")
