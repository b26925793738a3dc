"""Tests of hugging_face/roberta.py: RoBERTa to Hugging Face's format and back."""

import json
import re

import numpy as np
import pytest
import safetensors.numpy
import tokenizers

import bert_tf
from bert_tf.files import checkpoints
from bert_tf.model.family import RobertaConfig
from bert_tf.model_folder.hugging_face import config as hugging_face_config
from bert_tf.model_folder.hugging_face.conversion import ConvertedModel
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.multiple_choice.model import MultipleChoiceModel
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from bert_tf.tasks.tagging.model import TaggingModel
from bert_tf.text.tokenizers import read_vocabulary
from tests.support import hugging_face_folders
from tests.support.byte_pair_files import SPECIAL, word_merges, write_vocabulary
from tests.support.hugging_face_folders import (
    ENCODER,
    assert_same_bits,
    there_and_back,
    with_biases,
    write_checkpoint,
)
from tests.support.pretraining_runs import variables
from tests.support.refusals import refusal
from tools import convert_checkpoint

pytestmark = pytest.mark.usefixtures("eager")

SIZES = {**hugging_face_folders.SIZES, "layer_norm_eps": 1e-4, "pad_token_id": 3}
# Modules with their shapes, as RobertaForMaskedLM has them: [outputs, inputs].
MASKED_LM = {"lm_head.dense": (6, 6), "lm_head.layer_norm": (6,)}
CLASSIFIER = {"classifier.dense": (6, 6), "classifier.out_proj": (4, 6)}


@pytest.mark.parametrize(
    ("model", "architecture", "head"),
    [
        (PretrainingModel, "RobertaForMaskedLM", MASKED_LM),
        (MultipleChoiceModel, "RobertaForMultipleChoice", {"classifier": (1, 6)}),
    ],
)
def test_there_and_back_every_bit_is_the_same(tmp_path, model, architecture, head):
    there = there_and_back(tmp_path, model(RobertaConfig(**SIZES)))
    before, tensors, config, after, our_config = there
    found = {name: tensor.shape for name, tensor in tensors.items()}
    assert found.items() >= with_biases(head | {"roberta.pooler.dense": (6, 6)}).items()
    assert config["architectures"] == [architecture]
    assert config["model_type"] == "roberta" and config["hidden_act"] == "gelu"
    assert config.items() >= SIZES.items()
    assert_same_bits(after, before)
    assert our_config == RobertaConfig(**SIZES).to_dict()


def test_a_tagger_whose_classes_are_no_tags(tmp_path):
    """Without a pooler a classifier is a tagger's, and has a tagger's names."""
    source, values = write_checkpoint(tmp_path / "tf", TaggingModel(RobertaConfig(**SIZES), 3))
    values = {name: value for name, value in values.items() if "pooler" not in name}
    checkpoints.write(f"{source}/bert_model.ckpt", values)
    (tmp_path / "tf" / "labels.txt").write_text("NOUN\nVERB\nADJ\n")
    there, back = tmp_path / "hf", tmp_path / "back"
    convert_checkpoint.convert(source, str(there), "safetensors")
    assert "classifier.weight" in safetensors.numpy.load_file(there / "model.safetensors")
    convert_checkpoint.convert(str(there), str(back), "checkpoint")
    assert_same_bits(variables(back / "bert_model.ckpt"), values)
    assert (back / "labels.txt").read_text() == "NOUN\nVERB\nADJ\n"


def write_folder(folder, tensors, **config):
    config = {**SIZES, "model_type": "roberta", **config}
    return hugging_face_folders.write_folder(folder, tensors, vocab=None, **config)


def filled(shapes, value):
    return {name: np.full(shape, value, np.float32) for name, shape in shapes.items()}


ENCODER_TENSORS = {f"roberta.{name}": x for name, x in filled(ENCODER, 0.5).items()}


