"""GLUE's metrics, computed over a whole evaluation set with scikit-learn and SciPy.

scikit-learn is imported where it is used: that takes seconds, and training does not need it.
"""

from collections.abc import Callable, Sequence

import numpy as np

from bert_tf.engine.correlation import pearson, spearman


def accuracy(
    labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """Returns the share of correct predictions; both int `[examples]`."""
    return float(np.average(labels == predictions, weights=weights))


def f1(labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Returns the F1 score of class 1 of two classes; both int `[examples]`."""
    from sklearn import metrics

    score = metrics.f1_score(labels, predictions, zero_division=0.0, sample_weight=weights)
    return float(score)


def matthews_correlation(
    labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """Returns the Matthews correlation coefficient of classes; both int `[examples]`."""
    from sklearn import metrics

    if np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        return 0.0  # undefined; scikit-learn would warn
    return float(metrics.matthews_corrcoef(labels, predictions, sample_weight=weights))


# (labels, predictions, the examples' weights or None) -> the metric
Metric = Callable[[np.ndarray, np.ndarray, np.ndarray | None], float]
METRICS: dict[str, Metric] = {
    metric.__name__: metric for metric in (accuracy, f1, matthews_correlation, pearson, spearman)
}

# The GLUE score of a task with two metrics is their mean (https://gluebenchmark.com).
_AVERAGED = (("accuracy", "f1"), ("pearson", "spearman"))


def evaluate(
    metrics: Sequence[str],
    labels: np.ndarray,
    outputs: np.ndarray,
    weights: np.ndarray | None = None,
) -> dict[str, float]:
    """Returns metrics under their names in eval_results.txt, `eval_METRIC`.

    `eval_METRIC_and_METRIC` is the mean of two metrics that GLUE averages. An undefined metric,
    such as the correlation with a constant, is 0.

    Args:
        metrics: names of `METRICS`.
        labels: int `[examples]`, or float for regression.
        outputs: float `[examples, classes]`, logits or probabilities; the highest is the
            prediction. For regression float `[examples]`, the predictions.
        weights: float `[examples]`, how much each example counts; None for 1. Whole numbers count
            as if the examples were repeated.
    """
    predictions = np.argmax(outputs, axis=-1) if outputs.ndim == 2 else outputs
    scores = {name: METRICS[name](labels, predictions, weights) for name in metrics}
    for pair in _AVERAGED:
        if set(pair) <= scores.keys():
            scores["_and_".join(pair)] = sum(scores[name] for name in pair) / 2
    return {f"eval_{name}": value for name, value in scores.items()}
