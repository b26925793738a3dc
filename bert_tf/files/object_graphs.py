"""Reads and writes BERT's weights in checkpoints of `tf.train.Checkpoint` and Keras 2.

Such a checkpoint does not have variable names. Its object graph says which object holds which
others, and under which attributes. The encoders and heads of TensorFlow Model Garden
(tensorflow/models, official/nlp) are found anywhere in the graph, and named as in
google-research/bert.
"""

import collections
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from bert_tf.errors import UserError, listed
from bert_tf.start import lazy_tensorflow as tf

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # the tensor with the graph
# Skipped: attributes that lead to optimizers' slots and Keras's metrics, repeat what is found
# anyway, or choose the tokens to drop while training.
_SKIPPED = re.compile(
    r"_?optimizer|keras_api|variables|(non_)?trainable_variables|regulari.*|_token_importance_embed"
)
_OPTIMIZER = {"iter", "_iterations", "iterations"}  # only optimizers have these children


class Names(NamedTuple):
    """Names, or paths in a graph, of weights and of layers with weights, in a fixed order.

    encoder: names outside the layers; {} is the number after the last layer's, which a functional
        model gives to its pooler.
    layers: name of a layer; {} is its number. layer: names within a layer.
    """

    generation: str
    encoder: str
    layers: str
    layer: str
    masked_lm: str

    def of_encoder(self, numbers: Sequence[int]) -> list[str]:
        """Returns the names in an encoder whose layers have these numbers."""
        layers = [self.layers.format(number) for number in numbers]
        in_layers = [f"{layer}/{name}" for layer in layers for name in self.layer.split()]
        return [*self.encoder.format(max(numbers, default=0) + 1).split(), *in_layers]


BERT = Names(
    "google-research/bert",
    """bert/embeddings/word_embeddings bert/embeddings/position_embeddings
    bert/embeddings/token_type_embeddings bert/embeddings/LayerNorm
    bert/encoder/embedding_hidden_mapping_in bert/pooler/dense""",
    "bert/encoder/layer_{}",
    """attention/self/query attention/self/key attention/self/value attention/output/dense
    attention/output/LayerNorm intermediate/dense output/dense output/LayerNorm""",
    """cls/predictions/transform/dense cls/predictions/transform/LayerNorm
    cls/predictions/output_bias""",
)
ALBERT = BERT._replace(
    layers="bert/encoder/transformer/group_{}/inner_group_0",
    layer="""attention_1/self/query attention_1/self/key attention_1/self/value
    attention_1/output/dense LayerNorm ffn_1/intermediate/dense ffn_1/intermediate/output/dense
    LayerNorm_1""",
)
POOLER = "bert/pooler/dense"
_OPTIONAL = "bert/encoder/embedding_hidden_mapping_in", POOLER  # an encoder may lack them
_NLP_2_2 = Names(
    "official/nlp 2.2 and 2.3, and ALBERT",
    """layer_with_weights-0/embeddings layer_with_weights-1/embeddings
    layer_with_weights-2/embeddings layer_with_weights-3 layer_with_weights-4
    layer_with_weights-{}""",
    "layer_with_weights-{}",
    """_attention_layer/_query_dense _attention_layer/_key_dense _attention_layer/_value_dense
    _attention_layer/_output_dense _attention_layer_norm _intermediate_dense _output_dense
    _output_layer_norm""",
    "layer_with_weights-0 layer_with_weights-1 layer_with_weights-2/bias",
)
_NLP_2_1 = _NLP_2_2._replace(
    generation="official/nlp 2.1 (keras_bert)",
    layer=_NLP_2_2.layer.replace("_attention_layer/_output", "_attention_output"),
)
GENERATIONS = (
    Names(
        "tf-models-official 2.4 and later",
        """_embedding_layer/embeddings _position_embedding_layer/embeddings
        _type_embedding_layer/embeddings _embedding_norm_layer _embedding_projection
        _pooler_layer""",
        "_transformer_layers/{}",
        _NLP_2_2.layer,
        "dense layer_norm bias",
    ),
    _NLP_2_2,
    _NLP_2_1,
    Names(
        "official/bert 2.0",
        """embedding_lookup/embeddings embedding_postprocessor/position_embeddings
        embedding_postprocessor/type_embeddings embedding_postprocessor/output_layer_norm
        embedding_projection pooler_transform""",
        "encoder/layers/{}",
        re.sub(r"\b_", "", _NLP_2_1.layer),
        "lm_dense lm_layer_norm lm_bias",
    ),
)


def weight_paths(names: Sequence[str], paths: Sequence[str]) -> dict[str, str]:
    """Maps names of weights to paths; a layer has two weights, such as kernel and bias."""
    found = {}
    for name, path in zip(names, paths, strict=True):
        parts = ("/gamma", "/beta") if "LayerNorm" in name.split("/")[-1] else ("/kernel", "/bias")
        is_weight = name.endswith(("_embeddings", "_bias"))
        found |= {name + part: path + part for part in ([""] if is_weight else parts)}
    return found


