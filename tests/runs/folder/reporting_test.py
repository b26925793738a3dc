"""Tests of bert_tf.runs.folder.reporting and flags_file."""

import json
import platform
from types import SimpleNamespace

import absl.flags
import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.runs.flags.settings import TrainingSettings
from bert_tf.runs.folder import flags_file, reporting
from tests.support.refusals import refusal, refuses


def test_durations():
    texts = {0.4: "0 s", 59.4: "59 s", 61: "1 min", 3570: "1 h 0 min", 12000: "3 h 20 min"}
    for seconds, text in {**texts, 187300: "2 d 4 h"}.items():
        assert reporting.duration(seconds) == text


def test_curves_take_the_names_of_training_and_leave_counts_out():
    results = {"eval_accuracy": 0.5, "eval_loss": 0.25, "loss": 0.3, "f1": 0.7, "global_step": 9}
    assert reporting.curves({**results, "total": 60}) == {"accuracy": 0.5, "loss": 0.25, "f1": 0.7}
    plain = {"loss": 0.3, "masked_lm_loss": 0.2}
    assert reporting.curves(plain) == plain


def test_results_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "eval_results.txt"
    assert reporting.read_results(str(path)) == {}
    results = {"loss": 0.1, "accuracy": 0.75, "global_step": 12}
    reporting.write_results(str(path), results)
    assert path.read_text() == "accuracy = 0.75\nglobal_step = 12\nloss = 0.1\n"
    assert reporting.read_results(str(path)) == {**results, "loss": pytest.approx(np.float32(0.1))}
    reporting.write_results(str(path), {"f1_A\u2028B": 0.5})  # any character but a line end
    assert reporting.read_results(str(path)) == {"f1_A\u2028B": 0.5}


def test_damaged_results_are_refused(tmp_path):
    path = tmp_path / "eval_results.txt"
    for content, message in (
        (b"a = 1\nb: 2\n", "eval_results.txt, line 2: must be `name = number`; it is 'b: 2'"),
        (b"a = x" + b"x" * 10_000, "line 1: must be `name = number`; it is 'a = xx"),
        (b"\xff = 1\n", "line 1, is not UTF-8"),
    ):
        path.write_bytes(content)
        told = refusal(reporting.read_results, str(path))
        assert message in told and len(told) < 500


