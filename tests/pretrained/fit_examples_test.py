"""Tests of the examples that `fit` takes and refuses: texts, classes, and `tf.data.Dataset`s.

Datasets are batched or not, and ragged where rows differ in length.
"""

import functools
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
from bert_tf.tasks.multiple_choice.data import MultipleChoiceRows
from bert_tf.tasks.sentences.data import SentenceRows
from bert_tf.tasks.squad.examples import SquadRows
from bert_tf.tasks.tagging.data import TaggingRows
from tests.pretrained.fit_tasks_test import (
    ANSWERS,
    CHOICES,
    PAIRS,
    QUESTIONS,
    SCORES,
    SENTENCES,
    TAGS,
)
from tests.support.refusals import refusal

TEXTS = ["a fine film", "a dull film", "lovely"]
NAMES = ["good", "bad", "good"]


def dataset(texts, labels):
    return tf.data.Dataset.from_tensor_slices((texts, labels))


def test_examples_come_in_many_forms():
    rows = [*zip(TEXTS, NAMES, strict=True)]
    for x, y in (
        (TEXTS, NAMES),
        (tuple(TEXTS), np.array(NAMES)),
        (np.array(TEXTS), np.array(NAMES, object)),
        (pd.Series(TEXTS), np.array([[1], [0], [1]], np.int64)),
        (TEXTS, np.array(NAMES, object)[:, np.newaxis]),
        (pd.Series(TEXTS), pd.Series(NAMES)),
        (pd.Series(TEXTS), pd.DataFrame({"stars": NAMES})),
        (TEXTS, pd.DataFrame({"stars": pd.array([1, 0, 1], dtype="Int64")})),
        (TEXTS, [1.0, np.float32(0), tf.constant(1)]),
        (TEXTS, [True, False, np.bool_(True)]),
        (iter(TEXTS), iter(NAMES)),
        (iter(rows), None),
        (dataset(TEXTS, NAMES), None),
        (dataset(TEXTS, [1, 0, 1]).batch(2), None),
    ):
        found = ClassificationRows(["bad", "good"]).examples("train", x, y)
        assert [(example.text_a, example.label) for example in found] == rows


def test_pairs_and_classes_that_are_collected():
    pairs = [("a", "b"), ("c", "d"), "e"]
    kind = ClassificationRows()
    found = kind.examples("train", pairs, [10, 9, np.int64(10)])
    rows = [("a", "b", "10"), ("c", "d", "9"), ("e", None, "10")]
    assert [(x.text_a, x.text_b, x.label) for x in found] == rows
    assert kind.labels == ("9", "10")  # as numbers
    pairs = dataset((["a", "c"], ["b", "d"]), [0.5, 2])
    found = RegressionRows().examples("eval", pairs, None)
    assert [(x.text_a, x.text_b, x.label) for x in found] == [("a", "b", 0.5), ("c", "d", 2.0)]
    numbers = [True, 1, 0], [0.0, True, -0.0], [False, np.float32(1), 0], ["1", 1, np.int8(0)]
    for labels in numbers:  # equal numbers are one class
        kind = ClassificationRows()
        found = kind.examples("train", TEXTS, labels)
        assert [x.label for x in found] == [str(int(x)) for x in labels]
        assert kind.labels == ("0", "1")


CLASSES = ["bad", "good"]
ALONE = tf.data.Dataset.from_tensor_slices(TEXTS)
SEVERAL, MULTI_LABEL = "If a text can have several classes", "for_classification multi_label=True"
BAD = {
    "length": (TEXTS, NAMES[:2], "labels must have one value for each of texts: there are 3 texts"),
    "empty": ([], [], "texts must have at least one example; there is none"),
    "no labels": (TEXTS, None, "labels must be given: one for each of texts. A tf.data."),
    "unknown": (TEXTS, ["good", "fine", "bad"], "labels[1] must be one of 'bad', 'good'; received"),
    "number": (TEXTS, [0, 1, 2], "labels[2] must be one of 'bad', 'good', or a number from 0 to 1"),
    "negative": (TEXTS, [0, 1, -1], "labels[2] must be one of 'bad', 'good', or a number from 0"),
    "None": (TEXTS, ["good", None, "bad"], "labels[1] is missing (None). Leave out the examples"),
    "half": (TEXTS, [0, 0.5, 1], "labels[1] must be a class's name or number; received 0.5 (f"),
    "one-hot": (TEXTS, np.eye(3), "Give the number of each example's class. If a text can have"),
    "list for several": (TEXTS, [[1, 0, 1]] * 3, f"{SEVERAL}, give {MULTI_LABEL}"),
    "tuple for several": (TEXTS, [("bad", "good")] * 3, f"{SEVERAL}, give {MULTI_LABEL}"),
    "set for several": (TEXTS, [{"bad"}] * 3, f"{SEVERAL}, give {MULTI_LABEL}"),
    "several of a generator": (zip(TEXTS, np.eye(3), strict=True), None, "give for_classification"),
    "several of a dataset": (dataset(TEXTS, np.eye(3, dtype=int)), None, "give for_classification"),
    "columns": ([TEXTS, TEXTS], NAMES, "there are 2 texts and 3 labels"),
    "list of rows": ([*zip(TEXTS, NAMES, strict=True)], None, "labels must be given: one for each"),
    "table": (np.array([TEXTS, TEXTS]), NAMES, "(ndarray). Give a column of a table, table['text"),
    "two columns": (TEXTS, pd.DataFrame({"a": NAMES, "b": NAMES}), "labels must be a list, an arr"),
    "one text": ("a text", ["good"], "texts must be a list, an array or a column; received 'a te"),
    "missing text": (["a", None, "c"], NAMES, "texts[1] must be a text or a pair of texts"),
    "rows": (iter([("a", "good"), "b"]), None, "must give pairs (input, label), or all (input, la"),
    "dataset and labels": (dataset(TEXTS, NAMES), NAMES, "labels must not be given with a tf.data"),
    "no pairs": (ALONE, None, "texts must give pairs (input, label), or all "),
    "endless": (dataset(TEXTS, NAMES).repeat(), None, "texts must end, but the tf.data.Dataset re"),
    "bytes": (dataset([b"\xff"], [1]), None, "texts[0] must be UTF-8: invalid start byte"),
}


