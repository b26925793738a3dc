"""Tests of hugging_face/distilbert.py: DistilBERT from Hugging Face's format and back."""

import json
import os
import pathlib
import shutil

import numpy as np
import pytest

from bert_tf import optimization
from bert_tf.model.family import DistilBertConfig, config_from_dict
from bert_tf.modeling import AlbertConfig, BertConfig
from bert_tf.pretrained.build import build_model
from bert_tf.pretrained.folder import read_folder
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from bert_tf.tasks.squad.model import SquadModel
from bert_tf.tasks.tagging.model import TaggingModel
from tests.support import hugging_face_folders
from tests.support.golden import needs_golden
from tests.support.hugging_face_folders import (
    assert_same_bits,
    there_and_back,
    with_biases,
    write_checkpoint,
)
from tests.support.refusals import refusal
from tools import convert_checkpoint

pytestmark = pytest.mark.usefixtures("eager")

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZES = {**hugging_face_folders.SIZES, "hidden_act": "gelu_erf"}
# A head's model and modules.
HEADS = {
    "MaskedLM": (PretrainingModel, {"vocab_transform": (6, 6), "vocab_layer_norm": (6,)}),
    "SequenceClassification": (
        lambda config: ClassificationModel(config, 4),
        {"pre_classifier": (6, 6), "classifier": (4, 6)},
    ),
    "TokenClassification": (lambda config: TaggingModel(config, 3), {"classifier": (3, 6)}),
    "QuestionAnswering": (SquadModel, {"qa_outputs": (2, 6)}),
}
IDS = np.array([[2, 7, 4, 9, 3], [2, 5, 3, 8, 3]], np.int32)
SEGMENTS = np.array([[0, 0, 1, 1, 1], [0, 0, 0, 1, 1]], np.int32)
TYPES = "bert/embeddings/token_type_embeddings"


