r"""Measures training steps, their input and the making of pre-training records on this machine.

    python -m tools.benchmark --measure=training_step
    python -m tools.benchmark --measure=input_pipeline --train_batch_size=32
    python -m tools.benchmark --measure=create_pretraining_data --input_file=corpus.txt \
        --vocab_file=vocab.txt

training_step: seconds a step of pre-training in the loop that run_pretraining.py runs, the share
of the time that passes between steps, and peak memory. The step's matrix products are also made by
themselves, in turn with the loops of steps, and the step's rate is given as a share of theirs. By
default BERT-Base, batch 8, length 128.

input_pipeline: examples a second that one core reads, checks and batches when nothing else is to be
done: the most that it can feed to an accelerator.

create_pretraining_data: instances a second beyond start-up, and peak memory, for --dupe_factor 1
and for the one given; the program is run on one core.
"""

import os
import re
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
import tensorflow as tf
from absl import flags

from bert_tf import optimization
from bert_tf.engine import input_pipeline
from bert_tf.engine.steps import train_step
from bert_tf.engine.training_loop import TrainingLoop
from bert_tf.files import records
from bert_tf.model.configuration import BertConfig
from bert_tf.runs import command_flags
from bert_tf.tasks.pretraining.model import PretrainingTask
from bert_tf.tasks.pretraining.phases import PretrainingPhase
from bert_tf.tasks.pretraining.schema import pretraining_schema
from tools import matrix_products

FLAGS = flags.FLAGS
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
QUICKSTART = os.path.join(ROOT, "flags", "quickstart")
BASE = os.path.join(ROOT, "flags", "models", "uncased_L-12_H-768_A-12")

flags.DEFINE_enum(
    "measure",
    None,
    ["training_step", "input_pipeline", "create_pretraining_data"],
    "What to measure.",
    required=True,
)
flags.DEFINE_string(
    "bert_config_file", os.path.join(BASE, "bert_config.json"), "training_step: the model."
)
flags.DEFINE_integer(
    "train_batch_size", 8, "training_step, input_pipeline: examples a batch.", lower_bound=1
)
flags.DEFINE_integer("max_seq_length", 128, "Length of the sequences.", lower_bound=5)
flags.DEFINE_integer("max_predictions_per_seq", 20, "Masked positions of one.", lower_bound=1)
flags.DEFINE_integer("num_steps", 10, "training_step: how many are timed.", lower_bound=1)
flags.DEFINE_integer(
    "iterations_per_loop", 100, "training_step: steps of a loop on the device.", lower_bound=1
)
flags.DEFINE_bool("recompute_activations", False, "training_step: as in run_pretraining.py.")
flags.DEFINE_integer(
    "gradient_accumulation_steps", 1, "training_step: as in run_pretraining.py.", lower_bound=1
)
flags.DEFINE_string(
    "input_file",
    os.path.join(QUICKSTART, "corpus.txt"),
    "create_pretraining_data: the text, one sentence a line.",
)
flags.DEFINE_string(
    "vocab_file",
    None,
    "create_pretraining_data: the vocabulary; by default one is learned from the text.",
)
flags.DEFINE_integer("dupe_factor", 5, "create_pretraining_data: passes.", lower_bound=2)


def synthetic_batch(config: BertConfig, phase: PretrainingPhase) -> dict:
    """Returns a pre-training batch of random ids without padding."""
    rng = np.random.RandomState(0)
    batch_size, length = phase.batch_size, phase.max_seq_length
    predictions = phase.max_predictions_per_seq

    def ids(high, *shape):
        return tf.constant(rng.randint(0, high, shape), tf.int32)

    return {
        "input_ids": ids(config.vocab_size, batch_size, length),
        "input_mask": tf.ones([batch_size, length], tf.int32),
        "segment_ids": ids(config.type_vocab_size, batch_size, length),
        "masked_lm_positions": ids(length, batch_size, predictions),
        "masked_lm_ids": ids(config.vocab_size, batch_size, predictions),
        "masked_lm_weights": tf.ones([batch_size, predictions]),
        "next_sentence_labels": ids(2, batch_size, 1),
    }


