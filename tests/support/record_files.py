"""Reads record files as plain lists, without the code under test."""

import os
from collections.abc import Iterator, Sequence

import tensorflow as tf


def read_records(path: str | os.PathLike) -> list[dict[str, list]]:
    """Returns the records of a file, each its features by name."""
    found = []
    for record in tf.data.TFRecordDataset(os.fspath(path)).as_numpy_iterator():
        features = tf.train.Example.FromString(record).features.feature
        found.append(
            {n: list(f.int64_list.value or f.float_list.value) for n, f in features.items()}
        )
    return found


def read_sequences(
    path: str | os.PathLike, vocabulary: Sequence[str], length: int
) -> Iterator[tuple[list[tuple[str, list[int]]], float]]:
    """Yields each record's sequences, as pieces and segments without padding, and its label."""
    for record in read_records(path):
        sequences = []
        for start in range(0, len(record["input_ids"]), length):
            names = ("input_ids", "input_mask", "segment_ids")
            ids, mask, segments = (record[name][start : start + length] for name in names)
            size = sum(mask)
            padding = [0] * (length - size)
            assert mask == [1] * size + padding and ids[size:] == segments[size:] == padding
            sequences.append((" ".join(vocabulary[i] for i in ids[:size]), segments[:size]))
        (label,) = record["label_ids"]
        yield sequences, label
