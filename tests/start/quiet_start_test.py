"""TensorFlow's start is quiet in programs and in the library; a stand-in logs as it does."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import forked_programs

ROOT = Path(__file__).parents[2]
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
import gc, os
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
print("level", os.environ.get("TF_CPP_MIN_LOG_LEVEL"), "collects", gc.isenabled())
if "CTRL_C" in os.environ:
    import signal
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    os.kill(os.getpid(), signal.SIGINT)
"""
CODE = """
import gc, os, sys
from bert_tf.start import quiet_start
quiet_start.glob.glob = lambda pattern: ["/dev/nvidia0"] if "GPU" in os.environ else []
quiet_start.import_tensorflow()
import tensorflow
sys.stderr.write("after\\n")
frozen = gc.get_freeze_count() > 0
print("level", os.environ.get("TF_CPP_MIN_LOG_LEVEL"), "collects", gc.isenabled(), frozen)
"""
VERBOSE = ("--verbosity=1", "-v=2", "--v=1", "--verbosity=debug")
OTHER_WORDS = ("--verbosity=0", "--verbosity=-1", "--v_x=1", "--verbose")
QUIET, ALL = [*KEPT, "after"], [*NOISE, *KEPT, "after"]


def test_without_tensorflow_a_message_says_what_to_install():
    code = (
        "import importlib.util\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: name != 'tensorflow' and find(name) or None\n"
        "from bert_tf.start import lazy_tensorflow as tf\n"
        "try:\n    tf.constant\nexcept ValueError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.startswith("TensorFlow is not installed. Install the build for this machine")


@pytest.fixture
def start(tmp_path):
    """Imports the stand-in; returns status, lines of stderr and lines of stdout."""
    (tmp_path / "tensorflow.py").write_text(STAND_IN)

    def start(*arguments: str, code: str = CODE, **environment: str):
        inherited = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env={**inherited, "PYTHONPATH": f"{tmp_path}:{ROOT}", **environment},
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stderr.splitlines(), done.stdout.splitlines()

    return start


def printed(inside: str, then: str, quietly: bool) -> list[str]:
    """Returns what is printed while TensorFlow is imported and afterwards."""
    return [f"level {inside} collects {not quietly}", f"level {then} collects True {quietly}"]


@pytest.mark.parametrize(
    "word, environment, lines, output",
    [
        ("", {}, QUIET, printed("1", "None", True)),
        ("", {"NO_GPU_ERROR": "1"}, QUIET, printed("1", "None", True)),
        ("", {"NO_GPU_ERROR": "1", "GPU": "1"}, [*KEPT, NO_GPU, "after"], None),
        *((word, {}, ALL, printed("None", "None", False)) for word in VERBOSE),
        *((word, {}, QUIET, None) for word in OTHER_WORDS),
        ("", {"TF_CPP_MIN_LOG_LEVEL": "0"}, ALL, printed("0", "0", False)),
        ("", {"TF_CPP_MIN_LOG_LEVEL": "3"}, QUIET, printed("3", "3", True)),
    ],
)
def test_what_is_logged(start, word, environment, lines, output):
    status, found, words = start("--do_train", word, "--output_dir=x", **environment)
    assert (status, found) == (0, lines)
    assert output in (None, words)


def test_an_abort_loses_no_line(start):
    status, lines, _ = start(ABORT="1")
    assert status == -signal.SIGABRT
    assert [line for line in lines if line in KEPT] == KEPT
    assert "no line break" in lines


def test_ctrl_c_during_the_import_ends_a_program_without_a_traceback(start):
    program = (
        "from bert_tf.runs.flags import command_flags\ncommand_flags.run_program(lambda: None)"
    )
    status, messages, words = start(code=program, CTRL_C="1")
    assert (status, messages, words) == (130, KEPT, ["level 1 collects False"])


LIBRARY = """
import sys
import bert_tf
bert_tf.UserError, bert_tf.load_tokenizer, bert_tf.FastTokenizer
print("tensorflow" in sys.modules)
try:
    bert_tf.{name}
except Exception:  # the stand-in has no layers
    print("tensorflow" in sys.modules)
"""


@pytest.mark.parametrize("name", ["Pretrained", "BertModel", "AdamWeightDecayOptimizer"])
def test_the_library_starts_as_quietly(start, name):
    for environment, lines in ({}, KEPT), ({"TF_CPP_MIN_LOG_LEVEL": "0"}, NOISE + KEPT):
        status, found, words = start(code=LIBRARY.format(name=name), **environment)
        assert (status, found) == (0, lines)
        assert words[0] == "False" and words[-1] == "True"


DEFERRED = """
import inspect, sys
inspect.getmodule(inspect)  # looks at the files of all modules
print(*(name in sys.modules for name in ("sklearn", "matplotlib.axes")))
import keras
from keras._tf_keras.keras.wrappers import SKLearnClassifier
from matplotlib.pyplot import *
print(keras.wrappers.SKLearnClassifier is SKLearnClassifier, Figure.__name__)
print(*(name in sys.modules for name in ("sklearn", "matplotlib.axes")))
"""


def test_keras_imports_other_libraries_when_they_are_used():
    status, output = forked_programs.run([sys.executable, "-c", DEFERRED])
    assert (status, output.split("\n")) == (0, ["False False", "True Figure", "True True", ""])


LOGGING = """
import sys, bert_tf
bert_tf.load, bert_tf.FullTokenizer
print("absl.flags" in sys.modules)
from absl import logging
logging.get_absl_handler().use_absl_log_file
print("absl.flags" in sys.modules, logging.WARNING)
"""


def test_absl_is_imported_when_something_is_logged():
    output = subprocess.check_output([sys.executable, "-c", LOGGING], text=True)
    assert output.split("\n") == ["False", "True -1", ""]
