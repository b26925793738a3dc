"""Starts programs in forks of a process that has only imported TensorFlow, which takes seconds.

Otherwise a program runs as from a shell, with its own arguments, environment and output.
"""

import atexit
import multiprocessing
import os
import runpy
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from multiprocessing import connection, reduction
from multiprocessing.process import BaseProcess

_CONTEXT = multiprocessing.get_context("forkserver")
# All programs that train import these. What defines a program's own flags must not be here.
_CONTEXT.set_forkserver_preload(
    [
        "tests.support.tensorflow_started",
        "bert_tf.runs.flags.command_flags",
        "bert_tf.runs.training.trainer",
    ]
)
# Starting a program also asks whether earlier ones have ended, and each answer can be read once:
# a thread that waited for it meanwhile would get 255.
_STATUSES = threading.Lock()


def start(
    words: Sequence[str], log: str | os.PathLike, env: Mapping[str, str] | None = None
) -> BaseProcess:
    """Starts a program and returns its process.

    Args:
        words: the interpreter, the program's file and its flags, as for subprocess; "-m" and a
            module, or "-c" and code, may stand for the file.
        log: file that stdout and stderr are added to.
        env: all environment variables, except those that TensorFlow reads at its import; None:
            the variables of the tests.
    """
    environment = dict(os.environ if env is None else env)
    process = _CONTEXT.Process(target=_logged, args=(list(words[1:]), environment, str(log)))
    with _STATUSES:
        process.start()
    return process


def start_in(
    folder: str, words: Sequence[str], env: Mapping[str, str], streams: Sequence[int]
) -> BaseProcess:
    """Starts a program in a folder and returns its process.

    Args:
        folder: the working directory.
        words: as for `start`.
        env: as for `start`; Python finds modules in the folders of its PYTHONPATH.
        streams: the file descriptors of stdin, stdout and stderr.
    """
    arguments = folder, list(words[1:]), dict(env), _Streams(streams)
    process = _CONTEXT.Process(target=_attached, args=arguments)
    with _STATUSES:
        process.start()
    return process


def wait(process: BaseProcess) -> int:
    """Waits until a program ends, while other threads may start more, and returns its exit code."""
    connection.wait([process.sentinel])
    with _STATUSES:
        process.join()
    return process.exitcode


class _Streams:
    """File descriptors that are handed to a process as it starts."""

    def __init__(self, descriptors: Sequence[int]):
        self._descriptors = descriptors

    def __reduce__(self):
        return _opened, tuple(reduction.DupFd(one) for one in self._descriptors)


def _opened(*descriptors) -> list[int]:
    return [one.detach() for one in descriptors]


def run(words: Sequence[str]) -> tuple[int, str]:
    """Returns the exit code of a program, and what it printed: stdout and stderr."""
    with tempfile.NamedTemporaryFile("r", prefix="program", suffix=".log") as log:
        return wait(start(words, log.name)), log.read()


def _logged(words: list[str], environment: dict[str, str], log: str) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    _main(words, environment)


def _attached(folder: str, words: list[str], environment: dict[str, str], streams: list[int]):
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    # The fork has a closed file for sys.stdin.
    sys.stdin = open(0, closefd=False)
    os.chdir(folder)
    # Where processes that the program starts look for its file.
    multiprocessing.process.ORIGINAL_DIR = folder
    sys.path[:0] = environment.get("PYTHONPATH", "").split(os.pathsep)
    _main(words, environment)


def _main(words: list[str], environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    try:
        if words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            exec(words[1], {"__name__": "__main__"})
        elif words[0] == "-m":
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            sys.path.insert(0, os.path.dirname(words[0]))
            runpy.run_path(words[0], run_name="__main__")
    finally:
        atexit._run_exitfuncs()
