"""Tests of flags/tagging and flags/multiple_choice: the paper's settings and figures."""

import dataclasses
import re

import pytest

from bert_tf.tasks.multiple_choice import swag
from bert_tf.tasks.multiple_choice.settings import MultipleChoiceSettings
from bert_tf.tasks.tagging import conll
from bert_tf.tasks.tagging.schema import FEATURE_LAYERS
from bert_tf.tasks.tagging.settings import TaggingSettings
from tests.tasks.classification.recipes_test import FLAGS, comment, values

FIGURES = {
    # Table 7: F1 on the dev and the test set; for the features on the dev set, row by row.
    "tagging/conll2003_base": ["96.4", "92.4"],
    "tagging/conll2003_large": ["96.6", "92.8"],
    "tagging/conll2003_feature_based": ["91.0", "94.9", "95.6", "95.9", "96.1", "95.5"],
    # Table 4: accuracy on the dev and the test set.
    "multiple_choice/swag_base": ["81.6"],
    "multiple_choice/swag_large": ["86.6", "86.3"],
}
TASKS = {
    "tagging": (TaggingSettings, "cased"),
    "multiple_choice": (MultipleChoiceSettings, "uncased"),
}


def test_every_recipe_is_tested():
    found = {f"{task}/{path.stem}" for task in TASKS for path in (FLAGS / task).iterdir()}
    assert found == FIGURES.keys()


@pytest.mark.parametrize("name", FIGURES)
def test_recipe(name):
    path = FLAGS / f"{name}.flags"
    found, text = values(path), comment(path)
    settings, casing = TASKS[path.parent.name]
    fields = {field.name for field in dataclasses.fields(settings)}
    assert found.keys() <= fields | {"bert_config_file"}
    size = "L-24_H-1024_A-16" if "large" in name else "L-12_H-768_A-12"
    assert found["bert_config_file"] == f"flags/models/{casing}_{size}/bert_config.json"
    assert re.findall(r"\b\d\d\.\d\b", text.split("Expected:")[1]) == FIGURES[name]
    training = [found[x] for x in ("train_batch_size", "learning_rate", "num_train_epochs")]
    if "swag" in name:
        assert training == ["16", "2e-5", "3"]
        return
    assert found["max_seq_length"] == "512"
    assert not {"do_lower_case", "document_context"} & found.keys()  # the defaults are the paper's
    if "feature_based" in name:
        rows = re.findall(r"(\w+) \d\d\.\d", text)
        assert rows == list(FEATURE_LAYERS)
        assert found["feature_layers"] == rows[FIGURES[name].index("96.1")]
        assert found["lstm_size"] == "768"
    else:  # from the paper's A.3
        choices = ("16", "32"), ("5e-5", "3e-5", "2e-5"), ("2", "3", "4")
        assert all(value in allowed for value, allowed in zip(training, choices, strict=True))


def test_the_examples_in_flags_can_be_read():
    folder = FLAGS / "quickstart"
    for name, documents in (("train", 4), ("valid", 2), ("test", 1)):
        sentences = conll.read_sentences(f"{folder}/entities/{name}.txt", "data_dir")
        assert len({sentence.document for sentence in sentences}) == documents
        tags = {tag for sentence in sentences for tag in sentence.tags} | {"I-PER"}
        assert tags == {"B-LOC", "B-PER", "I-LOC", "I-PER", "O"}
    for name, count in (("train", 12), ("val", 4), ("test", 2)):
        questions = swag.read_questions(f"{folder}/endings/{name}.csv", labelled=name != "test")
        assert [len(set(question.endings)) for question in questions] == [4] * count
