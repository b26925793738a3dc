"""Tools beside the main programs: `python -m tools.NAME` in the checkout.

Installed, they run as `python -m bert_tf.tools.NAME`, so they import each other relatively.
"""

import contextlib
import inspect
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from absl import flags

import bert_tf
from bert_tf.engine import interrupts
from bert_tf.errors import UserError

# Holds flags/ and tpu/: the checkout, or the installed package.
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def load_input(folder: str) -> Any:
    """Loads the model of --input; messages name the flag."""
    try:
        return bert_tf.load(folder)
    except UserError as error:
        raise UserError(f"--input: {error}") from error


def with_flags(function: Callable[..., Any]) -> Callable[[], Any]:
    """Returns a function that calls `function` with the program's flags as arguments."""
    names = inspect.signature(function).parameters
    return lambda: function(**{name: flags.FLAGS[name].value for name in names})


@contextlib.contextmanager
def child(command: Sequence[str], **streams: Any) -> Iterator[subprocess.Popen]:
    """Runs a command, passes Ctrl-C and SIGTERM on to it, and waits until it ends.

    If the exit status is not one of `interrupts.STATUSES`, this process then also gets the signal.
    """
    # In a separate process group, because a terminal then sends Ctrl-C only to this process.
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0, **streams)
    received: list[int] = []

    def pass_on(number: int, _) -> None:
        received.append(number)
        process.send_signal(number)

    before = {n: signal.signal(n, pass_on) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        with process:
            yield process
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received and process.returncode not in interrupts.STATUSES:
        os.kill(os.getpid(), received[0])
