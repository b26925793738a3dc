"""Tests of hugging_face/config.py: the names of the classes, through whole conversions."""

import json
import os
from pathlib import Path

import pytest

import bert_tf
from bert_tf.errors import UserError
from bert_tf.files import model_notes
from bert_tf.model.configuration import BertConfig
from bert_tf.model_folder.hugging_face import config as hugging_face_config
from bert_tf.model_folder.reader import ModelFiles
from tests.support.hugging_face_folders import (
    CONFIG,
    ENCODER,
    HEADS,
    POOLER,
    make_tensors,
    write_folder,
)
from tools import convert_checkpoint

pytestmark = pytest.mark.usefixtures("eager")

LONG = ["x" * 10_000] * 3
TAGS = ["O", *(f"{part}-{kind}" for kind in ("PER", "LOC", "ORG", "ÄÖ x", "MISC") for part in "BI")]


def write_classifier(folder, outputs, **config):
    """Returns the path of a folder whose model has a classifier of so many outputs."""
    shapes = {"classifier.weight": (outputs, 6), "classifier.bias": (outputs,)}
    return write_folder(folder, make_tensors(ENCODER | POOLER | shapes, "bert."), **config)


@pytest.mark.parametrize(
    ("labels", "architecture"),
    [
        (TAGS, "BertForTokenClassification"),
        (["O", "B", "AB"], "BertForSequenceClassification"),  # blood groups
        (["LABEL_1", "LABEL_0"], "BertForSequenceClassification"),  # not the default order
    ],
)
def test_the_names_of_the_classes_go_both_ways(tmp_path, labels, architecture):
    id2label = {str(i): label for i, label in enumerate(labels)}
    config = {
        "architectures": [architecture],
        "id2label": dict(sorted(id2label.items(), reverse=True)),  # 9, 8, ..., 10, 1, 0
    }
    source = write_classifier(tmp_path / "hf", len(labels), **config)
    checkpoint, copy, back, again = (str(tmp_path / name) for name in ("tf", "copy", "hf2", "tf2"))
    convert_checkpoint.convert(source, checkpoint, "checkpoint")
    # As run_classifier and run_tagging ask for them.
    prefix = f"{checkpoint}/bert_model.ckpt"
    for place in (prefix, checkpoint, source):
        assert ModelFiles.of_flag(place).labels == labels
    convert_checkpoint.convert(prefix, copy, "checkpoint")
    convert_checkpoint.convert(f"{copy}/bert_model.ckpt", back, "safetensors")
    config = json.loads(Path(back, "config.json").read_text())
    assert config["architectures"] == [architecture]
    assert config["id2label"] == id2label
    assert config["label2id"] == {label: i for i, label in enumerate(labels)}
    convert_checkpoint.convert(back, again, "checkpoint")
    assert model_notes.labels_in(again) == labels


@pytest.mark.parametrize("pooler", [POOLER, {}], ids=["pooler", "no_pooler"])
def test_a_tagger_whose_classes_are_no_tags_stays_one(tmp_path, pooler):
    """Its pooler is omitted: that distinguishes it from a classifier of texts."""
    shapes = ENCODER | pooler | {"classifier.weight": (3, 6), "classifier.bias": (3,)}
    config = {
        "architectures": ["BertForTokenClassification"],
        "id2label": {"0": "NOUN", "1": "VERB", "2": "ADJ"},
    }
    vocab = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n"
    source = write_folder(tmp_path / "hf", make_tensors(shapes, "bert."), vocab, **config)
    checkpoint, back = str(tmp_path / "tf"), str(tmp_path / "hf2")
    convert_checkpoint.convert(source, checkpoint, "checkpoint")
    convert_checkpoint.convert(checkpoint, back, "safetensors")
    written = json.loads(Path(back, "config.json").read_text())
    assert {key: written[key] for key in config} == config
    models = [bert_tf.load(folder) for folder in (source, checkpoint, back)]
    for model in models:
        assert (model.heads, model.labels) == (("tagging",), ("NOUN", "VERB", "ADJ"))
        assert model.tag("a a", "none") == models[0].tag("a a", "none")


@pytest.mark.parametrize(
    ("outputs", "config", "labels"),
    [
        (3, {}, None),
        (3, {"id2label": {str(i): f"LABEL_{i}" for i in range(3)}}, None),
        (1, {"id2label": {"0": "similarity"}}, []),
    ],
    ids=["missing", "default", "number"],
)
def test_classes_without_names(tmp_path, outputs, config, labels):
    architectures = ["BertForTokenClassification"]
    source = write_classifier(tmp_path / "hf", outputs, architectures=architectures, **config)
    named = {"id2label": {"0": "of", "1": "another", "2": "model"}}
    earlier = write_classifier(tmp_path / "earlier", 3, architectures=architectures, **named)
    output_dir = str(tmp_path / "tf")
    convert_checkpoint.convert(earlier, output_dir, "checkpoint")
    assert model_notes.labels_in(output_dir) == ["of", "another", "model"]
    convert_checkpoint.convert(source, output_dir, "checkpoint")
    assert model_notes.labels_in(output_dir) == labels


def test_more_names_than_outputs(tmp_path):
    source, checkpoint = write_classifier(tmp_path / "hf", 2), str(tmp_path / "tf")
    convert_checkpoint.convert(source, checkpoint, "checkpoint")
    model_notes.write_labels(checkpoint, ["a", "b", "c"])
    message = "of the classifier's 2 outputs; it names 3: 'a' and 2 more. Correct"
    with pytest.raises(UserError, match=message):
        convert_checkpoint.convert(checkpoint, str(tmp_path / "hf2"), "safetensors")
    with pytest.raises(UserError) as error:
        hugging_face_config.to_config(BertConfig(13), "ForSequenceClassification", LONG, 2)
    assert len(str(error.value)) < 500


