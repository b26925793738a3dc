r"""Tells whether a pre-training run fits a TPU and how fast it can be at best, without a TPU.

    python -m tools.compile_for_tpu --topology=v5e:2x4 \
        --bert_config_file=flags/models/uncased_L-12_H-768_A-12/bert_config.json \
        --phases=128:900000:256:20,512:100000:256:77

It takes the flags of run_pretraining.py, so that a recipe is tried by --flagfile=RECIPE and
--topology=... The training step of each phase is compiled by the TPU's own compiler, libtpu: in an
environment of its own, pip install -e ".[compile]". One compilation of BERT-Base takes minutes.

--topology is GENERATION:SHAPE, the shape in chips: v3:2x2 is a v3-8, v5e:2x4 a v5litepod-8. The
batch size is that of all replicas, one for each device of the topology or --num_tpu_cores of them.

Ends with status 0 if every phase fits, with 2 if one does not, and with 1 after an error.
"""

import dataclasses
import gc
import logging
import sys
import time
from collections.abc import Callable

import tensorflow as tf
from absl import flags
from tensorflow.compiler.tf2xla.ops.gen_xla_ops import xla_all_reduce

import run_pretraining
from bert_tf import optimization
from bert_tf.engine.steps import Replicas, train_step
from bert_tf.errors import UserError
from bert_tf.model.configuration import BertConfig
from bert_tf.runs import command_flags
from bert_tf.tasks.pretraining.model import PretrainingTask
from bert_tf.tasks.pretraining.phases import PretrainingPhase

from . import hlo_text, tpu_compiler
from .matrix_products import training_flops

FLAGS = flags.FLAGS

flags.adopt_module_key_flags(run_pretraining)
flags.DEFINE_string("topology", None, "The TPU, such as v3:2x2 or v5e:2x4.", required=True)
flags.DEFINE_bool(
    "search_batch",
    False,
    "Find the largest batch of each phase that fits, to within a sixteenth: in multiples of 8"
    " examples (times --gradient_accumulation_steps) a replica, beginning with the phase's own.",
)

# Flags of run_pretraining that a run needs and this tool does not.
NOT_REQUIRED = ("input_file", "output_dir")
STATUS_DOES_NOT_FIT = 2
NAMES_SHOWN = 4
BATCH_MULTIPLE = 8  # examples; a TPU's registers have 8 rows
GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Run:
    """What is compiled, but for the lengths and the batch.

    config: the model.
    options: further arguments of `PretrainingTask`.
    replicas: how many make a step together.
    accumulation_steps: see `train_step`.
    gradient_reduction: see `train_step`.
    """

    config: BertConfig
    options: dict[str, bool | str]
    replicas: int
    accumulation_steps: int
    gradient_reduction: str


@dataclasses.dataclass(frozen=True)
class Program:
    """The step of one replica as TensorFlow hands it to a compiler.

    hlo: a serialized HloModuleProto.
    matrix_products: those in it.
    """

    hlo: bytes
    matrix_products: list[hlo_text.MatrixProduct]


