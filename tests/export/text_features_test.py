"""Tests of `TextFeatures`: what it refuses, and what it makes of no texts."""

import json

import numpy as np
import pytest

from bert_tf.export.text_features import TextFeatures
from tests.support.model_folders import VOCAB
from tests.support.refusals import refusal

IDS = {"input_ids", "input_mask", "segment_ids"}


def write_export(folder, head="classification", length=None, axes=2, **changes):
    """Writes what `TextFeatures` reads of an exported folder; returns the folder."""
    shape = [None] * (axes - 1) + [length]
    signatures = {"serving_default": {"inputs": {"input_ids": {"shape": shape}}}}
    content = {"max_seq_length": 12, "do_lower_case": True, "head": head, "signatures": signatures}
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(VOCAB))
    (folder / "export.json").write_text(json.dumps({**content, **changes}))
    return folder


@pytest.mark.parametrize(
    "changes",
    [
        {"max_seq_length": "12"},
        {"max_seq_length": 0},
        {"max_seq_length": True},
        {"max_seq_length": 12.5},
        {"max_seq_length": None},
        {"do_lower_case": "no"},
        {"do_lower_case": None},
        {"head": "summary"},
        {"head": ["squad"]},
        {"length": -3},
        {"length": 0},
        {"length": "a"},
        {"signatures": "ids"},
    ],
)
def test_a_damaged_description_is_refused(tmp_path, changes):
    folder = write_export(tmp_path, **changes)
    assert refusal(TextFeatures, folder) == (
        f"{tmp_path}/export.json must be as tools.export writes it; export the model again"
    )


@pytest.mark.parametrize("head", ["classification", "tagging", "squad", "masked_lm"])
@pytest.mark.parametrize("length", [None, 8])
def test_no_texts_give_arrays_without_rows(tmp_path, head, length):
    found = TextFeatures(write_export(tmp_path, head, length))([])
    positions = {"masked_lm_positions"} if head == "masked_lm" else set()
    assert found.keys() == IDS | positions
    assert {len(x) for x in found.values()} == {0}
    width = found["input_ids"].shape[1]
    assert width == length if length else width > 0  # runtimes refuse a length of 0


def test_choices_are_texts_in_a_list(tmp_path):
    features = TextFeatures(write_export(tmp_path, "multiple_choice", axes=3))
    for choices in (["a cat", "the dog"], ("a cat", "the dog"), np.array(["a cat", "the dog"])):
        assert features([("the cat", choices)])["input_ids"].shape == (1, 2, 7)
    for row in (("the cat", "ab"), ("the cat", 3), ("the cat", None), ("the cat", {"a": "b"})):
        assert refusal(features, [row]) == (
            "texts must be a list of (context, [choice, choice, ...]), with as many choices in"
            f" each; received {[row]}"
        )
