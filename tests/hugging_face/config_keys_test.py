"""What each key of a config.json means: classes that are independent, epsilon, what is refused.

The probabilities are those of transformers 5.24's text-classification pipeline for these folders.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.export.exporting import export
from bert_tf.export.settings import ExportSettings
from bert_tf.model.configuration import BertConfig
from bert_tf.model_folder.hugging_face import config as hugging_face_config
from bert_tf.pretrained.folder import read_folder
from bert_tf.tasks.classification.model import ClassificationModel
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

WORDS = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n"
MULTI_LABEL = {"problem_type": "multi_label_classification"}
NAMES = ("x", "y", "z")
INDEPENDENT = (0.6128539540, 0.5833304524, 0.7280095816)


def write_classifier(folder, names=NAMES, **config):
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
    source = write_classifier(tmp_path / "hf", names, **config)
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
    source = write_classifier(tmp_path / "hf", **MULTI_LABEL, threshold=0.7)
    output = tmp_path / "exported"
    export(ExportSettings(input=source, output=str(output), input_kind="ids"))
    function = tf.saved_model.load(str(output)).signatures["serving_default"]
    (ids,) = bert_tf.TextFeatures(output)(["a b"])["input_ids"]
    ids = tf.constant([ids])
    inputs = {"input_ids": ids, "input_mask": 0 * ids + 1, "segment_ids": 0 * ids}
    found = function(**inputs)["probabilities"]
    np.testing.assert_allclose(found, [INDEPENDENT], atol=1e-6)
    text = (output / "README.md").read_text()
    assert "`probabilities`: of each class on its own" in text
    assert "A text has the classes of at least 0.7.\n" in text
    written = json.loads((output / "bert_config.json").read_text())
    assert written["problem_type"] == "multi_label_classification"

    model = ClassificationModel(BertConfig.from_dict(written), 3)
    logits = tf.constant([[0.0, 2.0, -3.0]])
    outputs = model.predictions(logits, {"label_ids": tf.constant([[0, 1, 0]])})["outputs"]
    np.testing.assert_allclose(outputs, [[0.5, 0.880797, 0.047426]], atol=1e-6)


REFUSED = [
    ({"problem_type": "multi_class"}, "problem_type must be one of 'single_label_class"),
    ({"problem_type": "regression"}, "problem_type is 'regression', and the classifier has 3"),
    ({"pruned_heads": {"1": [0]}}, "pruned_heads must be {}, not {'1': [0]}: no other value"),
    ({"is_encoder_decoder": True}, "is_encoder_decoder must be false, not True"),
    ({"quantization_config": {"bits": 8}}, "quantization_config must be null, not {'bits': 8}"),
    ({"auto_map": {"AutoModel": "m.M"}}, "auto_map must be null, not {'AutoModel': 'm.M'}"),
    (
        {"tokenizer_class": "BertJapaneseTokenizer"},
        "tokenizer_class must be \"BertTokenizer\", not 'BertJapaneseTokenizer': this kind of"
        " model needs one of 'BertTokenizer', 'BertTokenizerFast', 'DistilBertTokenizer'",
    ),
    ({"tokenizer_class": "RobertaTokenizer"}, 'tokenizer_class must be "BertTokenizer"'),
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
    ({**MULTI_LABEL, "threshold": "x"}, "threshold must be above 0 and below 1; it is 'x'."),
    ({"layer_norm_eps": 0}, "layer_norm_eps must be above 0 and at most 1, not 0"),
]


def test_what_changes_the_outputs_is_refused(tmp_path):
    source = write_classifier(tmp_path / "hf")
    path = tmp_path / "hf" / "config.json"
    content = json.loads(path.read_text())
    for config, part in REFUSED:
        path.write_text(json.dumps({**content, **config}))
        told = refusal(convert_checkpoint.convert, source, str(tmp_path / "tf"), "checkpoint")
        assert part in told and str(path) in told
    assert not (tmp_path / "tf").exists()


def test_untied_embeddings_are_refused_where_they_are_used(tmp_path):
    source = write_classifier(tmp_path / "classifier", tie_word_embeddings=False)
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
    source = write_classifier(tmp_path / "hf", layer_norm_eps=1e-5)
    convert_checkpoint.convert(source, str(tmp_path / "tf"), "checkpoint")
    path = tmp_path / "tf" / "bert_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_type": "distilbert"}))
    arguments = str(tmp_path / "tf"), str(tmp_path / "d"), "safetensors"
    told = refusal(convert_checkpoint.convert, *arguments)
    assert "always has the layer_norm_eps 1e-12; this model's is 1e-" in told
