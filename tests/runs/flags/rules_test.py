"""What the programs' settings refuse: wrong values, and settings that need or exclude others."""

import dataclasses
import math

import pytest

from bert_tf.engine.distribution import PJRT
from bert_tf.export.settings import ExportSettings
from bert_tf.runs.flags.setting_fields import (
    REQUIRED,
    Group,
    Settings,
    flags_of,
    help_text,
    rule_of,
)
from bert_tf.runs.flags.settings import (
    ComputationSettings,
    DeviceSettings,
    FineTuningOptions,
    TrainingSettings,
)
from bert_tf.tasks.classification.processors import ProcessorSettings
from bert_tf.tasks.classification.settings import ClassifierSettings, TableColumns, TfdsSource
from bert_tf.tasks.extraction.settings import ExtractionSettings
from bert_tf.tasks.pretraining.records.data_settings import (
    PackingSettings,
    PretrainingDataSettings,
)
from bert_tf.tasks.pretraining.training.settings import (
    DistillationSettings,
    PretrainingSettings,
    ScheduleSettings,
    parse_phases,
)
from bert_tf.tasks.sentences.settings import SentenceSettings
from bert_tf.tasks.squad.settings import SquadSettings
from bert_tf.tasks.tagging.settings import TaggingSettings
from tests.fuzz.fuzz_flags import settings_classes
from tests.support.refusals import refusal


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kitchen(Settings):
    oven: str = Group.DATA.setting(help="An oven.")
    fuel: str = Group.DATA.setting("gas", help="Fuel.", choices=("gas", "wood", "coal"))
    ash: bool = Group.DATA.setting(False, help="Ash.", needs=["oven", ("fuel", "wood", "coal")])
    lid: bool = Group.DATA.setting(
        True, help="A lid.", excludes="ash", because="it dusts", needs="steam"
    )
    steam: int = Group.DATA.setting(0, help="Steam.", needs_one_of=["lid", "ash"])
    pans: list[str] | None = Group.DATA.setting(None, help="Pans.", needs="pot")
    pot: str | None = Group.DATA.setting(None, help="A pot.", excludes=[("fuel", "coal"), "hot"])
    hot: float = Group.DATA.setting(0.5, help="Heat.")


NO_LID = {"lid": False}


@pytest.mark.parametrize(
    "values, message",
    [
        ({"ash": True}, "--ash needs --fuel=wood or coal; received --fuel=gas. Change one of the"),
        ({"ash": True, "oven": ""}, "--ash needs --oven. Add --oven, or leave --ash out"),
        (NO_LID, "--nolid needs --steam, since it dusts. Add --steam, or leave --nolid out"),
        ({**NO_LID, "steam": 3}, "--steam=3 needs --lid or --ash; received --nolid. Change one of"),
        (
            {**NO_LID, "steam": 3, "ash": True, "fuel": "wood"},
            "--nolid excludes --ash, since it dusts. Leave one of the two out",
        ),
        ({"pans": ["a", "b"]}, "--pans=a,b needs --pot. Add --pot, or leave --pans out"),
        ({"pot": "p", "fuel": "coal"}, "--pot=p excludes --fuel=coal. Leave one of the two out"),
        ({"pot": "p", "hot": 0.7}, "--pot=p excludes --hot=0.7. Leave one of the two out"),
        ({}, None),
        ({"pot": "p"}, None),  # --hot has its default, which nobody can leave out
        ({"steam": 3, "pot": "", "fuel": "coal"}, None),
        ({"ash": True, "fuel": "coal"}, None),
        ({"pans": ["a"], "pot": "p", "fuel": "wood"}, None),
    ],
)
def test_a_rule_is_told_in_full(values, message):
    if message is None:
        Kitchen(**{"oven": "o", **values})
        return
    told = refusal(Kitchen, **{"oven": "o", **values})
    assert told.startswith(message) and told.count(". ") == 1


