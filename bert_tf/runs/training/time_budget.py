"""A time budget for training (--max_hours): when training stops, and its learning rates."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf
from absl import logging

from bert_tf import optimization
from bert_tf.runs.training.plan import Leg

_LOOPS = 50  # measure the time of a step about this many times in a run


class TimeBudget:
    """Fits a learning rate schedule to a time, and stops training when the time is up.

    The learning rate is a function of the used share of the budget (24hBERT, arXiv 2104.07705).
    Between two loops of steps, the budget measures this share and the time of a step. Within a
    loop, the share grows with every step by the mean time of a step so far, saves and evaluations
    included. So rates depend on the speed of the machine, and no two runs are equal to the bit.

    Args:
        hours: the budget.
        schedule: learning rates of `num_steps` steps, to be stretched or compressed.
        num_steps: number of steps of the schedule.
        used: returns the seconds used, over all starts of the run. Processes that make steps
            together must get the same number.
    """

    def __init__(
        self,
        hours: float,
        schedule: optimization.Schedule,
        num_steps: int,
        used: Callable[[], float],
        strategy: tf.distribute.Strategy,
    ):
        self.hours = float(hours)
        self._seconds = 3600.0 * hours
        self._stretched = schedule
        self._num_steps = num_steps
        self._used = used
        self._measured: list[tuple[int, float]] = []  # steps, and the seconds used by then
        with strategy.scope():  # variables, so that a step is compiled once
            self._first = tf.Variable(0, trainable=False, dtype=tf.int64)
            self._line = tf.Variable([0.0, 0.0], trainable=False)

    def schedule(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the learning rate, float32 [], of the update after `step` updates, int64 []."""
        share, of_a_step = tf.unstack(self._line.read_value())
        share += of_a_step * tf.cast(step - self._first, tf.float32)
        return self._stretched(tf.minimum(share, 1.0) * float(self._num_steps))

    def legs(self, legs: Iterable[Leg], step: int) -> Iterator[Leg]:
        """Yields the legs until the time is used up, cut wherever the time of a step is measured.

        Args:
            legs: from `step`, the legs of a plan with more steps than there is time for.
        """
        for leg in legs:
            while step < leg.stop:
                stop = min(leg.stop, self._next_stop(step))
                if stop == step:
                    logging.info("--max_hours: the time is used up at step %d", step)
                    return
                if stop < leg.stop:
                    yield dataclasses.replace(leg, stop=stop, saves=False, evaluates=False)
                step = stop
            yield leg

    def _next_stop(self, step: int) -> int:
        """Sets the rates of the next steps, and returns the step at which to measure again.

        Returns `step` itself if there is no time for another step.
        """
        used = self._used()
        seconds = self._seconds_per_step(step, used)
        self._first.assign(step)
        self._line.assign([used / self._seconds, seconds / self._seconds])
        left = self._seconds - used
        if left <= max(seconds, 0.0):
            return step
        if not seconds:
            return step + 1
        return step + max(1, int(min(left, self._seconds / _LOOPS) / seconds))

    def _seconds_per_step(self, step: int, used: float) -> float:
        """Returns the mean time of a step since the compiled one; 0.0 if not known yet."""
        if len(self._measured) < 2:
            self._measured.append((step, used))
            return 0.0
        first, then = self._measured[1]
        return (used - then) / (step - first)
