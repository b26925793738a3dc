"""What every test shares: quiet TensorFlow logs, the `slow` mark, what was warned of."""

import gc
import os
import weakref

import pytest
from absl import logging

from tests.support.environment import compile_quickly

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# The TPU build asks Google Cloud about its machine on import: minutes, where there is none.
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
# JAX reads it when TensorFlow imports JAX. By default it keeps what took a second to compile, which
# these steps take on some machines.
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

# They take a minute or more, and begin: else one of them is left to run alone at the end.
LONGEST = (
    *("resume_test.py", "multi_worker_test.py", "replicas_test.py", "pjrt_runs_test.py"),
    *("pjrt_test.py", "fault_matrix_test.py", "pjrt_restart_test.py", "storage_test.py"),
)
ENVIRONMENTS = {"tpu_build": "the extra `tpu`", "tpu_compiler": "the extra `compile`"}


def pytest_configure(config):
    gc.disable()  # until the tests are collected
    if "tpu_" not in config.option.markexpr:  # the TPU's compiler reads these flags, too
        compile_quickly()
    config.addinivalue_line(
        "markers", 'slow: runs for more than about 10 seconds; left out by -m "not slow"'
    )
    for mark, needed in ENVIRONMENTS.items():
        config.addinivalue_line("markers", f"{mark}: needs {needed}; left out unless named by -m")


def pytest_collection_modifyitems(config, items):
    """Leaves out tests for other environments. Where -m names one, what is missing is a failure."""
    others = {mark for mark in ENVIRONMENTS if mark not in config.option.markexpr}
    left_out = [item for item in items if others & {mark.name for mark in item.iter_markers()}]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: item.path.name not in LONGEST)


def pytest_collection_finish(session):
    """Looks for garbage seldom, and not in what was imported: that took a fifth of the time."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 100)


@pytest.fixture(scope="module")
def uncompiled(request):
    """Makes training steps without XLA if -m is "not slow": compiling is a third of a short run."""
    from bert_tf.engine import loops  # imports TensorFlow

    with pytest.MonkeyPatch.context() as patch:
        if request.config.option.markexpr == "not slow":
            patch.setattr(loops, "may_compile", lambda strategy: False)
        yield


@pytest.fixture(scope="module")
def eager():
    """Calls tf.functions without tracing, which takes longer than a few calls of a small model."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="module")
def eager_if_quick(request):
    """The fixture `eager` if -m is "not slow". Slow tests trace and compile as programs do."""
    if request.config.option.markexpr == "not slow":
        request.getfixturevalue("eager")


@pytest.fixture
def warnings(monkeypatch):
    """A list that gets the text of each absl warning, as of a model that gave none yet."""
    from bert_tf.pretrained import text_input  # imports TensorFlow

    texts = []
    monkeypatch.setattr(text_input, "_warned", weakref.WeakKeyDictionary())
    monkeypatch.setattr(logging, "warning", lambda text, *args: texts.append(text % args))
    return texts
