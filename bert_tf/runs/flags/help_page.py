"""The text of --help."""

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from bert_tf.runs.flags.setting_fields import Group

NOT_GIVEN = "other than None"  # in absl's message on a required flag
_WIDTH = 80
_LONG = 45  # choices with more characters than this are listed below the flag, not beside it
_OTHER = "Flags"  # heading of flags that do not come from settings
_HEADER = "Flags are written --name=value, or --name and --noname if true or false."
_FOOTER = """\
--flagfile=FILE reads flags from a file, one on each line. --verbosity=1 logs
everything, with TensorFlow's messages and tracebacks. --helpfull also lists the
flags of the libraries in use."""


def help_page(docstring: str, flags: Iterable[Any], groups: Mapping[str, Group]) -> str:
    """Returns a program's docstring, its lines unchanged, then its flags by heading.

    Args:
        flags: absl's flags of the program.
        groups: the headings of the flags that come from settings, by the flag's name.
    """
    flags = sorted(flags, key=_rank)
    lines = [docstring.strip(), "", _HEADER, ""]
    for heading in (_OTHER, *Group):
        below = [flag for flag in flags if groups.get(flag.name, _OTHER) == heading]
        if below:
            lines += [f"{heading}:", "", *(line for flag in below for line in _lines(flag)), ""]
    return "\n".join([*lines, _FOOTER, ""])


def is_required(flag: Any) -> bool:
    return flag.default is None and any(NOT_GIVEN in v.message for v in flag.validators)


def _rank(flag: Any) -> int:
    """Returns the sort key: required flags first, then --do_..., then the rest."""
    return 0 if is_required(flag) else 1 if flag.name.startswith("do_") else 2


def _lines(flag: Any) -> list[str]:
    kind, text = flag.flag_type(), flag.help
    if "enum" in kind:
        value = "|".join(flag.parser.enum_values)
        text = text.removeprefix(f"<{value}>: ")
        if len(value) > _LONG:
            value, text = "NAME", f"{text} One of {', '.join(flag.parser.enum_values)}."
    elif "list" in kind:
        value = "TEXT,TEXT,..."
    else:
        value = {"int": "N", "float": "X"}.get(kind, "TEXT")
    form = f"--[no]{flag.name}" if kind == "bool" else f"--{flag.name}={value}"
    note = " (required)" if is_required(flag) else ""
    if default := (flag.default_as_str or "").strip("'"):
        note = f" (default: {default})"
    wrapped = textwrap.wrap(" ".join(text.split()), _WIDTH - 6, break_on_hyphens=False)
    return [f"  {form}{note}", *(f"      {line}" for line in wrapped)]
