"""How long a training step takes, for benchmarks/pretraining.py."""

import functools

import numpy as np
import tensorflow as tf
from absl import flags

from benchmarks import data_speed
from benchmarks.peak_memory import peak_memory
from benchmarks.take_turns import take_turns, timed
from benchmarks.yardstick import Yardstick
from bert_tf import optimization
from bert_tf.engine.loops import TrainingLoop
from bert_tf.engine.steps import train_step
from bert_tf.model.configuration import BertConfig
from bert_tf.tasks.pretraining.training.electra import pretraining_model
from bert_tf.tasks.pretraining.training.settings import RecordBatches

FLAGS = flags.FLAGS


class TimedLoop(TrainingLoop):
    """The training loop of a run that also records when each step begins and ends."""

    def __init__(self, strategy, replica_step, num_steps: int):
        super().__init__(strategy, replica_step)
        self.times = tf.Variable(tf.zeros([num_steps, 2], tf.float64))
        self._number = tf.Variable(0)
        untimed = self.runner.step

        def step(batch):
            with tf.control_dependencies(tf.nest.flatten(batch)):
                begun = tf.timestamp()
            with tf.control_dependencies([begun]):
                metrics = untimed(batch)
            with tf.control_dependencies(tf.nest.flatten(metrics)):
                times = tf.stack([begun, tf.timestamp()])
            self.times.scatter_nd_update([[self._number % num_steps]], [times])
            self._number.assign_add(1)
            return metrics

        self.runner.step = step

    def reset(self) -> None:
        self._number.assign(0)


def measure_training_step(config: BertConfig, phase: RecordBatches) -> None:
    """Prints seconds per step, time between steps, and the speed compared to matrix products."""
    model = pretraining_model(config, recompute_activations=FLAGS.recompute_activations)
    schedule = optimization.linear_schedule(1e-4, 1_000_000, 10_000)
    optimizer = optimization.create_optimizer(model.trainable_variables, schedule)
    parts = {"accumulation_steps": FLAGS.gradient_accumulation_steps}
    step = functools.partial(train_step, model, optimizer, **parts)
    loop = TimedLoop(tf.distribute.get_strategy(), step, FLAGS.num_steps)
    batch = data_speed.synthetic_batch(config, phase)
    batches = iter(tf.data.Dataset.from_tensors(batch).repeat().prefetch(2))
    compile_seconds = timed(lambda: loop.run(batches, 1, lambda _: None))()
    loop.run(batches, 1, lambda _: None)
    loop.reset()
    yardstick = Yardstick(config, phase)
    starts = range(0, FLAGS.num_steps, FLAGS.iterations_per_loop)
    counts = iter([min(FLAGS.iterations_per_loop, FLAGS.num_steps - start) for start in starts])
    runs = {
        "steps": timed(lambda: loop.run(batches, next(counts), lambda _: None)),
        "products": yardstick.seconds,
    }
    results = take_turns(runs, len(starts), warm_up=False)
    wall = sum(results["steps"])
    steps = np.diff(loop.times.numpy(), axis=1)
    seconds, of_products = np.mean(steps), np.mean(results["products"])
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
    print(f"peak memory: {peak_memory():.0f} MiB")
