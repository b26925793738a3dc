"""The phases of pre-training, their description in flags, and their learning rates."""

import dataclasses
import re
from collections.abc import Sequence

from bert_tf.errors import UserError, quoted
from bert_tf.optimization import PolynomialSchedule
from bert_tf.runs.setting_fields import FieldRule


@dataclasses.dataclass(frozen=True)
class PretrainingPhase:
    """A phase: `num_steps` batches of records with the same lengths.

    learning_rate: the peak of the phase's own schedule; None for the run's --learning_rate.
    num_warmup_steps: the warm-up of the phase's own schedule; None for --num_warmup_steps.
    """

    max_seq_length: int
    num_steps: int
    batch_size: int
    max_predictions_per_seq: int
    learning_rate: float | None = None
    num_warmup_steps: int | None = None


def parse_phases(text: str) -> list[PretrainingPhase]:
    """Returns the phases that --phases describes as `length:steps:batch:predictions,...`.

    Raises:
        UserError: the text has another form, or a number is 0.
    """
    phases = []
    for part in text.split(","):
        if not re.fullmatch(r"\s*[1-9]\d{0,99}(:[1-9]\d{0,99}){3}\s*", part):
            raise UserError(
                "--phases must be a comma-separated list of length:steps:batch:predictions, each a"
                " whole number of at least 1, such as 128:900000:256:20,512:100000:256:77; got"
                f" {quoted(part)}"
            )
        phases.append(PretrainingPhase(*map(int, part.split(":"))))
    return phases


def parse_phase_values(
    text: str, name: str, count: int, number: type[float] | type[int], rule: FieldRule
) -> list[float]:
    """Returns the values of a flag that has one for each phase.

    Args:
        text: the flag's value: numbers separated by commas.
        name: the flag, without dashes.
        count: the number of phases.
        number: int for whole numbers, else float.
        rule: of the flag that has one value for all phases.

    Raises:
        UserError: the number of values is another, or a value is none that `rule` allows.
    """
    try:
        values = [number(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) != count:
        raise UserError(
            f"--{name} must have a number for each phase, {count} in all (see --phases), separated"
            f" by commas; got {quoted(text)}"
        )
    problem = next(filter(None, map(rule.problem, values)), None)
    if problem:
        raise UserError(f"--{name}={quoted(text)}: each value {problem}")
    return values


def make_schedules(
    phases: Sequence[PretrainingPhase],
    learning_rate: float,
    num_warmup_steps: int,
    decay_power: float,
    start_warmup_step: int,
    restart_schedule: bool,
) -> list[tuple[int, PolynomialSchedule]]:
    """Returns the learning rate schedules in order, each with the number of its steps.

    One for all phases (the paper, A.2), or one for each: with `restart_schedule`, or if a phase has
    a rate or a warm-up of its own.

    Raises:
        UserError: `start_warmup_step` is outside a schedule's warm-up.
    """
    shape = (decay_power, start_warmup_step)
    own = any((p.learning_rate, p.num_warmup_steps) != (None, None) for p in phases)
    if restart_schedule or own:
        schedules = [
            PolynomialSchedule(
                learning_rate if phase.learning_rate is None else phase.learning_rate,
                phase.num_steps,
                num_warmup_steps if phase.num_warmup_steps is None else phase.num_warmup_steps,
                *shape,
            )
            for phase in phases
        ]
    else:
        total = sum(phase.num_steps for phase in phases)
        schedules = [PolynomialSchedule(learning_rate, total, num_warmup_steps, *shape)]
    for schedule in schedules:
        warmup = schedule.num_warmup_steps
        # The original takes any number: rates are negative before a positive one, and at -warmup
        # the warm-up is over.
        if start_warmup_step and not -warmup < start_warmup_step <= 0:
            raise UserError(
                f"--start_warmup_step={start_warmup_step} is beyond the warm-up of {warmup} steps"
                " (--num_warmup_steps or --phase_warmup_steps): it must be at most 0 and above"
                f" -{warmup}. Leave it out to start the warm-up at its first step"
            )
    return [(schedule.num_train_steps, schedule) for schedule in schedules]
