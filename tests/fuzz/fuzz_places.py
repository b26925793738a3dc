"""Damage to the files of a saved position in the input."""

import functools
import random as random_module
import tempfile
from pathlib import Path
from unittest import mock

import tensorflow as tf
from absl import logging

from bert_tf.engine import input_pipeline
from bert_tf.engine.length_buckets import Buckets
from bert_tf.engine.whole_file_input import WholeFileInput
from bert_tf.files import records
from tests.fuzz.cases import damage

FEATURES = {
    "input_ids": records.int64_feature([3], "max_seq_length"),
    "input_mask": records.int64_feature([3], "max_seq_length", low=0, high=1),
}
SCHEMA = records.limited(FEATURES, {"input_ids": (10**6, "vocab_size")})
BATCHES = 6


def _open(kind: str, files: list[str], seed: int) -> input_pipeline.TrainingInput:
    tf.random.set_seed(3)
    if kind == "buffered":
        return input_pipeline.TrainingInput(files, SCHEMA, 3, seed)
    buckets = Buckets.of_schema((3,), SCHEMA)
    return WholeFileInput(files, SCHEMA, 3, seed, num_batches=20, buckets=buckets)


def _draw(source: input_pipeline.TrainingInput) -> list[list[int]]:
    return [next(source.iterator)["input_ids"].numpy()[:, 0].tolist() for _ in range(BATCHES)]


@functools.cache
def _saved(kind: str) -> tuple[list[str], dict[str, bytes], list, list]:
    """Returns record files, the files of a place in them, what comes next, and what a start gives.

    The folder stays until the process ends.
    """
    folder = _saved.__dict__.setdefault("folder", tempfile.TemporaryDirectory())
    files = [f"{folder.name}/{kind}{i}" for i in range(2)]
    for i, path in enumerate(files):
        with tf.io.TFRecordWriter(path) as writer:
            for number in range(90):
                ids = [7 ** (number % 6) * number % 10**6, i, number]
                values = {"input_ids": ids, "input_mask": [1, 1, 0]}
                writer.write(records.serialize(values, SCHEMA))
    source = _open(kind, files, 5)
    _draw(source)
    source.capture()(f"{folder.name}/{kind}")
    place = {
        path.name.removeprefix(kind): path.read_bytes()
        for path in Path(folder.name).glob(f"{kind}.input.*")
    }
    return files, place, _draw(source), _draw(_open(kind, files, 8))


def fuzz_places(random: random_module.Random, folder: Path) -> None:
    """A place is gone on from only as it was saved; else a warning says that it is not."""
    kind = random.choice(["buffered", "whole"])
    files, place, going_on, anew = _saved(kind)
    name = random.choice([*place, ".input.json"])
    action = random.choice(["damage", "damage", "damage", "remove", "folder", "nothing"])
    for other, content in place.items():
        path = folder / f"ckpt{other}"
        if other != name or action == "nothing":
            path.write_bytes(content)
        elif action == "damage":
            path.write_bytes(damage(random, content))
        elif action == "folder":
            path.mkdir()
    source = _open(kind, files, 8)
    with mock.patch.object(logging, "warning") as warn:
        restored = source.restore(str(folder / "ckpt"))
    assert restored or action != "nothing", warn.call_args
    assert _draw(source) == (going_on if restored else anew)
    if not restored:
        ((text, *values),) = [call.args for call in warn.call_args_list]
        warning = text % tuple(values)
        assert str(folder / "ckpt") in warning and "\n" not in warning and len(warning) < 500
