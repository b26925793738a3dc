"""Finds what is wrong with record files, and in which record.

When files are opened, `check_files` checks each file's first record, and `check_ends` the end of
each file. All other problems show up while records are read; `explain` then names the record.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from bert_tf.errors import UserError, quoted
from bert_tf.files import records, storage
from bert_tf.start import lazy_tensorflow as tf

END_BYTES = 1 << 16  # read at each end of a file; records are seldom longer
FRAME_BYTES = 16  # around a record: its length, and the checksums of length and data
_SHOWN_PROBLEMS = 3
_SHOWN_CHARACTERS = 150
_BATCH = 1024
# Words in messages about the content of a record. TensorFlow cuts such a message at the record's
# first NUL, so the name of the operation may be missing.
_OF_RECORDS = ("ParseExample", "Could not parse example", records.OUT_OF_RANGE)


# --- when files are opened ------------------------------------------------------------------------


def check_files(files: Sequence[str], schema: records.Schema, flag: str) -> list[Ends]:
    """Checks each file's first record against `schema`, and the file's end; returns the ends."""
    for path, features in _first_records(files, flag):
        if problems := _differences(features, schema):
            raise UserError(f"--{flag}: {path} was made with other settings: {_shown(problems)}")
        if problems := _wrong_values(features, schema):
            raise UserError(f"--{flag}: {path}, record 0: {_shown(problems)}")
    return check_ends(files)


def feature_lengths(file: str, flag: str) -> dict[str, int]:
    """Returns feature -> number of values in a file's first record."""
    ((_, features),) = _first_records([file], flag)
    return {
        name: len(getattr(feature, feature.WhichOneof("kind") or "int64_list").value)
        for name, feature in features.items()
    }


def _first_records(
    files: Sequence[str], flag: str
) -> Iterator[tuple[str, dict[str, tf.train.Feature]]]:
    # One pipeline for all files: with a pipeline per file, a thousand files take a minute.
    first_records = tf.data.Dataset.from_tensor_slices(list(files)).flat_map(
        lambda path: tf.data.TFRecordDataset(path).take(1).map(lambda record: (path, record))
    )
    iterator = first_records.as_numpy_iterator()
    for path in files:
        try:
            found, record = next(iterator, (b"", b""))
        except tf.errors.OpError as error:
            raise UserError(
                f"--{flag}: {path} is {_damage(error, path)} in its first record, or not a TFRecord"
                " file"
            ) from error
        if found != os.fsencode(path):
            raise UserError(f"--{flag}: {path} holds no record")
        try:
            yield path, _features(record)
        except ValueError as error:
            raise UserError(
                f"--{flag}: the records of {path} are not tf.Examples: {error}"
            ) from error


class Ends(NamedTuple):
    length: int  # of the file, in bytes
    digest: str  # of its first and last 64 KB
    written: int  # time of the last write; comparisons of content use only `end[:2]`


def check_ends(files: Sequence[str]) -> list[Ends]:
    """Checks that every file ends with a whole record.

    TensorFlow silently ignores up to 11 stray bytes at the end of a file. Raises UserError for a
    file whose last record is truncated, OSError for a file that cannot be read.
    """
    with ThreadPoolExecutor(16) as pool:  # in a bucket each file takes some requests
        return list(pool.map(_check_end, files))


def _check_end(path: str) -> Ends:
    try:
        status = tf.io.gfile.stat(path)
        size = status.length
        with tf.io.gfile.GFile(path, "rb") as reader:
            head = tail = reader.read(END_BYTES)
            if size > END_BYTES:
                reader.seek(size - END_BYTES)
                tail = reader.read(END_BYTES)
    except tf.errors.OpError as error:
        raise unreadable(path, error) from error
    # If no record is found, the last record is truncated, or longer than the tail.
    if not _ends_with_record(tail) and (problem := _first_problem(path, None)):
        raise UserError(problem)
    return Ends(size, hashlib.sha256(head + tail).hexdigest()[:16], status.mtime_nsec)


