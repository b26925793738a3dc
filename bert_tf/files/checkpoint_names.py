"""Finds the checkpoints of a directory, by its file `checkpoint` and by the names of its files."""

import os
import re
from collections.abc import Sequence

from bert_tf.errors import UserError, check_regular, given, quoted
from bert_tf.files import storage, whole_files
from bert_tf.files.paths import names_in
from bert_tf.start import lazy_tensorflow as tf

# A step is an int64. A name with more digits is not a checkpoint of this library.
_NUMBERED = re.compile(r"model\.ckpt-([0-9]{1,18})")
# TensorFlow's BundleWriter names a file like this until it is complete.
_PART = re.compile(r"model\.ckpt-\d+\..*\.tempstate\d+")
_PATTERN = re.compile(r"[\[*?\\]")


def check_path(path: str, flag: str | None) -> None:
    """Calls `check_file_system`; raises UserError if the path looks like a glob pattern."""
    storage.check_file_system(path, flag)
    if _PATTERN.search(path):
        raise UserError(
            f"{given(path, flag)} must not contain [, *, ? or a backslash: TensorFlow reads them as"
            " a pattern and does not find its files there; rename the directory"
        )


def state_file(directory: str) -> str:
    return os.path.join(directory, "checkpoint")


def listed_in(directory: str) -> list[str]:
    """Returns the prefixes that a directory's file `checkpoint` lists, the newest last.

    The file is untrusted: only the last part of each path is used, as a name in this directory. The
    result is [] if the file is missing or empty; an unreadable file raises `storage.write_error`'s
    exception.
    """
    path = state_file(directory)
    check_regular(path, path)
    try:
        with tf.io.gfile.GFile(path, "rb") as reader:
            reader.read()
    except tf.errors.OpError as error:
        if isinstance(error, tf.errors.NotFoundError) or not tf.io.gfile.isdir(directory):
            return []
        raise storage.write_error(
            error,
            f"The file {path} names the checkpoints of this directory and must be readable:"
            f" {storage.error_text(error.message)}.{storage.advice(path)}",
        ) from error
    try:
        state = tf.train.get_checkpoint_state(directory)
    except ValueError:  # it lists nothing, or is not UTF-8
        state = None
    if not state:
        return []
    newest = state.model_checkpoint_path
    paths = [p for p in state.all_model_checkpoint_paths if p != newest] + [newest]
    names = map(os.path.basename, paths)
    good = [n for n in names if n not in ("", ".", "..") and not _PATTERN.search(n)]
    return [os.path.join(directory, name) for name in good]


def number_of(prefix: str) -> int | None:
    """Returns the number in a prefix `model.ckpt-NUMBER`; None for other names."""
    numbered = _NUMBERED.fullmatch(os.path.basename(prefix))
    return int(numbered[1]) if numbered else None


def numbered_in(directory: str) -> list[str]:
    """Returns the prefixes of all `model.ckpt-NUMBER` that have an index, sorted by number."""
    found = [name.removesuffix(".index") for name in names_in(directory) if name.endswith(".index")]
    prefixes = [os.path.join(directory, name) for name in found if _NUMBERED.fullmatch(name)]
    return sorted(prefixes, key=number_of)


def files_of(prefix: str) -> list[str]:
    """Returns the files and folders whose names begin with the prefix and a full stop."""
    directory, name = os.path.split(prefix)
    return [os.path.join(directory, n) for n in names_in(directory) if n.startswith(name + ".")]


def is_part(name: str) -> bool:
    """Returns whether TensorFlow gives such a name to an incomplete file."""
    return _PART.fullmatch(name) is not None


def write_state(directory: str, prefixes: Sequence[str]) -> None:
    """Lists these prefixes, oldest first, in the file `checkpoint`.

    The file has names without the directory, so the directory can be moved.
    """
    names = list(map(os.path.basename, prefixes))
    lines = [f'model_checkpoint_path: "{names[-1]}"']
    lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
    whole_files.write_whole(state_file(directory), "\n".join(lines) + "\n")


def some(prefixes: Sequence[str]) -> str:
    return quoted(", ".join(map(os.path.basename, prefixes)))
