"""Object graphs as TensorFlow Model Garden wrote them before 2.4, and its project token dropping.

That code runs on no TensorFlow of today. The attributes are those of tensorflow/models,
official/nlp/bert_modeling.py (2.0) and official/nlp/modeling (2.1 to 2.3); the converter
convert_bert_original_tf2_checkpoint_to_pytorch of transformers lists them as well. The weights go
by google-research/bert's names.
"""

import numpy as np
import tensorflow as tf

LAYERS, HEADS = 2, 3
NAMES_2_0 = """attention_layer/query_dense attention_layer/key_dense attention_layer/value_dense
    attention_output_dense attention_layer_norm intermediate_dense output_dense output_layer_norm"""
NAMES_2_1 = """_attention_layer/_query_dense _attention_layer/_key_dense
    _attention_layer/_value_dense _attention_output_dense _attention_layer_norm
    _intermediate_dense _output_dense _output_layer_norm"""
NAMES = {
    "2.0": NAMES_2_0,
    "2.1": NAMES_2_1,
    "2.3": NAMES_2_1.replace("_attention_output_dense", "_attention_layer/_output_dense"),
}
TOKEN_DROPPING = "2.10"  # the project, whose encoder has the attributes of 2.4
OURS = """attention/self/query attention/self/key attention/self/value attention/output/dense
    attention/output/LayerNorm intermediate/dense output/dense output/LayerNorm"""


def put(root: tf.Module, path: str, value: object) -> None:
    """Sets an attribute, and makes the objects on the way to it."""
    *way, last = path.split("/")
    for name in way:
        if not hasattr(root, name):
            setattr(root, name, tf.Module())
        root = getattr(root, name)
    setattr(root, last, value)


class Writer:
    """Takes weights by their names, so that none is forgotten."""

    def __init__(self, weights: dict[str, np.ndarray], generation: str):
        self.weights, self.generation = dict(weights), generation

    def variable(self, name: str, by_heads: bool = False, transposed: bool = False) -> tf.Variable:
        value = self.weights.pop(name)
        value = value.T if transposed else value
        if by_heads and self.generation != "2.0":
            size = len(value) // HEADS if "/output/" in name else value.shape[-1] // HEADS
            place = [HEADS, size]
            rest = [value.shape[-1]] if "/output/" in name else [*value.shape[:-1]]
            value = value.reshape(place + rest if "/output/" in name else rest + place)
        names = name.replace("bert/encoder/", "transformer/")  # Model Garden's
        return tf.Variable(value, name=names)

    def module(self, scope: str, by_heads: bool = False) -> tf.Module:
        module = tf.Module()
        for part in ("gamma", "beta") if "LayerNorm" in scope else ("kernel", "bias"):
            heads = by_heads and not (part == "bias" and "/output/" in scope)
            setattr(module, part, self.variable(f"{scope}/{part}", heads))
        return module

    def head(self, scope: str) -> tf.Module:
        module = tf.Module()
        module.kernel = self.variable(f"{scope}output_weights", transposed=True)
        module.bias = self.variable(f"{scope}output_bias")
        return module

    def layers(self) -> list[tf.Module]:
        layers = [tf.Module() for _ in range(LAYERS)]
        for i, layer in enumerate(layers):
            paths = NAMES.get(self.generation, NAMES["2.3"]).split()
            for name, path in zip(OURS.split(), paths, strict=True):
                by_heads = name.startswith("attention") and "LayerNorm" not in name
                put(layer, path, self.module(f"bert/encoder/layer_{i}/{name}", by_heads))
        return layers

    def encoder(self) -> tf.Module:
        encoder, scope = tf.Module(), "bert/embeddings"
        tables = {x: self.variable(f"{scope}/{x}_embeddings") for x in _TABLES}
        norm, pooler = self.module(f"{scope}/LayerNorm"), self.module("bert/pooler/dense")
        if self.generation == "2.0":
            put(encoder, "embedding_lookup/embeddings", tables["word"])
            put(encoder, "embedding_postprocessor/position_embeddings", tables["position"])
            put(encoder, "embedding_postprocessor/type_embeddings", tables["token_type"])
            put(encoder, "embedding_postprocessor/output_layer_norm", norm)
            put(encoder, "encoder/layers", self.layers())
            encoder.pooler_transform = pooler
            return encoder
        modules = [tf.Module() for _ in _TABLES]
        for module, x in zip(modules, _TABLES, strict=True):
            module.embeddings = tables[x]
        if self.generation != TOKEN_DROPPING:
            return functional(*modules, norm, *self.layers(), pooler)
        encoder._embedding_layer, encoder._position_embedding_layer = modules[:2]
        encoder._type_embedding_layer, encoder._embedding_norm_layer = modules[2], norm
        encoder._transformer_layers, encoder._pooler_layer = self.layers(), pooler
        importance = tf.Variable(tf.ones(tables["word"].shape[:1]))
        put(encoder, "_token_importance_embed/_importance_embedding", importance)
        return encoder

    def masked_lm(self) -> tf.Module:
        """Returns the layer or network of pre-training, with the next-sentence head in 2.0."""
        scope = "cls/predictions/transform"
        dense, norm = self.module(f"{scope}/dense"), self.module(f"{scope}/LayerNorm")
        bias = self.variable("cls/predictions/output_bias")
        layer = tf.Module()
        if self.generation == TOKEN_DROPPING:
            layer.dense, layer.layer_norm, layer.bias = dense, norm, bias
            return layer
        if self.generation != "2.0":
            layer.bias = bias
            return functional(dense, norm, layer)
        layer.lm_dense, layer.lm_layer_norm, layer.lm_bias = dense, norm, bias
        layer.next_sentence_dense = self.head("cls/seq_relationship/")
        return layer


_TABLES = "word", "position", "token_type"


def functional(*layers: tf.Module) -> tf.Module:
    """Returns a functional Keras model of layers with weights."""
    model = tf.Module()
    for i, layer in enumerate(layers):
        setattr(model, f"layer_with_weights-{i}", layer)
    return model


def write(prefix: str, weights: dict[str, np.ndarray], generation: str) -> str:
    """Writes all weights as the programs of a generation; returns the checkpoint's prefix."""
    writer = Writer(weights, generation)
    parts = [writer.encoder()]
    if "cls/predictions/output_bias" in weights:
        parts.append(writer.masked_lm())
        if generation != "2.0":
            parts.append(functional(writer.head("cls/seq_relationship/")))
    elif "output_bias" in weights:
        head = writer.head("")
        parts.append(head if generation == "2.0" else functional(head))
    elif "cls/squad/output_bias" in weights:
        layer = tf.Module()
        layer.final_dense = writer.head("cls/squad/")
        parts.append(layer)
    assert not writer.weights, sorted(writer.weights)
    return tf.train.Checkpoint(model=functional(*parts)).save(prefix)
