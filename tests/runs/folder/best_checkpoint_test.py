"""Tests of the best checkpoint of a run."""

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.runs.folder import reporting
from bert_tf.runs.folder.run import BestCheckpoint
from tests.support.pretraining_runs import variables
from tests.support.refusals import refusal


def see(best, step, score):
    values = {"w": np.array([float(step)], np.float32), "global_step": np.int64(step)}
    return best.update({"f1": score, "loss": -score}, step, values)


@pytest.fixture
def make(tmp_path):
    return lambda patience=0: BestCheckpoint(str(tmp_path), "f1", patience, every_steps=10)


def test_the_best_stays(make, tmp_path):
    best = make()
    assert best.prefix() is None
    for step, score in ((10, 0.1), (20, 0.7), (30, 0.7), (40, 0.2)):
        assert see(best, step, score)
    assert best.prefix() == str(tmp_path / "best" / "model.ckpt-20")
    assert variables(best.prefix())["w"] == 20.0
    assert [path.name for path in (tmp_path / "best").glob("*.index")] == ["model.ckpt-20.index"]
    results = reporting.read_results(str(tmp_path / "best" / "eval_results.txt"))
    assert results == {"f1": float("0.7"), "loss": float("-0.7"), "global_step": 20}


def test_patience_ends_and_survives_a_new_start(make):
    assert see(make(2), 10, 0.5)
    assert see(make(2), 20, 0.4)
    assert not see(make(2), 30, 0.5)  # as good is not better
    assert not see(make(2), 30, 0.5)  # seen again after a new start
    assert see(make(1), 40, 2 / 3)
    assert see(make(1), 40, 2 / 3)  # the best, evaluated again


@pytest.mark.parametrize("lost", ["results", "checkpoint"])
def test_an_incomplete_folder_counts_as_empty(make, tmp_path, lost):
    """A run was killed before it wrote the results, or a search has deleted the checkpoints."""
    see(make(), 10, 0.5)
    for path in (tmp_path / "best").iterdir():
        if (path.name == "eval_results.txt") == (lost == "results"):
            path.unlink()
    make(1).check()
    assert see(make(1), 40, 0.4)
    assert make().prefix() == str(tmp_path / "best" / "model.ckpt-40")


def test_a_best_one_by_another_metric(make, tmp_path):
    see(make(), 10, 0.5)
    other = BestCheckpoint(str(tmp_path), "best_f1", 0, every_steps=10)
    with pytest.raises(
        UserError, match="and best_f1, which chooses .*; it has f1, global_step, loss"
    ):
        other.update({"best_f1": 0.7}, 20, {})


@pytest.mark.parametrize(
    "text, message",
    [
        ("f1 = 0.5\n", "and f1, which chooses the best checkpoint; it has f1. Take another"),
        ("f1 = 0.5\nglobal_step = inf\n", "with global_step, a whole number"),
        ("f1 = 0.5\nglobal_step = nan\n", "with global_step, a whole number"),
        ("f1 = 0.5\nglobal_step = 1.5\n", "with global_step, a whole number"),
        ("f1 = 0.5\nglobal_step = ten\n", "must have lines `name = number`"),
        ("x" * 10**6, "must have lines `name = number`"),
        ("f1 = 1 = 2\nglobal_step = 3\n", "must have lines `name = number`"),
        (b"f1 = \xff\n", "must have lines `name = number`"),
        ("", "; it has nothing. Take another"),
        ("".join(f"m{i} = 1\n" for i in range(10**4)), "with global_step"),
    ],
)
def test_damaged_results_are_refused(make, tmp_path, text, message):
    see(make(), 10, 0.5)
    path = tmp_path / "best" / "eval_results.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    for action in (make(1).check, lambda: see(make(1), 20, 0.4)):
        told = refusal(action)
        assert told.startswith(f"{path}: ") and message in told
        assert len(told) <= 500 and "\n" not in told
