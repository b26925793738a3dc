r"""Compiles pre-training steps for a TPU on a machine without one: do they fit, how fast are they?

    python -m tools.compile_for_tpu --topology=v5e:2x4 \
        --bert_config_file=flags/models/uncased_L-12_H-768_A-12/bert_config.json \
        --phases=128:900000:256:20,512:100000:256:77

It takes the flags of run_pretraining.py, so --flagfile=RECIPE with --topology tries a recipe. The
TPU's own compiler, libtpu, compiles the step that --tpu=pjrt would run in each phase. Install it in
a separate environment: pip install -e ".[compile]". Compiling BERT-Base takes minutes.

The report has two times of a step: a lower bound, and an estimate from the compiler's cycles, which
docs/measuring.md explains.

--max_sequences_per_pack compiles the step for packed records, with room for this many sequences in
a row. The batch size then counts rows.

--teacher_config_file compiles the step of run_distillation.py: a student of --bert_config_file, a
teacher of this configuration, and the default losses. To try a recipe of distillation, add
--undefok=alpha_ce,alpha_mlm,alpha_cos,student_layers --temperature=1: this tool ignores these
flags, and here --temperature is ELECTRA's, as in run_pretraining.py, and must be 1.

--topology is GENERATION:SHAPE, with the shape in chips: v3:2x2 is a v3-8, v5e:2x4 a v5litepod-8,
v6e:8x8 a v6e-64 of 16 hosts.

The batch size is global. There is one replica per device of the topology, or --num_tpu_cores.

The exit status is 0 if every phase fits, 2 if a phase does not fit, and 1 after a user's error.
"""

if __name__ == "__main__" and not __package__:
    raise SystemExit("Run this from the folder above: python -m tools.compile_for_tpu")

import dataclasses
import gc
import logging
import signal
import sys
import time
from collections.abc import Callable

from absl import flags

import run_pretraining
from bert_tf.errors import UserError
from bert_tf.runs.flags import command_flags
from bert_tf.runs.flags.settings import ModelSettings
from bert_tf.tasks.pretraining.schema import MLM
from bert_tf.tasks.pretraining.training.electra_settings import ElectraSettings
from bert_tf.tasks.pretraining.training.settings import RecordBatches

from .tpu import compiler, step_flags
from .tpu.report import Run, read_program, report

FLAGS = flags.FLAGS

# Flags that run_pretraining.py requires and this tool does not.
NOT_NEEDED = ("input_file", "output_dir", "vocab_file")
STATUS_DOES_NOT_FIT = 2
BATCH_MULTIPLE = 8  # examples; a TPU's registers have 8 rows


