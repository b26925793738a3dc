"""Files are read and written as a whole; temporary ones say who writes them, and go if killed."""

import gzip
import os
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.files import temporary_names
from bert_tf.files.checkpoint_directory import CheckpointDirectory
from bert_tf.files.temporary_names import is_temporary, temporary_name
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
from tests.support import forked_programs
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
    # What is not finished is gone.
    path = tmp_path / "a"
    path.write_text("before")
    with pytest.raises(tf.errors.ResourceExhaustedError), UnfinishedFile(str(path)) as file:
        file.write(b"half")
        # Not an error of the file, so its message stays.
        raise tf.errors.ResourceExhaustedError(None, None, "no memory")
    assert os.listdir(tmp_path) == ["a"] and path.read_text() == "before"


def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing(tmp_path):
    message = "cannot be written: .*must exist, be writable and have free space"
    refuses(message, write_whole, str(tmp_path / "none" / "a"), "x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="--x=.*folder must name a file, but it is a directory"):
        UnfinishedFile(str(tmp_path / "folder"), f"--x={tmp_path}/folder")
    assert os.listdir(tmp_path) == ["folder"]


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


def test_json_is_read_and_what_is_not_json_is_refused(tmp_path):
    for content, message in (
        (b"{", "--x is not JSON (Expecting property name enclosed in double quotes: line 1"),
        (b"[" * 100_000, "--x is not JSON (maximum recursion depth exceeded"),
        (b'{"a": ' * 100_000, "--x is not JSON (maximum recursion depth exceeded"),
        (b"[-Infinity]", "--x is not JSON (-Infinity is not a number in JSON); the rule"),
        (b"[-1e999]", "--x is not JSON ('-1e999' is beyond the range of a number); the rule"),
        (b"1e" + b"9" * 5000, "--x is not JSON ('1e999"),
        (b'{"a": 1, "b": {}, "a": 1}', "--x is not JSON (the key 'a' appears twice); the rule"),
        (b'[{"c": {"d": 1, "d": 2}}]', "--x is not JSON (the key 'd' appears twice); the rule"),
        (b"9" * 5000, "--x is not JSON (Exceeds the limit"),
        (b'"\xff"', "--x, line 1, is not UTF-8 (invalid start byte); decompress the"),
    ):
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


def test_other_encodings_are_refused():
    for data, message in (
        *((TEXT.encode(x), "is not ") for x in ("utf-16", "utf-32", "utf-16-le", "utf-32-be")),
        ("It was good.".encode("utf-16-be"), "is not text in UTF-8: many bytes are 0, as in UTF"),
        (f"a\n{TEXT}".encode("cp1252"), ", line 2, is not UTF-8 (invalid continuation byte); dec"),
        (gzip.compress(TEXT.encode(), mtime=0), ", line 1, is not UTF-8 (invalid start b"),
    ):
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


def test_a_name_is_new_and_tells_what_it_is():
    names = {temporary_name("folder") for _ in range(100)}
    assert len(names) == 100  # the folder need not exist
    assert all(is_temporary(os.path.basename(name)) for name in names)
    assert all(os.path.dirname(name) == "folder" for name in names)
    others = ["my.unfinished", "train.tfrecord", "0123abcd-1-x.unfinished"]
    others.append(os.path.basename(temporary_name("")) + ".mine")
    assert not any(map(is_temporary, others))


def test_the_next_process_removes_what_killed_ones_left(tmp_path):
    code = """
import os, signal, sys
from bert_tf.files.temporary_names import temporary_name
open(temporary_name(sys.argv[1]), "w").write("half")
folder = temporary_name(sys.argv[1])
os.mkdir(folder)
open(os.path.join(folder, "file"), "w").write("half")
os.kill(os.getpid(), signal.SIGKILL)
"""
    status, _ = forked_programs.run([sys.executable, "-c", code, str(tmp_path)])
    assert status == -9 and len(os.listdir(tmp_path)) == 2
    (left,) = [path for path in tmp_path.iterdir() if path.is_file()]
    mine = temporary_name(str(tmp_path / "other"))
    space, pid, unique = left.name.split("-")
    # Of a process that runs, and of another machine.
    kept = [os.path.basename(mine), f"00000000-{pid}-{unique}", f"{left.name}.mine"]
    for name in kept:
        (tmp_path / name).write_text("half")
    write_whole(str(tmp_path / "x.txt"), "whole")
    assert sorted(os.listdir(tmp_path)) == sorted([*kept, "x.txt"])


def test_a_run_that_begins_spares_the_files_of_the_living(tmp_path):
    """An evaluation may look at the folder of a run that is just starting to train."""
    living = [temporary_name(str(tmp_path), x) for x in ("unfinished", "working")]
    dead = [name.replace(f"-{os.getpid()}-", f"-{2**22 + 1}-") for name in living]
    space = temporary_names._space_digest()
    elsewhere = [name.replace(space, "0" * 8) for name in living]
    for path in (*living, *dead, *elsewhere):
        Path(path).write_text("x")
    CheckpointDirectory(str(tmp_path)).remove_left_behind()
    # An evaluation on another machine may be alive; what a run of one left unfinished is not.
    assert {str(path) for path in tmp_path.iterdir()} == {*living, elsewhere[1]}
