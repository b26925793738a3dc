"""Finds the matrix products and all-reduces of a program in StableHLO, before XLA optimizes it."""

import dataclasses
import importlib
import math
import re
from typing import Any


@dataclasses.dataclass(frozen=True)
class MatrixProduct:
    """A matrix product in a program."""

    name: str  # TensorFlow's name for the operation, which includes the layer's
    operands: tuple[str, str]  # the types of both operands, such as bf16
    flops: int  # multiplications and additions per execution
    in_loop: bool  # whether it is inside a loop's body, at any depth


@dataclasses.dataclass
class Work:
    """The matrix products of a program, and the bytes of its all-reduces outside and in loops.

    The compiler joins all-reduces, but does not change their bytes.
    """

    products: list[MatrixProduct] = dataclasses.field(default_factory=list)
    reduced: int = 0
    reduced_in_loops: int = 0


def read_program(module: bytes | str) -> Work:
    """Returns the work of a program's function `main` and of the functions that it calls."""
    ir = importlib.import_module("jax.extend.mlir.ir")
    mlir = importlib.import_module("jax.interpreters.mlir")
    work = Work()

    def visit(operation: Any, in_loop: bool) -> None:
        if operation.name == "func.call":
            visit(functions[ir.FlatSymbolRefAttr(operation.attributes["callee"]).value], in_loop)
        elif operation.name in ("stablehlo.dot", "stablehlo.dot_general"):
            work.products.append(_product(operation, in_loop))
        elif operation.name == "stablehlo.convolution":
            raise ValueError(f"only `dot` is counted as a matrix product, not {operation}")
        elif operation.name == "stablehlo.all_reduce":
            size = sum(map(_size, operation.operands))
            work.reduced += 0 if in_loop else size
            work.reduced_in_loops += size if in_loop else 0
        for region in operation.regions:
            for block in region.blocks:
                for inner in block.operations:
                    visit(inner.operation, in_loop or operation.name == "stablehlo.while")

    with mlir.make_ir_context():
        parsed = ir.Module.parse(module)
        functions = {op.name.value: op.operation for op in parsed.body.operations}
        visit(functions["main"], False)
    return work


def _size(value: Any) -> int:
    bits = int(re.match(r"[a-z]+(\d+)", str(value.type.element_type))[1])
    return bits // 8 * math.prod(value.type.shape)


def _product(operation: Any, in_loop: bool) -> MatrixProduct:
    stablehlo = importlib.import_module("jax.extend.mlir.dialects.stablehlo")
    left, right = (operand.type for operand in operation.operands)
    contracted = [1]  # of stablehlo.dot, a product of two matrices
    if operation.name == "stablehlo.dot_general":
        numbers = stablehlo.DotDimensionNumbers(operation.attributes["dot_dimension_numbers"])
        contracted = numbers.lhs_contracting_dimensions
    depth = math.prod(left.shape[axis] for axis in contracted)
    name = re.search(r'"([^"]*)"', str(operation.location))
    return MatrixProduct(
        name[1] if name else operation.name,
        (str(left.element_type), str(right.element_type)),
        2 * depth * math.prod(operation.results[0].type.shape),
        in_loop,
    )
