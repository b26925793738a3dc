"""TensorFlow's start is quiet in programs: with a stand-in that logs as the real one does."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# As TensorFlow 2.21 writes them while it is imported, and the older form of an info message.
NOISE = [
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "I0000 00:00:1795351217.596524   20035 port.cc:153] oneDNN custom operations are on.",
    "I0000 00:00:1795351217.596909   20035 cudart_stub.cc:31] Could not find cuda drivers",
    "2025-09-17 14:44:05.157831: I external/local_xla/xla/tsl/cuda/cudart_stub.cc:32] Could not",
]
NO_GPU = "E0000 00:00:1795351101.382355   1 cuda_platform.cc:52] failed call to cuInit: INTERNAL"
KEPT = [
    "W0000 00:00:1795351217.6   20035 x.cc:1] A warning.",
    "E0000 00:00:1795351217.7   20035 x.cc:2] An error.",
    "Illustration: no log line",
]
STAND_IN = f"""
import os
class test:
    is_built_with_cuda = staticmethod(lambda: True)
class config:
    @staticmethod
    def list_physical_devices(kind):
        os.write(2, {NO_GPU!r}.encode() + b"\\n")
for line in {NOISE + KEPT!r}:
    os.write(2, line.encode() + b"\\n")
if "NO_GPU_ERROR" in os.environ:
    config.list_physical_devices("GPU")
if "ABORT" in os.environ:
    os.write(2, b"no line break")
    os.abort()
print("level", os.environ.get("TF_CPP_MIN_LOG_LEVEL"))
if "CTRL_C" in os.environ:
    import signal
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    os.kill(os.getpid(), signal.SIGINT)
if "GARBAGE" in os.environ:
    import gc
    print("collects", gc.isenabled())
"""
CODE = """
import os, sys
from bert_tf.runs.flags import quiet_start
quiet_start.glob.glob = lambda pattern: ["/dev/nvidia0"] if "GPU" in os.environ else []
quiet_start.import_tensorflow()
import tensorflow
sys.stderr.write("after\\n")
print("then", os.environ.get("TF_CPP_MIN_LOG_LEVEL"))
if "GARBAGE" in os.environ:
    import gc
    print("collects", gc.isenabled(), "spares modules", gc.get_freeze_count() > 1000)
"""


@pytest.fixture
def start(tmp_path):
    """Imports the stand-in; returns status, lines of stderr and lines of stdout."""
    (tmp_path / "tensorflow.py").write_text(STAND_IN)

    def start(*arguments: str, **environment: str):
        inherited = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
        done = subprocess.run(
            [sys.executable, "-c", CODE, *arguments],
            env={**inherited, "PYTHONPATH": f"{tmp_path}:{ROOT}", **environment},
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stderr.splitlines(), done.stdout.splitlines()

    return start


def test_warnings_and_errors_are_shown_and_nothing_else(start):
    assert start() == (0, [*KEPT, "after"], ["level 1", "then None"])


def test_on_a_machine_with_a_gpu_its_errors_are_shown(start):
    assert start(GPU="1", NO_GPU_ERROR="1")[1] == [*KEPT, NO_GPU, "after"]
    assert start(NO_GPU_ERROR="1")[1] == [*KEPT, "after"]


@pytest.mark.parametrize("word", ["--verbosity=1", "-v=2", "--v=1", "--verbosity=debug"])
def test_everything_is_shown_if_asked_for(start, word):
    status, lines, output = start("--do_train", word, "--output_dir=x")
    assert (status, lines) == (0, [*NOISE, *KEPT, "after"])
    assert output == ["level None", "then None"]


@pytest.mark.parametrize("word", ["--verbosity=0", "--verbosity=-1", "--v_x=1", "--verbose"])
def test_other_flags_change_nothing(start, word):
    assert start(word)[1] == [*KEPT, "after"]


def test_the_environment_variable_wins(start):
    _, lines, output = start(TF_CPP_MIN_LOG_LEVEL="0")
    assert lines == [*NOISE, *KEPT, "after"] and output == ["level 0", "then 0"]
    _, lines, output = start(TF_CPP_MIN_LOG_LEVEL="3")
    assert lines == [*KEPT, "after"] and output == ["level 3", "then 3"]


def test_an_abort_loses_no_line(start):
    status, lines, _ = start(ABORT="1")
    assert status == -signal.SIGABRT
    assert [line for line in lines if line in KEPT] == KEPT
    assert "no line break" in lines


def test_no_garbage_is_looked_for_among_what_is_imported(start):
    _, _, output = start(GARBAGE="1")
    assert [line for line in output if line.startswith("collects")] == [
        "collects False",
        "collects True spares modules True",
    ]


def test_ctrl_c_during_the_import_is_no_traceback(start):
    status, messages, _ = start(CTRL_C="1")
    assert status == -signal.SIGINT  # of which a shell makes 130
    assert messages == [*KEPT, "Stopped by Ctrl-C before anything was begun."]
