"""Builds the ONNX graph of a model: checks of ids, embeddings, encoder, heads.

Dimension letters: see `bert_tf/modeling.py`; C is the number of classes or choices. Tensors
are referred to by name.
"""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.export.onnx_graph import OnnxGraph, Ranges, RangesGraph
from bert_tf.export.running import onnx_runner
from bert_tf.files.object_graphs import ALBERT, BERT
from bert_tf.model.configuration import BertConfig
from bert_tf.model.encoder import MASKED_SCORE
from bert_tf.model.family import AlbertConfig, ElectraConfig
from bert_tf.pretrained.build import INPUTS, POSITIONS
from bert_tf.pretrained.folder import ModelFolder
from bert_tf.text import sequences

Tensors = dict[str, str]
FLOAT, INT32, INT64, BOOL = 1, 6, 7, 9  # onnx.TensorProto.DataType
ONE, LAST = np.array([1]), np.array([-1])  # axes
_ROWS, _LENGTH = 64, 48  # number and length of the texts for calibration
_SHAPES = "input_mask_and_segment_ids_must_have_the_shape_of_input_ids"


def checked(graph: OnnxGraph, inputs: Tensors, config: BertConfig) -> Tensors:
    """Checks the inputs of a head like `signatures.looked_up`; wrong inputs fail in the graph."""
    # ONNX cannot assert: the operations that fail are named after what is wrong.
    axis = np.array([0])
    stacked = [graph("Unsqueeze", inputs[name], axis) for name in INPUTS]
    stacked = graph("Concat", *stacked, axis=0, name=_SHAPES)
    parts = graph("Split", stacked, axis=0, num_outputs=len(INPUTS))
    found = dict(inputs)
    found |= {n: graph("Squeeze", x, axis) for n, x in zip(INPUTS, parts, strict=True)}
    limits = {"input_ids": config.vocab_size, "input_mask": 2}
    if config.has_token_types:
        limits["segment_ids"] = config.type_vocab_size
    for name, limit in limits.items():
        found[name] = _below(graph, found[name], np.int32(limit), name)
    if POSITIONS in inputs:
        first = graph("Slice", found["input_ids"], np.array([0]), np.array([1]), np.array([1]))
        name = f"{POSITIONS}_must_have_as_many_rows_as_input_ids"
        joined = graph("Concat", first, inputs[POSITIONS], axis=1, name=name)
        last = np.array([np.iinfo(np.int64).max])
        positions = graph("Slice", joined, np.array([1]), last, np.array([1]))
        length = graph("Cast", graph("Squeeze", _length(graph, found), axis), to=INT32)
        found[POSITIONS] = _below(graph, positions, length, POSITIONS)
    return found


def _below(graph: OnnxGraph, values: str, limit: np.int32 | str, name: str) -> str:
    """Looks int32 values up in 0, 1, ..., limit - 1."""
    right = graph("Range", np.int32(0), limit, np.int32(1))
    # ONNX counts negative indices from the end.
    values = graph("Where", graph("Less", values, np.int32(0)), limit, values)
    return graph("Gather", right, values, name=f"{name}_out_of_range")


def _length(graph: OnnxGraph, inputs: Tensors) -> str:
    """Returns S, int64 [1]."""
    return graph("Shape", inputs["input_ids"], start=-1)


