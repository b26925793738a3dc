"""Tests of bert_tf/hugging_face/roberta.py: RoBERTa to Hugging Face's format and back."""

import json

import numpy as np
import pytest
import safetensors.numpy

import bert_tf
from bert_tf.errors import UserError
from bert_tf.files import checkpoints
from bert_tf.hugging_face import config as hugging_face_config
from bert_tf.hugging_face.conversion import read_safetensors
from bert_tf.model.roberta_configuration import RobertaConfig
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.multiple_choice.model import MultipleChoiceModel
from bert_tf.tasks.pretraining.training.model import PretrainingModel
from bert_tf.tasks.squad.model import SquadModel
from bert_tf.tasks.tagging.model import TaggingModel
from bert_tf.text.byte_pairs import BytePairTokenizer
from bert_tf.text.tokenizer_files import read_byte_pairs
from tests.support.byte_pair_files import SPECIAL, word_merges, write_vocabulary
from tests.support.hugging_face_folders import assert_same_bits
from tests.support.pretraining_runs import variables
from tools import convert_checkpoint

SIZES = {
    "vocab_size": 13,
    "hidden_size": 6,
    "num_hidden_layers": 1,
    "num_attention_heads": 3,
    "intermediate_size": 10,
    "max_position_embeddings": 7,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-4,
    "pad_token_id": 3,
}
LAYER = "roberta.encoder.layer.0"
# Shapes as RobertaForMaskedLM has them: [outputs, inputs].
MODULES = {
    "roberta.embeddings.LayerNorm": (6,),
    f"{LAYER}.attention.self.query": (6, 6),
    f"{LAYER}.attention.self.key": (6, 6),
    f"{LAYER}.attention.self.value": (6, 6),
    f"{LAYER}.attention.output.dense": (6, 6),
    f"{LAYER}.attention.output.LayerNorm": (6,),
    f"{LAYER}.intermediate.dense": (10, 6),
    f"{LAYER}.output.dense": (6, 10),
    f"{LAYER}.output.LayerNorm": (6,),
}
TABLES = {
    "roberta.embeddings.word_embeddings.weight": (13, 6),
    "roberta.embeddings.position_embeddings.weight": (7, 6),
    "roberta.embeddings.token_type_embeddings.weight": (2, 6),
}
POOLER = {"roberta.pooler.dense": (6, 6)}
# The modules of each head, with the model that has it.
HEADS = {
    "MaskedLM": (PretrainingModel, {"lm_head.dense": (6, 6), "lm_head.layer_norm": (6,)}),
    "SequenceClassification": (
        lambda config: ClassificationModel(config, 4),
        {"classifier.dense": (6, 6), "classifier.out_proj": (4, 6)},
    ),
    "TokenClassification": (lambda config: TaggingModel(config, 3), {"classifier": (3, 6)}),
    "QuestionAnswering": (SquadModel, {"qa_outputs": (2, 6)}),
    "MultipleChoice": (MultipleChoiceModel, {"classifier": (1, 6)}),
}


def with_biases(modules):
    weights = {f"{name}.weight": shape for name, shape in modules.items()}
    return weights | {f"{name}.bias": shape[:1] for name, shape in modules.items()}


def write_model(folder, model, config=None):
    """Writes a checkpoint with random weights; returns the folder's path and the weights."""
    folder.mkdir()
    rng = np.random.default_rng(5)
    values = {v.path: rng.normal(size=v.shape).astype(np.float32) for v in model.variables}
    checkpoints.write(str(folder / "bert_model.ckpt"), values)
    config = config or RobertaConfig(**SIZES)
    (folder / "bert_config.json").write_text(config.to_json_string())
    return str(folder), values


