"""Tests of the settings of `fit`: lists for flags with commas, and what Python does not have."""

import re
import shutil

import numpy as np
import pytest

import bert_tf
from bert_tf.errors import UserError
from bert_tf.pretrained.course import as_arguments, class_weights, typed
from bert_tf.pretrained.kinds.sentences import SentencesKind
from tests.support.model_folders import random_weights, write_model

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
    assert typed("sizes", value, hint) == expected


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
        typed("sizes", value, hint)


@pytest.mark.parametrize(
    ("labels", "weights", "expected"),
    [
        (("bad", "good"), {0: 2, "good": 1}, ["bad:2", "good:1"]),
        (("False", "True"), {True: 2, np.int64(0): 0.5}, ["True:2", "False:0.5"]),
        (("True", "False"), {True: 2, np.False_: 0.5}, ["True:2", "False:0.5"]),
        (("1", "2", "3"), {1: 2, 3: np.float32(0.5)}, ["1:2", "3:0.5"]),
        (("1", "2", "3"), {1.0: 2, np.float64(3): 0.5}, ["1:2", "3:0.5"]),
        (("1", "2", "3"), {0: 2, 2: 1}, ["0:2", "2:1"]),  # 0 is refused: it is no class
        (("10", "x"), {"x": 1, 1: 2}, ["x:1", "1:2"]),
    ],
)
def test_weights_of_classes_by_name_or_number(labels, weights, expected):
    assert class_weights(weights, labels) == expected


def test_the_command_of_a_program_keeps_its_dashes():
    command = "`python -m tools.convert_checkpoint --input=x --output_dir=y`, run_x.py --a --no"
    with pytest.raises(UserError, match=f"^b=x: {command} and c$"), as_arguments():
        raise UserError(f"--b=x: {command} and --c")


def test_a_teacher_s_vectors_are_learned_from_single_texts():
    for texts, width in ((["a", "b c"], 1), (PAIRS, 2), ([list(pair) for pair in PAIRS], 2)):
        kind = SentencesKind()
        found = kind.example_set("train", texts, None).examples
        assert {(type(x.texts), len(x.texts)) for x in found} == {(tuple, width)}
        assert ("text_b_column" in kind.decided()) == (width == 2)
    for purpose in ("eval", "predict", "validation"):
        with pytest.raises(UserError, match=r"\[0\] must be a pair of texts, \(a, b\), or in trai"):
            kind.example_set(purpose, ["a"], None if purpose == "predict" else [1.0])


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
    kind = SentencesKind()
    kind.example_set("train", rows, None)
    with pytest.raises(UserError, match=f"^{re.escape(message)}"):
        kind.check_options({"do_train": True, **options})


@pytest.mark.slow
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
