"""Reads a command line into absl's flags, and reports all its mistakes in one message."""

import difflib
import re
from collections.abc import Iterator, Sequence

from absl import flags

from bert_tf.errors import listed, quoted
from bert_tf.files.encodings import is_unicode
from bert_tf.files.storage import is_path
from bert_tf.runs.flags.help_page import NOT_GIVEN, is_required

_LONGEST_NAME = 100  # characters of a name that a similar one is looked for
_LONGEST = 400  # characters of a message
# absl's messages -> the words that `Settings` uses; the first pattern that matches counts.
_MESSAGES = {
    r"flag (--[^:]*): (must .*)": r"\1 \2",
    r"flag (--[^:]*): invalid literal for int.*": r"\1 must be a whole number",
    r"flag (--[^:]*): could not convert string to float.*": r"\1 must be a number",
    r"flag (--.*)": r"\1",
}


class CommandLineError(Exception):
    """The message lists the mistakes of a command line, on one line."""


def parse(words: Sequence[str], takes_words: bool = False, takes_others: bool = False) -> list[str]:
    """Sets absl's flags from a command line; returns the words that are not flags.

    Flags and other words may stand in any order; all words after `--` are not flags.

    Args:
        words: the command line without the program's name.
        takes_words: whether the program takes words that are not flags.
        takes_others: whether unknown flags are returned among the words, with a `--` before the
            words that follow one.

    Raises:
        CommandLineError: a flag is unknown, missing or has a wrong value, a word is not a flag but
            the program takes none, or a file of --flagfile cannot be read.
    """
    reader = _Reader(takes_others)
    reader.read(_with_flagfiles(words))
    flags.FLAGS.mark_as_parsed()
    mistakes = reader.mistakes
    if reader.words and not takes_words and not takes_others:
        mistakes.append(
            "flags are written --name=value (--noname for a false one); received the stray words"
            f" {listed(reader.words)}"
        )
    elif unreadable := [word for word in reader.words if not is_path(word)]:
        mistakes.append(f"words must be UTF-8 text without a NUL; received {listed(unreadable)}")
    mistakes += _broken_rules(mistakes)
    if mistakes:
        raise CommandLineError(_cut("; ".join(mistakes)))
    return reader.words


def _with_flagfiles(words: Sequence[str]) -> list[str]:
    """Returns the words with the lines of the files that --flagfile names in its place."""
    flags.FLAGS.set_gnu_getopt(True)  # --flagfile may follow words that are not flags
    try:
        return flags.FLAGS.read_flags_from_files(list(words), force_gnu=False)
    except UnicodeDecodeError as error:
        line = error.object[error.object.rfind(b"\n", 0, error.start) + 1 :].split(b"\n")[0]
        raise CommandLineError(
            f"--flagfile must be UTF-8 text: in {quoted(line)}, {error.reason}"
        ) from error
    except (flags.Error, ValueError) as error:
        cause = str(error).removeprefix("ERROR:: Unable to open flagfile: ")
        raise CommandLineError(f"--flagfile cannot be read: {cause}") from error


