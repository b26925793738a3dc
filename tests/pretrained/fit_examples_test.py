"""Tests of the texts and classes, one or several, that `fit` takes and refuses."""

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.tasks.classification.rows import ClassificationRows, MultiLabelRows, RegressionRows
from bert_tf.tasks.classification.settings import ClassifierOptions
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.course import as_arguments
from bert_tf.tasks.squad.rows import SquadRows
from bert_tf.tasks.tagging.rows import TaggingRows

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
    found = ClassificationRows(["bad", "good"]).examples("train", x, y)
    assert [(example.text_a, example.label) for example in found] == [
        *zip(TEXTS, NAMES, strict=True)
    ]


def test_pairs_and_classes_that_are_collected():
    pairs = [("a", "b"), ("c", "d"), "e"]
    kind = ClassificationRows()
    found = kind.examples("train", pairs, [10, 9, np.int64(10)])
    assert [(x.text_a, x.text_b, x.label) for x in found] == [
        ("a", "b", "10"),
        ("c", "d", "9"),
        ("e", None, "10"),
    ]
    assert kind.labels == ("9", "10")  # as numbers
    pairs = dataset((["a", "c"], ["b", "d"]), [0.5, 2])
    found = RegressionRows().examples("eval", pairs, None)
    assert [(x.text_a, x.text_b, x.label) for x in found] == [("a", "b", 0.5), ("c", "d", 2.0)]


@pytest.mark.parametrize(
    "labels", [[True, 1, 0], [0.0, True, -0.0], [False, np.float32(1), 0], ["1", 1, np.int8(0)]]
)
def test_equal_numbers_are_one_class(labels):
    kind = ClassificationRows()
    found = kind.examples("train", TEXTS, labels)
    assert [x.label for x in found] == [str(int(x)) for x in labels]
    assert kind.labels == ("0", "1")


