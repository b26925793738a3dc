"""Tests of the settings of `fit`: lists for flags with commas, and what Python does not have.

Also of its progress, of Keras's callbacks, and of `batch_size` and `verbose`.
"""

import re
import shutil

import keras
import numpy as np
import pytest
from absl import logging

import bert_tf
from bert_tf import load, progress
from bert_tf.errors import UserError
from bert_tf.optimization import create_optimizer
from bert_tf.pretrained import forward
from bert_tf.runs.flags.settings import FineTuningOptions
from bert_tf.runs.folder.heartbeat import InUseError
from bert_tf.runs.training.watch import CallbackWatch
from bert_tf.tasks import course
from bert_tf.tasks.arguments import option_value
from bert_tf.tasks.class_weights import entries_of
from bert_tf.tasks.classification.rows import ClassificationRows
from bert_tf.tasks.course import as_arguments, make_task
from bert_tf.tasks.sentences.data import SentenceRows
from tests.support.exported_heads import write_head
from tests.support.refusals import refusal

pytestmark = pytest.mark.usefixtures("eager_if_quick")

PAIRS = [("a cat", "the cat"), ("a dog", "it rained")]


def test_a_list_stands_for_values_between_commas_and_what_is_refused():
    for value, hint, expected in (
        ([128, 32], str | None, "128,32"),
        (["16", "32"], str, "16,32"),
        ((np.int64(8), 4), str, "8,4"),
        ([1, 0.5], list[str], ["1", "0.5"]),
        (("no:1", "yes:4"), list[str], ["no:1", "yes:4"]),
    ):
        assert option_value("sizes", value, hint) == expected
    for value, hint, message in (
        ([None, 1], str, "sizes must be a string; received [None, '1'] (list)"),
        (8, str | None, "sizes must be a string; received 8 (int)"),
        ([1], int, "sizes must be a whole number (int); received [1] (list)"),
        ("1,2", list[str], "sizes must be a list of strings; received '1,2' (str)"),
    ):
        assert refusal(option_value, "sizes", value, hint) == message


def test_weights_of_classes_by_name_or_number():
    for labels, weights, expected in (
        (("bad", "good"), {0: 2, "good": 1}, [("bad", 2), ("good", 1)]),
        (("False", "True"), {True: 2, np.int64(0): 0.5}, [("True", 2), ("False", 0.5)]),
        (("True", "False"), {True: 2, np.False_: 0.5}, [("True", 2), ("False", 0.5)]),
        (("1", "2", "3"), {1: 2, 3: np.float32(0.5)}, [("1", 2), ("3", 0.5)]),
        (("1", "2", "3"), {1.0: 2, np.float64(3): 0.5}, [("1", 2), ("3", 0.5)]),
        (("1", "2", "3"), {0: 2, 2: 1}, [("0", 2), ("2", 1)]),  # 0 is refused: it is no class
        (("10", "x"), {"x": 1, 1: 2}, [("x", 1), ("1", 2)]),
        (("bad", "good"), "balanced", ["balanced"]),
    ):
        assert entries_of(weights, labels) == expected


def test_errors_and_warnings_name_arguments_not_flags(caplog):
    caplog.set_level("WARNING", "absl")
    with as_arguments():
        logging.warning("%d texts are longer than %s", 3, "--max_seq_length=16")
    logging.warning("--labels")
    assert [record.getMessage() for record in caplog.records] == [
        "3 texts are longer than max_seq_length=16",
        "--labels",
    ]
    message = "^labels, folder=x and a--b and max_seq_length$"
    with pytest.raises(UserError, match=message), as_arguments():
        raise UserError("--labels, --folder=x and a--b and --max_seq_length")
    with pytest.raises(UserError, match="^add validation_data, or$"), as_arguments():
        raise UserError("add --do_eval, or")


