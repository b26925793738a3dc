"""Tests of the texts and classes that `fit` takes, and of those that it refuses."""

import re

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.pretrained import course
from bert_tf.pretrained.kinds.answers import AnswersKind
from bert_tf.pretrained.kinds.classification import ClassificationKind, RegressionKind
from bert_tf.pretrained.kinds.tagging import TaggingKind

TEXTS = ["a fine film", "a dull film", "lovely"]
NAMES = ["good", "bad", "good"]


class Column:
    """What `fit` needs of a column of pandas: a shape and the values."""

    def __init__(self, values):
        self.values = values
        self.shape = (len(values),)

    def __iter__(self):
        return iter(self.values)


def dataset(texts, labels):
    return tf.data.Dataset.from_tensor_slices((texts, labels))


@pytest.mark.parametrize(
    "x,y",
    [
        (TEXTS, NAMES),
        (tuple(TEXTS[i] for i in range(3)), np.array(NAMES)),
        (np.array(TEXTS), np.array(NAMES, object)),
        (Column(TEXTS), Column(NAMES)),
        (Column(TEXTS), np.array([[1], [0], [1]], np.int64)),
        (TEXTS, np.array(NAMES, object)[:, np.newaxis]),
        (pd.Series(TEXTS), pd.DataFrame({"stars": NAMES})),
        (TEXTS, pd.DataFrame({"stars": pd.array([1, 0, 1], dtype="Int64")})),
        (TEXTS, [1.0, np.float32(0), tf.constant(1)]),
        (TEXTS, [True, False, np.bool_(True)]),
        (iter(TEXTS), iter(NAMES)),
        (((text, name) for text, name in zip(TEXTS, NAMES, strict=True)), None),
        (dataset(TEXTS, NAMES), None),
        (dataset(TEXTS, [1, 0, 1]).batch(2), None),
    ],
)
def test_examples_come_in_many_forms(x, y):
    found = ClassificationKind(["bad", "good"]).example_set("train", x, y).examples
    assert [(example.text_a, example.label) for example in found] == [
        *zip(TEXTS, NAMES, strict=True)
    ]


def test_pairs_and_classes_that_are_collected():
    pairs = [("a", "b"), ("c", "d"), "e"]
    kind = ClassificationKind()
    found = kind.example_set("train", pairs, [10, 9, np.int64(10)]).examples
    assert [(x.text_a, x.text_b, x.label) for x in found] == [
        ("a", "b", "10"),
        ("c", "d", "9"),
        ("e", None, "10"),
    ]
    assert kind.labels == ("9", "10")  # as numbers
    pairs = dataset((["a", "c"], ["b", "d"]), [0.5, 2])
    found = RegressionKind().example_set("eval", pairs, None).examples
    assert [(x.text_a, x.text_b, x.label) for x in found] == [("a", "b", 0.5), ("c", "d", 2.0)]


