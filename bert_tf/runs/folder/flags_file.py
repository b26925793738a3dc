"""Writes the flags and versions of a run to `flags.txt`."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Sequence

from bert_tf.engine.distribution import device_kind, input_shard
from bert_tf.files.whole_files import read_text, write_whole
from bert_tf.runs.flags.setting_fields import Settings, flags_of
from bert_tf.start import lazy_tensorflow as tf

FILE_NAME = "flags.txt"
_PACKAGES = ("bert_tf", "tensorflow", "keras", "numpy", "jax", "libtpu")

_of_program: list[str] = []  # the program's flags, as in a flagfile


def note(words: Sequence[str]) -> None:
    """Remembers the program's flags, defaults as comments, for the run in its --output_dir."""
    _of_program[:] = words


def _words(output_dir: str, settings: Settings) -> list[str]:
    """Returns the program's flags if it runs in `output_dir`, else the settings' flags.

    Defaults are comments.
    """
    others = [word for word in _of_program if word.startswith("--output_dir=")]
    if _of_program and others in ([], [f"--output_dir={output_dir}"]):
        return _of_program
    words = []
    for field in flags_of(settings):
        value = getattr(settings, field.name)
        text = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
        if value is not None:
            words.append(f"{'# ' * (value == field.default)}--{field.name}={text}")
    return words


def write_flags(
    output_dir: str, strategy: tf.distribute.Strategy, settings: Settings, step: int
) -> None:
    """Writes this start's flags and versions, unless unchanged; earlier starts become comments."""
    path = os.path.join(output_dir, FILE_NAME)
    found = ((name, sys.modules.get(name)) for name in _PACKAGES)
    versions = ", ".join(f"{name} {package.__version__}" for name, package in found if package)
    shard = input_shard(strategy)
    place = f"# {shard.replicas} replicas of {device_kind(strategy)}, {shard.count} hosts"
    flags = _words(output_dir, settings)
    content = "\n".join([f"# Python {platform.python_version()}, {versions}", place, *flags, ""])
    earlier = read_text(path, path) if tf.io.gfile.exists(path) else ""
    if not earlier.endswith(content):
        earlier = re.sub("^(?!#)(?=.)", "# ", earlier, flags=re.MULTILINE)
        write_whole(path, f"{earlier}# From step {step}:\n{content}")
