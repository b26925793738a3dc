"""Replaces TensorFlow's file system where a model is read without TensorFlow.

`lazy_tensorflow` takes `io` and `errors` from here within `only_local_files`. The names are
TensorFlow's, and paths are local.
"""

import contextlib
import contextvars
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

is_used = contextvars.ContextVar("is_used", default=False)


@contextlib.contextmanager
def only_local_files() -> Iterator[None]:
    """Makes modules in this context read files with Python's functions, not with TensorFlow's."""
    token = is_used.set(True)
    try:
        yield
    finally:
        is_used.reset(token)


class OpError(Exception):
    """An error in reading a file."""

    @property
    def message(self) -> str:
        return str(self)


class NotFoundError(OpError):
    """A file that does not exist."""


def _open(path: str, mode: str = "r") -> Any:
    try:
        return open(path, mode, encoding=None if "b" in mode else "utf-8")
    except OSError as error:
        kind = NotFoundError if isinstance(error, FileNotFoundError) else OpError
        raise kind(f"{path}; {error.strerror}") from error


errors = SimpleNamespace(OpError=OpError, NotFoundError=NotFoundError)
io = SimpleNamespace(gfile=SimpleNamespace(exists=os.path.exists, isdir=os.path.isdir, GFile=_open))