CLASSES = ["bad", "good"]
BAD = {
    "length": (TEXTS, NAMES[:2], "labels must have one value for each of texts: there are 3 texts"),
    "more": (TEXTS[:1], NAMES, "there are 1 texts and 3 labels"),
    "empty": ([], [], "texts must have at least one example; there is none"),
    "empty array": (np.array([], str), [], "texts must have at least one example; there is none"),
    "no labels": (TEXTS, None, "labels must be given: one for each of texts. Give the two"),
    "unknown": (TEXTS, ["good", "fine", "bad"], "labels[1] must be one of 'bad', 'good'; received"),
    "number": (TEXTS, [0, 1, 2], "labels[2] must be one of 'bad', 'good', or a number from 0 to 1"),
    "negative": (TEXTS, [0, 1, -1], "labels[2] must be one of 'bad', 'good', or a number from 0"),
    "None": (TEXTS, ["good", None, "bad"], "labels[1] is missing (None). Leave out the examples"),
    "NaN": (TEXTS, np.array([0, 1, np.nan]), "labels[2] is missing (nan). Leave out the examples"),
    "half": (
        TEXTS,
        [0, 0.5, 1],
        "labels[1] must be a class's name or number; received 0.5 (f",
    ),
    "equal": (TEXTS, ["good"] * 3, "at least two classes; all are 'good', so there is nothing to"),
    "equal numbers": (TEXTS, [0, 0, 0], "at least two classes; all are 'bad', so there is nothing"),
    "one-hot": (
        TEXTS,
        np.eye(3),
        "labels must have one axis; its shape is [3, 3]. Give the num",
    ),
    "columns": ([TEXTS, TEXTS], NAMES, "texts must be pairs, not two columns: list(zip(*texts))"),
    "array of columns": ((np.array(TEXTS), np.array(TEXTS)), NAMES, "must be pairs, not two colum"),
    "list of rows": ([*zip(TEXTS, NAMES, strict=True)], None, "(of a list of rows: *zip(*rows)),"),
    "table": (np.array([TEXTS, TEXTS]), NAMES, "texts must have one axis; its shape is [2, 3]."),
    "two columns": (TEXTS, pd.DataFrame({"a": NAMES, "b": NAMES}), "is [3, 2]. Name the column: t"),
    "one text": (
        "a text",
        ["good"],
        "texts must be a list, an array or a column; received 'a te",
    ),
    "one label": (TEXTS, "good", "labels must be a list, an array or a column; received 'good'"),
    "missing text": (["a", None, "c"], NAMES, "texts[1] must be a text or a pair of texts"),
    "NaN text": (["a", "b", float("nan")], NAMES, "texts[2] must be a text or a pair of texts"),
    "rows": (
        iter([("a", "good"), "b"]),
        None,
        "must give pairs (input, label), or all (input, la",
    ),
    "dataset and labels": (dataset(TEXTS, NAMES), NAMES, "labels must not be given with a tf.data"),
    "no pairs": (
        tf.data.Dataset.from_tensor_slices(TEXTS),
        None,
        "texts must give pairs (input, label), or all ",
    ),
    "endless": (
        dataset(TEXTS, NAMES).repeat(),
        None,
        "texts must end, but the tf.data.Dataset re",
    ),
    "bytes": (dataset([b"\xff"], [1]), None, "texts[0] must be UTF-8: invalid start byte"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_examples_are_refused_with_their_place(case):
    x, y, message = BAD[case]
    with pytest.raises(UserError, match=re.escape(message)):
        ClassificationKind(CLASSES).example_set("train", x, y)


def test_classes_that_training_does_not_have():
    kind = ClassificationKind()
    with pytest.raises(UserError, match="labels must have at least two classes; all are 'good'. F"):
        kind.example_set("train", TEXTS, ["good"] * 3)
    kind.example_set("train", TEXTS, NAMES)
    message = r"validation_data\[1\]\[1\] must be one of 'bad', 'good', the classes of the training"
    with pytest.raises(UserError, match=f"{message} labels; received 'ugly'"):
        kind.example_set("validation", TEXTS, ["good", "ugly", "bad"])
    with pytest.raises(UserError, match=r"the class ' good' must be text on one line"):
        ClassificationKind().example_set("train", TEXTS, [" good", "bad", "bad"])


def test_a_class_without_examples_is_warned_of(warnings):
    ClassificationKind([*CLASSES, "ugly"]).example_set("train", TEXTS, NAMES)
    assert warnings == ["labels: no example has the class 'ugly'"]


@pytest.mark.parametrize("value", [None, float("nan"), np.inf, "3", 1e39, [1]])
def test_wrong_numbers_are_refused(value):
    with pytest.raises(UserError, match=r"^labels\[1\] (must be a number from|is missing)"):
        RegressionKind().example_set("train", ["a", "b"], [0.5, value])


@pytest.mark.parametrize(
    "labels,message",
    [
        ("good", "labels must be a list of the classes' names; received 'good'"),
        ([0, 1], "labels must be a list of the classes' names; received"),
        (3, "labels must be a list of the classes' names; received 3"),
        ({"bad", "good"}, "labels must be a list of the classes' names; received {"),
        ({"good": 0, "bad": 1}, "labels must be a list of the classes' names; received {'good'"),
        (["good"], "--labels must list at least two classes"),
        (["a", "a"], "--labels names a class twice"),
    ],
)
def test_wrong_classes_are_refused(labels, message):
    with pytest.raises(UserError, match=message):
        ClassificationKind(labels)
    if message.startswith("labels"):
        with pytest.raises(UserError, match="labels must be a list of the tags; received"):
            TaggingKind(labels)


@pytest.mark.parametrize(
    "labels",
    [("b", "a"), {"b": 0, "a": 1}.keys(), np.array(["b", "a"]), pd.Index(["b", "a"]), iter("ba")],
)
def test_classes_are_anything_with_an_order(labels):
    assert repr(ClassificationKind(labels).labels) == "('b', 'a')"


def test_a_question_is_named_by_its_place_in_the_list(caplog):
    caplog.set_level("WARNING", "absl")
    pairs = [("who", "a cat"), ("what", "the cat sat"), ("where", "on a mat")]
    two = {"text": ["cat", "sat"], "answer_start": [4, 8]}
    for answer, message in (
        (two, "exactly 1 answer; questions[1] has 2: keep one answer"),
        (("cat", "4"), "questions[1].answers[0]: `answer_start` must be a whole number; it is a s"),
        (("cat", 40), "questions[1]: an answer must lie within its context of 11 characters; this"),
    ):
        with pytest.raises(UserError, match=re.escape(message)), course.as_arguments():
            AnswersKind().example_set("train", pairs, ["cat", answer, "mat"])
    with course.as_arguments():
        AnswersKind().example_set("train", pairs, ["cat", ("cat", 8), "mat"])
    assert caplog.messages == ["questions[1]: Could not find answer: 'sat' vs. 'cat'"]
