"""ONNX graphs with matrices of 8-bit integers.

Each column of a matrix has a scale. The inputs of a product have one scale, fixed by calibration,
so the answer to a text does not depend on the texts beside it. The nodes are QuantizeLinear and
DequantizeLinear; runtimes fuse them with the products to integer products.
"""

from collections.abc import Mapping

import numpy as np

from bert_tf.export.onnx_graph import OnnxGraph
from bert_tf.export.onnx_model import OnnxModel
from bert_tf.export.running import onnx_runner
from bert_tf.pretrained.build import INPUTS
from bert_tf.pretrained.folder import ModelFolder
from bert_tf.text import sequences

Ranges = Mapping[str, tuple[float, float]]
_ENCODER = "/encoder/"  # other products are too small to matter
_ROWS, _LENGTH = 64, 48  # number and length of the texts for calibration
_LEAST_SCALE = 1e-12
_GREATEST = 127  # the largest int8 number of a table
# The largest int8 number of a product's matrix. Processors without VNNI add two products in 16
# bits, which hold 2 * 255 * 64:
# https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html
_SAFE = 64


class RangesGraph(OnnxGraph):
    """Has outputs for the least and the greatest number in the input of each product."""

    def product(
        self, x: str, name: str, kernel: np.ndarray, bias_name: str, bias: np.ndarray | None
    ) -> str:
        if _ENCODER in name:
            for operation in ("ReduceMin", "ReduceMax"):
                # Layers of ALBERT share a name.
                output = f"{len(self._outputs)}|{name}"
                self.output(output, self(operation, x, keepdims=0), np.float32, [])
        return super().product(x, name, kernel, bias_name, bias)


class Int8Graph(OnnxGraph):
    """Stores matrices as 8-bit integers."""

    def __init__(self, ranges: Ranges) -> None:
        super().__init__()
        self._ranges = ranges
        self._quantized: dict[str, str] = {}

    def product(
        self, x: str, name: str, kernel: np.ndarray, bias_name: str, bias: np.ndarray | None
    ) -> str:
        if name in self._ranges:
            least, greatest = self._ranges[name]
            scale = np.float32(max((greatest - least) / 255, _LEAST_SCALE))
            zero = np.uint8(round(-least / scale))
            # The query, the key and the value share an input.
            if x not in self._quantized:
                self._quantized[x] = self("QuantizeLinear", x, scale, zero)
            x = self("DequantizeLinear", self._quantized[x], scale, zero)
        return super().product(x, name, kernel, bias_name, bias)

    def matrix(self, name: str, kernel: np.ndarray) -> str:
        if name not in self._ranges:
            return super().matrix(name, kernel)
        return self._dequantized(name, kernel, 1, _SAFE)

    def rows(self, name: str, table: np.ndarray, ids: str) -> str:
        integers, scales = self._integers(name, table, 0, _GREATEST)
        found = self("Cast", self("Gather", integers, ids), to=1)
        return self("Mul", found, self("Unsqueeze", self("Gather", scales, ids), np.array([-1])))

    def table(self, name: str, table: np.ndarray) -> str:
        return self._dequantized(name, table, 0, _GREATEST)

    def _dequantized(self, name: str, matrix: np.ndarray, axis: int, greatest: int) -> str:
        integers, scales = self._integers(name, matrix, axis, greatest)
        zeros = self.constant(f"{name}:zeros", np.zeros(matrix.shape[axis], np.int8))
        return self("DequantizeLinear", integers, scales, zeros, axis=axis)

    def _integers(self, name: str, matrix: np.ndarray, axis: int, greatest: int) -> tuple[str, str]:
        """Returns int8 integers and their scales along an axis, once for layers that share it."""
        if name in self._constants:
            return name, f"{name}:scales"
        largest = np.abs(matrix).max(axis=1 - axis, keepdims=True)
        scales = np.maximum(largest / greatest, _LEAST_SCALE).astype(np.float32)
        integers = self.constant(name, np.round(matrix / scales).astype(np.int8))
        return integers, self.constant(f"{name}:scales", scales.reshape(-1))


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
    # characters, so these are two thirds of the texts. Without them int8 is no more accurate on
    # MRPC.
    ranks = np.floor(len(words) ** generator.random(size)).astype(int) - 1
    rows = [np.split(ids, [len(ids) // 2]) for ids in words[ranks]]
    layout = tokenizer.layout
    packed = [sequences.pack_pair(a.tolist(), b.tolist(), length, layout) for a, b in rows]
    return {name: np.array([row[name] for row in packed], np.int32) for name in INPUTS}
