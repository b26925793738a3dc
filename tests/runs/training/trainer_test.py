"""The course of a run, on a model that is nothing but a straight line: the loops know no BERT."""

import dataclasses
import glob
import logging
import os
import random
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine import interrupts
from bert_tf.engine.evaluator import EvaluationInput, Evaluator
from bert_tf.model.layers import create_initializer
from bert_tf.runs.flags.settings import TrainingSettings
from tests.support.line_task import (
    SCHEMA,
    SLOPE,
    LineModel,
    curves,
    phases,
    rate_before,
    steps_of,
    trainer,
    write,
)
from tests.support.pretraining_runs import assert_same_variables, variables
from tests.support.refusals import refuses
from tests.support.trainers import make_trainer

pytestmark = pytest.mark.usefixtures("uncompiled")


def test_it_learns_through_phases_and_keeps_the_last_five(files, tmp_path):
    run = trainer(tmp_path / "out", save_checkpoints_steps=7, iterations_per_loop=10)
    run.train(phases(files, (40, 16), (20, 8)))
    assert run.global_step == 60
    np.testing.assert_allclose(run.model.line.kernel.numpy()[:, 0], SLOPE, atol=0.6)
    assert steps_of(tmp_path / "out") == [35, 42, 49, 56, 60]
    assert not glob.glob(str(tmp_path / "out/model.ckpt-28*"))
    slots = ("", "/adam_m", "/adam_v")
    names = {f"line/{weight}{slot}" for weight in ("kernel", "bias") for slot in slots}
    assert variables(tmp_path / "out").keys() == names | {"global_step"}


def test_a_phase_is_traced_once(files, tmp_path):
    """Whatever the lengths of its loops, with saves and evaluations in between."""
    traces = []

    class CountingModel(LineModel):
        def call(self, features, training=False, dropout_seed=None):
            traces.append((features["x"].shape[0], training))
            return super().call(features, training, dropout_seed)

    options = {"save_checkpoints_steps": 6, "iterations_per_loop": 4, "evaluate_every_steps": 7}
    run = trainer(tmp_path / "out", total=30, build=CountingModel, **options)
    evaluator = Evaluator(run.model, run.strategy)
    source = EvaluationInput(9, files, SCHEMA, 0)
    run.train(phases(files, (17, 16), (13, 8)), lambda: bool(evaluator.evaluate(source)))
    assert sorted(traces) == [(8, True), (9, False), (16, True)]


@pytest.mark.parametrize(
    "stop_at", [28, *(pytest.param(step, marks=pytest.mark.slow) for step in (7, 40, 57))]
)
def test_a_resumed_run_ends_with_the_bits_of_an_uninterrupted_one(files, tmp_path, stop_at):
    """Stops at a checkpoint, at the end of a phase, between checkpoints; epochs have 141."""
    plan = phases(files, (40, 16), (20, 8))
    loops = {"save_checkpoints_steps": 7, "iterations_per_loop": 10}
    trainer(tmp_path / "whole", **loops).train(plan)
    broken = trainer(tmp_path / "broken", evaluate_every_steps=stop_at, **loops)

    def kill():
        raise RuntimeError("killed")

    refuses("killed", broken.train, plan, kill, kind=RuntimeError)
    again = trainer(tmp_path / "broken", save_checkpoints_steps=7, iterations_per_loop=3)
    assert again.global_step == stop_at - stop_at % 7
    again.train(plan)
    assert_same_variables(tmp_path / "whole", tmp_path / "broken")


def test_a_later_phase_of_a_resumed_run_starts_like_that_of_an_uninterrupted_one(
    files, tmp_path, caplog
):
    """Stops within the first phase and at its end, where the place is of the first phase."""
    first = (20, 16)
    for stop_at in (5, 20):
        options = {"save_checkpoints_steps": 5, "evaluate_every_steps": stop_at}
        stopped = trainer(tmp_path / f"{stop_at}", **options)
        stopped.train(phases(files, first, (10, 16)), lambda: False)
    for batch_size in (16, 8):
        plan = phases(files, first, (10, batch_size))
        whole = tmp_path / f"whole_{batch_size}"
        trainer(whole).train(plan)
        for stop_at in (5, 20):
            broken = tmp_path / f"broken_{batch_size}_{stop_at}"
            shutil.copytree(tmp_path / f"{stop_at}", broken)
            again = trainer(broken)
            assert again.global_step == stop_at
            again.train(plan)
            assert_same_variables(whole, broken)
    assert "position in the input" not in caplog.text and "starts over" not in caplog.text


