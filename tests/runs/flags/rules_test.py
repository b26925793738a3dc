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
from bert_tf.tasks.pretraining.records.data_settings import (
    PretrainingDataSettings,
)
from bert_tf.tasks.pretraining.training.phases import parse_phases
from bert_tf.tasks.pretraining.training.settings import DistillationSettings, PretrainingSettings
from bert_tf.tasks.sentences.settings import SentenceSettings
from bert_tf.tasks.squad.settings import SquadSettings
from tests.fuzz.fuzz_flags import settings_classes


def make(cls: type[Settings], **values) -> Settings:
    """Returns settings with "x" for what is required and not given."""
    names = {field.name for field in dataclasses.fields(cls)}
    needed = {f.name: "x" for f in flags_of(cls) if f.default is REQUIRED}
    if "evaluation_phase" in names:
        phases = parse_phases(values.pop("phases", "12:5:8:2"))
        needed |= {"phases": phases, "evaluation_phase": phases[0]}
    if cls is PretrainingDataSettings:
        needed["input_file"] = "x"
    return cls(**{**needed, **values})


IN_BATCH = {"loss": "in_batch_negatives"}
SOP = {"objective": "mlm_sop"}
# Settings, values -> the whole message.
REFUSED = [
    (
        TrainingSettings,
        {"lamb_bias_correction": True},
        "--lamb_bias_correction needs --optimizer=lamb; received --optimizer=adamw. Change one of"
        " the two",
    ),
    (
        TrainingSettings,
        {"evaluate_every_steps": 3},
        "--evaluate_every_steps=3 needs --do_train. Add --do_train, or leave"
        " --evaluate_every_steps out",
    ),
    (
        FineTuningSettings,
        {"export_dir": "anywhere"},
        "--export_dir=anywhere needs --do_train, since the model is written after training. Add"
        " --do_train, or leave --export_dir out",
    ),
    *(
        (
            FineTuningSettings,
            {**changes, "do_train": True},
            "--keep_best and --early_stopping_patience compare evaluations during training; set how"
            " often to evaluate with --evaluate_every_steps",
        )
        for changes in ({"keep_best": True}, {"early_stopping_patience": 2})
    ),
    *(
        (
            ClassifierSettings,
            {name: value},
            f"--{written} needs --teacher_checkpoint. Add --teacher_checkpoint, or leave --{name}"
            " out",
        )
        for name, value, written in (
            ("temperature", 4.0, "temperature=4.0"),
            ("alpha_ce", 0.0, "alpha_ce=0.0"),
            ("alpha_labels", 1.0, "alpha_labels=1.0"),
            ("alpha_cos", 1.0, "alpha_cos=1.0"),
            ("teacher_config_file", "a.json", "teacher_config_file=a.json"),
            ("copy_teacher_head", True, "copy_teacher_head"),
        )
    ),
    (
        ClassifierSettings,
        {"teacher_checkpoint": "t", "cos_all_layers": True},
        "--cos_all_layers needs --alpha_cos, since it says which vectors the loss of weight"
        " --alpha_cos compares. Add --alpha_cos, or leave --cos_all_layers out",
    ),
    (
        DistillationSettings,
        {"alpha_cos": 0.0, "cos_all_layers": True},
        "--cos_all_layers needs --alpha_cos, since it says which vectors the loss of weight"
        " --alpha_cos compares; received --alpha_cos=0.0. Change one of the two",
    ),
    (
        TableColumns,
        {"labels": ["a", "b"], "regression": True},
        "--regression excludes --labels=a,b, since a regression has no classes. Leave one of the"
        " two out",
    ),
    (
        SentenceSettings,
        {**IN_BATCH, "score_scale": 5.0},
        "--score_scale=5.0 needs --loss=cosine; received --loss=in_batch_negatives. Change one of"
        " the two",
    ),
    *(
        (
            SentenceSettings,
            {name: value},
            f"--{name}={value} needs --loss=in_batch_negatives; received --loss=cosine. Change one"
            " of the two",
        )
        for name, value in (("min_positive_score", 0.0), ("similarity_scale", 10.0))
    ),
    (
        SentenceSettings,
        {**IN_BATCH, "gradient_accumulation_steps": 4},
        "--gradient_accumulation_steps=4 excludes --loss=in_batch_negatives, since a part of a"
        " batch would have only its own negatives (--recompute_activations saves memory, too)."
        " Leave one of the two out",
    ),
    (
        SquadSettings,
        {"do_train": True},
        "--do_train needs --train_file. Add --train_file, or leave --do_train out",
    ),
    (
        SquadSettings,
        {"do_predict": True},
        "--do_predict needs --predict_file. Add --predict_file, or leave --do_predict out",
    ),
    *(
        (
            SquadSettings,
            {"evaluate_every_steps": 5, **changes},
            f"--evaluate_every_steps=5 needs --{other}, since it answers the questions of"
            f" --predict_file while it trains. Add --{other}, or leave --evaluate_every_steps out",
        )
        for other, changes in (
            ("do_train", {"predict_file": "x"}),
            ("predict_file", {"do_train": True, "train_file": "x"}),
        )
    ),
    (
        ExportSettings,
        {"quantize": "int8"},
        "--quantize=int8 needs --format=onnx or litert, since TensorFlow computes a saved_model in"
        " float32; received --format=saved_model. Change one of the two",
    ),
    *(
        (
            PretrainingDataSettings,
            {**more, name: value},
            f"--{written} needs --{other}, since only this objective masks n-grams, and only when"
            f" the records are made; received --{received}. Change one of the two",
        )
        for name, value, written in (
            ("ngram", 2, "ngram=2"),
            ("do_permutation", True, "do_permutation"),
            ("favor_shorter_ngram", False, "nofavor_shorter_ngram"),
        )
        for more, other, received in (
            ({}, "objective=mlm_sop", "objective=mlm_nsp"),
            ({**SOP, "mask": False}, "mask", "nomask"),
        )
    ),
    (
        PretrainingDataSettings,
        {"random_next_sentence": True, "objective": "mlm"},
        "--random_next_sentence needs --objective=mlm_sop; received --objective=mlm. Change one of"
        " the two",
    ),
    (
        PretrainingDataSettings,
        {"across_documents": False},
        "--noacross_documents needs --objective=mlm, since pairs of sentences never cross"
        " documents; received --objective=mlm_nsp. Change one of the two",
    ),
    (
        PretrainingDataSettings,
        {"mask": False, "do_whole_word_mask": True},
        "--do_whole_word_mask needs --mask, since masks drawn while training follow"
        " run_pretraining.py --do_whole_word_mask; received --nomask. Change one of the two",
    ),
    (
        PretrainingDataSettings,
        {"max_sequences_per_pack": 5},
        "--max_sequences_per_pack=5 needs --pack. Add --pack, or leave --max_sequences_per_pack"
        " out",
    ),
    *(
        (
            PretrainingDataSettings,
            {name: value},
            f"--{name}={value} needs --num_shards, since workers share out the shards. Add"
            f" --num_shards, or leave --{name} out",
        )
        for name, value in (("num_workers", 3), ("worker_index", 0))
    ),
    (
        PretrainingSettings,
        {"eval_input_file": "x"},
        "--eval_input_file=x needs --do_eval or --evaluate_every_steps. Add --do_eval or"
        " --evaluate_every_steps, or leave --eval_input_file out",
    ),
    (
        PretrainingSettings,
        {"max_hours": 1.0},
        "--max_hours=1.0 needs --do_train. Add --do_train, or leave --max_hours out",
    ),
    (
        PretrainingSettings,
        {"do_train": True, "max_hours": 1.0, "phases": "12:5:8:2,20:5:4:3"},
        "--max_hours stretches one phase over the time; --phases has 2. Train them one after"
        " another, each with its --max_hours and --output_dir, the later ones with"
        " --init_checkpoint",
    ),
    (
        PretrainingSettings,
        {"dynamic_masking": True},
        "--dynamic_masking needs --vocab_file, since the id of the mask is in the vocabulary of the"
        " records. Add --vocab_file, or leave --dynamic_masking out",
    ),
    *(
        (
            PretrainingSettings,
            {name: value},
            f"--{written} needs --dynamic_masking, since the masks in records are made by"
            f" create_pretraining_data.py --{name}. Add --dynamic_masking, or leave --{name} out",
        )
        for name, value, written in (
            ("do_whole_word_mask", True, "do_whole_word_mask"),
            ("masked_lm_prob", 0.3, "masked_lm_prob=0.3"),
        )
    ),
    (
        DistillationSettings,
        {"student_layers": "0,1", "init_checkpoint": "x"},
        "--student_layers=0,1 excludes --init_checkpoint=x, since --init_checkpoint has all of the"
        " student's initial weights. Leave one of the two out",
    ),
]


