"""Tests of metrics against their definitions, also over groups, and of GLUE's submissions."""

import dataclasses
import math
import os
import re

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.tasks import splits
from bert_tf.tasks.classification import processors, scores
from bert_tf.tasks.classification.files import ClassificationFiles, predicted, write_submission
from bert_tf.tasks.classification.settings import ClassifierSettings, TableColumns

LABELS = np.array([1, 1, 0, 1, 0, 0, 1, 0])
PREDICTIONS = np.array([1, 0, 0, 1, 1, 0, 1, 0])
# Logits whose highest is the prediction; their other values do not matter.
LOGITS = np.where(np.arange(2) == PREDICTIONS[:, None], 0.3, -7.0).astype(np.float32)


def test_metrics_of_two_classes():
    # 3 true positives, 3 true negatives, 1 false positive, 1 false negative.
    assert scores.evaluate(("accuracy", "f1"), LABELS, LOGITS) == pytest.approx(
        {"eval_accuracy": 6 / 8, "eval_f1": 6 / 8, "eval_accuracy_and_f1": 0.75}
    )
    found = scores.evaluate(("matthews_correlation",), LABELS, LOGITS)
    expected = (3 * 3 - 1 * 1) / math.sqrt((3 + 1) * (3 + 1) * (3 + 1) * (3 + 1))
    assert found == pytest.approx({"eval_matthews_correlation": expected})


def test_correlations():
    rng = np.random.default_rng(3)
    labels = rng.uniform(0, 5, 31).astype(np.float32)
    predictions = (labels**3 + rng.normal(0, 20, 31)).astype(np.float32)
    found = scores.evaluate(("pearson", "spearman"), labels, predictions)
    pearson = np.corrcoef(labels, predictions)[0, 1]
    ranks = [np.argsort(np.argsort(values)) for values in (labels, predictions)]
    spearman = np.corrcoef(*ranks)[0, 1]
    expected = {"eval_pearson": pearson, "eval_spearman": spearman}
    expected["eval_pearson_and_spearman"] = (pearson + spearman) / 2
    assert found == pytest.approx(expected) and abs(pearson - spearman) > 0.01
    # Equal ranks share their mean.
    labels, predictions = np.array([1.0, 2.0, 2.0, 3.0]), np.array([1.0, 1.0, 4.0, 5.0])
    expected = np.corrcoef([0, 1.5, 1.5, 3], [0.5, 0.5, 2, 3])[0, 1]
    assert scores.spearman(labels, predictions) == pytest.approx(expected)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "metric, labels, outputs",
    [
        ("f1", np.zeros(3, np.int64), np.eye(2)[[0, 0, 0]]),
        ("f1", np.array([0, 1, 1]), np.eye(2)[[0, 0, 0]]),
        ("matthews_correlation", np.array([0, 1, 1]), np.eye(2)[[1, 1, 1]]),
        ("matthews_correlation", np.array([1, 1]), np.eye(2)[[1, 1]]),
        ("pearson", np.array([1.0, 2.0, 3.0]), np.full(3, 2.5, np.float32)),
        ("spearman", np.array([1.0, 2.0, 3.0]), np.full(3, 2.5, np.float32)),
        ("pearson", np.full(3, 2.5), np.array([1.0, 2.0, 3.0])),
        ("pearson", np.array([1.0]), np.array([1.0])),
        ("spearman", np.array([1.0, 2.0]), np.array([np.nan, 2.0])),
    ],
)
def test_what_is_not_defined_is_0(metric, labels, outputs):
    for weights in (None, np.ones(len(labels))):
        assert scores.evaluate((metric,), labels, outputs, weights) == {f"eval_{metric}": 0.0}


def test_every_task_has_its_metrics_and_its_best_one():
    for name, processor in processors.processors.items():
        outputs = LOGITS if processor.label_range is None else LOGITS[:, 1]
        found = scores.evaluate(processor.metrics, LABELS, outputs)
        assert processor.best_metric in found, name


# The files that https://gluebenchmark.com asks for, and their classes.
NLI, PAIR = "contradiction entailment neutral", "entailment not_entailment"
FILES = {"AX": NLI, "CoLA": "0 1", "MNLI": NLI, "MNLI-mm": NLI, "MRPC": "0 1", "QNLI": PAIR}
FILES |= {"QQP": "0 1", "RTE": PAIR, "SST-2": "0 1", "WNLI": "0 1"}


