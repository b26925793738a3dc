"""Tests of the arguments of a loaded model: which collections are texts, and what is refused."""

import collections
import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.pretrained import arguments
from bert_tf.pretrained.arguments import as_list, check_type
from bert_tf.pretrained.kinds.answers import AnswersKind
from bert_tf.pretrained.kinds.choices import ChoicesKind
from bert_tf.pretrained.kinds.classification import MultiLabelKind
from bert_tf.pretrained.kinds.tagging import TaggingKind


class Column:
    """Like a column of pandas: one axis, gives its values."""

    def __init__(self, *values):
        self._values = values
        self.shape = (len(values),)

    def __iter__(self):
        return iter(self._values)


class Table:
    """Like a table of pandas or polars: two axes, gives the names of its columns."""

    columns = Column("review", "stars")
    shape = (3, 2)

    def __iter__(self):
        return iter(self.columns)


class ArrowTable(Table):
    columns = (object(), object())
    column_names = ("body",)


class ArrowText:
    def as_py(self):
        return "a"


INDEXED = collections.namedtuple("Row", "Index a")  # as of DataFrame.itertuples()
NA = type("NAType", (), {"__repr__": lambda self: "<NA>"})()


@pytest.mark.parametrize(
    "texts",
    [
        ["a", "b c"],
        np.array(["a", "b c"]),
        np.array(["a", "b c"], object),
        Column("a", "b c"),
        collections.deque(["a", "b c"]),
        {0: "a", 1: "b c"}.values(),
        dict.fromkeys(["a", "b c"]).keys(),
        np.array([["a", "b c"], ["d", "e"]])[0],
    ],
)
def test_what_gives_texts_in_an_order_is_a_list(texts):
    for pairs in (False, True):
        assert as_list(texts, pairs) == (["a", "b c"], False)


def test_a_generator_is_read_once_and_nothing_is_an_empty_list():
    assert as_list(text for text in "ab") == (["a", "b"], False)
    assert as_list(map(str, [1, 2]), pairs=True) == (["1", "2"], False)
    for empty in ([], (), np.array([]), Column(), iter(())):
        assert as_list(empty, pairs=True) == ([], False)


def test_a_tuple_is_a_pair_where_pairs_are_texts_and_else_a_list():
    row = collections.namedtuple("Row", "a b")("x", "y")  # as of DataFrame.itertuples(index=False)
    assert as_list(("x", "y"), pairs=True) == ([("x", "y")], True)
    assert as_list(row, pairs=True) == ([row], True)
    assert as_list(["z", row], pairs=True) == (["z", row], False)
    assert as_list((("x", "y"), ("z", "")), pairs=True) == ([("x", "y"), ("z", "")], False)
    assert as_list(("x", "y")) == (["x", "y"], False)
    assert as_list(("x", "y", "z")) == (["x", "y", "z"], False)
    assert as_list(np.str_("x"), pairs=True) == (["x"], True)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            ("x",),
            "texts is a tuple, so it must be one pair of texts, (a, b); received ('x',) (tupl",
        ),
        (("x", "y", "z"), "('x', 'y', 'z') (tuple). Write several texts as a list: [a, b]"),
        (
            ("x", None),
            "texts is a tuple, so it must be one pair of texts, (a, b); received ('x', N",
        ),
        (("x", ("y", "z")), "texts is a tuple, so it must be one pair"),
        (
            [("x",), ("y",)],
            "texts[0] must be a text or a pair of texts, (a, b); received ('x',) (tu",
        ),
        ([("x",), ("y",)], "Take the text of each row: [row[0] for row in texts]"),
        ([["x"]], "(list). Take the text of each row: [row[0] for row in texts]"),
        ([INDEXED("i", "x")], "received Row(Index='i', a='x') (Row). Leave out the index: itertup"),
        ([("x", "y", "z")], "A tuple is one pair of two texts; write texts as a list: [a, b]"),
        ([("x", 1), ("y", 0)], "Leave labels out: [text for text, _ in texts]; of a tf.data.Datas"),
        ([(("x", "y"), np.int32(1))], "Leave labels out: [text for text, _ in texts]; of a tf.da"),
        (type, "texts must be a text or a list of texts; received <class 'type'> (type)"),
        ([("x", "y", "z")], "texts[0] must be a text or a pair of texts, (a, b); received ('x',"),
        (enumerate("x"), "texts[0] must be a text or a pair of texts, (a, b); received (0, 'x')"),
        ([["x", "y"]], "Write pairs as tuples: [tuple(row) for row in texts]"),
        ([np.array(["x", "y"])], "Write pairs as tuples: [tuple(row) for row in texts]"),
        ([[["x"]]], "texts[0] must be a text or a pair of texts, (a, b); received [['x']] (list)"),
        (Table(), "(Table). Name the column with the texts, such as texts['text'], or two for pa"),
        (Table(), "The table has 'review', 'stars'"),
        (ArrowTable(), "The table has 'body'"),
        (np.array([["x"], ["y"]]), "(ndarray). Take one axis: texts[:, 0]; for pairs, list(map("),
        (tf.constant([["x", "y"]]), "(EagerTensor). Take one axis: texts[:, 0]"),
        (np.array("x"), "(ndarray). Write the text of an array without axes as texts.item()"),
        (tf.constant("x"), "(EagerTensor). Write the text of an array without axes as"),
        (tf.constant(["x", "y"]), "Take a tensor's texts: [x.decode() for x in texts.numpy()]"),
        (tf.data.Dataset.from_tensors("x"), "texts: [x.decode() for x in texts.numpy()]"),
        ([ArrowText()], "(ArrowText). Write the texts of an Arrow column as texts.to_pylist()"),
        ({"x", "y"}, "(set). A set has no order that the results could keep; write sorted(texts)"),
        (frozenset("x"), "(frozenset). A set has no order"),
        ({"x": "y"}, "(dict). A dictionary is not a list; write its texts: list(texts.values())"),
        ({"x": "y"}.items(), "(dict_items). A dictionary is not a list"),
        (collections.Counter("x"), "(Counter). A dictionary is not a list"),
        ([{"text": "x"}], "(dict). Choose their texts: [row['text'] for row in texts]"),
        (b"x", "texts must be a text or a list of texts; received b'x' (bytes). Decode it: text."),
        (bytearray(b"x"), "(bytearray). Decode it"),
        (np.array([b"x"]), "texts[0] must be a text or a pair of texts, (a, b); received np.bytes"),
        (np.array([b"x"]), "(bytes_). Decode it: text.decode('utf-8')"),
        (None, "texts must be a text or a list of texts; received None. Leave missing texts out"),
        (float("nan"), "received nan (float). Leave missing texts out"),
        (Column("x", None), "texts[1] must be a text or a pair of texts, (a, b); received None. L"),
        (Column(np.nan), "texts[0] must be a text or a pair of texts, (a, b); received nan (floa"),
        (Column("x", NA), "received <NA> (NAType). Leave missing texts out, or replace them: of"),
        (np.ma.array(["x"], mask=[True]), "(MaskedConstant). Leave missing texts out"),
        (3, "texts must be a text or a list of texts; received 3 (int)"),
        ([3.5], "texts[0] must be a text or a pair of texts, (a, b); received 3.5 (float)"),
        ([True], "received True"),
        (len, "texts must be a text or a list of texts; received <built-in function len>"),
    ],
)
def test_other_collections_are_refused_with_what_to_write(texts, message):
    with pytest.raises(UserError) as error:
        as_list(texts, pairs=True)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_where_pairs_are_no_texts_they_are_refused():
    for texts in ([("x", "y")], (("x", "y"),)):
        with pytest.raises(UserError) as error:
            as_list(texts, name="question")
        assert str(error.value) == (
            "question[0] must be a text (str); received ('x', 'y') (tuple). This method takes no"
            " pairs"
        )
    with pytest.raises(UserError, match=r"Take one axis: context\[:, 0\]$"):
        as_list(np.array([["x", "y"]]), name="context")


