"""Tests of training examples that all have the same label: refused, or warned of."""

import re

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.tasks.classification.files import ClassificationFiles
from bert_tf.tasks.classification.processors import ColaProcessor
from bert_tf.tasks.classification.rows import RegressionRows
from bert_tf.tasks.classification.settings import ClassifierSettings, TableColumns
from bert_tf.tasks.classification.table import TableProcessor
from bert_tf.tasks.multiple_choice.data import MultipleChoiceRows
from bert_tf.tasks.registry import TASKS
from bert_tf.tasks.sentences.data import SentenceRows
from bert_tf.tasks.squad.examples import SquadRows
from bert_tf.tasks.tagging.data import Sentence, TaggingRows
from bert_tf.tasks.tagging.files import TaggingFiles
from bert_tf.tasks.tagging.settings import TaggingSettings
from bert_tf.tasks.tagging.task import SentenceSet

COLUMNS = {"text_a_column": "text", "label_column": "y"}
FLAGS = {"vocab_file": "v", "output_dir": "o"}


def prepared(folder, rows, flags, **columns):
    """Prepares a classification of a table, as a run does before it trains."""
    (folder / "train.csv").write_text("text,y\n" + "".join(f"{x}\n" for x in rows))
    processor = TableProcessor(TableColumns(**COLUMNS, **columns), str(folder))
    settings = ClassifierSettings(**FLAGS, data_dir=str(folder), do_train=True, **flags)
    task = ClassificationFiles(settings, processor)
    sets = {"train": task.read_sets("train")}
    task.prepare(sets, task.labels(sets))


@pytest.mark.parametrize(
    "rows,columns,label",
    [
        (["t1,a", "t2,a"], {"labels": ["a", "b"]}, "'a'"),
        (["t1,7"] * 3, {"labels": ["b", "7", "9"]}, "'7'"),
        (["t1,a|b", "t2,b|a"], {"multi_label": True}, "('a', 'b')"),
        (["t1,", "t2,"], {"labels": ["a", "b"], "multi_label": True}, "()"),
    ],
)
def test_a_table_with_one_class_is_refused(tmp_path, rows, columns, label, warnings):
    message = (
        f"The training examples must have at least two different labels; all {len(rows)} have"
        f" {label}, so there is nothing to learn. Check the file and --label_column"
    )
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        prepared(tmp_path, rows, {}, **columns)
    with_teacher = {"teacher_checkpoint": "t"}  # who teaches more than the labels
    prepared(tmp_path, rows, with_teacher, **columns)
    prepared(tmp_path, [*rows, "t,b"], {}, **columns)
    assert warnings == []


def test_numbers_that_are_all_equal_are_warned_of(tmp_path, warnings):
    prepared(tmp_path, ["t1,2", "t2,2.0"], {}, regression=True)
    prepared(tmp_path, ["t1,2", "t2,2.5"], {}, regression=True)
    # The original's tasks train on one class.
    (tmp_path / "train.tsv").write_text("x\t1\t\ta text\nx\t1\t\tanother\n")
    settings = ClassifierSettings(**FLAGS, data_dir=str(tmp_path), do_train=True)
    task = ClassificationFiles(settings, ColaProcessor())
    sets = {"train": task.read_sets("train")}
    task.prepare(sets, task.labels(sets))
    assert warnings == [
        f"All 2 training examples have the label {label}, so the model learns to give just that"
        for label in ("2.0", "'1'")
    ]


@pytest.mark.parametrize(
    "kind,y,flags,expected",
    [
        (RegressionRows(), [0.5, 0.5], {}, "0.5"),
        (RegressionRows(), [0.5, 0.25], {}, None),
        (MultipleChoiceRows(), np.array([3, 3]), {}, "3"),
        (MultipleChoiceRows(), [3, 0], {}, None),
        (SentenceRows(), [1, 1.0], {}, "1.0"),
        (SquadRows(), [None, ""], {}, "'no answer'"),
        (SquadRows(), [None, ("b", 0)], {}, None),
        (SentenceRows(), [0, 0.5], {}, None),
    ],
)
def test_python_s_examples_are_the_program_s(kind, y, flags, expected, warnings):
    x = [("a", list("bcde"))] * 2 if isinstance(kind, MultipleChoiceRows) else [("a", "b")] * 2
    cls = TASKS[kind.task].task_class()
    task = cls.of_rows(cls.options(**flags, do_train=True), kind)
    task.prepare({"train": [task.example_set("train", kind.examples("train", x, y))]}, ())
    texts = [f"All 2 training examples have the label {expected}, so the model learns to give just"]
    assert warnings == ([f"{texts[0]} that"] if expected else [])


@pytest.mark.parametrize(
    "pairs,learns",
    [
        ([("a", "b")] * 3, False),
        ([("a", "b"), ("b", "a"), ("a", "b")], False),
        ([("a", "b"), ("a", "c"), ("a", "d")], False),
        ([("b", "a"), ("c", "a")], False),
        ([("a", "b"), ("c", "d"), ("a", "d"), ("c", "b")], False),
        ([("a", "b"), ("c", "d"), ("a", "d")], True),
        ([("a", "a"), ("b", "b")], True),
        ([("a", "b", "c")] * 2, True),
    ],
)
def test_pairs_without_negatives_are_warned_of(pairs, learns, warnings):
    rows, cls = SentenceRows(), TASKS["sentences"].task_class()
    task = cls.of_rows(cls.options(loss="in_batch_negatives", do_train=True), rows)
    task.prepare({"train": [task.example_set("train", rows.examples("train", pairs, None))]}, ())
    assert len(warnings) == (not learns)
    assert learns or warnings[0].startswith(f"No text of the {len(pairs)} training examples has a ")


@pytest.mark.parametrize("tags", ["O", "B-X"])
def test_words_with_one_tag_are_refused(tags):
    named = ["O", "B-X"]
    for kind in (TaggingRows(named), TaggingRows()):
        with pytest.raises(UserError, match=f"^tags must have at least two tags; all are '{tags}'"):
            kind.examples("train", [["a", "b"], ["c"]], [[tags, tags], [tags]])
    TaggingRows(named).examples("eval", [["a"]], [[tags]])
    settings = TaggingSettings(**FLAGS, data_dir="d", labels=named, do_train=True)
    sentences = [Sentence(["a", "b"], [tags, tags], 1)]
    found = SentenceSet("train", [sentences], sentences=sentences)
    message = f"^--data_dir: d/train.txt must have words with different tags; all tags are '{tags}'"
    with pytest.raises(UserError, match=message):
        TaggingFiles(settings).labels({"train": [found]})
