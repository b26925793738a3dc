"""Writes folders atomically: a folder appears only when its content is complete.

On Linux an earlier folder is replaced in one step. Readers notice this with `Unreplaced`.

A link is followed: the folder that it leads to is replaced. A folder that cannot be renamed, such
as a mounted volume, is emptied and filled instead. Its `marker` is removed first and written last:
if the program is killed in between, the incomplete folder lacks the marker.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

from bert_tf.errors import UserError, listed
from bert_tf.files import storage
from bert_tf.files.paths import names_in
from bert_tf.files.temporary_names import is_temporary, temporary_name
from bert_tf.start import lazy_tensorflow as tf


@contextlib.contextmanager
def whole_folder(
    path: str, flag: str, marker: str, names: Collection[str], what: str
) -> Iterator[str]:
    """Yields the name of a temporary folder, which is renamed to `path` at the end of the block.

    An earlier folder with the file `marker` and only `names` in it is replaced; a folder with any
    other content is refused. After an error the earlier folder is unchanged, or kept under a
    different name, which the message gives. `what` describes such a folder in messages.
    """
    place = f"--{flag}={path}"
    explained = functools.partial(storage.write_errors, path, place)
    final = check_folder(path, flag, marker, names, what)
    parent = os.path.dirname(final)
    with contextlib.ExitStack() as stack:
        with explained():
            if parent:
                tf.io.gfile.makedirs(parent)
            before = _state(final, marker)
            fixed = _cannot_be_renamed(final)
            unfinished = temporary_name(final if fixed else parent)
            stack.callback(_remove, unfinished)
            tf.io.gfile.makedirs(unfinished)
        with _write_errors(path, place, unfinished):
            yield unfinished
        with _write_errors(path, place):
            if _state(final, marker) != before:
                raise UserError(
                    f"{place}: another program wrote this folder in the meantime, so it is kept;"
                    " give each program its own folder, or run this one again"
                )
            if fixed:
                _refill(final, unfinished, marker)
            else:
                _replace(final, unfinished)


def check_folder(path: str, flag: str, marker: str, names: Collection[str], what: str) -> str:
    """Checks that `whole_folder` may write a folder; returns its path without links."""
    final = storage.destination_of(path, flag)
    with storage.write_errors(path, f"--{flag}={path}"):
        _check_replaceable(final, f"--{flag}={path}", marker, names, what)
    return final


def _state(folder: str, marker: str) -> tuple[int, int] | None:
    """Returns length and time of a folder's marker, if there is one."""
    try:
        status = tf.io.gfile.stat(os.path.join(folder, marker))
    except tf.errors.NotFoundError:
        return None
    return status.length, status.mtime_nsec


@contextlib.contextmanager
def _write_errors(path: str, place: str, unfinished: str = "") -> Iterator[None]:
    """Converts errors of writing, also in `unfinished`, to OSErrors that name the flag."""
    try:
        yield
    except (tf.errors.OpError, UserError, OSError) as error:
        failed = error if isinstance(error, tf.errors.OpError) else error.__cause__
        if not isinstance(failed, tf.errors.OpError) or _is_of_computing(failed):
            raise
        if failed is not error and (not unfinished or unfinished not in str(error)):
            raise
        kept = " The earlier folder is kept." if tf.io.gfile.exists(path) else ""
        raise OSError(storage.unwritable(place, path, failed) + kept) from error


def _is_of_computing(error: tf.errors.OpError) -> bool:
    """Returns whether an error has nothing to do with writing: out of memory, or a defect."""
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return not storage.tells_of_full_disk(error.message)
    return isinstance(error, tf.errors.InvalidArgumentError)


def _replace(final: str, new: str) -> None:
    """Renames a folder to its final name; an earlier folder may get the name `new`.

    After an error the earlier folder is put back; if that also fails, it keeps a name that is never
    cleaned up. In a bucket files are renamed one by one, so a rename may fail midway.
    """
    if _exchange(final, new):
        return
    old = f"{new}.replaced"
    free = False
    try:
        if tf.io.gfile.exists(final):
            tf.io.gfile.rename(final, old)
        free = True
        tf.io.gfile.rename(new, final)
    except BaseException:
        try:
            if free and tf.io.gfile.exists(final):
                tf.io.gfile.rename(final, new, overwrite=True)
            if tf.io.gfile.exists(old):
                tf.io.gfile.rename(old, final, overwrite=True)
        except tf.errors.OpError as error:
            raise OSError(
                f"{final} could not be replaced, and what was there before could not be put back"
                f" ({error.message}): look for it in {old}, and rename that to {final}"
            ) from error
        raise
    _remove(old)