class TimedLoop(TrainingLoop):
    """The loop of a training run, which notes when each step begins and ends."""

    def __init__(self, strategy, replica_step, num_steps: int):
        super().__init__(strategy, replica_step)
        self.times = tf.Variable(tf.zeros([num_steps, 2], tf.float64))
        self._number = tf.Variable(0)
        untimed = self.step

        def step(batches):
            with tf.control_dependencies(tf.nest.flatten(batches)):
                begun = tf.timestamp()
            with tf.control_dependencies([begun]):
                metrics = untimed(batches)
            with tf.control_dependencies([metrics]):
                times = tf.stack([begun, tf.timestamp()])
            self.times.scatter_nd_update([[self._number % num_steps]], [times])
            self._number.assign_add(1)
            return metrics

        self.step = step

    def reset(self) -> None:
        """Begins to note anew."""
        self._number.assign(0)


def measure_training_step() -> None:
    """Prints seconds a step, the share between steps, and that of the matrix products' own time."""
    config = BertConfig.from_json_file(FLAGS.bert_config_file)
    task = PretrainingTask(config, recompute_activations=FLAGS.recompute_activations)
    model = task.build_model()
    schedule = optimization.linear_schedule(1e-4, 1_000_000, 10_000)
    optimizer = optimization.create_optimizer(model.trainable_variables, schedule)
    phase = PretrainingPhase(
        FLAGS.max_seq_length, FLAGS.num_steps, FLAGS.train_batch_size, FLAGS.max_predictions_per_seq
    )
    loop = TimedLoop(
        tf.distribute.get_strategy(),
        lambda features, seed: train_step(
            task, model, optimizer, features, seed, FLAGS.gradient_accumulation_steps
        ),
        FLAGS.num_steps,
    )
    batch = synthetic_batch(config, phase)
    iterators = [iter(tf.data.Dataset.from_tensors(batch).repeat().prefetch(2))]
    began = time.monotonic()
    loop.run(iterators, 1, lambda _: None)
    compile_seconds = time.monotonic() - began
    loop.run(iterators, 1, lambda _: None)
    loop.reset()
    yardstick = matrix_products.Yardstick(config, phase)
    products, wall = [yardstick.seconds()], 0.0
    for first in range(0, FLAGS.num_steps, FLAGS.iterations_per_loop):
        began = time.monotonic()
        num_steps = min(FLAGS.iterations_per_loop, FLAGS.num_steps - first)
        loop.run(iterators, num_steps, lambda _: None)
        wall += time.monotonic() - began
        products.append(yardstick.seconds())  # in turn, for a machine's speed drifts
    steps = np.diff(loop.times.numpy(), axis=1)
    seconds, of_products = np.mean(steps), np.mean(products)
    print(f"model: {model.count_params():,} parameters, {FLAGS.bert_config_file}")
    print(f"batch: {phase.batch_size} of length {phase.max_seq_length}")
    print(f"trace and compile: {compile_seconds:.1f} s")
    print(f"seconds a step: mean {seconds:.4g}, {steps.min():.4g} to {steps.max():.4g}")
    print(f"examples/s: {phase.batch_size * FLAGS.num_steps / wall:.2f}")
    print(f"between steps: {1 - steps.sum() / wall:.2%} of the time")
    print(
        f"matrix products: {yardstick.flops / 1e9:.1f} GFLOP a step, by themselves"
        f" {yardstick.flops / of_products / 1e9:.0f} GFLOP/s, in the step"
        f" {yardstick.flops / seconds / 1e9:.0f}: a share of {of_products / seconds:.2f}"
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory: {peak:.0f} MB")


def run_program(arguments: list[str]) -> tuple[float, float, str]:
    """Returns seconds, peak memory in MB and output of a program of this project on one core."""
    command = [sys.executable, *arguments]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    core = min(os.sched_getaffinity(0))
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
        output.seek(0)
        text = output.read().decode()
    if status:
        raise RuntimeError(f"{' '.join(command)} failed:\n{text}")
    return seconds, usage.ru_maxrss / 1024, text


def measure_input_pipeline() -> None:
    """Prints examples a second of the training input, by the clock and by processor time."""
    config = BertConfig.from_json_file(FLAGS.bert_config_file)
    length, predictions = FLAGS.max_seq_length, FLAGS.max_predictions_per_seq
    schema = pretraining_schema(length, predictions)
    with tempfile.TemporaryDirectory() as directory:
        paths = [os.path.join(directory, f"{i}.tfrecord") for i in range(8)]
        examples = synthetic_batch(config, PretrainingPhase(length, 1, 4000, predictions))
        columns = [value.numpy() for value in examples.values()]
        with records.write_files(paths, "output_file") as write:
            for row in zip(*columns, strict=True):
                write(records.serialize(dict(zip(examples, row, strict=True)), schema))
        arguments = (paths, length, predictions, FLAGS.train_batch_size, config.vocab_size)
        call = f"from tools import benchmark; benchmark.time_input_pipeline{arguments}"
        _, memory, text = run_program(["-c", call])
    print("\n".join(re.findall("^examples/s.*", text, re.MULTILINE)))
    print(f"peak memory: {memory:.0f} MB")


def time_input_pipeline(
    files: list[str], length: int, predictions: int, batch_size: int, vocab_size: int
) -> None:
    """Prints how fast this process, which should be on one core, draws batches from `files`."""
    schema = pretraining_schema(length, predictions)
    # All features of ids are looked at, as in training; against which limit costs the same.
    limits = {
        name: (vocab_size, "vocab_size")
        for name, feature in schema.items()
        if feature.dtype.is_integer
    }
    iterator = input_pipeline.TrainingInput(files, schema, batch_size, limits, seed=1).iterator

    @tf.function
    def draw(num_batches):
        for _ in tf.range(num_batches):
            next(iterator)

    num_batches = tf.constant(10_000 // batch_size + 1)
    by_clock, by_processor = [], []
    for _ in range(10):
        clock, processor = time.perf_counter(), time.process_time()
        draw(num_batches)
        examples = int(num_batches) * batch_size
        by_clock.append(examples / (time.perf_counter() - clock))
        by_processor.append(examples / (time.process_time() - processor))
    # The first has traced the function. On an idle machine both agree.
    print(f"examples/s by the clock: median {np.median(by_clock[1:]):.0f}")
    print(f"examples/s of processor time: median {np.median(by_processor[1:]):.0f}")


def measure_create_pretraining_data() -> None:
    """Prints instances a second beyond start-up, and peak memory for two dupe factors."""
    with tempfile.TemporaryDirectory() as directory:
        vocab_file = FLAGS.vocab_file
        if vocab_file is None:
            vocab_file = os.path.join(directory, "vocab.txt")
            run_program(
                [
                    "-m",
                    "tools.build_vocabulary",
                    f"--input_file={FLAGS.input_file}",
                    f"--output_file={vocab_file}",
                    "--vocab_size=4000",
                ]
            )
        common = [
            "create_pretraining_data.py",
            f"--vocab_file={vocab_file}",
            f"--output_file={os.path.join(directory, 'records')}",
            f"--max_seq_length={FLAGS.max_seq_length}",
            f"--max_predictions_per_seq={FLAGS.max_predictions_per_seq}",
        ]
        nearly_nothing = os.path.join(directory, "one_line.txt")
        with open(nearly_nothing, "w") as writer:
            writer.write("One sentence.\n\nAnother one.\n")
        # The first run also reads TensorFlow from the disk.
        runs = [run_program([*common, f"--input_file={nearly_nothing}"]) for _ in range(3)]
        start_up, base = min(run[:2] for run in runs)
        print(f"start-up: {start_up:.2f} s, {base:.0f} MB")
        for dupe_factor in (1, FLAGS.dupe_factor):
            seconds, memory, text = run_program(
                [*common, f"--input_file={FLAGS.input_file}", f"--dupe_factor={dupe_factor}"]
            )
            instances = int(re.search(r"Wrote (\d+) total instances", text).group(1))
            took = seconds - start_up
            # Start-up varies by some tenths of a second, so one second says nothing.
            speed = f"{instances / took:.0f} instances/s" if took > 1.0 else "too short to time"
            print(
                f"dupe_factor {dupe_factor}: {instances} instances, {took:.2f} s beyond start-up,"
                f" {speed}, peak {memory:.0f} MB"
            )


def main() -> None:
    """Measures what --measure says."""
    if FLAGS.measure == "training_step":
        measure_training_step()
    elif FLAGS.measure == "input_pipeline":
        measure_input_pipeline()
    else:
        measure_create_pretraining_data()


if __name__ == "__main__":
    command_flags.run_program(main)
