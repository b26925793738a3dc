"""Progress of long work: a bar on a terminal, a log line now and then anywhere else."""

import sys
import time
from collections.abc import Callable

from absl import logging

_SECONDS_BETWEEN_LINES = 30.0


class _AboveBar:
    """Stands in for stderr while there is a bar: what is written appears above it."""

    def __init__(self, write: Callable[..., object]):
        self._write = write

    def write(self, text: str) -> None:
        self._write(text, file=sys.stderr, end="")

    def flush(self) -> None:
        sys.stderr.flush()


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
        self._bar = None
        if sys.stderr.isatty():
            from tqdm import tqdm  # only here: without a terminal it is not needed

            self._bar = tqdm(
                desc=what,
                total=total,
                initial=done,
                unit=f" {unit}",
                unit_scale=unit == "bytes",
                leave=False,
            )
            self._log_handler = logging.get_absl_handler().python_handler
            self._log_stream = self._log_handler.stream
            self._log_handler.stream = _AboveBar(tqdm.write)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *unused) -> None:
        if self._bar is not None:
            self._bar.close()
            self._log_handler.stream = self._log_stream

    def advance(self, count: int = 1) -> None:
        """Counts `count` units as done."""
        self._done += count
        if self._bar is not None:
            self._bar.update(count)
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
