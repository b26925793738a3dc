"""Tests of several labels for each text, as `fit` takes and refuses them."""

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.pretrained.kinds.classification import MultiLabelKind
from bert_tf.tasks.classification.settings import ClassifierSettings


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
        kind = MultiLabelKind(labels)
        found = kind.example_set("train", ["x", "y", "z"], y).examples
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
            "labels[0] is an array with a number for each of the 2 classe",
        ),
        ([["b", "a"], ["a", "b"], {0, 1}], "labels must have examples with different classes; all"),
        ([[], [], []], "labels must have examples with different classes; all have none, so there"),
        (np.eye(3), "[texts, 2]; its shape is [3, 3]"),
        (np.full([3, 2], 0.5), "names; for 'a' in row 0, counted from 0, received 0.5 (float)"),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            MultiLabelKind(["a", "b"]).example_set("train", ["x", "y", "z"], y)


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
        kind = MultiLabelKind(labels)
        found = kind.example_set("train", texts, make(table)).examples
        assert ["+".join(x.label) for x in found] == expected[kind.labels]
        again = kind.example_set("eval", texts, make(columns)).examples
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
            MultiLabelKind(labels).example_set("train", texts, make(table))


def test_rows_of_0_and_1_are_not_the_numbers_of_classes():
    rows, texts = [[1, 0, 1], [0, 0, 0], [0, 0, 1]], ["x", "y", "z"]
    expected = [("p", "r"), (), ("r",)]
    arrays = [np.array(row, np.float32) for row in rows]
    pairs = tf.data.Dataset.from_tensor_slices((texts, rows))
    for x, y in ((texts, arrays), (zip(texts, arrays, strict=True), None), (pairs, None)):
        found = MultiLabelKind(["p", "q", "r"]).example_set("train", x, y).examples
        assert [example.label for example in found] == expected
    for labels in (["p", "q", "r"], None):
        for x, y in ((texts, rows), (zip(texts, rows, strict=True), None)):
            with pytest.raises(UserError, match=r"labels\[0\] must name .*give np\.array\(y\)"):
                MultiLabelKind(labels).example_set("train", x, y)


def test_a_class_that_no_text_of_several_has_is_warned_of(warnings):
    kind = MultiLabelKind(["a", "b", "c"])
    kind.example_set("eval", ["x", "y"], [["a"], ["a"]])
    assert warnings == []
    kind.example_set("train", ["x", "y"], [["a", "c"], ["a"]])
    assert warnings == ["labels: no example has the class 'b'"]
    for y, found in (([[], []], "none"), ([["a"], ["a"]], "'a'")):
        with pytest.raises(UserError, match=f"all have {found}, so there is nothing to learn"):
            MultiLabelKind(["a", "b"]).example_set("train", ["x", "y"], y)
        with pytest.raises(
            UserError, match=f"labels must have at least two classes; it has {found}"
        ):
            MultiLabelKind().example_set("train", ["x", "y"], y)


def test_labels_of_several_may_have_any_sign():
    kind = MultiLabelKind(["a|b", "c,d"])
    rows = [["a|b", "c,d"], ["a|b"], []]
    found = kind.example_set("train", ["x", "y", "z"], rows).examples
    assert [x.label for x in found] == [tuple(row) for row in rows]
    assert separator(kind) == ";"
    learned = MultiLabelKind()
    learned.example_set("train", ["x", "y"], [["|", ",;/"], []])
    assert learned.labels == (",;/", "|")
    assert separator(learned) == "\x1f"
    assert separator(MultiLabelKind(["a", "b"])) == "|"


def separator(kind):
    """What stands between labels in the files of a run."""
    settings = ClassifierSettings(output_dir="o", vocab_file="v")
    return kind.task(settings).processor.label_separator
