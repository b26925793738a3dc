"""Tests of `tf.data.Dataset`s for each task: batched or not, ragged where rows differ in length."""

import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.tasks.classification.rows import ClassificationRows, MultiLabelRows
from bert_tf.tasks.multiple_choice.rows import MultipleChoiceRows
from bert_tf.tasks.squad.rows import SquadRows
from bert_tf.tasks.tagging.rows import TaggingRows
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
    "tags": (TaggingRows, (ragged(SENTENCES), ragged(TAGS)), (SENTENCES, TAGS)),
    "tags of one length": (
        TaggingRows,
        (tf.constant(WORDS[:2]), tf.constant(NAMED[:2])),
        (WORDS[:2], NAMED[:2]),
    ),
    "tags by number": (
        lambda: TaggingRows(["O", "B-X", "I-X"]),
        (ragged(WORDS), NUMBERS),
        (WORDS, NAMED),
    ),
    "answers": (SquadRows, (columns(QUESTIONS), columns(ANSWERS)), (QUESTIONS, ANSWERS)),
    "answers as of Hugging Face": (
        SquadRows,
        (columns(QUESTIONS), {name: ragged(found) for name, found in FOUND.items()}),
        (QUESTIONS, ANSWERS),
    ),
    "choices": (MultipleChoiceRows, (columns(CHOICES), tf.constant([0, 1])), (CHOICES, [0, 1])),
    "several labels as 0 and 1": (
        lambda: MultiLabelRows(["p", "q"]),
        (tf.constant(TEXTS), tf.constant(MARKS)),
        (TEXTS, ROWS),
    ),
    "several labels by name": (
        MultiLabelRows,
        (tf.constant(TEXTS), tf.ragged.constant(ROWS, tf.string)),
        (TEXTS, ROWS),
    ),
    "several labels by number": (
        lambda: MultiLabelRows(["p", "q", "r"]),
        (tf.constant(TEXTS), tf.ragged.constant([[0, 2], [], [1]], tf.int64)),
        (TEXTS, [("p", "r"), (), ("q",)]),
    ),
}


@pytest.mark.parametrize("size", [None, 1, 2])
@pytest.mark.parametrize("task", TASKS)
def test_a_dataset_has_the_examples_of_the_lists(task, size):
    make, tensors, lists = TASKS[task]
    dataset = tf.data.Dataset.from_tensor_slices(tensors)
    found = make().examples("train", dataset.batch(size) if size else dataset, None)
    expected = make().examples("train", *lists)
    assert repr(found) == repr(expected)


@pytest.mark.parametrize("kind", [ClassificationRows, TaggingRows, MultipleChoiceRows])
def test_other_ranks_are_refused(kind):
    wide = tf.zeros([2, 3, 4, 5], tf.string)
    sparse = tf.sparse.from_dense([["a", "b"]])
    for x, y in ((wide, [0, 1]), (sparse, [0])):
        dataset = tf.data.Dataset.from_tensor_slices((x, y))
        message = "must be a tf.data.Dataset of inputs and labels, or of batches of them; its elem"
        with pytest.raises(UserError, match=re.escape(f"{kind.inputs} {message}")):
            kind().examples("train", dataset, None)


def test_dictionaries_are_refused():
    rows = {"text": TEXTS, "label": [0, 1, 0]}
    for elements in (rows, (rows, [0, 1, 0])):
        dataset = tf.data.Dataset.from_tensor_slices(elements)
        for kind in (ClassificationRows(), TaggingRows(), MultipleChoiceRows()):
            message = f"^{kind.inputs} must be a tf.data.Dataset of inputs and labels.*'text'"
            for each in (dataset, dataset.batch(2)):
                with pytest.raises(UserError, match=message):
                    kind.examples("train", each, None)


def test_a_tag_of_a_sentence_with_one_word_stays_a_list():
    kind = TaggingRows(["O", "B-X"])
    found = kind.examples("train", [["a", "b"], ["c"]], [np.array([0, 1]), np.array([1])])
    assert [sentence.tags for sentence in found] == [["O", "B-X"], ["B-X"]]
