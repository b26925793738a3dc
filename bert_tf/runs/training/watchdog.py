"""Ends a program whose steps hang, and writes traces of steps."""

import contextlib
import faulthandler
import os
import threading
import time
from collections.abc import Callable, Iterator

import tensorflow as tf

from bert_tf.engine import distribution, interrupts

Advance = Callable[[int], None]


@contextlib.contextmanager
def watched(advance: Advance, minutes: float, process: int) -> Iterator[Advance]:
    """Yields `advance`; ends the program if it is not called with a step for so many minutes.

    Standard error then says what each thread is doing. A step hangs, for example, if a different
    process of the run has stopped. 0 minutes: no limit.
    """
    last, ended = time.monotonic(), threading.Event()

    def heard(count: int) -> None:
        nonlocal last
        last = time.monotonic() if count else last
        advance(count)

    def watch() -> None:
        while not ended.wait(1.0):
            if time.monotonic() - last > 60.0 * minutes:
                text = (
                    f"Process {process} made no step for {minutes:g} minutes (--hang_minutes) and"
                    " ends without saving; its threads follow. Start the same command again on"
                    " every machine: it continues from the last checkpoint\n"
                )
                try:
                    os.write(2, text.encode())
                    faulthandler.dump_traceback(2)  # in a notebook sys.stderr is not a file
                finally:
                    os._exit(interrupts.TERMINATED_STATUS)

    if minutes:
        threading.Thread(target=watch, daemon=True).start()
    try:
        yield heard
    finally:
        ended.set()


def traced(strategy: tf.distribute.Strategy, folder: str) -> contextlib.AbstractContextManager:
    """Returns a context that writes a trace of its computations, for XProf."""
    if distribution.runs_by_pjrt(strategy):
        return strategy.jax.profiler.trace(folder)
    return tf.profiler.experimental.Profile(folder)
