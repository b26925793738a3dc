"""Imports TensorFlow quickly, and without messages that mean nothing to a user."""

import contextlib
import gc
import glob
import importlib.util
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from bert_tf.errors import UserError

_NOT_INSTALLED = (
    'TensorFlow is not installed. Install the build for this machine: `pip install -e ".[cpu]"`'
    ' in the folder of setup.py, or ".[gpu]", or on a Cloud TPU machine ".[pjrt]"'
)
_LEVEL = "TF_CPP_MIN_LOG_LEVEL"  # 1: warnings and errors
# TensorFlow 2.21 logs while its libraries load, before it has read the level: that it uses oneDNN
# and that there is no CUDA driver, each twice, under this heading.
_HEADING = rb"WARNING: All log messages before absl::InitializeLog\(\) is called"
_INFO = rb"I\d{4} \d\d:|\d{4}-\d\d-\d\d \S+: I "
# TensorFlow logs this as an error even on a machine without a GPU.
_NO_GPU = rb"(E\d{4}|\d{4}-\d\d-\d\d \S+: E) .*failed call to cuInit"

# Keras imports these where scikit-learn and Matplotlib are installed, which takes a fifth of the
# time of TensorFlow's import; no program uses them through Keras. Without TensorFlow, importing
# absl's log and flags takes a tenth of the time until the first answer.
_DEFERRED = {
    *("keras.wrappers", "keras._tf_keras.keras.wrappers", "matplotlib.pyplot"),
    "absl.logging",
}


def import_tensorflow() -> Any:
    """Imports TensorFlow so that it logs only warnings and errors, and returns it.

    On a machine without a GPU, the error that says so (cuInit) is also hidden. --verbosity=1 on the
    command line shows everything. The environment variable TF_CPP_MIN_LOG_LEVEL, if set, overrides
    these rules. If TensorFlow was imported before, nothing changes.
    """
    if importlib.util.find_spec("tensorflow") is None:
        raise UserError(_NOT_INSTALLED)
    level = os.environ.get(_LEVEL)
    if "tensorflow" in sys.modules or level == "0" or _is_verbose():
        import tensorflow as tf

        return tf
    has_gpu = glob.glob("/dev/nvidia[0-9]*") or os.path.exists("/dev/dxg")  # the latter: WSL
    os.environ[_LEVEL] = level or "1"
    dropped = [_HEADING, _INFO] if has_gpu else [_HEADING, _INFO, _NO_GPU]
    collects = gc.isenabled()
    gc.disable()  # saves 1 s: imported modules are never garbage
    try:
        with _filtered_stderr(re.compile(b"|".join(dropped))), deferred_imports():
            import tensorflow as tf

            if not has_gpu and tf.test.is_built_with_cuda():
                tf.config.list_physical_devices("GPU")  # calls cuInit, as every run does later
            gc.freeze()  # saves 1 s: later collections skip the imported modules
    finally:
        if collects:
            gc.enable()
    if level is None:
        # TensorFlow has read the variable. Programs that this one starts must not inherit it.
        del os.environ[_LEVEL]
    return tf


class _Deferred:
    """Executes the modules `_DEFERRED` when one of their names is first used.

    importlib.util.LazyLoader does so too early: when `inspect` looks at the files of all modules.
    importlib.abc, with the base classes of finders and loaders, is slow to import.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in _DEFERRED else None
        if spec:
            spec.loader_state, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Lets Python make the module."""

    def exec_module(self, module: ModuleType) -> None:
        def execute_and_get(name: str) -> Any:
            del module.__dict__["__getattr__"]
            module.__spec__.loader = module.__loader__ = module.__spec__.loader_state
            module.__loader__.exec_module(module)
            return getattr(module, name)

        module.__dict__["__getattr__"] = execute_and_get


@contextlib.contextmanager
def deferred_imports() -> Iterator[None]:
    """Makes imports of `_DEFERRED` in this context wait until the modules are first used."""
    finder = _Deferred()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def _is_verbose() -> bool:
    """Returns whether --verbosity is above 0 (absl's level for info)."""
    words = " ".join(sys.argv[1:])
    return re.search(r"(^| )--?(v|verbosity)[= ]([1-9]|debug)", words, re.IGNORECASE) is not None


@contextlib.contextmanager
def _filtered_stderr(dropped: re.Pattern) -> Iterator[None]:
    """Drops lines that begin with the pattern from standard error (descriptor 2).

    A child process passes the other lines on at once, so that none is lost if this process aborts,
    as it does if the TPU's library is incompatible.
    """
    sys.stderr.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        _pass_on(reading, dropped)
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
    """Copies lines to descriptor 2 until all writers have closed the pipe; exits the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process
    try:
        with os.fdopen(reading, "rb") as lines:
            for line in lines:
                if not dropped.match(line):
                    os.write(2, line)
    finally:
        os._exit(0)
