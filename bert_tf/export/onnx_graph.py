"""Writes the nodes and constants of an ONNX graph.

All operations are standard, so every runtime has them. They form the patterns that ONNX Runtime
fuses; it recognizes these patterns only up to opset 18.

In an `Int8Graph` matrices are 8-bit integers with a scale for each column. The inputs of a product
have one scale, fixed by calibration, so an answer does not depend on the rest of the batch. The
nodes are QuantizeLinear and DequantizeLinear; runtimes fuse them with the products.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.export.running import import_package

# The first opset with LayerNormalization, and the format version of the same release, ONNX 1.12.
OPSET, IR_VERSION = 17, 8


class OnnxGraph:
    """The nodes and constants of a graph so far. Tensors are referred to by name.

    graph = OnnxGraph()
    total = graph("Add", "x", np.float32(1))
    """

    def __init__(self) -> None:
        self._onnx = import_package("onnx", "onnx", "--format=onnx")
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._constants: dict[str, Any] = {}

    def __call__(
        self, operation: str, *inputs: Any, name: str = "", num_outputs: int = 1, **attributes: Any
    ) -> Any:
        """Adds a node; returns the name of its output, or `num_outputs` names."""
        # Inputs are names or constants: numbers and arrays. Runtimes show the node's `name` in
        # errors.
        name = name or f"{operation}_{len(self._nodes)}"
        outputs = [f"{name}:{i}" for i in range(num_outputs)]
        names = [x if isinstance(x, str) else self._number(x) for x in inputs]
        make = self._onnx.helper.make_node
        self._nodes.append(make(operation, names, outputs, name=name, **attributes))
        return outputs if num_outputs > 1 else outputs[0]

    def constant(self, name: str, value: Any) -> str:
        """Adds a constant, unless there is one with this name, and returns the name."""
        value = np.asarray(value)
        if name not in self._constants:
            array = np.ascontiguousarray(value).reshape(value.shape)
            self._constants[name] = self._onnx.numpy_helper.from_array(array, name)
        return name

    def product(
        self, x: str, name: str, kernel: np.ndarray, bias_name: str, bias: np.ndarray | None
    ) -> str:
        """Returns x @ kernel + bias, float32 [..., M], for float32 [..., K] and [K, M]."""
        product = self("MatMul", x, self.matrix(name, kernel))
        return product if bias is None else self("Add", product, self.constant(bias_name, bias))

    def matrix(self, name: str, kernel: np.ndarray) -> str:
        """Adds the kernel of a `product`, float32 [K, M]; returns its name."""
        return self.constant(name, kernel)

    def rows(self, name: str, table: np.ndarray, ids: str) -> str:
        """Returns the rows of a table, float32 [V, E], at ids, int32 [...]: float32 [..., E]."""
        return self("Gather", self.constant(name, table), ids)

    def table(self, name: str, table: np.ndarray) -> str:
        """Returns the whole table of `rows`, float32 [V, E], for a product."""
        return self.constant(name, table)

    def gelu(self, x: str, approximate: bool) -> str:
        """Returns GELU of a tensor, with tanh if `approximate`, else with the error function."""
        if not approximate:
            erf = self("Erf", self("Div", x, np.float32(math.sqrt(2))))
            return self("Mul", self("Mul", x, self("Add", erf, np.float32(1))), np.float32(0.5))
        # The order of operations that ONNX Runtime and OpenVINO know as GELU.
        inner = self("Mul", self("Mul", x, np.float32(0.044715)), x)
        scaled = self("Mul", x, np.float32(math.sqrt(2 / math.pi)))
        inner = self("Mul", self("Add", inner, np.float32(1)), scaled)
        outer = self("Add", self("Tanh", inner), np.float32(1))
        return self("Mul", self("Mul", x, np.float32(0.5)), outer)

    def _number(self, value: Any) -> str:
        """Adds a constant that needs no name; whole numbers are int64."""
        value = np.asarray(value)
        return self.constant(f"{value.dtype}:{value.tolist()}", value)

    def input(self, name: str, dtype: Any, shape: Sequence[int | str]) -> str:
        """Adds an input of the graph, and returns its name. A str is an axis of any size."""
        self._inputs.append(self._info(name, dtype, shape))
        return name

    def output(self, name: str, tensor: str, dtype: Any, shape: Sequence[int | str]) -> None:
        self._outputs.append(self._info(name, dtype, shape))
        make = self._onnx.helper.make_node
        self._nodes.append(make("Identity", [tensor], [name], name=f"output_{name}"))

    def _info(self, name: str, dtype: Any, shape: Sequence[int | str]) -> Any:
        helper = self._onnx.helper
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return helper.make_tensor_value_info(name, element, shape)

    def model(self) -> Any:
        """Returns the checked `onnx.ModelProto`."""
        helper = self._onnx.helper
        constants = [*self._constants.values()]
        graph = helper.make_graph(self._nodes, "bert", self._inputs, self._outputs, constants)
        opsets = [helper.make_opsetid("", OPSET)]
        options = {"opset_imports": opsets, "ir_version": IR_VERSION, "producer_name": "bert-tf"}
        model = helper.make_model(graph, **options)
        self._onnx.checker.check_model(model, full_check=True)
        return model


Ranges = Mapping[str, tuple[float, float]]
_ENCODER = "/encoder/"  # other products are too small to matter
_LEAST_SCALE = 1e-12
_GREATEST = 127  # the largest int8 number of a table
# The largest int8 number of a product's matrix. Processors without VNNI add two products in 16
# bits, which hold 2 * 255 * 64:
# https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html
_SAFE = 64


class RangesGraph(OnnxGraph):
    """A graph that also outputs the least and the greatest input of each product in the encoder."""

    def product(
        self, x: str, name: str, kernel: np.ndarray, bias_name: str, bias: np.ndarray | None
    ) -> str:
        if _ENCODER in name:
            for operation in ("ReduceMin", "ReduceMax"):
                # ALBERT's layers share a name, so a number tells their outputs apart.
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
        """Returns a matrix's int8 integers and scales along an axis, stored once for each name."""
        if name in self._constants:
            return name, f"{name}:scales"
        largest = np.abs(matrix).max(axis=1 - axis, keepdims=True)
        scales = np.maximum(largest / greatest, _LEAST_SCALE).astype(np.float32)
        integers = self.constant(name, np.round(matrix / scales).astype(np.int8))
        return integers, self.constant(f"{name}:scales", scales.reshape(-1))
