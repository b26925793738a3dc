"""Tests of tools/glue_average.py: GLUE's average over its tasks."""

import subprocess
import sys

import pytest

from bert_tf.errors import UserError
from bert_tf.runs.folder import reporting
from tests.support.pretraining_runs import ROOT
from tools import glue_average

# Table 1 of the paper: MNLI-m, MNLI-mm, QQP, QNLI, SST-2, CoLA, STS-B, MRPC, RTE.
TABLE_1 = {
    79.6: (84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4),
    82.1: (86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1),
}


def results(figures, accuracies=(80.0, 70.0), pearson=60.0):
    """Returns the results of all tasks but WNLI: a row of table 1, and figures that it lacks."""
    matched, mismatched, qqp, qnli, sst2, cola, stsb, mrpc, rte = (f / 100 for f in figures)
    first, second = (a / 100 for a in accuracies)
    return {
        "MNLI": {"eval_accuracy": matched, "eval_accuracy_mismatched": mismatched, "loss": 9.0},
        "QQP": {"eval_f1": qqp, "eval_accuracy": first, "eval_accuracy_and_f1": 0.0},
        "QNLI": {"eval_accuracy": qnli},
        "SST-2": {"eval_accuracy": sst2},
        "CoLA": {"eval_matthews_correlation": cola, "eval_accuracy": 0.9},
        "STS-B": {"eval_spearman": stsb, "eval_pearson": pearson / 100},
        "MRPC": {"eval_f1": mrpc, "eval_accuracy": second},
        "RTE": {"eval_accuracy": rte},
    }


@pytest.mark.parametrize("average", TABLE_1)
def test_the_average_is_that_of_the_paper(average):
    text = glue_average.table(results(TABLE_1[average]))
    assert f"average, as in table 1 of the paper (without WNLI): {average}\n" in text
    assert "average, GLUE's, with WNLI: needs 1 more\nmissing: WNLI accuracy" in text


def test_glues_own_average():
    found = results((10, 20, 30, 40, 50, 60, 70, 80, 90), accuracies=(50, 60), pearson=50)
    # Each task once, with the mean of its metrics.
    scores = (15, 40, 40, 50, 60, 60, 70, 90)
    text = glue_average.table({**found, "WNLI": {"eval_accuracy": 0.65}})
    assert f"average, GLUE's, without WNLI: {sum(scores) / 8:.1f}\n" in text
    assert text.endswith(f"average, GLUE's, with WNLI: {(sum(scores) + 65) / 9:.1f}")


def test_missing_results_are_listed():
    found = results(TABLE_1[79.6])
    del found["RTE"], found["MNLI"]["eval_accuracy_mismatched"]
    text = glue_average.table(found)
    assert "average, as in table 1 of the paper (without WNLI): needs 3 more" in text
    assert "average, GLUE's, without WNLI: needs 2 more" in text
    assert text.endswith("missing: MNLI accuracy_mismatched, RTE accuracy, WNLI accuracy")


def test_the_tool(tmp_path):
    for folder, accuracy in (("sst-2", 0.9251), ("run7", 0.5)):
        (tmp_path / folder).mkdir()
        path = str(tmp_path / folder / "eval_results.txt")
        reporting.write_results(path, {"eval_accuracy": accuracy, "global_step": 7})
    words = f"--output_dirs={tmp_path}/sst-2/,rte={tmp_path}/run7"
    done = subprocess.run(
        [sys.executable, "-m", "tools.glue_average", words],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["SST-2", "accuracy", "92.5"] in lines and ["RTE", "accuracy", "50.0"] in lines
    assert lines[-1][0] == "missing:"


def test_bad_directories(tmp_path):
    with pytest.raises(UserError, match="--output_dirs: .*/best must be named like a task .MNLI, "):
        glue_average.find_directories([f"{tmp_path}/best"])
    with pytest.raises(UserError, match="one directory for SST-2; received a/sst2 and b"):
        glue_average.find_directories(["a/sst2", "SST-2=b"])
    with pytest.raises(
        UserError, match="eval_results.txt is missing or empty; run run_classifier.py"
    ):
        glue_average.read_results(str(tmp_path))
    (tmp_path / "eval_results.txt").write_text("eval_accuracy: 3\n")
    with pytest.raises(
        UserError, match="eval_results.txt, line 1: must be `name = number`; it is 'eval"
    ):
        glue_average.read_results(str(tmp_path))
