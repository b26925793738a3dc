"""Finds where a file or folder is written: links are followed; devices and pipes stay in place."""

import errno
import os
import re
import stat
from typing import NamedTuple

from bert_tf.errors import UserError

_MOST_LINKS = 40  # as Linux follows
_WORDS = {"none", "null", "nil", "true", "false", "undefined"}


class Destination(NamedTuple):
    """path: where to write. plain: whether it must be opened in place and never be replaced."""

    path: str
    plain: bool


def destination(path: str, place: str) -> Destination:
    """Returns where the file `path` is written; `place` names it in messages.

    A link is followed to its target, which need not exist. A pipe or a character device such as
    /dev/null, and all under /proc, where /dev/stdout leads, are written in place. A path in a
    bucket is unchanged.

    Raises:
        UserError: the path is a socket or a disk, leads through a link to itself, or has a name
            that is too long: writing starts under another name, so it would fail at the end.
    """
    target = path.removeprefix("file://")
    if "://" in target:
        return Destination(path, False)
    target = _follow(target, place)
    try:
        mode = os.stat(target).st_mode
    except (OSError, ValueError):  # a new file; whatever else is wrong, opening it will tell
        return Destination(target, False)
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or _is_of_process(target):
        return Destination(target, True)
    if stat.S_ISSOCK(mode) or stat.S_ISBLK(mode):
        kind = "a socket" if stat.S_ISSOCK(mode) else "a disk"
        rule = "must name a file, a pipe or a device like /dev/null"
        raise UserError(f"{place} {rule}, not {kind}")
    return Destination(target, False)


def folder_destination(path: str, place: str) -> str:
    """Returns the path of a local folder without links; a path in a bucket without end slashes.

    Raises UserError if the path leads through a link to itself, or a name in it is too long.
    """
    target = path.removeprefix("file://")
    if "://" in target:
        return path.rstrip("/")
    return os.path.realpath(_follow(target.rstrip("/") or target, place))


def _follow(path: str, place: str) -> str:
    try:
        os.lstat(path)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            raise UserError(f"{place} is too long for the file system; shorten the name") from error
    for _ in range(_MOST_LINKS):
        if not os.path.islink(path) or _is_of_process(path):
            return path
        target = os.readlink(path).rstrip("/") or "/"
        path = os.path.join(os.path.dirname(path), target)
    raise UserError(f"{place} must not be a link that leads to itself; delete the link")


def _is_of_process(path: str) -> bool:
    # Links there stand for open files; their text is not a path.
    return os.path.realpath(os.path.dirname(path) or os.curdir).startswith("/proc/")


def check_meant(folder: str, flag: str, what: str = "folder") -> None:
    """Raises UserError if the name of what is written looks like a mistake: a number, a pattern.

    Such names come from a variable that is not set, or from another flag's value. A name with a
    slash, like ./nan, is always taken.
    """
    if "/" in folder or folder in (".", ".."):
        return
    if folder.startswith("-"):
        kind = "a flag or a negative number"
    elif _is_number(folder):
        kind = "a number"
    elif folder.casefold() in _WORDS:
        kind = "the name of a value"
    elif not any(char.isalnum() for char in folder) or re.search(r"[*?]", folder):
        kind = "a pattern or a separator"
    else:
        return
    raise UserError(
        f"--{flag}={folder} must be the name of a {what}, but looks like {kind}. If it is meant,"
        f" write --{flag}=./{folder}"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