class _Reader:
    """Sets flags from words as absl does, but goes on after a mistake.

    words: what is not a flag. With `takes_others` also unknown flags.
    mistakes: a message for each unknown flag and wrong value, in their order.
    """

    def __init__(self, takes_others: bool):
        self._takes_others = takes_others
        self._allowed: set[str] = set()  # unknown flags that --undefok names
        self._found: list[tuple[str, str]] = []  # each mistake, after the name if it is unknown
        self.words: list[str] = []

    @property
    def mistakes(self) -> list[str]:
        return [message for unknown, message in self._found if unknown not in self._allowed]

    def read(self, words: Sequence[str]) -> None:
        """Sets the flags; see `parse`."""
        remaining = iter(words)
        unknown = False  # whether the next word may be the value of an unknown flag
        for word in remaining:
            if word == "--":
                self.words += [word, *remaining] if self._takes_others else remaining
            elif word.startswith("-") and word.strip("-"):
                known = self._read_flag(word, remaining)
                unknown = not known and "=" not in word
                continue
            elif not unknown or self._takes_others:
                self.words.append(word)
            unknown = False

    def _read_flag(self, word: str, remaining: Iterator[str]) -> bool:
        """Sets a flag, whose value may be the next word; returns whether there is such a flag."""
        name, equals, text = word.removeprefix("-").removeprefix("-").partition("=")
        value = text if equals else None
        negated = name.removeprefix("no")
        if name == "undefok":  # absl's: flags that may be unknown
            value = next(remaining, "") if value is None else value
            names = [each.strip() for each in value.split(",") if each.strip()]
            self._allowed |= {*names, *(f"no{each}" for each in names)}
        elif name in flags.FLAGS:
            if value is None:
                value = "true" if flags.FLAGS[name].boolean else next(remaining, None)
            if value is None:
                self._note(f"--{name} has no value; write --{name}=VALUE")
            else:
                self._set(name, value)
        elif negated != name and negated in flags.FLAGS and flags.FLAGS[negated].boolean:
            if equals:
                self._note(f"--{name} takes no value; received {quoted(text)}")
            else:
                self._set(negated, "false")
        elif self._takes_others:
            self.words.append(word)
            return False
        else:
            self._found.append((name, _unknown(name)))
            return False
        return True

    def _note(self, mistake: str) -> None:
        self._found.append(("", mistake))

    def _set(self, name: str, value: str) -> None:
        flag = flags.FLAGS[name]
        if not is_unicode(value):
            self._note(f"--{name} must be UTF-8 text; received {quoted(value)}")
            return
        if "\0" in value:
            self._note(f"--{name} must not have a NUL; received {quoted(value)}")
            return
        if value == "" and is_required(flag):
            self._note(f"--{name}= must not be empty")
            return
        try:
            flag.parse(value)
            flag.using_default_value = False
        except flags.IllegalFlagValueError as error:
            self._note(in_our_words(str(error)))


def _unknown(name: str) -> str:
    """Returns the message for an unknown flag, with the names of similar flags."""
    message = f"Unknown command line flag {quoted(name)}"
    if len(name) > _LONGEST_NAME:
        return f"{message}: a name too long to be any flag's"
    known = list(flags.FLAGS)
    known += [f"no{each}" for each in known if flags.FLAGS[each].boolean]
    similar = [each for each in known if len(name) > 2 and each.startswith(name)]
    similar = similar or difflib.get_close_matches(name, known, cutoff=0.7)
    if not similar:
        return message
    return f"{message} (did you mean {' or '.join(f'--{each}' for each in similar[:3])}?)"


def _broken_rules(mistakes: Sequence[str]) -> list[str]:
    """Returns messages for the required flags that are missing, and for flags out of bounds.

    A flag that `mistakes` names already has no value for a known reason.
    """
    try:
        flags.FLAGS.validate_all_flags()
    except flags.IllegalFlagValueError as error:
        missing, others = [], []
        for line in map(str.strip, str(error).splitlines()):
            if not line.endswith(f"{NOT_GIVEN}."):
                others.append(in_our_words(line))
                continue
            name = re.sub(r"flag (--\w+)=.*", r"\1", line)
            if not any(mistake.startswith((f"{name}=", f"{name} ")) for mistake in mistakes):
                missing.append(name)
        return [f"{', '.join(missing)} must be given", *others] if missing else others
    return []


def in_our_words(message: str) -> str:
    """Returns absl's message on a value on one line, in the words of `Settings`."""
    line = " ".join(message.split())
    pattern = next((pattern for pattern in _MESSAGES if re.fullmatch(pattern, line)), None)
    return _cut(re.sub(pattern, _MESSAGES[pattern], line) if pattern else line)


def _cut(text: str) -> str:
    """Returns a message, which may quote a value of any length, cut in its middle if too long."""
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} [...] {text[-half:]}"
