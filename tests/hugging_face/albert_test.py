"""Tests of bert_tf/hugging_face/albert.py: ALBERT to Hugging Face's format and back."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import bert_tf
from bert_tf.errors import UserError
from bert_tf.hugging_face import config as hugging_face_config
from bert_tf.modeling import AlbertConfig
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from bert_tf.tasks.squad.model import SquadModel
from bert_tf.tasks.tagging.model import TaggingModel
from tests.support import sentence_piece_model
from tests.support.hugging_face_folders import assert_same_bits, with_biases, write_checkpoint
from tests.support.pretraining_runs import variables
from tools import convert_checkpoint

SIZES = {
    "vocab_size": 29,
    "embedding_size": 4,
    "hidden_size": 6,
    "num_hidden_layers": 5,
    "num_hidden_groups": 2,
    "num_attention_heads": 3,
    "intermediate_size": 10,
    "inner_group_num": 1,
    "max_position_embeddings": 7,
    "type_vocab_size": 2,
}
# Names and shapes as AlbertForPreTraining has them: [outputs, inputs].
LAYER = {
    "full_layer_layer_norm": (6,),
    "attention.query": (6, 6),
    "attention.key": (6, 6),
    "attention.value": (6, 6),
    "attention.dense": (6, 6),
    "attention.LayerNorm": (6,),
    "ffn": (10, 6),
    "ffn_output": (6, 10),
}
LAYERS = {
    f"albert.encoder.albert_layer_groups.{i}.albert_layers.0.{name}": shape
    for i in range(2)
    for name, shape in LAYER.items()
}
MODULES = {
    "albert.embeddings.LayerNorm": (4,),
    "albert.encoder.embedding_hidden_mapping_in": (6, 4),
    **LAYERS,
    "albert.pooler": (6, 6),
}
TABLES = {
    "albert.embeddings.word_embeddings.weight": (29, 4),
    "albert.embeddings.position_embeddings.weight": (7, 4),
    "albert.embeddings.token_type_embeddings.weight": (2, 4),
}
PRETRAINING = {
    "predictions.dense": (4, 6),
    "predictions.LayerNorm": (4,),
    "sop_classifier.classifier": (2, 6),
}
PIECES = ["[CLS]", "[SEP]", "[MASK]", "▁a", "▁house", "▁by", "▁the", "▁sea"]
# Where our variable is, of each of Hugging Face's modules.
PLACES = {
    "albert.encoder.embedding_hidden_mapping_in": "bert/encoder/embedding_hidden_mapping_in",
    "group.attention.query": "attention_1/self/query",
    "group.attention.dense": "attention_1/output/dense",
    "group.ffn": "ffn_1/intermediate/dense",
    "group.ffn_output": "ffn_1/intermediate/output/dense",
    "albert.pooler": "bert/pooler/dense",
    "predictions.dense": "cls/predictions/transform/dense",
}


def write_model(folder, model=PretrainingModel, **changes):
    config = AlbertConfig(**{**SIZES, **changes})
    return write_checkpoint(folder, model(config), "albert_config.json")


def test_there_and_back_every_bit_is_the_same(tmp_path):
    source, values = write_model(tmp_path / "tf")
    # The original's file has no `model_type`.
    (tmp_path / "tf" / "albert_config.json").write_text(json.dumps(SIZES))
    there, back = str(tmp_path / "hf"), str(tmp_path / "back")
    convert_checkpoint.convert(source, there, "safetensors")
    tensors = safetensors.numpy.load_file(f"{there}/model.safetensors")
    shapes = TABLES | with_biases(MODULES | PRETRAINING) | {"predictions.bias": (29,)}
    assert {name: tensor.shape for name, tensor in tensors.items()} == shapes
    for other, name in PLACES.items():
        if other.startswith("group."):
            other = f"albert.encoder.albert_layer_groups.1.albert_layers.0.{other[6:]}"
            name = f"bert/encoder/transformer/group_1/inner_group_0/{name}"
        np.testing.assert_array_equal(tensors[f"{other}.weight"].T, values[f"{name}/kernel"])
        np.testing.assert_array_equal(tensors[f"{other}.bias"], values[f"{name}/bias"])
    group = "bert/encoder/transformer/group_0/inner_group_0"
    layer = "albert.encoder.albert_layer_groups.0.albert_layers.0"
    norms = {"LayerNorm": "attention.LayerNorm", "LayerNorm_1": "full_layer_layer_norm"}
    for name, other in norms.items():
        gamma = values[f"{group}/{name}/gamma"]
        np.testing.assert_array_equal(tensors[f"{layer}.{other}.weight"], gamma)
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["architectures"] == ["AlbertForPreTraining"]
    assert config["model_type"] == "albert" and config["hidden_act"] == "gelu_new"
    assert config.items() >= SIZES.items()
    convert_checkpoint.convert(there, back, "checkpoint")
    assert_same_bits(variables(f"{back}/bert_model.ckpt"), values)
    written = json.loads((tmp_path / "back" / "bert_config.json").read_text())
    assert written == AlbertConfig(**SIZES).to_dict()


@pytest.mark.parametrize(
    ("model", "architecture", "name"),
    [
        (lambda config: ClassificationModel(config, 3), "SequenceClassification", "classifier"),
        (lambda config: TaggingModel(config, 3), "TokenClassification", "classifier"),
        (SquadModel, "QuestionAnswering", "qa_outputs"),
    ],
)
def test_heads(tmp_path, model, architecture, name):
    source, values = write_model(tmp_path / "tf", model)
    convert_checkpoint.convert(source, str(tmp_path / "hf"), "safetensors")
    tensors = safetensors.numpy.load_file(tmp_path / "hf" / "model.safetensors")
    written = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert written["architectures"] == [f"AlbertFor{architecture}"]
    assert set(tensors) == set(TABLES | with_biases(MODULES | {name: (3, 6)}))
    convert_checkpoint.convert(str(tmp_path / "hf"), str(tmp_path / "back"), "checkpoint")
    assert_same_bits(variables(tmp_path / "back" / "bert_model.ckpt"), values)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"embedding_size": 6}, "differs from hidden_size; both are 6, so the model cannot"),
        (
            {"num_hidden_layers": 22, "num_hidden_groups": 22},
            "22 layers in 22 groups: Hugging Face's ALBERT assigns some layers to other groups",
        ),
        (
            {"num_hidden_layers": 2, "num_hidden_groups": 3},
            r"num_hidden_groups \(3\) must be at most num_hidden_layers \(2\)",
        ),
    ],
)
def test_what_the_formats_do_not_share(tmp_path, sizes, message):
    source, _ = write_model(tmp_path / "tf", **sizes)
    with pytest.raises(UserError, match=message):
        convert_checkpoint.convert(source, str(tmp_path / "hf"), "safetensors")


@pytest.mark.parametrize(("values", "count"), [({"layer_norm_eps": 1e-5}, 1), ({}, 0)])
def test_another_epsilon_gives_a_warning(values, count, warnings):
    config = {"model_type": "albert", **SIZES, **values}
    hugging_face_config.to_bert_config(config, "FOLDER/config.json")
    found = [text for text in warnings if "layer_norm_eps" in text]
    assert len(found) == count
    assert all("FOLDER/config.json: layer_norm_eps is 1e-05; bert_tf always" in x for x in found)


def test_a_folder_with_a_sentence_piece_model_loads(tmp_path):
    source, _ = write_model(tmp_path / "tf")
    pieces = sentence_piece_model.write_model(tmp_path / "tf" / "30k-clean.model", PIECES)
    convert_checkpoint.convert(source, str(tmp_path / "hf"), "safetensors")
    assert (tmp_path / "hf" / "spiece.model").read_bytes() == Path(pieces).read_bytes()
    ours, theirs = (bert_tf.load(path) for path in (source, str(tmp_path / "hf")))
    assert "hf: ALBERT of 5 layers, hidden size 6" in str(theirs)
    assert ours.heads == theirs.heads == ("masked_lm", "next_sentence")
    vectors = [model.encode(["a house", "by the sea"]) for model in (ours, theirs)]
    np.testing.assert_array_equal(*vectors)
