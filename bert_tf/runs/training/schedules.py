"""Time budgets (--max_hours), and warnings of a changed learning rate schedule.

A checkpoint has the number of its step but not the schedule, so a changed schedule would go
unnoticed. `schedule.json` beside the checkpoints records the schedule, and how dropout's masks are
made, which earlier versions did differently.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf
from absl import logging

from bert_tf import optimization
from bert_tf.errors import UserError
from bert_tf.files.whole_files import read_json, write_whole
from bert_tf.optimization import PolynomialSchedule, Schedule
from bert_tf.runs.training.plan import Leg

_LOOPS = 50  # about how many times a run measures the time of a step
FILE_NAME = "schedule.json"
_MASKS = "hash of the position"


class TimeBudget:
    """Fits a learning rate schedule to a time, and stops training when the time is up.

    The learning rate is a function of the used share of the budget (24hBERT, arXiv 2104.07705), not
    counting the time before the first step of each start, when nothing is learned. Between two
    loops of steps, the budget measures this share and the time of a step. Within a loop, the share
    grows with every step by the mean time of a step so far, saves and evaluations included. So
    rates depend on the speed of the machine, and two runs are never bit-identical.

    Args:
        schedule: learning rates of `num_steps` steps, to be stretched or compressed.
        used: returns the seconds used, over all starts of the run, and how many of them were for
            starting, restoring and compiling. Processes that make steps together must get the same
            numbers.
    """

    def __init__(
        self,
        hours: float,
        schedule: optimization.Schedule,
        num_steps: int,
        used: Callable[[], tuple[float, float]],
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
        """Cuts `legs`, from `step` on, to measure the time of a step; stops when the time is up."""
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
        """Sets the next steps' rates; returns where to measure again, `step` if time is up."""
        used, idle = self._used()
        seconds = self._seconds_per_step(step, used)
        learning = max(self._seconds - idle, 1e-9)
        self._first.assign(step)
        self._line.assign([(used - idle) / learning, seconds / learning])
        left = self._seconds - used
        if left <= max(seconds, 0.0):
            return step
        if not seconds:
            return step + 1
        return step + max(1, int(min(left, self._seconds / _LOOPS) / seconds))

    def _seconds_per_step(self, step: int, used: float) -> float:
        """Returns the mean time of a step after the first, which compiles; 0.0 if not known."""
        if len(self._measured) < 2:
            self._measured.append((step, used))
            return 0.0
        first, then = self._measured[1]
        return (used - then) / (step - first)


# Each part: its number of steps, and the schedule that counts them from 0.
_Parts = list[tuple[int, PolynomialSchedule]]


def note_schedule(
    folder: str, schedule: Schedule, step: int, max_hours: float | None = None
) -> None:
    """Writes the schedule, or `max_hours`, to `schedule.json`; warns if it has changed.

    Only polynomial schedules are written. Also warns if an earlier version began the run.
    """
    parts = optimization.schedule_parts(schedule)
    current = parts if max_hours is None else max_hours
    if current is None:
        return
    path = os.path.join(folder, FILE_NAME)
    noted, masks = _read(path) if step else (None, _MASKS)
    if masks != _MASKS:
        logging.warning(
            "An earlier version of bert-tf began this run: from step %d on, dropout draws"
            " different random masks than that version would have drawn",
            step,
        )
    changes = noted is not None and _numbers(noted) != _numbers(current)
    if noted is not None and not changes and masks == _MASKS:
        return
    if changes:
        rates = ""
        if isinstance(noted, list) and isinstance(current, list):
            before = optimization.RestartingSchedule(noted)
            now = tf.constant(step, tf.int64)
            rates = f": the rate of the next step is {float(schedule(now)):.4g} instead of"
            rates += f" {float(before(now)):.4g}"
        logging.warning(
            "The learning rate schedule changes at step %d, from %s to %s%s. To keep the old one,"
            " give the old flags",
            *(step, _describe(noted), _describe(current), rates),
        )
    content: dict[str, object] = {"dropout_masks": _MASKS, "max_hours": current}
    if isinstance(current, list):
        parts = [[num_steps, dataclasses.asdict(part)] for num_steps, part in current]
        content = {"dropout_masks": _MASKS, "schedule": parts}
    write_whole(path, json.dumps(content) + "\n")


def _read(path: str) -> tuple[_Parts | float | None, str | None]:
    """Reads the schedule, or the hours, and how the run's masks are made.

    The schedule is None without a file or, with a warning, if the file is damaged.
    """
    if not tf.io.gfile.exists(path):
        return None, _MASKS
    try:
        content = read_json(path, path, "only runs should write this file")
        if isinstance(content, list):
            content = {"schedule": content}
        masks = content.get("dropout_masks")
        if "max_hours" in content:
            return float(content["max_hours"]), masks
        parts = content["schedule"]
        return [(int(steps), PolynomialSchedule(**part)) for steps, part in parts], masks
    except (UserError, AttributeError, KeyError, TypeError, ValueError) as error:
        logging.warning("Cannot tell whether the learning rate changes: %s: %s", path, error)
        return None, _MASKS


def _numbers(parts: _Parts | float) -> list[tuple]:
    if isinstance(parts, float):
        return [(parts,)]
    return [(num_steps, *dataclasses.astuple(part)) for num_steps, part in parts]


def _describe(parts: _Parts | float) -> str:
    if isinstance(parts, float):
        return f"--max_hours={parts:.4g}"
    texts = []
    for num_steps, part in parts:
        text = f"{num_steps} steps with a peak of {part.init_lr:.4g}"
        text += f" and {part.num_warmup_steps} of warm-up"
        if part.scales_decay:
            text += " that multiplies the decay"
        if part.decay_power != 1.0:
            text += f", decay power {part.decay_power:.4g}"
        if part.start_warmup_step:
            text += f", warm-up from step {part.start_warmup_step}"
        texts.append(text)
    return "; then ".join(texts)
