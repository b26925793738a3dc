"""Tests of tools/export.py as users run it."""

import os

from tests.support.exported_heads import write_head
from tests.support.pretraining_runs import run


def test_it_exports_and_says_how_near(tmp_path):
    source = write_head(tmp_path / "model", "tagging")
    output = tmp_path / "served" / "tagger" / "1"
    flags = (f"--input={source}", f"--output={output}", "--input_kind=ids")
    printed = run(*flags, program="tools.export")
    assert "tagging; classes: 'O', 'B-PER'" in printed
    assert "The exported and the original outputs differ by at most 0.0e+00" in printed
    said = [line for line in printed.splitlines() if line.startswith("I1") or "INFO" in line]
    assert len(said) <= 4, printed  # TensorFlow does not log its steps
    assert "README.md" in os.listdir(output) and os.listdir(output.parent) == ["1"]
