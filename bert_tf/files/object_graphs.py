"""Finds BERT's weights in the object graph of a checkpoint of `tf.train.Checkpoint` or Keras 2.

Such a checkpoint, and a SavedModel, has no variable names. Its graph says which object holds which
others, and under which attributes. `find_weights` looks in it for the encoders and heads of
TensorFlow Model Garden (tensorflow/models, official/nlp), wherever they hang, and names their
variables as google-research/bert does.
"""

import collections
import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from absl import logging

from bert_tf.errors import UserError, listed

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # the tensor with the graph
_VALUE = "VARIABLE_VALUE"
# Not entered: they lead to optimizers' slots and Keras's metrics, repeat what is found anyway, or
# choose the tokens to drop while training.
_SKIPPED = re.compile(
    r"_?optimizer|keras_api|variables|(non_)?trainable_variables|regulari.*|_token_importance_embed"
)
_OPTIMIZER = {"iter", "_iterations", "iterations"}  # only optimizers have these children


class Source(NamedTuple):
    """Where a weight is: the tensor, the weight's shape, whether it is the tensor's transpose."""

    key: str
    shape: list[int]
    transposed: bool = False


class Found(NamedTuple):
    """The weights of a checkpoint.

    sources: google-research/bert's or google-research/albert's name of a weight -> where it is.
    num_heads: number of attention heads; None if no shape tells.
    num_layers: number of layers; None for an ALBERT whose layers share their weights.
    """

    sources: dict[str, Source]
    num_heads: int | None
    num_layers: int | None


class _Generation(NamedTuple):
    """The attributes of an encoder of Model Garden.

    layers: path of the list of layers; "" in a functional model, which numbers all modules in the
        order of `MODULES`, and the layers between the last two.
    modules: the path of each of `MODULES`.
    layer: the path of each of `LAYER` within a layer.
    """

    name: str
    layers: str
    modules: list[str]
    layer: list[str]


_PROJECTION, _POOLER = "encoder/embedding_hidden_mapping_in", "pooler/dense"
_OPTIONAL = {_PROJECTION, _POOLER}
MODULES = [
    *(f"embeddings/{x}_embeddings" for x in ("word", "position", "token_type")),
    *("embeddings/LayerNorm", _PROJECTION, _POOLER),
]
LAYER = """attention/self/query attention/self/key attention/self/value attention/output/dense
    attention/output/LayerNorm intermediate/dense output/dense output/LayerNorm""".split()
_ALBERT_LAYER = """attention_1/self/query attention_1/self/key attention_1/self/value
    attention_1/output/dense LayerNorm ffn_1/intermediate/dense ffn_1/intermediate/output/dense
    LayerNorm_1""".split()
_LAYER_2_0 = """attention_layer/query_dense attention_layer/key_dense attention_layer/value_dense
    attention_output_dense attention_layer_norm intermediate_dense output_dense
    output_layer_norm""".split()
_LAYER_2_1 = ["/".join(f"_{x}" for x in path.split("/")) for path in _LAYER_2_0]
_LAYER_2_2 = [x.replace("_attention_output", "_attention_layer/_output") for x in _LAYER_2_1]
GENERATIONS = (
    _Generation(
        "tf-models-official 2.4 and later",
        "_transformer_layers",
        """_embedding_layer _position_embedding_layer _type_embedding_layer _embedding_norm_layer
        _embedding_projection _pooler_layer""".split(),
        _LAYER_2_2,
    ),
    _Generation("official/nlp 2.2 and 2.3, and ALBERT", "", [], _LAYER_2_2),
    _Generation("official/nlp 2.1 (keras_bert)", "", [], _LAYER_2_1),
    _Generation(
        "official/bert 2.0",
        "encoder/layers",
        """embedding_lookup embedding_postprocessor/position_embeddings
        embedding_postprocessor/type_embeddings embedding_postprocessor/output_layer_norm
        embedding_projection pooler_transform""".split(),
        _LAYER_2_0,
    ),
)


