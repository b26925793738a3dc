"""Programs around the main ones: `python -m tools.NAME` in the checkout.

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
    """Returns a function that calls `function`, whose arguments are flags of the program."""
    names = inspect.signature(function).parameters
    return lambda: function(**{name: flags.FLAGS[name].value for name in names})


@contextlib.contextmanager
def child(command: Sequence[str], **streams: Any) -> Iterator[subprocess.Popen]:
    """Runs a command, which gets this process's Ctrl-C and SIGTERM; waits for its end.

    If it does not end with a status of `interrupts`, the signal also reaches this process then.
    """
    # In a group of its own: a terminal sends Ctrl-C to this process only.
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
