"""Makes the steps of one phase and reports them; ends a program whose steps hang."""

import contextlib
import dataclasses
import faulthandler
import os
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.engine import distribution, interrupts
from bert_tf.engine.distribution import peak_flops
from bert_tf.engine.evaluator import StepMetrics, means
from bert_tf.engine.input_pipeline import TrainingInput
from bert_tf.engine.loops import TrainingLoop
from bert_tf.errors import UserError
from bert_tf.files import record_checks
from bert_tf.runs.folder import reporting
from bert_tf.runs.folder.run import Run
from bert_tf.runs.training.plan import Phase

_MUCH_WAITING = 0.1  # share of the time of steps
_LEAST_EXAMPLES = 8  # in small batches, fewer examples may all have weight 0 by chance
Advance = Callable[[int], None]


@contextlib.contextmanager
def watched(advance: Advance, minutes: float, process: int) -> Iterator[Advance]:
    """Yields `advance`, watched: the program ends if no step is reported for `minutes`.

    It first prints what each thread is doing to standard error. A step hangs, for example, if a
    different process of the run has stopped. 0 minutes: no limit.
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
    """Returns a context that writes a trace of the computations in it, for XProf."""
    if distribution.runs_by_pjrt(strategy):
        return strategy.jax.profiler.trace(folder)
    return tf.profiler.experimental.Profile(folder)


@dataclasses.dataclass
class PhaseSteps:
    """Trains through one phase; `loop` must be new: its first steps count as compiling."""

    phase: Phase
    loop: TrainingLoop
    source: TrainingInput
    run: Run
    total: int | None
    _compiled: bool = False
    _without_weight: frozenset[str] | None = None
    _num_steps: int = 0  # made by `make` so far

    def __post_init__(self):
        self._peak = peak_flops(self.run.strategy)

    def make(self, step: int, stop: int, advance: Callable[[int], None]) -> StepMetrics:
        """Makes the steps from `step` until `stop`, and returns their metrics.

        The first call compiles and reports no speed. `advance` is called now and then with the
        number of steps made since the last call.
        """
        began, speed = time.monotonic(), {}
        minutes = self.run.settings.hang_minutes if self._compiled else 0.0
        process = distribution.input_shard(self.run.strategy).index
        try:
            with (
                self.run.clock.spent("steps" if self._compiled else "compiling"),
                watched(advance, minutes, process) as heard,
            ):
                metrics = self.loop.run(self.source.iterator, stop - step, heard)
                seconds = time.monotonic() - began
                if self._compiled:
                    speed = self._speed(stop - step, seconds)
        except record_checks.read_errors() as error:
            raise self.source.explain(error) from error
        finally:
            if self._compiled:
                self.run.clock.move(self.loop.input_seconds, "steps", "input")
        self._check_finite(metrics, step)
        self._num_steps += stop - step
        self._check_weights(metrics, stop)
        self._report(metrics, step, stop, speed)
        if not self._compiled:
            self._compiled = True
            self.run.write_goodput()
            logging.info("Traced, compiled and made the first step in %.1f s", seconds)
        elif self.loop.input_seconds > _MUCH_WAITING * seconds:
            logging.info(
                "Steps %d to %d waited for input %.0f%% of the time: more CPU cores would help",
                *(step + 1, stop, 100.0 * self.loop.input_seconds / seconds),
            )
        return metrics

    def _check_finite(self, metrics: StepMetrics, first: int) -> None:
        for name, values in metrics.items():
            finite = np.isfinite(values).reshape(-1, np.shape(values)[-1]).all(axis=0)
            if not finite.all():
                bad = int(np.argmin(finite))
                value = values[0][bad] if isinstance(values, tuple) else values[bad]
                self.run.wait_for_save()  # the save may finish, or raise its own error
                raise self.run.divergence(f"{name} is {value}", first + bad)

    def _check_weights(self, metrics: StepMetrics, stop: int) -> None:
        """Checks that no loss had weight 0 in all examples so far, unless these were few."""
        empty = {
            name
            for name, values in metrics.items()
            if isinstance(values, tuple) and name.endswith("loss") and not np.any(values[1])
        }
        if self._without_weight is not None:
            empty &= self._without_weight
        self._without_weight = frozenset(empty)
        are_enough = self._num_steps * self.phase.batch_size >= _LEAST_EXAMPLES
        if empty and (self._compiled and are_enough or stop == self.total):
            raise UserError(
                f"The examples must have weights above 0: the weight of {min(empty)} is 0 in"
                f" all examples up to step {stop}. Look at the weights and masks of the records, or"
                " make them again"
            )

    def _speed(self, num_steps: int, seconds: float) -> dict[str, float]:
        """Returns the speed of steps that took `seconds` in all. All processes must call this."""
        examples = num_steps * self.phase.batch_size * self.phase.examples_per_record
        each = seconds / num_steps
        speed = {"examples_per_second": examples / seconds, "seconds_per_step": each}
        if work := self.phase.work:
            cut = self.loop.lengths  # None: not cut
            lengths = np.full(num_steps, work.length) if cut is None else cut.astype(int)
            speed["tokens_per_second"] = work.sequences * float(lengths.sum()) / seconds
            if work.flops and self._peak:
                flops = sum(map(work.flops, lengths.tolist()))
                speed["mfu"] = flops / seconds / self._peak
        if distribution.several_processes(self.run.strategy):
            waits = self.loop.input_seconds / num_steps
            for name, own in (("seconds_per_step", each), ("input_seconds_per_step", waits)):
                of_hosts = self.run.gather(own)
                slowest = int(np.argmax(of_hosts))
                speed[f"hosts/{name}_median"] = float(np.median(of_hosts))
                speed[f"hosts/{name}_slowest"] = of_hosts[slowest]
                speed[f"hosts/{name}_slowest_process"] = slowest
        return speed

    def _report(self, metrics: StepMetrics, first: int, stop: int, speed: dict[str, float]) -> None:
        num_steps, left = stop - first, ""
        if speed and self.total and (to_go := self.total - stop):
            # Assumes this speed throughout; the steps of a later phase may take longer.
            share = 100.0 * stop / self.total
            time_left = reporting.duration(to_go * speed["seconds_per_step"])
            left = f" ({share:.0f}% done, about {time_left} left)"
        for start in range(0, num_steps, reporting.SUMMARY_STEPS):
            end = min(start + reporting.SUMMARY_STEPS, num_steps)
            # The learning rate is the last step's; everything else is the mean over the steps.
            now = {"learning_rate": metrics["learning_rate"][end - 1], **speed}
            self.run.training_summaries.write({**means(metrics, start, end), **now}, first + end)
        figures = reporting.describe({**means(metrics), **now})
        logging.info("step %d: %s%s", stop, figures, left)
