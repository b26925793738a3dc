"""Folders as Hugging Face's models come in, of a model whose sizes all differ."""

import json

import numpy as np
import safetensors.numpy

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
ENCODER = {
    "embeddings.word_embeddings.weight": (13, 6),
    "embeddings.position_embeddings.weight": (7, 6),
    "embeddings.token_type_embeddings.weight": (2, 6),
    "embeddings.LayerNorm.weight": (6,),
    "embeddings.LayerNorm.bias": (6,),
}
for _layer in ("encoder.layer.0", "encoder.layer.1"):
    for _name in ("attention.self.query", "attention.self.key", "attention.self.value"):
        ENCODER |= {f"{_layer}.{_name}.weight": (6, 6), f"{_layer}.{_name}.bias": (6,)}
    ENCODER |= {
        f"{_layer}.attention.output.dense.weight": (6, 6),
        f"{_layer}.attention.output.dense.bias": (6,),
        f"{_layer}.attention.output.LayerNorm.weight": (6,),
        f"{_layer}.attention.output.LayerNorm.bias": (6,),
        f"{_layer}.intermediate.dense.weight": (10, 6),
        f"{_layer}.intermediate.dense.bias": (10,),
        f"{_layer}.output.dense.weight": (6, 10),
        f"{_layer}.output.dense.bias": (6,),
        f"{_layer}.output.LayerNorm.weight": (6,),
        f"{_layer}.output.LayerNorm.bias": (6,),
    }
POOLER = {"pooler.dense.weight": (6, 6), "pooler.dense.bias": (6,)}
HEADS = {
    "cls.predictions.transform.dense.weight": (6, 6),
    "cls.predictions.transform.dense.bias": (6,),
    "cls.predictions.transform.LayerNorm.weight": (6,),
    "cls.predictions.transform.LayerNorm.bias": (6,),
    "cls.predictions.bias": (13,),
    "cls.seq_relationship.weight": (2, 6),
    "cls.seq_relationship.bias": (2,),
    "classifier.weight": (3, 6),
    "classifier.bias": (3,),
    "qa_outputs.weight": (2, 6),
    "qa_outputs.bias": (2,),
}


def make_tensors(shapes, prefix="", seed=3):
    rng = np.random.default_rng(seed)
    return {
        (prefix if name in ENCODER or name in POOLER else "") + name: (
            rng.normal(size=shape) * 0.4 + name.endswith("LayerNorm.weight")
        ).astype(np.float32)
        for name, shape in shapes.items()
    }


def write_folder(folder, tensors, vocab="[PAD]\nä\n", **config):
    """Returns the path of a folder as it is downloaded; a configuration key None is left out."""
    folder.mkdir()
    config = {k: v for k, v in {**CONFIG, **config}.items() if v is not None}
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.numpy.save_file(tensors, str(folder / "model.safetensors"))
    if vocab is not None:
        (folder / "vocab.txt").write_text(vocab, encoding="utf-8")
    return str(folder)


def assert_same_bits(actual, expected):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert actual[name].dtype == value.dtype and actual[name].shape == value.shape, name
        assert actual[name].tobytes() == value.tobytes(), name
