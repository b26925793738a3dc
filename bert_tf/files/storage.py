"""Paths that TensorFlow can reach: checks, globs, output directories, and error messages.

A path is local or in a bucket of Google Cloud Storage (gs://). Messages name the `flag` (no dashes)
that gave the path, if any.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import os
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from bert_tf.errors import UserError, given, listed, quoted
from bert_tf.files.paths import folder_destination, names_in
from bert_tf.files.temporary_names import temporary_name
from bert_tf.start import lazy_tensorflow as tf

# A response takes about a second. TensorFlow itself retries for minutes without saying so.
_STORAGE_SECONDS = 15.0


def is_unicode(text: str) -> bool:
    """Returns False for text with surrogates, such as from JSON or from names not in UTF-8."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def is_path(text: str) -> bool:
    """Returns whether `text` can be a path: Unicode, no NUL (TensorFlow cuts the path there)."""
    return "\0" not in text and is_unicode(text)


def check_file_system(path: str, flag: str | None) -> None:
    """Checks that TensorFlow knows the file system of `path`, and that the file system responds."""
    if not is_path(path):
        name = f"--{flag}" if flag else "a path"
        raise UserError(f"{name} must be UTF-8 text without null characters; it is {quoted(path)}")
    scheme, separator, rest = path.partition("://")
    if separator and scheme not in tf.io.gfile.get_registered_schemes():
        raise UserError(
            f"{given(path, flag)}: this TensorFlow does not support {scheme}://.{advice(path)}"
        )
    if scheme == "gs" and separator and not _bucket_responds(rest.partition("/")[0]):
        raise OSError(
            f"{given(path, flag)}: no response within {_STORAGE_SECONDS:.0f} seconds.{advice(path)}"
        )


@functools.cache
def _bucket_responds(bucket: str) -> bool:
    """Returns whether the bucket responds in time; a refusal is also a response."""
    responded = threading.Event()

    def ask() -> None:
        with contextlib.suppress(tf.errors.OpError):
            tf.io.gfile.exists(f"gs://{bucket}/.answer")
        responded.set()

    # A daemon thread ends with the program: TensorFlow's retries cannot be stopped.
    threading.Thread(target=ask, daemon=True).start()
    return responded.wait(_STORAGE_SECONDS)


def expand_files(patterns: str | Sequence[str], flag: str) -> list[str]:
    """Returns the files that match a sequence or comma-separated list of names or globs.

    The matches of a glob are sorted, so that a seed gives the same result on every machine (the
    original takes the directory's order). A file that matches two patterns is listed twice.
    """
    comma = ""
    if isinstance(patterns, str):
        if "," in patterns:
            comma = "; commas separate files, so write ? for a comma that belongs to a name"
        patterns = patterns.split(",")
    patterns = list(filter(None, patterns))
    if not patterns:
        raise UserError(f"--{flag} names no file")
    files = []
    for pattern in patterns:
        check_file_system(pattern, flag)
        try:
            exists = tf.io.gfile.exists(pattern)  # maybe a name with brackets
            matches = [pattern] if exists else sorted(tf.io.gfile.glob(pattern))
        except tf.errors.OpError as error:
            reason = f"{error_text(error.message)}.{advice(pattern)}"
            raise UserError(f"--{flag}: cannot look for {pattern}: {reason}") from error
        except UnicodeDecodeError as error:
            raise UserError(
                f"--{flag}: {pattern} matches {quoted(error.object)}, and TensorFlow reads only"
                " files whose names are UTF-8. Rename that file"
            ) from error
        if not matches:
            missing = "matches no file" if any(c in pattern for c in "*?[") else "does not exist"
            near = "" if missing.startswith("matches") else nearest(pattern)
            raise UserError(f"--{flag}: {pattern} {missing}{near}{comma}")
        files.extend(matches)

    def check(path: str) -> None:
        try:
            status = tf.io.gfile.stat(path)
        except tf.errors.OpError as error:  # a link to itself or to nothing; no permission
            raise UserError(f"--{flag}: {path} cannot be read: {error.message}") from error
        if status.is_directory:
            raise UserError(
                f"--{flag}: {path} is a directory; name the files in it, e.g. {path.rstrip('/')}/*"
            )
        if status.length == 0:
            raise UserError(f"--{flag}: {path} is empty")

    with ThreadPoolExecutor(16) as pool:  # in a bucket each file takes a request
        list(pool.map(check, files))
    return files


def ending_of(path: str) -> str:
    """Returns the ending of a file's name in lower case: `.csv` of A.CSV; "" if it has none."""
    return os.path.splitext(path)[1].lower()


def first_file(folder: str, names: Sequence[str]) -> str | None:
    """Returns the path of the first of these files that exists in a folder."""
    paths = [os.path.join(folder, name) for name in names]
    return next(filter(tf.io.gfile.exists, paths), None)


def only_file(folder: str, names: Sequence[str], remedy: str) -> str | None:
    """Returns the path of the only one of these files in a folder; UserError for several."""
    found = [name for name in names if tf.io.gfile.exists(os.path.join(folder, name))]
    if len(found) > 1:
        raise UserError(f"{folder} has {listed(found)}, but only one of them can be read. {remedy}")
    return os.path.join(folder, found[0]) if found else None


