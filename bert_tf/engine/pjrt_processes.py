"""Connects a run's processes through JAX; each has the devices of its own host."""

import contextlib
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf.engine import distribution
from bert_tf.errors import UserError

WAIT_SECONDS = 300.0  # for the other processes at the start
_TEXT_BYTES = 2**16  # words are compared up to this length
_PARTING_SECONDS = 10.0  # for the other processes at the end of a failed run

# In JAX's errors when a different process has ended: gRPC's names of errors, and gloo's.
_LOST = re.compile(
    "Gloo|UNAVAILABLE|DEADLINE_EXCEEDED|CANCELLED|ABORTED|[Cc]onnection (reset|clos)"
)
_lost: list[float] = []  # seconds to wait before the exit, once a different process has ended


def join(coordinator: str, number: int | None, index: int | None) -> None:
    """Connects to the other processes of the run.

    Args:
        coordinator: HOST:PORT of process 0; "auto" where JAX finds the processes by itself.
        number, index: number of processes, and of this process from 0; None with "auto".
    """
    if index == 0:
        _check_port(coordinator)
    problems: list[Exception] = []

    def meet() -> None:
        try:
            # JAX aborts the program at the end of this time.
            seconds = int(2 * WAIT_SECONDS) + 60
            places = () if coordinator == "auto" else (coordinator, number, index)
            _jax().distributed.initialize(*places, initialization_timeout=seconds)
        except Exception as error:
            problems.append(error)

    logging.info("Waiting for the other processes of --coordinator=%s", coordinator)
    distribution.at_failure(_leave)
    meeting = threading.Thread(target=meet, daemon=True)  # so that Ctrl-C and SIGTERM still work
    meeting.start()
    meeting.join(WAIT_SECONDS)
    if meeting.is_alive():
        _lost.append(0.0)
        missing = "process 0 does not answer" if index else "the other processes did not come"
        raise ConnectionError(
            f"--coordinator={coordinator}: {missing} within {WAIT_SECONDS:g} s. Start the same"
            " command on every machine, each with its own --process_index, and let the port through"
            " the firewall"
        )
    for error in problems:
        raise UserError(
            f"--coordinator={coordinator}: JAX cannot join the processes ({error})"
        ) from error


def _check_port(coordinator: str) -> None:
    """Checks that this process, number 0, can open its port; JAX would crash."""
    port = int(coordinator.rpartition(":")[2])
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        raise UserError(
            f"--coordinator={coordinator}: process 0 cannot open port {port}"
            f" ({error.strerror}). End the program that uses it, such as an earlier run, or choose"
            " another port, the same on every machine"
        ) from error


def check_same(gather: Callable[[np.ndarray], np.ndarray], words: Sequence[str]) -> None:
    """Checks that all processes have the same words, such as --NAME=VALUE."""
    own = "\n".join(words).encode()[:_TEXT_BYTES].ljust(_TEXT_BYTES, b"\0")
    rows = gather(np.frombuffer(own, np.uint8))
    texts = [bytes(row).rstrip(b"\0").decode(errors="replace") for row in rows]
    first = texts[0].split("\n")
    for index, text in enumerate(texts):
        if text != texts[0]:
            its = text.split("\n")
            here, there = (
                " ".join(word for word in mine if word not in others) or "none of these"
                for mine, others in ((its, first), (first, its))
            )
            raise UserError(
                f"The processes of --coordinator have different flags: process {index} has {here},"
                f" process 0 has {there}. Start the same command on every machine, each with its"
                " own --process_index"
            )


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Raises ConnectionError if JAX fails in this context because a different process has ended."""
    from jax.errors import JaxRuntimeError

    try:
        yield
    # ValueError: from steps in the calling thread, without `jax_cpu_enable_async_dispatch`.
    except (JaxRuntimeError, ValueError) as error:
        is_own = isinstance(error, UserError) or not _jax().distributed.is_initialized()
        if is_own or not _LOST.search(str(error)):
            raise
        _lost.append(_PARTING_SECONDS / 2 if _jax().process_index() == 0 else 0.0)
        raise ConnectionError(
            "Another process of this run has ended or cannot be reached. Start the same command"
            f" again on every machine; it continues from the last checkpoint ({error})"
        ) from error


def _leave(status: int) -> None:
    """Ends the program after a failure.

    At Python's exit JAX would wait minutes for lost processes, and then abort. Process 0 leaves
    last: JAX aborts the others when it has ended.
    """
    if _lost:
        time.sleep(_lost[0])
    else:  # tell the others, if they still run
        parting = threading.Thread(target=_jax().distributed.shutdown, daemon=True)
        parting.start()
        parting.join(_PARTING_SECONDS)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _jax() -> Any:
    import jax

    return jax