class _Graph:
    """The object graph without optimizers.

    children: for each node: attribute -> node.
    keys, names, shapes: node of a variable -> its tensor, its name when saved, its shape.
    paths: reachable node -> a shortest path to it.
    """

    def __init__(self, serialized: bytes, shapes: Mapping[str, Sequence[int]]):
        from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

        nodes = TrackableObjectGraph.FromString(serialized).nodes
        self.children = [{x.local_name: x.node_id for x in node.children} for node in nodes]
        self.keys: dict[int, str] = {}
        self.names: dict[int, str] = {}
        for i, node in enumerate(nodes):
            for x in node.attributes:
                if x.name == "VARIABLE_VALUE" and x.checkpoint_key in shapes:
                    self.keys[i], self.names[i] = x.checkpoint_key, x.full_name
        self.shapes = {node: [*shapes[key]] for node, key in self.keys.items()}
        self.paths = self.below(0)

    def below(self, start: int) -> dict[int, str]:
        """Returns the nodes that `start` holds, itself included, each with a shortest path."""
        paths, todo = {start: ""}, collections.deque([start])
        while todo:
            node = todo.popleft()
            if not _OPTIMIZER.isdisjoint(self.children[node]):
                continue
            for name, child in self.children[node].items():
                if child not in paths and not _SKIPPED.fullmatch(name):
                    paths[child] = f"{paths[node]}/{name}".lstrip("/")
                    todo.append(child)
        return paths

    def find(self, start: int, path: str) -> int | None:
        node: int | None = start
        for name in path.split("/"):
            node = None if node is None else self.children[node].get(name)
        return node

    def match(self, start: int, paths: Mapping[str, str]) -> dict[str, int]:
        """Returns the variables at the paths from `start`, by the keys of `paths`."""
        nodes = {name: self.find(start, path) for name, path in paths.items()}
        return {name: node for name, node in nodes.items() if node in self.keys}

    def layers(self, encoder: int, generation: Names) -> list[int]:
        """Returns the numbers of the layers; [] if the node is not this generation's encoder."""
        path = f"{generation.layers}/{generation.layer.split()[3]}"  # the attention's last part
        numbers = [i for i in range(6) if self.find(encoder, path.format(i)) is not None]
        while numbers and self.find(encoder, path.format(numbers[-1] + 1)) is not None:
            numbers.append(numbers[-1] + 1)
        return numbers

    def others(self, used: Iterable[int]) -> list[int]:
        """Returns the variables except scalars and `used`, sorted by path."""
        others = {x for x in self.paths if self.shapes.get(x)}.difference(used)
        return sorted(others, key=self.paths.__getitem__)


def find_weights(
    serialized: bytes, shapes: Mapping[str, Sequence[int]], place: str
) -> tuple[dict[str, tuple[str, list[int]]], dict[str, int]]:
    """Finds the weights of a checkpoint by its tensor `GRAPH`; `place` is for messages.

    Returns two dicts: name of a weight -> (its tensor, the weight's shape), where the tensors of
    output_weights are transposed; and num_attention_heads and num_hidden_layers, if known. Raises
    UserError unless there is exactly one BERT or ALBERT, with all its variables.
    """
    graph = _Graph(serialized, shapes)
    encoders: dict[int, tuple[Names, list[int]]] = {}
    for node, generation in itertools.product(graph.paths, GENERATIONS):
        if numbers := graph.layers(node, generation):
            encoders.setdefault(node, (generation, numbers))
    if len(encoders) != 1:
        found = sorted(graph.paths[node] or "the root" for node in encoders)
        found = found or [graph.paths[x] for x in graph.others([])]
        none = "no weights, like an optimizer's state or a preprocessing model of TF Hub"
        raise UserError(
            f"{place} was written by tf.train.Checkpoint or Keras, and must have one encoder of"
            f" BERT or ALBERT in the format of TensorFlow Model Garden"
            f" ({'; '.join(x.generation for x in GENERATIONS)}); it has"
            f" {f'{len(encoders)} encoders: ' if encoders else ''}{listed(found) or none}"
        )
    ((encoder, (generation, numbers)),) = encoders.items()
    theirs = generation.of_encoder(numbers)
    projection, query = (graph.find(encoder, f"{theirs[i]}/kernel") for i in (4, 6))
    # A functional ALBERT with shared layers is built like one with a single layer.
    is_shared = len(numbers) == 1 and generation.layers == _NLP_2_2.layers
    is_shared = is_shared and "/layer_0/" not in graph.names.get(query, "")
    ours = ALBERT if is_shared or projection is not None else BERT
    paths = weight_paths(ours.of_encoder(range(len(numbers))), theirs)
    weights = graph.match(encoder, paths)
    absent = tuple(x for x in _OPTIONAL if not any(name.startswith(x) for name in weights))
    missing = [x for x in paths if x not in weights and not x.startswith(absent)]
    inside = graph.below(encoder)
    unknown = [inside[x] for x in graph.others(weights.values()) if x in inside]
    if missing or unknown:
        raise UserError(
            f"{place}: the encoder {graph.paths[encoder] or 'at the root'} must have the variables"
            f" of an encoder of {generation.generation}; it is a different model, or incomplete."
            f" Missing: {listed(missing) or 'none'}; unexpected: {listed(unknown) or 'none'}"
        )
    _add_heads(graph, encoder, weights)
    logging.info(
        "%s holds a model in the format of %s; the optimizer's variables are left out",
        place,
        generation.generation,
    )
    if others := [graph.paths[x] for x in graph.others({*inside, *weights.values()})]:
        logging.warning(
            "%s: not used, because no known part of a model has these variables: %s",
            place,
            listed(others),
        )
    sizes = {} if is_shared else {"num_hidden_layers": len(numbers)}
    if len(graph.shapes[query]) == 3:
        sizes["num_attention_heads"] = graph.shapes[query][1]
    return {x: (graph.keys[i], _flat(x, graph.shapes[i])) for x, i in weights.items()}, sizes


