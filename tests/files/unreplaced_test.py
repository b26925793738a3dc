"""Tests of `Unreplaced`, with every way in which a folder is replaced."""

import os
import shutil

import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.files.whole_folders import ReplacedError, Unreplaced

NAMES = ("config.json", "vocab.txt", "labels.txt")


def write(folder, text):
    os.makedirs(folder)
    for name in NAMES[:2]:
        with open(f"{folder}/{name}", "w") as file:
            file.write(text)
    return str(folder)


def exchange(path, new):
    os.rename(path, f"{path}.old")
    os.rename(new, path)


def retarget(path, new):
    os.symlink(new, f"{path}.link")
    os.rename(f"{path}.link", path)


def touch(path, new):
    os.utime(f"{path}/vocab.txt", (5, 5))


WAYS = {
    "exchange": exchange,
    "link": retarget,
    "file by file": lambda path, new: shutil.copytree(new, path, dirs_exist_ok=True),
    "another file": lambda path, new: shutil.copy(f"{new}/vocab.txt", f"{path}/labels.txt"),
    "rewritten": touch,
    "removed": lambda path, new: shutil.rmtree(os.path.realpath(path)),
}


@pytest.mark.parametrize("error", [None, UserError("is damaged"), OSError("no such file")])
@pytest.mark.parametrize("way", WAYS)
def test_a_replacement_is_told_instead_of_what_it_causes(tmp_path, way, error):
    path, new = write(tmp_path / "1", "old"), write(tmp_path / "2", "new one")
    if way == "link":
        os.symlink("1", tmp_path / "current")
        path = str(tmp_path / "current")
    with (
        pytest.raises(ReplacedError, match=f"^--input={path} was replaced or changed while it was"),
        Unreplaced(path, NAMES, f"--input={path}"),
    ):
        WAYS[way](path, new)
        if error:
            raise error


def test_what_is_not_read_may_change(tmp_path):
    path = write(tmp_path / "a", "old")
    for error in (None, UserError("is damaged")):
        with pytest.raises(UserError, match="^is damaged$"), Unreplaced(path, NAMES, path):
            (tmp_path / "a" / f"run.heartbeat{error}").write_text("x")
            raise UserError("is damaged")
    with Unreplaced(path, NAMES, path):
        (tmp_path / "a" / "events").write_text("x")
    with pytest.raises(KeyboardInterrupt), Unreplaced(path, NAMES, path):
        touch(path, None)
        raise KeyboardInterrupt


def test_in_a_file_system_of_tensorflow():
    folder = "ram://replaced"
    for text in ("old", "newer"):
        with tf.io.gfile.GFile(f"{folder}/config.json", "w") as file:
            file.write(text)
        if text == "old":
            unreplaced = Unreplaced(folder, NAMES, folder)
            unreplaced.check()
    with pytest.raises(ReplacedError):
        unreplaced.check()