def test_without_a_classifier_names_are_not_read(tmp_path):
    shapes = ENCODER | POOLER | {k: v for k, v in HEADS.items() if not k.startswith("classifier")}
    names = {"0": "a", "5": "a\n"}
    source = write_folder(tmp_path / "hf", make_tensors(shapes, "bert."), id2label=names)
    convert_checkpoint.convert(source, str(tmp_path / "tf"), "checkpoint")
    assert not os.path.exists(tmp_path / "tf" / "labels.txt")


@pytest.mark.parametrize(
    "names",
    [
        {"0": "a", "1": "b"},
        {"0": "LABEL_0", "1": "LABEL_1"},
        {"0": "a", "1": "b", "2": "c", "3": "d"},
        {"1": "a", "2": "b", "3": "c"},
        {"0": "a", "01": "b", "2": "c"},
        {"0": "a", "1": "b", "2": "c\nd"},
        {"0": "a", "1": "b", "2": "c\r"},
        {"0": "a", "1": "b", "2": ""},
        {"0": "a", "1": "b", "2": "a"},
        {"0": "a", "1": "b", "2": 3},
        {"0": "a", "1": "b", "2": ["c"]},
        ["a", "b", "c"],
    ],
    ids=str,
)
def test_names_that_do_not_fit_are_refused(tmp_path, names):
    source = write_classifier(tmp_path / "hf", 3, id2label=names)
    with pytest.raises(UserError) as error:
        convert_checkpoint.convert(source, str(tmp_path / "tf"), "checkpoint")
    assert str(error.value) == (
        f"{source}/config.json: id2label must name each of the classifier's 3 outputs: the keys are"
        " the numbers from 0 to 2, and the names are different strings of one line;"
        f" received {names!r}. Correct id2label, or remove it from the file: the classes then have"
        " no names"
    )
    assert not (tmp_path / "tf").exists()


@pytest.mark.parametrize(
    "content, message",
    [
        ("[" * 100_000, "maximum recursion depth"),
        ('{"a":' * 100_000, "maximum recursion depth"),
        ('{"layer_norm_eps": NaN}', "NaN is not a number in JSON"),
        (LONG, "must hold a dictionary; received "),
        ({"model_type": LONG}, "model_type must be one of 'albert', 'bert', "),
        ({"is_decoder": {"a": LONG}}, "is_decoder must be false, not {'a': "),
        ({**CONFIG, "hidden_act": ["gelu"]}, "hidden_act must be a string; it is ['gelu']"),
        ({**CONFIG, "hidden_act": {"a": LONG}}, "hidden_act must be a string; it is {"),
        ({**CONFIG, "hidden_act": None}, "hidden_act must be a string; it is None"),
        ({**CONFIG, "vocab_size": "13"}, "vocab_size must be a whole number between"),
        ({**CONFIG, "vocab_size": [13]}, "vocab_size must be a whole number between"),
        ({**CONFIG, "hidden_dropout_prob": "x"}, "hidden_dropout_prob must be at least"),
    ],
    ids=range(12),
)
def test_damaged_configurations_are_refused(tmp_path, content, message):
    path = tmp_path / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(UserError) as error:
        hugging_face_config.to_bert_config(hugging_face_config.read_config(str(path)), str(path))
    assert str(path) in str(error.value) and message in str(error.value)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    "values,message",
    [
        ({"dim": 10}, "dim (10) must be a multiple of n_heads (12)"),
        ({"dim": "x"}, "dim must be a whole number between 1 and 65536, not 'x'"),
        ({"n_layers": 0, "hidden_dim": 0}, "n_layers must be a whole number between 1 and 1000"),
        ({"attention_dropout": 1}, "attention_dropout must be at least 0 and below 1, not 1"),
        ({"activation": 3}, "config.json: activation must be a string; it is 3"),
        ({"activation": "sine"}, "invalid: activation: "),
    ],
    ids=str,
)
def test_errors_about_a_distilbert_name_the_keys_of_its_file(values, message):
    config = {"model_type": "distilbert", **values}
    with pytest.raises(UserError) as error:
        hugging_face_config.to_bert_config(config, "config.json")
    assert message in str(error.value)
    assert "hidden_size" not in str(error.value) and "hidden_act" not in str(error.value)


@pytest.mark.parametrize(
    "names",
    [LONG, {"0": LONG[0], "1": LONG[0]}, {"0": "a ", "1": "b"}, {"0": "\ud800", "1": "b"}, "ab", 1],
    ids=range(6),
)
def test_messages_on_names_are_short(names):
    with pytest.raises(UserError, match="^config.json: id2label") as error:
        hugging_face_config.class_names({"id2label": names}, 2, "config.json")
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    ("theirs", "ours", "written"),
    [
        ("gelu", "gelu_erf", "gelu"),
        (None, "gelu_erf", "gelu"),
        ("gelu_python", "gelu_erf", "gelu"),
        ("GELU", "gelu_erf", "gelu"),
        ("gelu_new", "gelu", "gelu_new"),
        ("Gelu_New", "gelu", "gelu_new"),
        ("gelu_pytorch_tanh", "gelu", "gelu_new"),
        ("relu", "relu", "relu"),
    ],
)
def test_each_form_of_gelu_keeps_its_meaning(theirs, ours, written):
    config = {**CONFIG, "hidden_act": theirs}
    if theirs is None:
        del config["hidden_act"]
    bert_config = hugging_face_config.to_bert_config(config, "config.json")
    assert bert_config.hidden_act == ours
    assert hugging_face_config.to_config(bert_config, "Model", None, 0)["hidden_act"] == written
