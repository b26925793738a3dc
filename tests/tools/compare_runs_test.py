"""Tests of tools/compare_runs.py: each kind of results, and what is refused."""

import re

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from bert_tf.runs.results import tables
from bert_tf.runs.results.tables import KeptRows
from bert_tf.tasks.tagging.data import Sentence
from bert_tf.tasks.tagging.files import write_tables
from tests.support.pretraining_runs import run
from tests.support.refusals import refuses
from tools import compare_runs

LABELS = ["no", "yes"]


def write_classes(folder, labels, predicted):
    """Writes the evaluation of a run on texts that these labels have; returns the folder."""
    folder.mkdir(exist_ok=True)
    rows = KeptRows(
        {"id": f"dev-{i}", "text_a": f"text {i}", "label": LABELS[x]} for i, x in enumerate(labels)
    )
    outputs = np.eye(2)[predicted] * 0.8 + 0.1
    tables.write_review(f"{folder}", "", rows, LABELS, np.array(labels), outputs)
    return folder


def compared(one, two, num_resamples=300, file=None):
    _, a, b = compare_runs.read_pair(f"{one}", f"{two}", file)
    return compare_runs.compare(a, b, num_resamples, seed=1)


@pytest.fixture
def runs(tmp_path):
    """B is right on 12 examples where A is wrong, A on 3 where B is; 60 examples."""
    labels = np.random.default_rng(5).integers(0, 2, 60)
    a, b = labels.copy(), labels.copy()
    a[:16], b[12:19] = 1 - a[:16], 1 - b[12:19]  # both are wrong on 12 to 15
    folders = (
        write_classes(tmp_path / name, labels.tolist(), x) for name, x in (("a", a), ("b", b))
    )
    return labels.tolist(), *folders


def test_classes(runs):
    labels, one, two = runs
    found, back = compared(one, two), compared(two, one)
    assert found.right == {(True, True): 41, (True, False): 3, (False, True): 12, (False, False): 4}
    assert found.p_value == pytest.approx(2 * stats.binom.cdf(3, 15, 0.5))  # exact, two-sided
    names = [metric.name for metric in found.metrics]
    assert names == ["accuracy", "macro F1", "F1 of no", "F1 of yes"]
    accuracy, macro, _, f1 = found.metrics
    assert (accuracy.a, accuracy.b) == pytest.approx((44 / 60, 53 / 60))
    table = tables.read_table(f"{one}/eval_predictions.tsv")["prediction"]
    predicted = [LABELS.index(x) for x in table]
    assert macro.a == pytest.approx(metrics.f1_score(labels, predicted, average="macro"))
    assert f1.a == pytest.approx(metrics.f1_score(labels, predicted))
    assert accuracy.low < accuracy.difference < accuracy.high
    # The normal approximation of a paired difference: 9/60, and its standard error.
    error = np.sqrt(15 / 60 - (9 / 60) ** 2) / np.sqrt(60)
    assert accuracy.low == pytest.approx(0.15 - 1.96 * error, abs=0.03)
    assert accuracy.high == pytest.approx(0.15 + 1.96 * error, abs=0.03)
    # The order of the runs only changes signs.
    assert found.p_value == back.p_value
    for there, here in zip(found.metrics, back.metrics, strict=True):
        assert (there.low, there.high) == pytest.approx((-here.high, -here.low), abs=1e-9)


def test_the_program_says_it_in_sentences(runs):
    _, one, two = runs
    printed = run(f"{one}", f"{two}", "--num_resamples=300", program="tools.compare_runs")
    assert "Both have the same 60 examples." in printed
    assert "B is right on 12 examples where A is wrong; A is right on 3 examples where B" in printed
    assert "McNemar's exact test: p = 0.0352. Two equally good models would rarely" in printed
    line = r"accuracy: A 0\.7333, B 0\.8833; B - A = \+0\.1500, 95% interval .*: B is better\."
    assert re.search(line, printed)


def test_small_runs(tmp_path):
    def pair(name, labels, a, b):
        folders = ((f"{name}_a", a), (f"{name}_b", b))
        return compared(*(write_classes(tmp_path / x, labels, y) for x, y in folders))

    found = pair("equal", [0, 1, 1], [0, 1, 0], [0, 1, 0])
    assert found.p_value == 1.0
    text = compare_runs.sentences(found)
    assert "B is right on 0 examples where A is wrong" in text and "would often" in text
    assert text.count("do not show which is better") == 4
    found = pair("one", [1], [0], [1])
    assert "B is right on 1 example where A is wrong" in compare_runs.sentences(found)
    accuracy, macro = pair("missing class", [0, 0], [0, 0], [1, 0]).metrics
    assert (accuracy.b, macro.b) == (0.5, pytest.approx(2 / 3))


