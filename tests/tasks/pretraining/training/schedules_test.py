"""The learning rate of a pre-training run, made of its flags."""

import re

import pytest

from bert_tf.errors import UserError
from bert_tf.tasks.pretraining.training.settings import PretrainingSettings, RecordBatches

PHASES = [RecordBatches(128, 70, 64, 20), RecordBatches(512, 15, 32, 77)]


def settings(phases=PHASES, **changes):
    evaluation = RecordBatches(128, 1, 8, 20)
    return PretrainingSettings(
        **{"phases": phases, "evaluation_batches": evaluation, "input_file": "x", "output_dir": "y"}
        | changes
    )


def schedules(**changes):
    """Returns the number of steps and the configuration of each schedule."""
    made = settings(**changes).schedules()
    assert not any(schedule.scales_decay for _, schedule in made)  # only ELECTRA's
    return [(steps, *list(schedule.get_config().values())[:-1]) for steps, schedule in made]


def test_one_schedule_or_one_for_each_phase():
    assert schedules() == [(85, 5e-5, 85, 10000, 1.0, 0)]
    shape = {"num_warmup_steps": 9, "decay_power": 0.5, "start_warmup_step": -8}
    assert schedules(learning_rate=0.25, **shape) == [(85, 0.25, 85, 9, 0.5, -8)]
    assert schedules(restart_schedule=True, **shape) == [
        (70, 5e-5, 70, 9, 0.5, -8),
        (15, 5e-5, 15, 9, 0.5, -8),
    ]
    rates = {"phase_learning_rates": "6e-3, 4e-3"}
    assert schedules(**rates) == [(70, 6e-3, 70, 10000, 1.0, 0), (15, 4e-3, 15, 10000, 1.0, 0)]
    warmups = {"phase_warmup_steps": "20,0", "learning_rate": 0.5}
    assert schedules(**warmups) == [(70, 0.5, 70, 20, 1.0, 0), (15, 0.5, 15, 0, 1.0, 0)]
    assert schedules(phases=PHASES[1:], phase_learning_rates="1") == [(15, 1.0, 15, 10000, 1.0, 0)]


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"phase_learning_rates": "6e-3"},
            "--phase_learning_rates must have a number for each phase, 2 in all (see --phases),"
            " separated by commas; got '6e-3'",
        ),
        ({"phase_learning_rates": "6e-3,"}, "2 in all (see --phases), separated by commas; got '6"),
        ({"phase_learning_rates": "1,2,3"}, "2 in all"),
        ({"phase_learning_rates": "6e-3,nan"}, "each value must be a finite number of at least 0"),
        ({"phase_warmup_steps": "20,2.5"}, "--phase_warmup_steps must have a number for each"),
        ({"phase_warmup_steps": "20,-1"}, "--phase_warmup_steps=20,-1: each value must be at lea"),
        (
            {"start_warmup_step": -10000},
            "--start_warmup_step=-10000 is beyond the warm-up of 10000 steps (--num_warmup_steps or"
            " --phase_warmup_steps): it must be at most 0 and above -10000. Leave it out",
        ),
        ({"start_warmup_step": 1}, "--start_warmup_step=1 is beyond the warm-up of 10000 steps"),
        ({"start_warmup_step": -1, "num_warmup_steps": 0}, "beyond the warm-up of 0 steps"),
        ({"start_warmup_step": -8, "phase_warmup_steps": "9,8"}, "beyond the warm-up of 8 steps"),
        (
            {"phase_learning_rates": "6e-3,4e-3", "learning_rate": 1.0},
            "--phase_learning_rates=6e-3,4e-3 excludes --learning_rate=1.0",
        ),
        (
            {"phase_warmup_steps": "20,2", "num_warmup_steps": 3},
            "--phase_warmup_steps=20,2 excludes --num_warmup_steps=3",
        ),
        ({"decay_power": 0.0}, "--decay_power=0.0 must be a finite number above 0"),
        ({"optimizer": "adam"}, "--optimizer=adam must be one of adamw, lamb"),
        ({"clip_norm": -1.0}, "--clip_norm=-1.0 must be a finite number of at least 0"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(UserError, match=re.escape(message)):
        settings(**changes)
