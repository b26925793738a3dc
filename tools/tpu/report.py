"""Reports a compiled pre-training step's memory, FLOPs, cycles, and two estimates of its time.

Matrix products and all-reduces are counted in StableHLO, before XLA optimizes the program.
"""

import dataclasses
import importlib
import math
import re
from typing import TYPE_CHECKING, Any

from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.matrix_products import distillation_flops, training_flops
from bert_tf.tasks.pretraining.training.settings import RecordBatches

from . import compiler, cycles


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


if TYPE_CHECKING:
    from bert_tf.optimization import AdamOptions

NAMES_SHOWN = 4
LARGEST_SHOWN = 5
GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Run:
    """The settings of a training step, except for the lengths and the batch size."""

    config: BertConfig
    options: dict[str, bool | str]  # arguments of `PretrainingModel`
    replicas: int  # number of replicas that compute a step together
    accumulation_steps: int  # see `train_step`
    gradient_reduction: str
    objective: str  # see `PretrainingModel`
    adam: "AdamOptions"
    max_sequences_per_pack: int | None = None  # None if records are not packed
    teacher: BertConfig | None = None  # None for pre-training
    restrict_ce_to_mask: bool = False  # see `DistilledPretraining`
    # arguments of `ElectraPretrainingModel`
    electra: dict[str, Any] = dataclasses.field(default_factory=dict)


def program_flops(products: list[MatrixProduct], accumulation_steps: int) -> int:
    """Returns the floating point operations in the matrix products of a replica's step."""
    # Only one loop has matrix products: the loop of `bert_tf.engine.steps` over a batch's parts.
    return sum(
        product.flops * (accumulation_steps if product.in_loop else 1) for product in products
    )


def model_flops(run: Run, phase: RecordBatches) -> int:
    """Returns the calculated FLOPs of a step's matrix products, including a teacher's."""
    if run.teacher is None:
        return training_flops(run.config, phase, False, run.objective, run.electra)
    return distillation_flops(run.config, phase, run.teacher, run.restrict_ce_to_mask)


def float32_products(products: list[MatrixProduct]) -> list[str]:
    """Returns the names of the matrix products with a float32 operand, each name once."""
    names = [p.name for p in products if "f32" in p.operands]
    return list(dict.fromkeys(names))


def report(
    run: Run,
    phase: RecordBatches,
    work: Work,
    executable: compiler.Executable,
    device: compiler.Chip,
) -> list[str]:
    """Returns the lines to print about the step, compiled for a replica's device."""
    # `phase.batch_size` is the batch size of one replica.
    on_paper = model_flops(run, phase)
    flops = program_flops(work.products, run.accumulation_steps)
    # At the peaks: the matrix products; reading the arguments and writing the outputs once; the
    # all-reduces. They can overlap, so the longest is the bound. The compiler's "bytes accessed"
    # includes on-chip memory, so it is not a bound.
    compute = flops / device.flops
    memory = (executable.arguments + executable.outputs) / device.bandwidth
    links = device.all_reduce_seconds(work.reduced, run.replicas)
    seconds = max(compute, memory, links)
    names = ("arguments", "temporaries", "code")
    sizes = [f"{name} {getattr(executable, name) / GIB:.3f}" for name in names]
    names = float32_products(work.products)
    named = names[:NAMES_SHOWN] + ["..."] * (len(names) > NAMES_SHOWN)
    # The compiler can make a program fit whose sum exceeds the memory, so the limit is not sharp.
    fits = "fits" if executable.hbm <= device.memory * GIB else "compiles, but may not fit"
    return [
        f"{fits}: {executable.hbm / GIB:.2f} of {device.memory:.2f} GiB a replica"
        f" ({', '.join(sizes)})",
        f"TFLOP a replica: {flops / 1e12:.4g} in matrix products, of which the model's"
        f" {on_paper / 1e12:.4g}; {executable.flops / 1e12:.4g} of every kind, counting loops once",
        f"float32 matrix products: {len(names)}" + (f" ({', '.join(named)})" if names else ""),
        f"all-reduces: {work.reduced / 1e6:.4g} MB; {work.reduced_in_loops / 1e6:.4g} MB in loops",
        f"a step takes at least {seconds * 1e3:.3g} ms: {compute * 1e3:.3g} for matrix products,"
        f" {memory * 1e3:.3g} to read arguments and write outputs,"
        f" {links * 1e3:.3g} for all-reduces",
        f"at most {_speed(run, phase, device, seconds)}",
        *_cycle_lines(run, phase, executable, device, links),
    ]


def _speed(run: Run, phase: RecordBatches, device: compiler.Chip, seconds: float) -> str:
    examples = "sequences" if run.max_sequences_per_pack is None else "rows"
    speed = phase.batch_size * run.replicas / seconds
    utilisation = model_flops(run, phase) / (seconds * device.flops)
    return f"{speed:,.0f} {examples}/s, {utilisation:.1%} MFU"


def _cycle_lines(
    run: Run,
    phase: RecordBatches,
    executable: compiler.Executable,
    device: compiler.Chip,
    links: float,
) -> list[str]:
    """Returns the lines about the compiler's cycles; `links` is the time of the all-reduces."""
    try:
        instructions = cycles.read_instructions(executable.text)
    except ValueError as error:
        return [f"the compiler's cycles are not known: {error}"]
    total = sum(instruction.cycles for instruction in instructions)
    kinds = cycles.sum_by("kind", instructions).items()
    largest = list(cycles.sum_by("name", instructions).items())[:LARGEST_SHOWN]
    # The all-reduces wait for the gradients, and the update waits for them.
    seconds = total / device.clock + links
    return [
        f"{total / 1e6:.4g} million cycles, as the compiler estimates them:"
        f" {', '.join(f'{count / total:.1%} {kind}' for kind, count in kinds)}",
        *(f"  {count / total:.1%} {name}" for name, count in largest),
        f"by cycles a step takes {seconds * 1e3:.3g} ms: {total / device.clock * 1e3:.3g} at"
        f" {device.clock / 1e9:g} GHz, {links * 1e3:.3g} for all-reduces at the links' speed",
        f"by cycles {_speed(run, phase, device, seconds)}",
    ]
