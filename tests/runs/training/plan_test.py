"""The legs, time and schedule of a run, and a run whose records are wrong or gone."""

import dataclasses
import itertools
import json
import os

import pytest
import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine import loops
from bert_tf.engine.evaluator import EvaluationInput, Evaluator
from bert_tf.engine.loops import replicate
from bert_tf.errors import UserError
from bert_tf.files import records
from bert_tf.optimization import PolynomialSchedule, RestartingSchedule, linear_schedule
from bert_tf.runs.flags.settings import TrainingSettings
from bert_tf.runs.folder.run import Run
from bert_tf.runs.training.plan import SCHEDULE_FILE, Leg, Phase, Plan, TimeBudget, note_schedule
from bert_tf.runs.training.trainer import Trainer
from tests.support.line_task import SCHEMA, LineModel, phases, trainer, write


def test_a_record_file_that_disappears_in_a_run_is_named(files, tmp_path):
    def remove() -> bool:
        if os.path.exists(files[1]):
            os.remove(files[1])
        return True

    run = trainer(tmp_path / "out", evaluate_every_steps=3)
    with pytest.raises(OSError, match=f"^{files[1]} cannot be read: .*No such file"):
        run.train(phases(files, (30, 16)), remove)
    assert run.global_step >= 3


def test_a_record_that_is_no_example_is_named_by_training_and_evaluation(tmp_path):
    path = write(tmp_path / "a.tfrecord", 20, 1)
    found = list(tf.data.TFRecordDataset(path).as_numpy_iterator())
    with tf.io.TFRecordWriter(path) as writer:
        for record in (*found[:17], b"\xff\xff\x0f", *found):
            writer.write(record)
    evaluator = Evaluator(LineModel(), tf.distribute.get_strategy())
    for read in (
        lambda: trainer(tmp_path / "out").train(phases([path], (30, 4))),
        lambda: evaluator.evaluate(EvaluationInput(4, [path], SCHEMA, {}, 0)),
    ):
        with pytest.raises(UserError) as error:
            read()
        message = str(error.value)
        assert f"{path}, record 17 (counted from 0): it is not a tf.Example: " in message
        assert "\n" not in message


class WeightedModel(LineModel):
    """Has a loss of weight 0 in all records but those with a negative first number."""

    def loss_and_metrics(self, outputs, features, normalizers):
        loss, sums = super().loss_and_metrics(outputs, features, normalizers)
        weight = tf.reduce_sum(tf.cast(features["x"][:, 0] < 0.0, tf.float32))
        return loss, {**sums, "line_loss": (0.5 * weight, weight), "accuracy": (0.0, 0.0)}


