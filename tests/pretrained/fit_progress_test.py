"""Tests of what `fit` shows of its progress, and of Keras's `batch_size` and `verbose`."""

import re

import keras
import numpy as np
import pytest

from bert_tf import load, progress
from bert_tf.pretrained import course, forward
from bert_tf.pretrained.kinds.classification import ClassificationKind
from bert_tf.runs.training.watch import CallbackWatch
from tests.support import model_folders

EPOCHS = ["Epoch 1/2", "2/2", "Epoch 2/2", "3/3"]


@pytest.mark.parametrize("verbose,lines", [(0, []), (2, EPOCHS), (1, EPOCHS), ("auto", EPOCHS)])
def test_progress_is_shown_as_by_keras(capsys, verbose, lines):
    watch = CallbackWatch(verbose=verbose)
    watch.begin(keras.Model(), 0, 5, 2.5, None)
    watch.progress(5, 0)
    for step in (1, 2, 3, 4, 5):
        watch.after(step, {"loss": (np.array([step / 2]), np.array([1.0]))})
    watch.end()
    out, err = capsys.readouterr()
    is_bar = verbose in (1, "auto")
    assert err == "" and ("━" in out) == ("\b" in out) == is_bar
    plain = re.sub(r"\x1b\[\d+m", "", out)
    shown = [line.split("\r")[-1] for line in plain.split("\n")[:-1]]
    assert [re.match(r"(Epoch )?\d/\d", line)[0] for line in shown] == lines
    assert re.findall(r"loss: (\d\.\d+) *\n", out) == ["0.7500", "2.0000"][: len(lines) // 2]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A classifier and a tagger."""
    labels = {"classifier": ["x", "y", "z"], "tagger": ["O", "B-A", "I-A", "B-B", "I-B"]}
    folders = tmp_path_factory.mktemp("models")
    return {
        head: load(
            model_folders.write_model(
                folders / head, model_folders.random_weights(head), labels[head]
            )
        )
        for head in labels
    }


@pytest.mark.parametrize(("size", "verbose"), [(3, 0), (7, 1), (None, "auto")])
def test_batch_size_and_verbose_reach_the_computation(models, monkeypatch, size, verbose):
    seen = []

    def see(size):
        seen.append((size, progress._is_hidden.get()))
        raise StopIteration  # of all that follows

    monkeypatch.setattr(ClassificationKind, "predict", lambda *_: see(forward._batch_size.get()))
    of_program = {"evaluate": "eval_batch_size", "predict": "predict_batch_size"}
    rows = {"classifier": (["the cat"], ["x"]), "tagger": ([["the", "cat"]], [["O", "B-A"]])}
    for head, name in (("classifier", "evaluate"), ("tagger", "evaluate"), ("tagger", "predict")):
        field = of_program[name]
        monkeypatch.setattr(course, "predict", lambda _, made, *__: see(getattr(made, field)))  # noqa: B023
        x = rows[head] if name == "evaluate" else rows[head][:1]
        with pytest.raises(StopIteration):
            getattr(models[head], name)(*x, batch_size=size, verbose=verbose)
    with pytest.raises(StopIteration):
        models["classifier"].predict(["the cat"], batch_size=size, verbose=verbose)
    assert seen == [(size or default, verbose == 0) for default in (8, 8, 8, 32)]
    assert not progress._is_hidden.get() and forward._batch_size.get() == forward.BATCH_SIZE
