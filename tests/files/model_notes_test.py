"""Tests of bert_tf.files.model_notes."""

import json
import os
from types import SimpleNamespace

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.files.checkpoint_directory import CheckpointDirectory
from bert_tf.files.model_notes import (
    ModelInput,
    labels_in,
    read_model_input,
    write_labels,
    write_model_input,
)
from bert_tf.runs.training.fine_tuning_checks import learned_labels


@pytest.mark.parametrize("labels", [[], ["a"], ["b", "a"], ["\u200b, 3 #", "ü"]])
def test_what_is_written_is_read(tmp_path, labels):
    assert labels_in(str(tmp_path)) is None
    write_labels(str(tmp_path), labels)
    assert labels_in(str(tmp_path)) == labels
    write_labels(str(tmp_path), None)
    assert labels_in(str(tmp_path)) is None
    write_labels(str(tmp_path), None)


@pytest.mark.parametrize("content", [b"a\nb", b"a\r\nb\r\n", b"\xef\xbb\xbfa\nb\n"])
def test_files_of_an_editor(tmp_path, content):
    (tmp_path / "labels.txt").write_bytes(content)
    assert labels_in(str(tmp_path)) == ["a", "b"]


UNFIT = ["", " ", " a", "a\t", "a\nb", "a\r", "a\x85b", "a\u2028b", "\ufeffa", "\ud800"]
UNFIT.append("\n" * 9999)


@pytest.mark.parametrize("label", UNFIT, ids=range(len(UNFIT)))
def test_what_does_not_fit_on_a_line_is_refused(tmp_path, label):
    with pytest.raises(UserError, match="/labels.txt: the class .* must be text on one line") as e:
        write_labels(str(tmp_path), ["b", label])
    assert not list(tmp_path.iterdir()) and len(str(e.value)) < 400 and "\n" not in str(e.value)


@pytest.mark.parametrize("label", ["a\0b", "\x1b[31mred", "a\x07", "\x7fa", "a\x9b2Jb"])
def test_control_characters_are_refused_and_not_shown(tmp_path, label):
    with pytest.raises(UserError, match="the class .* must not have control characters") as error:
        write_labels(str(tmp_path), ["b", label])
    assert not list(tmp_path.iterdir()) and str(error.value).isprintable()


@pytest.mark.parametrize(
    "content, message",
    [
        ("a\n\nb\n", "labels.txt, line 2: the class '' must be text on one line"),
        ("a\nb \n", "labels.txt, line 2: the class 'b ' must be"),
        ("a\nb\na\n", "labels.txt, line 3: the class 'a' is also on line 1; "),
    ],
)
def test_damaged_files_are_refused(tmp_path, content, message):
    (tmp_path / "labels.txt").write_text(content)
    with pytest.raises(UserError, match=message):
        labels_in(str(tmp_path))


def test_they_are_those_of_the_model_that_the_run_begins_with(tmp_path):
    own, other = str(tmp_path / "own"), str(tmp_path / "other")
    for folder, labels in ((own, ["a", "b"]), (other, ["c"])):
        os.mkdir(folder)
        write_labels(folder, labels)

    def read_labels(output_dir, init_checkpoint, do_train=False):
        return learned_labels(SimpleNamespace(**locals()))

    assert read_labels(own, None) is None  # no model has learned them
    values = {"w": np.zeros(2, np.float32), "global_step": np.int64(3)}
    CheckpointDirectory(other).save(values, 3)
    assert read_labels(own, other) == read_labels(own, f"{other}/model.ckpt-3") == ["c"]
    assert read_labels(own, other, do_train=True) is None  # the head is new
    CheckpointDirectory(own).save(values, 3)
    assert read_labels(own, other) == ["a", "b"]


def test_there_and_back(tmp_path):
    assert read_model_input(str(tmp_path)) == ModelInput()
    windows = ModelInput("texts", 64, "max", 20), ModelInput("texts", 64, "mean")
    for found in (ModelInput("pairs", 128), ModelInput(None, 12), ModelInput("choices"), *windows):
        write_model_input(str(tmp_path), found)
        assert read_model_input(str(tmp_path)) == found
    write_model_input(str(tmp_path), ModelInput())  # of a model that is written over it
    assert not [*tmp_path.iterdir()]
    write_model_input(str(tmp_path), ModelInput())


@pytest.mark.parametrize(
    "content, message",
    [
        ("{", "is not JSON"),
        ("[]", r"must hold a dictionary; received a list. Correct or delete it"),
        (json.dumps({"read": "pairs"}), "it has 'read'; correct it, or delete it"),
    ],
)
def test_another_content_is_refused(tmp_path, content, message):
    (tmp_path / "model_input.json").write_text(content)
    with pytest.raises(UserError, match=message) as info:
        read_model_input(str(tmp_path))
    assert f"{tmp_path}/model_input.json" in str(info.value)
