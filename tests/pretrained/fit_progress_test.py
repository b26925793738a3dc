"""Tests of the progress of `fit`, of Keras's callbacks, and of `batch_size` and `verbose`."""

import re

import keras
import numpy as np
import pytest

from bert_tf import load, progress
from bert_tf.errors import UserError
from bert_tf.optimization import create_optimizer
from bert_tf.pretrained import forward
from bert_tf.runs.training.watch import CallbackWatch
from bert_tf.tasks import course
from bert_tf.tasks.classification.rows import ClassificationRows
from tests.support import model_folders

EPOCHS = ["Epoch 1/2", "2/2", "Epoch 2/2", "3/3"]


@pytest.mark.parametrize("verbose,lines", [(0, []), (2, EPOCHS), (1, EPOCHS), ("auto", EPOCHS)])
def test_progress_is_shown_as_by_keras(capsys, verbose, lines):
    watch = CallbackWatch(verbose=verbose)
    watch.begin(keras.Model(), None, 0, 5, 2.5, None)
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


def new_model():
    """A model with a weight of 0, and an optimizer of the programs with the rate 0.25."""
    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1, kernel_initializer="zeros")])
    return model, create_optimizer(model.trainable_variables, lambda step: 0.25)


def train(callbacks, values, name):
    """Trains epochs of one step, after which the weight is 1, 2, ...; returns the model."""
    (model, optimizer), rest = new_model(), iter(values)
    watch = CallbackWatch(callbacks)
    watch.begin(model, optimizer, 0, len(values), 1, lambda: {f"eval_{name}": next(rest)})
    watch.progress(len(values), 0)
    for step in range(1, len(values) + 1):
        model.variables[0].assign([[float(step)]])
        optimizer.iterations.assign(step)
        metrics = {"loss": (np.array([5.0 - step]), np.array([1.0]))}
        if not watch.after(step, {**metrics, "learning_rate": np.array([0.25])}):
            break
    watch.end()
    return model


@pytest.mark.parametrize(
    ("name", "values", "best"),
    [
        ("accuracy", [0.5, 0.75, 0.25], 2),
        ("pearson", [-0.5, -0.25, -0.75], 2),
        ("micro_f1", [0.75, 0.5, 0.25], 1),
        ("loss", [3.0, 2.0, 4.0], 2),
    ],
)
def test_early_stopping_knows_which_way_every_result_improves(name, values, best):
    early = keras.callbacks.EarlyStopping(f"val_{name}", patience=1, restore_best_weights=True)
    model = train([early], [*values, values[-1]], name)
    assert model.variables[0].numpy() == best and early.stopped_epoch == best


def test_callbacks_find_the_optimizer(tmp_path):
    board = keras.callbacks.TensorBoard(tmp_path / "board")
    kept = keras.callbacks.ModelCheckpoint(
        tmp_path / "{epoch}.weights.h5", "val_f1", save_best_only=True, save_weights_only=True
    )
    found = []

    class Read(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            optimizer = self.model.optimizer
            found.append((float(optimizer.learning_rate), int(optimizer.iterations)))

    model = train([board, kept, Read()], [0.25, 0.5, 0.25], "f1")
    assert found == [(0.25, 1), (0.25, 2), (0.25, 3)]
    assert model.history.model is model and model.optimizer is None  # moments are not kept
    assert {x.name for x in tmp_path.glob("*.h5")} == {"1.weights.h5", "2.weights.h5"}
    assert len([*tmp_path.glob("board/validation/events*")]) == 1


def test_a_metric_of_a_callback_still_needs_a_mode():
    class Own(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["own"] = 1.0

    for name in ("own", "learning_rate"):
        early = keras.callbacks.EarlyStopping(name)
        with pytest.raises(ValueError, match=f"monitor={name}, but Keras isn't able"):
            train([Own(), early], [1.0], "f1")


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        (
            keras.callbacks.ReduceLROnPlateau(),
            "ReduceLROnPlateau: it sets the learning rate, which follows learning_rate and warmup_",
        ),
        (
            keras.callbacks.LearningRateScheduler(lambda epoch: 0.1),
            "LearningRateScheduler: it sets the learning rate, which follows learning_rate and",
        ),
        (
            keras.callbacks.BackupAndRestore("backup"),
            "BackupAndRestore: it saves epochs, not steps; fit itself resumes in output_dir",
        ),
    ],
)
def test_callbacks_that_cannot_work_are_refused(callback, message):
    with pytest.raises(UserError, match=f"^callbacks must not have {message}"):
        CallbackWatch([keras.callbacks.TerminateOnNaN(), callback])


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

    monkeypatch.setattr(ClassificationRows, "predict", lambda *_: see(forward._batch_size.get()))
    of_program = {"evaluate": "eval_batch_size", "predict": "predict_batch_size"}
    rows = {"classifier": (["the cat"], ["x"]), "tagger": ([["the", "cat"]], [["O", "B-A"]])}
    for head, name in (("classifier", "evaluate"), ("tagger", "evaluate"), ("tagger", "predict")):
        field = of_program[name]
        monkeypatch.setattr(course, name, lambda task, *_: see(getattr(task.settings, field)))  # noqa: B023
        x = rows[head] if name == "evaluate" else rows[head][:1]
        with pytest.raises(StopIteration):
            getattr(models[head], name)(*x, batch_size=size, verbose=verbose)
    with pytest.raises(StopIteration):
        models["classifier"].predict(["the cat"], batch_size=size, verbose=verbose)
    assert seen == [(size or default, verbose == 0) for default in (8, 8, 8, 32)]
    assert not progress._is_hidden.get() and forward._batch_size.get() == forward.BATCH_SIZE
