"""Correlations of predictions with labels, computed with SciPy, whose import takes seconds."""

import math

import numpy as np


def pearson(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the Pearson correlation; both float `[examples]`."""
    return _correlation("pearsonr", labels, predictions)


def spearman(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the Spearman rank correlation; both float `[examples]`."""
    return _correlation("spearmanr", labels, predictions)


def _correlation(function: str, labels: np.ndarray, predictions: np.ndarray) -> float:
    from scipy import stats  # here, because training does not need it

    # In float64: SciPy warns about nearly constant input, which float32 values may seem to be.
    labels = labels.astype(np.float64)
    predictions = predictions.astype(np.float64)
    if len(labels) < 2 or np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        return 0.0
    value = float(getattr(stats, function)(labels, predictions).statistic)
    return value if math.isfinite(value) else 0.0
