"""Tests of bert_tf.files.records and bert_tf.files.record_checks."""

import os
import random
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.files import record_checks, records
from tests.support.arrays import assert_same_arrays
from tests.support.pretraining_runs import run_code
from tests.support.refusals import refusal, refuses

SCHEMA = {
    "words": records.int64_feature([5], "max_words"),
    "flags": records.int64_feature([5], "max_words", low=0, high=1),
    "weights": records.float_feature([3], "max_weights", low=0.0, high=1.0),
    "label": records.int64_feature([]),
}


def _values(seed):
    rng = random.Random(seed)
    return {
        "words": [rng.choice([0, 1, 127, 128, 255, 256, 16384, 2**31 - 1, -1]) for _ in range(5)],
        "flags": bytes([1, 0, 1, 1, 0]),
        "weights": [rng.choice([0.0, 1.0, 0.25]) for _ in range(3)],
        "label": [seed],
    }


def _write(path, count, **changes):
    """Writes records, whose lengths differ."""
    with records.write_files([str(path)], "output_file") as write:
        for seed in range(count):
            write(records.serialize({**_values(seed), **changes}, SCHEMA))
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


def test_serialize_goes_by_names():
    values = _values(3)
    backwards = dict(reversed(values.items()))
    expected = records.serialize(values, SCHEMA)
    assert records.serialize(backwards, dict(reversed(SCHEMA.items()))) == expected
    # In the order of the names, as a file that is compared byte by byte needs it.
    positions = [expected.index(name.encode()) for name in sorted(SCHEMA)]
    assert positions == sorted(positions)
    values = _values(0)
    with pytest.raises(UserError, match="feature words has 4 values; its shape is"):
        records.serialize({**values, "words": [1, 2, 3, 4]}, SCHEMA)
    del values["label"]
    message = r"a record holds \['flags', 'label', 'weights', 'words'\]"
    refuses(message, records.serialize, values, SCHEMA, kind=ValueError)


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


def check(path, schema=SCHEMA):
    record_checks.check_files([str(path)], schema, "input_file")


def test_check_files_names_file_feature_length_and_flag(tmp_path):
    path = _write(tmp_path / "a", 1)
    other = {
        "words": records.int64_feature([7], "max_words"),
        "flags": records.int64_feature([7], "max_words"),
        "weights": records.float_feature([3], "max_weights"),
    }
    assert refusal(check, path, other) == (
        f"--input_file: {path} was made with other settings: "
        "length of words, flags is 5 in the file, 7 by the flags (--max_words=5 would fit)"
    )
    plain = records.int64_feature([4])  # has no flag
    for name, feature, message in (
        ("new", SCHEMA["words"], "feature new is missing .the file has flags, label, we"),
        ("words", records.float_feature([5]), "feature words is a int64_list, not a float_list"),
        ("words", plain, "length of words is 5 in the file, 4 by the flags$"),
    ):
        refuses(message, check, path, {name: feature})


