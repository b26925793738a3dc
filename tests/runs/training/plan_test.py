"""Tests of bert_tf.runs.training.plan: pure functions of a step."""

import pytest

from bert_tf.runs.training.plan import Plan, Stretch

PLAN = Plan((40, 20), save_checkpoints_steps=7, evaluate_every_steps=9, iterations_per_loop=5)


def stops(plan, step=0):
    """Returns every step at which a run from `step` on comes back to Python."""
    found = []
    for stretch in plan.remaining(step):
        while step < stretch.end:
            step = plan.next_stop(step, stretch.end)
            found.append(step)
    return found


def test_phases_that_remain():
    first, second = Stretch(0, 0, 40), Stretch(1, 40, 60)
    assert PLAN.remaining(0) == PLAN.remaining(39) == [first, second]
    assert PLAN.remaining(40) == PLAN.remaining(59) == [second]
    assert PLAN.remaining(60) == PLAN.remaining(99) == []
    assert PLAN.total == 60


def test_no_save_evaluation_or_end_of_a_phase_is_passed_over():
    everywhere = set(stops(PLAN))
    assert {step for step in range(1, 61) if PLAN.saves_at(step)} <= everywhere
    assert {step for step in range(1, 61) if PLAN.evaluates_at(step)} <= everywhere
    assert {40, 60} <= everywhere


@pytest.mark.parametrize("step", range(60))
def test_a_resumed_run_stops_where_the_whole_one_does_for_saves_and_evaluations(step):
    plan = Plan((40, 20), 7, 9, 1000)
    assert [s for s in stops(plan) if s > step] == stops(plan, step)


def test_loops_are_no_longer_than_asked_for():
    edges = [0, *stops(PLAN)]
    assert max(b - a for a, b in zip(edges, edges[1:], strict=False)) <= 5


def test_what_is_due_when():
    assert [step for step in range(61) if PLAN.saves_at(step)] == [*range(0, 60, 7), 60]
    assert [step for step in range(61) if PLAN.evaluates_at(step)] == [9, 18, 27, 36, 45, 54]
    never = Plan((60,), 7, 0, 5)
    assert not any(never.evaluates_at(step) for step in range(61))


@pytest.mark.parametrize(("total", "lines"), [(3, 3), (20, 20), (99, 20), (999, 20), (10**6, 1000)])
def test_short_runs_come_back_about_twenty_times_and_long_ones_as_asked(total, lines):
    assert len(stops(Plan((total,), 10**9, 0, 1000))) == lines
