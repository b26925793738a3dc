"""Settings: what their fields refuse, what a subclass changes, and how a model computes."""

import dataclasses
import math
import re

import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.runs.flags.setting_fields import REQUIRED, Group, Settings, inherit, rule_of
from bert_tf.runs.flags.settings import ComputationSettings, FineTuningOptions, TrainingSettings
from bert_tf.runs.training.trainer import model_options
from bert_tf.tasks.pretraining.training.settings import PretrainingSettings, ScheduleSettings
from bert_tf.tasks.squad.settings import SquadSettings
from bert_tf.tasks.tagging.settings import TaggingSettings
from tests.support.refusals import refuses

FLOAT32 = r", also in float32: 0, or from 1.2e-38 to 8.5e\+37"
PATHS = {"output_dir": "out", "vocab_file": "vocab.txt"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kinds(Settings):
    count: int = Group.DATA.setting(3, help="A count.", at_least=2)
    share: float = Group.DATA.setting(0.5, help="A share.", at_least=0.0, at_most=1.0)
    rate: float | None = Group.TRAINING.setting(None, help="A rate.", above=0.0)
    colour: str = Group.MODEL.setting("red", help="A colour.", choices=["red", "blue"])
    passes: float = Group.DATA.setting(1.0, help="Passes.", above=0.0, at_most=50)
    threshold: float = Group.DATA.setting(0.0, help="A threshold.")
    folder: str | None = Group.OUTPUT.setting(None, help="A folder.", not_empty=True)
    seed: int = Group.DATA.setting(0, help="A seed.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Changed(Kinds):
    count: int = inherit(Kinds, "count", default=7, at_least=5)
    colour: str = inherit(Kinds, "colour", default=REQUIRED)


def test_what_a_field_refuses():
    for changes, message in (
        ({"count": 1}, "--count=1 must be at least 2"),
        ({"share": 1.5}, "--share=1.5 must be a finite number between 0 and 1"),
        ({"share": math.nan}, "--share=nan must be a finite number between 0 and 1"),
        ({"rate": 0.0}, "--rate=0.0 must be a finite number above 0"),
        ({"rate": math.inf}, "--rate=inf must be a finite number above 0"),
        ({"colour": "blu"}, "--colour=blu must be one of red, blue"),
        ({"colour": "a\nb"}, r"--colour='a\\nb' must be one of red, blue"),
        ({"colour": "x" * 10**6}, r"--colour='x{45} \[\.\.\.\] x{45}' must be one of red, blue"),
        ({"count": 2**31}, "--count=2147483648 must be at most 2147483647"),
        ({"count": 10**400}, r"--count=10{45} \[\.\.\.\] 0{46} must be at most 2147483647"),
        ({"share": 10**400}, r"--share=10{45} .* must be between 0 and 1"),
        ({"passes": 51}, "--passes=51 must be above 0 and at most 50"),
        ({"passes": 1e308}, r"--passes=1e\+308 must be a finite number above 0 and at most 50"),
        ({"threshold": math.nan}, "--threshold=nan must be a finite number"),
        ({"threshold": -math.inf}, "--threshold=-inf must be a finite number"),
        ({"rate": 1e300}, rf"--rate=1e\+300 must be a finite number above 0{FLOAT32}"),
        ({"rate": 1e-50}, f"--rate=1e-50 must be a finite number above 0{FLOAT32}"),
        ({"share": 1e-40}, f"--share=1e-40 must be a finite number between 0 and 1{FLOAT32}"),
        ({"threshold": -3.4e39}, rf"--threshold=-3.4e\+39 must be a finite number{FLOAT32}"),
        ({"threshold": 1e38}, rf"--threshold=1e\+38 must be a finite number{FLOAT32}"),
        ({"folder": ""}, "--folder= must not be empty"),
    ):
        refuses(f"^{message}$", Kinds, **changes)
        refuses(f"^{message}$", dataclasses.replace, Kinds(), **changes)


def test_a_subclass_changes_what_it_names_and_keeps_the_rest():
    assert Changed(colour="red").count == 7
    refuses("--count=4 must be at least 5", Changed, colour="red", count=4)
    refuses("colour", Changed, kind=TypeError)
    fields = {field.name: rule_of(field) for field in dataclasses.fields(Changed)}
    assert fields["count"].help == "A count." and fields["colour"].choices == ("red", "blue")
    assert Kinds().count == 3


def test_defaults_and_bounds_are_allowed():
    squad, tagging = SquadSettings(**PATHS), TaggingSettings(**PATHS)
    fine_tuning = FineTuningOptions(**PATHS)
    assert (squad.max_seq_length, squad.length_buckets) == (384, "none")
    assert (fine_tuning.max_seq_length, fine_tuning.length_buckets) == (128, "auto")
    assert not tagging.do_lower_case and fine_tuning.do_lower_case
    assert Kinds(count=2, share=0.0, colour="blue").share == 0.0
    assert Kinds(share=1.0, rate=1e-30).rate == 1e-30
    assert Kinds(share=2.0**-126, threshold=-(2.0**126)).share > 0.0
    assert Kinds(count=2**31 - 1, passes=50, seed=-(10**20)).seed == -(10**20)


def test_what_sets_the_amount_of_training_are_flags_of_the_program():
    for settings, program, expected in (
        (FineTuningOptions, FineTuningOptions, {"num_train_epochs"}),
        (PretrainingSettings, ScheduleSettings, {"num_train_steps", "phases"}),
    ):
        named = set(re.findall(r"--(\w+)", settings.amount_of_training))
        assert named == expected
        assert named <= {field.name for field in dataclasses.fields(program)}


def test_how_a_model_computes_follows_from_settings_and_device():
    for given, on_cpu, on_tpu in (
        ({}, ("float32", False), ("bfloat16", True)),
        ({"dtype": "float32"}, ("float32", False), ("float32", True)),
        ({"use_one_hot_embeddings": False}, ("float32", False), ("bfloat16", False)),
        ({"dtype": "bfloat16", "use_one_hot_embeddings": True}, *[("bfloat16", True)] * 2),
    ):
        cpu = tf.distribute.get_strategy()
        tpu = object.__new__(tf.distribute.TPUStrategy)  # its constructor needs a TPU
        for strategy, expected in ((cpu, on_cpu), (tpu, on_tpu)):
            options = model_options(ComputationSettings(**given), strategy)
            assert (options.pop("dtype"), options.pop("use_one_hot_embeddings")) == expected
            assert not options
        training = TrainingSettings(output_dir="x", recompute_activations=True, **given)
        assert model_options(training, cpu)["recompute_activations"] is True


def test_phases_and_what_the_command_line_gives():
    plain = ScheduleSettings(max_seq_length=64, num_train_steps=7, eval_batch_size=3)
    phases, evaluation = plain.make_phases({"max_seq_length", "num_train_steps"})
    assert [dataclasses.astuple(phase) for phase in phases] == [(64, 7, 32, 20)]
    assert dataclasses.astuple(evaluation) == (64, 100, 3, 20)
    schedule = ScheduleSettings(phases="128:9:256:20,512:1:128:77")
    phases, evaluation = schedule.make_phases(())
    assert [phase.num_steps for phase in phases] == [9, 1]
    assert dataclasses.astuple(evaluation) == (512, 100, 8, 77)
    # --max_seq_length=128 on the command line, though it is the default.
    _, evaluation = schedule.make_phases({"max_seq_length"})
    assert dataclasses.astuple(evaluation) == (128, 100, 8, 20)
    for phases, message in (
        ("128:9:256:20,512:100000000000000000000:128:77", "num_train_steps=10{20} must be at most"),
        ("128:9:2000000:20", "train_batch_size=2000000 must be between 1 and 1048576"),
        ("128:1" + 5000 * "0" + ":9:20", "--phases must be a comma-separated list of .{100,250}$"),
    ):
        refuses(message, ScheduleSettings(phases=phases).make_phases, ())
    with pytest.raises(UserError, match="--phases=128:9:256:20 excludes --train_batch_size=8"):
        ScheduleSettings(phases="128:9:256:20", train_batch_size=8)
