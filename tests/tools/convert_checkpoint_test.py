"""Tests of tools/convert_checkpoint.py, and of bert_tf/model_folder/hugging_face/weights.py."""

import json
import os
import sys

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from bert_tf import tokenization
from bert_tf.files import checkpoints
from bert_tf.files.checkpoint_directory import CheckpointDirectory
from bert_tf.model_folder.hugging_face import bert as bert_weights
from bert_tf.model_folder.hugging_face import conversion
from bert_tf.modeling import BertConfig, BertModel
from bert_tf.tasks.multiple_choice.model import MultipleChoiceModel
from bert_tf.text.tokenizers import load_tokenizer
from tests.support.golden import needs_golden
from tests.support.hugging_face_folders import (
    CONFIG,
    ENCODER,
    HEADS,
    POOLER,
    SIZES,
    assert_same_bits,
    make_tensors,
    write_folder,
)
from tests.support.numpy_bert import NumpyBert, gelu, layer_norm, log_softmax
from tests.support.pretraining_runs import run, variables
from tests.support.refusals import refusal, refuses
from tools import convert_checkpoint

HEAD_NAMES = {
    "cls.predictions.transform.dense.bias": "cls/predictions/transform/dense/bias",
    "cls.predictions.transform.LayerNorm.weight": "cls/predictions/transform/LayerNorm/gamma",
    "cls.predictions.transform.LayerNorm.bias": "cls/predictions/transform/LayerNorm/beta",
    "cls.predictions.bias": "cls/predictions/output_bias",
    "cls.seq_relationship.weight": "cls/seq_relationship/output_weights",
    "cls.seq_relationship.bias": "cls/seq_relationship/output_bias",
    "classifier.weight": "output_weights",
    "classifier.bias": "output_bias",
    "qa_outputs.weight": "cls/squad/output_weights",
    "qa_outputs.bias": "cls/squad/output_bias",
}


MULTIPLE_CHOICE = {"architectures": ["BertForMultipleChoice"]}


def converted(folder, tensors, **options):
    """Writes tensors to hf/ and converts them to tf/; returns the variables there."""
    source = write_folder(folder / "hf", tensors, **options)
    convert_checkpoint.convert(source, str(folder / "tf"), "checkpoint")
    return variables(folder / "tf" / "bert_model.ckpt")


def check_there_and_back(folder, tensors, found):
    """Checks that the checkpoint in tf/ becomes these tensors and again these variables.

    Returns the configuration in Hugging Face's format.
    """
    back, again = (str(folder / name) for name in ("back", "again"))
    convert_checkpoint.convert(f"{folder}/tf/bert_model.ckpt", back, "safetensors")
    assert_same_bits(safetensors.numpy.load_file(f"{back}/model.safetensors"), tensors)
    convert_checkpoint.convert(back, again, "checkpoint")
    assert_same_bits(variables(f"{again}/bert_model.ckpt"), found)
    return json.loads((folder / "back" / "config.json").read_text())


def shapes_of(model):
    return {variable.path: tuple(variable.shape) for variable in model.variables}