CLASSES = ["bad", "good"]
BAD = {
    "length": (TEXTS, NAMES[:2], "labels must have one value for each of texts: there are 3 texts"),
    "more": (TEXTS[:1], NAMES, "there are 1 texts and 3 labels"),
    "empty": ([], [], "texts must have at least one example; there is none"),
    "empty array": (np.array([], str), [], "texts must have at least one example; there is none"),
    "no labels": (TEXTS, None, "labels must be given: one for each of texts. A tf.data."),
    "unknown": (TEXTS, ["good", "fine", "bad"], "labels[1] must be one of 'bad', 'good'; received"),
    "number": (TEXTS, [0, 1, 2], "labels[2] must be one of 'bad', 'good', or a number from 0 to 1"),
    "negative": (TEXTS, [0, 1, -1], "labels[2] must be one of 'bad', 'good', or a number from 0"),
    "None": (TEXTS, ["good", None, "bad"], "labels[1] is missing (None). Leave out the examples"),
    "NaN": (TEXTS, np.array([0, 1, np.nan]), "labels[2] is missing (nan). Leave out the examples"),
    "half": (TEXTS, [0, 0.5, 1], "labels[1] must be a class's name or number; received 0.5 (f"),
    "equal": (TEXTS, ["good"] * 3, "at least two classes; all are 'good', so there is nothing to"),
    "equal numbers": (TEXTS, [0, 0, 0], "at least two classes; all are 'bad', so there is nothing"),
    "one-hot": (TEXTS, np.eye(3), "Give the number of each example's class. For several classes"),
    **{
        f"several as {type(row).__name__}": (
            TEXTS,
            [row] * 3,
            "For several classes of a text, give for_classification multi_label=True",
        )
        for row in ([1, 0, 1], ("bad", "good"), {"bad"})
    },
    "several of a generator": (zip(TEXTS, np.eye(3), strict=True), None, "give for_classification"),
    "several of a dataset": (dataset(TEXTS, np.eye(3, dtype=int)), None, "give for_classification"),
    "several as a table": (TEXTS, pd.DataFrame(np.eye(3)), "give for_classification multi_label"),
    "columns": ([TEXTS, TEXTS], NAMES, "there are 2 texts and 3 labels"),
    "list of rows": ([*zip(TEXTS, NAMES, strict=True)], None, "labels must be given: one for each"),
    "table": (np.array([TEXTS, TEXTS]), NAMES, "(ndarray). Of a table take a column, table['text"),
    "two columns": (TEXTS, pd.DataFrame({"a": NAMES, "b": NAMES}), "labels must be a list, an arr"),
    "one text": ("a text", ["good"], "texts must be a list, an array or a column; received 'a te"),
    "one label": (TEXTS, "good", "labels must be a list, an array or a column; received 'good'"),
    "missing text": (["a", None, "c"], NAMES, "texts[1] must be a text or a pair of texts"),
    "NaN text": (["a", "b", float("nan")], NAMES, "texts[2] must be a text or a pair of texts"),
    "rows": (iter([("a", "good"), "b"]), None, "must give pairs (input, label), or all (input, la"),
    "dataset and labels": (dataset(TEXTS, NAMES), NAMES, "labels must not be given with a tf.data"),
    "no pairs": (
        tf.data.Dataset.from_tensor_slices(TEXTS),
        None,
        "texts must give pairs (input, label), or all ",
    ),
    "endless": (dataset(TEXTS, NAMES).repeat(), None, "texts must end, but the tf.data.Dataset re"),
    "bytes": (dataset([b"\xff"], [1]), None, "texts[0] must be UTF-8: invalid start byte"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_examples_are_refused_with_their_place(case):
    x, y, message = BAD[case]
    with pytest.raises(UserError, match=re.escape(message)):
        ClassificationRows(CLASSES).examples("train", x, y)


def test_classes_that_training_does_not_have():
    kind = ClassificationRows()
    with pytest.raises(UserError, match="labels must have at least two classes; all are 'good', "):
        kind.examples("train", TEXTS, ["good"] * 3)
    kind.examples("train", TEXTS, NAMES)
    message = r"validation_data\[1\]\[1\] must be one of 'bad', 'good', the classes of the training"
    with pytest.raises(UserError, match=f"{message} labels; received 'ugly'"):
        kind.examples("validation", TEXTS, ["good", "ugly", "bad"])
    with pytest.raises(UserError, match=r"the class ' good' must be text on one line"):
        ClassificationRows().examples("train", TEXTS, [" good", "bad", "bad"])


def test_a_class_without_examples_is_warned_of(warnings):
    ClassificationRows([*CLASSES, "ugly"]).examples("train", TEXTS, NAMES)
    assert warnings == ["labels: no example has the class 'ugly'"]


@pytest.mark.parametrize("value", [None, float("nan"), np.inf, "3", 1e39, [1]])
def test_wrong_numbers_are_refused(value):
    with pytest.raises(UserError, match=r"^labels\[1\] (must be a number from|is missing)"):
        RegressionRows().examples("train", ["a", "b"], [0.5, value])


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
        ClassificationRows(labels)
    if message.startswith("labels"):
        with pytest.raises(UserError, match="labels must be a list of the tags; received"):
            TaggingRows(labels)


@pytest.mark.parametrize(
    "labels",
    [("b", "a"), {"b": 0, "a": 1}.keys(), np.array(["b", "a"]), pd.Index(["b", "a"]), iter("ba")],
)
def test_classes_are_anything_with_an_order(labels):
    assert repr(ClassificationRows(labels).labels) == "('b', 'a')"


def test_a_question_is_named_by_its_place_in_the_list(caplog):
    caplog.set_level("WARNING", "absl")
    pairs = [("who", "a cat"), ("what", "the cat sat"), ("where", "on a mat")]
    two = {"text": ["cat", "sat"], "answer_start": [4, 8]}
    for answer, message in (
        (two, "exactly 1 answer; questions[1] has 2: keep one answer"),
        (("cat", "4"), "questions[1].answers[0]: `answer_start` must be a whole number; it is a s"),
        (("cat", 40), "questions[1]: an answer must lie within its context of 11 characters; this"),
    ):
        with pytest.raises(UserError, match=re.escape(message)), as_arguments():
            SquadRows().examples("train", pairs, ["cat", answer, "mat"])
    with as_arguments():
        SquadRows().examples("train", pairs, ["cat", ("cat", 8), "mat"])
    assert caplog.messages == ["questions[1]: Could not find answer: 'sat' vs. 'cat'"]


def test_several_labels_in_many_forms():
    expected = [("a", "b"), (), ("b",)]
    for labels, y in (
        (["a", "b"], [["b", "a"], [], {"b"}]),
        (["a", "b"], np.array([[1, 1], [0, 0], [0, 1]])),
        (["a", "b"], [(0, 1), (), np.array([1])]),
        (["a", "b"], [np.array([1, 1]), np.array([0, 0]), np.array([False, True])]),
        (["a", "b"], [np.array(["a", "b"]), np.array([], str), np.array(["b"])]),
        (None, [["a", "b"], [], ["b"]]),
    ):
        kind = MultiLabelRows(labels)
        found = kind.examples("train", ["x", "y", "z"], y)
        assert [example.label for example in found] == expected and kind.labels == ("a", "b")
    for y, message in (
        (["a", [], []], "labels[0] must be a list of classes, such as ['a', 'b'], or [] for none"),
        ([["a"], ["c"], []], "labels[1] must be one of 'a', 'b'; received 'c'"),
        ([["a"], [None], []], "labels[1] is missing (None)"),
        (
            [[1, 0], [0, 1], [1, 0]],
            "labels must be lists of classes; each has 2 numbers that are 0",
        ),
        ([["a", "b", "a"], [], []], "labels[0] must name each of its classes once; it names 'a'"),
        (
            [[0], [1, 1], []],
            "it names 'b' more often. For rows with 0 or 1 for each class give np.",
        ),
        (
            [np.array([2, 0]), [], []],
            "labels[0] as an array must have 0 or 1 for each of the classes",
        ),
        ([["b", "a"], ["a", "b"], {0, 1}], "labels must have examples with different classes; all"),
        ([[], [], []], "labels must have examples with different classes; all have none, so there"),
        (np.eye(3), "[texts, 2]; its shape is [3, 3]"),
        (np.full([3, 2], 0.5), "names; for 'a' in row 0, counted from 0, received 0.5 (float)"),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            MultiLabelRows(["a", "b"]).examples("train", ["x", "y", "z"], y)


@pytest.mark.parametrize("make", [pd.DataFrame, pa.table], ids=["pandas", "pyarrow"])
def test_columns_of_a_table_name_the_classes(make):
    texts, columns = ["x", "y", "z"], {"toxic": [1, 0, 1], "2": [0, 0, 1]}
    reversed_columns = dict(reversed(columns.items()))
    expected = {("toxic", "2"): ["toxic", "", "toxic+2"], ("2", "toxic"): ["toxic", "", "2+toxic"]}
    for labels, table in (
        (None, columns),
        (["toxic", "2"], reversed_columns),
        (None, reversed_columns),
    ):
        kind = MultiLabelRows(labels)
        found = kind.examples("train", texts, make(table))
        assert ["+".join(x.label) for x in found] == expected[kind.labels]
        again = kind.examples("eval", texts, make(columns))
        assert [x.label for x in again] == [x.label for x in found]
    assert kind.labels == ("2", "toxic")
    for labels, table, message in (
        (["toxic", "rude"], columns, "a column for each of the classes 'toxic', 'rude'; its colu"),
        (["toxic", "2", "rude"], columns, "classes 'toxic', '2', 'rude'; its columns are 't"),
        (None, {"toxic": [1, 0, 2], "2": [0, 0, 1]}, "for 'toxic' in row 2, counted from 0, rec"),
        (None, {"toxic": [1, 0, 1], "2": [0, None, 1]}, "row 1, counted from 0, received nan (fl"),
        (None, {"toxic": [1, 0, 1]}, "labels must list at least two classes"),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            MultiLabelRows(labels).examples("train", texts, make(table))


def test_rows_of_0_and_1_are_not_the_numbers_of_classes():
    rows, texts = [[1, 0, 1], [0, 0, 0], [0, 0, 1]], ["x", "y", "z"]
    expected = [("p", "r"), (), ("r",)]
    arrays = [np.array(row, np.float32) for row in rows]
    pairs = tf.data.Dataset.from_tensor_slices((texts, rows))
    for x, y in ((texts, arrays), (zip(texts, arrays, strict=True), None), (pairs, None)):
        found = MultiLabelRows(["p", "q", "r"]).examples("train", x, y)
        assert [example.label for example in found] == expected
    for labels in (["p", "q", "r"], None):
        for x, y in ((texts, rows), (zip(texts, rows, strict=True), None)):
            with pytest.raises(UserError, match=r"labels\[0\] must name .*give np\.array\(y\)"):
                MultiLabelRows(labels).examples("train", x, y)


def test_a_class_that_no_text_of_several_has_is_warned_of(warnings):
    kind = MultiLabelRows(["a", "b", "c"])
    kind.examples("eval", ["x", "y"], [["a"], ["a"]])
    assert warnings == []
    kind.examples("train", ["x", "y"], [["a", "c"], ["a"]])
    assert warnings == ["labels: no example has the class 'b'"]
    for y, found in (([[], []], "none"), ([["a"], ["a"]], "'a'")):
        for kind in (MultiLabelRows(["a", "b"]), MultiLabelRows()):
            with pytest.raises(UserError, match=f"all have {found}, so there is nothing to learn"):
                kind.examples("train", ["x", "y"], y)


def test_labels_of_several_may_have_any_sign():
    kind = MultiLabelRows(["a|b", "c,d"])
    rows = [["a|b", "c,d"], ["a|b"], []]
    found = kind.examples("train", ["x", "y", "z"], rows)
    assert [x.label for x in found] == [tuple(row) for row in rows]
    assert separator(kind) == ";"
    learned = MultiLabelRows()
    learned.examples("train", ["x", "y"], [["|", ",;/"], []])
    assert learned.labels == (",;/", "|")
    assert separator(learned) == "\x1f"
    assert separator(MultiLabelRows(["a", "b"])) == "|"


def separator(kind):
    """What stands between labels in the files of a run."""
    return ClassificationTask.of_rows(ClassifierOptions(), kind).processor.label_separator
