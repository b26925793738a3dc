r"""Estimates the time and cost of a pre-training run on a Cloud TPU slice.

    python -m tools.estimate_cost --accelerator=v5e-8 --input_file=... --output_dir=... \
        --flagfile=flags/pretraining/uncased_base.flags

It takes the flags of run_pretraining.py, but the only file that it reads is --bert_config_file.
tpu/accelerators.txt lists the slices with their published peaks and prices, and tpu/memory.txt the
memory that the TPU's compiler plans. The estimate is not a measurement: it counts the model's
floating point operations and assumes that they reach a share of the peak. Where tpu/memory.txt has
the cycles of a step, the step takes at least their time.

--teacher_config_file estimates run_distillation.py: a student of --bert_config_file and a teacher
of this configuration. To estimate a recipe of distillation, add
--undefok=alpha_ce,alpha_mlm,alpha_cos,student_layers --temperature=1: this tool ignores these
flags, and here --temperature is ELECTRA's, as in run_pretraining.py, and must be 1.
"""

if __name__ == "__main__" and not __package__:
    raise SystemExit("Run this as a module, from the folder above: python -m tools.estimate_cost")

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence

from absl import flags

import run_pretraining
from bert_tf.errors import UserError
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.flags import command_flags
from bert_tf.runs.flags.settings import ModelSettings
from bert_tf.tasks.matrix_products import distillation_flops, training_flops
from bert_tf.tasks.pretraining.schema import ELECTRA
from bert_tf.tasks.pretraining.training.electra_settings import ElectraSettings
from bert_tf.tasks.pretraining.training.settings import RecordBatches

from . import ROOT
from .tpu import compiler, memory, step_flags

FLAGS = flags.FLAGS
ACCELERATORS = os.path.join(ROOT, "tpu", "accelerators.txt")
# The assumed share of the peak, best and worst. BERT-Large in 76 minutes on 1,024 v3 chips
# (https://arxiv.org/abs/1904.00962, table 1) reached 30%.
UTILISATION = (0.5, 0.2)


@dataclasses.dataclass(frozen=True)
class Accelerator:
    """A TPU slice, one line of tpu/accelerators.txt. That file explains the columns."""

    name: str
    hosts: int
    chips: int
    tflops: float
    spot: float
    on_demand: float
    zone: str

    @property
    def replicas(self) -> int:
        """A replica for each chip; v2 and v3 have one for each of a chip's two cores."""
        return self.chips * (2 if self.name.startswith(("v2-", "v3-")) else 1)

    @property
    def clock(self) -> float:
        """Cycles per second of a TensorCore."""
        return compiler.CHIPS[compiler.GENERATIONS[self.name.partition("-")[0]]].clock


def read_accelerator(name: str, path: str = ACCELERATORS) -> Accelerator:
    """Returns the TPU slice of this name."""
    rows = {row[0]: row for row in memory.read_table(path)}
    if name not in rows:
        raise UserError(
            f"--accelerator must be one of {', '.join(rows)} (tpu/accelerators.txt); received"
            f" {name}"
        )
    _, _, _, hosts, _, chips, *prices, zone = rows[name]
    return Accelerator(name, int(hosts), int(chips), *map(float, prices), zone)