def largest_batch(fits: Callable[[int], bool], start: int, multiple: int) -> int:
    """Returns the largest multiple of `multiple` for which `fits` is true, or 0.

    The answer is exact to a sixteenth, because each call of `fits` is slow. The search doubles
    `start` until the batch does not fit, then bisects.
    """
    low, high = 0, -(-start // multiple)  # low fits; high is tried next
    while fits(high * multiple):
        low, high = high, 2 * high
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        if fits(middle * multiple):
            low = middle
        else:
            high = middle
    return low * multiple


def try_phase(run: Run, phase: RecordBatches, topology: compiler.Topology) -> bool:
    """Compiles a phase and prints the compiler's report; returns whether the phase fits."""
    from .tpu.lowering import lower  # imports TensorFlow

    parts = f" in {run.accumulation_steps} parts" if run.accumulation_steps > 1 else ""
    print(
        f"length {phase.max_seq_length}, {phase.max_predictions_per_seq} predictions, batch"
        f" {phase.batch_size * run.replicas}: {phase.batch_size} a replica{parts}",
        flush=True,
    )
    began = time.monotonic()
    step = lower(run, phase, topology.devices[: run.replicas])
    work, lowered = read_program(step.program.module), step.lower()
    del step
    gc.collect()  # frees the model, which is in reference cycles; the compiler needs the memory
    for number in (signal.SIGINT, signal.SIGTERM):  # Python's handlers would wait for the compiler
        signal.signal(number, signal.SIG_DFL)
    try:
        executable = compiler.compile_step(lowered)
        lines = report(run, phase, work, executable, topology.device)
    except compiler.DoesNotFit as error:
        executable, lines = None, [f"does not fit: {error}"]
    lines.append(f"compiled in {time.monotonic() - began:.0f} s")
    print("".join(f"  {line}\n" for line in lines), flush=True)
    return executable is not None


def search_phase(run: Run, phase: RecordBatches, topology: compiler.Topology) -> bool:
    """Finds and prints the largest batch of a phase that fits; returns whether any batch fits."""

    def fits(batch_size: int) -> bool:
        return try_phase(run, dataclasses.replace(phase, batch_size=batch_size), topology)

    largest = largest_batch(fits, phase.batch_size, BATCH_MULTIPLE * run.accumulation_steps)
    print(
        f"largest batch of length {phase.max_seq_length}: {largest * run.replicas},"
        f" {largest} a replica\n",
        flush=True,
    )
    return largest > 0


def main() -> None:
    # Imported late: --help and errors in flags should not wait for TensorFlow.
    from bert_tf.runs.training.trainer import adam_options, device_options
    from bert_tf.tasks.pretraining.training.model import check_objective

    logging.getLogger("jax").setLevel(logging.WARNING)
    teacher = step_flags.read_teacher()
    config = command_flags.model_from_flags(ElectraSettings, ModelSettings)
    settings = command_flags.settings_from_flags(ElectraSettings)
    objective = MLM if teacher else settings.objective
    check_objective(config, objective)
    topology = compiler.open_topology(FLAGS.topology)
    device, devices = topology.device, len(topology.devices)
    replicas = FLAGS.num_tpu_cores if FLAGS["num_tpu_cores"].present else devices
    if replicas > devices:
        raise UserError(
            f"--num_tpu_cores ({replicas}) must be at most the number of devices in"
            f" --topology={topology.name} ({devices})"
        )
    run = Run(
        config,
        device_options(settings, on_tpu=True),
        replicas,
        settings.gradient_accumulation_steps,
        settings.gradient_reduction,
        objective,
        adam_options(settings),
        FLAGS.max_sequences_per_pack,
        teacher,
        FLAGS.restrict_ce_to_mask,
        settings.model_arguments,
    )
    for phase in settings.phases:
        source = "--num_tpu_cores or --topology"
        step_flags.check_phase(config, phase, replicas, source, run.accumulation_steps)
    phases = [
        dataclasses.replace(phase, batch_size=phase.batch_size // replicas)
        for phase in settings.phases
    ]
    print(
        f"{FLAGS.bert_config_file}, {', '.join(f'{k}={v}' for k, v in run.options.items())}\n"
        f"{topology.name}: {replicas} replicas on {devices} devices of at most"
        f" {device.flops / 1e12:.4g} TFLOP/s and {device.bandwidth / 1e9:.4g} GB/s\n",
        flush=True,
    )
    try_one = search_phase if FLAGS.search_batch else try_phase
    fit = [try_one(run, phase, topology) for phase in phases]
    sys.exit(0 if all(fit) else STATUS_DOES_NOT_FIT)


if __name__ == "__main__":
    flags.adopt_module_key_flags(run_pretraining)
    for name in NOT_NEEDED:
        FLAGS.set_default(name, "not_used")
    flags.DEFINE_string(
        "topology", None, "The TPU, GENERATION:SHAPE, such as v3:2x2 or v5e:2x4.", required=True
    )
    flags.DEFINE_integer(
        "max_sequences_per_pack",
        None,
        "Largest number of sequences in a row of packed records. Default: not packed.",
        lower_bound=2,
    )
    step_flags.define_teacher("Compile")
    flags.DEFINE_bool(
        "search_batch",
        False,
        "Find the largest batch that fits, for each phase, to within a sixteenth. The search starts"
        " at the phase's own batch and takes multiples of 8 examples (times"
        " --gradient_accumulation_steps) per replica.",
    )
    command_flags.run_program(main)
