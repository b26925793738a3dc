"""Tests of --group_column: MRR@10, nDCG@10 and MAP over groups against their definitions."""

import dataclasses
import re

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.tasks import splits
from bert_tf.tasks.classification import processors, scores
from bert_tf.tasks.classification.files import ClassificationFiles
from bert_tf.tasks.classification.settings import ClassifierSettings, TableColumns

COLUMNS = TableColumns(
    text_a_column="q", text_b_column="p", label_column="r", group_column="q", labels=["no", "yes"]
)
HEADER = "q,p,r\n"
GOOD = HEADER + "a,x,no\na,y,yes\nb,x,yes\na,z,no\nb,z,no\nc,x,no\n"


def task(folder, columns=COLUMNS, **settings):
    files = {"data_dir": str(folder), "output_dir": "unused", "vocab_file": "unused"}
    processor = processors.get_processor("table", str(folder), columns=columns)
    return ClassificationFiles(ClassifierSettings(**files, **settings), processor)


def evaluated(task, **columns):
    (example_set,) = task.read_sets("eval")
    example_set.examples = ()  # as once the records are written
    count = len(example_set.groups)
    chunk = {"per_example_loss": np.zeros(count, np.float32), **columns}
    return task.evaluate(example_set, [chunk]).results


def test_classes_are_ranked_by_the_second(tmp_path, warnings):
    (tmp_path / "dev.csv").write_text(GOOD)
    labels = np.array([0, 1, 1, 0, 0, 0])
    yes = np.array([0.6, 0.5, 0.2, 0.1, 0.7, 0.3], np.float32)
    found = evaluated(task(tmp_path), label_ids=labels, outputs=np.stack([1 - yes, yes], axis=1))
    # In group a the relevant text is second of three, in b second of two; c has none.
    second = 1 / np.log2(3)
    assert found.items() >= {"eval_groups": 2, "eval_mrr@10": 0.5, "eval_map": 0.5}.items()
    assert found["eval_ndcg@10"] == pytest.approx(second)
    assert found["eval_accuracy"] == pytest.approx(2 / 6)
    assert warnings == [
        "1 of 3 groups have no relevant example, and are left out of the means over groups"
    ]
    assert task(tmp_path).best_metric == "eval_ndcg@10"


def test_probabilities_that_round_to_one_are_told_apart():
    labels = np.array([0, 1])
    outputs = np.array([[1e-12, 1], [1e-20, 1]], np.float32)
    assert scores.evaluate_groups(["a", "a"], labels, outputs)["eval_mrr@10"] == 1
    outputs = np.array([[0, 1], [0, 1]], np.float32)
    assert scores.evaluate_groups(["a", "a"], labels, outputs)["eval_mrr@10"] == 0.5


def test_grades_are_gains(tmp_path):
    (tmp_path / "dev.csv").write_text(HEADER + "a,x,3\na,y,1\na,z,0\n")
    columns = TableColumns(text_a_column="p", label_column="r", group_column="q", regression=True)
    found = evaluated(
        task(tmp_path, columns),
        label_ids=np.array([3, 1, 0], np.float32),
        outputs=np.array([-5, 2.5, -7], np.float32),
    )
    expected = (1 + 3 / np.log2(3)) / (3 + 1 / np.log2(3))
    assert found["eval_ndcg@10"] == pytest.approx(expected)
    assert (found["eval_mrr@10"], found["eval_map"]) == (1, 1)


def test_the_dev_fraction_divides_no_group(tmp_path):
    rows = [f"query {i % 20},text {i},{'yes' if i < 20 else 'no'}" for i in range(100)]
    (tmp_path / "train.csv").write_text(HEADER + "\n".join(rows))
    sets = splits.read_sets(task(tmp_path, dev_fraction=0.3), ["train", "eval"])
    (train,), (dev,) = sets["train"], sets["eval"]
    assert {x.group for x in train.examples}.isdisjoint(dev.groups)
    assert len(train.examples) + len(dev.groups) == 100 and len(set(dev.groups)) == 6


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        (HEADER + "a,x,no\n ,y,yes\n", {}, "dev.csv, line 3: the line has no group; fill it in"),
        (
            *(HEADER + "a,x,no\nb,y,no\n", {}),
            "a group of the eval set must have a relevant text, with a label 'yes';"
            " there is none in 2 examples",
        ),
        (
            *(HEADER + "a,x,0\nb,y,-1.5\n", {"labels": None, "regression": True}),
            "labels are grades of relevance, 0 for an irrelevant text and more for relevant ones;"
            " the eval set has -1.5",
        ),
        (HEADER + "a,x,0\n", {"labels": None, "regression": True}, "with a label above 0; th"),
        (
            *(GOOD, {"labels": ["a", "b", "c"]}),
            "needs two classes, the second for relevant texts, or --regression with grades of"
            " relevance; the classes are 'a', 'b', 'c'",
        ),
        (GOOD, {"group_column": "query"}, "--group_column=query: "),
    ],
)
def test_what_is_refused(tmp_path, text, columns, message):
    (tmp_path / "dev.csv").write_text(text)
    with pytest.raises(UserError, match=re.escape(message)):
        task(tmp_path, dataclasses.replace(COLUMNS, **columns)).read_sets("eval")


def test_a_task_with_fixed_columns_has_no_groups():
    with pytest.raises(UserError, match="--group_column is for --task_name=table or --tfds"):
        processors.get_processor("mrpc", "x", columns=TableColumns(group_column="q"))