def lower(run: Run, phase: PretrainingPhase) -> Program:
    """Returns the training step of a phase, `phase.batch_size` being that of one replica.

    TensorFlow's CPU build writes it. Its TPU build would choose another random generator where none
    is named, but `bert_tf.model.layers.dropout` names one.
    """
    task = PretrainingTask(run.config, **run.options)
    model = task.build_model()
    optimizer = optimization.create_optimizer(
        model.trainable_variables, optimization.linear_schedule(1e-4, 1_000_000, 10_000)
    )
    group = [list(range(run.replicas))]
    # What TPUStrategy's all_reduce becomes there; its own operation is for TPU builds only.
    replicas = Replicas(
        run.replicas,
        lambda tensors: [xla_all_reduce(x, group, "Add", "CrossReplica") for x in tensors],
    )

    @tf.function(jit_compile=True, autograph=False)
    def step(features, seed):
        metrics = train_step(
            *(task, model, optimizer, features, seed),
            accumulation_steps=run.accumulation_steps,
            gradient_reduction=run.gradient_reduction,
            replicas=replicas,
        )
        return tf.stack(tf.nest.flatten(metrics))

    # Zeros and not specs: a step is lowered for tensors that exist.
    of_tokens = [phase.batch_size, phase.max_seq_length]
    of_predictions = [phase.batch_size, phase.max_predictions_per_seq]
    features = {
        "input_ids": tf.zeros(of_tokens, tf.int32),
        "input_mask": tf.zeros(of_tokens, tf.int32),
        "segment_ids": tf.zeros(of_tokens, tf.int32),
        "masked_lm_positions": tf.zeros(of_predictions, tf.int32),
        "masked_lm_ids": tf.zeros(of_predictions, tf.int32),
        "masked_lm_weights": tf.zeros(of_predictions),
        "next_sentence_labels": tf.zeros([phase.batch_size, 1], tf.int32),
    }
    get_ir = step.experimental_get_compiler_ir(features, tf.zeros([2], tf.int32))
    products = hlo_text.matrix_products(get_ir(stage="hlo"))
    return Program(get_ir(stage="hlo_serialized"), products)


def program_flops(program: Program, accumulation_steps: int) -> int:
    """Returns the operations of a program's matrix products.

    The one loop with any in it is that of `bert_tf.engine.steps` over the parts of a batch.
    """
    return sum(
        product.flops * (accumulation_steps if product.in_loop else 1)
        for product in program.matrix_products
    )


def float32_products(program: Program) -> list[str]:
    """Returns the names of the matrix products with an operand in float32, each once."""
    names = [p.name for p in program.matrix_products if "f32" in p.operands]
    return list(dict.fromkeys(names))


@dataclasses.dataclass(frozen=True)
class Bound:
    """A time that no step can be shorter than.

    compute: seconds that the matrix products take at the device's peak.
    memory: seconds in which the arguments are read and the outputs written once.
    """

    compute: float
    memory: float

    @property
    def seconds(self) -> float:
        """The longer of the two, for both go on at once."""
        return max(self.compute, self.memory)


def lower_bound(
    executable: tpu_compiler.Executable, flops: int, device: tpu_compiler.Chip
) -> Bound:
    """Returns the lower bound of a step's time.

    What the compiler gives as bytes accessed would be no lower bound: it counts on-chip memory too.
    """
    moved = executable.arguments + executable.outputs
    return Bound(flops / device.flops, moved / device.bandwidth)


def report(
    run: Run,
    phase: PretrainingPhase,
    program: Program,
    executable: tpu_compiler.Executable,
    device: tpu_compiler.Chip,
) -> list[str]:
    """Returns the lines on an executable; `phase.batch_size` is that of one replica."""
    on_paper = training_flops(run.config, phase)
    flops = program_flops(program, run.accumulation_steps)
    bound = lower_bound(executable, flops, device)
    speed = phase.batch_size * run.replicas / bound.seconds
    utilisation = on_paper / (bound.seconds * device.flops)
    sizes = [
        f"{name} {getattr(executable, name) / GIB:.3f}"
        for name in ("arguments", "temporaries", "code")
    ]
    names = float32_products(program)
    named = names[:NAMES_SHOWN] + ["..."] * (len(names) > NAMES_SHOWN)
    outside, in_loops = hlo_text.all_reduces(executable.hlo)
    return [
        f"fits: {executable.hbm / GIB:.2f} of {device.memory:.2f} GiB a replica"
        f" ({', '.join(sizes)})",
        f"TFLOP a replica: {flops / 1e12:.4g} in matrix products, of which the model's"
        f" {on_paper / 1e12:.4g}; {executable.flops / 1e12:.4g} of every kind, counting loops once",
        f"float32 matrix products: {len(names)}" + (f" ({', '.join(named)})" if names else ""),
        f"all-reduces: {outside}, and {in_loops} in loops",
        f"a step takes at least {bound.seconds * 1e3:.3g} ms: {bound.compute * 1e3:.3g} for matrix"
        f" products, {bound.memory * 1e3:.3g} to read arguments and write outputs",
        f"at most {speed:,.0f} sequences/s, {utilisation:.1%} MFU",
    ]


