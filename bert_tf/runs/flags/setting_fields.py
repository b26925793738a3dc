"""Fields of settings dataclasses: the one place for a flag's default, help text and rules.

`bert_tf.runs.flags.command_flags` makes the flags from these fields.
"""

import dataclasses
import enum
from collections.abc import Collection, Mapping
from typing import Any, Self

from bert_tf.bounds import Bounds
from bert_tf.errors import UserError, as_given

REQUIRED = dataclasses.MISSING
_METADATA = "setting"
MAX_COUNT = 2**31 - 1  # TPUs compute with int32


class Group(enum.StrEnum):
    """Headings of --help, in order; `Group.DATA.setting` makes a flag under the first."""

    DATA = "Data"
    MODEL = "Model"
    OUTPUT = "Output and checkpoints"
    TRAINING = "Training"
    EVALUATION = "Evaluation and prediction"
    COMPUTATION = "Speed and memory"
    DEVICES = "Devices"

    def setting(self, default: Any = REQUIRED, **rule: Any) -> Any:
        """Makes a field of `Settings`, required without a default; for `rule` see `FieldRule`.

        A condition on a different setting is "name", or ("name", value, ...) if the setting must
        have one of these values; a list holds several conditions.
        """
        rule = _converted({**rule, "group": self})
        return dataclasses.field(default=default, metadata={_METADATA: FieldRule(**rule)})


@dataclasses.dataclass(frozen=True)
class Other:
    """A condition: a different setting has one of `values`, or is truthy if `values` is ()."""

    name: str
    values: tuple[Any, ...] = ()

    def holds(self, settings: "Settings") -> bool:
        value = getattr(settings, self.name)
        return value in self.values if self.values else bool(value)

    def __str__(self) -> str:
        values = " or ".join(map(str, self.values))
        return f"--{self.name}={values}" if values else f"--{self.name}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FieldRule(Bounds):
    """What a field of a settings dataclass means, and which values are allowed.

    A whole number with the bound `at_least` is a count: at most 2**31 - 1. A field is given if its
    value is neither the default nor empty.

    group: where --help lists the flag.
    needs, needs_one_of, excludes: if the field is given, all, at least one, or none of these
        conditions must hold.
    of_model: whether the folder of --init_checkpoint sets the flag if it is not given; see
        `command_flags.follow_model`.
    because: the reason for `needs` or `excludes`: the end of "--NAME needs --OTHER, since ...".
    """

    help: str
    group: Group
    choices: tuple[str, ...] | None = None
    not_empty: bool = False
    needs: tuple[Other, ...] = ()
    needs_one_of: tuple[Other, ...] = ()
    excludes: tuple[Other, ...] = ()
    of_model: bool = False
    because: str = ""

    def problem(self, value: Any) -> str | None:
        """Returns the rule that a value breaks, such as "must be at least 1", or None."""
        if value is None:
            return None
        if self.choices is not None:
            return None if value in self.choices else f"must be one of {', '.join(self.choices)}"
        if self.not_empty and value == "":
            return "must not be empty"
        is_count = self.at_least is not None and isinstance(value, int)
        if is_count and value > MAX_COUNT and self.contain(value):
            return f"must be at most {MAX_COUNT}"
        is_float, bounds = isinstance(value, float), str(self)
        if not self.hold(value):
            number = "a finite number" if is_float else ""
            if is_float and bounds.startswith("at least"):
                number += " of"
            rule = " ".join(filter(None, ("must be", number, bounds)))
            return rule + self.float32_note(value)
        return None


def _converted(rule: dict[str, Any]) -> dict[str, Any]:
    """Converts the arguments of `Group.setting` to those of `FieldRule`."""
    converted = dict(rule)
    if "choices" in rule:
        converted["choices"] = tuple(rule["choices"])
    for key in rule.keys() & {"needs", "needs_one_of", "excludes"}:
        several = rule[key] if isinstance(rule[key], list) else [rule[key]]
        pairs = [(other,) if isinstance(other, str) else other for other in several if other]
        converted[key] = tuple(Other(name, tuple(values)) for name, *values in pairs)
    return converted