def test_a_command_and_a_user_s_own_text_keep_their_dashes():
    """Also in the error of a training that diverged, and of a folder that is in use."""
    command = "`python -m tools.convert_checkpoint --input=x --output_dir=y`, run_x.py --a --no"
    own = """'a --b', "--c", --good and data_dir=/x/--y; the model's"""
    in_use = lambda text: InUseError(text, training=True)  # noqa: E731
    for text in (command, own):
        for error in (UserError, FloatingPointError, OSError, in_use):
            raised = error(f"--labels: {text} and --threshold")
            with pytest.raises(type(raised)) as found, as_arguments():
                raise raised
            assert str(found.value) == f"labels: {text} and threshold"


def test_a_teacher_s_vectors_are_learned_from_single_texts():
    lists = [list(pair) for pair in PAIRS]
    for texts, width in ((["a", "b c"], 1), (PAIRS, 2), (lists, 2), (iter(PAIRS), 2)):
        kind = SentenceRows()
        found = kind.examples("train", texts, None)
        assert {(type(x.texts), len(x.texts)) for x in found} == {(tuple, width)}
    for purpose in ("eval", "predict", "validation"):
        told = refusal(kind.examples, purpose, ["a"], None if purpose == "predict" else [1.0])
        assert "[0] must be a pair of texts, (a, b), or in trai" in told


def test_what_does_not_fit_the_texts_is_refused():
    scores = {"loss": "in_batch_negatives", "min_positive_score": 0.5}
    choose = "fit learns from all pairs; filter them first"
    give = "save the model, and give its folder to run_sentence_"
    for rows, options, message in (
        (["a", "b"], {}, "loss must be one of 'teacher' for single texts; received 'cosine'"),
        (
            PAIRS,
            {"loss": "triplet"},
            "loss must be one of 'cosine', 'in_batch_negatives', 'teacher' for pairs; received 'tr",
        ),
        (
            [("a", "b", "c")],
            {},
            "loss must be one of 'triplet', 'in_batch_negatives' for triplets, (a, b, negative); r",
        ),
        (PAIRS, scores, f"min_positive_score must be left out: {choose}"),
        (PAIRS, {"retrieval_dir": "beir"}, f"retrieval_dir must be left out: {give}"),
    ):
        kind = SentenceRows()
        kind.examples("train", rows, None)
        told = refusal(make_task, kind, None, options, "train", (), 128, True)
        assert told.startswith(message)


@pytest.mark.slow
@pytest.mark.parametrize(
    "number, parts, epochs, batch",
    [(5, 1, 1, 5), (7, 2, 3, 6), (20, 1, 1, 20), (20, 1, 2, 32), (33, 1, 1, 32)],
)
def test_fewer_examples_than_a_batch_train_in_smaller_ones(warnings, number, parts, epochs, batch):
    options = FineTuningOptions(
        train_batch_size=32, num_train_epochs=float(epochs), gradient_accumulation_steps=parts
    )
    assert course._fitting_batch(options, number, 1).train_batch_size == batch
    expected = f"batch_size=32 is larger than the {number} examples, so there would be no step"
    assert sum(text.startswith(expected) for text in warnings) == (batch < 32)


def test_a_teacher_is_compared_by_its_vocabulary(tmp_path, warnings):
    """Of vectors, from single texts, and of classes; also for a student that was saved.

    A few texts train with the default batch.
    """
    encoder = write_head(tmp_path / "encoder", "encoder", num_layers=1)
    classifier = write_head(tmp_path / "classifier", "classification", num_layers=1)
    labels = ["no", "maybe", "yes"]
    small = {"epochs": 1, "verbose": 0, "length_buckets": "none", "max_seq_length": 8}
    texts = ["the cat", "a dog", "the cat sat", "the"]
    vectors = bert_tf.load(encoder).for_sentences()
    vectors.fit(texts, loss="teacher", teacher_checkpoint=encoder, batch_size=2, **small)
    vectors.save(tmp_path / "saved")
    again = bert_tf.load(tmp_path / "saved").for_classification(labels)
    warnings.clear()
    again.fit(texts[:3], labels, teacher_checkpoint=classifier, **small)
    assert any("training in batches of 3" in text for text in warnings)
    assert len(again.predict(texts)) == 4
    other = tmp_path / "other"
    shutil.copytree(classifier, other)
    words = (other / "vocab.txt").read_text().splitlines()
    (other / "vocab.txt").write_text("\n".join([*words[:-2], words[-1], words[-2], ""]))
    told = refusal(again.fit, texts[:3], labels, teacher_checkpoint=other, **small)
    assert "teacher_checkpoint" in told


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