def test_copies_of_weights_are_omitted(tmp_path):
    head = with_biases(MASKED_LM) | {"lm_head.bias": (13,)}
    tensors = ENCODER_TENSORS | filled(head, 1)
    copies = {
        "lm_head.decoder.weight": tensors["roberta.embeddings.word_embeddings.weight"],
        "lm_head.decoder.bias": tensors["lm_head.bias"],
        "roberta.embeddings.position_ids": np.zeros([1, 7], np.float32),
    }
    found = ConvertedModel(write_folder(tmp_path / "a", tensors | copies))
    weights, config = found.weights, found.config
    names = {v.path for v in PretrainingModel(config).variables}
    assert {*weights} == {x for x in names if "pooler" not in x} != names
    copies["lm_head.decoder.bias"] = np.zeros(13, np.float32)
    other = ConvertedModel(write_folder(tmp_path / "b", tensors | copies))
    told = refusal(getattr, other, "weights")
    assert "lm_head.decoder.bias must equal lm_head.bias" in told


@pytest.mark.parametrize("architectures", [["RobertaForSequenceClassification"], None])
def test_a_classifier_of_texts_with_an_unused_pooler(tmp_path, architectures):
    """The names show the head, with `architectures` and without; its dense layer is the pooler."""
    tensors = ENCODER_TENSORS | filled(with_biases(CLASSIFIER), 2)
    pooler = filled(with_biases({"roberta.pooler.dense": (6, 6)}), 1)
    alone = write_folder(tmp_path / "alone", tensors, architectures=architectures)
    both = write_folder(tmp_path / "both", tensors | pooler, architectures=architectures)
    found = ConvertedModel(both)
    weights, config = found.weights, found.config
    assert set(weights) == {v.path for v in ClassificationModel(config, 4).variables}
    assert_same_bits(weights, ConvertedModel(alone).weights)
    assert np.all(weights["bert/pooler/dense/kernel"] == 2)


def test_a_head_that_roberta_lacks(tmp_path):
    tensors = ENCODER_TENSORS | filled(with_biases({"cls.seq_relationship": (2, 6)}), 1)
    told = refusal(ConvertedModel, write_folder(tmp_path / "there", tensors))
    assert "unexpected: 'cls.seq_relationship.bias' and 1 more" in told
    source, values = write_checkpoint(tmp_path / "here", PretrainingModel(RobertaConfig(**SIZES)))
    head = {"output_weights": (2, 6), "output_bias": (2,)}
    values |= filled({f"cls/seq_relationship/{name}": shape for name, shape in head.items()}, 1)
    checkpoints.write(f"{source}/bert_model.ckpt", values)
    told = refusal(convert_checkpoint.convert, source, str(tmp_path / "to"), "safetensors")
    assert "unexpected: 'cls/seq_relationship/output_bias' and 1 mo" in told


def tokenizer_json(folder, **changes):
    """Writes vocab.json and merges.txt; returns what Hugging Face writes to a tokenizer.json."""
    vocab_file = write_vocabulary(folder, word_merges(["sea", "house"]))
    model = tokenizers.models.BPE.from_file(vocab_file, str(folder / "merges.txt"))
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    for token in SPECIAL:
        added = tokenizers.AddedToken(token, lstrip=token == "<mask>", normalized=False)
        made.add_special_tokens([added])
    return {**json.loads(made.to_str()), **changes}


def write_folders(tmp_path):
    """Writes a model with vocab.json and merges.txt to tf/ and hf/.

    Returns the path of hf/, and the content of a tokenizer.json.
    """
    content = tokenizer_json(tmp_path)
    vocab = json.loads((tmp_path / "vocab.json").read_text())
    sizes = {"vocab_size": len(vocab), "max_position_embeddings": 30}
    config = RobertaConfig(**{**SIZES, **sizes, "pad_token_id": vocab["<pad>"]})
    source, _ = write_checkpoint(tmp_path / "tf", PretrainingModel(config))
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / "tf" / name).write_bytes((tmp_path / name).read_bytes())
    convert_checkpoint.convert(source, str(tmp_path / "hf"), "safetensors")
    return tmp_path / "hf", content


