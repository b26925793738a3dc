"""The recipes in flags/: the released models' configurations, the flagfiles, the quickstart.

Also the settings of the papers of the family, in flags/albert, flags/roberta and flags/electra.
"""

import functools
import json
import os
import re
import sys
from pathlib import Path

import pytest

from bert_tf import modeling
from bert_tf.model.family import RobertaConfig, config_from_dict, read_config
from bert_tf.modeling import AlbertConfig
from bert_tf.tasks.pretraining.training.electra import ElectraPretrainingModel
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from tests.support import forked_programs
from tests.support.golden import needs_golden
from tests.support.shapes import variables_without_values
from tests.tasks.recipes_test import FLAGS, values

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT / "flags" / "models"
QUICKSTART = ROOT / "flags" / "quickstart"

RELEASED = [
    *(
        f"uncased_L-{n}_H-{h}_A-{h // 64}"
        for n in (2, 4, 6, 8, 10, 12)
        for h in (128, 256, 512, 768)
    ),
    *(f"{text}_L-24_H-1024_A-16" for text in ("cased", "uncased", "wwm_cased", "wwm_uncased")),
    *(f"{text}_L-12_H-768_A-12" for text in ("cased", "chinese", "multi_cased", "multilingual")),
]
VOCAB_SIZES = {"cased": 28996, "chinese": 21128, "multi_cased": 119547, "multilingual": 105879}
VOCAB_SIZES |= {"uncased": 30522, "wwm_cased": 28996, "wwm_uncased": 30522}


def parameters(vocab_size, layers, hidden):
    """Returns the trainable parameters of BERT with the pooler and without heads.

    Word, position and segment embeddings with their LayerNorm, the layers, the pooler.
    """
    embeddings = (vocab_size + 512 + 2 + 2) * hidden
    layer = 12 * hidden**2 + 13 * hidden
    return embeddings + layers * layer + hidden**2 + hidden


def counts(build, config):
    """Returns the parameters of a model's BERT and of all of it; every layer has the same number.

    build: makes a model of a configuration.
    """
    found = []
    for num_layers in (1, 2):
        sizes = {**config.to_dict(), "num_hidden_layers": num_layers}
        with variables_without_values():
            model = build(type(config).from_dict(sizes))
            bert = getattr(model, "bert", model)
            found.append((bert.count_params(), model.count_params()))
    layers = config.num_hidden_layers - 1
    return tuple(one + layers * (two - one) for one, two in zip(*found, strict=True))


# The same of the family's models, and with the heads of pre-training.
FAMILY_PARAMETERS = {
    "electra_small": (13_483_008, 14_196_219),
    "electra_base": (108_891_648, 119_386_427),
    "electra_large": (334_092_288, 354_655_291),
    "albert_base": (11_683_584, 11_813_810),
    "albert_large": (17_683_968, 17_847_474),
    "albert_xlarge": (58_724_864, 59_021_490),
    "albert_xxlarge": (222_595_584, 223_158_450),
    "roberta_base": (124_645_632, 125_288_025),
    "roberta_large": (355_359_744, 356_461_657),
}
ALBERT_SIZES = ("base", "large", "xlarge", "xxlarge")


def albert_file(size, version=2):
    return MODELS / f"albert_{size}_v{version}" / "albert_config.json"


def other_file(family, size):
    return MODELS / f"{family}_{size}" / "bert_config.json"


def test_every_released_model_has_a_configuration():
    bert = {MODELS / name / "bert_config.json" for name in RELEASED}
    albert = {albert_file(size, version) for size in ALBERT_SIZES for version in (1, 2)}
    others = {("roberta", "base"), ("roberta", "large"), ("electra", "small")}
    others |= {("electra", "base"), ("electra", "large")}
    assert set(MODELS.glob("*/*")) == bert | albert | {other_file(*names) for names in others}
    # The sizes are BERT's, all else is roberta-base's.
    for size, sizes in (("base", (768, 12, 12, 3072)), ("large", (1024, 24, 16, 4096))):
        content = json.loads(other_file("roberta", size).read_text())
        assert content == RobertaConfig(50265, *sizes).to_dict()
        config = config_from_dict(content)
        assert isinstance(config, RobertaConfig) and config.to_dict() == content