def estimate(
    config: BertConfig,
    phases: list[RecordBatches],
    accelerator: Accelerator,
    spot: bool,
    flops: Callable[..., int] = training_flops,
    memory: Sequence[str] = (),
    max_hours: float | None = None,
    cycles: Sequence[float | None] = (),
) -> str:
    """Returns the estimate as text to print.

    Args:
        config: the model.
        phases: have global batch sizes.
        accelerator: the slice.
        spot: use the price of a spot machine.
        flops: returns the operations of a step, given the model and a phase.
        memory: the result of `memory.describe` for each phase.
        max_hours: how long training runs, whatever the number of steps; for a single phase.
        cycles: the result of `memory.find_cycles` for each phase. A step takes at least their time.
    """
    # Embedding lookups by one-hot products, a sixth more work for BERT-Base, are not counted. The
    # assumed share of the peak allows for them.
    operations = sum(phase.num_steps * flops(config, phase) for phase in phases)
    products = "floating point operations in matrix products"
    if max_hours:
        (phase,) = phases
        hours = [max_hours]
        steps = (
            f"as many of {phase.batch_size} sequences of length {phase.max_seq_length} as the time"
            " allows, whatever --num_train_steps or --phases says"
        )
        work = f"{operations / phase.num_steps:.2g} {products} a step"
        time = (
            f"{max_hours:g} hours (--max_hours) over all starts, with compiling and saving;"
            " installing and waiting for a machine come on top"
        )
    else:
        peak = accelerator.chips * accelerator.tflops * 1e12
        counts = cycles or [None] * len(phases)
        least = [count / accelerator.clock if count else 0.0 for count in counts]
        hours = [
            sum(
                phase.num_steps * max(flops(config, phase) / (peak * share), seconds)
                for phase, seconds in zip(phases, least, strict=True)
            )
            / 3600
            for share in UTILISATION
        ]
        known = ", ".join(
            f"{seconds * 1e3:.3g} ms at length {phase.max_seq_length}"
            for phase, seconds in zip(phases, least, strict=True)
            if seconds
        )
        bound = f" and no step is faster than its cycles without all-reduces ({known})"
        steps = "; ".join(
            f"{phase.num_steps:,} of {phase.batch_size} sequences of length {phase.max_seq_length}"
            for phase in phases
        )
        steps = f"{sum(phase.num_steps for phase in phases):,}: {steps}"
        work = f"{operations:.2g} {products}"
        time = (
            f"{_span(hours, '.1f')} hours, if {UTILISATION[0]:.0%} to"
            f" {UTILISATION[1]:.0%} of the peak is reached{bound * bool(known)};"
            " installing, compiling, saving and waiting for a machine come on top"
        )
    price = accelerator.spot if spot else accelerator.on_demand
    cost = _span([value * accelerator.chips * price for value in hours], ",.2f")
    kind = "spot" if spot else "on demand"
    return "\n".join(
        [
            "An estimate, not a measurement:",
            f"  steps  {steps}",
            f"  work   {work}",
            f"  slice  {accelerator.name}: {accelerator.chips} chips of {accelerator.tflops:g}"
            f" TFLOP/s at most" + (f", on {accelerator.hosts} hosts" * (accelerator.hosts > 1)),
            *(f"  memory {line}" for line in memory),
            f"  time   {time}",
            f"  cost   {cost} US dollars at {price:g} a chip and hour, {kind} in"
            f" {accelerator.zone}; storage comes on top",
            "Prices are from tpu/accelerators.txt, which names their source. Current prices:"
            " https://cloud.google.com/tpu/pricing",
        ]
    )


def _span(values: Sequence[float], form: str) -> str:
    """Returns one value as text, or two with " to ", or "at least" if cycles made both the same."""
    texts = list(dict.fromkeys(f"{value:{form}}" for value in values))
    return "at least " * (len(values) > len(texts)) + " to ".join(texts)


def main() -> None:
    # Here, because they import TensorFlow, and --help and mistakes need not wait for that.
    from bert_tf.runs.training.options import device_options
    from bert_tf.tasks.pretraining.training.model import check_objective

    accelerator = read_accelerator(FLAGS.accelerator)
    teacher = step_flags.read_teacher()
    config = command_flags.model_from_flags(ElectraSettings, ModelSettings)
    settings = command_flags.settings_from_flags(ElectraSettings)
    if not settings.do_train:
        raise UserError("add --do_train: only training is estimated, and --do_train is false")
    parts, hours = settings.gradient_accumulation_steps, settings.max_hours
    for phase in settings.phases:
        source = f"--accelerator={accelerator.name}"
        step_flags.check_phase(config, phase, accelerator.replicas, source, parts)
    flops: Callable[..., int]
    if teacher:
        flops = functools.partial(
            distillation_flops, teacher=teacher, restrict_ce_to_mask=FLAGS.restrict_ce_to_mask
        )
    else:
        check_objective(config, settings.objective)
        flops = functools.partial(
            training_flops,
            recompute_activations=settings.recompute_activations,
            objective=settings.objective,
            electra=settings.model_arguments,
        )
    as_compiled = memory.are_as_compiled(settings, device_options(settings, on_tpu=True))
    plans = memory.read_plans(accelerator.name) if as_compiled and not teacher else []
    generator = settings.generator_hidden_size if settings.objective == ELECTRA else 0.0
    lines, cycles = (
        [look_up(plans, config, phase, parts, generator) for phase in settings.phases]
        for look_up in (memory.describe, memory.find_cycles)
    )
    print(estimate(config, settings.phases, accelerator, FLAGS.spot, flops, lines, hours, cycles))


if __name__ == "__main__":
    flags.adopt_module_key_flags(run_pretraining)
    flags.DEFINE_string(
        "accelerator",
        None,
        "The TPU slice: a name in tpu/accelerators.txt, such as v5e-8.",
        required=True,
    )
    step_flags.define_teacher("Estimate")
    flags.DEFINE_bool("spot", True, "Whether to use the price of spot machines.")
    command_flags.run_program(main)