@pytest.mark.parametrize("architecture", HEADS)
def test_there_and_back_every_bit_is_the_same(tmp_path, architecture):
    model, head = HEADS[architecture]
    source, values = write_model(tmp_path / "tf", model(RobertaConfig(**SIZES)))
    if architecture == "TokenClassification":
        (tmp_path / "tf" / "labels.txt").write_text("O\nB-x\nI-x\n")
    there, back = str(tmp_path / "hf"), str(tmp_path / "back")
    convert_checkpoint.convert(source, there, "safetensors")
    tensors = safetensors.numpy.load_file(f"{there}/model.safetensors")
    # The classifier of texts has the pooler as its own layer.
    pooler = {} if architecture == "SequenceClassification" else POOLER
    shapes = TABLES | with_biases(MODULES | head | pooler)
    if architecture == "MaskedLM":
        shapes["lm_head.bias"] = (13,)
    assert {name: tensor.shape for name, tensor in tensors.items()} == shapes
    dense = (
        "classifier.dense" if architecture == "SequenceClassification" else "roberta.pooler.dense"
    )
    np.testing.assert_array_equal(tensors[f"{dense}.weight"].T, values["bert/pooler/dense/kernel"])
    with open(f"{there}/config.json", encoding="utf-8") as reader:
        config = json.load(reader)
    assert config["architectures"] == [f"RobertaFor{architecture}"]
    assert config["model_type"] == "roberta" and config["hidden_act"] == "gelu"
    assert config.items() >= SIZES.items()
    convert_checkpoint.convert(there, back, "checkpoint")
    assert_same_bits(variables(f"{back}/bert_model.ckpt"), values)
    with open(f"{back}/bert_config.json", encoding="utf-8") as reader:
        assert json.load(reader) == RobertaConfig(**SIZES).to_dict()


def test_a_tagger_whose_classes_are_no_tags(tmp_path):
    """Without a pooler a classifier is a tagger's, and so are its names there."""
    source, values = write_model(tmp_path / "tf", TaggingModel(RobertaConfig(**SIZES), 3))
    values = {name: value for name, value in values.items() if "pooler" not in name}
    checkpoints.write(f"{source}/bert_model.ckpt", values)
    (tmp_path / "tf" / "labels.txt").write_text("NOUN\nVERB\nADJ\n")
    there, back = str(tmp_path / "hf"), str(tmp_path / "back")
    convert_checkpoint.convert(source, there, "safetensors")
    assert "classifier.weight" in safetensors.numpy.load_file(f"{there}/model.safetensors")
    convert_checkpoint.convert(there, back, "checkpoint")
    assert_same_bits(variables(f"{back}/bert_model.ckpt"), values)
    with open(f"{back}/labels.txt", encoding="utf-8") as reader:
        assert reader.read() == "NOUN\nVERB\nADJ\n"


def write_folder(folder, tensors, **config):
    """Writes a folder as Hugging Face's; returns its path."""
    folder.mkdir()
    content = {**SIZES, "model_type": "roberta", **config}
    (folder / "config.json").write_text(json.dumps(content))
    safetensors.numpy.save_file(tensors, str(folder / "model.safetensors"))
    return str(folder)


def encoder():
    shapes = TABLES | with_biases(MODULES)
    return {name: np.full(shape, 0.5, np.float32) for name, shape in shapes.items()}


def test_copies_of_weights_are_left_out(tmp_path):
    head = with_biases(HEADS["MaskedLM"][1])
    tensors = encoder() | {name: np.ones(shape, np.float32) for name, shape in head.items()}
    tensors["lm_head.bias"] = np.ones(13, np.float32)
    copies = {
        "lm_head.decoder.weight": tensors["roberta.embeddings.word_embeddings.weight"],
        "lm_head.decoder.bias": tensors["lm_head.bias"],
        "roberta.embeddings.position_ids": np.zeros([1, 7], np.float32),
    }
    weights, config, *_ = read_safetensors(write_folder(tmp_path / "a", tensors | copies))
    assert set(weights) == {v.path for v in PretrainingModel(config).variables} - {
        "bert/pooler/dense/kernel",
        "bert/pooler/dense/bias",
    }
    other = {**copies, "lm_head.decoder.bias": np.zeros(13, np.float32)}
    with pytest.raises(UserError, match="lm_head.decoder.bias must equal lm_head.bias"):
        read_safetensors(write_folder(tmp_path / "b", tensors | other))


