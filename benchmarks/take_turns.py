"""Runs functions to compare in turns, because a machine's speed drifts, and reports their speed."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def take_turns(
    runs: Mapping[str, Callable[[], T]], rounds: int, warm_up: bool = True
) -> dict[str, list[T]]:
    """Returns what each function returned in each round; in a round, each is called once.

    With `warm_up`, a round that does not count comes first, to compile and to fill caches.
    """
    results: dict[str, list[T]] = {name: [] for name in runs}
    for number in range(rounds + warm_up):
        for name, run in runs.items():
            result = run()
            if number >= warm_up:
                results[name].append(result)
    return results


def timed(run: Callable[[], object]) -> Callable[[], float]:
    """Returns a function that calls `run` and returns the seconds that the call took."""

    def seconds() -> float:
        began = time.perf_counter()
        run()
        return time.perf_counter() - began

    return seconds


def describe(seconds: Mapping[str, Sequence[float]], examples: int | None = None) -> str:
    """Returns a line for each name: the median, the range, and how the first's median compares.

    With the number of examples in a call, the figures are examples a second.
    """
    first = np.median(next(iter(seconds.values())))
    lines = []
    for name, values in seconds.items():
        ratio = f"{first / np.median(values):.2f} times as fast as the first"
        figures, unit, digits = np.array(values), "s", ".4g"
        if examples is not None:
            figures, unit, digits = examples / figures, "examples/s", ".2f"
        figures = (np.median(figures), figures.min(), figures.max())
        middle, low, high = (format(figure, digits) for figure in figures)
        lines.append(f"{name}: {middle} {unit} ({low} to {high}), {ratio}")
    return "\n".join(lines)
