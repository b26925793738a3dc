"""Temperature scaling."""

import logging

import numpy as np
import pytest

from bert_tf.runs.results import calibration, reports


def softmax(logits):
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("factor", [0.4, 1.0, 3.0])
def test_the_temperature_undoes_a_factor_of_the_logits(factor):
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(20_000, 3)) * 2
    labels = (softmax(logits).cumsum(axis=1) < rng.random((20_000, 1))).sum(axis=1)
    probabilities = softmax(logits * factor).astype(np.float32)
    found = calibration.calibrate(labels, probabilities)
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
    found = calibration.calibrate(labels, probabilities, weights.astype(np.float32))
    copies = calibration.calibrate(np.repeat(labels, weights), np.repeat(probabilities, weights, 0))
    assert found.temperature == pytest.approx(copies.temperature, rel=1e-4)
    plain = calibration.calibrate(labels, probabilities)
    assert plain.temperature > 1.3 * found.temperature
    assert found.before == plain.before  # the report counts each example once
    same = calibration.calibrate(labels, probabilities, np.full(400, 2.0, np.float32))
    assert same.temperature == pytest.approx(plain.temperature, rel=1e-6)


@pytest.mark.parametrize(("labels", "bound"), [([0, 1], 0.05), ([1, 0], 20.0)])
def test_predictions_that_are_all_right_or_wrong_have_no_temperature(labels, bound, caplog):
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8]], np.float32)
    with caplog.at_level(logging.WARNING):
        found = calibration.calibrate(np.array(labels), probabilities)
    assert found.temperature == pytest.approx(bound, rel=0.01)
    assert "the temperature is at its bound" in caplog.text


def test_probabilities_of_0_and_1_are_finite():
    probabilities = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], np.float32)
    found = calibration.calibrate(np.array([0, 1, 1]), probabilities)
    assert 1.0 < found.temperature < 20.5 and np.isfinite([found.before, found.after]).all()
