"""Tests of the arguments of a loaded model: which collections are texts, and what is refused."""

import collections
import functools
import itertools
import re

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from absl import logging

from bert_tf.tasks import arguments
from bert_tf.tasks.arguments import as_list, check_type
from bert_tf.tasks.classification.rows import ClassificationRows
from bert_tf.tasks.multiple_choice.data import MultipleChoiceRows
from bert_tf.tasks.rows import read_rows
from bert_tf.tasks.squad.examples import SquadRows
from bert_tf.tasks.tagging.data import TaggingRows
from tests.support.refusals import refusal

ENDLESS = tf.data.Dataset.from_generator(
    lambda: itertools.repeat("a"), output_signature=tf.TensorSpec([], tf.string)
)


class Loader:
    """Like a loader of PyTorch for examples without a number: `len` raises TypeError."""

    def __len__(self):
        raise TypeError

    def __iter__(self):
        return itertools.cycle(["a", "b c"])


column = functools.partial(pd.Series, dtype=object)
INDEXED = collections.namedtuple("Row", "Index a")  # as of DataFrame.itertuples()


def test_what_gives_texts_in_an_order_is_a_list():
    for texts in (
        ["a", "b c"],
        np.array(["a", "b c"]),
        np.array(["a", "b c"], object),
        column(["a", "b c"]),
        collections.deque(["a", "b c"]),
        {0: "a", 1: "b c"}.values(),
        dict.fromkeys(["a", "b c"]).keys(),
    ):
        for pairs in (False, True):
            assert as_list(texts, pairs) == (["a", "b c"], False)
    assert as_list(text for text in "ab") == (["a", "b"], False)  # is read once
    assert as_list(map(str, [1, 2]), pairs=True) == (["1", "2"], False)
    for empty in ([], (), np.array([]), column([]), iter(())):
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


OTHERS = [
    (("x",), "texts[0] must be a text or a pair of texts, (a, b); received ('x',) (tuple)"),
    (("x", "y", "z"), "(tuple). A pair of texts is a tuple, (a, b); write several texts as a"),
    (("x", None), "texts[0] must be a text or a pair of texts, (a, b); received ('x', None)"),
    ([("x",), ("y",)], "texts[0] must be a text or a pair of texts, (a, b); received ('x',)"),
    ([INDEXED("i", "x")], "received Row(Index='i', a='x') (Row)"),
    (type, "texts must be a text or a list of texts; received <class 'type'> (type)"),
    ([["x", "y"]], "(list). A pair of texts is a tuple, (a, b)"),
    ([np.array(["x", "y"])], "(ndarray). A pair of texts is a tuple, (a, b)"),
    (
        pd.DataFrame({"text": ["x"]}),
        "(DataFrame). Give a column of a table, table['text'], or for pairs list(zip(",
    ),
    (np.array([["x"], ["y"]]), "(ndarray). Give a column of a table"),
    (np.array("x"), "texts must be a text or a list of texts; received array('x', dtype"),
    (tf.constant(["x", "y"]), "texts[0] must be a text or a pair of texts, (a, b); received <"),
    (tf.data.Dataset.from_tensors("x"), "texts[0] must be a text or a pair of texts, (a, b);"),
    ({"x", "y"}, "texts must be a text or a list of texts; received {"),
    (frozenset("x"), "(frozenset)"),
    ({"x": "y"}, "texts must be a text or a list of texts; received {'x': 'y'} (dict)"),
    ({"x": "y"}.items(), "(dict_items)"),
    ([{"text": "x"}], "texts[0] must be a text or a pair of texts, (a, b); received {'text'"),
    (b"x", "texts must be a text or a list of texts; received b'x' (bytes)"),
    (bytearray(b"x"), "(bytearray)"),
    (np.array([b"x"]), "texts[0] must be a text or a pair of texts, (a, b); received np.bytes"),
    (None, "texts must be a text or a list of texts; received None. Leave missing texts out"),
    (column(["x", None]), "texts[1] must be a text or a pair of texts, (a, b); received None. L"),
    (column(["x", pd.NA]), "received <NA> (NAType). Leave missing texts out, or replace them: in"),
    (np.ma.array(["x"], mask=[True]), "(MaskedConstant). Leave missing texts out"),
    (3, "texts must be a text or a list of texts; received 3 (int)"),
    ([True], "received True"),
]


