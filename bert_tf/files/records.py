"""TFRecord files of tf.Examples: writing, checking and parsing.

A *schema* says what one record holds. It is a dict from feature name to `tf.io.FixedLenFeature`,
int64 or float32, of a fixed shape; `int64_feature` and `float_feature` make them. Each task defines
its schema once, for writing the records and for training on them.
"""

import contextlib
import math
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.files import storage

Schema = Mapping[str, tf.io.FixedLenFeature]


class _SizedFeature(tf.io.FixedLenFeature):
    """FixedLenFeature that also knows which flag sets its length, for messages."""

    length_flag: str | None = None


def int64_feature(shape: Sequence[int], length_flag: str | None = None) -> tf.io.FixedLenFeature:
    """Returns an int64 feature of `shape`; `length_flag` (no dashes) is the flag that sets it."""
    feature = _SizedFeature(list(shape), tf.int64)
    feature.length_flag = length_flag
    return feature


def float_feature(shape: Sequence[int], length_flag: str | None = None) -> tf.io.FixedLenFeature:
    """Returns a float32 feature of `shape`; `length_flag` (no dashes) is the flag that sets it."""
    feature = _SizedFeature(list(shape), tf.float32)
    feature.length_flag = length_flag
    return feature


def sequence_features(schema: Schema) -> list[str]:
    """Returns the names of the features whose length --max_seq_length sets."""
    return [n for n, f in schema.items() if getattr(f, "length_flag", None) == "max_seq_length"]


# --- writing --------------------------------------------------------------------------------------


def serialize(values: Mapping[str, Sequence[int] | Sequence[float]], schema: Schema) -> bytes:
    """Returns a serialized tf.Example of these values; the same values give the same bytes.

    Args:
        values: for each feature of the schema a flat sequence of numbers, as many as its shape
            holds. For an int64 feature it may be `bytes`.
        schema: what the record must hold.

    Raises:
        UserError: names or lengths differ from the schema's.
    """
    if values.keys() != schema.keys():
        raise UserError(f"a record holds {sorted(schema)}, not {sorted(values)}")
    example = tf.train.Example()
    features = example.features.feature
    for name, feature in schema.items():
        numbers = values[name]
        if len(numbers) != math.prod(feature.shape):
            raise UserError(
                f"feature {name} has {len(numbers)} values; its shape is {feature.shape}"
            )
        if feature.dtype is tf.int64:
            features[name].int64_list.value.extend(numbers)
        else:
            features[name].float_list.value.extend(numbers)
    # Without `deterministic` the order of the features changes from run to run.
    return example.SerializeToString(deterministic=True)


@contextlib.contextmanager
def write_files(paths: Sequence[str], flag: str) -> Iterator[Callable[[bytes], None]]:
    """Yields a function that writes one serialized record; record i goes to file i mod len(paths).

    The files are written atomically: records go to temporary files beside `paths`, which are
    renamed when the `with` block ends. After an error the temporary files are removed and earlier
    files of these names are unchanged.

    Args:
        paths: the TFRecord files to write.
        flag: the flag (no dashes) that named them, for messages.

    Raises:
        UserError: no path, a path twice, a directory, or a file that cannot be written (no
            permission, no directory).
        OSError: writing failed in a way that may pass, such as a full disk.
    """
    if not paths or not all(paths):
        raise UserError(f"--{flag} names no file: {','.join(paths)!r}")
    if len(set(paths)) < len(paths):
        raise UserError(f"--{flag} names a file twice: {','.join(paths)}")
    for path in paths:
        storage.check_file_system(path, flag)
        if tf.io.gfile.isdir(path):
            raise UserError(f"--{flag} must name files, but {path} is a directory")
    # Not made from the names, which may already be as long as the file system allows, nor from the
    # process id, which in containers is often the same on all machines of a run.
    unique = uuid.uuid4().hex
    temporary = [
        os.path.join(os.path.dirname(path), f"{unique}.{i}.unfinished")
        for i, path in enumerate(paths)
    ]
    writers: list[tf.io.TFRecordWriter] = []
    written = 0

    def write(record: bytes) -> None:
        nonlocal written
        try:
            writers[written % len(writers)].write(record)
        except tf.errors.OpError as error:
            raise _cannot_write(paths, flag, error) from error
        written += 1

    try:
        try:
            for path in temporary:
                writers.append(tf.io.TFRecordWriter(path))
                writers[-1].flush()  # the first request that a bucket can refuse
        except tf.errors.OpError as error:
            raise _cannot_write(paths, flag, error) from error
        yield write
        try:
            for writer in writers:
                writer.close()  # raises if data cannot be flushed, so before any rename
            for path, final in zip(temporary, paths, strict=True):
                tf.io.gfile.rename(path, final, overwrite=True)
        except tf.errors.OpError as error:
            raise _cannot_write(paths, flag, error) from error
    finally:
        for writer in writers:
            with contextlib.suppress(tf.errors.OpError):
                writer.close()
        for path in temporary:
            with contextlib.suppress(tf.errors.OpError):
                tf.io.gfile.remove(path)