class _Graph:
    """The object graph without optimizers.

    Attributes:
        children: for each node, attribute -> node.
        keys: node of a variable -> its tensor.
        names: node of a variable -> the name that it had in the program that saved it.
        paths: node that can be reached -> a shortest path to it.
        parents: node -> the nodes that hold it, each with the attribute.
    """

    def __init__(self, serialized: bytes, shapes: Mapping[str, Sequence[int]]):
        from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

        nodes = TrackableObjectGraph.FromString(serialized).nodes
        self.children = [{x.local_name: x.node_id for x in node.children} for node in nodes]
        self.shapes = shapes
        self.keys: dict[int, str] = {}
        self.names: dict[int, str] = {}
        slots = {x.slot_variable_node_id for node in nodes for x in node.slot_variables}
        for i, node in enumerate(nodes):
            for x in node.attributes:
                if x.name == _VALUE and x.checkpoint_key in shapes and i not in slots:
                    self.keys[i], self.names[i] = x.checkpoint_key, x.full_name
        self.paths = self.below(0)
        self.parents: dict[int, list[tuple[int, str]]] = collections.defaultdict(list)
        for node in self.paths:
            for attribute, child in self.children[node].items():
                self.parents[child].append((node, attribute))

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

    def variable(self, start: int, path: str) -> int | None:
        node = self.find(start, path)
        return node if node in self.keys else None

    def variables(self) -> list[int]:
        """Returns the nodes of all variables that are not single numbers, in their paths' order."""
        found = [x for x in self.paths if x in self.keys and self.shape(x)]
        return sorted(found, key=self.paths.__getitem__)

    def place_of_dense(self, node: int, encoder: int) -> str:
        """Returns what a dense layer of a head is: pooler, span_labeling, tagger or classifier."""
        holders = {x for x, _ in self.parents[node]}
        attributes = {x for _, x in self.parents[node]}
        above = {x for holder in holders for _, x in self.parents[holder]}
        has_output = any("out_proj" in self.children[x] for x in holders)
        if ("dense" in attributes and has_output) or any(
            x.endswith("pooler_dense") for x in attributes
        ):
            return "pooler"
        if "span_labeling" in above or "final_dense" in attributes:
            return "span_labeling"
        beside_encoder = any(encoder in self.children[x].values() for x in holders)
        return "tagger" if beside_encoder and "classifier" in attributes else "classifier"

    def shape(self, node: int) -> list[int]:
        return list(self.shapes[self.keys[node]])

    def numbered(self, node: int, prefix: str = "") -> list[int]:
        """Returns the children with numbers for names, after the prefix, by their numbers."""
        children = self.children[node].items()
        found = {int(k[len(prefix) :]): x for k, x in children if re.fullmatch(rf"{prefix}\d+", k)}
        return [found[i] for i in sorted(found)]

    def functional(self, node: int) -> list[int]:
        """Returns the layers with weights of a functional model."""
        return self.numbered(node, "layer_with_weights-")


def find_weights(serialized: bytes, shapes: Mapping[str, Sequence[int]], place: str) -> Found:
    """Returns where the weights of a checkpoint are.

    Args:
        serialized: the tensor `GRAPH`.
        shapes: shape of each tensor.
        place: names the checkpoint, for messages.

    Raises:
        UserError: there is no encoder of BERT or ALBERT, or there are several, or it lacks
            variables or has others.
    """
    graph = _Graph(serialized, shapes)
    encoders: dict[int, tuple[_Generation, list[int]]] = {}
    for node in graph.paths:
        for generation in GENERATIONS:
            layers = _layers(graph, node, generation)
            if layers and node not in encoders:
                encoders[node] = generation, layers
    if len(encoders) != 1:
        found = sorted(graph.paths[node] or "the root" for node in encoders)
        found = found or [graph.paths[x] for x in graph.variables()]
        none = "no weights, like an optimizer's state or a preprocessing model of TF Hub"
        raise UserError(
            f"{place} was written by tf.train.Checkpoint or Keras, and must have one encoder of"
            f" BERT or ALBERT as TensorFlow Model Garden makes it"
            f" ({'; '.join(x.name for x in GENERATIONS)}); it has"
            f" {f'{len(encoders)} encoders: ' if encoders else ''}{listed(found) or none}"
        )
    ((encoder, (generation, layers)),) = encoders.items()
    sources, used = _encoder_weights(graph, encoder, generation, layers, place)
    used |= _add_heads(graph, encoder, sources)
    others = [graph.paths[node] for node in graph.variables() if node not in used]
    logging.info("%s has a model of %s; optimizers are left out", place, generation.name)
    if others:
        logging.warning("Of no known part of a model in %s, so not used: %s", place, listed(others))
    query = graph.variable(layers[0], f"{generation.layer[0]}/kernel")
    heads = graph.shape(query)[1:-1] if query is not None else []
    num_layers = None if _are_shared(graph, generation, layers) else len(layers)
    return Found(sources, heads[0] if heads else None, num_layers)


