"""A stretch of training on batches of one shape: what it reads, and how its steps are reported."""

import dataclasses
import time
from collections.abc import Callable, Sequence

import numpy as np
from absl import logging

from bert_tf.engine import distribution, input_pipeline
from bert_tf.engine.metrics import StepMetrics, means
from bert_tf.engine.training_loop import LoopInterrupted, TrainingLoop
from bert_tf.files import record_checks, records
from bert_tf.runs.folder import reporting
from bert_tf.runs.folder.run import Run
from bert_tf.runs.training.plan import Plan


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of training on batches of one shape.

    num_steps: number of steps.
    batch_size: records a step, over all replicas.
    files: TFRecord files.
    schema: features of their records.
    limits: see `input_pipeline.TrainingInput`.
    augment: see there.
    examples_per_record: the mean; more than 1 if records are packed.
    """

    num_steps: int
    batch_size: int
    files: Sequence[str]
    schema: records.Schema
    limits: input_pipeline.Limits
    augment: input_pipeline.Augment | None = dataclasses.field(default=None, kw_only=True)
    examples_per_record: float = dataclasses.field(default=1.0, kw_only=True)

    def open_input(self, seed: int, shard: distribution.InputShard) -> input_pipeline.TrainingInput:
        """Returns the batches that a host reads, from the beginning of the order of `seed`."""
        return input_pipeline.TrainingInput(
            self.files, self.schema, self.batch_size, self.limits, seed, shard, self.augment
        )


class PhaseLoop:
    """Trains through one phase and reports its steps.

    Args:
        phase: the phase.
        loop: makes the steps; it is new, so that its first one is compiled.
        sources: the phase's input, one for each of this process's hosts.
        run: gets the figures.
        plan: the course of the whole run.
    """

    def __init__(
        self,
        phase: Phase,
        loop: TrainingLoop,
        sources: Sequence[input_pipeline.TrainingInput],
        run: Run,
        plan: Plan,
    ):
        self._phase = phase
        self._loop = loop
        self._sources = sources
        self._iterators = [source.iterator for source in sources]
        self._run = run
        self._plan = plan
        self._compiled = False

    def run(self, step: int, stop: int, advance: Callable[[int], None]) -> None:
        """Trains from `step` to `stop`. The first step of all is compiled, and not timed.

        Args:
            step: the present step.
            stop: the step to stop at.
            advance: called now and then with the number of further steps that have been made.

        Raises:
            UserError: the input is damaged.
            OSError: the input cannot be read.
            FloatingPointError: a loss or gradient is not finite.
            LoopInterrupted: see `TrainingLoop.run`.
        """
        if not self._compiled:
            self._compiled = True
            with self._run.clock.spent("compiling"):
                seconds = self._make_steps(step, step + 1, advance, timed=False)
            self._run.write_goodput()
            logging.info("Traced, compiled and made the first step in %.1f s", seconds)
            step += 1
        if step < stop:
            try:
                self._make_steps(step, stop, advance, timed=True)
            finally:
                self._run.clock.move(self._loop.input_seconds, "steps", "input")

    def _make_steps(
        self, step: int, stop: int, advance: Callable[[int], None], timed: bool
    ) -> float:
        """Returns the seconds that the steps took."""
        began = time.monotonic()
        try:
            metrics = self._loop.run(self._iterators, stop - step, advance)
        except record_checks.READ_ERRORS as error:
            raise self._sources[0].explain(error) from error
        except LoopInterrupted as interrupt:
            self._check_finite(interrupt.metrics, step)
            raise
        seconds = time.monotonic() - began
        self._check_finite(metrics, step)
        self._report(metrics, step, stop, seconds if timed else None)
        return seconds

    def _report(self, metrics: StepMetrics, first: int, stop: int, seconds: float | None) -> None:
        """Writes the metrics of the steps to TensorBoard and to the log."""
        num_steps = stop - first
        speed, left = {}, ""
        if seconds:
            examples = num_steps * self._phase.batch_size * self._phase.examples_per_record
            speed["examples_per_second"] = examples / seconds
            if not self._plan.endless and (to_go := self._plan.total - stop):
                # At this rate; the steps of a later phase may take longer.
                share = 100.0 * stop / self._plan.total
                time_left = reporting.duration(to_go * seconds / num_steps)
                left = f" ({share:.0f}% done, about {time_left} left)"
        for start in range(0, num_steps, reporting.SUMMARY_STEPS):
            end = min(start + reporting.SUMMARY_STEPS, num_steps)
            # A rate is that of its step; all else is the mean over the steps.
            now = {"learning_rate": metrics["learning_rate"][end - 1], **speed}
            self._run.write_training_summaries({**means(metrics, start, end), **now}, first + end)
        figures = reporting.describe({**means(metrics), **now})
        logging.info("step %d: %s%s", stop, figures, left)

    def _check_finite(self, metrics: StepMetrics, first_step: int) -> None:
        for name in ("loss", "gradient_norm"):
            bad = np.flatnonzero(~np.isfinite(metrics[name]))
            if bad.size:
                value = metrics[name][bad[0]]
                self._run.wait_for_save()  # which may be the last checkpoint, or the first error
                raise self._run.divergence(f"{name} is {value}", first_step + int(bad[0]))
