"""Test of benchmarks/serving.py."""

import re

import pytest

from tests.support.exported_heads import write_head
from tests.support.pretraining_runs import run


@pytest.mark.slow
def test_exports_are_measured(tmp_path):
    source = write_head(tmp_path / "model", "classification")
    for kind in ("saved_model", "onnx"):
        flags = (f"--input={source}", f"--output={tmp_path}/{kind}", f"--format={kind}")
        run(*flags, program="tools.export")
    pairs = [f"{i % 3}\t1\t2\tthe cat {'sat ' * (i % 7)}\ta dog ran" for i in range(40)]
    (tmp_path / "dev.tsv").write_text("\n".join(["Quality\t1\t2\ta\tb", *pairs]) + "\n")
    exports = f"--exports={tmp_path}/saved_model,{tmp_path}/onnx"
    options = ("--rounds=1", f"--data_dir={tmp_path}")
    printed = run(exports, *options, program="benchmarks.serving")
    rows = re.findall(r"^\| ([\w, ]+) \| (0\.\d+) \|", printed, re.MULTILINE)
    assert [name for name, _ in rows] == ["saved_model", "saved_model, text", "onnx"]
    assert len({accuracy for _, accuracy in rows}) == 1