def test_help_tells_the_rules():
    texts = {field.name: help_text(Kitchen, field) for field in flags_of(Kitchen)}
    assert texts == {
        "oven": "An oven.",
        "fuel": "Fuel.",
        "ash": "Ash. Needs --fuel=wood or coal.",  # --oven is required anyway
        "lid": "A lid. --nolid needs --steam. --nolid excludes --ash.",
        "steam": "Steam. Needs --lid or --ash.",
        "pans": "Pans. Needs --pot.",
        "pot": "A pot. Excludes --fuel=coal and --hot.",
        "hot": "Heat.",
    }


def test_every_rule_is_about_settings_and_values_that_exist():
    checked = 0
    for cls in settings_classes():
        fields = {field.name: field for field in dataclasses.fields(cls)}
        for field in flags_of(cls):
            rule = rule_of(field)
            for other in (*rule.needs, *rule.needs_one_of, *rule.excludes):
                choices = rule_of(fields[other.name]) and rule_of(fields[other.name]).choices
                assert set(other.values) <= set(choices or ("local", PJRT)), (cls, field.name)
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


TEACHER = "needs --teacher_checkpoint"
BEST = "--keep_best and --early_stopping_patience compare evaluations during training"
NEGATIVES = "needs --loss=in_batch_negatives; received"
IN_BATCH = {"loss": "in_batch_negatives"}
ONLY_SOP = "needs --objective=mlm_sop, since only this objective masks n-gra"
SOP = {"objective": "mlm_sop"}
UNMASKED = {"mask": False}
IN_RECORDS = "needs --dynamic_masking, since the masks in rec"
AT_ONE = {"coordinator": "a:1", "tpu": "pjrt"}
OF_TWO = {**AT_ONE, "num_processes": 2}
BOTH = "--coordinator=a:1 needs --num_processes and --process_in"
TAUGHT = {"teacher_checkpoint": "t"}
AN_HOUR = {"max_hours": 1.0, "do_train": True}
BOTH_RUNS = {"do_train": True, "do_eval": True}
ABOVE_0, BELOW_1 = "number above 0 and at most 1", "number of at least 0 and below 1"
RULES = {
    TrainingSettings: [
        ({"gradient_reduction": "mean"}, "must be one of local_clip_sum, global"),
        ({"save_checkpoints_steps": 0}, "must be at least 1"),
        ({"keep_checkpoint_max": -1}, "must be at least 0"),
        ({"output_dir": ""}, "--output_dir= must not be empty"),
        ({"lamb_bias_correction": True}, "needs --optimizer=lamb; received"),
        ({"evaluate_every_steps": 3}, "needs --do_train"),
    ],
    ComputationSettings: [({"dtype": "float16"}, "must be one of float32, bfloat16")],
    DeviceSettings: [
        ({"distribution_strategy": "mirror"}, "must be one of one_device, mirrored, multi"),
        ({"num_cpu_devices": 5000}, "must be between 1 and 64"),
        ({"tpu_name": "t"}, "--tpu_name=t needs --use_tpu. Add --use_tpu, or leave --tpu_name out"),
        ({"tpu_name": "t", "use_tpu": True, "tpu": "local"}, "excludes --tpu=local. Leave one"),
        ({"master": "grpc://a"}, "needs --use_tpu. Add"),
        ({"master": "grpc://a", "use_tpu": True, "tpu_name": "t"}, "excludes --tpu_name=t"),
        ({"gcp_project": "p", "tpu_zone": "us-a", "tpu": "t"}, None),
        ({"tpu_zone": "us-a", "use_tpu": True, "tpu_name": "t"}, None),
        ({"tpu_name": "t", "use_tpu": True, "num_tpu_cores": 8}, None),
        ({"coordinator": "a:1"}, "--coordinator=a:1 needs --tpu=pjrt. Add --tpu=pjrt, or leave"),
        ({**AT_ONE, "tpu": "local"}, "--coordinator=a:1 needs --tpu=pjrt; received --tpu=local"),
        ({"num_processes": 2, "tpu": "pjrt"}, "--num_processes=2 needs --coordinator. Add"),
        ({"process_index": 0, "tpu": "pjrt"}, "--process_index=0 needs --coordinator. Add"),
        (OF_TWO, BOTH),
        ({**AT_ONE, "process_index": 0}, BOTH),
        ({"process_index": 2, **OF_TWO}, "--process_index=2 must be from 0 to 1"),
        ({"process_index": -1, **OF_TWO}, "--process_index=-1 must be at least 0"),
        ({"coordinator": "a", "tpu": "pjrt"}, "--coordinator=a must be the HOST:PORT of process 0"),
        ({"coordinator": "a:0", "tpu": "pjrt"}, "the port from 1 to 65535, or auto"),
        ({"coordinator": "auto", "tpu": "pjrt", "num_processes": 2}, "auto finds the processes by"),
        ({"coordinator": "auto", "tpu": "pjrt"}, None),
        ({**OF_TWO, "process_index": 1}, None),
        # The original's scripts give its defaults.
        ({"num_tpu_cores": 8, "tpu_name": "", "master": ""}, None),
    ],
    FineTuningOptions: [
        ({"export_dir": ""}, "--export_dir= must not be empty"),
        ({"export_dir": "anywhere"}, "needs --do_train, since the model is wri"),
        ({"keep_best": True, "do_train": True}, BEST),
        ({"early_stopping_patience": 2, "do_train": True}, BEST),
        ({"keep_best": True}, None),
    ],
    ClassifierSettings: [
        ({"learning_rate": math.nan}, "must be a finite number of at least 0"),
        ({"warmup_proportion": 1.1}, "must be a finite number between 0 and 1"),
        ({"num_train_epochs": 10**12}, "must be above 0 and at most 10000"),
        ({"eval_batch_size": 10**11}, "must be between 1 and 1048576"),
        *[({"layerwise_lr_decay": x}, ABOVE_0) for x in (0.0, -0.8, 1.0001, math.nan, 1e-50)],
        *[({"label_smoothing": x}, BELOW_1) for x in (-0.1, 1.0, 1.5, math.nan)],
        *[({"threshold": x}, "above 0 and below 1") for x in (0.0, 1.0, -0.5, math.nan)],
        ({"find_threshold": True, "threshold": 0.3}, "excludes --threshold=0.3"),
        ({"temperature_scaling": True, "long_text": "mean"}, "for a long text is not a softmax of"),
        ({"folds": -3}, "--folds=-3 must be at least 0"),
        ({"folds": 3, "do_train": True}, "needs --do_eval, since every fold trains a model"),
        ({"folds": 3, **BOTH_RUNS, "temperature_scaling": True}, "excludes --temperature_scaling"),
        ({"temperature": 4.0}, TEACHER),
        ({"alpha_ce": 0.0}, TEACHER),
        ({"alpha_labels": 1.0}, TEACHER),
        ({"alpha_cos": 1.0}, TEACHER),
        ({"teacher_config_file": "a.json"}, TEACHER),
        ({"copy_teacher_head": True}, TEACHER),
        ({"cos_all_layers": True}, TEACHER),
        ({"temperature": 4.0, **TAUGHT}, None),
        ({"cos_all_layers": True, **TAUGHT}, "needs --alpha_c"),
        ({"temperature": 4.0, "alpha_ce": 0.0, **TAUGHT}, "needs --alpha_ce, since only the loss"),
    ],
    ProcessorSettings: [({"xnli_language": "zz"}, "must be one of ")],
    TableColumns: [
        ({"regression": True, "labels": ["a", "b"]}, "excludes --labels=a,b, since a"),
        *[({"delimiter": x}, "--delimiter must be one character, n") for x in ("::", '"', "\n")],
        ({"labels": ["a", "a"]}, "--labels names a class twice: 'a', 'a'"),
        ({"multi_label": True, "regression": True}, "excludes --regression, since that needs one"),
        ({"multi_label": True, "group_column": "g"}, "excludes --group_column=g, since that needs"),
        ({"label_separator": ","}, "--label_separator=, needs --multi_label"),
    ],
    TaggingSettings: [
        ({"feature_layers": "first"}, "must be one of "),
        ({"feature_layers": "last"}, "needs --feature_based. Add --feature_based"),
        ({"lstm_size": 32}, "needs --feature_based. Add --feature_based"),
        ({"lstm_size": 768, "feature_layers": "concat_last_four"}, None),
        ({"lstm_size": 32, "feature_layers": "last", "feature_based": True}, None),
    ],
    TfdsSource: [
        ({"tfds_data_dir": "d"}, "needs --tfds. Add --tfds"),
        ({"tfds_train_split": "train[:9]"}, "needs --tfds. Add --tfds"),
        ({"tfds_dev_split": "train[9:]"}, "needs --tfds. Add --tfds"),
        ({"tfds_test_split": "x"}, "needs --tfds. Add --tfds"),
        ({"tfds_test_split": "x", "tfds_data_dir": "d", "tfds": "glue/mrpc"}, None),
    ],
    PackingSettings: [({"spill_dir": "s"}, "needs --output_file. Add --output_file")],
    ExtractionSettings: [
        ({"output_format": "csv"}, "must be one of "),
        ({"max_seq_length": 2}, "must be between 3 and 1048576"),
        ({"output_file": ""}, "--output_file= must not be empty"),
    ],
    SentenceSettings: [
        ({"score_scale": 5.0, **IN_BATCH}, "needs --loss=cosine; received --loss"),
        ({"min_positive_score": 0.0}, "needs --loss=in_batch_negatives or triplet; received"),
        ({"similarity_scale": 10.0}, NEGATIVES),
        ({"negative_column": "n"}, "needs --loss=in_batch_negatives or triplet; received --loss"),
        ({"negative_column": "n", **IN_BATCH}, None),
        ({"triplet_margin": 0.1}, "needs --loss=triplet; received --loss=cosine"),
        ({"triplet_margin": 2.5, "loss": "triplet"}, "must be a finite number above 0 and at mo"),
        ({"retrieval_dir": "r"}, "needs --do_eval or --evaluate_every_steps"),
        ({"retrieval_dir": "r", "do_eval": True}, None),
        (
            {"retrieval_dir": "r", "do_eval": True, "dev_fraction": 0.1},
            "excludes --dev_fraction=0.1, since the retrieval set is the set to evaluate on",
        ),
        ({"teacher_checkpoint": "t"}, "needs --loss=teacher; received --loss=cosine"),
        (
            {"matryoshka_dims": "4,2", "loss": "teacher"},
            "excludes --loss=teacher, since a teacher's vectors are learned whole",
        ),
        ({"gradient_accumulation_steps": 4, **IN_BATCH}, None),
    ],
    SquadSettings: [
        ({"doc_stride": 0}, "must be at least 1"),
        ({"null_score_diff_threshold": -1.5}, "needs --version_2_with_negative. Add"),
        ({"null_score_diff_threshold": 0.0}, None),
        *[({"null_score_diff_threshold": x}, "a finite number") for x in (math.nan, math.inf)],
        ({"beam_size": 5}, "--beam_size=5 needs --joint_prediction"),
        ({"answerable_weight": 0.1}, "--answerable_weight=0.1 needs --answerable_classifier"),
        ({"answerable_uses_start_logits": False}, "--noanswerable_uses_start_logits needs --answ"),
        ({"beam_size": 0, "joint_prediction": True}, "--beam_size=0 must be at least 1"),
        ({"null_score_diff_threshold": 2.0, "version_2_with_negative": True}, None),
        ({"do_train": True}, "needs --train_file"),
        ({"do_predict": True}, "needs --predict_file"),
        ({"evaluate_every_steps": 5, "predict_file": "x"}, "needs --do_train, since"),
        (
            {"evaluate_every_steps": 5, "do_train": True, "train_file": "x"},
            "needs --predict_file, since it answers the questions",
        ),
    ],
    ExportSettings: [({"quantize": "int8"}, "needs --format=onnx or litert, since TensorFlow")],
    PretrainingDataSettings: [
        ({"max_seq_length": 10**9}, "must be between 5 and 1048576"),
        ({"masked_lm_prob": 2.0}, "must be a finite number between 0 and 1"),
        ({"output_file": ""}, "--output_file= must not be empty"),
        ({"ngram": 2}, ONLY_SOP),
        ({"do_permutation": True}, ONLY_SOP),
        ({"favor_shorter_ngram": False}, ONLY_SOP),
        ({"ngram": 2, **SOP, **UNMASKED}, "needs --mask, since only"),
        ({"do_permutation": True, **SOP, **UNMASKED}, "needs --mask, since only"),
        ({"favor_shorter_ngram": False, **SOP, **UNMASKED}, "needs --mask, since only"),
        ({"random_next_sentence": True, "objective": "mlm"}, "needs --objective=mlm_sop"),
        ({"random_next_sentence": True, **SOP, **UNMASKED}, None),
        ({"across_documents": False}, "needs --objective=mlm, since pairs of sentences"),
        ({"do_whole_word_mask": True, **UNMASKED}, "needs --mask, since masks drawn w"),
        ({"max_sequences_per_pack": 5}, "needs --pack"),
        (
            {"short_seq_prob": 0.2, "objective": "mlm"},
            "needs --objective=mlm_nsp or mlm_sop, since",
        ),
        ({"short_seq_prob": 0.1, "objective": "mlm"}, None),
        ({"short_seq_prob": 0.0, **SOP}, None),
        ({"masked_lm_prob": 0.2, **UNMASKED}, "needs --mask, since masks drawn while training"),
        ({"tfds_data_dir": "d"}, "needs --tfds. Add"),
        ({"tfds_text_feature": "body"}, "needs --tfds. Add"),
        ({"text_field": "body", "tfds": "x", "input_file": None}, "excludes --tfds=x, since --tf"),
        ({"num_workers": 3}, "needs --num_shards, since workers share out the shards"),
        ({"worker_index": 0}, "needs --num_shards, since workers share out the shards"),
    ],
    ScheduleSettings: [
        ({"train_batch_size": 0}, "must be between 1 and 1048576"),
        ({"num_train_steps": 10**20}, "must be at most 2147483647"),
    ],
    PretrainingSettings: [
        *(
            ({**AN_HOUR, "max_hours": hours}, "must be a finite number above 0")
            for hours in (0.0, -1.0, math.inf, math.nan)
        ),
        ({"eval_input_file": "x"}, "needs --do_eval or --evaluate_every_steps"),
        ({"eval_input_file": "x", "do_eval": True}, None),
        ({"max_hours": 1.0}, "needs --do_train"),
        ({**AN_HOUR, "phases": "12:5:8:2,20:5:4:3"}, "one phase over the time; --phas"),
        ({"dynamic_masking": True}, "needs --vocab_file or --init_checkpoint, since the id"),
        ({"do_whole_word_mask": True}, IN_RECORDS),
        ({"masked_lm_prob": 0.3}, IN_RECORDS),
    ],
    DistillationSettings: [
        ({"cos_all_layers": True, "alpha_cos": 0.0}, "needs --alpha_cos, sinc"),
        ({"temperature": 3.0, "alpha_ce": 0.0}, "needs --alpha_ce, since only the loss"),
        ({"restrict_ce_to_mask": True, "alpha_ce": 0.0}, "needs --alpha_ce or --alpha_mse"),
        ({"restrict_ce_to_mask": True, "alpha_ce": 0.0, "alpha_mse": 1.0}, None),
        ({"dynamic_masking": True}, None),  # the vocabulary may be beside the teacher
        (
            {"student_layers": "0,1", "init_checkpoint": "x"},
            "excludes --init_checkpoint=x, since --init_checkpoint has all of the student",
        ),
    ],
}


@pytest.mark.parametrize(
    "cls, values, message", [(cls, *rule) for cls, rules in RULES.items() for rule in rules]
)
def test_settings_of_the_programs(cls, values, message):
    if message is None:
        make(cls, **values)
        return
    told = refusal(make, cls, **values)
    assert message in told and next(iter(values)) in told
    assert len(told) < 250