def destination_of(folder: str, flag: str) -> str:
    """Checks the name of a folder to write; returns its path without links."""
    if not folder:
        raise UserError(f"--{flag}= must not be empty; name a folder")
    check_file_system(folder, flag)
    return folder_destination(folder, f"--{flag}={folder}")


def make_output_dir(output_dir: str, flag: str = "output_dir") -> None:
    """Creates the output directory and checks that it is writable, long before the first save."""
    destination_of(output_dir, flag)
    probe = ""
    try:
        tf.io.gfile.makedirs(output_dir)
        probe = temporary_name(output_dir)
        with tf.io.gfile.GFile(probe, "w") as writer:
            writer.write("room?")
        tf.io.gfile.remove(probe)
    except tf.errors.OpError as error:
        with contextlib.suppress(tf.errors.OpError):
            tf.io.gfile.remove(probe)
        raise write_error(
            error,
            f"--{flag}={output_dir} must be a writable directory with free space:"
            f" {error_text(error.message)}.{advice(output_dir)}",
        ) from error


def advice(path: str) -> str:
    """Returns advice for a path that cannot be reached; "" for a local path."""
    if not path.startswith("gs://"):
        return ""
    # The TensorFlow builds that setup.py's extras install support gs:// themselves.
    return (
        " Google Cloud Storage needs network access, credentials (gcloud auth application-default"
        " login) and, where TensorFlow was built without it, pip install"
        " tensorflow-io-gcs-filesystem; or use local files"
    )


def contents(folder: str) -> str:
    """Returns a clause for messages that says what a folder holds, or that it does not exist."""
    if tf.io.gfile.isdir(folder):
        return f"{folder} holds {listed(sorted(names_in(folder))) or 'nothing'}"
    if tf.io.gfile.exists(folder):
        return f"{folder} is a file; give the folder that it is in"
    return f"there is no folder {folder}{nearest(folder)}"


def nearest(path: str) -> str:
    """Returns where a missing local path was looked for, and similar names, to end a message."""
    if "://" in path:
        return ""
    folder, name = os.path.split(path.rstrip("/"))
    while folder and not os.path.isdir(folder):
        folder, name = os.path.split(folder.rstrip("/"))
    where, names = "", {}
    with contextlib.suppress(OSError):  # no permission to list it, or it was deleted
        where = "" if os.path.isabs(path) else f" in {os.getcwd()}"
        names = {x.lower(): x for x in os.listdir(folder or ".")}
    near = difflib.get_close_matches(name.lower(), names, 3, 0.7)
    found = listed(os.path.join(folder, names[x]) for x in near)
    return where + (f". Similar names: {found}" if near else "")


def cause(path: str, error: tf.errors.OpError) -> str:
    """Returns why a file cannot be read, for messages, such as that its folder does not exist."""
    above = os.path.dirname(path.rstrip("/")) or "."
    with contextlib.suppress(tf.errors.OpError):
        if tf.io.gfile.isdir(path):
            return f"it is a folder, not a file; {contents(path)}"
        if not tf.io.gfile.isdir(above):
            return contents(above)
        if isinstance(error, tf.errors.NotFoundError):
            return f"no such file; {contents(above)}"
    return error_text(error.message)


def error_text(message: str) -> str:
    """Returns the message of an OpError without the node and op names around it."""
    return re.sub(r"^\{\{.*?\}\} | \[Op:.*$", "", message)


def tells_of_full_disk(message: str) -> bool:
    """Returns whether the message of a ResourceExhaustedError is about a disk, not memory."""
    return re.search("space left|quota", message) is not None


def tells_of_storage(message: str) -> bool:
    """Returns whether an OpError is about a disk or bucket; TensorFlow lacks a class for that."""
    reasons = "Input/output error|Read-only file system|Permission denied|HTTP request"
    return tells_of_full_disk(message) or re.search(reasons, message) is not None


@contextlib.contextmanager
def write_errors(path: str, place: str) -> Iterator[None]:
    """Converts errors of the file system within a block to the exceptions of `write_error`."""
    try:
        yield
    except tf.errors.OpError as error:
        raise write_error(error, unwritable(place, path, error)) from error


def unwritable(place: str, path: str, error: tf.errors.OpError) -> str:
    """Returns the message for a failed write of `path`, which `place` names."""
    return (
        f"{place} cannot be written: {error_text(error.message)}. The folder above it must"
        f" exist, be writable and have free space.{advice(path)}"
    )


def write_error(error: tf.errors.OpError, message: str) -> UserError | OSError:
    """Returns the exception to raise for a failed write: an OSError if a later try may succeed."""
    permanent = (
        tf.errors.AlreadyExistsError,
        tf.errors.FailedPreconditionError,
        tf.errors.InvalidArgumentError,
        tf.errors.NotFoundError,
        tf.errors.PermissionDeniedError,
        tf.errors.UnauthenticatedError,
        tf.errors.UnimplementedError,  # of a file system that TensorFlow does not know
    )
    return (UserError if isinstance(error, permanent) else OSError)(message)
