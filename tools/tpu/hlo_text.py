"""Parses XLA's HLO text and finds the matrix products and all-reduces of a program."""

import dataclasses
import math
import re
from collections.abc import Iterator


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


def matrix_products(hlo: str) -> list[MatrixProduct]:
    """Returns the matrix products of a program before XLA's optimizations."""
    found = []
    for instruction in instructions(hlo):
        if instruction.opcode == "convolution":
            raise ValueError(
                f"only `dot` is counted as a matrix product; the program has {instruction}"
            )
        if instruction.opcode == "dot":
            (left, sizes), (right, _) = _TYPE.findall(instruction.rest.partition(")")[0])
            left_shape = [int(size) for size in sizes.split(",")]
            contracted = re.search(r"lhs_contracting_dims=\{([\d,]+)\}", instruction.rest).group(1)
            depth = math.prod(left_shape[int(axis)] for axis in contracted.split(","))
            result = [int(size) for size in _TYPE.match(instruction.result).group(2).split(",")]
            name = re.search(r'op_name="([^"]*)"', instruction.rest)
            label, flops = name[1] if name else instruction.name, 2 * depth * math.prod(result)
            found.append(MatrixProduct(label, (left, right), flops, instruction.in_loop))
    return found


def all_reduces(hlo: str) -> tuple[int, int]:
    """Returns how many all-reduces an optimized program has outside loops and inside loops."""
    found = [i for i in instructions(hlo) if i.opcode in ("all-reduce", "all-reduce-start")]
    in_loops = sum(instruction.in_loop for instruction in found)
    return len(found) - in_loops, in_loops
