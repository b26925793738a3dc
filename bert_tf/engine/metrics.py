"""Averages the metrics of single steps over many steps."""

from collections.abc import Mapping

import numpy as np

# Metric -> its value in every step, or its weighted sum and its weight; each float [steps].
StepMetrics = Mapping[str, np.ndarray | tuple[np.ndarray, np.ndarray]]


def means(metrics: StepMetrics, start: int = 0, end: int | None = None) -> dict[str, float]:
    """Returns the mean of each metric over the steps from `start` to before `end`.

    If all weights are 0 the mean is 0, as in tf.metrics.
    """
    result = {}
    for name, values in metrics.items():
        if isinstance(values, tuple):
            total, weight = (np.sum(v[start:end], dtype=np.float64) for v in values)
            result[name] = float(total / weight) if weight else 0.0
        else:
            result[name] = float(np.mean(values[start:end], dtype=np.float64))
    return result
