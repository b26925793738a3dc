"""Tests of bert_tf.files.whole_files."""

import os

import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.files.whole_files import (
    UnfinishedFile,
    read_bytes,
    read_json,
    read_text,
    write_whole,
)
from tests.support.pretraining_runs import run_code
from tests.support.refusals import refusal

FULL_DISK = """
import resource, signal, sys
from bert_tf.files import whole_files
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    whole_files.write_whole(sys.argv[1], bytes(60_000))
except OSError as error:
    print(error)
"""


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
    with pytest.raises(UserError, match=message):
        write_whole(str(tmp_path / "none" / "a"), "x")
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
    assert run_code(FULL_DISK, tmp_path / "a").startswith(f"{tmp_path}/a cannot be written: ")
    assert os.listdir(tmp_path) == []


def test_json_is_read(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('\ufeff{"ä": [1, 2.5, null]}', "utf-8")
    assert read_json(str(path), "--x", "a rule") == {"ä": [1, 2.5, None]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "--x is not JSON (Expecting property name enclosed in double quotes: line 1"),
        (b"[" * 100_000, "--x is JSON that is nested too deeply to be read; the rule"),
        (b'{"a": ' * 100_000, "--x is JSON that is nested too deeply to be read; the rule"),
        (b"[-Infinity]", "--x is not JSON (-Infinity is not a number in JSON); the rule"),
        (b"[-1e999]", "--x is not JSON ('-1e999' is beyond the range of a number); the rule"),
        (b"1e" + b"9" * 5000, "--x is not JSON ('1e999"),
        (b"9" * 5000, "--x is not JSON (Exceeds the limit"),
        (b'"\xff"', "--x, line 1, is not UTF-8 (invalid start byte); convert the file, e.g."),
    ],
)
def test_what_is_not_json_is_refused(tmp_path, content, message):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    refused = refusal(read_json, str(path), "--x", "the rule")
    assert refused.startswith(message) and len(refused) < 300 and "\n" not in refused


def test_why_a_file_cannot_be_read(tmp_path):
    def message(path):
        with pytest.raises(UserError) as error:
            read_text(str(path), f"--x={path}", "the rule")
        return str(error.value)

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


def test_tensorflow_tells_why_a_file_cannot_be_read(tmp_path):
    missing = tmp_path / "missing"
    message = f"--a={missing} cannot be read: no such file; {tmp_path} holds nothing"
    assert refusal(lambda: read_bytes(str(missing), f"--a={missing}")) == message
    message = refusal(lambda: read_bytes(str(tmp_path), "it", "it must be a file"))
    assert message.startswith("it cannot be read (") and message.endswith("; it must be a file")