def inherit(settings: type, name: str, **changes: Any) -> Any:
    """Copies a field of a settings class, with changed arguments of `Group.setting`."""
    field = settings.__dataclass_fields__[name]
    default = changes.pop("default", field.default)
    rule = dataclasses.replace(rule_of(field), **_converted(changes))
    return dataclasses.field(default=default, metadata={_METADATA: rule})


def rule_of(field: dataclasses.Field) -> FieldRule | None:
    """Returns the rule that `Group.setting` gave a field; None if the field is not a flag."""
    return field.metadata.get(_METADATA)


def flags_of(settings: type) -> list[dataclasses.Field]:
    return [field for field in dataclasses.fields(settings) if rule_of(field)]


def help_text(settings: type, field: dataclasses.Field) -> str:
    """Returns a flag's help text with its rules, except those about required flags."""
    rule = rule_of(field)
    required = {other.name for other in flags_of(settings) if other.default is REQUIRED}
    rules = (
        ("needs", " and ", rule.needs),
        ("needs", " or ", rule.needs_one_of),
        ("excludes", " and ", rule.excludes),
    )
    text = rule.help
    if rule.of_model:
        text += " Default: what the folder of --init_checkpoint says" + (
            "." if field.default is None else ", unless --vocab_file is given."
        )
    for verb, word, others in rules:
        names = word.join(str(other) for other in others if other.name not in required)
        if names:
            subject = f"--no{field.name} {verb}" if field.default is True else verb.capitalize()
            text += f" {subject} {names}."
    return text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings that check the fields made by `Group.setting` when an instance is made."""

    def __post_init__(self):
        fields = flags_of(type(self))
        for field in fields:
            value = getattr(self, field.name)
            if problem := rule_of(field).problem(value):
                raise UserError(f"--{field.name}={as_given(value)} {problem}")
        for field in fields:
            if self._is_given(field.name) and (contradiction := self._contradiction(field)):
                raise UserError(contradiction)

    @classmethod
    def from_flags(cls, values: Mapping[str, Any], given: Collection[str]) -> Self:
        """Returns the settings from all flags' values; `given` names those on the command line."""
        return cls(**{field.name: values[field.name] for field in flags_of(cls)})

    def _is_given(self, name: str) -> bool:
        """Returns whether a setting's value is neither the default nor empty."""
        value = getattr(self, name)
        return value not in (None, "", type(self).__dataclass_fields__[name].default)

    def _written(self, name: str) -> str:
        value = getattr(self, name)
        if isinstance(value, bool):
            return f"--{name}" if value else f"--no{name}"
        value = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
        return f"--{name}={as_given(value)}"

    def _contradiction(self, field: dataclasses.Field) -> str | None:
        """Returns the message if a given field breaks a rule about other settings."""
        rule, written = rule_of(field), self._written(field.name)
        since = f", since {rule.because}" if rule.because else ""
        for others in (*((other,) for other in rule.needs), rule.needs_one_of):
            if not others or any(other.holds(self) for other in others):
                continue
            wanted = " or ".join(map(str, others))
            told = [o for o in others if getattr(self, o.name) is not None]
            received = [self._written(o.name) for o in told if o.values or self._is_given(o.name)]
            if received:
                end = f"; received {' and '.join(received)}. Change one of the two"
            else:
                end = f". Add {wanted}, or leave {written.partition('=')[0]} out"
            return f"{written} needs {wanted}{since}{end}"
        for other in rule.excludes:
            if other.holds(self) and (other.values or self._is_given(other.name)):
                other_written = self._written(other.name)
                return f"{written} excludes {other_written}{since}. Leave one of the two out"
        return None


def names_of(settings: type[Settings]) -> set[str]:
    """Returns the names of the settings of a class and of its subclasses imported so far."""
    own = {field.name for field in flags_of(settings)}
    return own.union(*map(names_of, settings.__subclasses__()))
