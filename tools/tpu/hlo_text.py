"""Reads programs of XLA: finds the matrix products and all-reduces of a program."""

import dataclasses
import importlib
import math
import re
from collections.abc import Iterator
from typing import Any


@dataclasses.dataclass(frozen=True)
class Instruction:
    """A line of HLO text: `%name = result opcode(operands), attributes`.

    rest: the text after the opening parenthesis.
    in_loop: whether it is inside a loop's body, at any depth.
    """

    name: str
    result: str
    opcode: str
    rest: str
    in_loop: bool


@dataclasses.dataclass(frozen=True)
class MatrixProduct:
    """A matrix product in a program.

    name: TensorFlow's name for the operation, which has the layer's name in it.
    operands: the types of both operands, such as bf16.
    flops: multiplications and additions per execution.
    """

    name: str
    operands: tuple[str, str]
    flops: int
    in_loop: bool


_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
_CALLED = re.compile(r"(?<!\w)(\w++)=(?:\{([^}]*)\}|%?([\w.\-]+))")
_CALLS = {"calls", "to_apply", "body", "condition", "branch_computations", "called_computations"}
_TYPE = re.compile(r"(?<!\w)(\w++)\[([\d,]*)\]")


def instructions(hlo: str) -> Iterator[Instruction]:
    """Yields the instructions of the entry computation and of every computation it calls."""
    bodies: dict[str, list[tuple[str, ...]]] = {}
    entry = current = ""
    for line in hlo.splitlines():
        if header := _HEADER.match(line):
            current = header.group(2)
            bodies[current] = []
            entry = current if header.group(1) else entry
        elif found := _INSTRUCTION.match(line):
            bodies[current].append(found.groups())
    if not entry:
        raise ValueError("HLO text must have a computation marked ENTRY; this text has none")
    todo, seen = [(entry, False)], set()
    while todo:
        computation, in_loop = todo.pop()
        if (computation, in_loop) in seen:
            continue
        seen.add((computation, in_loop))
        for name, result, opcode, rest in bodies[computation]:
            yield Instruction(name, result, opcode, rest, in_loop)
            for attribute, several, one in _CALLED.findall(rest):
                if attribute in _CALLS:
                    called = [part.strip(" %") for part in (several or one).split(",")]
                    inside = in_loop or opcode == "while"
                    todo += [(target, inside) for target in called if target in bodies]


def matrix_products(module: bytes | str) -> list[MatrixProduct]:
    """Returns the matrix products of a program in StableHLO, before XLA's optimizations."""
    ir = importlib.import_module("jax.extend.mlir.ir")
    mlir = importlib.import_module("jax.interpreters.mlir")
    found = []

    def visit(operation: Any, in_loop: bool) -> None:
        if operation.name == "func.call":
            visit(functions[ir.FlatSymbolRefAttr(operation.attributes["callee"]).value], in_loop)
        elif operation.name in ("stablehlo.dot", "stablehlo.dot_general"):
            found.append(_product(operation, in_loop))
        elif operation.name == "stablehlo.convolution":
            raise ValueError(f"only `dot` is counted as a matrix product, not {operation}")
        for region in operation.regions:
            for block in region.blocks:
                for inner in block.operations:
                    visit(inner.operation, in_loop or operation.name == "stablehlo.while")

    with mlir.make_ir_context():
        parsed = ir.Module.parse(module)
        functions = {op.name.value: op.operation for op in parsed.body.operations}
        visit(functions["main"], False)
    return found


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


def all_reduces(hlo: str) -> tuple[int, int, int]:
    """Returns an optimized program's all-reduces outside loops, those inside, and their bytes.

    The bytes are of one execution outside loops.
    """
    found = [i for i in instructions(hlo) if i.opcode in ("all-reduce", "all-reduce-start")]
    in_loops = sum(instruction.in_loop for instruction in found)
    size = sum(
        int(re.search(r"\d+$", kind)[0]) // 8 * math.prod(map(int, filter(None, dims.split(","))))
        for instruction in found
        if not instruction.in_loop
        for kind, dims in _TYPE.findall(instruction.result)
    )
    return len(found) - in_loops, in_loops, size
