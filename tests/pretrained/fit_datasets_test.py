"""Tests of `tf.data.Dataset`s for each task: batched or not, ragged where rows differ in length."""

import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.pretrained.kinds.answers import AnswersKind
from bert_tf.pretrained.kinds.choices import ChoicesKind
from bert_tf.pretrained.kinds.classification import ClassificationKind, MultiLabelKind
from bert_tf.pretrained.kinds.tagging import TaggingKind
from tests.pretrained.fit_tasks_test import ANSWERS, CHOICES, QUESTIONS, SENTENCES, TAGS

QUESTIONS, ANSWERS = QUESTIONS[1:], ANSWERS[1:]  # each with a context of its own

TEXTS = ["x", "y", "z"]
ROWS = [("p", "q"), (), ("q",)]
MARKS = np.array([[1, 1], [0, 0], [0, 1]])
NUMBERS = tf.ragged.constant([[0, 1, 0], [1, 0, 0], [2]], tf.int64)
NAMED = [["O", "B-X", "O"], ["B-X", "O", "O"], ["I-X"]]
WORDS = [["a", "b", "c"], ["d", "e", "é"], ["f"]]
FOUND = {"text": [[x] for x, _ in ANSWERS], "answer_start": [[start] for _, start in ANSWERS]}


def columns(rows):
    return tuple(tf.constant(column) for column in zip(*rows, strict=True))


def ragged(rows):
    return tf.ragged.constant(rows)


# Task -> the kind, tensors of all examples, and the same as lists.
TASKS = {
    "tags": (TaggingKind, (ragged(SENTENCES), ragged(TAGS)), (SENTENCES, TAGS)),
    "tags of one length": (
        TaggingKind,
        (tf.constant(WORDS[:2]), tf.constant(NAMED[:2])),
        (WORDS[:2], NAMED[:2]),
    ),
    "tags by number": (
        lambda: TaggingKind(["O", "B-X", "I-X"]),
        (ragged(WORDS), NUMBERS),
        (WORDS, NAMED),
    ),
    "answers": (AnswersKind, (columns(QUESTIONS), columns(ANSWERS)), (QUESTIONS, ANSWERS)),
    "answers as of Hugging Face": (
        AnswersKind,
        (columns(QUESTIONS), {name: ragged(found) for name, found in FOUND.items()}),
        (QUESTIONS, ANSWERS),
    ),
    "choices": (ChoicesKind, (columns(CHOICES), tf.constant([0, 1])), (CHOICES, [0, 1])),
    "several labels as 0 and 1": (
        lambda: MultiLabelKind(["p", "q"]),
        (tf.constant(TEXTS), tf.constant(MARKS)),
        (TEXTS, ROWS),
    ),
    "several labels by name": (
        MultiLabelKind,
        (tf.constant(TEXTS), tf.ragged.constant(ROWS, tf.string)),
        (TEXTS, ROWS),
    ),
    "several labels by number": (
        lambda: MultiLabelKind(["p", "q", "r"]),
        (tf.constant(TEXTS), tf.ragged.constant([[0, 2], [], [1]], tf.int64)),
        (TEXTS, [("p", "r"), (), ("q",)]),
    ),
}


@pytest.mark.parametrize("size", [None, 1, 2])
@pytest.mark.parametrize("task", TASKS)
def test_a_dataset_has_the_examples_of_the_lists(task, size):
    make, tensors, lists = TASKS[task]
    dataset = tf.data.Dataset.from_tensor_slices(tensors)
    found = make().example_set("train", dataset.batch(size) if size else dataset, None)
    expected = make().example_set("train", *lists)
    assert [repr(x) for x in found.examples] == [repr(x) for x in expected.examples]


@pytest.mark.parametrize("kind", [ClassificationKind, TaggingKind, ChoicesKind])
def test_other_ranks_are_refused(kind):
    wide = tf.zeros([2, 3, 4, 5], tf.string)
    sparse = tf.sparse.from_dense([["a", "b"]])
    for x, y in ((wide, [0, 1]), (sparse, [0])):
        dataset = tf.data.Dataset.from_tensor_slices((x, y))
        message = "must be a tf.data.Dataset of inputs and labels, or of batches of them; its elem"
        with pytest.raises(UserError, match=re.escape(f"{kind.inputs} {message}")):
            kind().example_set("train", dataset, None)


@pytest.mark.parametrize(
    ("elements", "message"),
    [
        (
            {"text": TEXTS, "label": [0, 1, 0]},
            "theirs have 'text', 'label'. Choose, such as by dataset.map(lambda row: (row['text'],"
            " row['label']))",
        ),
        (
            ({"words": WORDS}, [0, 1, 0]),
            "theirs have 'words'. Choose, such as by dataset.map(lambda row, *rest: (row['text'],"
            " *rest))",
        ),
    ],
)
def test_dictionaries_are_refused_with_the_way_out(elements, message):
    if isinstance(elements, tuple):
        elements = ({"words": tf.ragged.constant(WORDS)}, elements[1])
    dataset = tf.data.Dataset.from_tensor_slices(elements)
    for kind in (ClassificationKind(), TaggingKind(), ChoicesKind()):
        message_of_kind = f"{kind.inputs} must not be dictionaries in a tf.data.Dataset; {message}"
        for each in (dataset, dataset.batch(2)):
            with pytest.raises(UserError, match=re.escape(message_of_kind)):
                kind.example_set("train", each, None)


def test_a_tag_of_a_sentence_with_one_word_stays_a_list():
    kind = TaggingKind(["O", "B-X"])
    found = kind.example_set("train", [["a", "b"], ["c"]], [np.array([0, 1]), np.array([1])])
    assert [sentence.tags for sentence in found.sentences] == [["O", "B-X"], ["B-X"]]
