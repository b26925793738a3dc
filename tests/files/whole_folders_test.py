"""Folders are replaced as a whole, and a replacement is noticed."""

import contextlib
import os
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.files import whole_folders
from bert_tf.files.whole_folders import ReplacedError, Unreplaced, whole_folder
from tests.support.refusals import refusal, refuses

OLD = {"a": "old", "config.json": "{}", "only_old": "x"}
NEW = {"a": "new", "b": "newer", "config.json": "{1}"}
FULL = tf.errors.ResourceExhaustedError(None, None, "No space left on device")


def write(path: Path, files: dict[str, str], error: Exception | None = None) -> None:
    """Writes a folder of these files, or fails while it writes it."""
    with whole_folder(str(path), "output", "config.json", {*OLD, *NEW}, "an export") as name:
        for file, content in files.items():
            Path(name, file).write_text(content)
        if error:
            raise error


def content(of: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in of.iterdir()}


def copy_some(source: str, target: str, count: int) -> None:
    """Renames a folder as a bucket does, file by file, but no more than `count`."""
    os.makedirs(target, exist_ok=True)
    for name in sorted(os.listdir(source))[:count]:
        os.replace(os.path.join(source, name), os.path.join(target, name))
    if not os.listdir(source):
        os.rmdir(source)


@pytest.mark.parametrize("there", [True, False])
def test_of_two_programs_that_write_a_folder_the_second_is_refused(tmp_path, there):
    path = str(tmp_path / "out")
    if there:
        write(tmp_path / "out", OLD)
        os.utime(tmp_path / "out" / "config.json", (1, 1))
    with (
        pytest.raises(UserError, match=f"^--output={path}: another program wrote this folder"),
        whole_folder(path, "output", "config.json", {*OLD, *NEW}, "an export"),
    ):
        write(tmp_path / "out", NEW)
    assert content(tmp_path / "out") == NEW
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("failing", [1, 2])
def test_a_disk_that_fails_is_not_taken_for_another_program(tmp_path, monkeypatch, failing):
    write(tmp_path / "out", OLD)
    stat, calls = tf.io.gfile.stat, []

    def fail(path):
        calls.append(path)
        if len(calls) == failing:
            raise tf.errors.UnavailableError(None, None, "no answer")
        return stat(path)

    monkeypatch.setattr(tf.io.gfile, "stat", fail)
    refuses(f"^--output={tmp_path}/out .*no answer", write, tmp_path / "out", NEW, kind=OSError)
    assert content(tmp_path / "out") == OLD
    assert os.listdir(tmp_path) == ["out"]


@pytest.fixture
def two_renames(monkeypatch):
    """Replaces a folder as where names cannot be exchanged in one step."""
    monkeypatch.setattr(whole_folders, "_exchange", lambda one, other: False)


def test_a_folder_is_never_missing_while_it_is_replaced(tmp_path):
    """Also its files are those of one folder, if they are opened through one descriptor of it."""
    out = tmp_path / "out"
    kinds = [{**OLD, "b": "old"}, NEW]
    write(out, kinds[0])
    found, ended = [], threading.Event()

    def look():
        while not ended.is_set():
            node = os.open(out, os.O_RDONLY)  # raises if it is missing
            with contextlib.suppress(FileNotFoundError):  # it was removed in the meantime
                texts = []
                for name in ("a", "b"):
                    with open(os.open(name, os.O_RDONLY, dir_fd=node)) as file:
                        texts.append(file.read())
                found.append(texts)
            os.close(node)

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        for i in range(60):
            write(out, kinds[i % 2])
        ended.set()
        looking.result()
    assert len(found) > 60
    assert {tuple(texts) for texts in found} == {("old", "old"), ("new", "newer")}
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("name", [b"\xe9t\xe9.txt", b"a\xff\xfe", b"\xe9 \xe8"])
def test_names_that_are_not_utf8_are_left_alone_beside_a_folder_and_named_inside(tmp_path, name):
    beside = os.path.join(os.fsencode(tmp_path), name)
    Path(os.fsdecode(beside)).write_text("mine")
    for files in (OLD, NEW):
        write(tmp_path / "out", files)
        assert content(tmp_path / "out") == files
    os.rename(beside, os.path.join(os.fsencode(tmp_path / "out"), name))
    message = refusal(write, tmp_path / "out", OLD)
    assert f"it has {os.fsdecode(name)!r}. Choose another folder" in message
    message.encode()  # can be printed


@pytest.mark.usefixtures("two_renames")
@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt()], ids=["full disk", "interrupt"])
@pytest.mark.parametrize("renamed", [0, 2, 3])
@pytest.mark.parametrize("there,failing", [(True, 1), (True, 2), (False, 1)])
def test_a_rename_that_fails_leaves_what_was_there(
    tmp_path, monkeypatch, there, failing, renamed, error
):
    """Also after some or all of the files, and with an interrupt between the two renames."""
    if there:
        write(tmp_path / "out", OLD)
    count = 0

    def rename(source, target, overwrite=False):
        nonlocal count
        count += 1
        copy_some(source, target, renamed if count == failing else 99)
        if count == failing:
            raise error

    monkeypatch.setattr(tf.io.gfile, "rename", rename)
    kind = OSError if error is FULL else KeyboardInterrupt
    message = refusal(write, tmp_path / "out", NEW, kind=kind)
    if error is FULL:
        assert f"--output={tmp_path}/out cannot be written: No space left" in message
    assert os.listdir(tmp_path) == (["out"] if there else [])
    if there:
        assert content(tmp_path / "out") == OLD


