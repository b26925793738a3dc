"""Tests of bert_tf.files.record_checks."""

import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.files import record_checks, records
from tests.support.refusals import refusal

SCHEMA = {
    "words": records.int64_feature([5], "max_words"),
    "flags": records.int64_feature([5], "max_words", low=0, high=1),
    "weights": records.float_feature([3], "max_weights", low=0.0, high=1.0),
    "label": records.int64_feature([]),
}


def _values(seed):
    return {
        "words": [3 ** (seed + i) for i in range(5)],  # lengths differ from record to record
        "flags": [1, 1, 0, 1, 0],
        "weights": [0.0, 1.0, 0.25],
        "label": [-seed],
    }


def _write(path, count, **changes):
    with records.write_files([str(path)], "output_file") as write:
        for seed in range(count):
            write(records.serialize({**_values(seed), **changes}, SCHEMA))
    return str(path)


def check(path, schema=SCHEMA):
    record_checks.check_files([str(path)], schema, "input_file")


def test_check_files_takes_what_fits(tmp_path):
    path = _write(tmp_path / "a", 1)
    optional = records.int64_feature([], default=0)
    for schema in (SCHEMA, {"label": SCHEMA["label"]}, {**SCHEMA, "extra": optional}):
        check(path, schema)


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
        with pytest.raises(UserError, match=message):
            check(path, {name: feature})


def test_check_files_refuses_what_is_no_record_file(tmp_path):
    good = Path(_write(tmp_path / "good", 3)).read_bytes()
    for name, content, message in (
        ("text", b"just some text\n" * 9, "text is corrupt in its first record, or not a TFRecord"),
        ("short", good[:40], "short is truncated in its first record"),
        ("tiny", good[:5], "tiny holds no record"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"^--input_file: {tmp_path}/{message}"):
            check(path)
    with records.write_files([str(tmp_path / "other")], "output_file") as write:
        write(b"\xff\xff no example")
    with pytest.raises(UserError, match="the records of .*/other are not tf.Examples"):
        check(tmp_path / "other")
    with pytest.raises(OSError, match="/gone cannot be read: .*No such file"):
        check(tmp_path / "gone")


def test_check_files_looks_at_the_values_of_the_first_record(tmp_path):
    path = _write(tmp_path / "a", 1, flags=[0, 1, 7, 8, 0], weights=[0.5, np.nan, 2.0])
    assert refusal(check, path) == (
        f"--input_file: {path}, record 0: flags must be from 0 to 1; received 7; weights must be"
        " from 0.0 to 1.0; received nan"
    )


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
