"""Reads record files as plain lists, without the code under test."""

import os

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
