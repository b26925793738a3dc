"""Tests of tools/export.py as users run it."""

import os
import re
import subprocess
import sys

import pytest

from tests.support.exported_heads import write_head


def run(*arguments, tool="export"):
    command = [sys.executable, "-m", f"tools.{tool}", *arguments]
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


@pytest.mark.slow
def test_exports_are_measured(tmp_path):
    source = write_head(tmp_path / "model", "classification")
    for kind in ("saved_model", "onnx"):
        done = run(f"--input={source}", f"--output={tmp_path}/{kind}", f"--format={kind}")
        assert done.returncode == 0, done.stderr
    pairs = [f"{i % 3}\t1\t2\tthe cat {'sat ' * (i % 7)}\ta dog ran" for i in range(40)]
    (tmp_path / "dev.tsv").write_text("\n".join(["Quality\t1\t2\ta\tb", *pairs]) + "\n")
    exports = f"--exports={tmp_path}/saved_model,{tmp_path}/onnx"
    options = ("--rounds=1", f"--data_dir={tmp_path}")
    done = run(exports, *options, tool="benchmark_serving")
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\| ([\w, ]+) \| (0\.\d+) \|", done.stdout, re.MULTILINE)
    assert [name for name, _ in rows] == ["saved_model", "saved_model, text", "onnx"]
    assert len({accuracy for _, accuracy in rows}) == 1
