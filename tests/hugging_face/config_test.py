"""Tests of hugging_face/config.py, through whole conversions: names of classes, each other key.

The probabilities are those of transformers 5.24's text-classification pipeline for the folders.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.export.exporting import export
from bert_tf.export.settings import ExportSettings
from bert_tf.files import model_notes
from bert_tf.model.configuration import BertConfig
from bert_tf.model_folder.hugging_face import config as hugging_face_config
from bert_tf.model_folder.reader import ModelFiles
from bert_tf.pretrained.folder import read_folder
from tests.support.hugging_face_folders import (
    CONFIG,
    ENCODER,
    HEADS,
    POOLER,
    make_tensors,
    write_folder,
)
from tests.support.refusals import refusal
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
    names = dict(sorted(id2label.items(), reverse=True))  # 9, 8, ..., 10, 1, 0
    config = {"architectures": [architecture], "id2label": names}
    source = write_classifier(tmp_path / "hf", len(labels), **config)
    checkpoint, copy, back = (str(tmp_path / name) for name in ("tf", "copy", "hf2"))
    convert_checkpoint.convert(source, checkpoint, "checkpoint")
    # As run_classifier and run_tagging ask for them.
    prefix = f"{checkpoint}/bert_model.ckpt"
    for place in (prefix, checkpoint, source):
        assert ModelFiles.of_flag(place).labels == labels
    convert_checkpoint.convert(prefix, copy, "checkpoint")
    convert_checkpoint.convert(f"{copy}/bert_model.ckpt", back, "safetensors")
    config = json.loads(Path(back, "config.json").read_text())
    assert (config["architectures"], config["id2label"]) == ([architecture], id2label)
    assert config["label2id"] == {label: i for i, label in enumerate(labels)}
    assert ModelFiles.of_flag(back).labels == labels


@pytest.mark.parametrize("pooler", [POOLER, {}], ids=["pooler", "no_pooler"])
def test_a_tagger_whose_classes_are_no_tags_stays_one(tmp_path, pooler):
    """Its pooler is omitted: that distinguishes it from a classifier of texts."""
    shapes = ENCODER | pooler | {"classifier.weight": (3, 6), "classifier.bias": (3,)}
    config = {"architectures": ["BertForTokenClassification"]}
    config["id2label"] = {"0": "NOUN", "1": "VERB", "2": "ADJ"}
    vocab = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n"
    source = write_folder(tmp_path / "hf", make_tensors(shapes, "bert."), vocab, **config)
    checkpoint, back = str(tmp_path / "tf"), str(tmp_path / "hf2")
    convert_checkpoint.convert(source, checkpoint, "checkpoint")
    convert_checkpoint.convert(checkpoint, back, "safetensors")
    written = json.loads(Path(back, "config.json").read_text())
    assert {key: written[key] for key in config} == config
    folders = [read_folder(path) for path in (source, checkpoint, back)]
    for folder in folders:
        assert (folder.heads, folder.labels) == (("tagging",), ("NOUN", "VERB", "ADJ"))
    for name in ("output_weights", "output_bias"):
        values = [folder.read(name) for folder in folders]
        np.testing.assert_array_equal(values[1:], [values[0]] * 2)
    assert bert_tf.load(source).tag("a a", "none")


def test_classes_without_names(tmp_path):
    """Also not those of a model that was in the folder before."""
    kind = {"architectures": ["BertForTokenClassification"]}
    named = {"id2label": {"0": "of", "1": "another", "2": "model"}}
    earlier = write_classifier(tmp_path / "earlier", 3, **kind, **named)
    output_dir = str(tmp_path / "tf")
    for number, (outputs, config, labels) in enumerate(
        [
            (3, {}, None),
            (3, {"id2label": {str(i): f"LABEL_{i}" for i in range(3)}}, None),
            (1, {"id2label": {"0": "similarity"}}, []),
        ]
    ):
        source = write_classifier(tmp_path / f"{number}", outputs, **kind, **config)
        convert_checkpoint.convert(earlier, output_dir, "checkpoint")
        assert model_notes.labels_in(output_dir) == ["of", "another", "model"]
        convert_checkpoint.convert(source, output_dir, "checkpoint")
        assert model_notes.labels_in(output_dir) == labels


def test_names_are_those_of_the_classifier_s_outputs(tmp_path):
    source, checkpoint = write_classifier(tmp_path / "hf", 2), str(tmp_path / "tf")
    convert_checkpoint.convert(source, checkpoint, "checkpoint")
    model_notes.write_labels(checkpoint, ["a", "b", "c"])
    told = refusal(convert_checkpoint.convert, checkpoint, str(tmp_path / "hf2"), "safetensors")
    assert "of the classifier's 2 outputs; it names 3: 'a' and 2 more. Correct" in told
    arguments = BertConfig(13), "ForSequenceClassification", LONG, 2
    assert len(refusal(hugging_face_config.to_config, *arguments)) < 500
    shapes = ENCODER | POOLER | {k: v for k, v in HEADS.items() if not k.startswith("classifier")}
    names = {"0": "a", "5": "a\n"}
    source = write_folder(tmp_path / "headless", make_tensors(shapes, "bert."), id2label=names)
    convert_checkpoint.convert(source, str(tmp_path / "tf2"), "checkpoint")
    assert not os.path.exists(tmp_path / "tf2" / "labels.txt")


def test_names_that_do_not_fit_are_refused(tmp_path):
    for names in (
        {"0": "a", "1": "b"},
        {"0": "LABEL_0", "1": "LABEL_1"},
        {"0": "a", "1": "b", "2": "c", "3": "d"},
        {"0": "a", "01": "b", "2": "c"},
        {"0": "a", "1": "b", "2": "c\nd"},
        {"0": "a", "1": "b", "2": "c\r"},
        {"0": "a", "1": "b", "2": ""},
        {"0": "a", "1": "b", "2": "a"},
        {"0": "a", "1": "b", "2": 3},
        ["a", "b", "c"],
    ):
        assert refusal(hugging_face_config.class_names, {"id2label": names}, 3, "PATH") == (
            "PATH: id2label must name each of the classifier's 3 outputs: the keys are the numbers"
            " from 0 to 2, and the names are different strings of one line;"
            f" received {names!r}. Correct id2label, or remove it from the file: the classes then"
            " have no names"
        )
    source = write_classifier(tmp_path / "hf", 3, id2label=names)
    told = refusal(convert_checkpoint.convert, source, str(tmp_path / "tf"), "checkpoint")
    assert f"{source}/config.json: id2label must name each of the classifier's 3 outputs" in told
    assert not (tmp_path / "tf").exists()
    same, odd = {"0": LONG[0], "1": LONG[0]}, {"0": "\ud800", "1": "b"}
    for names in (LONG, same, {"0": "a ", "1": "b"}, odd, "ab", 1):
        told = refusal(hugging_face_config.class_names, {"id2label": names}, 2, "config.json")
        assert told.startswith("config.json: id2label") and len(told) < 500


DAMAGED = [
    ("[" * 100_000, "maximum recursion depth"),
    ('{"layer_norm_eps": NaN}', "NaN is not a number in JSON"),
    (LONG, "must hold a dictionary; received "),
    ({"model_type": LONG}, "model_type must be one of 'albert', 'bert', "),
    ({"is_decoder": {"a": LONG}}, "is_decoder must be false, not {'a': "),
    ({**CONFIG, "hidden_act": ["gelu"]}, "hidden_act must be a string; it is ['gelu']"),
    ({**CONFIG, "vocab_size": "13"}, "vocab_size must be a whole number between"),
    ({**CONFIG, "hidden_dropout_prob": "x"}, "hidden_dropout_prob must be at least"),
]


def read(path):
    return hugging_face_config.to_bert_config(hugging_face_config.read_config(path), path)


def test_damaged_configurations_are_refused(tmp_path):
    path = tmp_path / "config.json"
    for content, message in DAMAGED:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        told = refusal(read, str(path))
        assert str(path) in told and message in told and len(told) < 500


def test_errors_about_a_distilbert_name_the_keys_of_its_file():
    for values, message in (
        ({"dim": 10}, "dim (10) must be a multiple of n_heads (12)"),
        ({"dim": "x"}, "dim must be a whole number between 1 and 65536, not 'x'"),
        ({"n_layers": 0, "hidden_dim": 0}, "n_layers must be a whole number between 1 and 1000"),
        ({"attention_dropout": 1}, "attention_dropout must be at least 0 and below 1, not 1"),
        ({"activation": 3}, "config.json: activation must be a string; it is 3"),
        ({"activation": "sine"}, "invalid: activation: "),
        ({"dim": 24, "hidden_size": 36}, "config.json: dim and hidden_size are two names of one"),
    ):
        values = {"model_type": "distilbert", **values}
        told = refusal(hugging_face_config.to_bert_config, values, "config.json")
        assert message in told and "hidden_act" not in told
        assert "hidden_size" not in told or "hidden_size" in values
    for names in (
        {"num_attention_heads": 4},
        {"n_heads": 6},
        {"n_heads": 3, "num_attention_heads": 3},
    ):
        values = {"model_type": "distilbert", **names}
        found = hugging_face_config.to_bert_config(values, "")
        assert {found.num_attention_heads} == {*names.values()}


def test_each_form_of_gelu_keeps_its_meaning():
    for ours, written, *several in (
        ("gelu_erf", "gelu", "gelu", None, "gelu_python", "GELU"),
        ("gelu", "gelu_new", "gelu_new", "Gelu_New", "gelu_pytorch_tanh"),
        ("relu", "relu", "relu"),
    ):
        for theirs in several:
            config = {**CONFIG, "hidden_act": theirs}
            if theirs is None:
                del config["hidden_act"]
            found = hugging_face_config.to_bert_config(config, "config.json")
            assert found.hidden_act == ours
            assert hugging_face_config.to_config(found, "M", None, 0)["hidden_act"] == written


WORDS = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n"
MULTI_LABEL = {"problem_type": "multi_label_classification"}
NAMES = ("x", "y", "z")
INDEPENDENT = (0.6128539540, 0.5833304524, 0.7280095816)


def write_named(folder, names=NAMES, **config):
    shapes = {"classifier.weight": (len(names), 6), "classifier.bias": (len(names),)}
    config = {"architectures": ["BertForSequenceClassification"], **config}
    config.setdefault("id2label", {str(i): name for i, name in enumerate(names)})
    return write_folder(folder, make_tensors(ENCODER | POOLER | shapes, "bert."), WORDS, **config)


@pytest.mark.parametrize(
    ("names", "config", "expected"),
    [
        (NAMES, {**MULTI_LABEL, "threshold": 0.6}, INDEPENDENT),
        (NAMES, {"layer_norm_eps": 0.125}, (0.2807407081, 0.2438278347, 0.4754314721)),
        (("toxic",), MULTI_LABEL, (0.6704112291,)),
        (("s",), {"problem_type": "regression"}, 0.7100458145),
        (("s",), {"problem_type": "regression", "id2label": None}, 0.7100458145),
    ],
    ids=["threshold", "epsilon", "one_label", "number", "number_without_names"],
)
def test_probabilities_are_transformers_before_and_after_conversions(
    tmp_path, names, config, expected
):
    source = write_named(tmp_path / "hf", names, **config)
    checkpoint, back = str(tmp_path / "tf"), str(tmp_path / "back")
    convert_checkpoint.convert(source, checkpoint, "checkpoint")
    convert_checkpoint.convert(checkpoint, back, "safetensors")
    for folder in (source, checkpoint, back):
        found = bert_tf.load(folder).classify("a b")
        if isinstance(expected, float):
            assert found == pytest.approx(expected, abs=1e-6)
        else:
            several = "problem_type" in config
            least = config.get("threshold", 0.5 if several else max(expected))
            above = [name for name, x in zip(names, expected, strict=True) if x >= least]
            assert list(found.labels) == above
            probabilities = dict(zip(names, expected, strict=True))
            assert found.probabilities == pytest.approx(probabilities, abs=1e-6)
    kept = json.loads(Path(back, "config.json").read_text())
    ours = json.loads(Path(checkpoint, "bert_config.json").read_text())
    optional = {"problem_type", "layer_norm_eps", "threshold"}
    assert all(kept[key] == config[key] for key in optional & config.keys())
    is_number = isinstance(expected, float)
    assert optional & ours.keys() == (set() if is_number else optional & config.keys())


def test_exports_and_predictions_have_independent_probabilities(tmp_path):
    source = write_named(tmp_path / "hf", **MULTI_LABEL, threshold=0.7)
    output = tmp_path / "exported"
    export(ExportSettings(input=source, output=str(output), input_kind="ids"))
    function = tf.saved_model.load(str(output)).signatures["serving_default"]
    (ids,) = bert_tf.TextFeatures(output)(["a b"])["input_ids"]
    ids = tf.constant([ids])
    inputs = {"input_ids": ids, "input_mask": 0 * ids + 1, "segment_ids": 0 * ids}
    found = function(**inputs)["probabilities"]
    np.testing.assert_allclose(found, [INDEPENDENT], atol=1e-6)
    text = (output / "README.md").read_text()
    assert "`probabilities`: one for each class, since a text can have several;" in text
    assert "A text has the classes with at least 0.7.\n" in text
    written = json.loads((output / "bert_config.json").read_text())
    assert written["problem_type"] == "multi_label_classification"


REFUSED = [
    ({"problem_type": "multi_class"}, "problem_type must be one of 'single_label_class"),
    ({"problem_type": "regression"}, "problem_type is 'regression', but the classifier has 3"),
    ({"pruned_heads": {"1": [0]}}, "pruned_heads must be {}, not {'1': [0]}: no other value"),
    ({"is_encoder_decoder": True}, "is_encoder_decoder must be false, not True"),
    ({"quantization_config": {"bits": 8}}, "quantization_config must be null, not {'bits': 8}"),
    ({"auto_map": {"AutoModel": "m.M"}}, "auto_map must be null, not {'AutoModel': 'm.M'}"),
    (
        {"tokenizer_class": "BertJapaneseTokenizer"},
        "tokenizer_class must be \"BertTokenizer\", not 'BertJapaneseTokenizer': this kind of"
        " model needs one of 'BertTokenizer', 'BertTokenizerFast', 'DistilBertTokenizer'",
    ),
    (
        {"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"},
        "names the function 'torch.nn.modules.activation.Sigmoid' for the outputs of the model,"
        " but it has several classes, whose probabilities are a softmax. Delete the key",
    ),
    (
        {"sbert_ce_default_activation_function": "torch.nn.ReLU"},
        'sbert_ce_default_activation_function must be "torch.nn.modules.linear.Identity", not'
        " 'torch.nn.ReLU': rank knows only this function and torch.nn.modules.activation.Sig",
    ),
    (
        {"sentence_transformers": {"activation_fn": "torch.nn.Tanh", "version": "5.0"}},
        'sentence_transformers: activation_fn must be "torch.nn.modules.linear.Identity"',
    ),
    ({"sentence_transformers": "5.0"}, "sentence_transformers must be a dictionary, not '5.0'"),
    ({**MULTI_LABEL, "threshold": 1}, "threshold must be above 0 and below 1; it is 1. Corr"),
    ({"layer_norm_eps": 0}, "layer_norm_eps must be above 0 and at most 1, not 0"),
]


def test_what_changes_the_outputs_is_refused(tmp_path):
    source = write_named(tmp_path / "hf")
    path = tmp_path / "hf" / "config.json"
    content = json.loads(path.read_text())
    for config, part in REFUSED:
        path.write_text(json.dumps({**content, **config}))
        told = refusal(convert_checkpoint.convert, source, str(tmp_path / "tf"), "checkpoint")
        assert part in told and str(path) in told
    assert not (tmp_path / "tf").exists()


def test_untied_embeddings_are_refused_where_they_are_used(tmp_path):
    source = write_named(tmp_path / "classifier", tie_word_embeddings=False)
    assert read_folder(source).heads == ("classification",)
    head = {k: shape for k, shape in HEADS.items() if k.startswith("cls.predictions.")}
    tensors = make_tensors(ENCODER | head, "bert.")
    source = write_folder(tmp_path / "hf", tensors, WORDS, tie_word_embeddings=False)
    told = refusal(bert_tf.load, source)
    assert "tie_word_embeddings must be true in a model with a mask" in told


HARMLESS = {
    "pruned_heads": {},
    "tokenizer_class": "BertTokenizerFast",
    "sep_token_id": 3,
    "prefix": "x",
    "task_specific_params": {"a": {}},
    "gradient_checkpointing": True,
    "output_past": True,
    "vocab_type": "x",
    "embedding_size": 6,
    "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity", "version": "5"},
}


def test_harmless_keys(tmp_path):
    path = tmp_path / "config.json"
    expected = hugging_face_config.to_bert_config(CONFIG, "").to_dict()
    for key, value in HARMLESS.items():
        path.write_text(json.dumps({**CONFIG, key: value}))
        config = hugging_face_config.read_config(str(path))
        assert hugging_face_config.to_bert_config(config, str(path)).to_dict() == expected, key


def test_a_distilbert_has_one_epsilon(tmp_path):
    source = write_named(tmp_path / "hf", layer_norm_eps=1e-5)
    convert_checkpoint.convert(source, str(tmp_path / "tf"), "checkpoint")
    path = tmp_path / "tf" / "bert_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_type": "distilbert"}))
    arguments = str(tmp_path / "tf"), str(tmp_path / "d"), "safetensors"
    told = refusal(convert_checkpoint.convert, *arguments)
    assert "always has the layer_norm_eps 1e-12; this model's is 1e-" in told
