"""Fields of settings dataclasses, each with its default, help text and rules.

`bert_tf.runs.flags.command_flags` makes the flags from these fields, so a flag's default, help text
and rules are all in one place.
"""

import dataclasses
import enum
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

from bert_tf.bounds import Bounds
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
class Other:
    """A condition on another setting: one of `values`; if (), not false, 0, empty or None."""

    name: str
    values: tuple[Any, ...] = ()

    def holds(self, settings: "Settings") -> bool:
        """Returns whether the settings meet the condition."""
        value = getattr(settings, self.name)
        return value in self.values if self.values else bool(value)

    def __str__(self) -> str:
        values = " or ".join(map(str, self.values))
        return f"--{self.name}={values}" if values else f"--{self.name}"


Others = str | tuple[Any, ...] | list[str | tuple[Any, ...]]  # see `setting`


@dataclasses.dataclass(frozen=True, kw_only=True)
class FieldRule(Bounds):
    """What a field of a settings dataclass means, and which values are allowed.

    A whole number with the bound `at_least` is a count: at most 2**31 - 1.

    help: the help text of the flag.
    group: where --help lists the flag.
    choices: the strings that are allowed; None for all.
    not_empty: whether the empty string is refused.
    needs: conditions that must all hold if the field is given, that is, if its value is neither
        the default nor empty.
    needs_one_of: conditions of which at least one must hold if the field is given.
    excludes: conditions that must not hold if the field is given.
    because: the reason for `needs` or `excludes`: the end of "--NAME needs --OTHER, since ...".
    """

    help: str
    group: Group
    choices: tuple[str, ...] | None = None
    not_empty: bool = False
    needs: tuple[Other, ...] = ()
    needs_one_of: tuple[Other, ...] = ()
    excludes: tuple[Other, ...] = ()
    because: str = ""

    def problem(self, value: Any) -> str | None:
        """Returns the rule that a value breaks, such as "must be at least 1", or None."""
        if value is None:
            return None
        if self.choices is not None:
            return None if value in self.choices else f"must be one of {', '.join(self.choices)}"
        if self.not_empty and value == "":
            return "must not be empty"
        is_float, bounds = isinstance(value, float), str(self)
        if not self.hold(value):
            number = "a finite number" if is_float else ""
            if is_float and bounds.startswith("at least"):
                number += " of"
            return " ".join(filter(None, ("must be", number, bounds)))
        if self.at_least is not None and isinstance(value, int) and value > MAX_COUNT:
            return f"must be at most {MAX_COUNT}"
        return None


def setting(
    default: Any = REQUIRED,
    *,
    needs: Others = (),
    needs_one_of: Others = (),
    excludes: Others = (),
    choices: Sequence[str] | None = None,
    **rule: Any,
) -> Any:
    """Returns a field for a subclass of `Settings`.

    A condition on another setting is "name", or ("name", value, ...) if it must have one of these
    values; give several conditions as a list.

    Args:
        default: the value if none is given. Without a default the field is required.
        needs: see `FieldRule`, also for the other arguments.
    """
    rule["choices"] = None if choices is None else tuple(choices)
    for key, others in (("needs", needs), ("needs_one_of", needs_one_of), ("excludes", excludes)):
        rule[key] = _others(others)
    return dataclasses.field(default=default, metadata={_METADATA: FieldRule(**rule)})


def _others(spec: Others | tuple[Other, ...]) -> tuple[Other, ...]:
    """Returns conditions in the form of `FieldRule`, from that form or the one `setting` takes."""
    if all(isinstance(other, Other) for other in spec):
        return tuple(spec)
    several = spec if isinstance(spec, list) else [spec]
    pairs = [(other,) if isinstance(other, str) else other for other in several]
    return tuple(Other(name, tuple(values)) for name, *values in pairs)


def inherit(settings: type, name: str, **changes: Any) -> Any:
    """Returns a copy of another settings class's field, with changes.

    Args:
        settings: the class to copy from.
        name: the field's name.
        **changes: arguments of `setting` to override, such as `default`.
    """
    field = next(field for field in dataclasses.fields(settings) if field.name == name)
    values = {**vars(rule_of(field)), "default": field.default, **changes}
    return setting(values.pop("default"), **values)


def rule_of(field: dataclasses.Field) -> FieldRule | None:
    """Returns the rule that `setting` gave a field; None if the field is not a flag."""
    return field.metadata.get(_METADATA)


def flags_of(settings: type) -> list[dataclasses.Field]:
    """Returns the fields of a settings class that are flags."""
    return [field for field in dataclasses.fields(settings) if rule_of(field)]


def help_text(settings: type, field: dataclasses.Field) -> str:
    """Returns the help text of a flag, including its rules about other flags.

    Rules about flags that are required anyway are left out.
    """
    rule = rule_of(field)
    required = {other.name for other in flags_of(settings) if other.default is REQUIRED}
    rules = (
        ("needs", " and ", rule.needs),
        ("needs", " or ", rule.needs_one_of),
        ("excludes", " and ", rule.excludes),
    )
    text = rule.help
    for verb, word, others in rules:
        names = word.join(str(other) for other in others if other.name not in required)
        if names:
            subject = f"--no{field.name} {verb}" if field.default is True else verb.capitalize()
            text += f" {subject} {names}."
    return text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings that check the fields made by `setting` when an instance is made.

    Raises:
        UserError: a value is out of bounds or not one of the choices, or two settings contradict
            each other.
    """

    def __post_init__(self):
        fields = flags_of(type(self))
        for field in fields:
            value = getattr(self, field.name)
            problem = rule_of(field).problem(value)
            if problem:
                raise UserError(f"--{field.name}={as_given(value)} {problem}")
        for field in fields:
            contradiction = self._is_given(field.name) and self._contradiction(field)
            if contradiction:
                raise UserError(contradiction)

    @classmethod
    def from_flags(cls, values: Mapping[str, Any], given: Collection[str]) -> Self:
        """Returns the settings of a program.

        Args:
            values: the values of all flags of the program, by name.
            given: names of the flags on the command line. All other flags have their defaults.

        Raises:
            UserError: as for the class.
        """
        return cls(**{field.name: values[field.name] for field in flags_of(cls)})

    def _is_given(self, name: str) -> bool:
        """Returns whether a setting's value is neither the default nor empty."""
        value = getattr(self, name)
        return value not in (None, "", type(self).__dataclass_fields__[name].default)

    def _written(self, name: str) -> str:
        """Returns a setting as written on a command line."""
        value = getattr(self, name)
        if isinstance(value, bool):
            return f"--{name}" if value else f"--no{name}"
        value = ",".join(value) if isinstance(value, list | tuple) else value
        return f"--{name}={as_given(value)}"

    def _contradiction(self, field: dataclasses.Field) -> str | None:
        """Returns the message if a given field breaks a rule about other settings, else None."""
        rule, written = rule_of(field), self._written(field.name)
        since = f", since {rule.because}" if rule.because else ""
        for others in (*((other,) for other in rule.needs), rule.needs_one_of):
            if not others or any(other.holds(self) for other in others):
                continue
            wanted = " or ".join(map(str, others))
            received = [self._written(o.name) for o in others if o.values or self._is_given(o.name)]
            if received:
                end = f"; received {' and '.join(received)}. Change one of the two"
            else:
                end = f". Add {wanted}, or leave {written.partition('=')[0]} out"
            return f"{written} needs {wanted}{since}{end}"
        for other in rule.excludes:
            if other.holds(self):
                other_written = self._written(other.name)
                return f"{written} excludes {other_written}{since}. Leave one of the two out"
        return None
