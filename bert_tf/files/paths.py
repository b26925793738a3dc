"""Lists folders, resolves the paths of files to write, and refuses to overwrite input files.

Links are followed; devices and pipes are written in place.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bert_tf.errors import UserError
from bert_tf.start import lazy_tensorflow as tf


def names_in(folder: str | os.PathLike) -> list[str]:
    """Returns the names of the files and folders in a folder, in any order.

    The result is [] if the folder does not exist. It includes local names that are not UTF-8, which
    TensorFlow does not list: their bytes become surrogates, and `os.fsencode` makes a path that
    TensorFlow takes. Raises TensorFlow's errors.
    """
    folder = os.fspath(folder)
    local = folder.removeprefix("file://") or "."
    if "://" not in local:
        with contextlib.suppress(OSError, ValueError):
            return os.listdir(local)
    try:
        return [name.rstrip("/") for name in tf.io.gfile.listdir(folder or ".")]
    except tf.errors.NotFoundError:
        return []


def check_overwrites(
    written: Sequence[str], flag: str, read: Mapping[str, str | Iterable[str] | None]
) -> None:
    """Checks that files to write, named by --`flag`, are not also read, and are not named twice.

    Links are followed, so two spellings of one name count as the same file. `read` maps each flag
    that names input to the files that it names.
    """
    if not all(written):
        raise UserError(f"--{flag} must name a file; received an empty name")
    for path in written:
        name = os.path.basename(path)
        if name in ("checkpoint", "run.heartbeat") or name.startswith("model.ckpt-"):
            raise UserError(
                f"--{flag}={path} must not have the name of a file in which a training run keeps"
                " its checkpoints or its heartbeat; choose another name"
            )
    sources = {
        real_path(path): name
        for name, paths in read.items()
        for path in ([paths] if isinstance(paths, str) else paths or ())
    }
    seen = set()
    for path in written:
        real = real_path(path)
        if real in sources:
            raise UserError(
                f"--{flag}={path} must not be a file of --{sources[real]}, which it would replace"
            )
        if real in seen:
            raise UserError(
                f"--{flag}={path} must not be named twice; give each file a different name"
            )
        seen.add(real)


def real_path(path: str) -> str:
    """Returns the canonical path of a local file or folder; a path in a bucket unchanged."""
    path = path.removeprefix("file://")
    return path if "://" in path else os.path.realpath(path or os.curdir)


_MOST_LINKS = 40  # Linux's limit


class Destination(NamedTuple):
    """path: where to write. plain: whether it must be opened in place and never be replaced."""

    path: str
    plain: bool


def destination(path: str, place: str) -> Destination:
    """Returns where the file `path` is written; `place` names it in messages.

    A link is followed to its target, which need not exist. A pipe or a character device such as
    /dev/null, and everything under /proc, where /dev/stdout leads, is written in place. A path in a
    bucket is unchanged.
    """
    target = path.removeprefix("file://")
    if "://" in target:
        return Destination(path, False)
    target = _follow(target, place)
    try:
        mode = os.stat(target).st_mode
    except (OSError, ValueError):  # a new file; opening it reports any other problem
        return Destination(target, False)
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or _is_of_process(target):
        return Destination(target, True)
    if stat.S_ISSOCK(mode) or stat.S_ISBLK(mode):
        kind = "a socket" if stat.S_ISSOCK(mode) else "a disk"
        rule = "must name a file, a pipe or a device like /dev/null"
        raise UserError(f"{place} {rule}, not {kind}")
    return Destination(target, False)


def folder_destination(path: str, place: str) -> str:
    """Returns a local folder's path with links resolved; a gs:// path without trailing slashes."""
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
    # Links under /proc refer to open files; their text is not a path.
    return os.path.realpath(os.path.dirname(path) or os.curdir).startswith("/proc/")