def write_words(folder, size):
    words = [*SPECIAL, *(f"w{i}" for i in range(size - len(SPECIAL)))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")


@needs_golden
@pytest.mark.parametrize(
    "name", ["masked_lm", "sequence_classification", "token_classification", "question_answering"]
)
def test_outputs_are_transformers(name, tmp_path):
    """As it is and converted to a checkpoint, within 1e-5 of the largest value."""
    source = tmp_path / "model"
    shutil.copytree(pathlib.Path(os.environ["BERT_TF_GOLDEN"]) / "distilbert" / name, source)
    source.chmod(0o755)
    size = json.loads((source / "config.json").read_text())["vocab_size"]
    write_words(source, size)
    converted = str(tmp_path / "converted")
    convert_checkpoint.convert(str(source), converted, "checkpoint")
    arrays = np.load(source / "forward.npz")
    inputs = [arrays[name].astype(np.int32) for name in ("input_ids", "attention_mask")]
    real = arrays["attention_mask"] == 1

    def check(actual, expected, at=...):
        actual, expected = np.asarray(actual)[at], expected[at]
        assert actual.shape == expected.shape
        assert np.abs(actual - expected).max() <= 1e-5 * np.abs(expected).max()

    for path in (str(source), converted):
        folder = read_folder(path)
        (head,) = folder.heads
        model = build_model(head, folder)
        output = model.bert(*inputs)
        layers = [output.embedding_output, *output.all_encoder_layers]
        for layer, expected in zip(layers, arrays["hidden_states"], strict=True):
            check(layer, expected, real)
        if head == "squad":
            for logits, side in zip(model(*inputs), ("start", "end"), strict=True):
                check(logits, arrays[f"{side}_logits"], real)
        elif head == "masked_lm":
            logits = model.cls.predictions(output.sequence_output, None, output.embedding_table)
            check(np.reshape(logits, arrays["logits"].shape), arrays["logits"], real)
        else:
            check(model(*inputs), arrays["logits"], real if head == "tagging" else ...)


def write_model(folder, model):
    """Writes a checkpoint with a vocabulary; returns the folder's path and the weights."""
    source, values = write_checkpoint(folder, model)
    write_words(folder, 13)
    return source, values


@pytest.mark.parametrize("output_format", ["distilbert", "safetensors"])
@pytest.mark.parametrize("architecture", HEADS)
def test_a_checkpoint_is_written_in_transformers_layout(tmp_path, architecture, output_format):
    """From BERT's configuration, or from DistilBERT's, whose classifier has ReLU."""
    build, modules = HEADS[architecture]
    is_classifier = architecture == "SequenceClassification"
    relu = output_format == "safetensors" or is_classifier
    config = (DistilBertConfig if relu else BertConfig)(**SIZES)
    there = there_and_back(tmp_path, build(config), output_format)
    values, tensors, written, after, our_config = there
    bias = {"vocab_projector.bias": (13,)} if architecture == "MaskedLM" else {}
    found = {name: tensor.shape for name, tensor in tensors.items()}
    assert found.items() >= (with_biases(modules) | bias).items()
    assert written["architectures"] == [f"DistilBertFor{architecture}"]
    expected = {"model_type": "distilbert", "vocab_size": 13, "dim": 6, "n_layers": 2, "n_heads": 3}
    expected |= {"hidden_dim": 10, "max_position_embeddings": 7, "activation": "gelu"}
    expected |= {"dropout": 0.25, "attention_dropout": 0.125, "initializer_range": 0.5}
    assert written.items() >= expected.items()

    positions, types = (f"bert/embeddings/{k}_embeddings" for k in ("position", "token_type"))
    values[positions] = values[positions] + values[types][0]
    values[types] = np.zeros_like(values[types])
    omitted = ("cls/seq_relationship", *([] if is_classifier else ["bert/pooler"]))
    kept = {name: value for name, value in values.items() if not name.startswith(omitted)}
    assert_same_bits(after, kept)
    assert config_from_dict(our_config).to_dict() == {**SIZES, "model_type": "distilbert"}


def test_what_distilbert_lacks_is_refused(tmp_path):
    tanh = (
        "tf cannot be written as a DistilBERT: its classifier depends on a pooler with tanh,"
        " where DistilBERT has ReLU. Give --output_format=safetensors, or fine-tune a model"
        ' whose bert_config.json has "model_type": "distilbert"'
    )
    albert = PretrainingModel(AlbertConfig(**SIZES, embedding_size=4))
    for name, model, message in (
        ("tf", ClassificationModel(BertConfig(**SIZES), 4), tanh),
        ("albert", albert, "has ALBERT's. Give --output_format=safetensors"),
    ):
        source, _ = write_model(tmp_path / name, model)
        told = refusal(convert_checkpoint.convert, source, str(tmp_path / "hf"), "distilbert")
        assert message in told and (name != "tf" or told.endswith(message))


def test_a_distilbert_pools_with_relu():
    config = DistilBertConfig(**SIZES)
    model = ClassificationModel(config, 4)
    output = model.bert(IDS)
    kernel = np.asarray(model.bert.pooler.dense.kernel)
    expected = np.maximum(np.asarray(output.sequence_output)[:, 0] @ kernel, 0.0)
    np.testing.assert_allclose(output.pooled_output, expected, atol=1e-6)
    assert (np.asarray(output.pooled_output) == 0.0).any()
    again = ClassificationModel.from_config(model.get_config())
    assert again.bert.config.to_dict() == config.to_dict()
    assert isinstance(again.bert.config, DistilBertConfig)


def test_a_distilbert_reads_both_texts_like_a_first_one():
    """With the weights of a BERT, too, whose token types are not zeros."""
    models = [PretrainingModel(config(**SIZES)) for config in (BertConfig, DistilBertConfig)]
    bert, distilbert = ({v.path: v for v in model.variables} for model in models)
    assert not np.any(distilbert[TYPES].numpy())
    for name, variable in distilbert.items():
        variable.assign(bert[name])
    expected = models[0].bert(IDS).embedding_output
    for segments in (None, SEGMENTS):
        np.testing.assert_array_equal(models[1].bert(IDS, None, segments)[0], expected)
    assert np.any(models[0].bert(IDS, None, SEGMENTS)[0] != expected)


def test_token_types_are_not_trained():
    model = ClassificationModel(DistilBertConfig(**SIZES), 4)
    again = ClassificationModel.from_config(model.get_config())
    for made in (model, again):
        learned = {v.path for v in made.trainable_variables}
        assert {v.path for v in made.variables} - learned == {TYPES}
    slots = optimization.create_optimizer(
        model.trainable_variables, lambda step: 0.1
    ).checkpoint_variables()
    assert not any(name.startswith(TYPES) for name in slots)
    assert "bert/embeddings/position_embeddings/adam_m" in slots
    model.trainable = False
    model.trainable = True
    assert not {v.path: v for v in model.variables}[TYPES].trainable
