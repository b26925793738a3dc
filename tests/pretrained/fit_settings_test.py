"""Tests of the settings of `fit`: lists for flags with commas, and what Python does not have."""

import re
import shutil

import numpy as np
import pytest
from absl import logging

import bert_tf
from bert_tf.errors import UserError
from bert_tf.runs.flags.settings import FineTuningOptions
from bert_tf.runs.folder.heartbeat import InUseError
from bert_tf.tasks import course
from bert_tf.tasks.arguments import option_value
from bert_tf.tasks.class_weights import entries_of
from bert_tf.tasks.course import as_arguments, make_task
from bert_tf.tasks.sentences.rows import SentenceRows
from tests.support.model_folders import random_weights, write_model

pytestmark = pytest.mark.usefixtures("uncompiled")

PAIRS = [("a cat", "the cat"), ("a dog", "it rained")]


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        ([128, 32], str | None, "128,32"),
        (["16", "32"], str, "16,32"),
        ((np.int64(8), 4), str, "8,4"),
        ([1, 0.5], list[str], ["1", "0.5"]),
        (("no:1", "yes:4"), list[str], ["no:1", "yes:4"]),
    ],
)
def test_a_list_stands_for_values_between_commas(value, hint, expected):
    assert option_value("sizes", value, hint) == expected


@pytest.mark.parametrize(
    ("value", "hint", "message"),
    [
        ([None, 1], str, "sizes must be a string; received [None, '1'] (list)"),
        (8, str | None, "sizes must be a string; received 8 (int)"),
        ([1], int, "sizes must be a whole number (int); received [1] (list)"),
        ("1,2", list[str], "sizes must be a list of strings; received '1,2' (str)"),
    ],
)
def test_other_values_are_refused(value, hint, message):
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        option_value("sizes", value, hint)


@pytest.mark.parametrize(
    ("labels", "weights", "expected"),
    [
        (("bad", "good"), {0: 2, "good": 1}, [("bad", 2), ("good", 1)]),
        (("False", "True"), {True: 2, np.int64(0): 0.5}, [("True", 2), ("False", 0.5)]),
        (("True", "False"), {True: 2, np.False_: 0.5}, [("True", 2), ("False", 0.5)]),
        (("1", "2", "3"), {1: 2, 3: np.float32(0.5)}, [("1", 2), ("3", 0.5)]),
        (("1", "2", "3"), {1.0: 2, np.float64(3): 0.5}, [("1", 2), ("3", 0.5)]),
        (("1", "2", "3"), {0: 2, 2: 1}, [("0", 2), ("2", 1)]),  # 0 is refused: it is no class
        (("10", "x"), {"x": 1, 1: 2}, [("x", 1), ("1", 2)]),
        (("bad", "good"), "balanced", ["balanced"]),
    ],
)
def test_weights_of_classes_by_name_or_number(labels, weights, expected):
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


@pytest.mark.parametrize(
    "error", [UserError, FloatingPointError, OSError, lambda text: InUseError(text, training=True)]
)
def test_a_user_s_own_text_keeps_its_dashes(error):
    """Also in the error of a training that diverged, and of a folder that is in use."""
    text = """'a --b', "--c", --good and data_dir=/x/--y; the model's"""
    raised = error(f"--labels: {text} --threshold")
    with pytest.raises(type(raised)) as found, as_arguments():
        raise raised
    assert str(found.value) == f"labels: {text} threshold"


def test_the_command_of_a_program_keeps_its_dashes():
    command = "`python -m tools.convert_checkpoint --input=x --output_dir=y`, run_x.py --a --no"
    with pytest.raises(UserError, match=f"^output_dir=x: {command} and labels$"), as_arguments():
        raise UserError(f"--output_dir=x: {command} and --labels")


def test_a_teacher_s_vectors_are_learned_from_single_texts():
    for texts, width in ((["a", "b c"], 1), (PAIRS, 2), ([list(pair) for pair in PAIRS], 2)):
        kind = SentenceRows()
        found = kind.examples("train", texts, None)
        assert {(type(x.texts), len(x.texts)) for x in found} == {(tuple, width)}
    for purpose in ("eval", "predict", "validation"):
        with pytest.raises(UserError, match=r"\[0\] must be a pair of texts, \(a, b\), or in trai"):
            kind.examples(purpose, ["a"], None if purpose == "predict" else [1.0])


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
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
        (
            PAIRS,
            {"loss": "in_batch_negatives", "min_positive_score": 0.5},
            "min_positive_score must be left out: fit learns from all pairs; choose them before",
        ),
        (
            PAIRS,
            {"retrieval_dir": "beir"},
            "retrieval_dir must be left out: save the model, and give its folder to run_sentence_",
        ),
    ],
)
def test_what_does_not_fit_the_texts_is_refused(rows, options, message):
    kind = SentenceRows()
    kind.examples("train", rows, None)
    with pytest.raises(UserError, match=f"^{re.escape(message)}"):
        make_task(kind, None, options, "train", (), 128, True)


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
    expected = f"batch_size=32 is larger than the {number} examples, which make no step; training"
    assert sum(text.startswith(expected) for text in warnings) == (batch < 32)


def test_a_few_texts_train_with_the_default_batch(tmp_path, warnings):
    folder = write_model(tmp_path / "model", random_weights())
    model = bert_tf.load(folder).for_classification(["x", "y"])
    texts, labels = ["the cat", "a dog", "the cat sat"], ["x", "y", "x"]
    model.fit(texts, labels, epochs=2, max_seq_length=8, verbose=0)
    assert len(model.predict(texts)) == 3
    assert any("training in batches of 3" in text for text in warnings)


def test_a_teacher_is_compared_by_its_vocabulary(tmp_path):
    """Of vectors, from single texts, and of classes; also for a student that was saved."""
    places = {
        name: write_model(tmp_path / name, random_weights(*heads), labels)
        for name, heads, labels in (
            ("encoder", (), None),
            ("classifier", ("classifier",), ["x", "y", "z"]),
        )
    }
    small = {"batch_size": 2, "epochs": 1, "verbose": 0, "length_buckets": "none"}
    texts = ["the cat", "a dog", "the cat sat", "the"]
    student = bert_tf.load(places["encoder"])
    vectors = student.for_sentences()
    small |= {"max_seq_length": 8}
    vectors.fit(texts, loss="teacher", teacher_checkpoint=places["encoder"], **small)
    vectors.save(tmp_path / "saved")
    again = bert_tf.load(tmp_path / "saved").for_classification(["x", "y", "z"])
    again.fit(texts, ["x", "y", "z", "x"], teacher_checkpoint=places["classifier"], **small)
    other = tmp_path / "other"
    shutil.copytree(places["classifier"], other)
    words = (other / "vocab.txt").read_text().splitlines()
    (other / "vocab.txt").write_text("\n".join([*words[:-2], words[-1], words[-2], ""]))
    with pytest.raises(UserError, match="teacher_checkpoint"):
        again.fit(texts, ["x", "y", "z", "x"], teacher_checkpoint=other, **small)