def test_wrong_examples_are_refused_with_their_place():
    for name, (x, y, message) in BAD.items():
        assert message in refusal(ClassificationRows(CLASSES).examples, "train", x, y), name
    rows = iter(zip(TEXTS, NAMES, strict=True))
    told = refusal(ClassificationRows(CLASSES).examples, "train", rows, None, [1.0, 2.0, 1.0])
    assert told.startswith("sample_weight must not be given with a tf.data.Dataset or an iterator")
    for value in (None, float("nan"), np.inf, "3", 1e39, [1]):
        told = refusal(RegressionRows().examples, "train", ["a", "b"], [0.5, value])
        assert told.startswith(("labels[1] must be a number from", "labels[1] is missing"))


def test_classes_that_training_does_not_have(warnings):
    kind = ClassificationRows()
    kind.examples("train", TEXTS, NAMES)
    told = refusal(kind.examples, "validation", TEXTS, ["good", "ugly", "bad"])
    message = "validation_data[1][1] must be one of 'bad', 'good', the classes of the training"
    assert f"{message} labels; received 'ugly'" in told
    told = refusal(ClassificationRows().examples, "train", TEXTS, [" good", "bad", "bad"])
    assert "the class ' good' must be text on one line" in told
    ClassificationRows([*CLASSES, "ugly"]).examples("train", TEXTS, NAMES)
    assert warnings == ["labels: no example has the class 'ugly'"]


def test_wrong_classes_are_refused():
    must = "labels must be a list of the classes' names; received "
    for labels, message in (
        ("good", f"{must}'good'"),
        ([0, 1], must),
        ({"bad", "good"}, must + "{"),
        ({"good": 0, "bad": 1}, must + "{'good'"),
        (["good"], "--labels must list at least two classes"),
        (["a", "a"], "--labels names a class twice"),
    ):
        assert message in refusal(ClassificationRows, labels)
        if message.startswith("labels"):
            told = refusal(TaggingRows, labels)
            assert "labels must be a list of the tags; received" in told
    names = ("b", "a"), {"b": 0, "a": 1}.keys(), np.array(["b", "a"]), pd.Index(["b", "a"])
    for labels in (*names, iter("ba")):  # anything with an order
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
    marks, two, more = [[1, 0], [0, 1], [1, 0]], np.array([2, 0]), [[0], [1, 1], []]
    for y, message in (
        (["a", [], []], "labels[0] must be a list of classes, such as ['a', 'b'], or [] for none"),
        ([["a"], ["c"], []], "labels[1] must be one of 'a', 'b'; received 'c'"),
        ([["a"], [None], []], "labels[1] is missing (None)"),
        (marks, "labels must be lists of classes; each has 2 numbers that are 0"),
        ([["a", "b", "a"], [], []], "labels[0] must name each of its classes once; it names 'a'"),
        (more, "it names 'b' more than once. For rows with 0 or 1 for each class give np."),
        ([two, [], []], "labels[0] as an array must have 0 or 1 for each of the classes"),
        (np.eye(3), "[texts, 2]; its shape is [3, 3]"),
        (np.full([3, 2], 0.5), "names; for 'a' in row 0, counted from 0, received 0.5 (float)"),
    ):
        kind = MultiLabelRows(["a", "b"])
        assert message in refusal(kind.examples, "train", ["x", "y", "z"], y)


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
            told = refusal(MultiLabelRows(labels).examples, "train", x, y)
            assert re.search(r"labels\[0\] must name .*give np\.array\(y\)", told)