def test_the_seed_decides(files, tmp_path):
    one, again, other = (tmp_path / name for name in ("one", "again", "other"))
    for folder, seed in ((one, 1), (again, 1), (other, 2)):
        trainer(folder, random_seed=seed).train(phases(files, (9, 16)))
    assert_same_variables(one, again)
    assert (variables(one)["line/kernel"] != variables(other)["line/kernel"]).all()


def test_a_checkpoint_without_a_place_in_the_input_is_resumed_with_a_warning(
    files, tmp_path, caplog
):
    trainer(tmp_path / "out", save_checkpoints_steps=8).train(phases(files, (20, 16)))
    for path in glob.glob(str(tmp_path / "out/*.input.*")):
        os.remove(path)
    again = trainer(tmp_path / "out")
    assert again.global_step == 20
    again.train(phases(files, (30, 16)))
    assert again.global_step == 30
    assert "model.ckpt-20 has no position in the input beside it" in caplog.text
    assert "The input starts over, in a different order, at step 20" in caplog.text


def test_a_run_that_is_done_trains_and_writes_nothing(files, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(TrainingSettings, "amount_of_training", "--num_laps")
    out, plan = tmp_path / "out", phases(files, (6, 16))
    trainer(out).train(plan)
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    again = trainer(out)
    again.train(plan)
    again.run.save(again.values(), 6, lambda prefix: None)  # as an interrupt at once would
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before
    assert (
        "Nothing to train: {out}/model.ckpt-6 is already at step 6 of 6. Raise --num_laps to"
        " continue, or choose another --output_dir to start over, with other data or flags"
    ) in caplog.text.replace(str(out), "{out}")


def test_a_loss_that_is_not_finite_stops_the_run_and_is_not_saved(files, tmp_path):
    bad = write(tmp_path / "bad.tfrecord", 300, 9, scale=3e37)  # whose squares are infinite
    plan = phases(files, (10, 16)) + phases([bad], (10, 16))
    run = trainer(tmp_path / "out", save_checkpoints_steps=4)
    told = rf"is inf at step 10 \(counted from 0\).* last checkpoint is {tmp_path}/out/model.ckpt-8"
    refuses(told, run.train, plan, kind=FloatingPointError)
    assert not glob.glob(str(tmp_path / "out/model.ckpt-1?*"))


def test_gradients_that_are_not_finite_stop_the_run(files, tmp_path):
    class RootModel(LineModel):
        def loss_and_metrics(self, *arguments):
            loss, sums = super().loss_and_metrics(*arguments)
            return loss + tf.sqrt(0.0 * tf.reduce_sum(self.line.kernel.value)), sums

    run = trainer(tmp_path / "out", build=RootModel)
    told = r"gradient_norm is nan at step 0 \(counted"
    refuses(told, run.train, phases(files, (5, 16)), kind=FloatingPointError)


def test_weights_that_are_not_finite_are_not_saved(files, tmp_path):
    """No later loss shows that the last update of a run went wrong."""
    run = trainer(tmp_path / "out", rate_before(1, 3.4e38), save_checkpoints_steps=1)
    told = r"line/.* is not finite at step \d+ \(counted"
    refuses(told, run.train, phases(files, (2, 16)), kind=FloatingPointError)
    assert run.run.checkpoints.latest() == str(tmp_path / "out/model.ckpt-1")
    assert np.isfinite(variables(tmp_path / "out")["line/kernel"]).all()


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, interrupts.Terminated])
def test_an_interrupt_before_the_input_is_open_saves_too(interrupt, files, tmp_path):
    def open_input(seed, shard):
        raise interrupt

    (phase,) = phases(files, (20, 16))
    run = trainer(tmp_path / "out")
    with pytest.raises(interrupt):
        run.train([dataclasses.replace(phase, open_input=open_input)])
    assert steps_of(tmp_path / "out") == [0] and not glob.glob(f"{tmp_path}/out/*.input.*")