def _layers(graph: _Graph, encoder: int, generation: _Generation) -> list[int]:
    """Returns the layers of an encoder; [] if the node is no encoder of this generation."""
    if generation.layers:
        container = graph.find(encoder, generation.layers)
        nodes = [] if container is None else graph.numbered(container)
    else:
        nodes = graph.functional(encoder)
    marks = generation.layer[:4]  # of attention
    return [x for x in nodes if all(graph.find(x, mark) is not None for mark in marks)]


def _are_shared(graph: _Graph, generation: _Generation, layers: Sequence[int]) -> bool:
    """Returns whether all layers of an encoder share the weights of the one that was found.

    The structure is that of an encoder with one layer; Model Garden's names tell them apart.
    """
    if generation.layers or len(layers) > 1:
        return False
    return not any("/layer_0/" in graph.names[x] for x in graph.below(layers[0]) if x in graph.keys)


def _encoder_weights(
    graph: _Graph, encoder: int, generation: _Generation, layers: Sequence[int], place: str
) -> tuple[dict[str, Source], set[int]]:
    """Returns the sources of an encoder's weights, and the nodes of their variables."""
    paths = zip(MODULES, generation.modules, strict=False)
    modules = {name: graph.find(encoder, path) for name, path in paths}
    if not generation.layers:  # the projection is optional, and so is the pooler
        nodes = graph.functional(encoder)
        first, last = nodes.index(layers[0]), nodes.index(layers[-1])
        names = [x for x in MODULES if x not in _OPTIONAL] + [_PROJECTION] * (first == 5)
        modules = dict(zip(names, nodes[:first], strict=False))
        modules |= dict(zip([_POOLER], nodes[last + 1 :], strict=False))
    is_albert = modules.get(_PROJECTION) is not None or _are_shared(graph, generation, layers)
    scopes = {
        f"bert/{name}": modules.get(name)
        for name in MODULES
        if name not in _OPTIONAL or modules.get(name) is not None
    }
    scope = "transformer/group_{}/inner_group_0" if is_albert else "layer_{}"
    names = _ALBERT_LAYER if is_albert else LAYER
    for i, layer in enumerate(layers):
        for name, path in zip(names, generation.layer, strict=True):
            scopes[f"bert/encoder/{scope.format(i)}/{name}"] = graph.find(layer, path)
    sources: dict[str, Source] = {}
    used: set[int] = set()
    missing = []
    for scope, module in scopes.items():
        for name, part in _variables_of(scope):
            node = None if module is None else graph.variable(module, part)
            if module in graph.keys and part == "embeddings":  # in 2.0 the variable itself
                node = module
            if node is None:
                missing.append(name)
                continue
            used.add(node)
            sources[name] = Source(graph.keys[node], _flat(name, graph.shape(node)))
    inside = graph.below(encoder)
    unknown = [inside[x] for x in graph.variables() if x in inside and x not in used]
    if missing or unknown:
        raise UserError(
            f"{place}: the encoder {graph.paths[encoder] or 'at the root'} must have the variables"
            f" of one of {generation.name}, and it is a different model, or incomplete. Missing:"
            f" {listed(missing) or 'nothing'}; unexpected: {listed(unknown) or 'nothing'}"
        )
    return sources, used


