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


def calibrate(
    label_ids: np.ndarray, probabilities: np.ndarray, weights: np.ndarray | None = None
) -> Calibration:
    """Returns the temperature with the least negative log-likelihood of the labels.

    Args:
        label_ids: the correct classes, int `[examples]`.
        probabilities: float `[examples, classes]`.
        weights: float `[examples]`, how much each example counts in the likelihood; None for 1.
    """
    from scipy import optimize  # here, because that takes a second

    # Logits up to a constant for each example, which a softmax ignores.
    tiny = np.finfo(np.float32).tiny
    logits = np.log(np.maximum(probabilities.astype(np.float64), tiny))
    right = np.arange(len(label_ids)), label_ids

    def loss(log_temperature: float) -> float:
        likelihoods = _log_softmax(logits / np.exp(log_temperature))[right]
        return -float(np.average(likelihoods, weights=weights))

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
    correct = np.argmax(logits, axis=1) == label_ids
    highest = (np.exp(_log_softmax(logits / t)).max(axis=1) for t in (1.0, temperature))
    errors = [calibration_error(x, correct) for x in highest]
    logging.info(
        "Temperature %.4g, from %d examples: calibration error %.4f, before %.4f; loss %.4f, before"
        " %.4f",
        *(temperature, len(label_ids), *errors[::-1], found.fun, loss(0.0)),
    )
    return Calibration(temperature, *errors)


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
