"""Tests of bert_tf.files.records."""

import os
import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.files import record_checks, records
from tests.support.arrays import assert_same_arrays
from tests.support.pretraining_runs import run_code

SCHEMA = {
    "words": records.int64_feature([5], "max_words"),
    "flags": records.int64_feature([5], "max_words"),
    "weights": records.float_feature([3], "max_weights"),
    "label": records.int64_feature([]),
}


def _values(seed):
    rng = random.Random(seed)
    return {
        "words": [rng.choice([0, 1, 127, 128, 255, 256, 16384, 2**31 - 1, -1]) for _ in range(5)],
        "flags": bytes([1, 0, 127, 1, 0]),
        "weights": [rng.choice([0.0, 1.0, 0.25]) for _ in range(3)],
        "label": [seed],
    }


def _write(path, count, schema=SCHEMA):
    with records.write_files([str(path)], "output_file") as write:
        for seed in range(count):
            write(records.serialize(_values(seed), schema))
    return str(path)


@pytest.mark.parametrize("seed", range(5))
def test_serialize_is_the_tf_example_with_these_values(seed):
    values = _values(seed)
    example = tf.train.Example.FromString(records.serialize(values, SCHEMA))
    features = example.features.feature
    assert sorted(features) == sorted(SCHEMA)
    for name in ("words", "flags", "label"):
        assert list(features[name].int64_list.value) == list(values[name])
    assert list(features["weights"].float_list.value) == values["weights"]


def test_a_serializer_keeps_nothing_of_earlier_records():
    serialize = records.Serializer(SCHEMA)
    first, *others = [_values(seed) for seed in range(4)]
    empty = {name: [0] * len(values) for name, values in first.items()}
    for values in (first, empty, *others, first):
        assert serialize(values) == records.serialize(values, SCHEMA)
    with pytest.raises(UserError, match="feature flags has 0 values"):
        serialize({**empty, "weights": first["weights"], "flags": []})
    assert serialize(empty) == records.serialize(empty, SCHEMA)


def test_serialize_does_not_depend_on_the_order_of_names_or_the_process():
    values = _values(3)
    backwards = dict(reversed(values.items()))
    expected = records.serialize(values, SCHEMA)
    assert records.serialize(backwards, dict(reversed(SCHEMA.items()))) == expected
    # In the order of the names, as a file that is compared byte by byte needs it.
    positions = [expected.index(name.encode()) for name in sorted(SCHEMA)]
    assert positions == sorted(positions)


def test_serialize_refuses_other_names_and_lengths():
    values = _values(0)
    with pytest.raises(UserError, match="feature words has 4 values; its shape is"):
        records.serialize({**values, "words": [1, 2, 3, 4]}, SCHEMA)
    del values["label"]
    message = r"a record holds \['flags', 'label', 'weights', 'words'\]"
    with pytest.raises(ValueError, match=message):
        records.serialize(values, SCHEMA)


def test_parse_gives_int32_and_float32_batches():
    serialized = tf.constant([records.serialize(_values(s), SCHEMA) for s in range(4)])
    batch = records.parse(serialized, SCHEMA)
    assert {name: (tensor.shape.as_list(), tensor.dtype) for name, tensor in batch.items()} == {
        "words": ([4, 5], tf.int32),
        "flags": ([4, 5], tf.int32),
        "weights": ([4, 3], tf.float32),
        "label": ([4], tf.int32),
    }
    expected = [{name: [*numbers] for name, numbers in _values(s).items()} for s in range(4)]
    for name in ("words", "flags", "weights"):
        np.testing.assert_array_equal(batch[name], [values[name] for values in expected])
    np.testing.assert_array_equal(batch["label"], range(4))
    # In a graph, with features beyond the schema.
    schema = {"weights": SCHEMA["weights"]}
    parsed = tf.function(lambda x: records.parse(x, schema), autograph=False)(serialized)
    assert_same_arrays(parsed, {"weights": batch["weights"]})


def test_write_files_deals_records_out_in_turn(tmp_path):
    paths = [str(tmp_path / name) for name in ("c", "a", "b")]
    with records.write_files(paths, "output_file") as write:
        for number in range(8):
            write(b"%d" % number)
        assert not any(os.path.exists(path) for path in paths)
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]
    read = [list(tf.data.TFRecordDataset(path).as_numpy_iterator()) for path in paths]
    assert read == [[b"0", b"3", b"6"], [b"1", b"4", b"7"], [b"2", b"5"]]


def test_write_files_leaves_what_was_there_on_an_error(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(b"before")
    with pytest.raises(KeyError), records.write_files([str(path), f"{path}2"], "output_file") as w:
        w(b"half")
        raise KeyError
    assert os.listdir(tmp_path) == ["out"]
    assert path.read_bytes() == b"before"
    _write(path, 2)
    assert os.listdir(tmp_path) == ["out"]
    record_checks.check_files([str(path)], SCHEMA, "input_file")


def test_write_files_errors(tmp_path):
    for paths, message in (
        ([str(tmp_path)], f"--output_file={tmp_path} must name a file, but it is a directory"),
        ([f"{tmp_path}/no/a"], f"--output_file={tmp_path}/no/a cannot be written: .*must exist"),
    ):
        with pytest.raises(UserError, match=message), records.write_files(paths, "output_file"):
            pass
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_write_files_when_the_disk_is_full(tmp_path):
    # A limit on the size of files stands in for a full disk; it holds for a whole process.
    program = """
import resource, signal, sys
from bert_tf.files import records
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    with records.write_files(sys.argv[2:], "out") as w:
        for number in range(int(sys.argv[1])):
            w(bytes(1000))
except OSError as error:  # there may be room another time
    print("refused:", error)
"""
    for count in (110, 2000):  # the first shows when the file is closed, the second before
        output = run_code(program, count, tmp_path / "a", tmp_path / "b")
        assert f"refused: --out={tmp_path}/a cannot be written: " in output
        assert "have free space" in output and os.listdir(tmp_path) == []
