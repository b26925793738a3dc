"""Writes BERT's weights as the object graph that models of TensorFlow Model Garden restore.

These are tf-models-official's encoders (2.4 and later, functional or not), classifier and
pre-trainer. Their `assert_existing_objects_matched()` also wants the objects without weights.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.errors import UserError, listed
from bert_tf.files.object_graphs import GENERATIONS, LAYER, MODULES
from bert_tf.start import lazy_tensorflow as tf

_GENERATION = GENERATIONS[0]
_NEXT_SENTENCE = "model/classification_heads/0"
# google-research/bert's name, or what stands before /kernel, /bias, /gamma and /beta -> path
_HEADS = {
    "cls/predictions/output_bias": "masked_lm/bias",
    "cls/predictions/transform/dense": "masked_lm/dense",
    "cls/predictions/transform/LayerNorm": "masked_lm/layer_norm",
    "cls/seq_relationship/output_weights": f"{_NEXT_SENTENCE}/out_proj/kernel",
    "cls/seq_relationship/output_bias": f"{_NEXT_SENTENCE}/out_proj/bias",
    "output_weights": "model/classifier/out_proj/kernel",
    "output_bias": "model/classifier/out_proj/bias",
}
# Objects without weights. A functional encoder numbers its layers.
_OF_ENCODER = """_embedding_dropout _attention_mask_layer inputs _config/initializer/config
    _embedding_norm_layer/axis layer-0 layer-2 layer-5 layer-7 layer-8 layer-9""".split()
_OF_LAYER = """_attention_layer/_softmax _attention_layer/_dropout_layer _attention_dropout
    _intermediate_activation_layer _inner_dropout_layer _output_dropout _attention_layer_norm/axis
    _output_layer_norm/axis""".split()
_OF_DENSE = "partial_output_shape", "full_output_shape"
# path -> other paths of the same object
_IN_ENCODER = {
    "_embedding_layer": ("layer_with_weights-0", "layer-1"),
    "_position_embedding_layer": ("layer_with_weights-1", "layer-3"),
    "_position_embedding_layer/embeddings": ("_position_embedding_layer/_position_embeddings",),
    "_type_embedding_layer": ("layer_with_weights-2", "layer-4"),
    "_embedding_norm_layer": ("layer_with_weights-3", "layer-6"),
}
_IN_PRETRAINER = {
    "encoder/_embedding_layer/embeddings": ("masked_lm/embedding_table",),
    "masked_lm": ("model/masked_lm",),
    "encoder": ("model/encoder_network", "model/_config/encoder_network"),
}
_IN_NEXT_SENTENCE = {
    f"{_NEXT_SENTENCE}/dense": ("next_sentence.pooler_dense",),
    _NEXT_SENTENCE: ("model/_config/classification_heads/0",),
}
_IN_CLASSIFIER = {
    "model/classifier": ("model/layer_with_weights-1", "model/layer-5"),
    "encoder": tuple(
        f"model/{x}"
        for x in ("_network", "_config/network", "_config/0", "layer_with_weights-0", "layer-3")
    ),
}


def write(prefix: str, weights: Mapping[str, np.ndarray], num_heads: int) -> None:
    """Writes the weights of a BERT, alone or with a classifier or the heads of pre-training.

    Args:
        prefix: of the checkpoint's files.
        weights: by google-research/bert's names.
        num_heads: number of attention heads, which have an axis of their own.

    Raises:
        UserError: a weight has no place in these models.
    """
    if unknown := [name for name in weights if not _path(name)]:
        raise UserError(
            "a checkpoint for TensorFlow Model Garden must have only the weights of a BERT, of its"
            f" classifier and of the heads of pre-training; there are also {listed(unknown)}"
        )
    root = tf.Module()
    for name, value in weights.items():
        _set(root, _path(name), tf.Variable(_stored(name, value, num_heads)))
    root.save_counter = tf.Variable(1, dtype=tf.int64)
    _complete_encoder(root.encoder, sum(name.endswith("/self/query/bias") for name in weights))
    if "output_bias" in weights:
        _add(root, *(f"model/layer-{i}" for i in (0, 1, 2, 4)), "model/classifier/dropout")
        _alias(root, _IN_CLASSIFIER)
    if "cls/predictions/output_bias" in weights:
        _add(root, "masked_lm/layer_norm/axis", "model/inputs")
        setattr(root.masked_lm, "output_bias/bias", root.masked_lm.bias)  # one name with a slash
        _alias(root, _IN_PRETRAINER)
    if "cls/seq_relationship/output_bias" in weights:
        for part in "kernel", "bias":  # this head has a pooler of its own
            pooler = tf.Variable(weights[f"bert/pooler/dense/{part}"])
            _set(root, f"{_NEXT_SENTENCE}/dense/{part}", pooler)
        _add(root, f"{_NEXT_SENTENCE}/dropout")
        _alias(root, _IN_NEXT_SENTENCE)
    tf.train.Checkpoint(root=root).write(prefix)


def _path(name: str) -> str | None:
    """Returns where a weight of google-research/bert's hangs; None if nowhere."""
    scope, _, part = name.rpartition("/")
    modules = dict(zip((f"bert/{x}" for x in MODULES), _GENERATION.modules, strict=True))
    if name in modules:
        return f"encoder/{modules[name]}/embeddings"
    if name in _HEADS:
        return _HEADS[name]
    if scope in modules:
        return f"encoder/{modules[scope]}/{part}"
    if scope in _HEADS:
        return f"{_HEADS[scope]}/{part}"
    layer = re.fullmatch(r"bert/encoder/layer_(\d+)/(.+)", scope)
    if not layer or layer[2] not in LAYER:
        return None
    return f"encoder/_transformer_layers/{layer[1]}/{_layer_paths()[layer[2]]}/{part}"


