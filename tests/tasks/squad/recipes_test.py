"""Tests of the recipes in flags/squad: the paper's settings and figures."""

import dataclasses
import re

import pytest

from bert_tf.tasks.squad.settings import SquadSettings
from tests.tasks.classification.recipes_test import FLAGS, comment, values

RECIPES = FLAGS / "squad"

# Section 4.2 and 4.3 of the paper; figures of tables 2 and 3 on the dev set.
PAPER = {
    "squad_v1_base": (32, 3, "exact match 80.8, F1 88.5"),
    "squad_v1_large": (32, 3, "exact match 84.1, F1 90.9"),
    "squad_v1_large_triviaqa": (32, 1, "exact match 84.2, F1 91.1"),
    "squad_v2_large": (48, 2, "exact match 78.7, F1 81.9"),
}


@pytest.mark.parametrize("name", PAPER)
def test_recipe(name):
    batch, epochs, figures = PAPER[name]
    path = RECIPES / f"{name}.flags"
    model = "uncased_L-24_H-1024_A-16" if "large" in name else "uncased_L-12_H-768_A-12"
    expected = {
        "do_train": "true",
        "bert_config_file": f"flags/models/{model}/bert_config.json",
        "train_batch_size": f"{batch}",
        "learning_rate": "5e-5",
        "num_train_epochs": f"{epochs}",
        "max_seq_length": "384",
        "doc_stride": "128",
    }
    if "triviaqa" not in name:
        expected["do_predict"] = "true"
    if "v2" in name:
        expected["version_2_with_negative"] = "true"
    assert values(path) == expected
    fields = {field.name for field in dataclasses.fields(SquadSettings)}
    assert expected.keys() <= fields | {"bert_config_file"}
    text = comment(path)
    assert figures in text and model in text
    for cores in re.findall(r"8 TPU cores, each of which gets (\d+) of the", text):
        assert 8 * int(cores) == batch


def test_every_recipe_is_tested():
    assert {path.stem for path in RECIPES.iterdir()} == PAPER.keys()
