"""Settings that need or exclude each other: what is refused, and what --help says."""

import dataclasses

import pytest

from bert_tf.errors import UserError
from bert_tf.export.settings import ExportSettings
from bert_tf.runs.flags.setting_fields import (
    REQUIRED,
    Group,
    Settings,
    flags_of,
    help_text,
    rule_of,
    setting,
)
from bert_tf.runs.flags.settings import FineTuningSettings, TrainingSettings
from bert_tf.tasks.classification.settings import ClassifierSettings, TableColumns
from bert_tf.tasks.pretraining.records.data_settings import PretrainingDataSettings
from bert_tf.tasks.pretraining.training.phases import parse_phases
from bert_tf.tasks.pretraining.training.settings import DistillationSettings, PretrainingSettings
from bert_tf.tasks.sentences.settings import SentenceSettings
from bert_tf.tasks.squad.settings import SquadSettings
from tests.fuzz.fuzz_flags import settings_classes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kitchen(Settings):
    oven: str = setting(help="An oven.", group=Group.DATA)
    fuel: str = setting("gas", help="Fuel.", group=Group.DATA, choices=("gas", "wood", "coal"))
    ash: bool = setting(
        False, help="Ash.", group=Group.DATA, needs=["oven", ("fuel", "wood", "coal")]
    )
    lid: bool = setting(
        True, help="A lid.", group=Group.DATA, excludes="ash", because="it dusts", needs="steam"
    )
    steam: int = setting(0, help="Steam.", group=Group.DATA, needs_one_of=["lid", "ash"])
    pans: list[str] | None = setting(None, help="Pans.", group=Group.DATA, needs="pot")
    pot: str | None = setting(None, help="A pot.", group=Group.DATA, excludes=("fuel", "coal"))


@pytest.mark.parametrize(
    "values, message",
    [
        ({"ash": True}, "--ash needs --fuel=wood or coal; received --fuel=gas. Change one of the"),
        ({"ash": True, "oven": ""}, "--ash needs --oven. Add --oven, or leave --ash out"),
        (
            {"lid": False},
            "--nolid needs --steam, since it dusts. Add --steam, or leave --nolid out",
        ),
        (
            {"lid": False, "steam": 3},
            "--steam=3 needs --lid or --ash; received --nolid. Change one of the two",
        ),
        (
            {"lid": False, "steam": 3, "ash": True, "fuel": "wood"},
            "--nolid excludes --ash, since it dusts. Leave one of the two out",
        ),
        ({"pans": ["a", "b"]}, "--pans=a,b needs --pot. Add --pot, or leave --pans out"),
        ({"pot": "p", "fuel": "coal"}, "--pot=p excludes --fuel=coal. Leave one of the two out"),
        ({}, None),
        ({"steam": 3, "pot": "", "fuel": "coal"}, None),
        ({"ash": True, "fuel": "coal"}, None),
        ({"pans": ["a"], "pot": "p", "fuel": "wood"}, None),
    ],
)
def test_a_rule_is_told_in_full(values, message):
    if message is None:
        Kitchen(**{"oven": "o", **values})
        return
    with pytest.raises(UserError) as error:
        Kitchen(**{"oven": "o", **values})
    assert str(error.value).startswith(message) and str(error.value).count(". ") == 1


def test_help_tells_the_rules():
    texts = {field.name: help_text(Kitchen, field) for field in flags_of(Kitchen)}
    assert texts == {
        "oven": "An oven.",
        "fuel": "Fuel.",
        "ash": "Ash. Needs --fuel=wood or coal.",  # --oven is required anyway
        "lid": "A lid. --nolid needs --steam. --nolid excludes --ash.",
        "steam": "Steam. Needs --lid or --ash.",
        "pans": "Pans. Needs --pot.",
        "pot": "A pot. Excludes --fuel=coal.",
    }


def test_every_rule_is_about_settings_and_values_that_exist():
    checked = 0
    for cls in settings_classes():
        fields = {field.name: field for field in dataclasses.fields(cls)}
        for field in flags_of(cls):
            rule = rule_of(field)
            for other in (*rule.needs, *rule.needs_one_of, *rule.excludes):
                choices = rule_of(fields[other.name]) and rule_of(fields[other.name]).choices
                assert set(other.values) <= set(choices or ()), (cls, field.name)
                checked += 1
    assert checked > 30


def make(cls: type[Settings], **values) -> Settings:
    """Returns settings with "x" for what is required and not given."""
    needed = {field.name: "x" for field in flags_of(cls) if field.default is REQUIRED}
    if issubclass(cls, PretrainingSettings):
        values["phases"] = parse_phases(values.get("phases", "12:5:8:2"))
        needed["evaluation_batches"] = values["phases"][0]
    if cls is PretrainingDataSettings:
        needed["input_file"] = "x"
    return cls(**{**needed, **values})


RECORDS, PRETRAINING = PretrainingDataSettings, PretrainingSettings
TEACHER = "needs --teacher_checkpoint"
BEST = "--keep_best and --early_stopping_patience compare evaluations during training"
IN_BATCH = {"loss": "in_batch_negatives"}
SOP = {"objective": "mlm_sop"}
TWO = {"phases": "12:5:8:2,20:5:4:3"}