def test_other_collections_are_refused():
    for texts, message in OTHERS:
        told = refusal(as_list, texts, pairs=True)
        assert message in told and "\n" not in told
    for texts in ([("x", "y")], (("x", "y"),)):  # where pairs are no texts
        told = refusal(as_list, texts, name="question")
        assert told == "question[0] must be a text (str); received ('x', 'y') (tuple)"


def test_an_array_without_axes_is_no_list():
    for value in (np.array("a"), np.array(3), np.str_("a"), tf.constant("a")):
        assert not arguments.is_list(value)


def test_values_of_the_right_type_pass_and_others_are_named_with_theirs():
    switch, whole, number = arguments.SWITCH, arguments.WHOLE_NUMBER, arguments.NUMBER
    for types, *values in (
        (switch, True, np.bool_(False)),
        (whole, 0, np.int64(3)),
        (number, 3, np.float32(0.5)),
        (arguments.STRING, ""),
    ):
        for value in values:
            check_type("x", value, types)
        check_type("x", None, types, "for the default")
    for types, value, message in (
        (switch, "False", "x must be True or False; received 'False' (str)"),
        (switch, None, "x must be True or False; received None"),
        (whole, "64", "x must be a whole number (int); received '64' (str)"),
        (whole, 64.0, "x must be a whole number (int); received 64.0 (float)"),
        (whole, True, "x must be a whole number (int); received True"),
        (whole, np.array(64), "received array(64) (ndarray)"),
        (number, "0.5", "x must be a number; received '0.5' (str)"),
        (number, 1j, "x must be a number; received 1j (complex)"),
        (arguments.STRING, ["cls"], "x must be a string; received ['cls'] (list)"),
        (arguments.PATH, b"model", "x must be a path; received b'model' (bytes)"),
    ):
        assert message in refusal(check_type, "x", value, types)
    told = refusal(check_type, "pooling", 1, arguments.STRING, "for the folder's setting")
    message = "pooling must be a string, or None, for the folder's setting; received 1 (int)"
    assert told == message


@pytest.mark.parametrize(
    "read",
    [
        lambda: as_list(itertools.repeat("a"), name="texts"),
        lambda: as_list(ENDLESS, name="texts"),
        lambda: as_list(Loader(), pairs=True, name="texts"),
        lambda: read_rows(["a"], tf.data.Dataset.range(3).repeat(), None, "texts", "labels"),
        lambda: read_rows(itertools.repeat(("a", "b")), None, None, "texts", "labels"),
        lambda: read_rows(["a"], itertools.repeat(0), None, "texts", "labels"),
        lambda: read_rows(["a"], [0], itertools.repeat(1.0), "texts", "labels"),
        lambda: TaggingRows(itertools.repeat("O")),
        lambda: ClassificationRows(map(str, itertools.count())),
        lambda: SquadRows().predict(None, itertools.cycle([("a", "b")]), {}),
        lambda: SquadRows().examples("eval", [("a", "b")], itertools.repeat(None)),
        lambda: MultipleChoiceRows().examples("predict", itertools.repeat(("a", "bc")), None),
    ],
)
def test_a_generator_without_end_is_warned_of_and_refused(read, monkeypatch):
    said = []
    monkeypatch.setattr(logging, "warning", lambda text, *values: said.append(text % values))
    monkeypatch.setattr(arguments, "_MANY", 50)
    monkeypatch.setattr(arguments, "_MOST", 70)
    name = "(texts|labels|sample_weight|questions|answers)"
    assert re.match(f"{name} must end, but gave more than 70 values", refusal(read))
    (text,) = said
    assert re.fullmatch(f"{name}: 50 values were read so far and are all kept .*", text)


def test_a_long_generator_is_read_to_its_end(monkeypatch):
    monkeypatch.setattr(arguments, "_MANY", 50)
    monkeypatch.setattr(arguments, "_MOST", 70)
    assert len(arguments.whole(iter(range(70)), "texts")) == 70
    assert len(arguments.whole([0] * 90, "texts")) == 90