def metrics_in(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_metrics_have_each_step_once_after_a_kill(tmp_path):
    path = tmp_path / "metrics.jsonl"

    def start(step, *points):
        """A start at a step; it writes points, (step, scalars, prefix), and is killed."""
        metrics = reporting.Metrics(str(path))
        metrics.open(step)
        for at, scalars, prefix in points:
            metrics.add(scalars, at, prefix)
        metrics.write()
        return metrics

    start(-1, (0, {"goodput": 0.0}, ""), (7, {"loss": np.float32(0.5)}, ""))
    assert metrics_in(path) == [{"step": 0, "goodput": 0.0}, {"step": 7, "loss": 0.5}]
    more = (7, {"loss": 0.25, "f1": 1.0}, "eval/"), (9, {"loss": float("nan")}, "")
    start(7, *more, (12, {"loss": 8.0}, ""))
    points = [
        {"step": 0, "goodput": 0.0},
        {"step": 7, "loss": 0.5, "eval/loss": 0.25, "eval/f1": 1.0},
        {"step": 9, "loss": None},
    ]
    assert metrics_in(path) == [*points, {"step": 12, "loss": 8.0}]
    before = path.stat().st_mtime_ns
    start(12).write()
    assert path.stat().st_mtime_ns == before
    start(9, (11, {"loss": 4.0}, ""))
    assert metrics_in(path) == [*points, {"step": 11, "loss": 4.0}]
    start(-1)  # a run without a checkpoint begins
    assert metrics_in(path) == []
    for damaged in ("{", "[]", '{"loss": 1}', '{"step": "x"}'):
        path.write_text(f'{{"step": 3}}\n{damaged}\n')
        refuses("metrics.jsonl is damaged; to begin a new file", start, 3)


def test_metrics_that_could_not_be_written_are_written_later(tmp_path):
    metrics = reporting.Metrics(str(tmp_path / "out" / "metrics.jsonl"))
    metrics.add({"loss": 2.0}, 3, "")
    refuses("cannot be written", metrics.write)
    (tmp_path / "out").mkdir()
    metrics.write()
    assert metrics_in(tmp_path / "out" / "metrics.jsonl") == [{"step": 3, "loss": 2.0}]


@pytest.mark.parametrize("kind", ["Unknown", "PermissionDenied", "ResourceExhausted"])
def test_a_disk_that_fails_while_curves_are_written(tmp_path, monkeypatch, kind):
    summaries = reporting.Summaries(str(tmp_path))
    summaries.write({"loss": 1.0}, 1)

    def fail(*unused, **options):
        text = "{{function_node x}} e.v2; Input/output error"
        raise getattr(tf.errors, f"{kind}Error")(None, None, text)

    told = "[(]--output_dir[)] cannot be written: e.v2; Input/output error. The folder above"
    message = f"^TensorBoard's file in {tmp_path} {told}"
    with monkeypatch.context() as change:
        change.setattr(tf.summary, "scalar", fail)
        refuses(message, summaries.write, {"loss": 1.0}, 2, kind=OSError)
    monkeypatch.setattr(summaries, "_writer", SimpleNamespace(flush=fail))
    refuses(message, summaries.flush, kind=OSError)


VERSIONS = (
    f"# Python {platform.python_version()}, bert_tf {bert_tf.__version__},"
    f" tensorflow {tf.__version__}, keras {keras.__version__}, numpy {np.__version__}"
)


def written(folder, step, words, monkeypatch, **changes):
    monkeypatch.setattr(flags_file, "_of_program", words)
    settings = TrainingSettings(output_dir="out", do_train=True, hang_minutes=2.5, **changes)
    flags_file.write_flags(str(folder), tf.distribute.get_strategy(), settings, step)
    return (folder / "flags.txt").read_text()


def test_each_start_with_other_flags_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(flags_file, "_PACKAGES", flags_file._PACKAGES[:4])
    place = "# 1 replicas of CPU, 1 hosts"
    first = written(tmp_path, 0, ["--rate=0.1", "--do_train"], monkeypatch)
    assert first == f"# From step 0:\n{VERSIONS}\n{place}\n--rate=0.1\n--do_train\n"
    assert written(tmp_path, 70, ["--rate=0.1", "--do_train"], monkeypatch) == first
    second = written(tmp_path, 90, ["--rate=0.2", "--do_train"], monkeypatch)
    head = first.replace("--", "# --")
    assert second == f"{head}# From step 90:\n{VERSIONS}\n{place}\n--rate=0.2\n--do_train\n"
    values = absl.flags.FlagValues()
    absl.flags.DEFINE_float("rate", 1.0, "", flag_values=values)
    absl.flags.DEFINE_bool("do_train", False, "", flag_values=values)
    values(["program", f"--flagfile={tmp_path}/flags.txt"])
    assert (values.rate, values.do_train) == (0.2, True)


def test_a_run_from_python_notes_its_settings(tmp_path, monkeypatch):
    lines = written(tmp_path, 0, [], monkeypatch).splitlines()
    assert {"--output_dir=out", "--hang_minutes=2.5", "--do_train=True"} <= {*lines}
    assert "# --clip_norm=1.0" in lines and "None" not in "".join(lines)
    # So does a run of a program into another folder, such as a fold of a cross-validation.
    (tmp_path / "fold-1").mkdir()
    words = ["--output_dir=parent", "--folds=3"]
    assert written(tmp_path / "fold-1", 0, words, monkeypatch).splitlines() == lines
