"""Every benchmark says what it measures and which flags it takes, without TensorFlow."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
PROGRAMS = [path for path in FOLDER.glob("*.py") if "__main__" in path.read_text()]
CODE = """
import runpy, sys
import bert_tf
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in ("tensorflow", "keras"):
            raise RuntimeError(f"imported {name}")
sys.meta_path.insert(0, Refuse())
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_help(path):
    words = [sys.executable, "-c", CODE, f"benchmarks.{path.stem}", "--help"]
    done = subprocess.run(words, cwd=FOLDER.parent, capture_output=True, text=True, check=False)
    printed = done.stdout + done.stderr
    assert done.returncode in (0, 1), printed  # absl's own help ends with 1
    summary = path.read_text().split('"""')[1].splitlines()[0]
    assert " ".join(summary.split()) in " ".join(printed.split())
    assert "Traceback" not in printed
