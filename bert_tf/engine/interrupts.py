"""Interrupts that end a run politely: what is begun is saved or removed first."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

# EX_TEMPFAIL of sysexits.h: nothing is wrong, start the same command again.
TERMINATED_STATUS = 75
INTERRUPTED_STATUS = 130  # what a shell reports of a program that Ctrl-C has ended


class Terminated(KeyboardInterrupt):
    """SIGTERM: the machine is taken away, or a scheduler wants the run to end."""


def raise_on_sigterm() -> None:
    """Makes SIGTERM raise `Terminated`, once: what follows the first is not to be cut short."""

    def terminate(*_) -> None:
        ignore_sigterm()
        raise Terminated

    signal.signal(signal.SIGTERM, terminate)


def ignore_sigterm() -> None:
    """Lets a program whose work is done come to its end: Python, ending, would hand SIGTERM to the
    system, and a complete run would look like one that was cut short."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


_held: list[KeyboardInterrupt] | None = None


@contextlib.contextmanager
def hold() -> Iterator[None]:
    """Within it Ctrl-C and SIGTERM wait: `held` tells of them, and at the end the first is raised.

    Steps in another thread, or with other processes, must be brought to an end first. A second
    Ctrl-C ends the program at once. Within another `hold`, or in a thread that hears no signals, it
    does nothing.
    """
    global _held
    if _held is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[KeyboardInterrupt] = []

    def keep(number: int, frame) -> None:
        if number == signal.SIGINT and waiting:
            os._exit(INTERRUPTED_STATUS)
        waiting.append(Terminated() if number == signal.SIGTERM else KeyboardInterrupt())

    _held = waiting
    before = {number: signal.signal(number, keep) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _held = None
    if waiting:
        raise waiting[0]


def held() -> KeyboardInterrupt | None:
    """Returns the interrupt that waits, if there is one."""
    return _held[0] if _held else None


def exit_status(interrupt: KeyboardInterrupt) -> int:
    """Returns the status of a program that `interrupt`, or the cause of it, has ended."""
    if isinstance(interrupt, Terminated) or isinstance(interrupt.__cause__, Terminated):
        return TERMINATED_STATUS
    return INTERRUPTED_STATUS