def written_since(ends: Mapping[str, Ends]) -> list[str]:
    """Returns the files written since `check_ends` read their ends; missing files are left out."""

    def is_other(path: str) -> bool:
        with contextlib.suppress(tf.errors.OpError):
            status = tf.io.gfile.stat(path)
            return (status.length, status.mtime_nsec) != (ends[path].length, ends[path].written)
        return False

    with ThreadPoolExecutor(16) as pool:
        return [path for path, other in zip(ends, pool.map(is_other, ends), strict=True) if other]


def _ends_with_record(tail: bytes) -> bool:
    """Returns whether `tail` ends with a whole record, which begins in `tail`.

    A record is its length (8 bytes), the length's checksum (4), the data, and their checksum (4).
    """
    count = len(tail) - FRAME_BYTES + 1  # number of places where a record may begin
    if count < 1:
        return not tail
    data = np.frombuffer(tail, np.uint8).astype(np.uint64)
    lengths = sum(data[i : i + count] << np.uint64(8 * i) for i in range(8))
    fitting = np.flatnonzero(lengths == np.arange(count - 1, -1, -1, dtype=np.uint64))
    return any(
        tail[begin + 8 : begin + 12] == _masked_crc32c(tail[begin : begin + 8])
        for begin in fitting.tolist()
    )


def _masked_crc32c(data: bytes) -> bytes:
    """Returns the checksum of a few bytes in the form that TFRecord files use."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    masked = (crc >> 15 | crc << 17) + 0xA282EAD8
    return (masked & 0xFFFFFFFF).to_bytes(4, "little")


# --- after an error -------------------------------------------------------------------------------


def read_errors() -> tuple[type[Exception], ...]:
    """Returns the errors that TensorFlow raises while it reads and parses records.

    UnicodeDecodeError comes from a message that quotes a record which is not a tf.Example.
    """
    return tf.errors.OpError, UnicodeDecodeError


def explain(
    error: tf.errors.OpError | UnicodeDecodeError,
    files: Sequence[str],
    schema: records.Schema | None,
) -> Exception:
    """Returns an error that says what is wrong with the input, or `error` itself if nothing is.

    `error` is one of `read_errors`; `schema` is the schema of parsed records, None if they were not
    parsed. Reads the files again to name the record; raises OSError if one cannot be read again.
    """
    message = error.message if isinstance(error, tf.errors.OpError) else ""
    if isinstance(error, (tf.errors.DataLossError, UnicodeDecodeError)) or (
        isinstance(error, tf.errors.InvalidArgumentError)
        and any(text in message for text in _OF_RECORDS)
    ):
        if problem := find_problem(files, schema):
            return UserError(f"The input is wrong: {problem}")
        return OSError(
            f"A record could not be read ({one_line(error)}), but all {len(files)} record files"
            f" were sound when read again: {files[0]}{', ...' * (len(files) > 1)}. Run the command"
            " again"
        )
    named = [path for path in files if path in message]
    return unreadable(max(named, key=len), error) if named else error


@contextlib.contextmanager
def explained(files: Sequence[str], schema: records.Schema | None) -> Iterator[None]:
    """Replaces TensorFlow's errors in the `with` block by the errors that `explain` returns."""
    try:
        yield
    except read_errors() as error:
        raise explain(error, files, schema) from error


def unreadable(path: str, error: tf.errors.OpError) -> OSError:
    return OSError(f"{path} cannot be read: {one_line(error)}.{storage.advice(path)}")


def find_problem(files: Sequence[str], schema: records.Schema | None) -> str | None:
    """Describes the first bad record of the files, and where it is; None if all are good.

    Reads the files from the start; without a schema, it finds only damaged records. Raises OSError
    if a file cannot be read.
    """
    for path in files:
        if not _is_sound(path, schema) and (problem := _first_problem(path, schema)):
            return problem
    return None


def _is_sound(path: str, schema: records.Schema | None) -> bool:
    """Returns whether all records of a file are sound; reads a thousand at a time."""

    def count_bytes(serialized: tf.Tensor) -> tf.Tensor:
        checked = [] if schema is None else list(records.parse(serialized, schema).values())
        with tf.control_dependencies(checked):
            sizes = tf.strings.length(serialized) + FRAME_BYTES
            return tf.reduce_sum(tf.cast(sizes, tf.int64))

    batches = tf.data.TFRecordDataset(path).batch(_BATCH).map(count_bytes, num_parallel_calls=2)
    try:
        total = batches.reduce(tf.constant(0, tf.int64), lambda total, size: total + size)
        return int(total) == tf.io.gfile.stat(path).length
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError, UnicodeDecodeError):
        return False
    except tf.errors.OpError as error:
        raise unreadable(path, error) from error