GOOD = [
    (arguments.SWITCH, True),
    (arguments.SWITCH, np.bool_(False)),
    (arguments.WHOLE_NUMBER, 0),
    (arguments.WHOLE_NUMBER, np.int64(3)),
    (arguments.NUMBER, 3),
    (arguments.NUMBER, np.float32(0.5)),
    (arguments.STRING, ""),
]


@pytest.mark.parametrize(("types", "value"), GOOD)
def test_values_of_the_right_type_pass(types, value):
    check_type("x", value, types)
    check_type("x", None, types, "for the default")


@pytest.mark.parametrize(
    ("types", "value", "message"),
    [
        (arguments.SWITCH, "False", "x must be True or False; received 'False' (str)"),
        (arguments.SWITCH, 0, "x must be True or False; received 0 (int)"),
        (arguments.SWITCH, None, "x must be True or False; received None"),
        (arguments.WHOLE_NUMBER, "64", "x must be a whole number (int); received '64' (str)"),
        (arguments.WHOLE_NUMBER, 64.0, "x must be a whole number (int); received 64.0 (float)"),
        (arguments.WHOLE_NUMBER, True, "x must be a whole number (int); received True"),
        (arguments.WHOLE_NUMBER, np.bool_(True), "x must be a whole number (int); received"),
        (arguments.WHOLE_NUMBER, [64], "x must be a whole number (int); received [64] (list)"),
        (arguments.WHOLE_NUMBER, np.array(64), "received array(64) (ndarray)"),
        (arguments.NUMBER, "0.5", "x must be a number; received '0.5' (str)"),
        (arguments.NUMBER, 1j, "x must be a number; received 1j (complex)"),
        (arguments.STRING, ["cls"], "x must be a string; received ['cls'] (list)"),
        (arguments.PATH, b"model", "x must be a path; received b'model' (bytes)"),
        (arguments.PATH, Table(), "(Table)"),
    ],
)
def test_values_of_the_wrong_type_are_named_with_theirs(types, value, message):
    with pytest.raises(UserError) as error:
        check_type("x", value, types)
    assert message in str(error.value)


def test_what_none_means_is_said():
    with pytest.raises(UserError) as error:
        check_type("pooling", 1, arguments.STRING, "for the folder's setting")
    assert str(error.value) == (
        "pooling must be a string, or None, for the folder's setting; received 1 (int)"
    )


@pytest.mark.parametrize("value", [np.array("a"), np.array(3), np.str_("a"), tf.constant("a")])
def test_an_array_without_axes_is_no_list(value):
    for kind, x, y, message in (
        (ChoicesKind, [("a", value)], [0], "questions[0] must be (text, [4 choices])"),
        (TaggingKind, [value], [["O"]], "sentences[0] must be a list of words"),
        (TaggingKind, [["a"]], [value], "tags[0] must be a list of 1 tags, one for each word"),
        (
            AnswersKind,
            [("a", "a b")],
            [{"text": value, "answer_start": np.array(0)}],
            "answers[0] must have as many answer_start as text, in lists",
        ),
        (lambda: MultiLabelKind(["a", "b"]), ["t"], [value], "labels[0] must be a list of classes"),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            kind().example_set("train", x, y)
