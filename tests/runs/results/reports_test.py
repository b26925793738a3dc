"""Reports of an evaluation, beside figures worked out by hand and by scikit-learn."""

import json
import logging

import numpy as np
import pytest
from sklearn import metrics

from bert_tf.runs.results import reports

LABELS = ["bad", "fine", "good"]
TRUE = np.array([0, 0, 0, 1, 2, 2])
# Predicted: bad, bad, good, bad, good, good. No example is predicted fine.
PROBABILITIES = np.array(
    [[0.7, 0.2, 0.1], [0.9, 0.1, 0.0], [0.2, 0.2, 0.6], [0.8, 0.1, 0.1], [0.0, 0.0, 1.0]]
    + [[0.1, 0.3, 0.6]]
)

CLASS_TEXT = """\
      precision  recall      f1  support
bad      0.6667  0.6667  0.6667        3
fine     0.0000  0.0000  0.0000        1
good     0.6667  1.0000  0.8000        2

                  precision  recall      f1  support
macro average        0.4444  0.5556  0.4889        6
weighted average     0.5556  0.6667  0.6000        6

accuracy: 0.6667 of 6 examples
calibration error: 0.2333 (15 bins)

confusion matrix: a row for each class, a column for each prediction
      bad  fine  good
bad     2     0     1
fine    1     0     0
good    0     0     2
"""


def test_a_class_report_has_every_class_and_prints_as_a_table():
    report = reports.class_report(LABELS, TRUE, PROBABILITIES)
    assert str(report) == repr(report) == CLASS_TEXT
    assert json.loads(json.dumps(report.values)) == report.values
    assert report["classes"]["bad"] == pytest.approx(
        {"precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3, "support": 3}
    )
    assert report["confusion_matrix"] == [[2, 0, 1], [1, 0, 0], [0, 0, 2]]
    predicted = PROBABILITIES.argmax(axis=1)
    assert report["macro"]["f1"] == pytest.approx(
        metrics.f1_score(TRUE, predicted, average="macro", zero_division=0.0)
    )


def test_many_classes_and_odd_names():
    labels = [f"class{i}" for i in range(30)]
    y_true = np.repeat(np.arange(30), 3)
    predicted = y_true.copy()
    predicted[3:5], predicted[9] = 7, 0  # class1 as class7 twice, class3 as class0 once
    text = str(reports.class_report(labels, y_true, np.eye(30)[predicted]))
    assert text.endswith(
        "most frequent confusions\nclass1 predicted as class7: 2\nclass3 predicted as class0: 1\n"
    )
    perfect = str(reports.class_report(labels, y_true, np.eye(30)[y_true]))
    assert perfect.endswith("most frequent confusions\nnone\n")
    labels = ["macro", "accuracy", "x" * 70]
    report = reports.class_report(labels, TRUE, PROBABILITIES)
    assert list(report["classes"]) == labels and report["accuracy"] == pytest.approx(4 / 6)
    assert report["macro"].keys() == {"precision", "recall", "f1"}
    assert f"\n{'x' * 37}...  " in str(report) and "x" * 38 not in str(report)


def test_several_labels_have_a_row_each_and_average_precision():
    y_true = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0]])
    probabilities = np.array([[0.9, 0.2, 0.1], [0.4, 0.8, 0.6], [0.1, 0.7, 0.2], [0.6, 0.1, 0.0]])
    report = reports.class_report(LABELS, y_true, probabilities)
    predicted = probabilities >= 0.5
    for average in ("micro", "macro", "weighted", "samples"):
        expected = metrics.f1_score(y_true, predicted, average=average, zero_division=0.0)
        assert report[average]["f1"] == pytest.approx(expected), average
    bad = report["classes"]["bad"]
    assert bad["average_precision"] == metrics.average_precision_score(
        y_true[:, 0], probabilities[:, 0]
    )
    assert (bad["true_positives"], bad["false_positives"], bad["false_negatives"]) == (1, 1, 1)
    assert report["classes"]["good"]["average_precision"] == 0.0  # no example has it
    assert report["accuracy"] == 0.5 and "all labels right: 0.5000 of 4 examples" in str(report)
    strict = reports.class_report(LABELS, y_true, probabilities, np.array([0.95, 0.5, 0.7]))
    assert [row["recall"] for row in strict["classes"].values()] == [0.0, 1.0, 0.0]
    json.dumps(report.values)


def test_calibration_error():
    for probabilities, correct, expected in (
        ([1.0, 1.0], [True, True], 0.0),
        ([1.0, 1.0], [False, False], 1.0),
        ([0.75] * 4, [True, True, True, False], 0.0),  # right on average
        ([0.9, 0.9, 0.5, 0.5], [True, False, True, False], 0.2),  # half of them, by 0.4
        ([], [], 0.0),
    ):
        found = reports.calibration_error(np.array(probabilities), np.array(correct, bool))
        assert found == pytest.approx(expected)


