"""Writes folders atomically: a folder appears only when its content is complete."""

import contextlib
import functools
import os
from collections.abc import Collection, Iterator

import tensorflow as tf

from bert_tf.errors import UserError, listed
from bert_tf.files import storage
from bert_tf.files.temporary_names import temporary_name


@contextlib.contextmanager
def whole_folder(
    path: str, flag: str, marker: str, names: Collection[str], what: str
) -> Iterator[str]:
    """Yields the name of a temporary folder, which is renamed to `path` at the end of the block.

    An earlier folder of this kind is replaced; a folder with any other content is refused. After an
    error the earlier folder is unchanged, or kept under a different name, which the message gives.

    Args:
        path: the final name, from --`flag`.
        marker: name of a file that every folder of this kind has.
        names: all names that a folder of this kind may contain.
        what: the kind, for messages.

    Raises:
        UserError: `path` is a file or a folder of another kind.
        UserError, OSError: the folder cannot be written; see `whole_files`.
        tf.errors.ResourceExhaustedError: the block ran out of memory.
        tf.errors.InvalidArgumentError: from the block.
    """
    storage.check_file_system(path, flag)
    final = path.rstrip("/") or path
    parent = os.path.dirname(final)
    explained = functools.partial(storage.write_errors, path, f"--{flag}={path}")
    with contextlib.ExitStack() as stack:
        with explained():
            _check_replaceable(path, flag, marker, names, what)
            if parent:
                tf.io.gfile.makedirs(parent)
            unfinished = temporary_name(parent)
            stack.callback(_remove, unfinished)
            tf.io.gfile.makedirs(unfinished)
        with explained(_is_of_computing):
            yield unfinished
        with explained():
            _replace(final, unfinished)


def _is_of_computing(error: tf.errors.OpError) -> bool:
    """Returns whether an error has nothing to do with writing: out of memory, or a defect."""
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return not storage.tells_of_full_disk(error.message)
    return isinstance(error, tf.errors.InvalidArgumentError)


def _replace(final: str, new: str) -> None:
    """Renames a folder to its final name, replacing an earlier folder.

    After an error the earlier folder is put back. If that fails too, it keeps a name that nothing
    removes. In a bucket files are renamed one by one, so a rename may fail midway.
    """
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


def _remove(folder: str) -> None:
    with contextlib.suppress(tf.errors.OpError):
        tf.io.gfile.rmtree(folder)


def _check_replaceable(
    path: str, flag: str, marker: str, names: Collection[str], what: str
) -> None:
    if not tf.io.gfile.exists(path):
        return
    if not tf.io.gfile.isdir(path):
        raise UserError(f"--{flag}={path} must name a folder, but it is a file")
    found = [name.rstrip("/") for name in sorted(tf.io.gfile.listdir(path))]
    others = [name for name in found if name not in names]
    if others or found and marker not in found:
        raise UserError(
            f"--{flag}={path} must be a new or empty folder, or {what}, which is then replaced;"
            f" it has {listed(others or found)}. Choose another folder, or empty this one"
        )
