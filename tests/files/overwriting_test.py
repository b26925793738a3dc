"""Tests of bert_tf.files.overwriting."""

import os
import re

import pytest

from bert_tf.errors import UserError
from bert_tf.files import storage
from bert_tf.files.overwriting import check_overwrites


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
        with pytest.raises(UserError, match=message):
            check_overwrites(["new", written], "output_file", sources)
    check_overwrites([written], "output_file", {"vocab_file": "b.txt", "input_file": None})
    with pytest.raises(UserError, match="must not be a file of --vocab_file"):
        check_overwrites([written], "output_file", {"vocab_file": "link"})


@pytest.mark.parametrize("again", ["new", "./new", "here/new", f"{os.curdir}//new"])
def test_a_file_is_not_written_twice(folder, again):
    message = f"^--output_file={again} must not be named twice; each file needs a name of its own$"
    with pytest.raises(UserError, match=message):
        check_overwrites(["new", "other", again], "output_file", {})


@pytest.mark.parametrize("name", ["checkpoint", "model.ckpt-20.index", "run.heartbeat"])
def test_a_run_keeps_its_files(folder, name):
    """Records in the place of the list of checkpoints would end the run."""
    message = f"^--output_file=sub/{re.escape(name)} must not have the name of a file in which a"
    with pytest.raises(UserError, match=message):
        check_overwrites(["new", f"sub/{name}"], "output_file", {})


@pytest.mark.parametrize("written", [[""], ["a", ""]])
def test_a_file_has_a_name(folder, written):
    with pytest.raises(UserError, match="^--output_file must name a file; received an empty name"):
        check_overwrites(written, "output_file", {})


def test_names_in_a_bucket_are_compared_as_they_are():
    check_overwrites(["gs://b/x/../a"], "output_file", {"input_file": ["gs://b/a"]})
    with pytest.raises(UserError, match="must not be a file of --input_file"):
        check_overwrites(["gs://b/a"], "output_file", {"input_file": ["gs://b/a"]})


@pytest.mark.parametrize(
    "name,kind",
    [("nan", "a number"), ("None", "the name of a value"), ("out*", "a pattern"), ("-x", "a flag")],
)
def test_a_file_whose_name_is_a_mistake(name, kind):
    message = rf"^--output_file={re.escape(name)} must be the name of a file, but looks like {kind}"
    with pytest.raises(UserError, match=message + r".* write --output_file=\./"):
        check_overwrites(["new", name], "output_file", {})
    check_overwrites(["new", f"./{name}"], "output_file", {})
