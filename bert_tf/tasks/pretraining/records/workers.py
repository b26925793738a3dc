"""Runs a function in several processes on this machine."""

import multiprocessing
import multiprocessing.connection
import sys
from collections.abc import Callable, Sequence
from typing import Any

from absl import logging

from bert_tf.engine import interrupts

_SECONDS_TO_END = 30.0


def run_workers(function: Callable[[Any], None], arguments: Sequence[Any]) -> None:
    """Calls a module's function with each argument, each call in its own process; waits for all.

    If a call fails or this process is interrupted, the remaining processes are terminated.

    Raises:
        Exception: from the first call that failed.
        OSError: a process was killed, such as for want of memory.
    """
    context = multiprocessing.get_context("spawn")  # TensorFlow's threads do not survive a fork
    errors = context.SimpleQueue()
    workers = [
        context.Process(target=_call, args=(function, argument, errors), daemon=True)
        for argument in arguments
    ]
    try:
        for worker in workers:
            worker.start()
        running = {worker.sentinel: worker for worker in workers}
        while running:
            for sentinel in multiprocessing.connection.wait(list(running)):
                worker = running.pop(sentinel)
                worker.join()
                if worker.exitcode and errors.empty():
                    raise OSError(
                        f"worker {workers.index(worker)} ended with status {worker.exitcode};"
                        " start the same command again"
                    )
                if not errors.empty():
                    raise errors.get()
    finally:
        for worker in workers:
            if worker.is_alive():
                worker.terminate()
        for worker in workers:
            if worker.pid is not None:
                worker.join(_SECONDS_TO_END)


def _call(function: Callable[[Any], None], argument: Any, errors: Any) -> None:
    interrupts.raise_on_sigterm()
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    try:
        try:
            function(argument)
        except Exception as error:  # raised again in `run_workers`, which stops the other processes
            errors.put(error)
            sys.exit(1)
    except KeyboardInterrupt as interrupt:  # also while the error is sent
        sys.exit(interrupts.exit_status(interrupt))
