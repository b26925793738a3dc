"""Files wherever TensorFlow reaches them: finding them, and what to say when that is impossible.

A path is local or in a bucket of Google Cloud Storage (gs://); messages name the flag it came from.
"""

import contextlib
import functools
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf

from bert_tf.errors import UserError

# An answer takes about a second. TensorFlow itself goes on asking for minutes, without a word.
_STORAGE_SECONDS = 15.0


def check_file_system(path: str, flag: str) -> None:
    """Returns nothing if TensorFlow knows the file system that `path` is on, and it answers.

    Raises:
        UserError: TensorFlow has nothing to serve the scheme (`gs://`, ...) with.
        OSError: Google Cloud Storage gives no answer. A bucket that refuses access has answered;
            the access itself reports that.
    """
    scheme, separator, rest = path.partition("://")
    if separator and scheme not in tf.io.gfile.get_registered_schemes():
        raise UserError(
            f"--{flag}={path}: this TensorFlow knows no file system {scheme}://.{advice(path)}"
        )
    if scheme == "gs" and separator and not _bucket_answers(rest.partition("/")[0]):
        raise OSError(
            f"--{flag}={path}: no answer within {_STORAGE_SECONDS:.0f} seconds.{advice(path)}"
        )


@functools.cache
def _bucket_answers(bucket: str) -> bool:
    """Returns whether there is any answer about a bucket, be it that it is closed, in good time."""
    answered = threading.Event()

    def ask() -> None:
        with contextlib.suppress(tf.errors.OpError):
            tf.io.gfile.exists(f"gs://{bucket}/.answer")
        answered.set()

    # A thread because nothing ends TensorFlow's attempts; they end with the program.
    threading.Thread(target=ask, daemon=True).start()
    return answered.wait(_STORAGE_SECONDS)


def expand_files(patterns: str | Sequence[str], flag: str) -> list[str]:
    """Returns the names of the files that `patterns` match, pattern after pattern.

    Args:
        patterns: file names or globs, separated by commas if it is one string. Files matched by one
            glob come sorted, so that a seed means the same on every machine (the original takes
            the directory's order); a file that two patterns match comes twice.
        flag: the flag (no dashes) they come from, for messages.

    Raises:
        UserError: a pattern matches nothing, or a file is missing, a directory, empty, or on a
            file system that TensorFlow cannot reach.
    """
    if isinstance(patterns, str):
        patterns = patterns.split(",")
    patterns = [pattern for pattern in patterns if pattern]
    if not patterns:
        raise UserError(f"--{flag} names no file")
    files = []
    for pattern in patterns:
        check_file_system(pattern, flag)
        try:
            matches = sorted(tf.io.gfile.glob(pattern))
            if not matches and tf.io.gfile.exists(pattern):
                matches = [pattern]  # a file whose own name has brackets in it
        except tf.errors.OpError as error:
            raise UserError(
                f"--{flag}: cannot look for {pattern}: {error_text(error)}.{advice(pattern)}"
            ) from error
        if not matches:
            missing = "matches no file" if any(c in pattern for c in "*?[") else "does not exist"
            raise UserError(f"--{flag}: {pattern} {missing}")
        files.extend(matches)

    def check(path: str) -> None:
        status = tf.io.gfile.stat(path)
        if status.is_directory:
            raise UserError(
                f"--{flag}: {path} is a directory; name the files in it, e.g. {path.rstrip('/')}/*"
            )
        if status.length == 0:
            raise UserError(f"--{flag}: {path} is empty")

    with ThreadPoolExecutor(16) as pool:  # one request per file where the files are in a bucket
        for _ in pool.map(check, files):
            pass
    return files


def advice(path: str) -> str:
    """Returns what to do when `path` cannot be reached, or nothing if it is a local path."""
    if path.startswith("gs://"):
        # The builds that the extras install read and write gs:// by themselves; others need a
        # package.
        return (
            " Google Cloud Storage needs network access, credentials (gcloud auth "
            "application-default login) and, where TensorFlow was built without it, "
            "pip install tensorflow-io-gcs-filesystem; or use local files"
        )
    return ""


def error_text(error: tf.errors.OpError) -> str:
    """Returns TensorFlow's message without the names of the node and the op around it."""
    return re.sub(r"^\{\{.*?\}\} | \[Op:.*$", "", error.message)


def write_error(error: tf.errors.OpError, message: str) -> UserError | OSError:
    """Returns what to raise where writing failed: an OSError if it may work at another time.

    Args:
        error: of the file system.
        message: what to tell.
    """
    lasting = (
        tf.errors.AlreadyExistsError,
        tf.errors.FailedPreconditionError,
        tf.errors.InvalidArgumentError,
        tf.errors.NotFoundError,
        tf.errors.PermissionDeniedError,
        tf.errors.UnauthenticatedError,
    )
    return (UserError if isinstance(error, lasting) else OSError)(message)
