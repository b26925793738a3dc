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


def note_schedule(
    folder: str, schedule: Schedule, step: int, max_hours: float | None = None
) -> None:
    """Writes the schedule to `schedule.json`; warns if the run was at this step with another one.

    Of a time budget its `max_hours` are noted. Schedules of other kinds are not.

    Raises:
        UserError, OSError: the file cannot be written.
    """
    parts = optimization.schedule_parts(schedule)
    current = parts if max_hours is None else max_hours
    if current is None:
        return
    path = os.path.join(folder, FILE_NAME)
    noted = _read(path) if step else None
    if noted is not None and _numbers(noted) == _numbers(current):
        return
    if noted is not None:
        rates = ""
        if isinstance(noted, list) and isinstance(current, list):
            before = optimization.restarting_schedule(noted)
            now = tf.constant(step, tf.int64)
            rates = f": the rate of the next step is {float(schedule(now)):.4g} instead of"
            rates += f" {float(before(now)):.4g}"
        logging.warning(
            "The learning rate schedule changes at step %d, from %s to %s%s. To keep the old one,"
            " give the old flags",
            *(step, _describe(noted), _describe(current), rates),
        )
    content: object = {"max_hours": current}
    if isinstance(current, list):
        content = [[num_steps, dataclasses.asdict(part)] for num_steps, part in current]
    write_whole(path, json.dumps(content) + "\n")


def _read(path: str) -> _Parts | float | None:
    """Returns the schedule, or the hours, in a file.

    None if there is no file, or, with a warning, if it is damaged.
    """
    if not tf.io.gfile.exists(path):
        return None
    try:
        content = read_json(path, path, "it must be as a run has written it")
        if isinstance(content, dict):
            return float(content["max_hours"])
        return [(int(num_steps), PolynomialSchedule(**part)) for num_steps, part in content]
    except (UserError, KeyError, TypeError, ValueError) as error:
        logging.warning("Whether the learning rate changes is not known: %s: %s", path, error)
        return None


def _numbers(parts: _Parts | float) -> list[tuple]:
    if isinstance(parts, float):
        return [(parts,)]
    return [(num_steps, *dataclasses.astuple(part)) for num_steps, part in parts]


def _describe(parts: _Parts | float) -> str:
    """Returns the numbers of a schedule, in words."""
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
