"""Notes a run's learning rate schedule beside its checkpoints, and tells when it is changed.

A checkpoint has a step's number and no schedule, so the rate jumps if the schedule is changed.
"""

import dataclasses
import json
import os

import tensorflow as tf
from absl import logging

from bert_tf import optimization
from bert_tf.errors import UserError
from bert_tf.files.whole_files import read_json, write_whole
from bert_tf.optimization import PolynomialSchedule, Schedule

FILE_NAME = "schedule.json"
# Each part: its number of steps, and the schedule that counts them from 0.
_Parts = list[tuple[int, PolynomialSchedule]]


def note_schedule(folder: str, schedule: Schedule, step: int) -> None:
    """Writes the schedule to `schedule.json`; warns if the run was at this step with another one.

    Schedules of other kinds, such as a time budget's, are not noted.

    Raises:
        UserError, OSError: the file cannot be written.
    """
    parts = optimization.schedule_parts(schedule)
    if parts is None:
        return
    path = os.path.join(folder, FILE_NAME)
    content = json.dumps([[num_steps, dataclasses.asdict(part)] for num_steps, part in parts])
    noted = _read(path) if step else None
    if noted is not None and _numbers(noted) != _numbers(parts):
        before = optimization.restarting_schedule(noted)
        now = tf.constant(step, tf.int64)
        logging.warning(
            "The learning rate schedule changes at step %d, from %s to %s: the rate of the next"
            " step is %.4g instead of %.4g. To keep the old one, give the old flags",
            *(step, _describe(noted), _describe(parts), float(schedule(now)), float(before(now))),
        )
    if noted is None or _numbers(noted) != _numbers(parts):
        write_whole(path, content + "\n")


def _read(path: str) -> _Parts | None:
    """Returns the schedule in a file; None if there is none, or with a warning if it is damaged."""
    if not tf.io.gfile.exists(path):
        return None
    try:
        content = read_json(path, path, "it must be as a run has written it")
        return [(int(num_steps), PolynomialSchedule(**part)) for num_steps, part in content]
    except (UserError, TypeError, ValueError) as error:
        logging.warning("Whether the learning rate changes is not known: %s: %s", path, error)
        return None


def _numbers(parts: _Parts) -> list[tuple]:
    return [(num_steps, *dataclasses.astuple(part)) for num_steps, part in parts]


def _describe(parts: _Parts) -> str:
    """Returns the numbers of a schedule, in words."""
    texts = []
    for num_steps, part in parts:
        text = f"{num_steps} steps with a peak of {part.init_lr:.4g}"
        text += f" and {part.num_warmup_steps} of warm-up"
        if part.decay_power != 1.0:
            text += f", decay power {part.decay_power:.4g}"
        if part.scales_decay:
            text += " that multiplies the decay"
        if part.start_warmup_step:
            text += f", warm-up from step {part.start_warmup_step}"
        texts.append(text)
    return "; then ".join(texts)