@pytest.mark.parametrize(
    "cls, values, message",
    [
        (TrainingSettings, {"lamb_bias_correction": True}, "needs --optimizer=lamb; received"),
        (TrainingSettings, {"evaluate_every_steps": 3}, "needs --do_train"),
        (
            FineTuningSettings,
            {"export_dir": "anywhere"},
            "needs --do_train, since the model is wri",
        ),
        (FineTuningSettings, {"keep_best": True, "do_train": True}, BEST),
        (FineTuningSettings, {"early_stopping_patience": 2, "do_train": True}, BEST),
        (FineTuningSettings, {"keep_best": True}, None),
        (ClassifierSettings, {"temperature": 4.0}, TEACHER),
        (ClassifierSettings, {"alpha_ce": 0.0}, TEACHER),
        (ClassifierSettings, {"alpha_labels": 1.0}, TEACHER),
        (ClassifierSettings, {"alpha_cos": 1.0}, TEACHER),
        (ClassifierSettings, {"teacher_config_file": "a.json"}, TEACHER),
        (ClassifierSettings, {"copy_teacher_head": True}, TEACHER),
        (ClassifierSettings, {"cos_all_layers": True}, TEACHER),
        (ClassifierSettings, {"temperature": 4.0, "teacher_checkpoint": "t"}, None),
        (
            ClassifierSettings,
            {"cos_all_layers": True, "teacher_checkpoint": "t"},
            "needs --alpha_c",
        ),
        (
            DistillationSettings,
            {"cos_all_layers": True, "alpha_cos": 0.0},
            "needs --alpha_cos, sinc",
        ),
        (
            TableColumns,
            {"regression": True, "labels": ["a", "b"]},
            "excludes --labels=a,b, since a",
        ),
        (
            SentenceSettings,
            {"score_scale": 5.0, **IN_BATCH},
            "needs --loss=cosine; received --loss",
        ),
        (
            SentenceSettings,
            {"min_positive_score": 0.0},
            "needs --loss=in_batch_negatives; received",
        ),
        (SentenceSettings, {"similarity_scale": 10.0}, "needs --loss=in_batch_negatives; received"),
        (
            SentenceSettings,
            {"gradient_accumulation_steps": 4, **IN_BATCH},
            "excludes --loss=in_batch_negatives, since a part of a batch would have only its own",
        ),
        (SquadSettings, {"do_train": True}, "needs --train_file"),
        (SquadSettings, {"do_predict": True}, "needs --predict_file"),
        (
            SquadSettings,
            {"evaluate_every_steps": 5, "predict_file": "x"},
            "needs --do_train, since",
        ),
        (
            SquadSettings,
            {"evaluate_every_steps": 5, "do_train": True, "train_file": "x"},
            "needs --predict_file, since it answers the questions",
        ),
        (ExportSettings, {"quantize": "int8"}, "needs --format=onnx or litert, since TensorFlow"),
        (RECORDS, {"ngram": 2}, "needs --objective=mlm_sop, since only this objective masks n-gra"),
        (RECORDS, {"do_permutation": True}, "needs --objective=mlm_sop, since only"),
        (RECORDS, {"favor_shorter_ngram": False}, "needs --objective=mlm_sop, since only"),
        (RECORDS, {"ngram": 2, **SOP, "mask": False}, "needs --mask, since only"),
        (RECORDS, {"do_permutation": True, **SOP, "mask": False}, "needs --mask, since only"),
        (RECORDS, {"favor_shorter_ngram": False, **SOP, "mask": False}, "needs --mask, since only"),
        (RECORDS, {"random_next_sentence": True, "objective": "mlm"}, "needs --objective=mlm_sop"),
        (RECORDS, {"random_next_sentence": True, **SOP, "mask": False}, None),
        (RECORDS, {"across_documents": False}, "needs --objective=mlm, since pairs of sentences"),
        (RECORDS, {"do_whole_word_mask": True, "mask": False}, "needs --mask, since masks drawn w"),
        (RECORDS, {"max_sequences_per_pack": 5}, "needs --pack"),
        (RECORDS, {"num_workers": 3}, "needs --num_shards, since workers share out the shards"),
        (RECORDS, {"worker_index": 0}, "needs --num_shards, since workers share out the shards"),
        (PRETRAINING, {"eval_input_file": "x"}, "needs --do_eval or --evaluate_every_steps"),
        (PRETRAINING, {"eval_input_file": "x", "do_eval": True}, None),
        (PRETRAINING, {"max_hours": 1.0}, "needs --do_train"),
        (
            PRETRAINING,
            {"max_hours": 1.0, "do_train": True, **TWO},
            "one phase over the time; --phas",
        ),
        (PRETRAINING, {"dynamic_masking": True}, "needs --vocab_file, since the id of the mask is"),
        # The vocabulary may be the one beside the teacher.
        (DistillationSettings, {"dynamic_masking": True}, None),
        (
            PRETRAINING,
            {"do_whole_word_mask": True},
            "needs --dynamic_masking, since the masks in r",
        ),
        (PRETRAINING, {"masked_lm_prob": 0.3}, "needs --dynamic_masking, since the masks in rec"),
        (
            DistillationSettings,
            {"student_layers": "0,1", "init_checkpoint": "x"},
            "excludes --init_checkpoint=x, since --init_checkpoint has all of the student",
        ),
    ],
)
def test_settings_of_the_programs(cls, values, message):
    if message is None:
        make(cls, **values)
        return
    with pytest.raises(UserError) as error:
        make(cls, **values)
    assert message in str(error.value) and next(iter(values)) in str(error.value)
    assert len(str(error.value)) < 250