@pytest.mark.usefixtures("two_renames")
def test_what_cannot_be_put_back_is_kept_and_named(tmp_path, monkeypatch):
    write(tmp_path / "out", OLD)
    rename = tf.io.gfile.rename

    def fail_after_the_first(source, target, overwrite=False):
        monkeypatch.setattr(tf.io.gfile, "rename", fail)
        rename(source, target)

    def fail(source, target, overwrite=False):
        raise FULL

    monkeypatch.setattr(tf.io.gfile, "rename", fail_after_the_first)
    message = refusal(write, tmp_path / "out", NEW, kind=OSError)
    (kept,) = tmp_path.iterdir()
    assert message == (
        f"{tmp_path}/out could not be replaced, and what was there before could not be put back (No"
        f" space left on device): look for it in {kept}, and rename that to {tmp_path}/out"
    )
    assert content(kept) == OLD
    assert re.fullmatch(r".*\.unfinished\.replaced", kept.name)
    monkeypatch.undo()
    write(tmp_path / "out", NEW)
    assert content(kept) == OLD and content(tmp_path / "out") == NEW


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (tf.errors.ResourceExhaustedError, "No space left on device"),
        (tf.errors.ResourceExhaustedError, "Disk quota exceeded"),
        (tf.errors.InternalError, "Input/output error"),
        (tf.errors.PermissionDeniedError, "Read-only file system"),
        (tf.errors.UnknownError, "Input/output error"),  # in SaveV2
    ],
)
def test_an_error_of_writing_names_the_flag_and_one_of_computing_stays(tmp_path, kind, reason):
    for error in (
        tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor"),
        tf.errors.InvalidArgumentError(None, None, "Incompatible shapes: [2,3] vs. [5,7]"),
    ):
        with pytest.raises(type(error)) as raised:
            write(tmp_path / "out", NEW, error)
        assert raised.value is error and not os.listdir(tmp_path)
    node = "{{function_node __wrapped__SaveV2_device_/job:localhost/device:CPU:0}} "
    error = kind(None, None, f"{node}{reason} [Op:SaveV2] name: ")
    expected = (
        f"--output={tmp_path}/out cannot be written: {reason}. The folder above it must"
        " exist, be writable and have free space."
    )
    assert refusal(write, tmp_path / "out", NEW, error, kind=OSError) == expected
    assert not os.listdir(tmp_path)
    write(tmp_path / "out", OLD)
    message = refusal(write, tmp_path / "out", NEW, error, kind=OSError)
    assert message == f"{expected} The earlier folder is kept."
    assert content(tmp_path / "out") == OLD


def test_links_to_a_folder_are_followed(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    (tmp_path / "dangling").symlink_to("deep/new")
    for name, target in (("link", "there"), ("link/", "there"), ("dangling", "deep/new")):
        with whole_folder(f"{tmp_path}/{name}", "output", "a", {"a"}, "an export") as folder:
            Path(folder, "a").write_text(name)
        assert content(tmp_path / target) == {"a": name}
    assert (tmp_path / "link").is_symlink() and (tmp_path / "dangling").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["dangling", "deep", "link", "there"]


@pytest.mark.parametrize("why", ["mount", "current", "parent"])
def test_a_folder_that_cannot_be_renamed_is_refilled(tmp_path, monkeypatch, why):
    out = tmp_path / "out"
    out.mkdir()
    node = os.stat(out).st_ino
    if why == "mount":
        monkeypatch.setattr(os.path, "ismount", lambda path: path == str(out))
    elif why == "parent":
        monkeypatch.setattr(os, "access", lambda path, mode: path != str(tmp_path))
    else:
        monkeypatch.chdir(out)
    for files in (OLD, NEW):
        write(out, files)
        assert content(out) == files
    assert os.stat(out).st_ino == node and os.listdir(tmp_path) == ["out"]
    rename = tf.io.gfile.rename

    def fail_at_the_marker(source, target, overwrite=False):
        if target.endswith("config.json"):
            raise FULL
        rename(source, target, overwrite)

    monkeypatch.setattr(tf.io.gfile, "rename", fail_at_the_marker)
    refuses("No space left on device", write, out, OLD, kind=OSError)
    assert "config.json" not in content(out)  # so nothing takes it for a whole folder


NAMES = ("config.json", "vocab.txt", "labels.txt")


def write_names(folder, text):
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
    path, new = write_names(tmp_path / "1", "old"), write_names(tmp_path / "2", "new one")
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
    path = write_names(tmp_path / "a", "old")
    for error in (None, UserError("is damaged")):
        with pytest.raises(UserError, match="^is damaged$"), Unreplaced(path, NAMES, path):
            (tmp_path / "a" / f"run.heartbeat{error}").write_text("x")
            raise UserError("is damaged")
    with Unreplaced(path, NAMES, path):
        (tmp_path / "a" / "events").write_text("x")
    with pytest.raises(KeyboardInterrupt), Unreplaced(path, NAMES, path):
        touch(path, None)
        raise KeyboardInterrupt
    folder = "ram://replaced"
    for text in ("old", "newer"):
        with tf.io.gfile.GFile(f"{folder}/config.json", "w") as file:
            file.write(text)
        if text == "old":
            unreplaced = Unreplaced(folder, NAMES, folder)
            unreplaced.check()
    with pytest.raises(ReplacedError):
        unreplaced.check()