def hugging_face_forward(tensors, ids):
    """Returns the last layer's vectors, [S, H], as Hugging Face's own layers compute them."""

    def linear(x, name):  # torch.nn.Linear: x W^T + b
        return x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]

    def norm(x, name):
        return layer_norm(x, tensors[f"{name}.LayerNorm.weight"], tensors[f"{name}.LayerNorm.bias"])

    x = tensors["embeddings.word_embeddings.weight"][ids]
    x = x + tensors["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + tensors["embeddings.token_type_embeddings.weight"][0], "embeddings")
    for i in range(2):
        scope = f"encoder.layer.{i}"
        query, key, value = (
            linear(x, f"{scope}.attention.self.{k}").reshape(len(ids), 3, 2)
            for k in ("query", "key", "value")
        )
        probs = np.exp(log_softmax(np.einsum("fnd,tnd->nft", query, key) / np.sqrt(2)))
        context = np.einsum("nft,tnd->fnd", probs, value).reshape(len(ids), 6)
        context = linear(context, f"{scope}.attention.output.dense")
        x = norm(x + context, f"{scope}.attention.output")
        inner = gelu(linear(x, f"{scope}.intermediate.dense"))
        x = norm(x + linear(inner, f"{scope}.output.dense"), f"{scope}.output")
    return x


def test_the_converted_model_has_its_names_and_computes_the_same(tmp_path):
    tensors = make_tensors(ENCODER | POOLER)
    found = converted(tmp_path, tensors)
    assert sorted(os.listdir(tmp_path / "tf")) == [
        *("bert_config.json", "bert_model.ckpt.data-00000-of-00001", "bert_model.ckpt.index"),
        *("tokenizer_config.json", "vocab.txt"),
    ]
    config = json.loads((tmp_path / "tf" / "bert_config.json").read_text())
    assert config == {**SIZES, "hidden_act": "gelu"}
    model = BertModel(BertConfig.from_dict(config))
    assert {name: value.shape for name, value in found.items()} == shapes_of(model)

    ids = np.array([4, 1, 12, 0, 7])
    outputs = NumpyBert(config, found).forward(ids[None], np.ones((1, 5)), np.zeros((1, 5), int))
    expected = hugging_face_forward({k: v.astype(np.float64) for k, v in tensors.items()}, ids)
    np.testing.assert_allclose(outputs["sequence_output"][0], expected, rtol=1e-9)
    pooled = np.tanh(expected[0] @ tensors["pooler.dense.weight"].T + tensors["pooler.dense.bias"])
    np.testing.assert_allclose(outputs["pooled_output"][0], pooled, rtol=1e-7)


def head(prefix):
    return {name: shape for name, shape in HEADS.items() if name.startswith(prefix)}


@pytest.mark.parametrize(
    ("shapes", "prefix", "architecture"),
    [
        (ENCODER | POOLER | HEADS, "bert.", "BertForQuestionAnswering"),
        (ENCODER | POOLER, "", "BertModel"),
        (ENCODER, "", "BertModel"),
        (ENCODER | POOLER | head("cls"), "bert.", "BertForPreTraining"),
        (ENCODER | POOLER | head("classifier"), "bert.", "BertForSequenceClassification"),
        (ENCODER | head("cls.predictions"), "bert.", "BertForMaskedLM"),
    ],
)
def test_there_and_back_every_bit_is_the_same(tmp_path, shapes, prefix, architecture, warnings):
    tensors = make_tensors(shapes, prefix)
    config = check_there_and_back(tmp_path, tensors, converted(tmp_path, tensors))
    back = tmp_path / "back"
    files = ["config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt"]
    assert sorted(os.listdir(back)) == files
    assert (back / "vocab.txt").read_text(encoding="utf-8") == "[PAD]\nä\n"
    assert config["architectures"] == [architecture]
    assert len(config.get("id2label", [])) == 3 * ("classifier.bias" in shapes)
    for key in CONFIG.keys() - {"transformers_version"}:
        assert config[key] == CONFIG[key], key
    with safetensors.safe_open(back / "model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"}  # Hugging Face's own reader demands it
    warned = any("has no pooler: a program that needs one" in text for text in warnings)
    assert warned == ("pooler.dense.bias" not in shapes)


def test_the_bias_of_multiple_choice_changes_nothing_and_is_left_out(tmp_path):
    shapes = ENCODER | POOLER | {"classifier.weight": (1, 6), "classifier.bias": (1,)}
    tensors = make_tensors(shapes)
    # Such a file has the default names of two classes.
    names = {"0": "LABEL_0", "1": "LABEL_1"}
    found = converted(tmp_path, tensors, **MULTIPLE_CHOICE, id2label=names)
    model = MultipleChoiceModel(BertConfig.from_dict(SIZES))
    assert {name: value.shape for name, value in found.items()} == shapes_of(model)

    choices = np.random.default_rng(5).integers(0, 13, size=(4, 5))
    exact = {name: value.astype(np.float64) for name, value in tensors.items()}
    first = np.stack([hugging_face_forward(exact, ids)[0] for ids in choices])
    pooled = np.tanh(first @ exact["pooler.dense.weight"].T + exact["pooler.dense.bias"])
    assert abs(exact["classifier.bias"]) > 0.1
    scores = pooled @ exact["classifier.weight"][0] + exact["classifier.bias"]
    bert = NumpyBert({**SIZES, "hidden_act": "gelu"}, found)
    outputs = bert.forward(choices, np.ones((4, 5)), np.zeros((4, 5), int))
    log_probs = log_softmax(outputs["pooled_output"] @ found["output_weights"][0])
    np.testing.assert_allclose(log_probs, log_softmax(scores), rtol=1e-6)

    expected = make_tensors(shapes, "bert.") | {"classifier.bias": np.zeros(1, np.float32)}
    config = check_there_and_back(tmp_path, expected, found)
    assert config["architectures"] == ["BertForMultipleChoice"]
    assert "id2label" not in config and not (tmp_path / "again" / "labels.txt").exists()


def test_heads_keep_their_values_under_the_original_names(tmp_path):
    tensors = make_tensors(ENCODER | POOLER | HEADS, "bert.")
    # Copies of tied weights, and a constant.
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"]
    tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"]
    tensors["bert.embeddings.position_ids"] = np.arange(7, dtype=np.int64)[None]
    found = converted(tmp_path, tensors)
    for other_name, name in HEAD_NAMES.items():
        np.testing.assert_array_equal(found[name], tensors[other_name], err_msg=name)
    kernel = tensors["cls.predictions.transform.dense.weight"].T
    np.testing.assert_array_equal(found["cls/predictions/transform/dense/kernel"], kernel)
    assert len(found) == len(ENCODER | POOLER | HEADS)
    # A classifier without its bias is not multiple choice.
    model = conversion.ConvertedModel(str(tmp_path / "hf"))
    weights = {name: value for name, value in model.weights.items() if name != "output_bias"}
    message = "Missing: 'output_bias'; unexpected: none"
    refuses(message, conversion.to_safetensors, weights, model.config, "x.ckpt")


def test_older_names_and_narrow_types(tmp_path, warnings):
    tensors = {}
    for name, value in make_tensors(ENCODER).items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        tensors[name.replace("LayerNorm.bias", "LayerNorm.beta")] = value.astype(np.float16)
    options = {"hidden_act": "gelu", "layer_norm_eps": 1e-5}
    found = converted(tmp_path, tensors, vocab=None, **options)
    np.testing.assert_array_equal(
        found["bert/encoder/layer_1/output/LayerNorm/gamma"],
        tensors["encoder.layer.1.output.LayerNorm.gamma"].astype(np.float32),
    )
    assert {value.dtype for value in found.values()} == {np.dtype(np.float32)}
    assert not os.path.exists(tmp_path / "tf" / "vocab.txt")
    text = "\n".join(warnings)
    for part in (
        "weights converted from F16 to float32",
        "has no pooler",
        "No vocabulary is written: there is no vocab.txt or spm.model or ",
    ):
        assert part in text


def test_slots_are_left_out(tmp_path):
    rng = np.random.default_rng(4)
    shapes = {"bert/pooler/dense/bias": 5, "crf/transitions": (2, 3)}
    weights = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    slots = {f"{name}/adam_{k}": value + 1 for name, value in weights.items() for k in "mv"}
    values = {**weights, **slots, "global_step": np.int64(7)}
    CheckpointDirectory(str(tmp_path / "tuned")).save(values, 7)
    (tmp_path / "elsewhere.json").write_text(json.dumps(SIZES))
    (tmp_path / "words.txt").write_text("[PAD]\nb\n")
    names = ("tuned", "published", "elsewhere.json", "words.txt")
    source, target, config, vocab = (str(tmp_path / name) for name in names)
    convert_checkpoint.convert(source, target, "checkpoint", config, vocab)
    assert_same_bits(variables(f"{target}/bert_model.ckpt"), weights)
    with open(f"{target}/bert_config.json") as reader:
        assert json.load(reader).items() >= SIZES.items()
    assert (tmp_path / "published" / "vocab.txt").read_text() == "[PAD]\nb\n"


@pytest.mark.parametrize(
    ("change", "config", "message"),
    [
        (head("classifier"), MULTIPLE_CHOICE, "classifier.weight: [3, 6], not [1, 6]"),
        ({"encoder.layer.2.output.dense.bias": (6,)}, {}, "; unexpected: 'encoder.layer.2.output"),
        ({"pooler.dense.bias": None}, {}, "Missing: 'pooler.dense.bias'; unexpected: none"),
        ({"encoder.layer.1.output.dense.bias": None}, {}, "Missing: 'encoder.layer.1.output"),
        (
            {"encoder.layer.0.intermediate.dense.weight": (6, 10)},
            {},
            "wrong shape: 'encoder.layer.0.intermediate.dense.weight: [6, 10], not [10, 6]'",
        ),
        ({"classifier.weight": (3, 5), "classifier.bias": (3,)}, {}, "weight: [3, 5], not [-1, 6]"),
        ({"bert.pooler.dense.bias": (6,)}, {}, "'pooler.dense.bias' both with and without the"),
        (
            {"cls.predictions.decoder.weight": (13, 6)},
            {},
            "cls.predictions.decoder.weight must equal embeddings.word_embeddings.weight",
        ),
        ({}, {"model_type": "gpt2"}, "'electra', 'roberta', 'xlm-roberta'; received 'gpt2'"),
        ({}, {"position_embedding_type": "x"}, "_type must be \"absolute\", not 'x'"),
        ({}, {"num_hidden_layers": 10**9}, "must be a whole number between 1 and 1000, not 1000"),
        (
            {},
            {"num_hidden_layers": 9},
            "and 111 more; unexpected: none; wrong shape: none",
        ),
        ({}, {"vocab_size": 14}, "word_embeddings.weight: [13, 6], not [14, 6]"),
    ],
)
def test_what_is_no_such_model_is_refused(tmp_path, change, config, message):
    shapes = {k: v for k, v in {**ENCODER, **POOLER, **change}.items() if v is not None}
    told = refusal(converted, tmp_path, make_tensors(shapes), **config)
    assert message in told
    assert len(told) < 500 and "\n" not in told
    assert not (tmp_path / "tf").exists()


@pytest.mark.parametrize("value", [np.float32([1, 2, np.nan, -np.inf, 5, 6]), np.zeros(6, "i4")])
def test_weights_that_are_no_numbers_are_refused(tmp_path, value):
    message = "weights must be of type .*F32.*; found 'I32'. Convert them to"
    if value.dtype == np.float32:
        message = "2 of 6 in .*dense/bias are not"
    tensors = make_tensors(ENCODER) | {"encoder.layer.1.output.dense.bias": value}
    refuses(message, converted, tmp_path, tensors)
    assert not (tmp_path / "tf").exists()


def test_missing_and_damaged_files(tmp_path):
    source = tmp_path / "hf"
    write_folder(source, make_tensors(ENCODER))
    output_dir = str(tmp_path / "tf")

    def message(path=source, output_dir=output_dir, output_format="checkpoint", config=None):
        return refusal(convert_checkpoint.convert, str(path), output_dir, output_format, config)

    assert "must not be the folder of --input" in message(output_dir=str(source))
    (tmp_path / "link").symlink_to("hf")
    assert "must not be the folder of --input" in message(output_dir=f"{tmp_path}/link")
    assert "--output_dir= must not be empty" in message(output_dir="")
    rule = "can only be converted to --output_format=checkpoint"
    assert rule in message(output_format="safetensors")
    whole = (source / "model.safetensors").read_bytes()
    (source / "model.safetensors").write_bytes(whole[:-9])
    assert "model.safetensors is damaged or not a safetensors file" in message()
    (source / "config.json").write_text("{")
    assert "config.json is not JSON" in message()
    (source / "config.json").write_text("[1]")
    assert "config.json must hold a dictionary; received [1]" in message()
    os.remove(source / "config.json")
    assert "config.json cannot be read" in message()
    os.remove(source / "model.safetensors")
    (source / "model.npz").write_text("")
    assert (
        f"--input={source} must have a model: a checkpoint (PREFIX.index, PREFIX.data-00000-of-"
        "...), or model.safetensors with config.json; it has 'model.npz', 'vocab.txt'" in message()
    )
    for name in ("a.ckpt", "b.ckpt"):
        (source / f"{name}.index").write_text("")
    assert "that names the newest checkpoint; choose one of a.ckpt, b.ckpt" in message()
    assert "--input=/nowhere/bert_model.ckpt" in message("/nowhere/bert_model.ckpt")
    assert not os.path.exists(output_dir)


def test_a_checkpoint_of_another_kind_is_refused(tmp_path):
    path, table = str(tmp_path / "x.ckpt"), "embeddings/word_embeddings"
    for kind, name, target, message in (
        ("bert", "lstm/kernel", "safetensors", "lstm/kernel"),
        ("electra", f"bert/{table}", "checkpoint", "must be the ELECTRA that its .* has bert/emb"),
        ("bert", f"electra/{table}", "checkpoint", "must be the BERT that its .* has electra/emb"),
    ):
        checkpoints.write(path, {name: np.ones((3, 2), np.float32)})
        (tmp_path / "bert_config.json").write_text(json.dumps({**SIZES, "model_type": kind}))
        refuses(message, convert_checkpoint.convert, path, str(tmp_path / "new"), target)


def test_without_safetensors(tmp_path, monkeypatch):
    source, checkpoint = write_folder(tmp_path / "hf", make_tensors(ENCODER)), str(tmp_path / "tf")
    convert = convert_checkpoint.convert
    convert(source, checkpoint, "checkpoint")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    message = "needs safetensors; run `pip install safetensors`"
    refuses(message, convert, source, str(tmp_path / "out"), "checkpoint")
    refuses(message, convert, checkpoint, str(tmp_path / "out"), "safetensors")
    convert(checkpoint, str(tmp_path / "copy"), "checkpoint")


@pytest.mark.parametrize("output_format", ["safetensors", "distilbert"])
def test_a_tokenizer_that_the_other_format_cannot_express(output_format, tmp_path):
    """What is written loads again; the same files without the setting are converted."""
    vocab = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c d e f g h".replace(" ", "\n")
    path = write_folder(tmp_path / "hf", make_tensors(ENCODER | POOLER), vocab)
    convert_checkpoint.convert(path, str(tmp_path / "tf"), "checkpoint")
    config, target = tmp_path / "tf" / "tokenizer_config.json", tmp_path / "back"
    kept = json.loads(config.read_text())
    arguments = str(tmp_path / "tf"), str(target), output_format
    gap = {"added_tokens_decoder": {"15": {"content": "[E1]"}}}
    for settings, message in (
        ({"clean_text": False}, "clean_text must be true, not false, which transformers ignores"),
        (
            {"max_input_chars_per_word": 200, "strip_accents": True},
            "max_input_chars_per_word must be 100, not 200, which transformers ignores",
        ),
        (gap, "the ids of added tokens must be the numbers from 13 on"),
    ):
        config.write_text(json.dumps(kept | settings))
        told = refusal(convert_checkpoint.convert, *arguments)
        assert told.startswith(
            f"--output_format={output_format} cannot express the tokenizer of --input, so the"
            " folder would be refused: "
        )
        assert message in told and str(tmp_path) not in told
        assert told.endswith("or use --output_format=checkpoint, which keeps all settings")
        assert not target.exists()
    config.write_text(json.dumps(kept))
    convert_checkpoint.convert(*arguments)
    assert load_tokenizer(str(target / "vocab.txt"), True, hugging_face=True).vocab["h"] == 12


@needs_golden
def test_names_of_a_released_checkpoint():
    folder = os.path.join(os.environ["BERT_TF_GOLDEN"], "programs")
    config = BertConfig.from_json_file(os.path.join(folder, "bert_config.json"))
    found = dict(tf.train.list_variables(os.path.join(folder, "bert_model.ckpt")))
    weights = [weight for part in bert_weights.parts(config, "").values() for weight in part]
    classifier = {"output_weights": [-1, config.hidden_size], "output_bias": [-1]}
    assert {weight.name: list(weight.shape) for weight in weights} == {**found, **classifier}


def test_the_program(tmp_path):
    source = write_folder(tmp_path / "hf", make_tensors(ENCODER))
    flags = (f"--input={source}", f"--output_dir={tmp_path}/tf")
    run(*flags, program="tools.convert_checkpoint")
    assert len(variables(tmp_path / "tf" / "bert_model.ckpt")) == len(ENCODER)
    assert tokenization.load_vocab(str(tmp_path / "tf" / "vocab.txt")) == {"[PAD]": 0, "ä": 1}
