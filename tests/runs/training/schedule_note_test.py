"""Tests of bert_tf.runs.training.schedule_note: what is said about a changed schedule."""

import json
import os

import pytest
import tensorflow as tf

from bert_tf.optimization import PolynomialSchedule, linear_schedule, restarting_schedule
from bert_tf.runs.training.schedule_note import FILE_NAME, note_schedule
from tests.support.line_task import phases, trainer

OLD = linear_schedule(5e-4, 60, 10)
TWO = restarting_schedule(
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
    before = (tmp_path / FILE_NAME).read_text()
    note_schedule(str(tmp_path), lambda step: tf.constant(0.1), 9)
    note_schedule(str(tmp_path), restarting_schedule([(5, lambda step: step)]), 9)
    assert (tmp_path / FILE_NAME).read_text() == before
    assert caplog.text == ""


@pytest.mark.parametrize(
    "content", ["{", "[[1, {}]]", "[7]", '[["a", {"init_lr": 1}]]', "{}", '{"max_hours": "x"}']
)
def test_a_damaged_note_is_told_and_replaced(content, tmp_path, caplog):
    path = tmp_path / FILE_NAME
    path.write_text(content)
    note_schedule(str(tmp_path), OLD, 30)
    assert f"Whether the learning rate changes is not known: {path}" in caplog.text
    assert json.loads(path.read_text())[0][1]["init_lr"] == 5e-4


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
