"""The training examples: the share that --dev_fraction holds out, and labels that are all equal."""

import collections
import random
import re

import numpy as np
import pytest
from absl import logging

from bert_tf.tasks.classification.files import ClassificationFiles
from bert_tf.tasks.classification.processors import ColaProcessor
from bert_tf.tasks.classification.rows import RegressionRows
from bert_tf.tasks.classification.settings import ClassifierSettings, TableColumns
from bert_tf.tasks.classification.table import TableProcessor
from bert_tf.tasks.multiple_choice.data import MultipleChoiceRows
from bert_tf.tasks.registry import TASKS
from bert_tf.tasks.sentences.data import SentenceRows
from bert_tf.tasks.splits import held_out, read_sets
from bert_tf.tasks.squad.examples import SquadRows
from bert_tf.tasks.tagging.data import TaggingRows
from tests.support.refusals import refusal, refuses
from tests.support.registered_tasks import REVIEWS, run_in, task_with
from tests.support.small_classification import write_reviews

pytestmark = pytest.mark.usefixtures("eager_if_quick")


@pytest.mark.parametrize(
    "sizes, fraction, expected",
    [
        ({"a": 50, "b": 50}, 0.1, {"a": 5, "b": 5}),
        ({"a": 90, "b": 10}, 0.1, {"a": 9, "b": 1}),
        ({"a": 15, "b": 15}, 0.1, {"a": 2, "b": 1}),  # 3 in all
        ({"a": 8, "b": 1, "c": 1}, 0.2, {"a": 2}),  # one of each class stays
        ({None: 33}, 0.25, {None: 8}),
        ({"a": 3, "b": 3}, 0.01, {"a": 1}),
        ({"a": 1, "b": 1}, 0.5, {}),
        ({0: 4, 3: 4}, 0.5, {0: 2, 3: 2}),
    ],
)
def test_each_class_has_its_share(sizes, fraction, expected):
    keys = [(label, f"{label} {i}") for label, size in sizes.items() for i in range(size)]
    assert collections.Counter(keys[i][0] for i in held_out(keys, fraction)) == expected


def test_order_and_copies_do_not_matter():
    keys = [(i % 3, f"text {i * i}") for i in range(100)]
    found = {keys[i] for i in held_out(keys, 0.2)}
    for seed in range(3):
        shuffled = random.Random(seed).sample(keys, len(keys))
        assert {shuffled[i] for i in held_out(shuffled, 0.2)} == found
    for copies in (2, 7):  # they are on one side
        keys = [("a", f"{'tT'[n % 2]}ext {i}") for i in range(9) for n in range(copies)]
        held = held_out(keys, 0.3)
        texts = {keys[i][1].lower() for i in held}
        assert len(held) == len(texts) * copies and 1 < len(texts) < 9
        assert held_out([("a", "x")] * copies, 0.5) == set()


def classification(folder, **more):
    flags = {"data_dir": str(folder), **REVIEWS, "dev_fraction": 0.2, **more}
    return task_with("classification", flags)


@pytest.fixture
def reviews(tmp_path):
    folder = write_reviews(tmp_path)
    (folder / "dev.csv").unlink()
    return folder


def test_training_and_evaluation_share_the_training_set(reviews):
    sets = read_sets(classification(reviews), ["train", "eval", "predict"])
    (train,), (dev,), (test,) = sets.values()
    assert [train.name, dev.name, test.name] == ["train", "eval", "predict"]
    assert [len(each.examples) for each in (train, dev, test)] == [72, 18, 7]
    assert collections.Counter(x.label for x in dev.examples) == {"good": 9, "bad": 9}
    ((every,),) = read_sets(classification(reviews, dev_fraction=0.0), ["train"]).values()
    whole = {x.guid for x in every.examples}
    parts = [{x.guid for x in each.examples} for each in (train, dev)]
    assert parts[0] | parts[1] == whole and not parts[0] & parts[1]
    # A run that only trains or only evaluates has the same parts.
    for purpose, part in zip(["train", "eval"], parts, strict=True):
        ((alone,),) = read_sets(classification(reviews), [purpose]).values()
        assert {x.guid for x in alone.examples} == part
    assert len(read_sets(classification(reviews), ["predict"])["predict"][0].examples) == 7


def test_a_run_ends_with_its_figure_and_the_files_to_read(reviews, monkeypatch):
    lines = []
    monkeypatch.setattr(logging, "info", lambda text, *values: lines.append(text % values))
    flags = {**REVIEWS, "do_train": True, "do_eval": True, "dev_fraction": 0.3}
    flags |= {"train_batch_size": 21, "num_train_epochs": 1.0, "max_seq_length": 24}
    trained = run_in(reviews, "classification", **flags)
    assert trained["global_step"] == 3
    figure = f"eval_accuracy = {trained['eval_accuracy']:.4g}"
    out = f"{reviews}/out"
    assert lines[-1] == f"{figure}. To read: {out}/eval_results.txt, {out}/errors.tsv"