def test_check_files_refuses_what_is_no_record_file(tmp_path):
    good = Path(_write(tmp_path / "good", 3)).read_bytes()
    for name, content, message in (
        ("text", b"just some text\n" * 9, "text is corrupt in its first record, or not a TFRecord"),
        ("short", good[:40], "short is truncated in its first record"),
        ("tiny", good[:5], "tiny holds no record"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        refuses(f"^--input_file: {tmp_path}/{message}", check, path)
    with records.write_files([str(tmp_path / "other")], "output_file") as write:
        write(b"\xff\xff no example")
    refuses("the records of .*/other are not tf.Examples", check, tmp_path / "other")
    refuses("/gone cannot be read: .*No such file", check, tmp_path / "gone", kind=OSError)


def test_check_files_looks_at_the_first_record(tmp_path):
    path = _write(tmp_path / "a", 1, flags=[0, 1, 7, 8, 0], weights=[0.5, np.nan, 2.0])
    assert refusal(check, path) == (
        f"--input_file: {path}, record 0: flags must be from 0 to 1; received 7; weights must be"
        " from 0.0 to 1.0; received nan"
    )
    path = _write(tmp_path / "a", 1)
    optional = records.int64_feature([], default=0)
    for schema in (SCHEMA, {"label": SCHEMA["label"]}, {**SCHEMA, "extra": optional}):
        check(path, schema)


def test_check_files_has_short_messages(tmp_path):
    """However many features there are."""
    names = [f"name_{i:03}" for i in range(200)]
    path, feature = str(tmp_path / "a"), records.int64_feature([])
    for written, wanted, more in ((names, ["new", *"abcdef"], 4), ("abc", names, 197)):
        with records.write_files([path], "output_file") as write:
            write(records.serialize(dict.fromkeys(written, [1]), dict.fromkeys(written, feature)))
        message = refusal(check, path, dict.fromkeys(wanted, feature))
        assert f"and {more} more" in message and len(message.replace(path, "")) < 700


@pytest.mark.parametrize("long", [False, True])
def test_every_cut_within_a_record_is_noticed(tmp_path, long):
    """TensorFlow takes up to 11 bytes of a record for the end of the file."""
    path = _write(tmp_path / "a", 4)
    sizes = [len(records.serialize(_values(seed), SCHEMA)) + 16 for seed in range(4)]
    if long:  # longer than what is read of an end
        with tf.io.TFRecordWriter(path) as writer:
            sizes = [9 + 16, record_checks.END_BYTES * 3]
            for size in sizes:
                writer.write(bytes(size - 16))
    content = Path(path).read_bytes()
    ends = np.cumsum([0, *sizes])
    assert ends[-1] == len(content)
    cuts = [int(end) - part for end in ends[1:] for part in (0, 1, 4, 30)]
    cuts += [int(begin) + part for begin in ends[:-1] for part in (1, 7, 11, 12, 13)]
    if long:
        begin, tail = int(ends[1]), len(content) - record_checks.END_BYTES
        cuts = [begin, begin + 1, begin + 11, begin + 30, tail - 1, tail, tail + 1, len(content)]
    digests = set()
    for cut in sorted(cuts, reverse=True):
        os.truncate(path, cut)
        record = int(np.searchsorted(ends, cut, "right")) - 1
        if cut == ends[record]:
            (end,) = record_checks.check_ends([path])
            assert end.length == cut
            digests.add(end.digest)
            continue
        assert refusal(record_checks.check_ends, [path]) == (
            f"{path} is truncated at record {record} (counted from 0), byte {ends[record]}"
        )
    assert len(digests) == len(sizes)


def test_a_file_is_known_by_both_of_its_ends(tmp_path):
    path = str(tmp_path / "a")
    seen = set()
    for changed in (None, 0, 40, 79):
        with tf.io.TFRecordWriter(path) as writer:
            for i in range(80):
                writer.write(bytes([i == changed]) * 4000)
        seen.add(record_checks.check_ends([path])[0][:2])
    assert {length for length, _ in seen} == {80 * 4016}
    assert len(seen) == 3  # not by its middle


def test_find_problem_names_file_record_and_byte(tmp_path):
    good = _write(tmp_path / "good", 4)
    content = bytearray(Path(good).read_bytes())
    lengths = [len(records.serialize(_values(seed), SCHEMA)) + 16 for seed in range(4)]
    third = lengths[0] + lengths[1]
    for schema in (SCHEMA, None):
        assert record_checks.find_problem([good], schema) is None
    bad = tmp_path / "bad"
    for cut in (30, 12, 11, 1):
        bad.write_bytes(content[: third + cut])
        assert record_checks.find_problem([good, str(bad)], SCHEMA) == (
            f"{bad} is truncated at record 2 (counted from 0), byte {third}"
        )
    content[third + 30] ^= 1
    bad.write_bytes(content)
    assert record_checks.find_problem([good, str(bad)], None) == (
        f"{bad} is corrupt at record 2 (counted from 0), byte {third}"
    )
    wrong = _write(tmp_path / "wrong", 3, words=[0, 1, 2, 3, 2**32 + 5])
    message = f"{wrong}, record 0 (counted from 0): words must be from -2147483648 to 2147483647"
    assert record_checks.find_problem([good, wrong], SCHEMA) == f"{message}; received {2**32 + 5}"
