"""Tests of bert_tf.files.model_notes."""

import json
import os
import re
from types import SimpleNamespace

import numpy as np
import pytest

from bert_tf.files.checkpoint_directory import CheckpointDirectory
from bert_tf.files.model_notes import (
    ModelInput,
    labels_in,
    read_model_input,
    write_labels,
    write_model_input,
)
from bert_tf.runs.training.fine_tuning_checks import learned_labels
from tests.support.refusals import refusal, refuses


@pytest.mark.parametrize("labels", [[], ["a"], ["b", "a"], ["\u200b, 3 #", "ü"]])
def test_what_is_written_is_read(tmp_path, labels):
    assert labels_in(str(tmp_path)) is None
    write_labels(str(tmp_path), labels)
    assert labels_in(str(tmp_path)) == labels
    for _ in range(2):
        write_labels(str(tmp_path), None)
        assert labels_in(str(tmp_path)) is None
    for content in (b"a\nb", b"a\r\nb\r\n", b"\xef\xbb\xbfa\nb\n"):  # of an editor
        (tmp_path / "labels.txt").write_bytes(content)
        assert labels_in(str(tmp_path)) == ["a", "b"]


def test_what_does_not_fit_on_a_line_is_refused(tmp_path):
    unfit = ["", " ", " a", "a\t", "a\nb", "a\r", "a\x85b", "a\u2028b", "\ufeffa", "\ud800"]
    control = ["a\0b", "\x1b[31mred", "a\x07", "\x7fa", "a\x9b2Jb"]
    for labels, rule in (
        ([*unfit, "\n" * 9999], "must be text on one line"),
        (control, "must not have control characters"),
    ):
        for label in labels:
            told = refusal(write_labels, str(tmp_path), ["b", label])
            assert re.search(f"/labels.txt: the class .* {rule}", told) and len(told) < 400
            assert told.isprintable() and not list(tmp_path.iterdir())


def test_damaged_files_are_refused(tmp_path):
    for content, message in (
        ("a\n\nb\n", "labels.txt, line 2: the class '' must be text on one line"),
        ("a\nb \n", "labels.txt, line 2: the class 'b ' must be"),
        ("a\nb\na\n", "labels.txt, line 3: the class 'a' is also on line 1; "),
    ):
        (tmp_path / "labels.txt").write_text(content)
        refuses(message, labels_in, str(tmp_path))


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


def test_another_content_is_refused(tmp_path):
    for content, message in (
        ("{", "is not JSON"),
        ("[]", "must hold a dictionary; received a list. Correct or delete it"),
        (json.dumps({"read": "pairs"}), "it has 'read'; correct it, or delete it"),
    ):
        (tmp_path / "model_input.json").write_text(content)
        told = refusal(read_model_input, str(tmp_path))
        assert message in told and f"{tmp_path}/model_input.json" in told
