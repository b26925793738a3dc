"""Parses command lines with absl, rewords its errors like those of `Settings`, formats --help."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from absl import flags

from bert_tf.errors import as_installed, as_line, listed
from bert_tf.runs.flags.setting_fields import Group

NOT_GIVEN = "other than None"  # in absl's message on a required flag
_WIDTH = 80
_LONG = 45  # choices with more characters than this are listed below the flag, not beside it
_OTHER = "Flags"  # heading of flags that do not come from settings
_HEADER = "Flags are written --name=value, or, for true/false flags, --name and --noname."
_FOOTER = """\
--flagfile=FILE reads flags from a file, one on each line. --verbosity=1 logs
everything, with TensorFlow's messages and tracebacks. --helpfull also lists the
flags of the libraries in use."""


# absl's messages -> the words that `Settings` uses; the first pattern that matches counts.
_MESSAGES = {
    r"flag (--[^:]*): (must .*)": r"\1 \2",
    r"flag (--[^:]*): invalid literal for int.*": r"\1 must be a whole number",
    r"flag (--[^:]*): could not convert string to float.*": r"\1 must be a number",
    r"flag (--[^:]*): .*Non-boolean argument.*": r"\1 must be true or false",
    r"flag (--.*)": r"\1",
    r"ERROR:: Unable to open flagfile: (.*No such file.*'(?:\./)?flags/.*)": (
        r"--flagfile cannot be read: \1. Run in the root of a checkout, or, after"
        r" `python -m bert_tf.tools.copy_flags`, in the folder of its flags/"
    ),
    r"ERROR:: Unable to open flagfile: (.*)": r"--flagfile cannot be read: \1",
}


class CommandLineError(Exception):
    """The message says what is wrong with a command line."""


def parse(words: Sequence[str], takes_words: bool = False, takes_others: bool = False) -> list[str]:
    """Sets absl's flags from a command line; returns the words that are not flags.

    Flags and other words may stand in any order; no word after `--` is a flag. With `takes_others`
    the words that are returned include unknown flags, and `--` if it was given.
    """
    flags.FLAGS.set_gnu_getopt(True)
    try:
        _, *others = flags.FLAGS(["", *words], known_only=takes_others)
    except UnicodeDecodeError as error:
        raise CommandLineError(f"a file of --flagfile must be UTF-8 text: {error}") from error
    except (flags.Error, ValueError, RecursionError) as error:  # RecursionError: very long names
        raise CommandLineError(_explained(str(error))) from error
    if others and not takes_words and not takes_others:
        before = dict(zip(words[1:], words, strict=False)).get(others[0], "")
        near = f": write {before}={others[0]}" if re.fullmatch(r"--\w+", before) else ""
        raise CommandLineError(
            "flags are written --name=value (--noname for a false one); received the stray words"
            f" {listed(others)}{near}"
        )
    return others


def _explained(message: str) -> str:
    """Translates absl's message; missing required flags come first."""
    lines = message.splitlines()
    missing = [line for line in lines if line.endswith(f"{NOT_GIVEN}.")]
    parts = [in_our_words(line) for line in lines if line not in missing]
    if missing:
        names = [re.search(r"flag (--\w+)=", line)[1] for line in missing]
        parts.insert(0, f"{', '.join(names)} must be given")
    return "; ".join(parts)


def in_our_words(message: str) -> str:
    """Rewrites absl's message about a flag's value as one line, in the words of `Settings`."""
    line = " ".join(message.split())
    pattern = next((pattern for pattern in _MESSAGES if re.fullmatch(pattern, line)), None)
    return as_line(re.sub(pattern, _MESSAGES[pattern], line) if pattern else line)


def help_page(docstring: str, flags: Iterable[Any], groups: Mapping[str, Group]) -> str:
    """Returns a program's docstring, its lines unchanged, then its flags by heading (`groups`)."""
    flags = sorted(flags, key=_rank)
    lines = [docstring.strip(), "", _HEADER, ""]
    for heading in (_OTHER, *Group):
        below = [flag for flag in flags if groups.get(flag.name, _OTHER) == heading]
        if below:
            lines += [f"{heading}:", "", *(line for flag in below for line in _lines(flag)), ""]
    return as_installed("\n".join([*lines, _FOOTER, ""]))


def is_required(flag: Any) -> bool:
    return flag.default is None and any(NOT_GIVEN in v.message for v in flag.validators)


def _rank(flag: Any) -> int:
    """Sorts required flags first, then --do_..., then the rest."""
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
