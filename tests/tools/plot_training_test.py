"""Tests of tools/plot_training.py: which points are drawn, and which picture."""

import re
import subprocess
import sys

import pytest

from bert_tf.errors import UserError
from bert_tf.runs.folder import reporting
from tests.support.pretraining_runs import ROOT
from tools import plot_training


def write(folder, points: dict[int, float], name: str = "loss") -> None:
    """Writes a curve into a file of its own, as a run does that is started once."""
    summaries = reporting.Summaries(str(folder))
    for step, value in points.items():
        summaries.write({name: value, "learning_rate": 1e-4 * step}, step)
    summaries.flush()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two runs: one resumed twice from earlier steps, and evaluated; one that only evaluated."""
    top = tmp_path_factory.mktemp("runs")
    write(top / "mrpc", {10: 0.9, 20: 0.8, 30: 0.7, 40: 0.6})
    write(top / "mrpc", {25: 0.75, 35: 0.65, 40: 0.55})
    write(top / "mrpc", {41: 0.5})
    evaluation = reporting.Summaries(str(top / "mrpc" / "eval"))
    for step, accuracy in ((20, 0.5), (40, 0.75), (40, 0.8)):
        results = {"eval_accuracy": accuracy, "eval_loss": 1 - accuracy, "global_step": step}
        evaluation.write(reporting.curves(results), step)
    evaluation.flush()
    write(top / "cola" / "eval", {7: 0.25}, "matthews_correlation")
    return top


def rounded(curve):
    return [(step, round(value, 5)) for step, value in curve]


def test_repeated_steps_are_drawn_once(folder):
    curves = plot_training.read_curves(str(folder / "mrpc"))
    assert curves.keys() == {"loss", "learning_rate"}
    # 30 of the first start goes: the second made it anew, with points at 25 and 35.
    expected = [(10, 0.9), (20, 0.8), (25, 0.75), (35, 0.65), (40, 0.55), (41, 0.5)]
    assert rounded(curves["loss"]) == expected
    assert rounded(curves["learning_rate"])[-1] == (41, 0.0041)
    evaluated = plot_training.read_curves(str(folder / "mrpc" / "eval"))
    assert rounded(evaluated["accuracy"]) == [(20, 0.5), (40, 0.8)]


def test_the_picture_has_the_points(folder):
    runs = plot_training.read_runs([f"{folder}/mrpc/", f"{folder}/cola", f"{folder}/mrpc"])
    assert [run.name for run in runs] == ["mrpc", "cola"]
    figure = plot_training.draw_runs(runs)
    squares = {axes.get_title(): axes for axes in figure.axes if axes.get_visible()}
    assert [*squares] == ["loss", "accuracy", "matthews_correlation", "learning_rate"]
    training, evaluation = squares["loss"].lines
    assert [*training.get_xdata()] == [10, 20, 25, 35, 40, 41]
    assert [*evaluation.get_xdata()] == [20, 40]
    assert training.get_linestyle() == "-" and evaluation.get_linestyle() == "--"
    assert evaluation.get_ydata()[1] == pytest.approx(0.2)
    (single,) = squares["matthews_correlation"].lines
    assert single.get_marker() == "o" and single.get_color() != training.get_color()
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["mrpc", "mrpc, evaluation", "cola, evaluation"]


def test_runs_of_one_name_are_told_apart(folder):
    write(folder / "other" / "mrpc", {1: 0.5})
    names = [
        run.name for run in plot_training.read_runs([f"{folder}/mrpc", f"{folder}/other/mrpc"])
    ]
    assert names == [f"{folder}/mrpc", f"{folder}/other/mrpc"]


def test_directories_without_curves(folder, tmp_path):
    for path, message in (
        (
            tmp_path / "none",
            "none must be the --output_dir of a run .*; there is no such directory",
        ),
        (tmp_path, "no events.out.tfevents.* with curves is there or in its folder eval"),
        (folder, "it is not, but its folders are: name them: 'mrpc'"),
    ):
        with pytest.raises(
            UserError, match=re.escape(message) if "*; " not in message else message
        ):
            plot_training.read_runs([str(path)])


@pytest.mark.slow
def test_the_tool(folder, tmp_path):
    def run(*words: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "tools.plot_training", *words]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    path = tmp_path / "curves.png"
    done = run(f"{folder}/mrpc", f"--output={path}", f"{folder}/cola")
    assert done.returncode == 0, done.stderr
    assert path.read_bytes().startswith(b"\x89PNG")
    assert done.stdout.splitlines() == [
        "mrpc: step 41; evaluation: accuracy 0.8, loss 0.2",
        "cola: step 7; evaluation: matthews_correlation 0.25",
    ]
    done = run(f"--output={path}")
    assert (
        done.returncode == 1 and "the output directories of the runs must be named" in done.stderr
    )