class OnnxModel:
    """Adds a model to a graph, with the weights and settings of its folder."""

    def __init__(self, graph: OnnxGraph, folder: ModelFolder):
        self._graph, self._config, self._folder = graph, folder.config, folder
        self._pooled_outputs: Tensors = {}  # last layer -> pooled output

    def outputs(self, head: str, inputs: Tensors) -> Tensors:
        """Returns the outputs of a head and of the encoder by name; see `signatures.outputs_of`."""
        graph = self._graph
        choices = ""
        if head == "multiple_choice":
            choices = graph("Shape", inputs["input_ids"], start=0, end=2)
            count = graph("ReduceProd", choices, keepdims=1)
            rows = graph("Concat", count, _length(graph, inputs), axis=0)
            inputs = {name: graph("Reshape", x, rows, allowzero=1) for name, x in inputs.items()}
        hidden = self.encoded(inputs)
        encoded = {"sequence_output": hidden}
        if "bert/pooler/dense/kernel" in self._folder.shapes:
            encoded["pooled_output"] = self._pooled(hidden)
        if head == "encoder":
            return {**encoded, "vectors": self._vectors(hidden, inputs, encoded)}
        return {**encoded, **self._of_head(head, hidden, inputs, choices)}

    def _of_head(self, head: str, hidden: str, inputs: Tensors, choices: str) -> Tensors:
        """Returns the outputs of a head; `choices` is [rows, choices], int64 [2]."""
        graph = self._graph
        if head in ("squad", "tagging"):
            logits = self._linear(hidden, "cls/squad/" if head == "squad" else "")  # [B, S, C]
        if head == "masked_lm":
            return {"logits": self._masked_lm(hidden, inputs)}
        if head == "squad":
            parts = graph("Split", logits, axis=-1, num_outputs=2)
            names = ("start_logits", "end_logits")
            return {n: graph("Squeeze", x, LAST) for n, x in zip(names, parts, strict=True)}
        if head != "tagging":
            logits = self._linear(self._pooled(hidden))
        if head == "regression":
            return {"values": graph("Squeeze", logits, LAST)}
        if head == "multiple_choice":
            logits = graph("Reshape", logits, choices, allowzero=1)  # [B, C]
        if head == "classification" and self._config.is_multi_label:
            return {"logits": logits, "probabilities": graph("Sigmoid", logits)}
        return {"logits": logits, "probabilities": graph("Softmax", logits, axis=-1)}

    def encoded(self, inputs: Tensors) -> str:
        """Returns the last layer, float32 [B, S, H]."""
        config, graph = self._config, self._graph
        mask = graph("Unsqueeze", graph("Unsqueeze", inputs["input_mask"], ONE), np.array([2]))
        mask = graph("Sub", np.float32(1), graph("Cast", mask, to=FLOAT))
        mask = graph("Mul", mask, np.float32(MASKED_SCORE))  # [B, 1, 1, S]
        hidden = self._embeddings(inputs)
        if isinstance(config, AlbertConfig) and config.embedding_size != config.hidden_size:
            hidden = self._dense(hidden, "bert/encoder/embedding_hidden_mapping_in/")
        if isinstance(config, ElectraConfig) and config.embedding_width != config.hidden_size:
            hidden = self._dense(hidden, f"{config.scope}/embeddings_project/")
        for scope in self._layers():
            hidden = self._layer(hidden, mask, scope)
        return hidden

    def _layers(self) -> Iterator[list[str]]:
        """Yields the scopes of each layer's parts, in the order of `object_graphs.BERT`."""
        config = self._config
        layers, parts = config.layer_scopes, BERT.layer
        if isinstance(config, AlbertConfig):
            numbers = itertools.product(config.layer_groups, range(config.inner_group_num))
            layers = [f"bert/encoder/transformer/group_{i}/inner_group_{j}/" for i, j in numbers]
            parts = ALBERT.layer
        for layer in layers:
            yield [f"{layer}{part}/" for part in parts.split()]

    def _layer(self, hidden: str, mask: str, scopes: Sequence[str]) -> str:
        """Returns the output of an encoder layer, float32 [B, S, H]."""
        *attention, value, projection, attention_norm, intermediate, output, output_norm = scopes
        context = self._attention(hidden, mask, *attention, value)
        # Attention weights add up to 1, so the value's bias can be added afterwards.
        bias = self._folder.read(f"{value}bias") @ self._folder.read(f"{projection}kernel")
        bias += self._folder.read(f"{projection}bias")
        branch = self._product(context, projection, bias)
        attended = self._add_norm(branch, hidden, attention_norm)
        branch = self._dense(attended, intermediate, self._config.hidden_act)
        return self._add_norm(self._dense(branch, output), attended, output_norm)

    def _attention(self, hidden: str, mask: str, query: str, key: str, value: str) -> str:
        """Returns the context, float32 [B, S, H]."""
        graph, size = self._graph, self._config.hidden_size
        heads = self._config.num_attention_heads

        def split(scope: str, perm: Sequence[int], bias: np.ndarray | None = None) -> str:
            x = self._product(hidden, scope, bias)
            x = graph("Reshape", x, np.array([0, 0, heads, size // heads]))  # [B, S, N, D]
            return graph("Transpose", x, perm=perm)

        # The key's bias adds the same number to all scores of a query: the softmax does not change.
        queries = split(query, [0, 2, 1, 3], self._folder.read(f"{query}bias"))
        scores = graph("MatMul", queries, split(key, [0, 2, 3, 1]))
        scores = graph("Div", scores, np.float32(math.sqrt(size // heads)))  # [B, N, S, S]
        probabilities = graph("Softmax", graph("Add", scores, mask), axis=3)
        context = graph("MatMul", probabilities, split(value, [0, 2, 1, 3]))  # [B, N, S, D]
        context = graph("Transpose", context, perm=[0, 2, 1, 3])
        return graph("Reshape", context, np.array([0, 0, size]))

    def _embeddings(self, inputs: Tensors) -> str:
        """Returns the input of the encoder, float32 [B, S, E]."""
        graph, config = self._graph, self._config
        scope = f"{config.scope}/embeddings/"
        positions = self._folder.read(f"{scope}position_embeddings")
        segments = self._folder.read(f"{scope}token_type_embeddings")
        name = f"{scope}word_embeddings"
        words = graph.rows(name, self._folder.read(name), inputs["input_ids"])
        if config.has_token_types and config.type_vocab_size > 1:
            segments = graph.constant(f"{scope}token_type_embeddings", segments)
            words = graph("Add", words, graph("Gather", segments, inputs["segment_ids"]))
        else:
            positions = positions + segments[0]
        positions = graph.constant(f"{scope}position_embeddings", positions)
        name = f"length_must_be_at_most_{config.longest_sequence}"
        if config.position_offset:
            pad = np.int32(config.pad_token_id)
            tokens = graph("Not", graph("Equal", inputs["input_ids"], pad))
            tokens = graph("Cast", tokens, to=INT32)
            places = graph("Mul", graph("CumSum", tokens, np.int32(1)), tokens)
            places = graph("Add", places, pad)
            positions, name = graph("Gather", positions, places, name=name), ""
        else:
            axis = np.array([0])
            positions = graph("Slice", positions, axis, _length(graph, inputs), axis)
        return self._add_norm(words, positions, f"{scope}LayerNorm/", name)

    def _add_norm(self, x: str, y: str, scope: str, name: str = "") -> str:
        return self._norm(self._graph("Add", x, y, name=name), scope)

    def _norm(self, x: str, scope: str) -> str:
        gamma, beta = (self._constant(f"{scope}{name}") for name in ("gamma", "beta"))
        epsilon = self._config.layer_norm_eps
        return self._graph("LayerNormalization", x, gamma, beta, axis=-1, epsilon=epsilon)

    def _dense(self, x: str, scope: str, activation: str | None = None) -> str:
        """Returns a dense layer's output, float32 [..., M], for float32 [..., K]."""
        name, bias = str(activation or "linear").lower(), self._folder.read(f"{scope}bias")
        if name.startswith("gelu"):
            # Two axes keep ONNX Runtime from fusing bias and GELU, which would take longer.
            x = self._product(x, scope, bias[np.newaxis])
            return self._graph.gelu(x, approximate=name == "gelu")
        x = self._product(x, scope, bias)
        return x if name == "linear" else self._graph({"relu": "Relu", "tanh": "Tanh"}[name], x)

    def _product(self, x: str, scope: str, bias: np.ndarray | None) -> str:
        """Returns the product with a layer's kernel, plus a bias: float32 [..., M]."""
        kernel = self._folder.read(f"{scope}kernel")
        return self._graph.product(x, f"{scope}kernel", kernel, f"{scope}bias", bias)

    def _linear(self, x: str, scope: str = "") -> str:
        """Returns the logits, float32 [..., C], of the head in a scope, for float32 [..., H]."""
        weights, bias = self._constant(f"{scope}output_weights"), f"{scope}output_bias"
        logits = self._graph("MatMul", x, self._graph("Transpose", weights, perm=[1, 0]))
        # The head for multiple choice has no bias.
        if bias in self._folder.shapes:
            logits = self._graph("Add", logits, self._constant(bias))
        return logits

    def _pooled(self, hidden: str) -> str:
        """Returns the pooled output, float32 [B, H]."""
        if hidden not in self._pooled_outputs:
            first = self._graph("Gather", hidden, np.int64(0), axis=1)
            if self._config.has_pooler:
                first = self._dense(first, "bert/pooler/dense/", self._config.pooler_activation)
            self._pooled_outputs[hidden] = first
        return self._pooled_outputs[hidden]

    def _masked_lm(self, hidden: str, inputs: Tensors) -> str:
        """Returns logits, float32 [B, P, V]."""
        graph, config = self._graph, self._config
        scope = f"{config.masked_lm_scope}/"
        transform = scope if isinstance(config, ElectraConfig) else f"{scope}transform/"
        places = graph("Unsqueeze", graph("Cast", inputs[POSITIONS], to=INT64), np.array([2]))
        hidden = graph("GatherND", hidden, places, batch_dims=1)  # [B, P, H]
        hidden = self._dense(hidden, f"{transform}dense/", config.masked_lm_act)
        hidden = self._norm(hidden, f"{transform}LayerNorm/")
        name = f"{config.scope}/embeddings/word_embeddings"
        table = graph("Transpose", graph.table(name, self._folder.read(name)), perm=[1, 0])
        bias = self._constant(f"{scope}output_bias")
        return graph("Add", graph("MatMul", hidden, table), bias)

    def _vectors(self, hidden: str, inputs: Tensors, encoded: Tensors) -> str:
        """Returns the texts' vectors; see `pooling.text_vectors`."""
        graph, settings = self._graph, self._folder.vectors
        mask, axis = graph("Cast", inputs["input_mask"], to=FLOAT), np.array([1])

        def mean(weights: str, power: float = 1.0) -> str:
            total = graph("MatMul", graph("Unsqueeze", weights, axis), hidden)
            count = graph("Max", graph("ReduceSum", weights, axis), np.float32(1e-9))
            count = count if power == 1 else graph("Pow", count, np.float32(power))
            return graph("Div", graph("Squeeze", total, axis), count)

        def by_position() -> str:
            length = graph("Squeeze", _length(graph, inputs))
            positions = graph("Range", np.int64(1), graph("Add", length, np.int64(1)), np.int64(1))
            return mean(graph("Mul", mask, graph("Cast", positions, to=FLOAT)))

        def last() -> str:
            number = graph("ReduceSum", graph("Cast", inputs["input_mask"], to=INT64), axis)
            return graph("GatherND", hidden, graph("Sub", number, np.int64(1)), batch_dims=1)

        def greatest() -> str:
            tokens = graph("Cast", graph("Unsqueeze", mask, np.array([2])), to=BOOL)
            kept = graph("Where", tokens, hidden, np.float32(-np.inf))
            return graph("ReduceMax", kept, axes=[1], keepdims=0)

        make = {
            "pooled": lambda: encoded["pooled_output"],
            "cls": lambda: graph("Gather", hidden, np.int64(0), axis=1),
            "lasttoken": last,
            "mean": lambda: mean(mask),
            "mean_sqrt_len_tokens": lambda: mean(mask, 0.5),
            "weightedmean": by_position,
            "max": greatest,
        }
        vectors = graph("Concat", *(make[pooling]() for pooling in settings.poolings), axis=-1)
        if settings.normalize:
            vectors = graph("Div", vectors, graph("ReduceL2", vectors, axes=[-1]))
        if settings.truncate_dim:
            end = np.array([settings.truncate_dim])
            vectors = graph("Slice", vectors, np.array([0]), end, np.array([-1]))
        return vectors

    def _constant(self, name: str) -> str:
        return self._graph.constant(name, self._folder.read(name))


def calibrated_ranges(folder: ModelFolder) -> Ranges:
    """Returns the ranges for an `Int8Graph`, from texts of random words."""
    graph, texts = RangesGraph(), _random_texts(folder)
    inputs = {name: graph.input(name, np.int32, ["batch", "length"]) for name in texts}
    OnnxModel(graph, folder).encoded(inputs)
    found: dict[str, tuple[float, float]] = {}
    for name, value in onnx_runner(graph.model().SerializeToString())(texts).items():
        matrix = name.partition("|")[2]
        least, greatest = found.get(matrix, (0.0, 0.0))
        found[matrix] = min(least, float(value)), max(greatest, float(value))
    return found


def _random_texts(folder: ModelFolder) -> dict[str, np.ndarray]:
    """Returns a batch of pairs of texts of random words, without padding."""
    tokenizer, generator = folder.tokenizer, np.random.default_rng(0)
    words = [i for token, i in tokenizer.vocab.items() if token.isalpha()]
    words = np.array(words or [*tokenizer.vocab.values()])
    length = min(_LENGTH, folder.max_seq_length)
    size = _ROWS, max(0, length - tokenizer.layout.num_special(True))
    # By Zipf's law a word's frequency falls with its rank. BERT's vocabularies begin with single
    # characters, so two thirds of these words are characters. int8 would not be more accurate on
    # MRPC without them.
    ranks = np.floor(len(words) ** generator.random(size)).astype(int) - 1
    rows = [np.split(ids, [len(ids) // 2]) for ids in words[ranks]]
    layout = tokenizer.layout
    packed = [sequences.pack_pair(a.tolist(), b.tolist(), length, layout) for a, b in rows]
    return {name: np.array([row[name] for row in packed], np.int32) for name in INPUTS}
