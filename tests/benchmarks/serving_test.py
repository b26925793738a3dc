"""Test of benchmarks/serving.py."""

import os
import re

import pytest

from tests.support.exported_heads import write_head
from tests.support.pretraining_runs import run


@pytest.mark.slow
def test_every_format_is_measured(tmp_path):
    source = write_head(tmp_path / "model", "classification")
    pairs = [f"{i % 3}\t1\t2\tthe cat {'sat ' * (i % 7)}\ta dog ran" for i in range(40)]
    (tmp_path / "dev.tsv").write_text("\n".join(["Quality\t1\t2\ta\tb", *pairs]) + "\n")
    flags = (f"--classifier={source}", f"--data_dir={tmp_path}", f"--output_dir={tmp_path}/exports")
    # The model takes 32 tokens.
    printed = run(*flags, "--rounds=1", "--shapes=1x8,3x32", program="benchmarks.serving")
    figure = r"[\d.e+]+ \([\d.]+\)"
    rows = re.findall(
        rf"^\| (.+) \| \d+ \| (0\.\d+) \| {figure} \| {figure} \|$", printed, re.MULTILINE
    )
    names = [name for name, _ in rows]
    assert names[:3] == ["SavedModel", "SavedModel, bfloat16", "ONNX"]
    assert names[-3:] == ["OpenVINO", "OpenVINO, bfloat16", "OpenVINO, int8"]
    assert len({accuracy for name, accuracy in rows if "," not in name}) == 1
    assert sorted(os.listdir(tmp_path / "exports"))[:2] == ["litert", "litert_int8"]
    assert "| 1 x 8, ms | 3 x 32, texts/s |" in printed