def test_several_labels(tmp_path):
    names = ["new york", "-york", "new"]
    columns = ["id", "label", "prediction", *(f"probability {name}" for name in names)]
    wanted = ["new york; new", "", "-york", "new"]
    for folder, predicted in (
        ("a", ["new york", "new", "-york;new", "new"]),
        ("b", ["new;new york", "", "-york", "-york"]),
    ):
        (tmp_path / folder).mkdir()
        cells = zip(wanted, predicted, strict=True)
        rows = [[f"{i}", *pair, 0.5, 0.5, 0.5] for i, pair in enumerate(cells)]
        tables.write_table(f"{tmp_path}/{folder}/eval_predictions.tsv", columns, rows)
    found = compared(tmp_path / "a", tmp_path / "b")
    assert found.right == {(True, True): 0, (True, False): 1, (False, True): 3, (False, False): 0}
    right, micro, macro = found.metrics
    assert (right.a, right.b) == (0.25, 0.75)
    sets = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 1]])
    of_a = np.array([[1, 0, 0], [0, 0, 1], [0, 1, 1], [0, 0, 1]])
    for metric, average in ((micro, "micro"), (macro, "macro")):
        assert metric.a == pytest.approx(metrics.f1_score(sets, of_a, average=average))
    unknown = dict.fromkeys(columns, ["new", "newark"])
    refuses(r"Example 1 .* has unknown labels: 'newark'", compare_runs.compare, unknown, {}, 1, 1)


def test_numbers(tmp_path):
    rng = np.random.default_rng(2)
    labels = rng.random(50)
    for name, noise in (("a", 0.5), ("b", 0.05)):
        (tmp_path / name).mkdir()
        rows = KeptRows({"id": f"{i}", "text_a": "t", "label": x} for i, x in enumerate(labels))
        predicted = labels + noise * rng.normal(size=50)
        tables.write_review(f"{tmp_path}/{name}", "", rows, None, labels, predicted)
    found = compared(tmp_path / "a", tmp_path / "b")
    assert found.p_value is None and found.right == {}
    pearson, _, error = found.metrics
    assert pearson.b == pytest.approx(stats.pearsonr(labels, predicted).statistic)
    text = compare_runs.sentences(found)
    assert "McNemar" not in text and text.count(": B is better.") == 3 and error.difference < 0


def test_tags(tmp_path):
    gold = [Sentence(["Ann", "left"], ["B-PER", "O"], 0), Sentence(["Rome"], ["B-LOC"], 0)] * 9
    for name, tag in (("a", "O"), ("b", "B-PER")):
        (tmp_path / name).mkdir()
        predicted = [[tag, "O"], ["B-LOC"]] * 9
        write_tables(f"{tmp_path}/{name}", "eval_predictions", gold, predicted, [0.0] * 27)
    found = compared(tmp_path / "a", tmp_path / "b")
    assert found.unit == "sentences" and found.right[False, True] == 9
    f1, words, _ = found.metrics
    assert (f1.a, f1.b) == (pytest.approx(2 * 9 / (9 + 18)), 1.0)
    assert words.a == pytest.approx(18 / 27)


def test_answers(tmp_path):
    columns = ["id", "question", "context", "answer", "correct_answers", "exact", "f1"]
    for name, scores in (("a", (1.0, 0.5)), ("b", (0.0, 0.25))):
        (tmp_path / name).mkdir()
        rows = [
            ["q1", "who?", f"cut for {name}", "x", "", scores[0], scores[0]],  # no answer exists
            ["q2", "why?", "c", "y", "z", 0.0, scores[1]],
        ]
        tables.write_table(f"{tmp_path}/{name}/predictions.tsv", columns, rows)
    found = compared(tmp_path / "a", tmp_path / "b")
    assert found.unit == "questions" and found.right[True, False] == 1
    assert [(m.a, m.b) for m in found.metrics] == [(0.5, 0.0), (0.75, 0.125)]


def test_what_is_refused(tmp_path, runs):
    _, one, two = runs

    def refused(message, a=one, b=two, file=None):
        refuses(message, compared, a, b, file=file)

    for folder in ("s3://bucket/run", "hdfs://host/run"):
        refused(f"^{folder}: this TensorFlow does not support ", a=folder, b=f"{folder}2")

    (tmp_path / "empty").mkdir()
    missing = "empty must be the --output_dir of a run that evaluated, but it has no"
    refused(f"{missing} eval_predictions.tsv or predictions.tsv", b=tmp_path / "empty")
    refused("it has no x.tsv; evaluate", file="x.tsv")
    shorter = write_classes(tmp_path / "shorter", [0, 1], [0, 1])
    longer = write_classes(tmp_path / "longer", [0, 1, 1], [0, 1, 0])
    refused("but example 2 .* and None in .*shorter/eval_p", a=longer, b=shorter)
    other = write_classes(tmp_path / "other", [0, 0], [0, 1])
    refused(r"example 1 \(counted from 0\) is .*'yes'\) in .*'no'\) in", a=shorter, b=other)
    for folder in (other, tmp_path / "test"):
        folder.mkdir(exist_ok=True)
        tables.write_table(f"{folder}/predictions.tsv", ["id", "prediction"], [["t", "no"]])
    refused("must have label and prediction of every example", a=tmp_path / "test", b=other)
    refused("a and .*test must have evaluated the same file: run both", b=tmp_path / "test")
    rows = [["t", "no", "no", 0.5], ["u", None, "no", 0.5]]
    columns = ["id", "label", "prediction", "probability"]
    for folder in (other, tmp_path / "test"):
        tables.write_table(f"{folder}/predictions.tsv", columns, rows)
    refused("must have label and prediction of every example", a=tmp_path / "test", b=other)
    tables.write_table(f"{other}/eval_predictions.tsv", columns, [])
    refused("must be of the same task: .* has the columns 'id', 'text_a', 'label'", b=other)
