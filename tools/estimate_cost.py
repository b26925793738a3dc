r"""Estimates the time and cost of a pre-training run on a Cloud TPU slice.

    python -m tools.estimate_cost --accelerator=v5e-8 --input_file=... --output_dir=... \
        --flagfile=flags/pretraining/uncased_base.flags

It takes the flags of run_pretraining.py, but the only file that it reads is --bert_config_file.
tpu/accelerators.txt lists the slices with their published peaks and prices, and tpu/memory.txt the
memory that the TPU's compiler plans. The estimate is not a measurement. It adds up the compiler's
cycles, from tpu/memory.txt or estimated by tools/tpu/step_time.py, and the all-reduces at the
links' published speed; at worst the matrix products reach only a fifth of the peak.

--teacher_config_file estimates run_distillation.py: a student of --bert_config_file and a teacher
of this configuration. To estimate a recipe of distillation, add
--undefok=alpha_ce,alpha_mlm,alpha_cos,student_layers --temperature=1: this tool ignores these
flags, and here --temperature is ELECTRA's, as in run_pretraining.py, and must be 1.
"""

if __name__ == "__main__" and not __package__:
    raise SystemExit("Run this from the folder above: python -m tools.estimate_cost")

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Sequence

from absl import flags

import run_pretraining
from bert_tf.errors import UserError
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.flags import command_flags
from bert_tf.runs.flags.settings import ModelSettings
from bert_tf.tasks.matrix_products import Product, distillation_products, training_products
from bert_tf.tasks.pretraining.schema import ELECTRA
from bert_tf.tasks.pretraining.training.electra_settings import ElectraSettings
from bert_tf.tasks.pretraining.training.settings import RecordBatches

from . import ROOT
from .tpu import compiler, memory, step_flags
from .tpu.step_time import StepTime, estimate_step

FLAGS = flags.FLAGS
ACCELERATORS = os.path.join(ROOT, "tpu", "accelerators.txt")
# The share of the peak that is assumed at worst. BERT-Large in 76 minutes on 1,024 v3 chips
# (https://arxiv.org/abs/1904.00962, table 1) reached 30%.
WORST_SHARE = 0.2


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
    def device(self) -> compiler.Chip:
        chip = compiler.CHIPS[compiler.GENERATIONS[self.name.partition("-")[0]]]
        return chip.divided(self.replicas // self.chips)


def read_accelerator(name: str, path: str = ACCELERATORS) -> Accelerator:
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
    products: Callable[..., list[Product]] = training_products,
    memory: Sequence[str] = (),
    cycles: Sequence[float | None] = (),
    max_hours: float | None = None,
    parts: int = 1,
) -> str:
    """Returns the estimate as text to print.

    Phases have global batch sizes. `products` returns the matrix products of a step, given the
    model and a phase. `memory` and `cycles` are the results of `memory.look_up` for each phase.
    `max_hours` is how long training runs, whatever the number of steps, for a single phase. A
    replica computes its batch in `parts` parts.
    """
    peak, counts = accelerator.chips * accelerator.tflops * 1e12, cycles or [None] * len(phases)
    of_slice = accelerator.device, accelerator.replicas, parts
    steps = [
        (phase, estimate_step(config, products(config, phase), *of_slice, count))
        for phase, count in zip(phases, counts, strict=True)
    ]
    operations = sum(phase.num_steps * step.products * peak for phase, step in steps)
    work = "floating point operations in matrix products"
    if max_hours:
        (phase,), hours = phases, [max_hours]
        number = (
            f"as many of {phase.batch_size} sequences of length {phase.max_seq_length} as the time"
            " allows, whatever --num_train_steps or --phases says"
        )
        work = f"{operations / phase.num_steps:.2g} {work} a step"
        time = (
            f"{max_hours:g} hours (--max_hours) over all starts, with compiling and saving;"
            " installing and waiting for a machine come on top"
        )
    else:
        hours = [
            sum(phase.num_steps * step.seconds(share) for phase, step in steps) / 3600
            for share in (1.0, WORST_SHARE)
        ]
        number = "; ".join(
            f"{phase.num_steps:,} of {phase.batch_size} sequences of length {phase.max_seq_length}"
            for phase in phases
        )
        number = f"{sum(phase.num_steps for phase in phases):,}: {number}"
        work = f"{operations:.2g} {work}"
        time = (
            f"{_span(hours, '.1f')} hours: by these steps, or if the products reach only"
            f" {WORST_SHARE:.0%} of the peak; installing, compiling, saving and waiting for a"
            " machine come on top"
        )
    price = accelerator.spot if spot else accelerator.on_demand
    cost = _span([value * accelerator.chips * price for value in hours], ",.2f")
    kind = "spot" if spot else "on demand"
    return "\n".join(
        [
            "An estimate, not a measurement:",
            f"  steps  {number}",
            f"  work   {work}",
            f"  slice  {accelerator.name}: {accelerator.chips} chips of {accelerator.tflops:g}"
            f" TFLOP/s at most" + (f", on {accelerator.hosts} hosts" * (accelerator.hosts > 1)),
            *(f"  memory {line}" for line in memory),
            *(line for phase, step in steps for line in _describe(phase, step, parts)),
            f"  time   {time}",
            f"  cost   {cost} US dollars at {price:g} a chip and hour, {kind} in"
            f" {accelerator.zone}; storage comes on top",
            "Prices are from tpu/accelerators.txt, which names their source. Current prices:"
            " https://cloud.google.com/tpu/pricing",
        ]
    )