SENTENCES = "a,b,score\n" + "".join(f"one {i},two {i},{i % 5}\n" for i in range(20))
QUESTIONS = "sent1,sent2,ending0,ending1,ending2,ending3,label\n" + "".join(
    f"s{i},t,a,b,c,d,{i % 4}\n" for i in range(40)
)
TAGS = "".join(f"-DOCSTART- O\n\nAnn{i} B-PER\nruns O\n\nin O\nRome B-LOC\n\n" for i in range(30))
COLUMNS = {"text_a_column": "a", "text_b_column": "b", "label_column": "score", "score_scale": 5.0}
OTHERS = {  # name -> file, its text, flags, name of the dev file, number of dev examples
    "sentences": ("train.csv", SENTENCES, COLUMNS, "dev.csv", 4),
    "multiple_choice": ("train.csv", QUESTIONS, {}, "val.csv", 8),
    "tagging": ("train.txt", TAGS, {}, "valid.txt", 6),
}


WITHOUT_DEV = r"--dev_fraction=0\.1 holds out a part of the training"


@pytest.mark.parametrize("name", OTHERS)
def test_other_tasks(tmp_path, name):
    file, text, more, dev_file, count = OTHERS[name]
    (tmp_path / file).write_text(text)
    flags = {"data_dir": str(tmp_path), **more}
    refuses(WITHOUT_DEV, read_sets, task_with(name, flags), ["train", "eval"])
    assert "--dev_fraction" not in refusal(read_sets, task_with(name, flags), ["eval"])
    task = task_with(name, {**flags, "dev_fraction": 0.2})
    sets = read_sets(task, ["train", "eval"])
    (train,), (dev,) = sets.values()
    assert [len(train.examples), len(dev.examples)] == [4 * count, count]
    task.labels(sets)
    if name == "tagging":
        assert [len(train.sentences), len(dev.sentences)] == [48, 12]
    if name == "multiple_choice":
        assert {example.label for example in dev.examples} == {0, 1, 2, 3}
    (tmp_path / dev_file).write_text(text)
    assert refusal(read_sets, task, ["eval"]) == (
        f"--dev_fraction=0.2 is for data without a dev set, but there is {tmp_path}/{dev_file}."
        " Leave --dev_fraction out to evaluate on that set, or move the set away"
    )


def test_what_is_refused(reviews, tmp_path):
    message = "must hold out at least one of the . training examples"
    for rows in ("fine,good\ndull,bad\n", "fine,good\nfine,good\ndull,bad\n"):
        (reviews / "train.csv").write_text("review,stars\n" + rows)
        refuses(message, read_sets, classification(reviews), ["eval"])
    refuses(WITHOUT_DEV, read_sets, classification(reviews, dev_fraction=0.0), ["train", "eval"])
    message = f"but there is one in {tmp_path}. Leave --dev_fraction"
    refuses(message, read_sets, classification(write_reviews(tmp_path)), ["train"])
    flags = {"text_a_column": "a", "loss": "in_batch_negatives", "dev_fraction": 0.1}
    message = "--dev_fraction=0.1 needs --loss=cosine, since an evaluat"
    refuses(message, task_with, "sentences", {"data_dir": "x", **flags})


OF_TABLE = {"text_a_column": "text", "label_column": "y"}
FLAGS = {"vocab_file": "v", "output_dir": "o"}


def prepared(folder, rows, flags, **columns):
    """Prepares a classification of a table, as a run does before it trains."""
    (folder / "train.csv").write_text("text,y\n" + "".join(f"{x}\n" for x in rows))
    processor = TableProcessor(TableColumns(**OF_TABLE, **columns), str(folder))
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
        f" {label}, so there is nothing to learn"
    )
    refuses(f"^{re.escape(message)}$", prepared, tmp_path, rows, {}, **columns)
    alone = "--label_column=y must hold at least two classes; it holds 'a'. Choose another colu"
    refuses(alone, prepared, tmp_path, ["t1,a", "t2,a"], {})
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
        f"All 2 training examples have the label {label}, so the model learns to predict only that"
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
    learns = "so the model learns to predict only that"
    text = f"All 2 training examples have the label {expected}, {learns}"
    assert warnings == ([text] if expected else [])


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
    cls = TASKS["tagging"].task_class()
    for kind in (TaggingRows(["O", "B-X"]), TaggingRows()):
        sentences = kind.examples("train", [["a", "b"], ["c"]], [[tags, tags], [tags]])
        task = cls.of_rows(cls.options(do_train=True), kind)
        found = task.example_set("train", sentences)
        message = f"must have at least two different labels; all 3 have '{tags}', so there is"
        refuses(message, task.prepare, {"train": [found]}, kind.labels)
        task.prepare({"eval": [found]}, kind.labels)
