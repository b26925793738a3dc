"""Temperature scaling: one number that makes the probabilities of a classifier fit its accuracy.

Source: "On Calibration of Modern Neural Networks", https://arxiv.org/abs/1706.04599, section 4.2.
Logits are divided by the temperature. That changes no prediction, only how certain it is.
"""

import dataclasses

import numpy as np
from absl import logging

from bert_tf.runs.results.reports import calibration_error

BOUNDS = (0.05, 20.0)  # with few or only correct examples the best temperature has no bound


@dataclasses.dataclass(frozen=True)
class Calibration:
    """A temperature, and what it does to the examples that it was fitted on.

    Attributes:
        temperature: above 1 if the model was too certain.
        before, after: the calibration error at temperature 1 and at `temperature`.
    """

    temperature: float
    before: float
    after: float


def calibrate(label_ids: np.ndarray, probabilities: np.ndarray) -> Calibration:
    """Returns the temperature with the least negative log-likelihood of the labels.

    Args:
        label_ids: the correct classes, int `[examples]`; if an example can have several labels,
            1 for each that it has, `[examples, labels]`.
        probabilities: float `[examples, classes]`.
    """
    from scipy import optimize  # here, because that takes a second

    several = label_ids.ndim == 2
    logits = _logits(probabilities, several)
    right = label_ids if several else np.eye(logits.shape[1])[label_ids]

    def loss(log_temperature: float) -> float:
        scaled = logits / np.exp(log_temperature)
        if several:
            return float(np.mean(np.logaddexp(0.0, scaled) - right * scaled))
        return float(np.mean(np.logaddexp.reduce(scaled, axis=1) - (right * scaled).sum(axis=1)))

    low, high = np.log(BOUNDS)
    found = optimize.minimize_scalar(loss, bounds=(low, high), method="bounded")
    temperature = float(np.exp(found.x))
    if not BOUNDS[0] * 1.01 < temperature < BOUNDS[1] / 1.01:
        logging.warning(
            "--temperature_scaling: the temperature is at its bound, %.3g: the dev set has too few"
            " examples, or only correct or only wrong predictions. Do not trust the probabilities;"
            " take a larger dev set",
            temperature,
        )
    errors = [_error(label_ids, logits / t, several) for t in (1.0, temperature)]
    logging.info(
        "Temperature %.4g, from %d examples: calibration error %.4f, before %.4f; loss %.4f, before"
        " %.4f",
        *(temperature, len(label_ids), *errors[::-1], found.fun, loss(0.0)),
    )
    return Calibration(temperature, *errors)


def _logits(probabilities: np.ndarray, several: bool) -> np.ndarray:
    """Returns logits, up to a constant for each example, which a softmax ignores."""
    tiny = float(np.finfo(np.float32).tiny)
    probabilities = probabilities.astype(np.float64)
    logits = np.log(np.maximum(probabilities, tiny))
    return logits - np.log(np.maximum(1.0 - probabilities, tiny)) if several else logits


def _error(label_ids: np.ndarray, logits: np.ndarray, several: bool) -> float:
    if several:
        return calibration_error((1.0 / (1.0 + np.exp(-logits))).ravel(), label_ids.ravel())
    probabilities = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
    correct = np.argmax(logits, axis=1) == label_ids
    return calibration_error(probabilities.max(axis=1), correct)
