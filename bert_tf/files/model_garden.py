"""Writes BERT's weights as the object graph that models of TensorFlow Model Garden restore.

These are tf-models-official's encoders (2.4 and later, functional or not), classifier and
pre-trainer. Their `assert_existing_objects_matched()` also wants the objects without weights.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.errors import UserError, listed
from bert_tf.files.object_graphs import BERT, GENERATIONS, POOLER, weight_paths
from bert_tf.start import lazy_tensorflow as tf

_NAMES = GENERATIONS[0]
_NEXT_SENTENCE = "model/classification_heads/0"
_HEADS = {
    "cls/seq_relationship/output_weights": f"{_NEXT_SENTENCE}/out_proj/kernel",
    "cls/seq_relationship/output_bias": f"{_NEXT_SENTENCE}/out_proj/bias",
    "output_weights": "model/classifier/out_proj/kernel",
    "output_bias": "model/classifier/out_proj/bias",
}
# The objects: paths, and after each = a further path to the same object. A functional encoder
# numbers its layers.
_LAYER = """_attention_layer/_softmax _attention_layer/_dropout_layer _attention_dropout
    _intermediate_activation_layer _inner_dropout_layer _output_dropout _attention_layer_norm/axis
    _output_layer_norm/axis _attention_layer_norm=_attention_layer_norm_kv"""
_DENSE = "{0}/partial_output_shape {0}/full_output_shape"  # for each dense layer in a layer
_ENCODER = """_embedding_dropout _attention_mask_layer inputs _config/initializer/config
    _embedding_norm_layer/axis layer-0 layer-2 layer-5 layer-7 layer-8 layer-9
    _embedding_layer=layer_with_weights-0=layer-1
    _position_embedding_layer=layer_with_weights-1=layer-3
    _position_embedding_layer/embeddings=_position_embedding_layer/_position_embeddings
    _type_embedding_layer=layer_with_weights-2=layer-4
    _embedding_norm_layer=layer_with_weights-3=layer-6
    layer-{0} _pooler_layer=layer_with_weights-{1}=layer-{2}"""
# A weight -> the objects of the models with this weight.
_MODELS = {
    "output_bias": """model/layer-0 model/layer-1 model/layer-2 model/layer-4
        model/classifier/dropout model/classifier=model/layer_with_weights-1=model/layer-5
        encoder=model/_network=model/_config/network=model/_config/0
        encoder=model/layer_with_weights-0=model/layer-3""",
    "cls/predictions/output_bias": """masked_lm/layer_norm/axis model/inputs
        encoder/_embedding_layer/embeddings=masked_lm/embedding_table masked_lm=model/masked_lm
        encoder=model/encoder_network=model/_config/encoder_network""",
    "cls/seq_relationship/output_bias": f"""{_NEXT_SENTENCE}/dropout
        {_NEXT_SENTENCE}/dense=next_sentence.pooler_dense
        {_NEXT_SENTENCE}=model/_config/classification_heads/0""",
}


def write(prefix: str, weights: Mapping[str, np.ndarray], num_heads: int) -> None:
    """Writes a checkpoint of a BERT, with or without a classifier or the heads of pre-training.

    The names of the weights are google-research/bert's. Raises UserError for a weight that these
    models lack. The attention heads get their own axis.
    """
    layers = range(sum(name.endswith("/self/query/bias") for name in weights))
    names = [*BERT.of_encoder(layers), *BERT.masked_lm.split()]
    places = [f"encoder/{x}" for x in _NAMES.of_encoder(layers)]
    places += [f"masked_lm/{x}" for x in _NAMES.masked_lm.split()]
    paths = weight_paths(names, places) | _HEADS
    if unknown := [name for name in weights if name not in paths]:
        raise UserError(
            "a checkpoint for TensorFlow Model Garden must have only the weights of a BERT, of its"
            f" classifier and of the heads of pre-training; there are also {listed(unknown)}"
        )
    root = tf.Module()
    for name, value in weights.items():
        if name.endswith("output_weights"):
            value = value.T
        elif "/attention/self/" in name:
            value = value.reshape(*value.shape[:-1], num_heads, -1)
        elif name.endswith("/attention/output/dense/kernel"):
            value = value.reshape(num_heads, -1, value.shape[-1])
        _at(root, paths[name], tf.Variable(value))
    root.save_counter = tf.Variable(1, dtype=tf.int64)
    _complete(root.encoder, _ENCODER.format(*(len(layers) + x for x in (10, 4, 11))))
    for i in layers:
        path = f"_transformer_layers/{i}"
        _complete(root.encoder, f"{path}=layer_with_weights-{4 + i}=layer-{10 + i}")
        dense = [_DENSE.format(x) for x in _NAMES.layer.split() if "norm" not in x]
        _complete(_at(root.encoder, path), " ".join([_LAYER, *dense]))
    if "cls/predictions/output_bias" in weights:
        setattr(root.masked_lm, "output_bias/bias", root.masked_lm.bias)  # one name with a slash
    if "cls/seq_relationship/output_bias" in weights:
        for part in "kernel", "bias":  # this head has its own pooler
            pooler = tf.Variable(weights[f"{POOLER}/{part}"])
            _at(root, f"{_NEXT_SENTENCE}/dense/{part}", pooler)
    for name, objects in _MODELS.items():
        _complete(root, objects if name in weights else "")
    tf.train.Checkpoint(root=root).write(prefix)


def _at(root: Any, path: str, value: Any = None) -> Any:
    """Returns the object at a path; makes missing objects, at the end `value`."""
    name, _, rest = path.partition("/")
    if not hasattr(root, name):
        setattr(root, name, tf.Module() if rest or value is None else value)
    child = getattr(root, name)
    return _at(child, rest, value) if rest else child


def _complete(root: Any, objects: str) -> None:
    for path, *others in (x.split("=") for x in objects.split()):
        for other in others or [path]:
            _at(root, other, _at(root, path))