def _variables_of(scope: str) -> list[tuple[str, str]]:
    """Returns the names of a module's weights, and the attributes of the object that has them."""
    if scope.endswith("_embeddings"):
        return [(scope, "embeddings")]
    is_norm = scope.split("/")[-1].startswith("LayerNorm")
    return [(f"{scope}/{x}", x) for x in (("gamma", "beta") if is_norm else ("kernel", "bias"))]


def _flat(name: str, shape: list[int]) -> list[int]:
    """Returns the shape of a weight that Model Garden may store by heads: [H, N, D] as [H, N*D]."""
    if name.endswith("/bias"):
        return [math.prod(shape)]
    if len(shape) != 3:
        return shape
    first, *_, last = shape
    is_output = "/output/dense/" in name
    return [math.prod(shape) // last, last] if is_output else [first, math.prod(shape) // first]


def _masked_lm_weights(graph: _Graph, outside: Sequence[int]) -> tuple[dict[str, Source], set[int]]:
    """Returns the sources of a masked-LM head's weights, and the nodes of their variables."""
    sources: dict[str, Source] = {}
    used: set[int] = set()
    for node in outside:
        prefix = "lm_" if "lm_dense" in graph.children[node] else ""  # in 2.0
        dense, norm = (graph.find(node, f"{prefix}{x}") for x in ("dense", "layer_norm"))
        bias = graph.variable(node, f"{prefix}bias")
        if len(graph.functional(node)) == 3:  # in 2.1 and 2.2
            dense, norm, last = graph.functional(node)
            bias = graph.variable(last, "bias")
        if dense is None or norm is None:
            continue
        nodes = {"cls/predictions/output_bias": bias}
        transform = "cls/predictions/transform"
        for module, scope in ((dense, f"{transform}/dense"), (norm, f"{transform}/LayerNorm")):
            nodes |= {name: graph.variable(module, x) for name, x in _variables_of(scope)}
        found = {name: x for name, x in nodes.items() if x is not None}
        if len(found) == len(nodes):
            used.update(found.values())
            sources |= {name: Source(graph.keys[x], graph.shape(x)) for name, x in found.items()}
    return sources, used


def _add_heads(graph: _Graph, encoder: int, sources: dict[str, Source]) -> set[int]:
    """Adds the sources of the heads' weights; returns the nodes of their variables.

    A head with a pooler of its own, which then replaces the encoder's, does not use the encoder's.
    """
    inside = graph.below(encoder)
    outside = [node for node in graph.paths if node not in inside]
    masked_lm, used = _masked_lm_weights(graph, outside)
    sources |= masked_lm
    heads: dict[str, list[tuple[str, int, int]]] = collections.defaultdict(list)
    for node in outside:
        kernel, bias = (graph.variable(node, x) for x in ("kernel", "bias"))
        if kernel is None or bias is None or kernel in used:
            continue
        place = graph.place_of_dense(node, encoder)
        if place == "pooler":
            used |= {kernel, bias}
            for name, x in (("kernel", kernel), ("bias", bias)):
                sources[f"bert/pooler/dense/{name}"] = Source(graph.keys[x], graph.shape(x))
            continue
        is_next_sentence = place == "classifier" and masked_lm and graph.shape(bias) == [2]
        scopes = {"span_labeling": "cls/squad/"}
        scope = "cls/seq_relationship/" if is_next_sentence else scopes.get(place, "")
        heads[scope].append((place, kernel, bias))
    for scope, found in heads.items():
        if len(found) > 1:
            continue
        ((place, kernel, bias),) = found
        used |= {kernel, bias}
        shape = graph.shape(kernel)[::-1]  # [classes, H]
        sources[f"{scope}output_weights"] = Source(graph.keys[kernel], shape, transposed=True)
        sources[f"{scope}output_bias"] = Source(graph.keys[bias], graph.shape(bias))
        if place == "tagger":  # its checkpoint has no pooler: nothing else shows that it is one
            for name in ("kernel", "bias"):
                sources.pop(f"bert/pooler/dense/{name}", None)
    return used