@pytest.mark.parametrize("task", FILES)
def test_classes_by_name(tmp_path, task):
    name, labels = "MNLI-m.tsv" if task == "MNLI" else f"{task}.tsv", FILES[task].split()
    classes = [0, len(labels) - 1, 1]
    outputs = np.eye(len(labels), dtype=np.float32)[classes]
    processor = processors.get_processor(task)
    assert write_submission(str(tmp_path), processor, outputs) == str(tmp_path / name)
    expected = [f"{i}\t{labels[label]}\n" for i, label in enumerate(classes)]
    assert (tmp_path / name).read_text() == "index\tprediction\n" + "".join(expected)
    assert os.listdir(tmp_path) == [name]


def test_numbers_within_the_range_and_no_file_outside_glue(tmp_path):
    processor = processors.get_processor("IMDB")
    assert write_submission(str(tmp_path), processor, np.eye(2)) is None
    assert os.listdir(tmp_path) == [] and predicted(processor, np.eye(2)) == ["neg", "pos"]
    outputs = np.array([2.34567, -0.2, 5.4, 5.0], np.float32)
    write_submission(str(tmp_path), processors.get_processor("STS-B"), outputs)
    text = (tmp_path / "STS-B.tsv").read_text()
    assert text == "index\tprediction\n0\t2.346\n1\t0.000\n2\t5.000\n3\t5.000\n"


COLUMNS = TableColumns(
    text_a_column="q", text_b_column="p", label_column="r", group_column="q", labels=["no", "yes"]
)
HEADER = "q,p,r\n"
GOOD = HEADER + "a,x,no\na,y,yes\nb,x,yes\na,z,no\nb,z,no\nc,x,no\n"


def ranked_task(folder, columns=COLUMNS, **settings):
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
    found = evaluated(
        ranked_task(tmp_path), label_ids=labels, outputs=np.stack([1 - yes, yes], axis=1)
    )
    # In group a the relevant text is second of three, in b second of two; c has none.
    second = 1 / np.log2(3)
    assert found.items() >= {"eval_groups": 2, "eval_mrr@10": 0.5, "eval_map": 0.5}.items()
    assert found["eval_ndcg@10"] == pytest.approx(second)
    assert found["eval_accuracy"] == pytest.approx(2 / 6)
    assert warnings == [
        "1 of 3 groups have no relevant example, and are left out of the means over groups"
    ]
    assert ranked_task(tmp_path).best_metric == "eval_ndcg@10"


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
        ranked_task(tmp_path, columns),
        label_ids=np.array([3, 1, 0], np.float32),
        outputs=np.array([-5, 2.5, -7], np.float32),
    )
    expected = (1 + 3 / np.log2(3)) / (3 + 1 / np.log2(3))
    assert found["eval_ndcg@10"] == pytest.approx(expected)
    assert (found["eval_mrr@10"], found["eval_map"]) == (1, 1)


def test_the_dev_fraction_divides_no_group(tmp_path):
    rows = [f"query {i % 20},text {i},{'yes' if i < 20 else 'no'}" for i in range(100)]
    (tmp_path / "train.csv").write_text(HEADER + "\n".join(rows))
    sets = splits.read_sets(ranked_task(tmp_path, dev_fraction=0.3), ["train", "eval"])
    (train,), (dev,) = sets["train"], sets["eval"]
    assert {x.group for x in train.examples}.isdisjoint(dev.groups)
    assert len(train.examples) + len(dev.groups) == 100 and len(set(dev.groups)) == 6


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        (HEADER + "a,x,no\n ,y,yes\n", {}, "dev.csv, line 3: the line has no group; fill it in"),
        (
            *(HEADER + "a,x,no\nb,y,no\n", {}),
            "at least one group of the eval set must have a relevant text, with a label 'yes';"
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
def test_groups_that_are_refused(tmp_path, text, columns, message):
    (tmp_path / "dev.csv").write_text(text)
    with pytest.raises(UserError, match=re.escape(message)):
        ranked_task(tmp_path, dataclasses.replace(COLUMNS, **columns)).read_sets("eval")
