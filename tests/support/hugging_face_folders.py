"""Folders in Hugging Face's format, of a model whose sizes all differ."""

import json

import numpy as np
import safetensors.numpy

from bert_tf.files import checkpoints
from bert_tf.model.family import AlbertConfig
from bert_tf.tasks.tagging.model import TaggingModel
from tests.support.pretraining_runs import variables
from tools import convert_checkpoint

SIZES = {
    "vocab_size": 13,
    "hidden_size": 6,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 10,
    "max_position_embeddings": 7,
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.25,
    "attention_probs_dropout_prob": 0.125,
    "initializer_range": 0.5,
}
CONFIG = {
    **SIZES,
    "hidden_act": "gelu_new",
    "model_type": "bert",
    "layer_norm_eps": 1e-12,
    "position_embedding_type": "absolute",
    "transformers_version": "4.8.2",
}


def with_biases(modules):
    """Returns the shapes of the modules' tensors from the shapes of their weights."""
    weights = {f"{name}.weight": shape for name, shape in modules.items()}
    return weights | {f"{name}.bias": shape[:1] for name, shape in modules.items()}


# Names and shapes as BertForPreTraining has them: [outputs, inputs].
LAYER = {
    "attention.self.query": (6, 6),
    "attention.self.key": (6, 6),
    "attention.self.value": (6, 6),
    "attention.output.dense": (6, 6),
    "attention.output.LayerNorm": (6,),
    "intermediate.dense": (10, 6),
    "output.dense": (6, 10),
    "output.LayerNorm": (6,),
}
ENCODER = {
    "embeddings.word_embeddings.weight": (13, 6),
    "embeddings.position_embeddings.weight": (7, 6),
    "embeddings.token_type_embeddings.weight": (2, 6),
    **with_biases({"embeddings.LayerNorm": (6,)}),
    **with_biases({f"encoder.layer.0.{name}": shape for name, shape in LAYER.items()}),
    **with_biases({f"encoder.layer.1.{name}": shape for name, shape in LAYER.items()}),
}
POOLER = with_biases({"pooler.dense": (6, 6)})
_HEADS = {
    "cls.predictions.transform.dense": (6, 6),
    "cls.predictions.transform.LayerNorm": (6,),
    "cls.seq_relationship": (2, 6),
    "classifier": (3, 6),
    "qa_outputs": (2, 6),
}
HEADS = {**with_biases(_HEADS), "cls.predictions.bias": (13,)}


def make_tensors(shapes, prefix="", seed=3):
    rng = np.random.default_rng(seed)
    return {
        (prefix if name in ENCODER or name in POOLER else "") + name: (
            rng.normal(size=shape) * 0.4 + name.endswith("LayerNorm.weight")
        ).astype(np.float32)
        for name, shape in shapes.items()
    }


def write_folder(folder, tensors, vocab="[PAD]\nä\n", **config):
    """Writes a folder and returns its path; a configuration key with None is left out."""
    folder.mkdir()
    config = {k: v for k, v in {**CONFIG, **config}.items() if v is not None}
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.numpy.save_file(tensors, str(folder / "model.safetensors"))
    if vocab is not None:
        (folder / "vocab.txt").write_text(vocab, encoding="utf-8")
    return str(folder)


def write_checkpoint(folder, model):
    """Writes a model of ours with random weights; returns the folder's path and the weights."""
    folder.mkdir()
    rng = np.random.default_rng(5)
    values = {v.path: rng.normal(size=v.shape).astype(np.float32) for v in model.variables}
    checkpoints.write(str(folder / "bert_model.ckpt"), values)
    config = model.bert.config
    name = "albert_config.json" if isinstance(config, AlbertConfig) else "bert_config.json"
    (folder / name).write_text(config.to_json_string())
    if isinstance(model, TaggingModel):
        (folder / "labels.txt").write_text("O\nB-x\nI-x\n")
    return str(folder), values


def there_and_back(root, model, output_format="safetensors"):
    """Converts a model with random weights to Hugging Face's format and back.

    Returns its weights; the tensors and the config.json in between; the weights and the
    bert_config.json at the end.
    """
    source, before = write_checkpoint(root / "tf", model)
    there, back = root / "hf", root / "back"
    convert_checkpoint.convert(source, str(there), output_format)
    convert_checkpoint.convert(str(there), str(back), "checkpoint")
    tensors = safetensors.numpy.load_file(there / "model.safetensors")
    theirs = json.loads((there / "config.json").read_text())
    ours = json.loads((back / "bert_config.json").read_text())
    return before, tensors, theirs, variables(back / "bert_model.ckpt"), ours


def assert_same_bits(actual, expected):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert actual[name].dtype == value.dtype and actual[name].shape == value.shape, name
        assert actual[name].tobytes() == value.tobytes(), name
