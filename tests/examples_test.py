"""Tests of examples/: each runs, and learns, on a small model."""

import re
import runpy
from pathlib import Path

import pytest

from tests.support.model_folders import random_weights, write_model

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_an_example_learns(path, tmp_path, monkeypatch, capsys):
    output = tmp_path / "model.keras"
    main = runpy.run_path(str(path))["main"]
    # XLA would take longer to compile a step than the steps take.
    monkeypatch.setattr("keras.src.trainers.trainer.model_supports_jit", lambda model: False)
    monkeypatch.setitem(main.__globals__, "EPOCHS", 2)
    monkeypatch.chdir(ROOT)
    main(write_model(tmp_path / "model", random_weights()), str(output))
    losses = [float(x) for x in re.findall(r" - loss: ([\d.e-]+)", capsys.readouterr().out)]
    assert len(losses) == 2 and losses[1] < losses[0]
    assert output.exists()