def _cannot_write(paths: Sequence[str], flag: str, error: tf.errors.OpError) -> UserError | OSError:
    return storage.write_error(
        error,
        f"cannot write --{flag}={','.join(paths[:3])}{',...' if len(paths) > 3 else ''}:"
        f" {storage.error_text(error)}. "
        f"The directory must exist, be writable and have free space.{storage.advice(paths[0])}",
    )


# --- checking, parsing ----------------------------------------------------------------------------


def parse(serialized: tf.Tensor, schema: Schema) -> dict[str, tf.Tensor]:
    """Returns the features of a batch of records by name, each [batch, *shape], int32 or float32.

    Args:
        serialized: string [batch], serialized tf.Examples.
        schema: what they hold; other features are ignored.

    int64 becomes int32 because TPUs have no int64 (the original's `_decode_record`).
    """
    features = tf.io.parse_example(serialized, dict(schema))
    return {
        name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
        for name, value in features.items()
    }


def check_files(files: Sequence[str], schema: Schema, flag: str) -> None:
    """Checks that the first record of every file holds what `schema` says.

    Args:
        files: TFRecord files.
        schema: what the records must hold; other features are allowed, since `parse` ignores them.
        flag: the flag (no dashes) that named the files, for messages.

    Raises:
        UserError: a file is not a TFRecord file of tf.Examples, has no record, or its first record
            lacks a feature or has one of another length or type.
    """
    # One pipeline for all files: a pipeline each takes a minute for a thousand files.
    first_records = tf.data.Dataset.from_tensor_slices(list(files)).flat_map(
        lambda path: tf.data.TFRecordDataset(path).take(1).map(lambda record: (path, record))
    )
    iterator = first_records.as_numpy_iterator()
    for path in files:
        try:
            found, record = next(iterator, (b"", b""))
        except tf.errors.OpError as error:
            raise UserError(
                f"--{flag}: {path} is {_damage(error)} in its first record, or not a TFRecord file"
            ) from error
        if found != os.fsencode(path):
            raise UserError(f"--{flag}: {path} holds no record")
        example = tf.train.Example()
        try:
            example.ParseFromString(record)
        except (
            Exception
        ) as error:  # protobuf's DecodeError; its module differs between implementations
            raise UserError(
                f"--{flag}: the records of {path} are not tf.Examples: {error}"
            ) from error
        problems = _differences(example.features.feature, schema)
        if problems:
            raise UserError(f"--{flag}: {path} was made with other settings: {'; '.join(problems)}")


def _differences(found: Mapping[str, tf.train.Feature], schema: Schema) -> list[str]:
    kinds = {tf.int64: "int64_list", tf.float32: "float_list"}
    problems = []
    lengths: dict[tuple, list[str]] = {}  # one message for all features whose length a flag sets
    for name, feature in schema.items():
        kind, wanted = kinds[feature.dtype], math.prod(feature.shape)
        if name not in found:
            if feature.default_value is None:
                names = ", ".join(sorted(found)) or "nothing"
                problems.append(f"feature {name} is missing (the file has {names})")
            continue
        found_kind = found[name].WhichOneof("kind")
        length = len(getattr(found[name], kind).value)
        if found_kind not in (kind, None):  # None: an empty list
            problems.append(f"feature {name} is a {found_kind}, not a {kind}")
        elif length != wanted:
            flag = getattr(feature, "length_flag", None)
            lengths.setdefault((length, wanted, flag), []).append(name)
    for (length, wanted, flag), names in lengths.items():
        change = f" (--{flag}={length} would fit)" if flag else ""
        problems.append(
            f"length of {', '.join(names)} is {length} in the file, {wanted} by the flags{change}"
        )
    return problems


def find_corrupt(files: Sequence[str]) -> str:
    """Returns a sentence that names the first damaged file and where its damage begins.

    For use after a DataLossError of TensorFlow, whose message may lack the file's name. Reads the
    files from the start; if none is damaged, the sentence says so.
    """
    for path in files:
        offset = 0
        count = 0
        try:
            for record in _read(path):
                offset += len(record) + 16  # length and two checksums
                count += 1
        except tf.errors.OpError as error:
            problem = _damage(error)
            return f"{path} is {problem} at record {count} (counted from 0), byte {offset}"
    return f"none of the {len(files)} record files is damaged now"


def _damage(error: tf.errors.OpError) -> str:
    if not isinstance(error, (tf.errors.DataLossError, tf.errors.OutOfRangeError)):
        return f"unreadable ({storage.error_text(error)})"
    return "truncated" if "truncated" in error.message else "corrupt"


def _read(path: str) -> Iterator[bytes]:
    return tf.data.TFRecordDataset(path).as_numpy_iterator()
