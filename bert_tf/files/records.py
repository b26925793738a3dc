"""Writes and parses TFRecord files of tf.Examples.

A *schema* says what a record holds: feature name -> `Feature`, from `int64_feature` or
`float_feature`. Each task defines its schema once, for writing the records and for training on
them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.errors import UserError
from bert_tf.files import storage
from bert_tf.files.whole_files import UnfinishedFile, write_whole
from bert_tf.start import lazy_tensorflow as tf

# Name of a feature -> the exclusive upper limit of its ids, and what sets this limit.
Limits = Mapping[str, tuple[int, str]]
OUT_OF_RANGE = "values out of their range:"  # in the message of `parse`'s InvalidArgumentError


class Range(NamedTuple):
    """The values that a feature may have, `low` and `high` included; `source` sets the range."""

    low: float
    high: float
    source: str | None = None

    def rule(self, name: str) -> str:
        if self.high == _FLOAT32_MAX:
            return f"{name} must be finite"
        source = f" ({self.source})" if self.source else ""
        return f"{name} must be from {self.low} to {self.high}{source}"


BY_FLAGS = "by the flags"  # what sets most lengths
_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_FLOAT32_MAX = 3.4028234663852886e38
# The largest number to predict: its square, summed over the largest batch, is finite in float32.
LARGEST_TARGET = 1e16


@dataclasses.dataclass(frozen=True)
class Feature:
    """A feature of fixed length: a `tf.io.FixedLenFeature` with a range, and words for messages.

    dtype: np.int64 or np.float32.
    default_value: for records without the feature; None if every record must have it.
    length_flag, length_source: what sets the shape, for messages: a flag (no dashes) and a phrase.
    """

    shape: list[int]
    dtype: type[np.number]
    range: Range
    default_value: int | None = None
    length_flag: str | None = None
    length_source: str = BY_FLAGS

    @property
    def kind(self) -> str:
        return "int64_list" if self.dtype is np.int64 else "float_list"


Schema = Mapping[str, Feature]


def int64_feature(
    shape: Sequence[int],
    length_flag: str | None = None,
    *,
    low: int = _INT32_MIN,
    high: int = _INT32_MAX,
    default: int | None = None,
    length_source: str = BY_FLAGS,
) -> Feature:
    """Returns an int64 feature; its values become int32, so `low` and `high` must fit int32."""
    return Feature(list(shape), np.int64, Range(low, high), default, length_flag, length_source)


def float_feature(
    shape: Sequence[int],
    length_flag: str | None = None,
    *,
    low: float = -_FLOAT32_MAX,
    high: float = _FLOAT32_MAX,
    length_source: str = BY_FLAGS,
) -> Feature:
    """Returns a float32 feature of finite values."""
    return Feature(list(shape), np.float32, Range(low, high), None, length_flag, length_source)


def target_feature() -> Feature:
    """Returns the feature of one number to predict, whose squared error must be finite."""
    return float_feature([], low=-LARGEST_TARGET, high=LARGEST_TARGET)


def model_inputs(shape: Sequence[int]) -> Schema:
    """Returns the features that every model reads; --max_seq_length sets the shape's last axis.

    They are `input_ids`, `input_mask` (1 = token, 0 = padding) and `segment_ids`.
    """
    ids = int64_feature(shape, "max_seq_length", low=0)
    mask = int64_feature(shape, "max_seq_length", low=0, high=1)
    return {"input_ids": ids, "input_mask": mask, "segment_ids": ids}


def limited(schema: Schema, limits: Limits) -> Schema:
    """Returns the schema with ids that are at least 0 and below their limits."""
    narrowed = {
        name: dataclasses.replace(schema[name], range=Range(0, limit - 1, f"{source} is {limit}"))
        for name, (limit, source) in limits.items()
    }
    return {**schema, **narrowed}


def sequence_features(schema: Schema) -> list[str]:
    """Returns the names of the features whose length --max_seq_length sets."""
    return [n for n, f in schema.items() if f.length_flag == "max_seq_length"]


# --- writing --------------------------------------------------------------------------------------


class Serializer:
    """Serializes records of a schema. Not thread-safe: all records reuse the same message."""

    def __init__(self, schema: Schema):
        self._names = schema.keys()
        self._example = tf.train.Example()
        features = self._example.features.feature
        self._places = []
        for name, feature in schema.items():
            place = getattr(features[name], feature.kind).value
            self._places.append((name, place, math.prod(feature.shape), feature.shape))

    def __call__(self, values: Mapping[str, Sequence[int] | Sequence[float]]) -> bytes:
        """Serializes flat sequences, or `bytes`, by feature; equal values give equal bytes."""
        if values.keys() != self._names:
            raise UserError(f"a record holds {sorted(self._names)}, not {sorted(values)}")
        for name, place, size, shape in self._places:
            numbers = values[name]
            if len(numbers) != size:
                raise UserError(f"feature {name} has {len(numbers)} values; its shape is {shape}")
            place[:] = numbers
        # Without `deterministic` the order of the features would change from run to run.
        return self._example.SerializeToString(deterministic=True)


def serialize(values: Mapping[str, Sequence[int] | Sequence[float]], schema: Schema) -> bytes:
    """Serializes one record; `Serializer` is faster for many."""
    return Serializer(schema)(values)


@contextlib.contextmanager
def write_files(
    paths: Sequence[str],
    flag: str,
    beside: Callable[[Mapping[str, int]], Mapping[str, str]] | None = None,
) -> Iterator[Callable[[bytes], object]]:
    """Yields a function that writes one serialized record; record i goes to file i mod len(paths).

    The files get their names when the `with` block ends. After an error, earlier files of these
    names are unchanged. When all records are written, `beside` is called with the size of each
    file, and returns other files to write: path -> content. They appear just before the records do.
    """
    for path in paths:
        storage.check_file_system(path, flag)
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context(UnfinishedFile(path, f"--{flag}={path}", tf.io.TFRecordWriter))
            for path in paths
        ]
        in_turn = itertools.cycle(files)
        yield lambda record: next(in_turn).write(record)
        for file in files:
            file.close()  # before any file is renamed: raises if data cannot be flushed
        sizes = {
            path: tf.io.gfile.stat(file.name).length
            for path, file in zip(paths, files, strict=True)
        }
        for path, content in (beside(sizes) if beside else {}).items():
            write_whole(path, content)
        for file in files:
            file.finish()


# --- parsing --------------------------------------------------------------------------------------


def parse(serialized: tf.Tensor, schema: Schema) -> dict[str, tf.Tensor]:
    """Returns the features of a batch of records by name, each [batch, *shape], int32 or float32.

    `serialized`, string [batch], are tf.Examples; features that the schema lacks are ignored.
    Missing features, and values outside their range, raise InvalidArgumentError;
    `record_checks.explain` then finds the record. int64 becomes int32 because TPUs do not have
    int64 (the original's `_decode_record`).
    """
    features = tf.io.parse_example(
        serialized,
        {
            name: tf.io.FixedLenFeature(feature.shape, feature.dtype, feature.default_value)
            for name, feature in schema.items()
        },
    )
    checks = []
    for name, values in features.items():
        allowed = schema[name].range
        inside = tf.reduce_all((values >= allowed.low) & (values <= allowed.high))  # NaN never is
        checks.append(tf.debugging.Assert(inside, [OUT_OF_RANGE, allowed.rule(name)], name="range"))
    with tf.control_dependencies(checks):
        return {
            name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else tf.identity(value)
            for name, value in features.items()
        }
