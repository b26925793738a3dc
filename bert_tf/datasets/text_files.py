"""Reads text for pre-training from files: plain text, JSON lines, Parquet; compressed or not.

The name gives the format: .jsonl, .ndjson and .json are JSON lines, .parquet is Parquet; text and
JSON lines may be compressed: .gz, .zst. Formats such as .csv are refused; other files are text.
"""

import functools
import gzip
import io
import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

from bert_tf import progress, strict_json
from bert_tf.datasets.documents import EmptyReport, split_sentences, warn_of_empty_documents
from bert_tf.errors import UserError, listed, needs_package, quoted
from bert_tf.files.storage import ending_of
from bert_tf.files.whole_files import decode_utf8, drop_carriage_returns
from bert_tf.start import lazy_tensorflow as tf

_BYTES_PER_READ = 1 << 20
_JSON_ENDINGS = (".jsonl", ".ndjson", ".json")
_OTHER_ENDINGS = tuple(".csv .tsv .xml .html .htm .pdf .doc .docx .arrow .bz2 .xz .zip".split())
_TEXT_TYPES = (["string"], ["large_string"], ["string_view"])  # Arrow types, plain or dictionary
_ROWS_PER_BATCH = 256
TEXT_FIELD = "text"


def is_plain_text(path: str) -> bool:
    """Returns whether a file's name means plain text, not JSON lines or Parquet."""
    return ending_of(path) != ".parquet" and _inner_ending(path) not in _JSON_ENDINGS


def _inner_ending(path: str) -> str:
    """Returns the ending of a file's name without .gz or .zst."""
    ending = ending_of(path)
    return ending_of(path[: -len(ending)]) if ending in (".gz", ".zst") else ending


def read_files(
    files: Sequence[str],
    flag: str,
    text_field: str = TEXT_FIELD,
    report_empty: EmptyReport = warn_of_empty_documents,
    split_lines: bool = False,
) -> Iterator[tuple[str, list[str]]]:
    """Yields pairs of a file's name and a batch of its stripped lines.

    A text file has a sentence on each line, or with `split_lines` several, and an empty line
    between documents. The end of a file does not end a document, as in the original. In JSON lines
    and Parquet each object or row is a document, whose `text_field` is split into sentences;
    `report_empty` is called at the end with the counts of these documents.
    """
    total = sum(tf.io.gfile.stat(path).length for path in files)
    num_empty = num_documents = 0
    with progress.Progress("reading text", "bytes", total) as work:
        for path in files:
            if _inner_ending(path) in _OTHER_ENDINGS:
                raise UserError(
                    f"--{flag}: {path} must be text, JSON lines (.jsonl) or Parquet (.parquet), but"
                    " its name says otherwise; text and JSON lines may be compressed (.gz, .zst)."
                    " Convert it or, if each line is a text, rename it to .txt"
                )
            try:
                if is_plain_text(path):
                    for _, lines in _numbered_lines(path, work, flag):
                        if split_lines:
                            found = (split_sentences(line) or [""] for line in lines)
                            yield path, list(itertools.chain.from_iterable(found))
                        else:
                            yield path, [line.strip() for line in lines]
                    continue
                is_parquet = ending_of(path) == ".parquet"
                read_texts = _read_parquet if is_parquet else _read_json_lines
                for texts in read_texts(path, work, flag, text_field):
                    documents = [split_sentences(text) for text in texts]
                    num_documents += len(documents)
                    num_empty += documents.count([])
                    yield path, [line for sentences in documents for line in (*sentences, "")]
            except tf.errors.OpError as error:
                raise UserError(f"--{flag}: cannot read {path}: {error.message}") from error
    report_empty(num_empty, num_documents)


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
                raise UserError(
                    f"--{flag}: {path}, line {number}, must be an object in which"
                    f" {quoted(text_field)} (--text_field) is a string; it is {quoted(value)}"
                )
            texts.append(value[text_field])
        yield texts


def _read_parquet(
    path: str, work: progress.Progress, flag: str, text_field: str
) -> Iterator[list[str]]:
    with needs_package(f"--{flag}: {path}", "pyarrow", "text"):
        import pyarrow
        from pyarrow import parquet
    row = 0
    with tf.io.gfile.GFile(path, "rb") as file:
        try:
            table = parquet.ParquetFile(CountedFile(file, work))
            columns = [(field.name, field.type) for field in table.schema_arrow]
            kinds = [kind for name, kind in columns if name == text_field]
            is_dictionary = pyarrow.types.is_dictionary
            types = [str(x.value_type if is_dictionary(x) else x) for x in kinds]
            if types not in _TEXT_TYPES:
                found = f"that column is {quoted(str(kinds[0]))}. The" if len(kinds) == 1 else "the"
                raise UserError(
                    f"--{flag}: {path} must have one column {quoted(text_field)} of text, which"
                    f" --text_field names; {found} file's columns are"
                    f" {listed(name for name, _ in columns) or 'none'}"
                )
            for batch in table.iter_batches(_ROWS_PER_BATCH, columns=[text_field]):
                texts = []
                for text in batch.column(0):
                    row += 1
                    texts.append(text.as_py() or "")
                yield texts
        except UnicodeDecodeError as error:
            raise UserError(
                f"--{flag}: {path} is not UTF-8 in row {row} of column {quoted(text_field)}, or in"
                f" the names of columns ({error.reason}); write the file again in UTF-8"
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
    for data in _blocks(path, work, flag):
        whole, newline, begun = data.rpartition(b"\n")
        if newline:
            *lines, _ = _decode(b"".join([*rest, whole, newline]), path, number, flag)
            yield number, lines
            number += len(lines)
            rest = []
        rest.append(begun)
    if any(rest):
        yield number, _decode(b"".join(rest), path, number, flag)


def _blocks(path: str, work: progress.Progress, flag: str) -> Iterator[bytes]:
    """Yields the content of a file, decompressed, in blocks."""
    damage: tuple[type[Exception], ...] = (EOFError, zlib.error, gzip.BadGzipFile)
    with tf.io.gfile.GFile(path, "rb") as file:
        reader = CountedFile(file, work)
        if ending_of(path) == ".zst":
            with needs_package(f"--{flag}: {path}", "zstandard", "text"):
                import zstandard
            damage += (zstandard.ZstdError,)
            blocks = _decompressed(reader, zstandard.ZstdDecompressor().decompressobj)
        else:
            if ending_of(path) == ".gz":
                reader = gzip.GzipFile(fileobj=reader, mode="rb")
            blocks = iter(functools.partial(reader.read, _BYTES_PER_READ), b"")
        try:
            yield from blocks
        except damage as error:
            raise UserError(
                f"--{flag}: {path} is cut off or damaged, so it cannot be decompressed ({error});"
                " copy or download it again"
            ) from error


def _decompressed(reader: BinaryIO, make_decompressor: Callable[[], Any]) -> Iterator[bytes]:
    frame, rest = None, b""
    while data := rest or reader.read(_BYTES_PER_READ):
        frame = frame or make_decompressor()
        yield frame.decompress(data)
        rest = b""
        if frame.eof:
            frame, rest = None, frame.unused_data
    if frame:
        raise EOFError("it ends within a frame")


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

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def _decode(data: bytes, path: str, first: int, flag: str) -> list[str]:
    # GFile.readline, which the original calls, drops every carriage return, even mid-line.
    place = f"--{flag}: {path}"
    text = decode_utf8(data, place, first)
    text = drop_carriage_returns(text, place) if first == 1 else text.replace("\r", "")
    return text.split("\n")