@pytest.mark.parametrize("name", FAMILY_PARAMETERS)
def test_parameters_of_the_family(name):
    family, size = name.split("_")
    path = albert_file(size) if family == "albert" else other_file(family, size)
    config, build = read_config(str(path)), PretrainingModel
    if family == "electra":
        share = 1 / 3 if size == "base" else 0.25
        build = functools.partial(ElectraPretrainingModel, generator_hidden_size=share)
    assert counts(build, config) == FAMILY_PARAMETERS[name]
    page = (ROOT / "docs" / f"{family}.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith(f"| {size} "))
    sizes = config.hidden_size, config.num_hidden_layers, config.num_attention_heads
    assert all(f" {number:,} " in row for number in (FAMILY_PARAMETERS[name][0], *sizes))


@pytest.mark.parametrize("size", ALBERT_SIZES)
def test_albert_configuration(size):
    v1, v2 = (json.loads(albert_file(size, version).read_text()) for version in (1, 2))
    dropout = ("attention_probs_dropout_prob", "hidden_dropout_prob")
    assert [v2[key] for key in dropout] == [0.0, 0.0]
    assert [v1[key] for key in dropout] == [0.0 if size == "xxlarge" else 0.1] * 2
    assert v1.keys() == v2.keys() == AlbertConfig(2).to_dict().keys()
    assert all(v1[key] == v2[key] for key in v1.keys() - set(dropout))
    assert v1["intermediate_size"] == 4 * v1["hidden_size"]


def sizes_in(name):
    """Returns the size of the vocabulary, the layers, the hidden size and the heads of a model."""
    text, *sizes = re.fullmatch(r"(\w+)_L-(\d+)_H-(\d+)_A-(\d+)", name).groups()
    return VOCAB_SIZES[text], *map(int, sizes)


@pytest.mark.parametrize("name", RELEASED)
def test_configuration(name):
    path = MODELS / name / "bert_config.json"
    vocab_size, layers, hidden, heads = sizes_in(name)
    expected = {"hidden_size": hidden, "num_attention_heads": heads, "num_hidden_layers": layers}
    expected |= {"intermediate_size": 4 * hidden, "vocab_size": vocab_size, "hidden_act": "gelu"}
    expected |= dict.fromkeys(("attention_probs_dropout_prob", "hidden_dropout_prob"), 0.1)
    expected |= {"initializer_range": 0.02, "max_position_embeddings": 512, "type_vocab_size": 2}
    assert json.loads(path.read_text(encoding="utf-8")) == expected
    assert modeling.BertConfig.from_json_file(str(path)).num_hidden_layers == layers
    page = (ROOT / "docs" / "checkpoints.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if f"/{name}.zip" in line)
    count = f"{parameters(vocab_size, layers, hidden):,}"
    assert count in row, f"docs/checkpoints.md gives another parameter count for {name}"


@pytest.mark.parametrize("name", [RELEASED[0], RELEASED[7], "chinese_L-12_H-768_A-12"])
def test_the_parameters_are_the_model_s(name):
    config = modeling.BertConfig.from_json_file(str(MODELS / name / "bert_config.json"))
    assert counts(modeling.BertModel, config)[0] == parameters(*sizes_in(name)[:3])


@needs_golden
@pytest.mark.parametrize(
    "released, name",
    [
        ("uncased_L-8_H-512_A-8", "uncased_L-8_H-512_A-8"),
        ("chinese_L-12_H-768_A-12_wwm", "chinese_L-12_H-768_A-12"),
    ],
)
def test_configuration_is_the_released_one(released, name):
    folder = Path(os.environ["BERT_TF_GOLDEN"]).parent / "released" / released
    theirs = json.loads((folder / "bert_config.json").read_text(encoding="utf-8"))
    ours = json.loads((MODELS / name / "bert_config.json").read_text(encoding="utf-8"))
    # The older files hold keys that the original reads nowhere either.
    unread = {key for key in theirs if key.startswith("pooler_") or key == "directionality"}
    assert ours == {key: value for key, value in theirs.items() if key not in unread}


FLAGFILES = sorted(ROOT.glob("flags/**/*.flags"))


@pytest.mark.parametrize("path", FLAGFILES, ids=lambda path: path.name)
def test_flagfile(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    comments = "\n".join(lines[: next(i for i, line in enumerate(lines) if line[:1] != "#")])
    for heading in ("Source:", "Command:", "Hardware:", "Expected:"):
        assert heading in comments, f"{path} opens without {heading}"
    assert f"--flagfile={path.relative_to(ROOT)}" in comments
    names = []
    for line in lines:
        # absl expands no variable and takes a comment behind a value for a part of the value.
        assert re.fullmatch(r"#.*|--\w+(=[^#$]*)?|", line), f"{path}: {line!r}"
        names += re.findall(r"^--(\w+)", line)
        for value in re.findall(r"=(flags/[^,]+)$", line):
            assert (ROOT / value).exists(), f"{path}: {value} does not exist"
    assert names and len(names) == len(set(names)), f"{path}: the last of two values wins"


FOLDERS = {"run_pretraining": "pretraining", "run_distillation": "distillation"}
# BERT's paper, A.2; masked positions as in the original's README: 0.15 of the length.
PAPER = {
    "phases": [[128, 900_000, 256, 20], [512, 100_000, 256, 77]],
    "schedules": [[1e-4, 1_000_000, 10_000, 1.0, 0]],
    "flags": {"do_train": True, "dtype": None, "restart_schedule": False},
}
BERT = ["uncased_base", "uncased_large", "cased_base", "cased_large"]
# Liu et al. (2019), Table 9.
ROBERTA = {
    "phases": [[512, 500_000, 8192, 77]],
    "flags": {
        **{"beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-6, "weight_decay_rate": 0.01},
        **{"objective": "mlm", "dynamic_masking": True, "masked_lm_prob": 0.15, "clip_norm": 0.0},
    },
}
RECIPES = {
    **dict.fromkeys(BERT, PAPER),
    "roberta_base": {**ROBERTA, "schedules": [[6e-4, 500_000, 24_000, 1.0, 0]]},
    "roberta_large": {**ROBERTA, "schedules": [[4e-4, 500_000, 30_000, 1.0, 0]]},
    # Lan et al. (2019), section 4.1 and table 10.
    "albert": {
        "phases": [[512, 125_000, 4096, 20]],
        "schedules": [[0.00176, 125_000, 3125, 1.0, 0]],
        "flags": {"objective": "mlm_sop", "optimizer": "lamb"},
    },
    # Clark et al. (2020), table 6.
    **{
        f"electra_{size}": {
            "phases": [[length, steps, batch, predictions]],
            "schedules": [[rate, steps, 10_000, 1.0, 0]],
            "flags": {"objective": "electra", "mask_prob": share, "disc_weight": 50.0},
        }
        for size, length, steps, batch, predictions, rate, share in (
            ("small", 128, 1_000_000, 128, 19, 5e-4, 0.15),
            ("base", 512, 766_000, 256, 79, 2e-4, 0.15),
            ("large", 512, 400_000, 2048, 130, 2e-4, 0.25),
        )
    },
    # You et al. (2020) with NVIDIA's rates.
    "lamb_large": {
        "phases": [[128, 7038, 65536, 20], [512, 1563, 32768, 77]],
        "schedules": [[6e-3, 7038, 2000, 1.0, 0], [4e-3, 1563, 200, 1.0, 0]],
        "flags": {
            **{"optimizer": "lamb", "lamb_bias_correction": False},
            **{"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-6},
        },
    },
    # MLPerf's reference point bert_ref_8192.
    "mlperf_large": {
        "phases": [[512, 600, 8192, 76]],
        "schedules": [[0.00288293, 600, 287, 1.0, -76]],
        "flags": {
            **{"optimizer": "lamb", "weight_decay_rate": 0.0166629},
            **{"beta_1": 0.88, "beta_2": 0.88, "epsilon": 1e-6},
        },
    },
    # Sanh et al. (2019), sections 2 and 3, and the defaults of transformers' train.py.
    "distilbert": {
        "phases": [[512, 6500, 4096, 77]],
        "schedules": [[5e-4, 6500, 325, 1.0, 0]],
        "flags": {
            **{"alpha_ce": 5.0, "alpha_mlm": 2.0, "alpha_cos": 1.0, "alpha_mse": 0.0},
            **{"temperature": 2.0, "student_layers": "0,2,4,7,9,11", "dynamic_masking": True},
            **{"beta_1": 0.9, "beta_2": 0.98, "epsilon": 1e-6, "clip_norm": 5.0},
        },
    },
}
READ_FLAGS = """
import importlib, json, sys
from absl.flags import FLAGS
from bert_tf.runs.flags import command_flags
name, folder, *recipes = sys.argv[1:]
program = importlib.import_module(name)
required = {"input_file", "output_dir", "vocab_file", "teacher_checkpoint"} & set(FLAGS)
found = {}
for recipe in recipes:
    for flag in FLAGS:
        FLAGS[flag].unparse()
    flagfile = f"--flagfile=flags/{folder}/{recipe}.flags"
    FLAGS([name, flagfile, *(f"--{flag}=x" for flag in required)])
    settings = command_flags.settings_from_flags(program.SETTINGS[0])
    values = {flag: FLAGS[flag].value for flag in FLAGS}
    phases = [list(vars(phase).values()) for phase in settings.phases]
    schedules = [list(schedule.get_config().values()) for _, schedule in settings.schedules()]
    found[recipe] = {"flags": values, "phases": phases, "schedules": schedules}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def recipes():
    """What the real programs' flags make of each recipe, in processes of their own."""
    found = {}
    for program, folder in FOLDERS.items():
        names = [name for name in RECIPES if (ROOT / "flags" / folder / f"{name}.flags").exists()]
        command = [sys.executable, "-c", READ_FLAGS, program, folder, *names]
        status, printed = forked_programs.run(command)
        assert status == 0, printed
        found |= json.loads(printed.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", RECIPES)
def test_pretraining_recipe(name, recipes):
    expected, found = RECIPES[name], recipes[name]
    values = found["flags"]
    assert {flag: values[flag] for flag in expected["flags"]} == expected["flags"]
    assert found["phases"] == expected["phases"]
    scales_decay = name.startswith("electra")
    assert found["schedules"] == [[*values, scales_decay] for values in expected["schedules"]]
    for _, _, batch, _ in found["phases"]:  # on the 8 cores of a v3-8 or a v5e-8
        assert batch % (8 * values["gradient_accumulation_steps"]) == 0


@pytest.mark.parametrize("name", BERT)
def test_pretraining_of_the_released_models(name, recipes):
    case, size = name.split("_")
    sizes = {"base": "L-12_H-768_A-12", "large": "L-24_H-1024_A-16"}[size]
    config = f"flags/models/{case}_{sizes}/bert_config.json"
    assert recipes[name]["flags"]["bert_config_file"] == config
    text = (ROOT / "flags" / "pretraining" / f"{name}.flags").read_text(encoding="utf-8")
    assert "v3-8" in text and "v5e-8" in text
    assert f"--do_lower_case={case == 'uncased'}" in text
    assert f"{json.loads((ROOT / config).read_text())['vocab_size']:,} word pieces" in text


def test_every_pretraining_recipe_is_tested_and_albert_s_has_dropout(recipes):
    found = {path.stem for name in FOLDERS.values() for path in (ROOT / "flags" / name).iterdir()}
    assert found == {"paper", "roberta", *RECIPES}
    # Section 4.8 leaves it out later only. The figures of table 2 are v1's.
    config = read_config(str(ROOT / recipes["albert"]["flags"]["bert_config_file"]))
    assert config.hidden_dropout_prob == config.attention_probs_dropout_prob == 0.1


def test_quickstart_text():
    training, heldout = (
        [text.split("\n") for text in (QUICKSTART / name).read_text().strip().split("\n\n")]
        for name in ("corpus.txt", "heldout.txt")
    )
    assert len(training) >= 60 and len(heldout) >= 6
    for document in training + heldout:
        assert 8 <= len(document) <= 14
        assert all(sentence.strip() == sentence and sentence for sentence in document)
    assert not {s for d in training for s in d} & {s for d in heldout for s in d}


# Table 14 of ALBERT's paper: steps, batch, steps of warm-up, learning rate; and the number of the
# task's training examples.
ALBERT = {
    "cola": (5336, 16, 320, "1e-5", 8_551),
    "stsb": (3598, 16, 214, "2e-5", 5_749),
    "sst2": (20935, 32, 1256, "1e-5", 67_349),
    "mnli": (10000, 128, 1000, "3e-5", 392_702),
    "qnli": (33112, 32, 1986, "1e-5", 104_743),
    "qqp": (14000, 128, 1000, "5e-5", 363_846),
    "rte": (800, 32, 200, "3e-5", 2_490),
    "mrpc": (800, 32, 200, "2e-5", 3_668),
    "wnli": (2000, 16, 250, "2e-5", 635),
    "squad_v1": (3649, 48, 365, "5e-5", 87_599),
    "squad_v2": (8144, 48, 814, "3e-5", 130_319),
}

# RoBERTa's paper, table 10, and fairseq's examples/roberta/README.glue.md: the same.
ROBERTA_GLUE = {
    "cola": (5336, 16, 320, "1e-5", 8_551),
    "mnli": (123873, 32, 7432, "1e-5", 392_702),
    "mrpc": (2296, 16, 137, "1e-5", 3_668),
    "qnli": (33112, 32, 1986, "1e-5", 104_743),
    "qqp": (113272, 32, 28318, "1e-5", 363_846),
    "rte": (2036, 16, 122, "2e-5", 2_490),
    "sst2": (20935, 32, 1256, "1e-5", 67_349),
    "stsb": (3598, 16, 214, "2e-5", 5_749),
}
STEPS = {
    **{f"albert/{name}": row for name, row in ALBERT.items()},
    **{f"roberta/{name}": row for name, row in ROBERTA_GLUE.items()},
}


def recipe(name):
    """Returns the text of a recipe, and its flags with those of the flagfile that it includes."""
    path = FLAGS / f"{name}.flags"
    return path.read_text(encoding="utf-8"), values(path)


@pytest.mark.parametrize("name", STEPS)
def test_steps(name):
    steps, batch, warmup, rate, examples = STEPS[name]
    text, flags = recipe(name)
    assert (flags["train_batch_size"], flags["learning_rate"]) == (f"{batch}", rate)
    share, rounding = (0.003, 1) if name.startswith("albert") else (0.025, 2)
    epochs = float(flags["num_train_epochs"])
    assert epochs * examples / batch == pytest.approx(steps, rel=share)
    proportion = float(flags.get("warmup_proportion", 0.1))
    assert proportion * steps == pytest.approx(warmup, abs=rounding)
    assert f"{steps:,} steps" in text
    # They begin with a checkpoint of MNLI.
    begins = name in ("albert/rte", "albert/stsb", "albert/mrpc")
    assert ("section 4.9, footnote 4" in text) == begins


# As in pre-training.
ROBERTA_ADAM = {"beta_2": "0.98", "epsilon": "1e-6", "clip_norm": "0", "do_lower_case": "False"}


@pytest.mark.parametrize("name", ROBERTA_GLUE)
def test_roberta_glue_recipe(name):
    _, flags = recipe(f"roberta/{name}")
    assert flags.items() >= {**ROBERTA_ADAM, "weight_decay_rate": "0.1"}.items()
    assert float(flags["num_train_epochs"]) == (13.08 if name == "rte" else 10)


@pytest.mark.parametrize("name", ["squad_v1", "squad_v2"])
def test_roberta_squad_recipe(name):
    _, flags = recipe(f"roberta/{name}")
    expected = {"train_batch_size": "48", "learning_rate": "1.5e-5", "num_train_epochs": "2"}
    expected |= {**ROBERTA_ADAM, "warmup_proportion": "0.06", "weight_decay_rate": "0.01"}
    assert flags.items() >= expected.items()


# What configure_finetuning.py of google-research/electra sets for one task.
LONG = {"num_train_epochs": "2", "max_seq_length": "512"}
ELECTRA = {
    **dict.fromkeys(("cola", "mnli", "qnli", "qqp", "sst2"), {}),
    "mrpc": {"double_unordered": "true"},
    "rte": {"num_train_epochs": "10"},
    "stsb": {"num_train_epochs": "10", "double_unordered": "true", "label_scale": "5"},
    "squad_v1": LONG,
    "squad_v2": {**LONG, "null_score_diff_threshold": "-2.75"},
    "chunk": {"max_seq_length": "256", "tag_scheme": "bioes"},
}
ELECTRA_COMMON = {
    **{"loss_reduction": "sum", "layerwise_lr_decay": "0.8", "learning_rate": "1e-4"},
    **{"train_batch_size": "32", "warmup_proportion": "0.1", "num_train_epochs": "3"},
}


@pytest.mark.parametrize("name", ELECTRA)
def test_electra_recipe(name):
    _, flags = recipe(f"electra/{name}")
    assert flags.items() >= {**ELECTRA_COMMON, **ELECTRA[name]}.items()
    assert ("joint_prediction" in flags) == name.startswith("squad")
    assert ("answerable_classifier" in flags) == name.startswith("squad")


def test_electra_large_and_that_every_recipe_is_tested():
    _, flags = recipe("electra/large")
    assert flags == {"learning_rate": "5e-5", "layerwise_lr_decay": "0.9"}
    for family, names in (
        ("albert", ALBERT),
        ("roberta", {*ROBERTA_GLUE, "squad_v1", "squad_v2"}),
        ("electra", {*ELECTRA, "large"}),
    ):
        assert {path.stem for path in (FLAGS / family).iterdir()} == {*names, "glue"}