@pytest.mark.parametrize("steps, told", [(1, 1), (2, 2), (30, 2)])
def test_a_loss_that_has_weight_0_everywhere_is_refused_at_the_first_loops(steps, told, tmp_path):
    path = str(tmp_path / "a.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for number in range(20):
            values = {"x": [float(number), 1.0, 2.0], "y": [1.0]}
            writer.write(records.serialize(values, SCHEMA))
    run = trainer(tmp_path / "out", build=WeightedModel)
    with pytest.raises(UserError, match=f"line_loss is 0 in all examples up to step {told}\\."):
        run.train(phases([path], (steps, 4)))
    assert run.global_step <= 3


def test_a_step_without_weight_is_allowed(tmp_path):
    """Of batches of one record, every other one has weight."""
    path = str(tmp_path / "a.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for number in (1.0, -1.0):
            values = {"x": [number, 1.0, 2.0], "y": [1.0]}
            writer.write(records.serialize(values, SCHEMA))
    tf.random.set_seed(3)  # else the order depends on the tests before
    run = trainer(tmp_path / "out", build=WeightedModel)
    run.train(phases([path], (60, 1)))
    assert run.global_step == 60


def test_an_evaluation_without_its_file_is_named(tmp_path):
    evaluator = Evaluator(LineModel(), tf.distribute.get_strategy())
    for max_steps in (0, 2):
        with pytest.raises(OSError, match=f"^{tmp_path}/gone cannot be read: "):
            evaluator.evaluate(EvaluationInput(4, [f"{tmp_path}/gone"], SCHEMA, {}, max_steps))


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


def test_each_phase_begins_with_a_leg_of_one_step():
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


@pytest.mark.parametrize(
    "values, timed, text",
    [
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
    ],
)
def test_how_often_examples_are_seen(values, timed, text):
    num_steps, batch_size, per_record, num_examples = values
    phase = Phase(num_steps, batch_size, None, per_record, num_examples)
    assert phase.describe_input(timed) == text
    estimated = dataclasses.replace(phase, estimated=True)
    assert estimated.describe_input(timed) == f"about {text}"
    assert dataclasses.replace(phase, num_examples=None).describe_input(timed) is None


class Machine:
    """A budget of 1000 seconds for a schedule of 50 steps with 10 of warm-up, and what it used."""

    def __init__(self):
        self.used = self.idle = 0.0
        schedule = optimization.linear_schedule(2.0, 50, 10)
        self.budget = TimeBudget(
            1000 / 3600, schedule, 50, lambda: (self.used, self.idle), tf.distribute.get_strategy()
        )

    def train(self, step, seconds_per_step):
        """Makes the steps of a loop; returns the step that it came to, and the loop's rates."""
        leg = next(self.budget.legs([Leg(0, 10**6, True, True)], step), None)
        stop = leg.stop if leg else step
        rates = self.budget.schedule(tf.range(step, stop, dtype=tf.int64)).numpy().tolist()
        self.used += seconds_per_step * (stop - step)
        return stop, rates


def expected_rate(used, idle):
    """Of the paper's schedule stretched over what starting and compiling leave of 1000 seconds."""
    share = (used - idle) / (1000 - idle)
    return 2.0 * share / 0.2 if share < 0.2 else 2.0 * (1 - share)


def test_the_schedule_stretches_over_the_time():
    machine = Machine()
    machine.used = machine.idle = 300.0  # to start up, a third of the time
    step, rates = machine.train(0, 20.5)  # compiles
    assert step == 1
    machine.idle += 20.0
    step, more = machine.train(step, 0.5)  # nothing is known yet
    assert step == 2
    rates += more
    assert rates == pytest.approx([0.0, expected_rate(320.5, 320.0)])  # the warm-up begins
    while True:
        began = machine.used
        stop, more = machine.train(step, 0.5 if step < 900 else 0.25)  # it gets faster
        if stop == step:
            break
        assert machine.used - began <= 20.5 or step < 40
        for i, rate in enumerate(more):
            assert rate == pytest.approx(expected_rate(began + 0.5 * i, 320.0), abs=0.05)
        rates += more
        step = stop
    assert 999 <= machine.used <= 1000
    # 900 to 940 steps of 0.5 s, the rest of 0.25 s.
    assert step == pytest.approx((1000 - 320) / 0.25 - 920, abs=20)
    assert max(rates) == pytest.approx(2.0, abs=0.05) and 0 <= rates[-1] < 0.01


def test_a_budget_that_is_used_up_makes_no_step():
    machine = Machine()
    machine.used = 1000.0
    due = Leg(0, 77, False, True)  # at the step that it starts from
    assert list(machine.budget.legs([due, Leg(0, 90, True, True)], 77)) == [due]


def test_legs_are_cut_and_what_is_due_stays_at_their_ends():
    machine = Machine()
    whole = [Leg(0, 0, True, False), Leg(0, 1, False, False), Leg(0, 10, True, True)]
    step, cut = 0, []
    for leg in machine.budget.legs(whole, 0):
        machine.used += 7.0 * (leg.stop - step)
        step = leg.stop
        cut.append(leg)
    # 20 seconds between two looks at the time, once the time of a step is known.
    assert cut == [*whole[:2], *(Leg(0, stop, False, False) for stop in (2, 4, 6, 8)), whole[2]]


def test_a_run_ends_with_its_time_saved_and_resumes(tmp_path, monkeypatch):
    # Without XLA the first step takes no time to compile; tracing takes seconds on a busy machine.
    monkeypatch.setattr(loops, "replicate", lambda *args: replicate(*args[:-1], False))
    files = [write(tmp_path / "0.tfrecord", 40, 0)]
    out = tmp_path / "out"
    strategy = tf.distribute.get_strategy()

    def train(seconds):
        settings = TrainingSettings(output_dir=str(out), do_train=True)
        with Run(strategy, settings) as run:
            schedule = optimization.linear_schedule(0.05, 100, 10)
            budget = TimeBudget(seconds / 3600, schedule, 100, run.used_seconds, strategy)
            trainer = Trainer(LineModel, run, budget.schedule, budget=budget)
            trainer.train(phases(files, (2**31 - 1, 16)))
            used, idle = run.used_seconds()
            assert 0 < idle < used
        return trainer.global_step, used, float(budget.schedule(trainer.optimizer.global_step))

    step, used, rate = train(6)
    assert step > 10 and 5.5 < used < 9 and rate < 0.005
    assert (out / f"model.ckpt-{step}.index").exists()
    again, used, _ = train(6)  # nothing is left
    assert again == step
    more, longer, rate = train(used + 6)
    assert more > step and longer > used + 5 and rate < 0.005


OLD = linear_schedule(5e-4, 60, 10)
TWO = RestartingSchedule(
    [(30, PolynomialSchedule(1e-3, 30, 5, 2.0, -1)), (70, PolynomialSchedule(2e-4, 70))]
)
CASES = {
    "more steps": (
        *(OLD, linear_schedule(5e-4, 120, 10), 30),
        "changes at step 30, from 60 steps with a peak of 0.0005 and 10 of warm-up to 120 steps"
        " with a peak of 0.0005 and 10 of warm-up: the rate of the next step is 0.000375 instead of"
        " 0.00025.",
    ),
    "another rate": (
        *(OLD, linear_schedule(1e-4, 60, 10), 60),
        "peak of 0.0001 and 10 of warm-up: the rate of the next step is 0 instead of 0.",
    ),
    "another warm-up": (
        *(OLD, linear_schedule(5e-4, 60, 40), 20),
        "and 40 of warm-up: the rate of the next step is 0.00025 instead of 0.0003333.",
    ),
    "two phases instead of one": (
        *(OLD, TWO, 45),
        "30 steps with a peak of 0.001 and 5 of warm-up, decay power 2, warm-up from step -1; then"
        " 70 steps with a peak of 0.0002 and 0 of warm-up: the rate of the next step is 0.0001571"
        " instead of 0.000125.",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_changed_schedule_is_told_with_both_rates(name, tmp_path, caplog):
    old, new, step, message = CASES[name]
    note_schedule(str(tmp_path), old, 0)
    note_schedule(str(tmp_path), old, step)
    assert caplog.text == ""
    note_schedule(str(tmp_path), new, step)
    assert caplog.messages == [record.getMessage() for record in caplog.records]
    assert len(caplog.messages) == 1 and message in caplog.messages[0]
    assert caplog.messages[0].endswith("To keep the old one, give the old flags")
    note_schedule(str(tmp_path), new, step + 1)
    assert len(caplog.messages) == 1


BUDGETS = {  # schedules or hours, before and after -> what is said
    "hours instead of steps": (
        OLD,
        2.5,
        "from 60 steps with a peak of 0.0005 and 10 of warm-up to --max_hours=2.5. To",
    ),
    "steps instead of hours": (24.0, OLD, "from --max_hours=24 to 60 steps with a peak of 0.0005"),
    "more hours": (1.0, 1.25, "at step 30, from --max_hours=1 to --max_hours=1.25. To keep the"),
}


@pytest.mark.parametrize("name", BUDGETS)
def test_a_changed_time_budget_is_told(name, tmp_path, caplog):
    def note(schedule, step):
        hours = schedule if isinstance(schedule, float) else None
        note_schedule(str(tmp_path), OLD if hours is None else lambda step: step, step, hours)

    old, new, message = BUDGETS[name]
    note(old, 0)
    note(old, 30)
    assert caplog.text == ""
    note(new, 30)
    assert len(caplog.messages) == 1 and message in caplog.messages[0]
    note(new, 31)
    assert len(caplog.messages) == 1


def test_a_new_run_and_other_kinds_of_schedules_are_quiet(tmp_path, caplog):
    note_schedule(str(tmp_path), OLD, 0)
    note_schedule(str(tmp_path), TWO, 0)
    before = (tmp_path / SCHEDULE_FILE).read_text()
    note_schedule(str(tmp_path), lambda step: tf.constant(0.1), 9)
    note_schedule(str(tmp_path), RestartingSchedule([(5, lambda step: step)]), 9)
    assert (tmp_path / SCHEDULE_FILE).read_text() == before
    assert caplog.text == ""


@pytest.mark.parametrize(
    "content", ["{", "[[1, {}]]", "[7]", '[["a", {"init_lr": 1}]]', "{}", '{"max_hours": "x"}']
)
def test_a_damaged_note_is_told_and_replaced(content, tmp_path, caplog):
    path = tmp_path / SCHEDULE_FILE
    path.write_text(content)
    note_schedule(str(tmp_path), OLD, 30)
    assert f"Whether the learning rate changes is not known: {path}" in caplog.text
    assert json.loads(path.read_text())["schedule"][0][1]["init_lr"] == 5e-4


@pytest.mark.parametrize(
    "content, schedule, hours",
    [
        ('[[60, {"init_lr": 5e-4, "num_train_steps": 60, "num_warmup_steps": 10}]]', OLD, None),
        ('{"max_hours": 2.5}', lambda step: step, 2.5),
    ],
    ids=["schedule", "hours"],
)
def test_other_masks_than_an_earlier_version_s_are_told_once(
    content, schedule, hours, tmp_path, caplog
):
    (tmp_path / SCHEDULE_FILE).write_text(content)
    for step in (30, 31):
        note_schedule(str(tmp_path), schedule, step, hours)
    assert caplog.messages == [
        "An earlier version of bert-tf began this run: from step 30 on, dropout has other random"
        " masks than that version would have drawn"
    ]


def test_a_resumed_run_tells_what_changes(files, tmp_path, caplog):
    """The schedule, and that --init_checkpoint is not read."""
    out = tmp_path / "out"
    trainer(out, total=20).train(phases(files, (20, 16)))
    assert os.path.exists(out / SCHEDULE_FILE) and "schedule changes" not in caplog.text
    caplog.set_level("INFO", "absl")
    again = trainer(out, total=40, init_checkpoint="elsewhere/bert_model.ckpt")
    again.train(phases(files, (40, 16)))
    assert "schedule changes at step 20, from 20 steps" in caplog.text
    assert "rate of the next step is 0.025 instead of 0." in caplog.text
    assert (
        "--init_checkpoint=elsewhere/bert_model.ckpt is not read, because --output_dir has a"
        f" checkpoint, {out}/model.ckpt-20"
    ) in caplog.messages
