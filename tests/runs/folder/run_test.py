"""Checkpoints are written while training continues, the best one too: bits, order, errors."""

import glob
import os
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.files import checkpoints
from bert_tf.runs.folder import heartbeat, reporting
from bert_tf.runs.folder.heartbeat import InUseError
from bert_tf.runs.folder.run import BestCheckpoint, Run
from tests.runs.folder.heartbeat_test import wait_until, written_elsewhere
from tests.support.line_task import phases, rate_before, steps_of, trainer
from tests.support.pretraining_runs import assert_same_variables, variables
from tests.support.refusals import refusal, refuses

pytestmark = pytest.mark.usefixtures("uncompiled")


@pytest.fixture
def writing(monkeypatch):
    """Functions by step, called in the thread before the tensors of a checkpoint are written."""
    before = {}
    write_tensors = checkpoints.write

    def write(prefix, tensors):
        before.get(int(tensors["global_step"]), lambda: None)()
        write_tensors(prefix, tensors)

    monkeypatch.setattr(checkpoints, "write", write)
    return before


def no_space():
    raise tf.errors.ResourceExhaustedError(None, None, "no space left on the device")


def test_a_checkpoint_has_the_values_of_its_step_although_training_continues(
    files, tmp_path, writing
):
    """The weights, and the position in the input: a run that resumes from there ends the same."""
    plan = phases(files, (24, 16))
    trainer(tmp_path / "alone", save_checkpoints_steps=6).train(plan)
    run = trainer(tmp_path / "out", save_checkpoints_steps=6, iterations_per_loop=2)
    writing[6] = lambda: wait_until(lambda: run.global_step >= 10)  # else the save fails
    run.train(plan)
    assert steps_of(tmp_path / "out") == steps_of(tmp_path / "alone") == [0, 6, 12, 18, 24]
    for step in (0, 6, 12, 18, 24):
        name = f"model.ckpt-{step}"
        assert_same_variables(tmp_path / "out" / name, tmp_path / "alone" / name)
    (tmp_path / "out/checkpoint").write_text('model_checkpoint_path: "model.ckpt-6"\n')
    for path in glob.glob(str(tmp_path / "out/model.ckpt-*")):
        if "ckpt-6." not in path:
            os.remove(path)
    again = trainer(tmp_path / "out", save_checkpoints_steps=6)
    assert again.global_step == 6
    again.train(plan)
    assert_same_variables(tmp_path / "out/model.ckpt-24", tmp_path / "alone/model.ckpt-24")


def test_saves_come_one_at_a_time_and_the_end_waits(files, tmp_path, writing):
    run = trainer(tmp_path / "out", save_checkpoints_steps=2)
    inside = []
    most = []

    def slow():
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.1)
        inside.pop()

    writing.update({step: slow for step in range(0, 9, 2)})
    run.train(phases(files, (8, 16)))
    assert most == [1] * 5
    assert run.run.checkpoints.latest() == str(tmp_path / "out/model.ckpt-8")
    assert run.run.saved_step == 8


@pytest.mark.parametrize("step", [6, 12])
def test_a_full_disk_ends_the_run(files, tmp_path, writing, step):
    writing[step] = no_space
    run = trainer(tmp_path / "out", save_checkpoints_steps=6, iterations_per_loop=1)
    assert refusal(run.train, phases(files, (12, 16)), kind=OSError).startswith(
        f"The checkpoint of step {step} cannot be written to --output_dir={tmp_path}/out (no space"
        f" left on the device). Make the directory writable and free some space; the same command"
        f" then resumes from {tmp_path}/out/model.ckpt-{step - 6}."
    )
    assert steps_of(tmp_path / "out") == [*range(0, step, 6)]
    del writing[step]
    again = trainer(tmp_path / "out", save_checkpoints_steps=6)
    assert again.global_step == step - 6
    again.train(phases(files, (12, 16)))
    assert again.global_step == 12


