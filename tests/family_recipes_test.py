"""Tests of flags/albert and flags/roberta: the settings and figures of their papers."""

import re

import pytest

from tests.tasks.recipes_test import FLAGS, values

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


# RoBERTa's paper, table 10, and fairseq's examples/roberta/README.glue.md: steps, batch, steps of
# warm-up, learning rate, training examples, figures with roberta-base and roberta-large.
ROBERTA_GLUE = {
    "cola": (5336, 16, 320, "1e-5", 8_551, 63.6, 68.0),
    "mnli": (123873, 32, 7432, "1e-5", 392_702, 87.6, 90.2),
    "mrpc": (2296, 16, 137, "1e-5", 3_668, 90.2, 90.9),
    "qnli": (33112, 32, 1986, "1e-5", 104_743, 92.8, 94.7),
    "qqp": (113272, 32, 28318, "1e-5", 363_846, 91.9, 92.2),
    "rte": (2036, 16, 122, "2e-5", 2_490, 78.7, 86.6),
    "sst2": (20935, 32, 1256, "1e-5", 67_349, 94.8, 96.4),
    "stsb": (3598, 16, 214, "2e-5", 5_749, 91.2, 92.4),
}
ROBERTA_SQUAD = {"squad_v1": ("88.9", "94.6"), "squad_v2": ("86.5", "89.4")}
STEPS = {
    **{f"albert/{name}": row for name, row in ALBERT.items()},
    **{f"roberta/{name}": row[:5] for name, row in ROBERTA_GLUE.items()},
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
    text, flags = recipe(f"roberta/{name}")
    assert flags.items() >= {**ROBERTA_ADAM, "weight_decay_rate": "0.1"}.items()
    assert float(flags["num_train_epochs"]) == (13.08 if name == "rte" else 10)
    figures = [f"{figure}" for figure in ROBERTA_GLUE[name][5:]]
    assert figures == re.findall(r"(\d\d\.\d) with", text)


@pytest.mark.parametrize("name", ROBERTA_SQUAD)
def test_roberta_squad_recipe(name):
    text, flags = recipe(f"roberta/{name}")
    expected = {"train_batch_size": "48", "learning_rate": "1.5e-5", "num_train_epochs": "2"}
    expected |= {**ROBERTA_ADAM, "warmup_proportion": "0.06", "weight_decay_rate": "0.01"}
    assert flags.items() >= expected.items()
    exact, f1 = ROBERTA_SQUAD[name]
    assert f"exact match {exact} and F1 {f1}" in " ".join(re.sub("#", "", text).split())


# The README of google-research/electra: small, base, large; and what configure_finetuning.py sets
# for one task.
ELECTRA = {
    "cola": (57.0, 67.7, 69.1, {}),
    "mnli": (81.3, 88.8, 90.9, {}),
    "mrpc": (88.0, 89.5, 90.8, {"double_unordered": "true"}),
    "qnli": (88.4, 93.2, 95.0, {}),
    "qqp": (89.0, 91.5, 92.4, {}),
    "rte": (66.7, 82.7, 88.0, {"num_train_epochs": "10"}),
    "sst2": (91.2, 95.1, 96.9, {}),
    "stsb": (
        *(87.5, 91.2, 92.6),
        {"num_train_epochs": "10", "double_unordered": "true", "label_scale": "5"},
    ),
    "squad_v1": (75.8, 86.8, 89.7, {"num_train_epochs": "2", "max_seq_length": "512"}),
    "squad_v2": (
        *(70.1, 80.5, 88.1),
        {"num_train_epochs": "2", "max_seq_length": "512", "null_score_diff_threshold": "-2.75"},
    ),
    "chunk": (96.5, 97.1, 97.2, {"max_seq_length": "256", "tag_scheme": "bioes"}),
}
ELECTRA_COMMON = {
    **{"loss_reduction": "sum", "layerwise_lr_decay": "0.8", "learning_rate": "1e-4"},
    **{"train_batch_size": "32", "warmup_proportion": "0.1", "num_train_epochs": "3"},
}


@pytest.mark.parametrize("name", ELECTRA)
def test_electra_recipe(name):
    text, flags = recipe(f"electra/{name}")
    *figures, own = ELECTRA[name]
    assert flags.items() >= {**ELECTRA_COMMON, **own}.items()
    assert [f"{figure}" for figure in figures] == re.findall(r"(\d\d\.\d)\s(?:#\s+)?with", text)
    assert ("joint_prediction" in flags) == name.startswith("squad")
    assert ("answerable_classifier" in flags) == name.startswith("squad")


def test_electra_large():
    _, flags = recipe("electra/large")
    assert flags == {"learning_rate": "5e-5", "layerwise_lr_decay": "0.9"}


def test_every_recipe_is_tested():
    for family, names in (
        ("albert", ALBERT),
        ("roberta", {*ROBERTA_GLUE, *ROBERTA_SQUAD}),
        ("electra", {*ELECTRA, "large"}),
    ):
        assert {path.stem for path in (FLAGS / family).iterdir()} == {*names, "glue"}