def _exchange(one: str, other: str) -> bool:
    """Exchanges the names of two local folders in one step; returns whether that was possible."""
    if "://" in one:
        return False
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)  # Linux only
    here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE
    paths = here, os.fsencode(one), here, os.fsencode(other)
    return renameat2 is not None and renameat2(*paths, exchange) == 0


def _cannot_be_renamed(final: str) -> bool:
    """Returns True for a mount, the current folder, or a folder whose parent is read-only."""
    if "://" in final or not os.path.isdir(final):
        return False
    used = os.path.samefile(final, os.curdir)
    return used or os.path.ismount(final) or not os.access(os.path.dirname(final), os.W_OK)


def _refill(final: str, new: str, marker: str) -> None:
    """Replaces the content of a folder, which lacks the marker until all new files are there."""
    for name in sorted(os.listdir(final), key=lambda name: name != marker):
        path = os.path.join(final, name)
        if path != new:
            (tf.io.gfile.rmtree if tf.io.gfile.isdir(path) else tf.io.gfile.remove)(path)
    for name in sorted(os.listdir(new), key=lambda name: name == marker):
        tf.io.gfile.rename(os.path.join(new, name), os.path.join(final, name))


def _remove(folder: str) -> None:
    with contextlib.suppress(tf.errors.OpError):
        tf.io.gfile.rmtree(folder)


def _check_replaceable(
    path: str, place: str, marker: str, names: Collection[str], what: str
) -> None:
    if not tf.io.gfile.exists(path):
        return
    if not tf.io.gfile.isdir(path):
        raise UserError(f"{place} must name a folder, but it is a file")
    found = [name for name in sorted(names_in(path)) if not is_temporary(name)]
    others = [name for name in found if name not in names]
    if others or found and marker not in found:
        raise UserError(
            f"{place} must be a new or empty folder, or {what}, which is then replaced;"
            f" it has {listed(others or found)}. Choose another folder, or empty this one"
        )


class ReplacedError(UserError):
    """Files were replaced while they were read; reading all of them again helps."""


_TRIES, _PAUSE = 5, 0.2  # to read a folder that is being replaced; seconds in between
Result = TypeVar("Result")


def read_again(read: Callable[[], Result]) -> Result:
    """Returns what `read` returns; retries if files are replaced at that moment."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(ReplacedError):
            return read()
        time.sleep(_PAUSE)
    return read()


class Unreplaced:
    """Raises ReplacedError at the end of its block if a file changed after the object was made.

    That error also replaces an error within the block, which a mixture of old and new files may
    have caused. Some of the files `names` in the `folder` may be missing.
    """

    def __init__(self, folder: str, names: Sequence[str], place: str):
        self._paths = [folder or ".", *(os.path.join(folder, name) for name in names)]
        self._place = place
        self._before = [*map(_identity, self._paths)]

    def check(self) -> None:
        """Raises ReplacedError if the folder or a file is no longer the same."""
        if [*map(_identity, self._paths)] != self._before:
            raise ReplacedError(
                f"{self._place} was replaced or changed while it was read. Load it again when no"
                " program writes to it; docs/serving.md says how to exchange a model in use"
            )

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None or issubclass(kind, Exception):
            self.check()


def _identity(path: str) -> tuple[int, ...] | None:
    """Returns numbers that identify a file's version, or a folder regardless of content."""
    try:
        if "://" in path:
            status = tf.io.gfile.stat(path)
            return None if status.is_directory else (status.length, status.mtime_nsec)
        found = os.stat(path)
    except (OSError, ValueError, tf.errors.OpError):
        return None
    own = (0, 0) if os.path.isdir(path) else (found.st_size, found.st_mtime_ns)
    return (found.st_dev, found.st_ino, *own)