def _layer_paths() -> dict[str, str]:
    return dict(zip(LAYER, _GENERATION.layer, strict=True))


def _stored(name: str, value: np.ndarray, num_heads: int) -> np.ndarray:
    """Returns a weight as Model Garden keeps it: [H, N*D] as [H, N, D], classes last."""
    if name.endswith("output_weights"):
        return value.T
    if "/attention/self/" in name:
        return value.reshape(*value.shape[:-1], num_heads, -1)
    if name.endswith("/attention/output/dense/kernel"):
        return value.reshape(num_heads, -1, value.shape[-1])
    return value


def _complete_encoder(encoder: Any, num_layers: int) -> None:
    """Adds the objects without weights, and the names of a functional encoder."""
    _add(encoder, *_OF_ENCODER, f"layer-{10 + num_layers}")
    _alias(encoder, _IN_ENCODER)
    for i in range(num_layers):
        path = f"_transformer_layers/{i}"
        _alias(encoder, {path: (f"layer_with_weights-{4 + i}", f"layer-{10 + i}")})
        layer = _get(encoder, path)
        _add(layer, *_OF_LAYER)
        _alias(layer, {"_attention_layer_norm": ("_attention_layer_norm_kv",)})
        for dense in _layer_paths().values():
            if not dense.endswith("norm"):
                _add(layer, *(f"{dense}/{x}" for x in _OF_DENSE))
    last = f"layer_with_weights-{4 + num_layers}", f"layer-{11 + num_layers}"
    _alias(encoder, {"_pooler_layer": last})


def _get(root: Any, path: str) -> Any:
    """Returns the object at a path; makes what is not there."""
    for name in path.split("/"):
        if not hasattr(root, name):
            setattr(root, name, tf.Module())
        root = getattr(root, name)
    return root


def _set(root: Any, path: str, value: Any) -> None:
    *way, last = path.split("/")
    setattr(_get(root, "/".join(way)) if way else root, last, value)


def _add(root: Any, *paths: str) -> None:
    for path in paths:
        _get(root, path)


def _alias(root: Any, aliases: Mapping[str, tuple[str, ...]]) -> None:
    for path, others in aliases.items():
        for other in others:
            _set(root, other, _get(root, path))
