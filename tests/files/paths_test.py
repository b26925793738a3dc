"""Which paths are written and read: of a pipe or a device reading might not end."""

import os
import re
import socket
import threading

import pytest
import tensorflow as tf

from bert_tf.datasets.wikipedia import read_articles
from bert_tf.errors import UserError
from bert_tf.files import storage
from bert_tf.files.checkpoint_names import listed_in
from bert_tf.files.model_notes import labels_in
from bert_tf.files.paths import check_overwrites
from bert_tf.files.records import write_files
from bert_tf.files.whole_files import UnfinishedFile, write_whole
from bert_tf.files.whole_folders import whole_folder
from bert_tf.model.family import read_config
from bert_tf.tasks.extraction.lines import count_lines, write_npz
from bert_tf.tasks.pretraining.records.manifest import common_manifest, manifest_file
from bert_tf.tasks.squad.examples import read_squad_examples
from bert_tf.tasks.tagging.data import read_sentences
from bert_tf.text.tokenizers import load_tokenizer
from tests.support.refusals import refusal, refuses
from tools.search import read_vectors


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "b.txt").write_text("b\n")
    (tmp_path / "link").symlink_to("a.txt")
    (tmp_path / "sub").mkdir()
    (tmp_path / "here").symlink_to(".")
    return tmp_path


@pytest.mark.parametrize(
    "written",
    ["a.txt", "./a.txt", "sub/../a.txt", "link", "here/a.txt", "ABSOLUTE", "file://ABSOLUTE"],
)
def test_a_file_that_is_read_is_not_written(folder, written):
    written = written.replace("ABSOLUTE", f"{folder}/a.txt")
    for read in ("a.txt", f"{folder}/here/a.txt", "link", "b.txt,link", "*.txt"):
        files = storage.expand_files(read, "input_file")
        message = rf"^--output_file={re.escape(written)} must not be a file of --input_file, which"
        sources = {"vocab_file": "b.txt", "input_file": files}
        refuses(message, check_overwrites, ["new", written], "output_file", sources)
    check_overwrites([written], "output_file", {"vocab_file": "b.txt", "input_file": None})
    with pytest.raises(UserError, match="must not be a file of --vocab_file"):
        check_overwrites([written], "output_file", {"vocab_file": "link"})


def test_names_that_are_refused(folder):
    for name, message in (
        *((x, f"={x} must not be named twice; ") for x in ("new", "./new", "here/new", ".//new")),
        # Records in the place of the list of checkpoints would end the run.
        ("sub/checkpoint", "=sub/checkpoint must not have the name of a file in which a"),
        ("sub/model.ckpt-20.index", "=sub/model.ckpt-20.index must not have the name of a file"),
        ("sub/run.heartbeat", "=sub/run.heartbeat must not have the name of a file in which a"),
        ("", " must name a file; received an empty name"),
        ("gs://b/a", "=gs://b/a must not be a file of --input_file"),
    ):
        sources = {"input_file": ["gs://b/a"]}
        check_overwrites(["new", "gs://b/x/../a"], "output_file", sources)
        refused = refusal(check_overwrites, ["new", "other", name], "output_file", sources)
        assert refused.startswith(f"--output_file{message}")


def test_the_target_of_a_link_is_written(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "old").write_text("before")
    for link, target in (("a", "there/old"), ("b", "a"), ("new", "there/new"), ("dir", "there")):
        (tmp_path / link).symlink_to(target)
    for name, target in (("b", "old"), ("new", "new"), ("dir/x", "x")):
        write_whole(str(tmp_path / name), name)
        assert (tmp_path / "there" / target).read_text() == name
    with write_files([f"file://{tmp_path}/a"], "output_file") as write:
        write(b"record")
    assert len((tmp_path / "there" / "old").read_bytes()) == 16 + len(b"record")
    assert all((tmp_path / link).is_symlink() for link in ("a", "b", "new", "dir"))
    assert sorted(os.listdir(tmp_path / "there")) == ["new", "old", "x"]