@pytest.mark.parametrize("architectures", [["RobertaForSequenceClassification"], None])
def test_a_classifier_of_texts_with_an_unused_pooler(tmp_path, architectures):
    """The names show the head, with `architectures` and without; its dense layer is the pooler."""
    shapes = with_biases(HEADS["SequenceClassification"][1])
    head = {name: np.full(shape, 2, np.float32) for name, shape in shapes.items()}
    pooler = {name: np.ones(shape, np.float32) for name, shape in with_biases(POOLER).items()}
    values = {"architectures": architectures} if architectures else {}
    alone = write_folder(tmp_path / "alone", encoder() | head, **values)
    both = write_folder(tmp_path / "both", encoder() | head | pooler, **values)
    weights, config, *_ = read_safetensors(both)
    assert set(weights) == {v.path for v in ClassificationModel(config, 4).variables}
    assert_same_bits(weights, read_safetensors(alone)[0])
    assert np.all(weights["bert/pooler/dense/kernel"] == 2)


def test_a_head_that_roberta_has_not(tmp_path):
    head = {
        "cls.seq_relationship.weight": np.ones([2, 6], np.float32),
        "cls.seq_relationship.bias": np.ones(2, np.float32),
    }
    with pytest.raises(UserError, match="unexpected: 'cls.seq_relationship.bias' and 1 more"):
        read_safetensors(write_folder(tmp_path / "there", encoder() | head))
    source, values = write_model(tmp_path / "here", PretrainingModel(RobertaConfig(**SIZES)))
    values |= {"cls/seq_relationship/output_weights": np.ones([2, 6], np.float32)}
    values |= {"cls/seq_relationship/output_bias": np.ones(2, np.float32)}
    checkpoints.write(f"{source}/bert_model.ckpt", values)
    with pytest.raises(UserError, match="unexpected: 'cls/seq_relationship/output_bias' and 1 mo"):
        convert_checkpoint.convert(source, str(tmp_path / "to"), "safetensors")


def tokenizer_json(folder, **changes):
    """Returns the content of a tokenizer.json as Hugging Face's library writes it."""
    tokenizers = pytest.importorskip("tokenizers")
    vocab_file = write_vocabulary(folder, word_merges(["sea", "house"]))
    pairs = BytePairTokenizer(vocab_file)
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE.from_file(vocab_file, str(folder / "merges.txt"))
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.add_special_tokens(list(SPECIAL))
    return pairs, {**json.loads(made.to_str()), **changes}


def test_a_folder_with_a_tokenizer_json_alone(tmp_path):
    pairs, content = tokenizer_json(tmp_path)
    sizes = {**SIZES, "vocab_size": len(pairs.vocab), "max_position_embeddings": 30}
    sizes["pad_token_id"] = pairs.vocab["<pad>"]
    config = RobertaConfig(**sizes)
    source, _ = write_model(tmp_path / "tf", PretrainingModel(config), config)
    convert_checkpoint.convert(source, str(tmp_path / "hf"), "safetensors")
    (tmp_path / "hf" / "tokenizer.json").write_text(json.dumps(content))
    convert_checkpoint.convert(str(tmp_path / "hf"), str(tmp_path / "back"), "checkpoint")
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / "tf" / name).write_bytes((tmp_path / name).read_bytes())
    texts = ["a house by the <mask>", "<mask> sea"]
    found = [bert_tf.load(str(tmp_path / name)).fill_mask(texts) for name in ("tf", "hf", "back")]
    assert found[0] == found[1] == found[2]
    assert bert_tf.load(str(tmp_path / "hf")).tokenizer.vocab == pairs.vocab
    # Merges were texts in older files.
    content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    (tmp_path / "hf" / "tokenizer.json").write_text(json.dumps(content))
    assert bert_tf.load(str(tmp_path / "hf")).fill_mask(texts) == found[0]