def _add_heads(graph: _Graph, encoder: int, weights: dict[str, int]) -> None:
    """Adds the nodes of the heads' weights to `weights`, which has the encoder's.

    If a head has its own pooler, that pooler replaces the encoder's, which the head does not use.
    """
    outside = graph.paths.keys() - graph.below(encoder)
    for node, generation in itertools.product(outside, GENERATIONS):
        paths = weight_paths(BERT.masked_lm.split(), generation.masked_lm.split())
        found = graph.match(node, paths)
        weights |= found if len(found) == len(paths) else {}
    has_masked_lm = "cls/predictions/output_bias" in weights
    held = [graph.children[x] for x in graph.paths]
    poolers = {x.get("dense") for x in held if "out_proj" in x}
    poolers |= {child for x in held for name, child in x.items() if name.endswith("pooler_dense")}
    taggers = {x.get("classifier") for x in held if encoder in x.values()}
    in_span_labelers = "final_dense", "span_labeling/layer_with_weights-0"
    spans = {graph.find(x, path) for x in graph.paths for path in in_span_labelers}
    heads = collections.defaultdict(list)
    for node in outside:
        dense = graph.match(node, {"kernel": "kernel", "bias": "bias"})
        if len(dense) < 2 or dense["kernel"] in weights.values():
            continue
        if node in poolers:
            weights |= {f"{POOLER}/{part}": x for part, x in dense.items()}
            continue
        is_pair = has_masked_lm and graph.shapes[dense["bias"]] == [2] and node not in taggers
        scope = "cls/squad/" if node in spans else "cls/seq_relationship/" if is_pair else ""
        heads[scope].append(node)
    for scope, (node, *more) in heads.items():
        if not more:
            names = {f"{scope}output_weights": "kernel", f"{scope}output_bias": "bias"}
            weights |= graph.match(node, names)
        if not more and node in taggers:  # the missing pooler marks a tagger
            for part in "kernel", "bias":
                weights.pop(f"{POOLER}/{part}", None)


def _flat(name: str, shape: list[int]) -> list[int]:
    """Converts a tensor's shape, which may have an axis of heads, to the shape of the weight."""
    if name.endswith("output_weights"):
        return shape[::-1]  # [classes, H]
    if name.endswith("/bias"):
        return [math.prod(shape)]
    rows = math.prod(shape[:-1]) if "/output/dense/" in name else shape[0]
    return [rows, math.prod(shape) // rows] if len(shape) == 3 else shape


# --- writing --------------------------------------------------------------------------------------

_NAMES = GENERATIONS[0]
_NEXT_SENTENCE = "model/classification_heads/0"
_HEADS = {
    "cls/seq_relationship/output_weights": f"{_NEXT_SENTENCE}/out_proj/kernel",
    "cls/seq_relationship/output_bias": f"{_NEXT_SENTENCE}/out_proj/bias",
    "output_weights": "model/classifier/out_proj/kernel",
    "output_bias": "model/classifier/out_proj/bias",
}
# Paths of objects; = separates paths of the same object. A functional encoder numbers its layers.
_LAYER = """_attention_layer/_softmax _attention_layer/_dropout_layer _attention_dropout
    _intermediate_activation_layer _inner_dropout_layer _output_dropout _attention_layer_norm/axis
    _output_layer_norm/axis _attention_layer_norm=_attention_layer_norm_kv"""
_DENSE = "{0}/partial_output_shape {0}/full_output_shape"  # for each dense sublayer
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
    """Writes a checkpoint that models of tf-models-official, 2.4 and later, restore.

    These are BERT's encoders (functional or not), classifier and pre-trainer, which also expect
    objects without weights (`assert_existing_objects_matched()`). The names of the weights are
    google-research/bert's. Raises UserError for a weight that these models lack. The attention
    heads get their own axis.
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
    """Returns the object at a path; makes missing objects on the way; `value` is the last one."""
    name, _, rest = path.partition("/")
    if not hasattr(root, name):
        setattr(root, name, tf.Module() if rest or value is None else value)
    child = getattr(root, name)
    return _at(child, rest, value) if rest else child


def _complete(root: Any, objects: str) -> None:
    for path, *others in (x.split("=") for x in objects.split()):
        for other in others or [path]:
            _at(root, other, _at(root, path))