@pytest.mark.parametrize("full", [True, False], ids=["first error", "last checkpoint"])
def test_steps_that_diverge_during_a_save(files, tmp_path, writing, full):
    run = trainer(tmp_path / "out", rate_before(6, float("nan")), save_checkpoints_steps=6)
    writing[6] = no_space if full else lambda: time.sleep(0.5)
    error, message = FloatingPointError, "checkpoint is .*/out/model.ckpt-6"
    if full:
        error, message = OSError, "The checkpoint of step 6 cannot be written"
    refuses(message, run.train, phases(files, (20, 16)), kind=error)


def test_an_interrupt_waits_for_the_current_save_and_for_its_own(files, tmp_path, writing):
    run = trainer(tmp_path / "out", save_checkpoints_steps=6, evaluate_every_steps=7)
    writing[6] = writing[7] = lambda: time.sleep(0.3)

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.train(phases(files, (20, 16)), interrupt)
    assert steps_of(tmp_path / "out") == [0, 6, 7]
    assert run.run.checkpoints.latest() == str(tmp_path / "out/model.ckpt-7")


def test_a_directory_that_another_run_has_taken_is_not_written_to(files, tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 1000.0)
    taken = "has been taken over by process 11 on tpu-7"
    run = trainer(tmp_path / "out", save_checkpoints_steps=6)
    with heartbeat.Heartbeat(str(tmp_path / "out")) as run.run._heartbeat:
        run.train(phases(files, (6, 16)))
        (tmp_path / "out/run.heartbeat").write_text(written_elsewhere())
        run.run.save(run.values(), 7, lambda prefix: None)
        refuses(taken, run.run.wait_for_save, kind=OSError)
        refuses(taken, run.run.write_results, {"loss": 0.5}, kind=OSError)
    assert steps_of(tmp_path / "out") == [0, 6]
    assert not (tmp_path / "out/eval_results.txt").exists()


def test_a_run_stops_after_the_beat_that_finds_another(files, tmp_path, monkeypatch):
    """At the end of the current loop; there is nothing to save yet."""
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.05)
    options = {"save_checkpoints_steps": 50, "evaluate_every_steps": 4, "iterations_per_loop": 3}
    run = trainer(tmp_path / "out", **options)
    with heartbeat.Heartbeat(str(tmp_path / "out")) as run.run._heartbeat:

        def is_found():
            # Each time, because a beat may just have written.
            (tmp_path / "out/run.heartbeat").write_text(written_elsewhere())
            return not run.run._heartbeat._thread.is_alive()

        def another_begins():
            wait_until(is_found)
            return True

        message = "has been taken over by process 11 on tpu-7"
        refuses(message, run.train, phases(files, (30, 16)), another_begins, kind=OSError)
    assert run.global_step == 6
    assert steps_of(tmp_path / "out") == [0]


def test_a_save_raises_its_error_once_and_the_next_one_works(tmp_path, monkeypatch):
    started, go_on, done = threading.Event(), threading.Event(), []

    def write(values, step, *_):
        if step == 1:
            started.set()
            go_on.wait(30)
            raise OSError("full")
        done.append(step)

    saving = run(tmp_path)
    monkeypatch.setattr(saving, "_write", write)
    saving.save({}, 1, None)
    started.wait(30)
    saving.check()  # not done yet
    go_on.set()
    refuses("full", saving.save, {}, 2, None, kind=OSError)
    assert not done
    saving.save({}, 3, None)
    saving.wait_for_save()
    saving.check()
    assert done == [3]


EVALUATE, PREDICT, TRAIN = {"do_eval": True}, {"do_predict": True}, {"do_train": True}
EACH_TIME = {"evaluate_every_steps": 3}


def run(output_dir, *flags) -> Run:
    values = dict.fromkeys(("do_train", "evaluate_every_steps", "keep_checkpoint_every_steps"), 0)
    values |= {"output_dir": str(output_dir), "keep_checkpoint_max": 5}
    for each in flags:
        values |= each
    return Run(tf.distribute.get_strategy(), SimpleNamespace(**values))


