"""Progress of long work: a bar on a terminal, a log line now and then anywhere else."""

import sys
import time
from collections.abc import Callable

from absl import logging

_SECONDS_BETWEEN_LINES = 30.0


class Progress:
    """Counts work done and shows how far it is; a context manager.

    On a terminal it is tqdm's bar. Elsewhere (a log file, a batch job) a line is logged every half
    minute, so that short work logs nothing.
    """

    def __init__(self, what: str, unit: str, total: int | None = None, done: int = 0):
        """Starts to count from `done` towards `total` (None if unknown) `unit`s of `what`."""
        self._what = what
        self._unit = unit
        self._total = total
        self._done = self._begun_with = done
        self._start = self._last_line = time.monotonic()
        self._advance_bar: Callable[[int], object] | None = None
        self._close_bar: Callable[[], None] = lambda: None
        if sys.stderr.isatty():
            from tqdm import tqdm  # only here: without a terminal it is not needed

            bar = tqdm(
                desc=what, total=total, initial=done, unit=f" {unit}", unit_scale=True, leave=False
            )
            self._advance_bar, self._close_bar = bar.update, bar.close

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *unused) -> None:
        self._close_bar()

    def advance(self, count: int = 1) -> None:
        """Counts `count` units as done."""
        self._done += count
        if self._advance_bar is not None:
            self._advance_bar(count)
            return
        now = time.monotonic()
        if now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            of_total = f" of {self._total:,}" if self._total else ""
            rate = (self._done - self._begun_with) / (now - self._start)
            logging.info(
                "%s: %s%s %s, %s/s",
                self._what,
                f"{self._done:,}",
                of_total,
                self._unit,
                f"{rate:,.3g}",
            )
