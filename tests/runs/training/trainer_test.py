"""The course of a run, on a model that is nothing but a straight line: the loops know no BERT."""

import glob
import logging
import os
import random
import re
import signal
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine.evaluator import EvaluationInput, Evaluator
from bert_tf.errors import UserError
from bert_tf.files import records
from bert_tf.model.layers import create_initializer
from bert_tf.runs.flags.settings import TrainingSettings
from tests.support.line_task import SCHEMA, SLOPE, LineModel, phases, rate_before, trainer, write
from tests.support.trainers import make_trainer


@pytest.fixture
def files(tmp_path):
    return [write(tmp_path / f"{i}.tfrecord", 40 + 7 * i, i) for i in range(3)]


def weights(of):
    return {name: variable.numpy() for name, variable in of._variables.items()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def test_it_learns_through_phases_and_keeps_the_last_five(files, tmp_path):
    run = trainer(tmp_path / "out", save_checkpoints_steps=7, iterations_per_loop=10)
    run.train(phases(files, (40, 16), (20, 8)))
    assert run.global_step == 60
    np.testing.assert_allclose(run.model.line.kernel.numpy()[:, 0], SLOPE, atol=0.6)
    kept = sorted(glob.glob(str(tmp_path / "out/*.index")), key=os.path.getmtime)
    steps = [p.split("-")[-1] for p in kept if ".input" not in p]
    assert steps == ["35.index", "42.index", "49.index", "56.index", "60.index"]
    assert not glob.glob(str(tmp_path / "out/model.ckpt-28*"))
    names = set(tf.train.load_checkpoint(str(tmp_path / "out")).get_variable_to_shape_map())
    assert names == {"global_step"} | {
        f"line/{v}{slot}" for v in ("kernel", "bias") for slot in ("", "/adam_m", "/adam_v")
    }


def test_a_phase_is_traced_once(files, tmp_path):
    """Whatever the lengths of its loops, with saves and evaluations in between."""
    traces = []

    class CountingModel(LineModel):
        def call(self, features, training=False, dropout_seed=None):
            traces.append((features["x"].shape[0], training))
            return super().call(features, training, dropout_seed)

    run = trainer(
        tmp_path / "out",
        total=30,
        save_checkpoints_steps=6,
        iterations_per_loop=4,
        evaluate_every_steps=7,
        build=CountingModel,
    )
    evaluator = Evaluator(run.model, run.strategy)
    source = EvaluationInput(9, files, SCHEMA, {}, 0)
    run.train(phases(files, (17, 16), (13, 8)), lambda: bool(evaluator.evaluate(source)))
    assert sorted(traces) == [(8, True), (9, False), (16, True)]


@pytest.mark.parametrize(
    "stop_at",
    [28, *(pytest.param(step, marks=pytest.mark.slow) for step in (7, 40, 57))],
)
def test_a_resumed_run_ends_bit_for_bit_like_one_left_alone(files, tmp_path, stop_at):
    """Stops at a checkpoint, at the end of a phase, between checkpoints; epochs have 141."""
    plan = phases(files, (40, 16), (20, 8))
    loops = {"save_checkpoints_steps": 7, "iterations_per_loop": 10}
    whole = trainer(tmp_path / "whole", **loops)
    whole.train(plan)
    broken = trainer(tmp_path / "broken", evaluate_every_steps=stop_at, **loops)

    def kill():
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        broken.train(plan, kill)
    again = trainer(tmp_path / "broken", save_checkpoints_steps=7, iterations_per_loop=3)
    assert again.global_step == stop_at - stop_at % 7
    again.train(plan)
    assert_same(weights(whole), weights(again))


@pytest.mark.parametrize("stop_at", [5, 20])
@pytest.mark.parametrize("batch_size", [16, 8], ids=["alike", "other"])
def test_a_later_phase_of_a_resumed_run_begins_as_in_one_left_alone(
    files, tmp_path, caplog, batch_size, stop_at
):
    """Stops within the first phase and at its end, where the place is of the first phase."""
    plan = phases(files, (20, 16), (10, batch_size))
    whole = trainer(tmp_path / "whole")
    whole.train(plan)
    broken = trainer(tmp_path / "broken", save_checkpoints_steps=5, evaluate_every_steps=stop_at)
    broken.train(plan, lambda: False)
    again = trainer(tmp_path / "broken")
    assert again.global_step == stop_at
    again.train(plan)
    assert_same(weights(whole), weights(again))
    assert "place in the input" not in caplog.text and "starts over" not in caplog.text


def test_the_seed_decides(files, tmp_path):
    plan = phases(files, (9, 16))
    results = []
    for number, seed in enumerate((1, 1, 2)):
        run = trainer(tmp_path / str(number), random_seed=seed)
        run.train(plan)
        results.append(weights(run))
    assert_same(results[0], results[1])
    assert (results[0]["line/kernel"] != results[2]["line/kernel"]).all()


def test_a_checkpoint_without_a_place_in_the_input_is_resumed_with_a_warning(
    files, tmp_path, caplog
):
    plan = phases(files, (20, 16))
    run = trainer(tmp_path / "out", save_checkpoints_steps=8)
    run.train(plan)
    for path in glob.glob(str(tmp_path / "out/*.input.*")):
        os.remove(path)
    again = trainer(tmp_path / "out")
    assert again.global_step == 20
    again.train(phases(files, (30, 16)))
    assert again.global_step == 30
    assert "model.ckpt-20 has no place in the input beside it" in caplog.text
    assert "The input starts over, in a different order, at step 20" in caplog.text


def test_nothing_to_train_is_said(files, tmp_path, caplog, monkeypatch):
    """With the flags that the running program has; see also settings_test."""
    monkeypatch.setattr(TrainingSettings, "amount_of_training", "--num_laps")
    plan = phases(files, (6, 16))
    trainer(tmp_path / "out").train(plan)
    before = sorted(os.listdir(tmp_path / "out"))
    trainer(tmp_path / "out").train(plan)
    assert "Nothing to train" in caplog.text
    assert (
        "model.ckpt-6 is at step 6 of 6 already. Raise --num_laps to go on, or choose another"
        " --output_dir to start over, with other data or flags" in caplog.text
    )
    assert sorted(os.listdir(tmp_path / "out")) == before


def test_a_loss_that_is_not_finite_stops_the_run_and_is_not_saved(files, tmp_path):
    rng = np.random.RandomState(9)
    bad = str(tmp_path / "bad.tfrecord")
    with tf.io.TFRecordWriter(bad) as writer:
        for x in rng.randn(300, 3):
            values = {"x": x.tolist(), "y": [3e38]}  # its square is infinite
            writer.write(records.serialize(values, SCHEMA))
    plan = phases(files, (10, 16)) + phases([bad], (10, 16))
    run = trainer(tmp_path / "out", save_checkpoints_steps=4)
    with pytest.raises(FloatingPointError) as raised:
        run.train(plan)
    assert "is inf at step 10 (counted from 0)" in str(raised.value)
    assert f"The last checkpoint is {tmp_path}/out/model.ckpt-8" in str(raised.value)
    assert not glob.glob(str(tmp_path / "out/model.ckpt-1?*"))


def test_gradients_that_are_not_finite_stop_the_run(files, tmp_path):
    class RootModel(LineModel):
        def loss_and_metrics(self, *arguments):
            loss, sums = super().loss_and_metrics(*arguments)
            return loss + tf.sqrt(0.0 * tf.reduce_sum(self.line.kernel.value)), sums

    run = trainer(tmp_path / "out", build=RootModel)
    with pytest.raises(FloatingPointError, match=r"gradient_norm is nan at step 0 \(counted"):
        run.train(phases(files, (5, 16)))


def test_weights_that_are_not_finite_are_not_saved(files, tmp_path):
    """The last update of a run is one that no later loss can tell of."""
    run = trainer(tmp_path / "out", rate_before(1, 3.4e38), save_checkpoints_steps=1)
    with pytest.raises(FloatingPointError, match=r"line/.* is not finite at step \d+ \(counted"):
        run.train(phases(files, (2, 16)))
    assert run.run.checkpoints.latest() == str(tmp_path / "out/model.ckpt-1")
    values = tf.train.load_checkpoint(str(tmp_path / "out/model.ckpt-1"))
    assert np.isfinite(values.get_tensor("line/kernel")).all()


def test_a_checkpoint_that_is_there_is_not_written_again(files, tmp_path):
    trainer(tmp_path / "out").train(phases(files, (5, 16)))
    before = os.stat(tmp_path / "out/model.ckpt-5.index").st_mtime_ns
    again = trainer(tmp_path / "out")
    again.run.save(again.values(), 5, lambda prefix: None)  # as an interrupt at once would
    assert os.stat(tmp_path / "out/model.ckpt-5.index").st_mtime_ns == before


@pytest.fixture
def heard():
    """SIGINT is heard, also where tests run in the background, which ignores it from birth."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_saves_after_the_step_in_hand(files, tmp_path, heard):
    run = trainer(
        tmp_path / "out", total=10**6, save_checkpoints_steps=10**6, iterations_per_loop=10**6
    )

    def interrupt():
        while run.global_step < 20:
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    watcher = threading.Thread(target=interrupt)
    watcher.start()
    with pytest.raises(KeyboardInterrupt):
        run.train(phases(files, (10**6, 16)))
    watcher.join()
    step = run.global_step
    assert 20 <= step < 10**6
    assert os.path.exists(tmp_path / f"out/model.ckpt-{step}.index")
    assert trainer(tmp_path / "out").global_step == step


def test_an_interrupt_between_loops_saves_too(files, tmp_path):
    run = trainer(tmp_path / "out", evaluate_every_steps=21, save_checkpoints_steps=100)

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.train(phases(files, (40, 16)), interrupt)
    assert run.run.checkpoints.latest() == str(tmp_path / "out/model.ckpt-21")


def test_evaluation_during_training_changes_nothing(files, tmp_path):
    plan = phases(files, (20, 16))
    alone, watched = trainer(tmp_path / "alone"), trainer(tmp_path / "w", evaluate_every_steps=6)
    alone.train(plan)
    seen = []
    evaluator = Evaluator(watched.model, watched.strategy)

    def evaluate():
        seen.append(watched.global_step)
        return bool(evaluator.evaluate(EvaluationInput(16, files[:1], SCHEMA, {}, 2)))

    watched.train(plan, evaluate)
    assert seen == [6, 12, 18]
    assert_same(weights(alone), weights(watched))


def test_making_a_trainer_leaves_random_numbers_alone(tmp_path):
    random.seed(5)
    np.random.seed(6)
    tf.random.set_seed(7)
    expected = (random.random(), np.random.rand(), float(tf.random.uniform([])))
    random.seed(5)
    np.random.seed(6)
    tf.random.set_seed(7)
    trainer(tmp_path / "out")
    assert (random.random(), np.random.rand(), float(tf.random.uniform([]))) == expected


def test_a_resumed_run_draws_no_initial_weights(files, tmp_path):
    """They would be read over at once, and drawing those of a large model takes seconds."""

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
    assert_same(weights(first), weights(again))
    assert create_initializer(0.5)([3]).numpy().all()


def test_the_log_tells_about_twenty_times_how_it_goes_and_how_long_it_takes(
    files, tmp_path, caplog
):
    with caplog.at_level(logging.INFO, "absl"):
        trainer(tmp_path / "out", total=100).train(phases(files, (100, 16)))
    pattern = r"^step (\d+): .*loss = .*?( \(\d+% done, about .* left\))?$"
    lines = re.findall(pattern, *_lines(caplog))
    steps = [int(step) for step, _ in lines]
    assert steps == [1, *range(5, 101, 5)]
    assert all(left for step, left in lines if 1 < int(step) < 100) and not lines[-1][1]


def _lines(caplog):
    return "\n".join(record.getMessage() for record in caplog.records), re.MULTILINE


def test_accumulation_gives_the_whole_batch_s_update(files, tmp_path):
    """Each part has noise of its own, so the noise is left out of the comparison."""

    class QuietModel(LineModel):
        def call(self, features, training=False, dropout_seed=None):
            return super().call(features)

    results = []
    for parts in (1, 4):
        run = trainer(tmp_path / str(parts), gradient_accumulation_steps=parts, build=QuietModel)
        run.train(phases(files, (15, 16)))
        results.append(weights(run))
    for name, value in results[0].items():
        np.testing.assert_allclose(value, results[1][name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_parts_must_divide_the_batch(files, tmp_path):
    with pytest.raises(UserError) as raised:
        trainer(tmp_path / "out", gradient_accumulation_steps=3).train(phases(files, (5, 16)))
    assert "--gradient_accumulation_steps (3) must divide" in str(raised.value)
    assert "(16)" in str(raised.value)


def test_an_output_directory_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="must be a writable directory with free"):
        trainer(tmp_path / "file" / "out")


def test_curves_are_written(files, tmp_path):
    trainer(tmp_path / "out").train(phases(files, (250, 16)))
    points = {}
    for path in glob.glob(str(tmp_path / "out/events.*")):
        for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
            event = tf.compat.v1.Event.FromString(record)
            for value in event.summary.value:
                points.setdefault(value.tag, []).append(event.step)
    # The step that compiles, then a point for each line of the log.
    steps = [1, *range(13, 250, 13), 250]
    assert points == {
        "loss": steps,
        "square": steps,
        "gradient_norm": steps,
        "learning_rate": steps,
        "examples_per_second": steps[1:],
    }
