"""Fields of settings dataclasses, each with its default, help text, bounds and choices.

`bert_tf.runs.flags.command_flags` makes the flags from these fields, so that a default and a help
text stand in one place.
"""

import dataclasses
import enum
import math
from collections.abc import Sequence
from typing import Any

from bert_tf.errors import UserError, as_given

REQUIRED = dataclasses.MISSING
_METADATA = "setting"
MAX_COUNT = 2**31 - 1  # TPUs compute with int32


class Group(enum.StrEnum):
    """Headings of --help, in their order."""

    DATA = "Data"
    MODEL = "Model"
    OUTPUT = "Output and checkpoints"
    TRAINING = "Training"
    EVALUATION = "Evaluation and prediction"
    COMPUTATION = "Speed and memory"
    DEVICES = "Devices"


@dataclasses.dataclass(frozen=True)
class FieldRule:
    """What a field of a settings dataclass means and which values it takes.

    help: the help text of the flag.
    group: where --help lists the flag.
    at_least: the least value; None for no bound. A whole number with this bound is a count, and
        at most 2**31 - 1.
    at_most: the greatest value; it needs `at_least` or `above`.
    above: a lower bound that is not allowed itself, instead of `at_least`.
    choices: the strings that are allowed; None for all.
    not_empty: whether the empty string is refused.
    """

    help: str
    group: Group
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    choices: tuple[str, ...] | None = None
    not_empty: bool = False

    def problem(self, value: Any) -> str | None:
        """Returns the rule that a value breaks, such as "must be at least 1", or None."""
        if value is None:
            return None
        if self.choices is not None:
            return None if value in self.choices else f"must be one of {', '.join(self.choices)}"
        if self.not_empty and value == "":
            return "must not be empty"
        is_float = isinstance(value, float)
        if is_float and not math.isfinite(value) or not self._holds(value):
            bounds = self._bounds()
            number = "a finite number" if is_float else ""
            if is_float and bounds.startswith("at least"):
                number += " of"
            return " ".join(filter(None, ("must be", number, bounds)))
        if self.at_least is not None and isinstance(value, int) and value > MAX_COUNT:
            return f"must be at most {MAX_COUNT}"
        return None

    def _holds(self, value: Any) -> bool:
        """Returns whether a value is within the bounds."""
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
            and (self.above is None or value > self.above)
        )

    def _bounds(self) -> str:
        """Returns the bounds in words; "" for none."""
        if self.above is not None:
            end = "" if self.at_most is None else f" and at most {self.at_most:.10g}"
            return f"above {self.above:.10g}{end}"
        if self.at_most is not None:
            return f"between {self.at_least:.10g} and {self.at_most:.10g}"
        return "" if self.at_least is None else f"at least {self.at_least:.10g}"


def setting(
    default: Any = REQUIRED,
    *,
    help: str,
    group: Group,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    choices: Sequence[str] | None = None,
    not_empty: bool = False,
) -> Any:
    """Returns a field for a subclass of `Settings`.

    Args:
        default: its value where none is given. Without one the field is required.
        help: see `FieldRule`, as for the other arguments.
    """
    choices = None if choices is None else tuple(choices)
    rule = FieldRule(help, group, at_least, at_most, above, choices, not_empty)
    return dataclasses.field(default=default, metadata={_METADATA: rule})


def inherit(settings: type, name: str, **changes: Any) -> Any:
    """Returns the field of another settings class, with changes.

    Args:
        settings: the class that has the field.
        name: of the field.
        **changes: arguments of `setting` that differ there, such as `default`.
    """
    field = next(field for field in dataclasses.fields(settings) if field.name == name)
    values = {**vars(rule_of(field)), "default": field.default, **changes}
    return setting(values.pop("default"), **values)


def rule_of(field: dataclasses.Field) -> FieldRule | None:
    """Returns what `setting` was told of a field; None for a field that is no flag."""
    return field.metadata.get(_METADATA)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings whose fields, made by `setting`, are checked when an instance is made.

    Raises:
        UserError: a value is out of bounds, or none of the choices.
    """

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            rule = rule_of(field)
            problem = rule and rule.problem(value)
            if problem:
                raise UserError(f"--{field.name}={as_given(value)} {problem}")
