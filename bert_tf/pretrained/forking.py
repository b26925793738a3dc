"""Refuses to compute in a process that was forked from one with a loaded model.

TensorFlow's threads do not survive a fork: every call in such a process would wait for ever.
"""

import os

from bert_tf.errors import UserError

_loaded_in: int | None = None  # id of the process that loaded the first model


def is_forked() -> bool:
    """Returns whether this process was forked from one that had loaded a model."""
    return _loaded_in not in (None, os.getpid())


def check_process() -> None:
    """Raises UserError if this process `is_forked`."""
    if is_forked():
        raise UserError(
            f"This process ({os.getpid()}) was forked from process {_loaded_in} after that had"
            " loaded a model, and TensorFlow does not work in a forked process: the call would"
            ' never end. Start processes with multiprocessing.get_context("spawn"), or load models'
            " only in the processes that use them (gunicorn: without --preload)"
        )


def mark_loaded() -> None:
    """Remembers that this process has loaded a model. Raises UserError if it `is_forked`."""
    global _loaded_in
    check_process()
    _loaded_in = os.getpid()