@pytest.mark.parametrize("writer", [None, tf.io.TFRecordWriter], ids=["bytes", "records"])
def test_a_pipe_gets_what_is_written(tmp_path, writer):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    with UnfinishedFile(str(tmp_path / "link"), None, writer) as file:
        file.write(b"first")
        file.write(b"second")
        file.finish()
    reader.join()
    assert read[0] == b"firstsecond" if writer is None else b"second" in read[0]
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"] and (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("path", ["/dev/null", "/dev/zero", "/dev/stderr"])
def test_a_device_stays_one(path):
    before = os.lstat(path)
    write_whole(path, "gone\n")
    with pytest.raises(ZeroDivisionError), UnfinishedFile(path) as file:
        file.write(b"gone\n")
        raise ZeroDivisionError
    assert os.path.samestat(os.lstat(path), before)


def test_what_is_neither_is_refused(tmp_path):
    refuses("No space left on device", write_whole, "/dev/full", "x", kind=OSError)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "s"))
    assert refusal(write_whole, str(tmp_path / "s"), "x") == (
        f"{tmp_path}/s must name a file, a pipe or a device like /dev/null, not a socket"
    )
    server.close()
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    for name in ("self", "one"):
        place = f"--output_file={tmp_path}/{name}"
        rule = f"{place} must not be a link that leads to itself; delete the link"
        assert refusal(UnfinishedFile, str(tmp_path / name), place) == rule
        folder = whole_folder(str(tmp_path / name), "output", "m", {"m"}, "an export")
        assert "must not be a link that leads to itself" in refusal(folder.__enter__)
    rule = "--output_file=/dev/null must name a regular file, but it is a pipe or a device"
    assert refusal(write_npz("/dev/null", [0], [], 3).__enter__) == rule


def test_a_link_to_itself_among_inputs_is_named(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    for name, target, reason in (
        ("loop", "loop.txt", "Too many levels of symbolic links"),
        ("nothing", "gone.txt", "No such file or directory"),
    ):
        link = tmp_path / f"{name}.txt"
        link.symlink_to(target)
        message = refusal(storage.expand_files, f"{tmp_path}/*.txt", "input_file")
        assert message == f"--input_file: {link} cannot be read: {link}; {reason}"
        link.unlink()


@pytest.mark.parametrize("links", [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "b/", "b": "./a"}])
def test_a_folder_that_is_a_link_to_itself(tmp_path, links):
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    for output_dir in (f"{tmp_path}/a", f"{tmp_path}/a/"):
        message = refusal(storage.make_output_dir, output_dir)
        rule = f"--output_dir={output_dir} must not be a link that leads to itself; delete the link"
        assert message == rule


@pytest.mark.parametrize("name", ["x" * 256, "ü" * 128, "a/" * 2050 + "b"])
def test_a_name_that_is_too_long_is_refused_before_the_work(tmp_path, name):
    path = str(tmp_path / name)
    end = " is too long for the file system; shorten the name"
    assert refusal(UnfinishedFile, path) == path + end
    folder = whole_folder(path, "output", "m", {"m"}, "an export")
    assert refusal(folder.__enter__) == f"--output={path}{end}"
    assert os.listdir(tmp_path) == []


READERS = {
    "squad": lambda path: read_squad_examples(path, "train_file", True, True),
    "conll": lambda path: list(read_sentences(path, "train_file", True)),
    "vocabulary": lambda path: load_tokenizer(path, True),
    "lines": count_lines,
    "wikipedia": lambda path: list(read_articles(path, "input")),
    "vectors": read_vectors,
    "configuration": read_config,
}


@pytest.mark.parametrize("name", READERS)
def test_reading_ends(name, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/full")
    for path in (str(tmp_path / "pipe"), str(tmp_path / "link"), "/dev/zero"):
        message = refusal(READERS[name], path)
        assert f"{path} must be a regular file, but it is a pipe or a device" in message
        assert message.startswith("--")


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero"])
def test_files_that_are_found_in_a_folder(kind, tmp_path):
    """They are refused as well, also where they are optional."""
    records = str(tmp_path / "a.tfrecord")
    reads = {
        manifest_file(records): lambda: common_manifest([records], "input_file"),
        str(tmp_path / "labels.txt"): lambda: labels_in(str(tmp_path)),
        str(tmp_path / "checkpoint"): lambda: listed_in(str(tmp_path)),
    }
    for path, read in reads.items():
        os.mkfifo(path) if kind == "pipe" else os.symlink(kind, path)
        refuses(f"^{path} must be a regular file", read)