def write_folders(tmp_path):
    """Writes a folder of Hugging Face's with vocab.json and merges.txt; returns its path."""
    pairs, content = tokenizer_json(tmp_path)
    config = RobertaConfig(
        **{
            **SIZES,
            "vocab_size": len(pairs.vocab),
            "max_position_embeddings": 30,
            "pad_token_id": 1,
        }
    )
    source, _ = write_model(tmp_path / "tf", PretrainingModel(config), config)
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / "tf" / name).write_bytes((tmp_path / name).read_bytes())
    convert_checkpoint.convert(source, str(tmp_path / "hf"), "safetensors")
    return tmp_path / "hf", content


def test_a_vocabulary_without_merges(tmp_path):
    """Beside a tokenizer.json, which has them, it does not count; alone it is refused."""
    folder, content = write_folders(tmp_path)
    expected = bert_tf.load(str(folder)).fill_mask("a house by the <mask>")
    (folder / "merges.txt").unlink()
    for call in (
        lambda: bert_tf.load(str(folder)),
        lambda: convert_checkpoint.convert(str(folder), str(tmp_path / "to"), "checkpoint"),
    ):
        with pytest.raises(UserError, match="hf/vocab.json needs the file merges.txt in "):
            call()
    (folder / "tokenizer.json").write_text(json.dumps(content))
    assert bert_tf.load(str(folder)).fill_mask("a house by the <mask>") == expected
    convert_checkpoint.convert(str(folder), str(tmp_path / "to"), "checkpoint")
    assert bert_tf.load(str(tmp_path / "to")).fill_mask("a house by the <mask>") == expected


@pytest.mark.parametrize("with_tokenizer_json", [False, True])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "tokenizer_config.json",
            {"add_prefix_space": True},
            "must be false, not True: a space be",
        ),
        (
            "tokenizer_config.json",
            {"added_tokens_decoder": {"4": {"content": "<mask>"}, "9": {"content": "<e1>"}}},
            "must be among <s>, .*; received '<e1>'",
        ),
        ("added_tokens.json", {"<mask>": 4, "<e1>": 9}, "received '<e1>'"),
    ],
    ids=["prefix", "decoder", "added"],
)
def test_what_is_asked_of_the_vocabulary_elsewhere(
    tmp_path, with_tokenizer_json, name, content, message
):
    folder, tokenizer = write_folders(tmp_path)
    if with_tokenizer_json:
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        (folder / "vocab.json").unlink()
    (folder / name).write_text(json.dumps(content))
    with pytest.raises(UserError, match=f"{folder}/{name}: .*{message}"):
        bert_tf.load(str(folder))
    with pytest.raises(UserError, match=f"{folder}/{name}: .*{message}"):
        convert_checkpoint.convert(str(folder), str(tmp_path / "to"), "checkpoint")
    assert not (tmp_path / "to").exists()


def test_a_tokenizer_json_with_more_special_tokens(tmp_path):
    _, content = tokenizer_json(tmp_path)
    content["added_tokens"].append({"content": "<e1>", "id": len(content["model"]["vocab"])})
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="tokenizer.json: the added tokens of a .* '<e1>'"):
        read_byte_pairs(str(tmp_path / "tokenizer.json"))


@pytest.mark.parametrize(
    "changes",
    [
        {"normalizer": {"type": "NFC"}},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True}},
        {"pre_tokenizer": None},
        {"added_tokens": None},
    ],
    ids=str,
)
def test_a_tokenizer_json_of_another_bpe(tmp_path, changes):
    _, content = tokenizer_json(tmp_path, **changes)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match="a BPE must be RoBERTa's: .*; received"):
        read_byte_pairs(str(tmp_path / "tokenizer.json"))


def test_what_a_configuration_may_leave_out():
    """The values are Hugging Face's then."""
    config = hugging_face_config.to_bert_config({"model_type": "roberta"}, "config.json")
    assert (config.vocab_size, config.max_position_embeddings) == (50265, 512)
    assert (config.type_vocab_size, config.layer_norm_eps) == (2, 1e-12)
    assert (config.pad_token_id, config.hidden_act) == (1, "gelu_erf")
    with pytest.raises(UserError, match="config.json: .* layer_norm_eps must be above 0"):
        values = {"model_type": "roberta", "layer_norm_eps": 0}
        hugging_face_config.to_bert_config(values, "config.json")
