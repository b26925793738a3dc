"""GLUE's metrics of a whole evaluation set, by scikit-learn and SciPy.

Both are imported where they are used: it takes a second or two, and training needs neither.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from bert_tf.errors import UserError


def accuracy(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the share of predictions that are right; both int `[examples]`."""
    return float(np.mean(labels == predictions))


def f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns F1 of class 1 among two; both int `[examples]`."""
    from sklearn import metrics

    return float(metrics.f1_score(labels, predictions, zero_division=0.0))


def matthews_correlation(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns Matthews' correlation of classes; both int `[examples]`."""
    from sklearn import metrics

    if np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        return 0.0  # not defined, of which the library would warn
    return float(metrics.matthews_corrcoef(labels, predictions))


def pearson(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the correlation of numbers; both float `[examples]`."""
    from scipy import stats

    return _correlation(stats.pearsonr, labels, predictions)


def spearman(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the correlation of the numbers' ranks; both float `[examples]`."""
    from scipy import stats

    return _correlation(stats.spearmanr, labels, predictions)


METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    metric.__name__: metric for metric in (accuracy, f1, matthews_correlation, pearson, spearman)
}

# GLUE's score of a task with two metrics is their mean.
_AVERAGED = (("accuracy", "f1"), ("pearson", "spearman"))


def evaluate(metrics: Sequence[str], labels: np.ndarray, outputs: np.ndarray) -> dict[str, float]:
    """Returns the metrics as eval_results.txt has them, `eval_METRIC`.

    Where GLUE averages two metrics, `eval_METRIC_and_METRIC` is their mean. A metric that is not
    defined, such as the correlation with a constant, is 0.

    Args:
        metrics: names of `METRICS`.
        labels: int `[examples]`, or float for regression.
        outputs: float `[examples, classes]`, logits or probabilities, of which the greatest is
            predicted; for regression float `[examples]`, the predictions.

    Raises:
        UserError: there is no example.
    """
    if not len(labels):
        raise UserError("there is no example to evaluate")
    predictions = np.argmax(outputs, axis=-1) if outputs.ndim == 2 else outputs
    scores = {name: METRICS[name](labels, predictions) for name in metrics}
    for pair in _AVERAGED:
        if set(pair) <= scores.keys():
            scores["_and_".join(pair)] = sum(scores[name] for name in pair) / 2
    return {f"eval_{name}": value for name, value in scores.items()}


def _correlation(function: Callable, labels: np.ndarray, predictions: np.ndarray) -> float:
    # float64: SciPy warns of nearly constant input, and what float32 rounds is nearly constant.
    labels = labels.astype(np.float64)
    predictions = predictions.astype(np.float64)
    if len(labels) < 2 or np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        return 0.0
    value = float(function(labels, predictions).statistic)
    return value if math.isfinite(value) else 0.0
