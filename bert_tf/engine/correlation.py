"""Correlations of predictions with labels, computed with SciPy, whose import takes seconds."""

import math

import numpy as np


def pearson(
    labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """Returns the Pearson correlation; all float `[examples]`.

    Whole numbers as `weights` count as if the examples were repeated; None counts each once.
    """
    return _correlation("pearsonr", labels, predictions, weights)


def spearman(
    labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """Returns the Spearman rank correlation; see `pearson`."""
    if weights is not None:
        weights = weights.astype(np.float64)
        labels, predictions = _ranks(labels, weights), _ranks(predictions, weights)
        return _correlation("pearsonr", labels, predictions, weights)
    return _correlation("spearmanr", labels, predictions, None)


def _correlation(
    function: str, labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray | None
) -> float:
    from scipy import stats  # here, because training does not need it

    # In float64: SciPy warns about nearly constant input, which float32 values may seem to be.
    labels = labels.astype(np.float64)
    predictions = predictions.astype(np.float64)
    if weights is not None:  # an example of weight 0 must not hide that the rest is constant
        counted = weights > 0
        labels, predictions, weights = labels[counted], predictions[counted], weights[counted]
    if len(labels) < 2 or np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        return 0.0
    if weights is None:
        value = float(getattr(stats, function)(labels, predictions).statistic)
    else:  # SciPy's functions take no weights
        covariances = np.cov(labels, predictions, aweights=weights.astype(np.float64), ddof=0)
        value = float(covariances[0, 1] / np.sqrt(covariances[0, 0] * covariances[1, 1]))
    return value if math.isfinite(value) else 0.0


def _ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns the values' ranks less 1/2, if each occurs `weights` times; equal ones share one."""
    _, equal = np.unique(values, return_inverse=True)
    totals = np.bincount(equal, weights)
    return (np.cumsum(totals) - totals / 2)[equal]