def _describe(phase: RecordBatches, step: StepTime, parts: int) -> list[str]:
    """Returns a line about a phase's step, and a line if its batch is too small for the slice."""
    of_length = f"of length {phase.max_seq_length}:"
    source = "by the compiler's cycles" if step.compiled else "estimated, not compiled"
    lines = [
        f"  step   {of_length} {step.seconds() * 1e3:.3g} ms, most of it {step.bound}:"
        f" {step.computing * 1e3:.3g} to compute ({source}; its products take"
        f" {step.products * 1e3:.3g} at the peak), {step.reducing * 1e3:.3g} for all-reduces of"
        f" {step.reduced / 1e6:,.0f} MB"
    ]
    if (share := step.fixed_share) > 0.5:
        fewer = "fewer --gradient_accumulation_steps shorten it; " * (parts > 1)
        lines.append(
            f"  batch  {of_length} {phase.batch_size} sequences are few for this slice: {share:.0%}"
            " of a step (weights, optimizer, all-reduces) stays as long with a larger batch;"
            f" {fewer}it is less than half from"
            f" {math.ceil(share / (1 - share)) * phase.batch_size:,} sequences on. Such batches"
            " need another learning rate, and perhaps LAMB: docs/large-batches.md,"
            " flags/pretraining/lamb_large.flags"
        )
    return lines


def _span(values: Sequence[float], form: str) -> str:
    """Formats one value, or two as "X to Y"; two that look the same become "at least X"."""
    texts = list(dict.fromkeys(f"{value:{form}}" for value in values))
    return "at least " * (len(values) > len(texts)) + " to ".join(texts)


def main() -> None:
    # Imported late: --help and errors in flags should not wait for TensorFlow.
    from bert_tf.runs.training.trainer import device_options
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
    products: Callable[..., list[Product]]
    if teacher:
        products = functools.partial(
            distillation_products, teacher=teacher, restrict_ce_to_mask=FLAGS.restrict_ce_to_mask
        )
    else:
        check_objective(config, settings.objective)
        products = functools.partial(
            training_products,
            recompute_activations=settings.recompute_activations,
            objective=settings.objective,
            electra=settings.model_arguments,
        )
    as_compiled = memory.are_as_compiled(settings, device_options(settings, on_tpu=True))
    plans = memory.read_plans(accelerator.name) if as_compiled and not teacher else []
    generator = settings.generator_hidden_size if settings.objective == ELECTRA else 0.0
    found = [memory.look_up(plans, config, x, parts, generator) for x in settings.phases]
    run = config, settings.phases, accelerator, FLAGS.spot, products
    print(estimate(*run, *zip(*found, strict=True), hours, parts))


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
