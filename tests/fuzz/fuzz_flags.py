"""Fuzzer of flags: every field of every settings class gets wild text, and takes or refuses it."""

import dataclasses
import functools
import importlib
import math
import pkgutil
import random as random_module
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

from absl import flags

from bert_tf import tasks
from bert_tf.engine.length_buckets import parse_lengths
from bert_tf.errors import UserError
from bert_tf.model.layer_scopes import parse_frozen_layers
from bert_tf.runs.flags import command_line
from bert_tf.runs.flags.setting_fields import REQUIRED, Settings, rule_of
from bert_tf.runs.flags.settings import TeacherSettings
from bert_tf.tasks.class_weights import check_class_settings
from bert_tf.tasks.long_text import LongTextSettings
from tests.fuzz.cases import attempt

SCOPES = [f"bert/encoder/layer_{i}/" for i in range(12)]
NUMBERS = ["0", "1", "-1", "-0", "32", "0.5", "1.0", "1e3", "1e308", "1e400", "-1e-320", "nan"]
NUMBERS += ["inf", "-Infinity", "1_000", "٣", "१२", " 7 ", "+8", "0x10", "0o17", "0b1", "007", "²"]
NUMBERS += ["2147483647", "2147483648", str(10**20), "9" * 99, "9" * 5000, "0x" + "f" * 5000]
WORDS = ["", "true", "False", "none", "auto", "all", "é", "a\nb", "\udce9", "\0", "a,b", "a,a", '"']
WORDS += ["x" * 9999, "x," * 9999]
PHASES = ["128:9:256:20", "128:9:256", "١:1:1:1", "1:1:1:1,", f"8:{10**20}:8:8", "8:8:9999999:8"]
WEIGHTS = [
    *("balanced", "1,2", "1,2,3", "good:4", "good:4,2", "bad:nan,good:1", "a:b:1", "0,0", ":,:"),
]
LISTS = ["32,64", "64,32,64", "0-5", "5-0", "embeddings,0,pooler", "٣,9", "1,,2", "0-" + "9" * 5000]


@functools.cache
def settings_classes() -> list[type[Settings]]:
    """Returns every settings class of the library."""
    for module in pkgutil.walk_packages(tasks.__path__, f"{tasks.__name__}."):
        if module.name.endswith((".settings", ".processors")):
            importlib.import_module(module.name)
    found, todo = [], [Settings]
    while todo:
        todo += (children := todo.pop().__subclasses__())
        found += [cls for cls in children if cls.__module__.startswith("bert_tf.")]
    # Halves of classes: they need the max_seq_length and the losses of their other halves.
    found = [cls for cls in found if cls not in (LongTextSettings, TeacherSettings)]
    found = [cls for cls in found if any(map(rule_of, dataclasses.fields(cls)))]
    return sorted(set(found), key=lambda cls: cls.__qualname__)


def fuzz_setting(random: random_module.Random, folder: Path) -> None:
    """One field of one class, with text as from a command line."""
    cls = random.choice(settings_classes())
    field = random.choice([field for field in dataclasses.fields(cls) if rule_of(field)])
    text = _text(random, field)

    def make() -> Settings:
        names = {f.name for f in dataclasses.fields(cls)}
        values = {
            f.name: 1 if rule_of(f) and _kind(cls, f) is int else "x"
            for f in dataclasses.fields(cls)
            if f.default is REQUIRED
        }
        values |= {"input_file": "x"} if "input_file" in names else {}
        values |= {"phases": []} if "evaluation_batches" in names else {}
        return cls(**{**values, field.name: _parse(cls, field, text)})

    _, settings = attempt(make, naming=field.name)
    if settings is not None:
        _check(cls, field, text, getattr(settings, field.name))
        _use(settings, field.name)


def _text(random: random_module.Random, field: dataclasses.Field) -> str:
    choices = [NUMBERS, WORDS, NUMBERS, list(rule_of(field).choices or WORDS)]
    if field.name in ("phases", "phase_learning_rates", "length_buckets", "freeze_layers"):
        choices += [PHASES, LISTS, LISTS]
    choices += [WEIGHTS, WEIGHTS] if field.name == "class_weights" else []
    text = random.choice(random.choice(choices))
    if random.random() < 0.1:
        at = random.randrange(len(text) + 1)
        text = text[:at] + random.choice(["0", ",", "-", ".", "e9", "\n", " ", "½"]) + text[at:]
    return text


def _kind(cls: type[Settings], field: dataclasses.Field) -> Any:
    hint = get_type_hints(cls)[field.name]
    kinds = {kind for kind in (*get_args(hint), hint) if kind is not type(None)}
    if hint == Sequence[str] or Sequence[str] in kinds:
        return list
    return next(kind for kind in (bool, int, float, str) if kind in kinds)


def _parse(cls: type[Settings], field: dataclasses.Field, text: str) -> Any:
    """Returns the value as the flag's parser reads it; a refusal is in the words of a program."""
    parsers = {bool: flags.BooleanParser, int: flags.IntegerParser}
    parsers |= {float: flags.FloatParser, list: flags.ListParser, str: flags.ArgumentParser}
    try:
        return parsers[_kind(cls, field)]().parse(text)
    except (TypeError, ValueError, OverflowError) as error:  # what absl's Flag catches
        message = f"flag --{field.name}={text}: {error}"
        raise UserError(command_line.in_our_words(message)) from error


def _check(cls: type[Settings], field: dataclasses.Field, text: str, value: Any) -> None:
    """Checks an accepted value against Python's own reading of the text."""
    rule = rule_of(field)
    match _kind(cls, field):
        case kind if kind is bool:
            assert value is (text.lower() in ("true", "t", "1", "yes", "y")), (text, value)
        case kind if kind is int:
            base = {"0x": 16, "0o": 8}.get(text[:2], 10)
            assert type(value) is int and value == int(text, base)
            assert rule.at_least is None or rule.at_least <= value < 2**31
        case kind if kind is float:
            assert type(value) is float and value == float(text) and math.isfinite(value)
        case kind if kind is str:
            assert value == text
            assert rule.choices is None or text in rule.choices


def _use(settings: Settings, name: str) -> None:
    """Reads the settings that are small languages of their own."""
    value = getattr(settings, name)
    if name == "length_buckets":
        attempt(lambda: parse_lengths(value, settings.max_seq_length), naming=name)
    elif name == "freeze_layers":
        attempt(lambda: parse_frozen_layers(value, SCOPES), naming=name)
    elif name == "class_weights":
        attempt(lambda: check_class_settings(value, 0.0, ["bad", "good"]), naming=name)
    elif name == "phases" and value is not None:
        attempt(lambda: settings.make_phases(()), naming=name)