def test_a_class_that_no_text_of_several_has_is_warned_of(warnings):
    kind = MultiLabelRows(["a", "b", "c"])
    kind.examples("eval", ["x", "y"], [["a"], ["a"]])
    assert warnings == []
    kind.examples("train", ["x", "y"], [["a", "c"], ["a"]])
    assert warnings == ["labels: no example has the class 'b'"]


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


QUESTIONS, ANSWERS = QUESTIONS[1:], ANSWERS[1:]  # each with a context of its own

LETTERS = ["x", "y", "z"]
SEVERAL_ROWS = [("p", "q"), (), ("q",)]
MARKS = np.array([[1, 1], [0, 0], [0, 1]])
NUMBERS = tf.ragged.constant([[0, 1, 0], [1, 0, 0], [2]], tf.int64)
NAMED = [["O", "B-X", "O"], ["B-X", "O", "O"], ["I-X"]]
WORDS = [["a", "b", "c"], ["d", "e", "é"], ["f"]]
FOUND = {"text": [[x] for x, _ in ANSWERS], "answer_start": [[start] for _, start in ANSWERS]}


def columns(rows):
    return tuple(tf.constant(column) for column in zip(*rows, strict=True))


def named(kind, names):
    return functools.partial(kind, names.split())


TWO = WORDS[:2], NAMED[:2]
ragged = tf.ragged.constant
# Task -> the kind, tensors of all examples, and the same as lists.
OF_TASKS = {
    "tags": (TaggingRows, (ragged(SENTENCES), ragged(TAGS)), (SENTENCES, TAGS)),
    "tags of one length": (TaggingRows, (*map(tf.constant, TWO),), TWO),
    "tags by number": (named(TaggingRows, "O B-X I-X"), (ragged(WORDS), NUMBERS), (WORDS, NAMED)),
    "answers": (SquadRows, (columns(QUESTIONS), columns(ANSWERS)), (QUESTIONS, ANSWERS)),
    "answers as of Hugging Face": (
        SquadRows,
        (columns(QUESTIONS), {name: ragged(found) for name, found in FOUND.items()}),
        (QUESTIONS, ANSWERS),
    ),
    "choices": (MultipleChoiceRows, (columns(CHOICES), tf.constant([0, 1])), (CHOICES, [0, 1])),
    "scores": (SentenceRows, (columns(PAIRS), tf.constant(SCORES, tf.float64)), (PAIRS, SCORES)),
    "several labels as 0 and 1": (
        *(named(MultiLabelRows, "p q"), (tf.constant(LETTERS), tf.constant(MARKS))),
        (LETTERS, SEVERAL_ROWS),
    ),
    "several labels by name": (
        *(MultiLabelRows, (tf.constant(LETTERS), tf.ragged.constant(SEVERAL_ROWS, tf.string))),
        (LETTERS, SEVERAL_ROWS),
    ),
    "several labels by number": (
        named(MultiLabelRows, "p q r"),
        (tf.constant(LETTERS), tf.ragged.constant([[0, 2], [], [1]], tf.int64)),
        (LETTERS, [("p", "r"), (), ("q",)]),
    ),
}


@pytest.mark.parametrize("task", OF_TASKS)
def test_a_dataset_and_a_generator_have_the_examples_of_the_lists(task):
    make, tensors, lists = OF_TASKS[task]
    expected = repr(make().examples("train", *lists))
    dataset = tf.data.Dataset.from_tensor_slices(tensors)
    for each in (dataset, dataset.batch(1), dataset.batch(2), zip(*lists, strict=True)):
        assert repr(make().examples("train", each, None)) == expected


def test_other_ranks_and_dictionaries_are_refused():
    wide, sparse = tf.zeros([2, 3, 4, 5], tf.string), tf.sparse.from_dense([["a", "b"]])
    rows = {"text": LETTERS, "label": [0, 1, 0]}
    batches = "must be a tf.data.Dataset of inputs and labels, or of batches of them; its elem"
    for kind in (ClassificationRows, TaggingRows, MultipleChoiceRows):
        for elements in ((wide, [0, 1]), (sparse, [0])):
            dataset = tf.data.Dataset.from_tensor_slices(elements)
            told = refusal(kind().examples, "train", dataset, None)
            assert f"{kind.inputs} {batches}" in told
        for elements in (rows, (rows, [0, 1, 0])):
            dataset = tf.data.Dataset.from_tensor_slices(elements)
            for each in (dataset, dataset.batch(2)):
                told = refusal(kind().examples, "train", each, None)
                assert told.startswith(f"{kind.inputs} must be a tf.data.Dataset of inputs and lab")
                assert "'text'" in told
