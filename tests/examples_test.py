"""Tests of examples/: each runs, and learns, on a small model."""

import re
import runpy
from pathlib import Path

import pytest

from tests.support.exported_heads import write_head

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_an_example_learns(path, tmp_path, monkeypatch, capsys):
    output = tmp_path / "model.keras"
    main = runpy.run_path(str(path))["main"]
    monkeypatch.setitem(main.__globals__, "EPOCHS", 2)
    # The first rows of what the example reads.
    folder = "flags/quickstart/numbers"
    (tmp_path / folder).mkdir(parents=True)
    for name, count in (("train.csv", 241), ("dev.csv", 41)):
        rows = (ROOT / folder / name).read_text().splitlines(keepends=True)
        (tmp_path / folder / name).write_text("".join(rows[:count]))
    monkeypatch.chdir(tmp_path)
    main(write_head(tmp_path / "model", "masked_lm", num_layers=1), str(output))
    losses = [float(x) for x in re.findall(r" - loss: ([\d.e-]+)", capsys.readouterr().out)]
    assert len(losses) == 2 and losses[1] < losses[0]
    assert output.exists()