def _first_problem(path: str, schema: records.Schema | None) -> str | None:
    """Describes the first bad record of a file, or returns None; reads one record at a time."""
    count = offset = 0
    try:
        for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
            if schema is not None and (problems := _problems(record, schema)):
                return f"{path}, record {count} (counted from 0): {_shown(problems)}"
            offset += len(record) + FRAME_BYTES
            count += 1
        damage = "truncated" if offset < tf.io.gfile.stat(path).length else None
    except tf.errors.OpError as error:
        damage = _damage(error, path)
    if damage:
        return f"{path} is {damage} at record {count} (counted from 0), byte {offset}"
    return None


def _damage(error: tf.errors.OpError, path: str) -> str:
    """Describes the damage of a file. Raises OSError if it cannot be read."""
    if not isinstance(error, (tf.errors.DataLossError, tf.errors.OutOfRangeError)):
        raise unreadable(path, error) from error
    return "truncated" if "truncated" in error.message else "corrupt"


# --- one record -----------------------------------------------------------------------------------


def _problems(record: bytes, schema: records.Schema) -> list[str]:
    try:
        features = _features(record)
    except ValueError as error:
        return [f"it is not a tf.Example: {error}"]
    return _differences(features, schema) or _wrong_values(features, schema)


def _features(record: bytes) -> dict[str, tf.train.Feature]:
    """Returns the features of a record by name. Raises ValueError if it is not a tf.Example."""
    try:
        return dict(tf.train.Example.FromString(record).features.feature.items())
    except Exception as error:  # protobuf's DecodeError; its module differs between versions
        raise ValueError(one_line(error)) from error


def _differences(found: Mapping[str, tf.train.Feature], schema: records.Schema) -> list[str]:
    problems = []
    lengths: dict[tuple, list[str]] = {}  # one message for all lengths that a flag sets
    for name, feature in schema.items():
        kind, wanted = feature.kind, int(np.prod(feature.shape))
        if name not in found:
            if feature.default_value is None:
                names = ", ".join(sorted(found)) or "nothing"
                problems.append(f"feature {name} is missing (the file has {_cut(names)})")
            continue
        found_kind = found[name].WhichOneof("kind")
        length = len(getattr(found[name], kind).value)
        if found_kind not in (kind, None):  # None: an empty list
            problems.append(f"feature {name} is a {found_kind}, not a {kind}")
        elif length != wanted:
            key = (length, wanted, feature.length_flag, feature.length_source)
            lengths.setdefault(key, []).append(name)
    for (length, wanted, flag, source), names in lengths.items():
        change = f" (--{flag}={length} would fit)" if flag else ""
        problems.append(
            f"length of {', '.join(names)} is {length} in the file, {wanted} {source}{change}"
        )
    return problems


def _wrong_values(found: Mapping[str, tf.train.Feature], schema: records.Schema) -> list[str]:
    """Returns which features have a value outside their range, and the first such value."""
    problems = []
    for name, feature in schema.items():
        if name not in found:
            continue
        allowed = feature.range
        values = np.array(getattr(found[name], feature.kind).value, feature.dtype)
        wrong = values[~((values >= allowed.low) & (values <= allowed.high))]
        if wrong.size:
            problems.append(f"{allowed.rule(name)}; received {wrong[0]!s}")
    return problems


# --- messages -------------------------------------------------------------------------------------


def _shown(problems: Sequence[str]) -> str:
    more = len(problems) - _SHOWN_PROBLEMS
    return "; ".join(problems[:_SHOWN_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")


def one_line(error: Exception) -> str:
    """Returns the line of an error's message that says what went wrong, shortened."""
    text = error.message if isinstance(error, tf.errors.OpError) else str(error)
    # Errors from the graph of a step have lines about the node before and after this line.
    found = re.search(r"\n *+(.*)\n[ \t]*+\[\[\{\{node", text)
    line = found[1] if found else text.strip().partition("\n")[0]
    return _cut(storage.error_text(line))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else quoted(text)