def largest_batch(fits: Callable[[int], bool], start: int, multiple: int) -> int:
    """Returns the largest multiple of `multiple` for which `fits` is true, 0 if it is none.

    The answer is given to within a sixteenth, because asking is slow.

    Args:
        fits: asked of multiples of `multiple`, from `start` on by doubling and then by halves.
        start: where to begin; rounded up to a multiple.
        multiple: the step.
    """
    low, high = 0, -(-start // multiple)  # low fits; high is to be asked next
    while fits(high * multiple):
        low, high = high, 2 * high
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        if fits(middle * multiple):
            low = middle
        else:
            high = middle
    return low * multiple


def divide(phase: PretrainingPhase, replicas: int, accumulation_steps: int) -> PretrainingPhase:
    """Returns the phase with the batch size of one replica.

    Raises:
        UserError: the batch cannot be cut into parts of one size.
    """
    if phase.batch_size % (replicas * accumulation_steps):
        raise UserError(
            f"the batch of --train_batch_size or --phases ({phase.batch_size}) must be a multiple"
            f" of the number of replicas ({replicas}, see --num_tpu_cores) times"
            f" --gradient_accumulation_steps ({accumulation_steps})"
        )
    return dataclasses.replace(phase, batch_size=phase.batch_size // replicas)


def try_phase(run: Run, phase: PretrainingPhase, topology: tpu_compiler.Topology) -> bool:
    """Returns whether a phase fits, after printing what the compiler says of it."""
    parts = f" in {run.accumulation_steps} parts" if run.accumulation_steps > 1 else ""
    print(
        f"length {phase.max_seq_length}, {phase.max_predictions_per_seq} predictions, batch"
        f" {phase.batch_size * run.replicas}: {phase.batch_size} a replica{parts}",
        flush=True,
    )
    began = time.monotonic()
    program = lower(run, phase)
    gc.collect()  # the model hangs in cycles, and the compiler needs its memory
    try:
        executable = tpu_compiler.compile_hlo(program.hlo, topology, run.replicas)
        lines = report(run, phase, program, executable, topology.device)
    except tpu_compiler.DoesNotFit as error:
        executable, lines = None, [f"does not fit: {error}"]
    lines.append(f"compiled in {time.monotonic() - began:.0f} s")
    print("".join(f"  {line}\n" for line in lines), flush=True)
    return executable is not None


def search_phase(run: Run, phase: PretrainingPhase, topology: tpu_compiler.Topology) -> bool:
    """Returns whether any batch of a phase fits, after printing the largest one that does."""

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
    """Reads the flags, compiles each phase, and ends with the status of the module's docstring."""
    logging.getLogger("jax").setLevel(logging.WARNING)
    phases, _ = run_pretraining.phases_from_flags()
    config = BertConfig.from_json_file(FLAGS.bert_config_file)
    topology = tpu_compiler.open_topology(FLAGS.topology)
    device, devices = topology.device, len(topology.devices)
    replicas = FLAGS.num_tpu_cores if FLAGS["num_tpu_cores"].present else devices
    if replicas > devices:
        raise UserError(
            f"--num_tpu_cores ({replicas}) must be at most the number of devices of"
            f" --topology={topology.name} ({devices})"
        )
    run = Run(
        config,
        command_flags.model_options(on_tpu=True),
        replicas,
        FLAGS.gradient_accumulation_steps,
        FLAGS.gradient_reduction,
    )
    phases = [divide(phase, replicas, run.accumulation_steps) for phase in phases]
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
    for name in NOT_REQUIRED:
        FLAGS.set_default(name, "")
    command_flags.run_program(main)
