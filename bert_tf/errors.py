"""`UserError`, for mistakes that users can correct; helpers that quote values in messages.

`check_regular` is here because `bert_tf.model` reads files and does not import `files`.
"""

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence


class UserError(ValueError):
    """A flag, file, record or checkpoint is wrong, and the message says what to change.

    A program ends with this message on one line and status 1. Any other exception is a defect of
    the program (status 70) or of the machine (OSError, status 74).
    """

    def __str__(self) -> str:
        return as_installed(super().__str__())


_ARE_INSTALLED = os.path.isdir(os.path.join(os.path.dirname(__file__), "tools"))
_TOOL = re.compile(r"(?<![\w./])tools\.(?=[a-z])")


def as_installed(text: str) -> str:
    """Replaces the tools' names in commands by their names in this installation."""
    return _TOOL.sub("bert_tf.tools.", text) if _ARE_INSTALLED else text


_LONGEST_QUOTE = 100  # characters
_LONGEST_LIST = 150  # characters
_MOST_LISTED = 10
_LONGEST_LINE = 500  # characters
_LINE_ENDS = re.compile(r"(?<!\s)\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")


def _cut(text: str, longest: int) -> str:
    half = (longest - 7) // 2
    return text if len(text) <= longest else f"{text[:half]} [...] {text[-half:]}"


def quoted(value: object) -> str:
    """Returns `repr(value)` for a message, cut in the middle if it exceeds 100 characters."""
    try:
        return _cut(repr(value), _LONGEST_QUOTE)
    except ValueError:  # an integer of more digits than Python shows
        return f"<a very long {type(value).__name__}>"


def as_given(value: object) -> str:
    """Returns a value as on a command line; quoted and cut if it does not fit on a line."""
    text = value if isinstance(value, str) else quoted(value)
    if text.isprintable() and len(text) <= _LONGEST_QUOTE or text == "":
        return text
    return quoted(value)


def first_of(values: Sequence[object]) -> str:
    """Returns "'a' and 3 more", to show little of a file, which may be a link to a secret."""
    more = f" and {len(values) - 1} more" if len(values) > 1 else ""
    return quoted(values[0]) + more if values else "none"


def listed(values: Iterable[object]) -> str:
    """Returns at most ten values and 150 characters for a message, each `quoted`, then ", ..."."""
    text = ""
    for count, value in enumerate(values):
        following = f", {quoted(value)}" if count else quoted(value)
        if count == _MOST_LISTED or (count and len(text) + len(following) > _LONGEST_LIST):
            return f"{text}, ..."
        text += following
    return text


def percent(part: float, whole: float) -> str:
    """Formats a share for a message with two significant digits, such as "0.033%"."""
    return f"{float(f'{100 * part / whole:.2g}'):g}%"


def as_line(message: str) -> str:
    """Returns a message on one line, at most 500 characters, and safe to print on a terminal."""
    line = _LINE_ENDS.sub(" ", message.strip())
    return _cut("".join(c if c.isprintable() else repr(c)[1:-1] for c in line), _LONGEST_LINE)


def given(path: str, flag: str | None) -> str:
    """Formats a path for a message: `--flag=path`, or just the path if no flag gave it."""
    return f"--{flag}={path}" if flag else path


@contextlib.contextmanager
def needs_package(needed_by: str, package: str, extra: str) -> Iterator[None]:
    """Raises UserError with a package and its setup.py extra if an import in this context fails.

    `needed_by` is the subject of the message.
    """
    try:
        yield
    except ImportError as error:
        raise UserError(
            f"{needed_by} needs {package}; run `pip install {package}`, or install the extra"
            f" `{extra}`: {install_command(extra)} ({error})"
        ) from error


def install_command(extra: str) -> str:
    """Returns the command that adds one of setup.py's extras; bert-tf is not on a package index."""
    checkout = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.exists(os.path.join(checkout, "setup.py")):
        return f'in {checkout} `pip install -e ".[{extra}]"`'
    return f'`pip install "path/to/checkout[{extra}]"`'


def check_regular(path: str, place: str) -> None:
    """Raises UserError if a local file, which `place` names, is a pipe, device or socket.

    Reading /dev/zero does not end, opening a pipe waits for its writer, and many files are read
    twice. Missing files and files in a bucket pass.
    """
    try:
        mode = os.stat(os.fspath(path).removeprefix("file://")).st_mode
    except (OSError, ValueError):  # opening the file reports the error
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UserError(
            f"{place} must be a regular file, but it is a pipe or a device; copy its output to a"
            " file"
        )
