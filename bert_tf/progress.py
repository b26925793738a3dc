"""Progress of long work: a bar on a terminal, elsewhere a log line every half minute."""

import contextlib
import contextvars
import sys
import time
import types
from collections.abc import Iterator

from absl import logging

_SECONDS_BETWEEN_LINES = 30.0


_is_hidden = contextvars.ContextVar("is_hidden", default=False)


@contextlib.contextmanager
def hidden(is_hidden: bool = True) -> Iterator[None]:
    """Hides the progress of work in this context, unless `is_hidden` is false."""
    token = _is_hidden.set(is_hidden)
    try:
        yield
    finally:
        _is_hidden.reset(token)


class Progress:
    """Counts finished work and shows the progress; a context manager.

    On a terminal it shows tqdm's bar. Elsewhere it logs a line every half minute.
    """

    def __init__(self, what: str, unit: str, total: int | None = None, done: int = 0):
        """Starts the count; `total`, None if unknown, includes the `done` units."""
        self._what = what
        self._unit = unit
        self._total = total
        self._done = self._begun_with = done
        self._start = self._last_line = time.monotonic()
        self._bar = None
        self._is_hidden = _is_hidden.get()
        if sys.stderr.isatty() and not self._is_hidden:
            from tqdm import tqdm  # imported only for a terminal, to start faster

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
            self._log_handler.stream = types.SimpleNamespace(  # writes above the bar
                write=lambda text: tqdm.write(text, file=sys.stderr, end=""),
                flush=lambda: sys.stderr.flush(),
            )

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *unused) -> None:
        if self._bar is not None:
            self._bar.close()
            self._log_handler.stream = self._log_stream

    def advance(self, count: int = 1) -> None:
        self._done += count
        if self._bar is not None:
            self._bar.update(count)
            return
        now = time.monotonic()
        if now - self._last_line >= _SECONDS_BETWEEN_LINES and not self._is_hidden:
            self._last_line = now
            of_total = f" of {self._total:,}" if self._total else ""
            rate = (self._done - self._begun_with) / (now - self._start)
            done = f"{self._done:,}{of_total} {self._unit}"
            logging.info("%s: %s, %s/s", self._what, done, f"{rate:,.3g}")