def test_reports_of_numbers_and_means():
    y_true = np.array([1.0, 2.0, 4.0], np.float32)
    report = reports.number_report(y_true, np.array([1.5, 2.0, 3.0], np.float32))
    assert report["mean_absolute_error"] == pytest.approx(0.5)
    assert report["mean_squared_error"] == pytest.approx((0.25 + 1) / 3)
    assert report["mean_difference"] == pytest.approx(-1 / 6)
    assert report["spearman"] == pytest.approx(1.0)
    assert str(report).splitlines()[1] == "mean absolute error: 0.5000"
    constant = reports.number_report(y_true, np.ones(3, np.float32))
    assert constant["pearson"] == 0.0  # undefined
    one, two = {"exact": 100.0, "f1": 100.0}, {"exact": 0.0, "f1": 50.0}
    report = reports.mean_report({"question_words": {"who": [one, two], "why": [two], "how": []}})
    assert report["question_words"] == {
        "who": {"exact": 50.0, "f1": 75.0, "examples": 2},
        "why": {"exact": 0.0, "f1": 50.0, "examples": 1},
    }
    assert str(report).splitlines()[0] == "question words"
    assert str(report).splitlines()[2].split() == ["who", "50.0000", "75.0000", "2"]


def test_a_span_report_has_each_type_and_their_sum():
    report = reports.span_report({"LOC": (2, 3, 4), "PER": (0, 0, 1)}, 0.75)
    assert report["types"]["LOC"] == pytest.approx(
        {"precision": 2 / 3, "recall": 0.5, "f1": 4 / 7, "support": 4}
    )
    assert report["types"]["PER"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1}
    assert report["micro"]["recall"] == pytest.approx(2 / 5)
    assert str(report).splitlines()[-1] == "accuracy of the words: 0.7500"
    assert reports.span_report({}, 1.0)["micro"]["support"] == 0


def softmax(logits):
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("factor", [0.4, 1.0, 3.0])
def test_the_temperature_undoes_a_factor_of_the_logits(factor):
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(20_000, 3)) * 2
    labels = (softmax(logits).cumsum(axis=1) < rng.random((20_000, 1))).sum(axis=1)
    probabilities = softmax(logits * factor).astype(np.float32)
    found = reports.calibrate(labels, probabilities)
    assert found.temperature == pytest.approx(factor, rel=0.05)
    correct = probabilities.argmax(axis=1) == labels
    before = reports.calibration_error(probabilities.max(axis=1), correct)
    assert found.before == pytest.approx(before)
    assert found.after < 0.015 and (factor == 1.0 or found.before > 0.08)


def test_weights_count_as_copies():
    rng = np.random.default_rng(2)
    probabilities = softmax(rng.normal(size=(400, 3)) * 3).astype(np.float32)
    labels = np.where(rng.random(400) < 0.6, probabilities.argmax(axis=1), rng.integers(0, 3, 400))
    correct = probabilities.argmax(axis=1) == labels
    weights = np.where(correct, 3, rng.integers(0, 2, 400))  # the errors are less reliable
    found = reports.calibrate(labels, probabilities, weights.astype(np.float32))
    copies = reports.calibrate(np.repeat(labels, weights), np.repeat(probabilities, weights, 0))
    assert found.temperature == pytest.approx(copies.temperature, rel=1e-4)
    plain = reports.calibrate(labels, probabilities)
    assert plain.temperature > 1.3 * found.temperature
    assert found.before == plain.before  # the report counts each example once
    same = reports.calibrate(labels, probabilities, np.full(400, 2.0, np.float32))
    assert same.temperature == pytest.approx(plain.temperature, rel=1e-6)
    # Probabilities of 0 and 1 are finite.
    found = reports.calibrate(np.array([0, 1, 1]), np.eye(2, dtype=np.float32)[[0, 0, 1]])
    assert 1.0 < found.temperature < 20.5 and np.isfinite([found.before, found.after]).all()


@pytest.mark.parametrize(("labels", "bound"), [([0, 1], 0.05), ([1, 0], 20.0)])
def test_predictions_that_are_all_right_or_wrong_have_no_temperature(labels, bound, caplog):
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8]], np.float32)
    with caplog.at_level(logging.WARNING):
        found = reports.calibrate(np.array(labels), probabilities)
    assert found.temperature == pytest.approx(bound, rel=0.01)
    assert "the temperature is at its bound" in caplog.text
