"""Tests of bert_tf.files.whole_files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.files.whole_files import UnfinishedFile, write_whole

FULL_DISK = """
import resource, signal, sys
from bert_tf.files import whole_files
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
whole_files.write_whole(sys.argv[1], bytes(60_000))
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
    with pytest.raises(
        UserError, match="cannot be written: .*must be writable and have free space"
    ):
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
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, f"{tmp_path}/a"],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
    )
    assert f"OSError: {tmp_path}/a cannot be written: " in done.stderr, done.stderr
    assert os.listdir(tmp_path) == []
