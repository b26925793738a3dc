"""Temporary files say who writes them, and those of killed processes go."""

import os
import sys
from pathlib import Path

from bert_tf.files import temporary_names
from bert_tf.files.checkpoint_directory import CheckpointDirectory
from bert_tf.files.temporary_names import is_temporary, temporary_name
from bert_tf.files.whole_files import write_whole
from tests.support import forked_programs


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
