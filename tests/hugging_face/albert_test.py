"""Tests of hugging_face/albert.py: ALBERT to Hugging Face's format and back."""

import json
from pathlib import Path

import numpy as np
import pytest

import bert_tf
from bert_tf.model_folder.hugging_face import config as hugging_face_config
from bert_tf.modeling import AlbertConfig
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from bert_tf.tasks.squad.model import SquadModel
from tests.support import hugging_face_folders, sentence_piece_model
from tests.support.hugging_face_folders import (
    assert_same_bits,
    there_and_back,
    with_biases,
    write_checkpoint,
)
from tests.support.refusals import refusal
from tools import convert_checkpoint

pytestmark = pytest.mark.usefixtures("eager")

SIZES = {**hugging_face_folders.SIZES, "vocab_size": 29, "embedding_size": 4}
SIZES |= {"num_hidden_layers": 5, "num_hidden_groups": 2, "inner_group_num": 1}
# The model and the modules of each head that no folder of the hub has.
HEADS = {
    "PreTraining": (
        PretrainingModel,
        {
            **{"predictions.dense": (4, 6), "predictions.LayerNorm": (4,)},
            "sop_classifier.classifier": (2, 6),
        },
    ),
    "QuestionAnswering": (SquadModel, {"qa_outputs": (2, 6)}),
}
PIECES = ["[CLS]", "[SEP]", "[MASK]", "▁a", "▁house", "▁by", "▁the", "▁sea"]


@pytest.mark.parametrize("architecture", HEADS)
def test_there_and_back_every_bit_is_the_same(tmp_path, architecture):
    model, head = HEADS[architecture]
    before, tensors, config, after, our_config = there_and_back(
        tmp_path, model(AlbertConfig(**SIZES))
    )
    found = {name: tensor.shape for name, tensor in tensors.items()}
    assert found.items() >= with_biases(head).items()
    theirs = tensors["albert.encoder.albert_layer_groups.1.albert_layers.0.ffn_output.weight"]
    ours = "bert/encoder/transformer/group_1/inner_group_0/ffn_1/intermediate/output/dense/kernel"
    np.testing.assert_array_equal(theirs.T, before[ours])
    assert config["architectures"] == [f"AlbertFor{architecture}"]
    assert config["model_type"] == "albert" and config["hidden_act"] == "gelu_new"
    assert config.items() >= SIZES.items()
    assert_same_bits(after, before)
    assert our_config == AlbertConfig(**SIZES).to_dict()


def test_what_the_formats_do_not_share(tmp_path):
    """Values are random but for the sizes; only the configuration is looked at."""
    source, _ = write_checkpoint(tmp_path / "tf", PretrainingModel(AlbertConfig(**SIZES)))
    path = tmp_path / "tf" / "albert_config.json"
    for sizes, message in (
        ({"embedding_size": 6}, "differs from hidden_size; both are 6, so the model cannot"),
        (
            {"num_hidden_layers": 22, "num_hidden_groups": 22},
            "22 layers in 22 groups: Hugging Face's ALBERT assigns some layers to other groups",
        ),
        (
            {"num_hidden_layers": 2, "num_hidden_groups": 3},
            "num_hidden_groups (3) must be at most num_hidden_layers (2)",
        ),
    ):
        path.write_text(json.dumps({**SIZES, **sizes}))
        told = refusal(convert_checkpoint.convert, source, str(tmp_path / "hf"), "safetensors")
        assert message in told


def test_the_epsilon_goes_both_ways():
    for values, epsilon in (({"layer_norm_eps": 1e-5}, 1e-5), ({}, 1e-12)):
        config = {"model_type": "albert", **SIZES, **values}
        found = hugging_face_config.to_bert_config(config, "FOLDER/config.json")
        assert found.layer_norm_eps == epsilon
        assert ("layer_norm_eps" in found.to_dict()) == bool(values)
        assert hugging_face_config.to_config(found, "Model", None, 0)["layer_norm_eps"] == epsilon


def test_a_folder_with_a_sentence_piece_model_loads(tmp_path):
    source, _ = write_checkpoint(tmp_path / "tf", PretrainingModel(AlbertConfig(**SIZES)))
    place = tmp_path / "tf" / "30k-clean.model"
    sentence_piece_model.write_model(place, PIECES)
    told = refusal(convert_checkpoint.convert, source, str(tmp_path / "hf"), "safetensors")
    assert "unknown piece of an ALBERT in Hugging Face's format must have the id 1, not 0" in told
    pieces = sentence_piece_model.write_model(place, PIECES, first=["<pad>"])
    convert_checkpoint.convert(source, str(tmp_path / "hf"), "safetensors")
    assert (tmp_path / "hf" / "spiece.model").read_bytes() == Path(pieces).read_bytes()
    ours, theirs = (bert_tf.load(path) for path in (source, str(tmp_path / "hf")))
    assert "hf: ALBERT of 5 layers, hidden size 6" in str(theirs)
    assert ours.heads == theirs.heads == ("masked_lm", "next_sentence")
    vectors = [model.encode(["a house", "by the sea"]) for model in (ours, theirs)]
    np.testing.assert_array_equal(*vectors)
