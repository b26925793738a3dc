"""Training within a time, and what is said about a changed schedule."""

import json
import os
import time

import pytest
import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine import loops
from bert_tf.engine.loops import replicate
from bert_tf.optimization import PolynomialSchedule, RestartingSchedule, linear_schedule
from bert_tf.runs.flags.settings import TrainingSettings
from bert_tf.runs.folder.run import Run
from bert_tf.runs.training.plan import Leg
from bert_tf.runs.training.schedules import FILE_NAME, TimeBudget, note_schedule
from bert_tf.runs.training.trainer import Trainer
from tests.support.line_task import LineModel, phases, trainer, write


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
    # A budget that is used up makes no step.
    machine = Machine()
    machine.used = 1000.0
    due = Leg(0, 77, False, True)  # at the step that it starts from
    assert list(machine.budget.legs([due, Leg(0, 90, True, True)], 77)) == [due]


class SlowBudget(TimeBudget):
    """Uses the time of each leg, but not the processor."""

    def legs(self, *args):
        for leg in super().legs(*args):
            time.sleep(0.1)
            yield leg


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
            budget = SlowBudget(seconds / 3600, schedule, 100, run.used_seconds, strategy)
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
CASES = {  # schedules or hours, before and after; a step -> what is said
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
    "hours instead of steps": (
        *(OLD, 2.5, 30),
        "from 60 steps with a peak of 0.0005 and 10 of warm-up to --max_hours=2.5. To",
    ),
    "steps instead of hours": (
        *(24.0, OLD, 30),
        "from --max_hours=24 to 60 steps with a peak of 0.0005",
    ),
    "more hours": (*(1.0, 1.25, 30), "at step 30, from --max_hours=1 to --max_hours=1.25. To keep"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_changed_schedule_is_told_with_both_rates(name, tmp_path, caplog):
    def note(schedule, step):
        hours = schedule if isinstance(schedule, float) else None
        note_schedule(str(tmp_path), (lambda step: step) if hours else schedule, step, hours)

    old, new, step, message = CASES[name]
    note(old, 0)
    note(old, step)
    assert caplog.text == ""
    note(new, step)
    assert len(caplog.messages) == 1 and message in caplog.messages[0]
    assert caplog.messages[0].endswith("To keep the old one, give the old flags")
    note(new, step + 1)
    assert len(caplog.messages) == 1


def test_a_new_run_and_other_kinds_of_schedules_are_quiet(tmp_path, caplog):
    note_schedule(str(tmp_path), OLD, 0)
    note_schedule(str(tmp_path), TWO, 0)
    before = (tmp_path / FILE_NAME).read_text()
    note_schedule(str(tmp_path), lambda step: tf.constant(0.1), 9)
    note_schedule(str(tmp_path), RestartingSchedule([(5, lambda step: step)]), 9)
    assert (tmp_path / FILE_NAME).read_text() == before
    assert caplog.text == ""


@pytest.mark.parametrize(
    "content", ["{", "[[1, {}]]", "[7]", '[["a", {"init_lr": 1}]]', "{}", '{"max_hours": "x"}']
)
def test_a_damaged_note_is_told_and_replaced(content, tmp_path, caplog):
    path = tmp_path / FILE_NAME
    path.write_text(content)
    note_schedule(str(tmp_path), OLD, 30)
    assert f"Cannot tell whether the learning rate changes: {path}" in caplog.text
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
    (tmp_path / FILE_NAME).write_text(content)
    for step in (30, 31):
        note_schedule(str(tmp_path), schedule, step, hours)
    assert caplog.messages == [
        "An earlier version of bert-tf began this run: from step 30 on, dropout draws different"
        " random masks than that version would have drawn"
    ]


def test_a_resumed_run_tells_what_changes(files, tmp_path, caplog):
    """The schedule, and that --init_checkpoint is not read."""
    out = tmp_path / "out"
    trainer(out, total=20).train(phases(files, (20, 16)))
    assert os.path.exists(out / FILE_NAME) and "schedule changes" not in caplog.text
    caplog.set_level("INFO", "absl")
    again = trainer(out, total=40, init_checkpoint="elsewhere/bert_model.ckpt")
    again.train(phases(files, (40, 16)))
    assert "schedule changes at step 20, from 20 steps" in caplog.text
    assert "rate of the next step is 0.025 instead of 0." in caplog.text
    assert (
        "--init_checkpoint=elsewhere/bert_model.ckpt is not read, because --output_dir has a"
        f" checkpoint, {out}/model.ckpt-20"
    ) in caplog.messages