def test_early_stopping_knows_which_way_every_result_improves():
    for name, values, best in (
        ("accuracy", [0.5, 0.75, 0.25], 2),
        ("pearson", [-0.5, -0.25, -0.75], 2),
        ("micro_f1", [0.75, 0.5, 0.25], 1),
        ("loss", [3.0, 2.0, 4.0], 2),
    ):
        early = keras.callbacks.EarlyStopping(f"val_{name}", patience=1, restore_best_weights=True)
        model = train([early], [*values, values[-1]], name)
        assert model.variables[0].numpy() == best and early.stopped_epoch == best


def test_callbacks_find_the_optimizer(tmp_path):
    board = keras.callbacks.TensorBoard(tmp_path / "board")
    options = {"save_best_only": True, "save_weights_only": True}
    kept = keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.weights.h5", "val_f1", **options)
    found, read = [], keras.callbacks.Callback()

    def on_epoch_end(epoch, logs=None):
        optimizer = read.model.optimizer
        found.append((float(optimizer.learning_rate), int(optimizer.iterations)))

    read.on_epoch_end = on_epoch_end
    model = train([board, kept, read], [0.25, 0.5, 0.25], "f1")
    assert found == [(0.25, 1), (0.25, 2), (0.25, 3)]
    assert model.history.model is model and model.optimizer is None  # moments are not kept
    assert {x.name for x in tmp_path.glob("*.h5")} == {"1.weights.h5", "2.weights.h5"}
    assert len([*tmp_path.glob("board/validation/events*")]) == 1


def test_callbacks_that_cannot_work_are_refused():
    rate = "it sets the learning rate, which follows learning_rate and warmup_"
    resumes = "it saves epochs, not steps; fit itself resumes in output_dir"
    for callback, reason in (
        (keras.callbacks.ReduceLROnPlateau(), rate),
        (keras.callbacks.LearningRateScheduler(lambda epoch: 0.1), rate),
        (keras.callbacks.BackupAndRestore("backup"), resumes),
    ):
        told = refusal(CallbackWatch, [keras.callbacks.TerminateOnNaN(), callback])
        assert told.startswith(f"callbacks must not have {type(callback).__name__}: {reason}")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    heads = ("classification", "tagging")
    return {head: load(write_head(root / head, head, num_layers=1)) for head in heads}


@pytest.mark.parametrize(("size", "verbose"), [(3, 0), (7, 1), (None, "auto")])
def test_batch_size_and_verbose_reach_the_computation(models, monkeypatch, size, verbose):
    seen = []

    def see(size):
        seen.append((size, progress._is_hidden.get()))
        raise StopIteration  # of all that follows

    monkeypatch.setattr(ClassificationRows, "predict", lambda *_: see(forward._batch_size.get()))
    of_program = {"evaluate": "eval_batch_size", "predict": "predict_batch_size"}
    rows = {"classification": (["the cat"], ["no"]), "tagging": ([["a", "cat"]], [["O", "B-PER"]])}
    calls = ("classification", "evaluate"), ("tagging", "evaluate"), ("tagging", "predict")
    for head, name in calls:
        field = of_program[name]
        monkeypatch.setattr(course, name, lambda task, *_: see(getattr(task.settings, field)))  # noqa: B023
        x = rows[head] if name == "evaluate" else rows[head][:1]
        with pytest.raises(StopIteration):
            getattr(models[head], name)(*x, batch_size=size, verbose=verbose)
    with pytest.raises(StopIteration):
        models["classification"].predict(["the cat"], batch_size=size, verbose=verbose)
    assert seen == [(size or default, verbose == 0) for default in (8, 8, 8, 32)]
    assert not progress._is_hidden.get() and forward._batch_size.get() == forward.BATCH_SIZE