def test_evaluation_during_training_changes_nothing(files, tmp_path):
    plan = phases(files, (20, 16))
    trainer(tmp_path / "alone").train(plan)
    watched = trainer(tmp_path / "watched", evaluate_every_steps=6)
    seen = []
    evaluator = Evaluator(watched.model, watched.strategy)

    def evaluate():
        seen.append(watched.global_step)
        return bool(evaluator.evaluate(EvaluationInput(16, files[:1], SCHEMA, 2)))

    watched.train(plan, evaluate)
    assert seen == [6, 12, 18]
    assert_same_variables(tmp_path / "alone", tmp_path / "watched")


def test_making_a_trainer_leaves_random_numbers_alone(tmp_path):
    drawn = []
    for prepare in (lambda: None, lambda: trainer(tmp_path / "out")):
        random.seed(5)
        np.random.seed(6)
        tf.random.set_seed(7)
        prepare()
        drawn.append((random.random(), np.random.rand(), float(tf.random.uniform([]))))
    assert drawn[0] == drawn[1]


def test_a_resumed_run_draws_no_initial_weights(files, tmp_path):
    """They would be overwritten at once, and drawing those of a large model takes seconds."""

    def build():
        model = LineModel()
        built.append(create_initializer(0.5)([3, 1]).numpy())
        model.line.kernel.assign(built[-1])
        return model

    built = []
    strategy, schedule = tf.distribute.get_strategy(), optimization.linear_schedule(0.1, 9, 0)
    first = make_trainer(build, strategy, tmp_path / "out", schedule)
    first.train(phases(files, (9, 16)))
    again = make_trainer(build, strategy, tmp_path / "out", schedule)
    assert built[0].all() and not built[1].any()
    assert (first.model.line.kernel.numpy() == again.model.line.kernel.numpy()).all()
    assert create_initializer(0.5)([3]).numpy().all()


def test_accumulation_gives_the_whole_batch_s_update(files, tmp_path):
    """Each part has noise of its own, so the noise is left out of the comparison."""

    class QuietModel(LineModel):
        def call(self, features, training=False, dropout_seed=None):
            return super().call(features)

    for parts in (1, 4):
        run = trainer(tmp_path / str(parts), gradient_accumulation_steps=parts, build=QuietModel)
        run.train(phases(files, (15, 16)))
    split = variables(tmp_path / "4")
    for name, value in variables(tmp_path / "1").items():
        np.testing.assert_allclose(value, split[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_parts_must_divide_the_batch(files, tmp_path):
    run = trainer(tmp_path / "out", gradient_accumulation_steps=3)
    message = r"--gradient_accumulation_steps \(3\) must divide .*\(16\)"
    refuses(message, run.train, phases(files, (5, 16)))


def test_the_log_and_the_curves_have_about_twenty_points(files, tmp_path, caplog):
    with caplog.at_level(logging.INFO, "absl"):
        trainer(tmp_path / "out", total=250).train(phases(files, (250, 16)))
    steps = [1, *range(13, 250, 13), 250]  # the first compiles
    pattern = r"^step (\d+): .*loss = .*?( \(\d+% done, about .* left\))?$"
    lines = re.findall(pattern, "\n".join(caplog.messages), re.MULTILINE)
    assert [int(step) for step, _ in lines] == steps
    assert all(left for _, left in lines[1:-1]) and not lines[-1][1]
    names = ("loss", "square", "gradient_norm", "learning_rate")
    speeds = ("examples_per_second", "seconds_per_step")
    expected = {**dict.fromkeys(names, steps), **dict.fromkeys(speeds, steps[1:])}
    assert curves(tmp_path / "out") == expected
