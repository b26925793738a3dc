"""The phases of pre-training, and their description in flags."""

import dataclasses
import re

from bert_tf.errors import UserError, as_given, quoted
from bert_tf.runs.flags.setting_fields import FieldRule


@dataclasses.dataclass(frozen=True)
class RecordBatches:
    """Records of the same lengths, read in batches: a phase of training, or an evaluation."""

    max_seq_length: int
    num_steps: int
    batch_size: int
    max_predictions_per_seq: int


def parse_phases(text: str) -> list[RecordBatches]:
    """Returns the phases that --phases describes as `length:steps:batch:predictions,...`.

    Raises:
        UserError: the text has a different form, or a number is 0.
    """
    phases = []
    for part in text.split(","):
        if not re.fullmatch(r"\s*[1-9]\d{0,99}(:[1-9]\d{0,99}){3}\s*", part):
            raise UserError(
                "--phases must be a comma-separated list of length:steps:batch:predictions, each a"
                " whole number of at least 1, such as 128:900000:256:20,512:100000:256:77; got"
                f" {quoted(part)}"
            )
        phases.append(RecordBatches(*map(int, part.split(":"))))
    return phases


def parse_phase_values(
    text: str, name: str, count: int, number: type[int] | type[float], rule: FieldRule
) -> list[float]:
    """Returns the values of a flag that has one for each phase.

    Args:
        text: the flag's value: numbers separated by commas.
        name: the flag, without dashes.
        count: the number of phases.
        number: the type of the values.
        rule: the rule of the flag that has one value for all phases.

    Raises:
        UserError: the number of values is not `count`, or `rule` does not allow a value.
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
        raise UserError(f"--{name}={as_given(text)}: each value {problem}")
    return values
