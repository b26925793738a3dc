"""The legs of a run, and a run whose records are wrong or gone."""

import dataclasses
import itertools
import os

import pytest
import tensorflow as tf

from bert_tf.engine.evaluator import EvaluationInput, Evaluator
from bert_tf.files import records
from bert_tf.runs.training.plan import Leg, Phase, Plan
from tests.support.line_task import SCHEMA, LineModel, phases, trainer, write
from tests.support.refusals import refusal, refuses


def test_a_record_file_that_disappears_in_a_run_is_named(files, tmp_path):
    def remove() -> bool:
        if os.path.exists(files[1]):
            os.remove(files[1])
        return True

    run = trainer(tmp_path / "out", evaluate_every_steps=3)
    message = f"^{files[1]} cannot be read: .*No such file"
    refuses(message, run.train, phases(files, (30, 16)), remove, kind=OSError)
    assert run.global_step >= 3


def test_a_record_that_is_no_example_is_named_by_training_and_evaluation(tmp_path):
    path = write(tmp_path / "a.tfrecord", 20, 1)
    found = list(tf.data.TFRecordDataset(path).as_numpy_iterator())
    with tf.io.TFRecordWriter(path) as writer:
        for record in (*found[:17], b"\xff\xff\x0f", *found):
            writer.write(record)
    evaluate = Evaluator(LineModel(), tf.distribute.get_strategy()).evaluate
    for message in (
        refusal(trainer(tmp_path / "out").train, phases([path], (30, 4))),
        refusal(evaluate, EvaluationInput(4, [path], SCHEMA, 0)),
    ):
        assert f"{path}, record 17 (counted from 0): it is not a tf.Example: " in message
        assert "\n" not in message
    for max_steps in (0, 2):
        gone = EvaluationInput(4, [f"{tmp_path}/gone"], SCHEMA, max_steps)
        refuses(f"^{tmp_path}/gone cannot be read: ", evaluate, gone, kind=OSError)


class WeightedModel(LineModel):
    """Has a loss of weight 0 in all records but those with a negative first number."""

    def loss_and_metrics(self, outputs, features, normalizers):
        loss, sums = super().loss_and_metrics(outputs, features, normalizers)
        weight = tf.reduce_sum(tf.cast(features["x"][:, 0] < 0.0, tf.float32))
        return loss, {**sums, "line_loss": (0.5 * weight, weight), "accuracy": (0.0, 0.0)}


def write_numbers(folder, numbers):
    with tf.io.TFRecordWriter(f"{folder}/a.tfrecord") as writer:
        for number in numbers:
            writer.write(records.serialize({"x": [number, 1.0, 2.0], "y": [1.0]}, SCHEMA))
    return [f"{folder}/a.tfrecord"]


@pytest.mark.parametrize("steps, told", [(1, 1), (2, 2), (30, 2)])
def test_a_loss_that_has_weight_0_everywhere_is_refused_at_the_first_loops(steps, told, tmp_path):
    plan = phases(write_numbers(tmp_path, range(20)), (steps, 4))
    run = trainer(tmp_path / "out", build=WeightedModel)
    refuses(f"line_loss is 0 in all examples up to step {told}\\.", run.train, plan)
    assert run.global_step <= 3


def test_a_step_without_weight_is_allowed(tmp_path):
    """Of batches of one record, every other one has weight."""
    tf.random.set_seed(3)  # else the order depends on the tests before
    run = trainer(tmp_path / "out", build=WeightedModel)
    run.train(phases(write_numbers(tmp_path, (1.0, -1.0)), (60, 1)))
    assert run.global_step == 60


PLAN = Plan((40, 20), save_checkpoints_steps=7, evaluate_every_steps=9, iterations_per_loop=5)


def stops(plan, step=0):
    """Returns the steps at which a run that starts at `step` returns to Python."""
    return [leg.stop for leg in plan.legs(step)][1:]


def test_the_legs_of_a_run():
    """Two phases; a save every 3 steps and at the end, an evaluation every 4; loops of up to 4."""
    plan = Plan((5, 3), 3, 4, 4)
    assert list(plan.legs(0)) == [
        Leg(0, 0, True, False),
        Leg(0, 1, False, False),
        Leg(0, 2, False, False),
        Leg(0, 3, True, False),
        Leg(0, 4, False, True),
        Leg(0, 5, False, False),
        Leg(1, 6, True, False),
        Leg(1, 7, False, False),
        Leg(1, 8, True, True),
    ]
    # Each phase begins with a leg of one step.
    assert stops(Plan((40, 20), 1000, 0, 25)) == [
        *(1, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 40),
        *(41, 42, 45, 48, 51, 54, 57, 60),
    ]


@pytest.mark.parametrize("step, phase", [(0, 0), (39, 0), (40, 1), (59, 1)])
def test_a_run_starts_in_the_phase_of_its_step(step, phase):
    first, *legs = PLAN.legs(step)
    assert (first.phase, first.stop) == (phase, step)
    assert [leg.phase for leg in legs] == [int(leg.stop > 40) for leg in legs]
    assert PLAN.total == legs[-1].stop == 60


def test_no_save_evaluation_or_end_of_a_phase_is_skipped_and_no_leg_is_too_long():
    legs = list(PLAN.legs(0))
    assert [leg.stop for leg in legs if leg.saves] == [*range(0, 60, 7), 60]
    assert [leg.stop for leg in legs if leg.evaluates] == [9, 18, 27, 36, 45, 54]
    assert {40, 60} <= {leg.stop for leg in legs}
    assert max(leg.stop - last.stop for last, leg in itertools.pairwise(legs)) <= 5
    assert not any(leg.evaluates for leg in Plan((60,), 7, 0, 5).legs(0))


@pytest.mark.parametrize("step", range(60))
def test_a_resumed_run_stops_where_the_whole_one_does_for_saves_and_evaluations(step):
    plan = Plan((40, 20), 7, 9, 1000)
    due = [leg for leg in plan.legs(0) if leg.saves or leg.evaluates]
    resumed = [leg for leg in plan.legs(step) if leg.saves or leg.evaluates]
    # Also at the step that it starts from: the run before may have been stopped there.
    assert [(leg.stop, leg.saves, leg.evaluates) for leg in resumed] == [
        (leg.stop, leg.saves, leg.evaluates) for leg in due if leg.stop >= step
    ]


@pytest.mark.parametrize("total, lines", [(3, 3), (20, 20), (99, 21), (999, 21), (10**6, 1001)])
def test_short_runs_return_about_twenty_times_and_long_ones_as_set(total, lines):
    assert len(stops(Plan((total,), 10**9, 0, 1000))) == lines


def test_how_often_examples_are_seen():
    for values, timed, text in (
        ((40, 16, 1.0, 1), False, "1 example in the input; the 40 steps make 640 epochs"),
        (
            (30, 16, 1.0, 4096),
            False,
            "4,096 examples in the input; the 30 steps make 0.1172 epochs",
        ),
        ((9, 8, 2.5, 3e6), True, "3,000,000 examples in the input; an epoch has 150,000 steps"),
        (
            (9000, 8, 2.5, 1e4),
            False,
            "10,000 examples in the input; the 9,000 steps make 18 epochs",
        ),
    ):
        num_steps, batch_size, per_record, num_examples = values
        phase = Phase(num_steps, batch_size, None, per_record, num_examples)
        assert phase.describe_input(timed) == text
        estimated = dataclasses.replace(phase, estimated=True)
        assert estimated.describe_input(timed) == f"about {text}"
        assert dataclasses.replace(phase, num_examples=None).describe_input(timed) is None
