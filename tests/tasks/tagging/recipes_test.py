"""Tests of flags/tagging and flags/multiple_choice: the paper's settings and figures."""

import dataclasses
import re

import pytest

from bert_tf.tasks.multiple_choice import swag
from bert_tf.tasks.multiple_choice.settings import MultipleChoiceSettings
from bert_tf.tasks.tagging import conll
from bert_tf.tasks.tagging.head import FEATURE_LAYERS
from bert_tf.tasks.tagging.settings import TaggingSettings
from tests.tasks.classification.recipes_test import FLAGS, comment, values

# Table 7: F1 on the dev and the test set; for the features on the dev set, row by row.
TAGGING = {
    "conll2003_base": ["96.4", "92.4"],
    "conll2003_large": ["96.6", "92.8"],
    "conll2003_feature_based": ["91.0", "94.9", "95.6", "95.9", "96.1", "95.5"],
}
# Table 4: accuracy on the dev and the test set.
SWAG = {"swag_base": ["81.6"], "swag_large": ["86.6", "86.3"]}
SIZES = {"large": "L-24_H-1024_A-16"}


def figures(path):
    return re.findall(r"\b\d\d\.\d\b", comment(path).split("Expected:")[1])


def flags_of(settings):
    """Returns the names of the flags that a program reads."""
    return {field.name for field in dataclasses.fields(settings)} | {"bert_config_file"}


def config_file(case, size):
    return f"flags/models/{case}_{SIZES.get(size, 'L-12_H-768_A-12')}/bert_config.json"


def test_there_is_no_other_recipe():
    assert {path.stem for path in (FLAGS / "tagging").iterdir()} == TAGGING.keys()
    assert {path.stem for path in (FLAGS / "multiple_choice").iterdir()} == SWAG.keys()


@pytest.mark.parametrize("name", TAGGING)
def test_tagging(name):
    path = FLAGS / "tagging" / f"{name}.flags"
    found = values(path)
    assert found.keys() <= flags_of(TaggingSettings)
    assert found["bert_config_file"] == config_file("cased", name.split("_")[1])
    assert found["max_seq_length"] == "512"
    assert not {"do_lower_case", "document_context"} & found.keys()  # the defaults are the paper's
    assert figures(path) == TAGGING[name]
    if name == "conll2003_feature_based":
        rows = re.findall(r"(\w+) \d\d\.\d", comment(path))
        assert rows == list(FEATURE_LAYERS)
        assert found["feature_layers"] == rows[TAGGING[name].index("96.1")]
        assert found["lstm_size"] == "768"
    else:  # of the paper's A.3
        assert found["train_batch_size"] in ("16", "32")
        assert found["learning_rate"] in ("5e-5", "3e-5", "2e-5")
        assert found["num_train_epochs"] in ("2", "3", "4")


@pytest.mark.parametrize("name", SWAG)
def test_multiple_choice(name):
    path = FLAGS / "multiple_choice" / f"{name}.flags"
    found = values(path)
    assert found.keys() <= flags_of(MultipleChoiceSettings)
    assert found["bert_config_file"] == config_file("uncased", name.split("_")[1])
    assert found["train_batch_size"] == "16"
    assert found["learning_rate"] == "2e-5"
    assert found["num_train_epochs"] == "3"
    assert figures(path) == SWAG[name]


def test_the_small_files_beside_the_quickstart_can_be_read():
    entities = FLAGS / "quickstart" / "entities"
    for name, documents in (("train", 4), ("valid", 2), ("test", 1)):
        sentences = conll.read_sentences(str(entities / f"{name}.txt"), "data_dir")
        assert len({sentence.document for sentence in sentences}) == documents
        tags = {tag for sentence in sentences for tag in sentence.tags}
        assert tags == {"B-LOC", "B-PER", "I-LOC", "O"} | ({"I-PER"} if name != "test" else set())
    endings = FLAGS / "quickstart" / "endings"
    for name, count in (("train", 12), ("val", 4), ("test", 2)):
        questions = swag.read_questions(str(endings / f"{name}.csv"), labelled=name != "test")
        assert len(questions) == count
        assert all(len(set(question.endings)) == 4 for question in questions)
