"""Reports a compiled pre-training step's memory, its FLOPs and a lower bound on its time."""

import dataclasses

from bert_tf.model.configuration import BertConfig
from bert_tf.optimization import AdamOptions
from bert_tf.tasks.pretraining.training.phases import RecordBatches

from . import compiler, hlo_text
from .matrix_products import forward_products, training_flops

NAMES_SHOWN = 4
GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Run:
    """The settings of a training step, except for the lengths and the batch size.

    config: the model.
    options: further arguments of `PretrainingModel`.
    replicas: number of replicas that compute a step together.
    accumulation_steps: see `train_step`.
    gradient_reduction: see `train_step`.
    objective: see `PretrainingModel`.
    adam: the optimizer's numbers.
    max_sequences_per_pack: places for sequences in a row; None if records are not packed.
    teacher: the teacher's configuration; None for pre-training.
    restrict_ce_to_mask: see `DistilledPretraining`.
    """

    config: BertConfig
    options: dict[str, bool | str]
    replicas: int
    accumulation_steps: int
    gradient_reduction: str
    objective: str
    adam: AdamOptions
    max_sequences_per_pack: int | None = None
    teacher: BertConfig | None = None
    restrict_ce_to_mask: bool = False


@dataclasses.dataclass(frozen=True)
class Program:
    """The training step of one replica in HLO, before XLA's optimizations.

    hlo: a serialized HloModuleProto.
    matrix_products: the matrix products in it.
    """

    hlo: bytes
    matrix_products: list[hlo_text.MatrixProduct]


def program_flops(program: Program, accumulation_steps: int) -> int:
    """Returns the floating point operations in a program's matrix products.

    Only one loop has matrix products: the loop of `bert_tf.engine.steps` over a batch's parts.
    """
    return sum(
        product.flops * (accumulation_steps if product.in_loop else 1)
        for product in program.matrix_products
    )


def model_flops(run: Run, phase: RecordBatches) -> int:
    """Returns the FLOPs of a step's matrix products by calculation, a teacher's included."""
    if run.teacher is None:
        return training_flops(run.config, phase, objective=run.objective)
    if not run.restrict_ce_to_mask:  # logits of all tokens
        phase = dataclasses.replace(phase, max_predictions_per_seq=phase.max_seq_length)
    of_teacher = sum(x.flops for x in forward_products(run.teacher, phase, run.objective))
    return training_flops(run.config, phase, objective=run.objective) + of_teacher


def float32_products(program: Program) -> list[str]:
    """Returns the names of the matrix products that have a float32 operand, each name once."""
    names = [p.name for p in program.matrix_products if "f32" in p.operands]
    return list(dict.fromkeys(names))


@dataclasses.dataclass(frozen=True)
class Bound:
    """A lower bound on the time of a step.

    compute: seconds for the matrix products at the device's peak.
    memory: seconds to read the arguments and write the outputs once.
    """

    compute: float
    memory: float

    @property
    def seconds(self) -> float:
        """The longer of the two times, because both happen at once."""
        return max(self.compute, self.memory)


def lower_bound(executable: compiler.Executable, flops: int, device: compiler.Chip) -> Bound:
    """Returns the lower bound on the time of a step.

    The compiler's own "bytes accessed" is not a lower bound, because it includes on-chip memory.
    """
    moved = executable.arguments + executable.outputs
    return Bound(flops / device.flops, moved / device.bandwidth)


def report(
    run: Run,
    phase: RecordBatches,
    program: Program,
    executable: compiler.Executable,
    device: compiler.Chip,
) -> list[str]:
    """Returns the lines to print about an executable.

    Args:
        run: the settings.
        phase: gives the lengths; `phase.batch_size` is the batch size of one replica.
        program: the step before compilation.
        executable: the step after compilation.
        device: the peaks of one replica's device.
    """
    on_paper = model_flops(run, phase)
    flops = program_flops(program, run.accumulation_steps)
    bound = lower_bound(executable, flops, device)
    speed = phase.batch_size * run.replicas / bound.seconds
    utilisation = on_paper / (bound.seconds * device.flops)
    sizes = [
        f"{name} {getattr(executable, name) / GIB:.3f}"
        for name in ("arguments", "temporaries", "code")
    ]
    examples = "sequences" if run.max_sequences_per_pack is None else "rows"
    names = float32_products(program)
    named = names[:NAMES_SHOWN] + ["..."] * (len(names) > NAMES_SHOWN)
    outside, in_loops = hlo_text.all_reduces(executable.hlo)
    # The sum of the sizes can exceed the layout that the compiler made fit, so it is not certain
    # near the limit.
    fits = "fits" if executable.hbm <= device.memory * GIB else "compiles, but may not fit"
    return [
        f"{fits}: {executable.hbm / GIB:.2f} of {device.memory:.2f} GiB a replica"
        f" ({', '.join(sizes)})",
        f"TFLOP a replica: {flops / 1e12:.4g} in matrix products, of which the model's"
        f" {on_paper / 1e12:.4g}; {executable.flops / 1e12:.4g} of every kind, counting loops once",
        f"float32 matrix products: {len(names)}" + (f" ({', '.join(named)})" if names else ""),
        f"all-reduces: {outside}, and {in_loops} in loops",
        f"a step takes at least {bound.seconds * 1e3:.3g} ms: {bound.compute * 1e3:.3g} for matrix"
        f" products, {bound.memory * 1e3:.3g} to read arguments and write outputs",
        f"at most {speed:,.0f} {examples}/s, {utilisation:.1%} MFU",
    ]
