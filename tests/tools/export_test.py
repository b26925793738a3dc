"""Tests of tools/export.py as users run it."""

import os
import subprocess
import sys

from tests.support.exported_heads import write_head


def run(*arguments):
    command = [sys.executable, "-m", "tools.export", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_it_exports_and_says_how_near(tmp_path):
    source = write_head(tmp_path / "model", "tagging")
    output = tmp_path / "served" / "tagger" / "1"
    done = run(f"--input={source}", f"--output={output}", "--input_kind=ids")
    assert done.returncode == 0, done.stderr
    assert "tagging; classes: 'O', 'B-PER'" in done.stderr
    assert "Its outputs differ from the model's by 0.0e+00 at most" in done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("I1") or "INFO" in line]
    assert len(said) <= 4, done.stderr  # TensorFlow's own steps are not told
    assert "README.md" in os.listdir(output) and os.listdir(output.parent) == ["1"]


def test_a_mistake_is_one_line(tmp_path):
    done = run("--input=none", f"--output={tmp_path}/out", "--format=onnx", "--quantize=int4")
    assert done.returncode == 1
    assert "--quantize=int4: value should be one of <int8>" in done.stderr
    assert len(done.stderr.splitlines()) == 1
