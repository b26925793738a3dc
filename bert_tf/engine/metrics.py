"""Averages the metrics of single steps over many steps."""

from collections.abc import Mapping
from typing import Any

import numpy as np

# Metric -> its value in every step, or its weighted sum and its weight; each float [steps]. If a
# metric is several numbers, it has a list of sums.
StepMetrics = Mapping[str, np.ndarray | tuple[np.ndarray | list[np.ndarray], np.ndarray]]


def means(metrics: StepMetrics, start: int = 0, end: int | None = None) -> dict[str, Any]:
    """Returns the mean of each metric over the steps from `start` to before `end`.

    A mean is a float, or an array for several numbers. If all weights are 0 it is 0, as in
    tf.metrics.
    """
    result = {}
    for name, values in metrics.items():
        if isinstance(values, tuple):
            total, weight = (
                np.sum(np.asarray(v)[..., start:end], axis=-1, dtype=np.float64) for v in values
            )
            mean = total / weight if weight else 0.0 * total
            result[name] = mean if mean.ndim else float(mean)
        else:
            result[name] = float(np.mean(values[start:end], dtype=np.float64))
    return result