@pytest.mark.parametrize("cls, values, message", REFUSED)
def test_settings_that_contradict_each_other(cls, values, message):
    with pytest.raises(UserError) as error:
        make(cls, **values)
    assert str(error.value) == message


@pytest.mark.parametrize(
    "cls, values",
    [
        (FineTuningSettings, {"keep_best": True}),
        (ClassifierSettings, {"temperature": 2.0, "teacher_config_file": ""}),
        (ClassifierSettings, {"teacher_checkpoint": "t", "temperature": 4.0}),
        (PretrainingSettings, {"eval_input_file": ""}),
        (PretrainingSettings, {"eval_input_file": "x", "do_eval": True}),
        (
            PretrainingSettings,
            {"eval_input_file": "x", "do_train": True, "evaluate_every_steps": 1},
        ),
        (PretrainingDataSettings, {"random_next_sentence": True, **SOP, "mask": False}),
        # The vocabulary may be the one beside the teacher.
        (DistillationSettings, {"dynamic_masking": True}),
    ],
)
def test_settings_that_go_together(cls, values):
    make(cls, **values)


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kitchen(Settings):
    oven: str = setting(help="An oven.", group=Group.DATA)
    fuel: str = setting("gas", help="Fuel.", group=Group.DATA, choices=("gas", "wood", "coal"))
    ash: bool = setting(
        False, help="Ash.", group=Group.DATA, needs=["oven", ("fuel", "wood", "coal")]
    )
    lid: bool = setting(True, help="A lid.", group=Group.DATA, excludes="ash", needs="steam")
    steam: int = setting(0, help="Steam.", group=Group.DATA, needs_one_of=["lid", "ash"])


def test_help_tells_the_rules():
    texts = {field.name: help_text(Kitchen, field) for field in flags_of(Kitchen)}
    assert texts == {
        "oven": "An oven.",
        "fuel": "Fuel.",
        "ash": "Ash. Needs --fuel=wood or coal.",
        "lid": "A lid. --nolid needs --steam. --nolid excludes --ash.",
        "steam": "Steam. Needs --lid or --ash.",
    }
