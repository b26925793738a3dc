"""Tests of bert_tf.files.whole_files."""

import gzip
import os

import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.files.whole_files import (
    JsonKeys,
    Needed,
    UnfinishedFile,
    decode_utf8,
    read_bytes,
    read_json,
    read_text,
    write_whole,
)
from tests.support.pretraining_runs import run_forked
from tests.support.refusals import refusal, refuses


def test_text_and_bytes(tmp_path):
    path = tmp_path / "a"
    write_whole(str(path), "first\n")
    write_whole(str(path), "näher\n")
    assert path.read_text() == "näher\n"
    write_whole(str(path), b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing(tmp_path):
    message = "cannot be written: .*must exist, be writable and have free space"
    refuses(message, write_whole, str(tmp_path / "none" / "a"), "x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="--x=.*folder must name a file, but it is a directory"):
        UnfinishedFile(str(tmp_path / "folder"), f"--x={tmp_path}/folder")
    assert os.listdir(tmp_path) == ["folder"]


def test_what_is_not_finished_is_gone(tmp_path):
    path = tmp_path / "a"
    path.write_text("before")
    with pytest.raises(tf.errors.ResourceExhaustedError), UnfinishedFile(str(path)) as file:
        file.write(b"half")
        # Not an error of the file, so its message stays.
        raise tf.errors.ResourceExhaustedError(None, None, "no memory")
    assert os.listdir(tmp_path) == ["a"] and path.read_text() == "before"


def test_a_full_disk_may_have_room_another_time(tmp_path):
    """In a process of its own, with a limit on the size of files."""
    code = """
import resource, signal, sys
from bert_tf.files import whole_files
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    whole_files.write_whole(sys.argv[1], bytes(60_000))
except OSError as error:
    print(error)
"""
    assert run_forked(code, tmp_path / "a").startswith(f"{tmp_path}/a cannot be written: ")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "--x is not JSON (Expecting property name enclosed in double quotes: line 1"),
        (b"[" * 100_000, "--x is not JSON (maximum recursion depth exceeded"),
        (b'{"a": ' * 100_000, "--x is not JSON (maximum recursion depth exceeded"),
        (b"[-Infinity]", "--x is not JSON (-Infinity is not a number in JSON); the rule"),
        (b"[-1e999]", "--x is not JSON ('-1e999' is beyond the range of a number); the rule"),
        (b"1e" + b"9" * 5000, "--x is not JSON ('1e999"),
        (b'{"a": 1, "b": {}, "a": 1}', "--x is not JSON (the key 'a' is there twice); the rule"),
        (b'[{"c": {"d": 1, "d": 2}}]', "--x is not JSON (the key 'd' is there twice); the rule"),
        (b"9" * 5000, "--x is not JSON (Exceeds the limit"),
        (b'"\xff"', "--x, line 1, is not UTF-8 (invalid start byte); decompress the"),
    ],
)
def test_json_is_read_and_what_is_not_json_is_refused(tmp_path, content, message):
    path = tmp_path / "x.json"
    path.write_text('\ufeff{"ä": [1, 2.5, null]}', "utf-8")
    assert read_json(str(path), "--x", "a rule") == {"ä": [1, 2.5, None]}
    path.write_bytes(content)
    refused = refusal(read_json, str(path), "--x", "the rule")
    assert refused.startswith(message) and len(refused) < 300 and "\n" not in refused


def test_why_a_file_cannot_be_read(tmp_path):
    def message(path):
        return refusal(read_text, str(path), f"--x={path}", "the rule")

    end = "; the rule"
    assert message(tmp_path) == (
        f"--x={tmp_path} cannot be read (it is a folder, not a file; {tmp_path} holds nothing){end}"
    )
    path = tmp_path / "a.txt"
    path.touch()
    assert message(path / "b") == (
        f"--x={path}/b cannot be read ({path} is a file; give the folder that it is in){end}"
    )
    gone = tmp_path / "c"
    assert message(gone) == (
        f"--x={gone} cannot be read (no such file; {tmp_path} holds 'a.txt'){end}"
    )
    assert message(gone / "d") == f"--x={gone}/d cannot be read (there is no folder {gone}){end}"
    without_rule = f"--x={gone} cannot be read: no such file; {tmp_path} holds 'a.txt'"
    assert refusal(read_bytes, str(gone), f"--x={gone}") == without_rule


@pytest.mark.parametrize("content", [b"", b"one\r\ntwo\x00", bytes(range(256)) * 300])
def test_a_local_file_is_read_without_tensorflow(tmp_path, monkeypatch, content):
    (tmp_path / "a").write_bytes(content)
    elsewhere = f"ram://{tmp_path.name}/a"
    with tf.io.gfile.GFile(elsewhere, "wb") as file:
        file.write(content)
    assert read_bytes(elsewhere, "it", size=7) == content[:7]
    monkeypatch.setattr(tf.io.gfile, "GFile", None)
    assert read_bytes(str(tmp_path / "a"), "it") == content
    assert read_bytes(str(tmp_path / "a"), "it", size=7) == content[:7]


TEXT = "Crème brûlée – 20 €\nL’été, “Straße” und Gemüse\n" * 3


def test_utf8_is_decoded_without_a_byte_order_mark_at_the_start():
    assert decode_utf8(TEXT.encode("utf-8-sig"), "--x") == TEXT
    assert decode_utf8(TEXT.encode("utf-8-sig"), "--x", first_line=9) == "\ufeff" + TEXT
    assert decode_utf8(b"", "--x") == ""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        *((TEXT.encode(x), "is not ") for x in ("utf-16", "utf-32", "utf-16-le", "utf-32-be")),
        ("It was good.".encode("utf-16-be"), "is not text in UTF-8: many bytes are 0, as in UTF"),
        (f"a\n{TEXT}".encode("cp1252"), ", line 2, is not UTF-8 (invalid continuation byte); dec"),
        (gzip.compress(TEXT.encode(), mtime=0), ", line 1, is not UTF-8 (invalid start b"),
    ],
)
def test_other_encodings_are_refused(data, message):
    told = refusal(decode_utf8, data, "--data_dir: train.csv")
    assert told.startswith("--data_dir: train.csv") and message in told
    assert "iconv -f " in told


def test_keys_that_pass_or_are_refused():
    rule = Needed((False, None), "there is no such one.")
    keys = JsonKeys({"size"}, {"is_odd": rule}, {"made_by"})
    for odd in ({}, {"is_odd": False}, {"is_odd": None}):
        keys.check({"size": 3, "made_by": "a tool", **odd}, "a.json")
    for value in (True, "no", [False], {}):
        told = f"a.json: is_odd must be false, not {value!r}: there is no such one."
        assert refusal(keys.check, {"is_odd": value}, "a.json") == told
    assert refusal(keys.check, {"size": 3, "never heard of": [1]}, "a.json") == (
        "a.json: never heard of is not known, so it may change what the model answers; it is [1]."
        " Choose a different model or, if it does not matter for this one, delete the key"
    )