def test_a_folder_with_a_tokenizer_json_alone(tmp_path):
    folder, content = write_folders(tmp_path)
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink()
    (folder / "tokenizer.json").write_text(json.dumps(content))
    convert_checkpoint.convert(str(folder), str(tmp_path / "back"), "checkpoint")
    texts = ["a house by the <mask>", "<mask> sea"]
    models = [bert_tf.load(str(tmp_path / name)) for name in ("tf", "hf", "back")]
    expected, *others = [model.fill_mask(texts) for model in models]
    assert others == [expected] * 2
    assert models[0].tokenizer.vocab == models[1].tokenizer.vocab
    # Merges were texts in older files.
    content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    (folder / "tokenizer.json").write_text(json.dumps(content))
    assert bert_tf.load(str(folder)).fill_mask(texts) == expected


def users_of(folder, output_dir):
    return (
        lambda: bert_tf.load(str(folder)),
        lambda: convert_checkpoint.convert(str(folder), str(output_dir), "checkpoint"),
    )


def test_a_vocabulary_without_merges(tmp_path):
    """It is refused, but ignored next to a tokenizer.json, which has the merges."""
    folder, content = write_folders(tmp_path)
    text = "a house by the <mask>"
    expected = bert_tf.load(str(folder)).fill_mask(text)
    (folder / "merges.txt").unlink()
    for call in users_of(folder, tmp_path / "to"):
        assert "hf/merges.txt cannot be read (" in refusal(call)
    (folder / "tokenizer.json").write_text(json.dumps(content))
    convert_checkpoint.convert(str(folder), str(tmp_path / "to"), "checkpoint")
    for path in (str(folder), str(tmp_path / "to")):
        assert bert_tf.load(path).fill_mask(text) == expected


ELSEWHERE = [
    ("tokenizer_config.json", {"add_prefix_space": 1}, "add_prefix_space must be true or fal"),
    ("tokenizer_config.json", {"mask_token": "[MASK]"}, "must be <mask>; received '[MASK]'"),
    ("special_tokens_map.json", {"cls_token": {"content": "<c>"}}, "be <s>; received '<c>'"),
    ("added_tokens.json", {"<mask>": 4, "<e1>": "9"}, "'<e1>'"),
]


@pytest.mark.parametrize("with_tokenizer_json", [False, True])
def test_what_is_asked_of_the_vocabulary_elsewhere(tmp_path, with_tokenizer_json):
    folder, tokenizer = write_folders(tmp_path)
    if with_tokenizer_json:
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        (folder / "vocab.json").unlink()
    for name, content, message in ELSEWHERE:
        before = (folder / name).read_bytes() if (folder / name).exists() else None
        (folder / name).write_text(json.dumps(content))
        for call in users_of(folder, tmp_path / "to"):
            told = refusal(call)
            assert told.startswith(f"{folder}/{name}: ") and message in told
        (folder / name).unlink() if before is None else (folder / name).write_bytes(before)
    assert not (tmp_path / "to").exists()


def test_a_tokenizer_json_of_another_bpe(tmp_path):
    for changes, message in (
        ({"normalizer": {"type": "NFC"}}, "its normalizer must be null; received .*NFC"),
        ({"pre_tokenizer": None}, 'its pre_tokenizer must be {"type": "ByteLevel", "use_regex": t'),
        ({"added_tokens": ["<e1>", {"id": 9}]}, "it must be .* cannot read it .invalid type: str"),
    ):
        content = tokenizer_json(tmp_path, **changes)
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        told = refusal(read_vocabulary, str(tmp_path / "tokenizer.json"))
        assert re.search(f"tokenizer.json: {message}", told)


def test_what_a_configuration_may_leave_out():
    """The values are Hugging Face's then."""
    config = hugging_face_config.to_bert_config({"model_type": "roberta"}, "config.json")
    assert (config.vocab_size, config.max_position_embeddings) == (50265, 512)
    assert (config.type_vocab_size, config.layer_norm_eps) == (2, 1e-12)
    assert (config.pad_token_id, config.hidden_act) == (1, "gelu_erf")
    values = {"model_type": "roberta", "layer_norm_eps": 0}
    told = refusal(hugging_face_config.to_bert_config, values, "config.json")
    assert told.startswith("config.json: ") and " layer_norm_eps must be above 0" in told