@pytest.mark.parametrize(
    ("first", "second", "doing", "name"),
    [
        ([EVALUATE], [EVALUATE], "evaluating", "eval"),
        ([PREDICT], [EVALUATE, PREDICT], "predicting", "predict"),
        ([EVALUATE], [TRAIN, EACH_TIME], "evaluating", "eval"),
        ([TRAIN, PREDICT], [PREDICT], "predicting", "predict"),
    ],
)
def test_the_second_writer_of_a_result_is_refused(tmp_path, first, second, doing, name):
    with run(tmp_path, *first):
        before = sorted(os.listdir(tmp_path))
        message = refusal(run(tmp_path, *second).__enter__, kind=InUseError)
        assert f"--output_dir={tmp_path} is in use: process {os.getpid()} on " in message
        assert f" is {doing} there and renews {tmp_path}/{name}.heartbeat. Two programs" in message
        assert [n for n in before if n not in os.listdir(tmp_path)] == []
    with run(tmp_path, *second) as later:
        later.write_results({"accuracy": 0.5})
    assert (tmp_path / "eval_results.txt").read_text() == "accuracy = 0.5\n"


@pytest.mark.parametrize("second", [[PREDICT], [TRAIN], []])
def test_programs_that_write_other_results_do_not_disturb_each_other(tmp_path, second):
    with run(tmp_path, EVALUATE) as first, run(tmp_path, *second):
        first.write_results({"accuracy": 0.25})
    assert (tmp_path / "eval_results.txt").exists()


@pytest.mark.parametrize("training", [[TRAIN, EVALUATE], [TRAIN, EACH_TIME]])
def test_a_second_look_leaves_the_results_to_the_run_that_trains(tmp_path, caplog, training):
    path = tmp_path / "eval_results.txt"
    with run(tmp_path, *training) as first:
        first.write_results({"accuracy": 0.75})
        with run(tmp_path, EVALUATE) as look:
            look.write_results({"accuracy": 0.25})
            assert first.owns_results and not look.owns_results  # nor writes it tables or reports
        assert path.read_text() == "accuracy = 0.75\n"
        assert (
            f"{path} is not written: the run that trains in --output_dir also eval" in caplog.text
        )
        first.write_results({"accuracy": 1.0})
    assert path.read_text() == "accuracy = 1.0\n"


@pytest.fixture
def make(tmp_path):
    return lambda patience=0: BestCheckpoint(str(tmp_path), "f1", patience, every_steps=10)


def see(best, step, score):
    values = {"w": np.array([float(step)], np.float32), "global_step": np.int64(step)}
    return best.update({"f1": score, "loss": -score}, step, values)


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
    message = "and best_f1, which chooses .*; it has f1, global_step, loss"
    refuses(message, other.update, {"best_f1": 0.7}, 20, {})


@pytest.mark.parametrize(
    "text, message",
    [
        ("f1 = 0.5\n", "and f1, which chooses the best checkpoint; it has f1. Choose a different"),
        ("f1 = 0.5\nglobal_step = inf\n", "with global_step, a whole number"),
        ("f1 = 0.5\nglobal_step = nan\n", "with global_step, a whole number"),
        ("f1 = 0.5\nglobal_step = 1.5\n", "with global_step, a whole number"),
        ("f1 = 1 = 2\nglobal_step = ten\n", "must have lines `name = number`"),
        ("", "; it has nothing. Choose a different"),
        ("".join(f"m{i} = 1\n" for i in range(10**4)), "with global_step"),
    ],
)
def test_damaged_results_are_refused(make, tmp_path, text, message):
    see(make(), 10, 0.5)
    path = tmp_path / "best" / "eval_results.txt"
    path.write_text(text)
    for action in (make(1).check, lambda: see(make(1), 20, 0.4)):
        told = refusal(action)
        assert told.startswith(f"{path}: ") and message in told
        assert len(told) <= 500 and "\n" not in told
