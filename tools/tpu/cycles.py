"""Reads the compiler's estimate of cycles in the text of a compiled TPU program.

The compiler estimates the cycles of each instruction that a TensorCore computes, but not of
all-reduces, nor of copies that run beside other instructions (copy-start).
"""

import collections
import dataclasses
import re
from collections.abc import Iterable

PRODUCTS = "matrix products"
COPIES = "copies and transposes"
REST = "the rest"
# The other kinds, by TensorFlow's name of the operation; the first match is used. TPUs look up
# embeddings by products with one-hot rows.
_LOOKUPS = ("look-ups", re.compile("embeddings/MatMul|Gather|UnsortedSegmentSum|Scatter"))
_NAMED = (
    ("random bits", re.compile("StatelessRandom|random_bits")),
    ("optimizer", re.compile("optimizer/")),
    ("softmax and LayerNorm", re.compile("Softmax|LayerNorm")),
    (COPIES, re.compile("/transpose$")),
)
KINDS = (PRODUCTS, _LOOKUPS[0], *(kind for kind, _ in _NAMED), REST)

_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.-]+) \(.*\{$")
_OPCODE = re.compile(r" = .*? ([\w-]+)\(")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_FUSED = re.compile(r" fusion\(.*, calls=%([\w.-]+)")
_LOOP = re.compile(r" while\(.*, condition=%([\w.-]+), body=%([\w.-]+)")
_PRODUCT = re.compile(r" (?:convolution|dot)\(")
# Calls and loops in a name. XLA's own parts of an operation have a number after a dot.
_CALL = re.compile(r"jit\(.*\)|shard_map|tensorflow|while|body|\w*PartitionedCall|\w+\.\d+")


@dataclasses.dataclass(frozen=True)
class Instruction:
    """An instruction, most often a fusion of several operations."""

    kind: str  # one of KINDS
    name: str  # of the layer and the operation, with * for the layer's number
    cycles: int  # of all its executions in a step


def read_instructions(text: str) -> list[Instruction]:
    """Returns the instructions that have cycles, from a `jax.stages.Compiled.as_text()`.

    Instructions in a loop's body count once for each round. Instructions inside a fusion do not
    count: the fusion has their cycles.
    """
    computations, entry = _computations(text)
    if not _CYCLES.search(text) or not entry:
        raise ValueError("the compiled program's text has no estimated_cycles")

    def multiplies(line: str) -> bool:
        fused = [inner for name in _FUSED.findall(line) for inner in computations[name]]
        return bool(_PRODUCT.search(line)) or any(map(multiplies, fused))

    instructions, counted = [], set()

    def visit(name: str, times: int) -> None:
        counted.add(name)
        for line in computations[name]:
            if loop := _LOOP.search(line):
                visit(loop[2], times * _rounds(loop[1], computations[loop[1]]))
            elif cycles := _CYCLES.search(line):
                opcode, op_name = _OPCODE.search(line)[1], _OP_NAME.search(line)
                path = readable(op_name[1] if op_name else "")
                kind = kind_of(opcode, path, multiplies(line))
                label = f"copy of {path}" if opcode == "copy" else path
                instructions.append(Instruction(kind, label, times * int(cycles[1])))

    visit(entry, 1)
    fused = {name for line in text.splitlines() for name in _FUSED.findall(line)}
    for name in computations.keys() - counted - fused:
        if any(map(_CYCLES.search, computations[name])):
            raise ValueError(f"{name} has cycles, but is neither a loop's body nor a fusion")
    return instructions


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
    """Returns the lines of each computation on the TensorCore, and the name of the main one."""
    computations: dict[str, list[str]] = {}
    entry, name, lines = "", "", []
    for line in text.splitlines():
        if found := _COMPUTATION.match(line):
            name = found[2]
            lines = computations[name] = []
            entry = name if found[1] else entry
        elif line.startswith("  "):
            lines.append(line)
        elif line.startswith("}, execution_thread="):  # SparseCore's, such as TPU7x's all-reduces
            del computations[name]
    return computations, entry


def _rounds(name: str, condition: list[str]) -> int:
    """Returns how often a loop runs: its condition compares a counter with a constant."""
    text = "\n".join(condition)
    limits = re.findall(r" s32\S* constant\((\d+)\)", text)
    if len(limits) != 1 or "direction=LT" not in text:
        raise ValueError(f"the loop's condition {name} does not compare with one constant")
    return int(limits[0])


def kind_of(opcode: str, name: str, product: bool) -> str:
    """Returns the kind of an instruction, which may contain a matrix `product`."""
    if opcode in ("copy", "transpose"):
        return COPIES
    kinds = [_LOOKUPS, *([(PRODUCTS, re.compile(""))] if product else []), *_NAMED]
    return next((kind for kind, pattern in kinds if pattern.search(name)), REST)


def readable(op_name: str) -> str:
    """Returns the layer's path and the operation, without calls and TensorFlow's numbers."""
    parts: list[str] = []
    for part in op_name.split(";")[0].split("/"):
        part = "" if _CALL.fullmatch(part) else re.sub(r"(?<!layer|group)_\d+$", "", part)
        if part and part not in parts[-1:]:
            parts.append(re.sub(r"^layer_\d+$", "layer_*", part))
    gradient = "gradient_tape" in parts
    path = "/".join(part for part in parts if part != "gradient_tape")
    return ("gradient of " if gradient else "") + (path or "unnamed")


def sum_by(field: str, instructions: Iterable[Instruction]) -> dict[str, int]:
    """Returns the cycles by `kind`, or by `name` (of all layers together), the largest first."""
    sums: collections.Counter[str] = collections.Counter()
    for instruction in instructions:
        sums[getattr(instruction, field)] += instruction.cycles
    return dict(sums.most_common())
