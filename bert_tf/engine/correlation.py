"""Correlations of predictions with labels, computed with SciPy.

Import this module only where it is used: importing SciPy takes seconds, and training does not need
it.
"""

import math
from collections.abc import Callable

import numpy as np


def pearson(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the Pearson correlation; both float `[examples]`."""
    from scipy import stats

    return _correlation(stats.pearsonr, labels, predictions)


def spearman(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Returns the Spearman rank correlation; both float `[examples]`."""
    from scipy import stats

    return _correlation(stats.spearmanr, labels, predictions)


def _correlation(function: Callable, labels: np.ndarray, predictions: np.ndarray) -> float:
    # In float64: SciPy warns about nearly constant input, which float32 values may seem to be.
    labels = labels.astype(np.float64)
    predictions = predictions.astype(np.float64)
    if len(labels) < 2 or np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        return 0.0
    value = float(function(labels, predictions).statistic)
    return value if math.isfinite(value) else 0.0
