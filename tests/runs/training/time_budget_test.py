"""Training within a time: the rates, the end, and a restart."""

import pytest
import tensorflow as tf

from bert_tf import optimization
from bert_tf.engine import loops
from bert_tf.engine.replicate import replicate
from bert_tf.runs.flags.settings import TrainingSettings
from bert_tf.runs.folder.run import Run
from bert_tf.runs.training.plan import Leg
from bert_tf.runs.training.time_budget import TimeBudget
from bert_tf.runs.training.trainer import Trainer
from tests.support.line_task import LineModel, phases, write


class Machine:
    """A budget of 1000 seconds for a schedule of 50 steps with 10 of warm-up, and what it used."""

    def __init__(self):
        self.used = 0.0
        schedule = optimization.linear_schedule(2.0, 50, 10)
        self.budget = TimeBudget(
            1000 / 3600, schedule, 50, lambda: self.used, tf.distribute.get_strategy()
        )

    def train(self, step, seconds_per_step):
        """Makes the steps of a loop; returns the step that it came to, and the loop's rates."""
        leg = next(self.budget.legs([Leg(0, 10**6, True, True)], step), None)
        stop = leg.stop if leg else step
        rates = self.budget.schedule(tf.range(step, stop, dtype=tf.int64)).numpy().tolist()
        self.used += seconds_per_step * (stop - step)
        return stop, rates


def expected_rate(used):
    """Of the paper's schedule stretched over 1000 seconds."""
    share = used / 1000
    return 2.0 * share / 0.2 if share < 0.2 else 2.0 * (1 - share)


def test_the_schedule_stretches_over_the_time():
    machine = Machine()
    machine.used = 30.0  # to start up
    step, rates = machine.train(0, 20.0)  # compiles
    assert step == 1
    step, more = machine.train(step, 0.5)  # nothing is known yet
    assert step == 2
    rates += more
    while True:
        began = machine.used
        stop, more = machine.train(step, 0.5 if step < 900 else 0.25)  # it gets faster
        if stop == step:
            break
        assert machine.used - began <= 20.5 or step < 40
        for i, rate in enumerate(more):
            assert rate == pytest.approx(expected_rate(began + 0.5 * i), abs=0.05)
        rates += more
        step = stop
    assert 999 <= machine.used <= 1000
    assert step == pytest.approx(2 + 898 + (1000 - 499.5) / 0.25, rel=0.01)
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
    # Without XLA the first step takes no time to compile, even on a busy machine.
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
            used = run.used_seconds()
        return trainer.global_step, used, float(budget.schedule(trainer.optimizer.global_step))

    step, used, rate = train(2.5)
    assert step > 10 and 2.0 < used < 4.0 and rate < 0.005
    assert (out / f"model.ckpt-{step}.index").exists()
    again, used, _ = train(2.5)  # nothing is left
    assert again == step
    more, longer, rate = train(used + 2.5)
    assert more > step and longer > used + 1.5 and rate < 0.005
