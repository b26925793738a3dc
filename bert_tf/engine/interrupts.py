"""Delays Ctrl-C and SIGTERM until a run can save its work."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

TERMINATED_STATUS = 75  # EX_TEMPFAIL of sysexits.h: start the same command again
INTERRUPTED_STATUS = 130  # what a shell reports after Ctrl-C
UNSAVED_STATUS = 131  # what a shell reports after SIGQUIT, which also ends a program at once
STATUSES = (TERMINATED_STATUS, INTERRUPTED_STATUS, UNSAVED_STATUS)

_UNSAVED = (
    b"\nCtrl-C again: ended at once. The steps since the last checkpoint are lost; the same command"
    b" continues from that checkpoint.\n"
)


class Terminated(KeyboardInterrupt):
    """SIGTERM: the machine is being preempted, or a scheduler stops the run."""


_raised: KeyboardInterrupt | None = None


def _raise(interrupt: KeyboardInterrupt) -> None:
    global _raised
    _raised = interrupt
    raise interrupt


def _raise_again(unraisable) -> None:
    """sys.unraisablehook: repeats a signal whose exception is lost, as in a weakref callback."""
    if unraisable.exc_value is None or unraisable.exc_value is not _raised:
        sys.__unraisablehook__(unraisable)
        return
    is_terminated = isinstance(_raised, Terminated)
    if is_terminated:
        raise_on_sigterm()
    number = signal.SIGTERM if is_terminated else signal.SIGINT
    # Later, because Python would also drop an exception raised in this hook.
    timer = threading.Timer(0.05, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()


def raised() -> KeyboardInterrupt | None:
    """Returns the last interrupt raised by a signal; TensorFlow may make it a RuntimeError."""
    return _raised


def raise_on_sigterm() -> None:
    """Makes the first SIGTERM raise `Terminated`. Later ones are ignored, so saving can finish.

    From now on a signal, Ctrl-C included, is repeated if Python dropped its exception.
    """

    def terminate(*_) -> None:
        ignore_sigterm()
        _raise(Terminated())

    signal.signal(signal.SIGTERM, terminate)
    sys.unraisablehook = _raise_again


def raise_on_ctrl_c() -> None:
    """Makes Ctrl-C raise KeyboardInterrupt, as Python does, and records it for `raised`."""
    global _raised
    _raised = None
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # unless Ctrl-C is ignored
        signal.signal(signal.SIGINT, lambda *_: _raise(KeyboardInterrupt()))


def ignore_sigterm() -> None:
    """Ignores SIGTERM: for a program whose work is done.

    At its exit Python restores the system's handlers, and a SIGTERM would then make a complete run
    look like a stopped one.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


_held: list[KeyboardInterrupt] | None = None


@contextlib.contextmanager
def hold() -> Iterator[None]:
    """Delays Ctrl-C and SIGTERM to the end of this context, where the first one is raised.

    So steps in a second thread or with other processes can finish; meanwhile `held`
    returns the interrupt. Ctrl-C after an earlier Ctrl-C or SIGTERM ends the program at once,
    without saving, with a message and `UNSAVED_STATUS`. Inside an outer `hold`, or outside the main
    thread, this does nothing.
    """
    global _held
    if _held is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[KeyboardInterrupt] = []

    def keep(number: int, frame) -> None:
        if number == signal.SIGINT and waiting:
            os.write(2, _UNSAVED)  # safe within a signal's handler
            os._exit(UNSAVED_STATUS)
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
    """Returns the interrupt that is being delayed, if any."""
    return _held[0] if _held else None


def exit_status(interrupt: KeyboardInterrupt) -> int:
    return TERMINATED_STATUS if isinstance(interrupt, Terminated) else INTERRUPTED_STATUS
