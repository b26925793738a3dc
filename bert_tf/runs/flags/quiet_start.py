"""Imports TensorFlow quickly, and without the messages that say nothing to a user.

Only programs come here, by way of `command_flags`. A library must not change what its user sees.
"""

import contextlib
import gc
import glob
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from types import TracebackType

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"  # 1: from warnings on
# TensorFlow 2.21 logs while its libraries are loaded, before it has read the level: that oneDNN is
# used and that there is no CUDA driver, each twice, under this heading.
_HEADING = rb"WARNING: All log messages before absl::InitializeLog\(\) is called"
_INFO = rb"I\d{4} \d\d:|\d{4}-\d\d-\d\d \S+: I "
# An error, to TensorFlow. It is one only where there is a GPU.
_NO_GPU = rb"E\d{4} .*failed call to cuInit|\d{4}-\d\d-\d\d \S+: E .*failed call to cuInit"


def import_tensorflow() -> None:
    """Imports TensorFlow, which then logs warnings and errors only.

    Ctrl-C while programs still import ends them with a line, not with a traceback. On a machine
    without a GPU, the error that says so (cuInit) is hidden, too. Everything is shown
    if the command line has --verbosity=1. The environment variable TF_CPP_MIN_LOG_LEVEL, if it is
    set, decides instead of these rules.
    """
    level = os.environ.get(_LEVEL)
    if "tensorflow" in sys.modules or level == "0" or _is_verbose(sys.argv[1:]):
        return
    sys.excepthook = _report
    has_gpu = glob.glob("/dev/nvidia[0-9]*") or os.path.exists("/dev/dxg")  # the latter: WSL
    os.environ[_LEVEL] = level or "1"
    dropped = [_HEADING, _INFO] + ([] if has_gpu else [_NO_GPU])
    with _filtered_stderr(dropped), _imported_objects_kept():
        import tensorflow as tf

        if not has_gpu and tf.test.is_built_with_cuda():
            tf.config.list_physical_devices("GPU")  # calls cuInit, as every run does later
    if level is None:
        # TensorFlow has read it. A program that this one starts decides by its own command line.
        del os.environ[_LEVEL]


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Reports an exception that ends Python, which after Ctrl-C ends as if by that signal."""
    if issubclass(kind, KeyboardInterrupt):
        print("Stopped by Ctrl-C before anything was begun.", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


def _is_verbose(arguments: Sequence[str]) -> bool:
    """Returns whether --verbosity is above 0, absl's level for info."""
    words = " ".join(arguments)
    return re.search(r"(^| )--?(v|verbosity)[= ]([1-9]|debug)", words, re.IGNORECASE) is not None


@contextlib.contextmanager
def _imported_objects_kept() -> Iterator[None]:
    """Spares Python the search for garbage among modules, which are never any: it takes 1 s."""
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


@contextlib.contextmanager
def _filtered_stderr(patterns: Sequence[bytes]) -> Iterator[None]:
    """Drops the lines that begin with one of the patterns from what is written to descriptor 2.

    A process of its own passes the other lines on at once, so that none is lost if this process
    aborts, as it does where a library of the TPU does not fit.
    """
    sys.stderr.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        _pass_on(reading, re.compile(b"|".join(patterns)))
    os.close(reading)
    stderr = os.dup(2)
    os.dup2(writing, 2)
    os.close(writing)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        os.close(stderr)
        os.waitpid(child, 0)


def _pass_on(reading: int, dropped: re.Pattern) -> None:
    """Copies lines to descriptor 2 until no process writes any more, and ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that writes
    try:
        with os.fdopen(reading, "rb") as lines:
            for line in lines:
                if not dropped.match(line):
                    os.write(2, line)
    finally:
        os._exit(0)
