"""Every benchmark says what it measures and which flags it takes, without measuring."""

import sys
from pathlib import Path

import pytest

from tests.support import forked_programs

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
PROGRAMS = [path for path in FOLDER.glob("*.py") if "__main__" in path.read_text()]


@pytest.mark.slow
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_help(path):
    status, printed = forked_programs.run(
        [sys.executable, "-m", f"benchmarks.{path.stem}", "--help"]
    )
    assert status in (0, 1), printed  # absl's own help ends with 1
    summary = path.read_text().split('"""')[1].splitlines()[0]
    assert " ".join(summary.split()) in " ".join(printed.split())
    assert "Traceback" not in printed
