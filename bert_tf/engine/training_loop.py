"""The training loop: steps one after another in one `tf.function`, with no Python between them."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.engine import distribution, interrupts
from bert_tf.engine.length_buckets import Buckets
from bert_tf.engine.loop_control import LoopControl
from bert_tf.engine.replicate import Batches, ReplicaStep, may_compile, on_gpu, replicate
from bert_tf.engine.steps import Objective
from bert_tf.optimization import StepOptimizer


class LoopInterrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM ended a loop after the step in hand.

    `metrics` is what `TrainingLoop.run` would have returned. The cause is the interrupt itself.
    """

    def __init__(self, metrics: Any):
        super().__init__()
        self.metrics = metrics


def xla_pays_on_cpu(model: keras.Model | Objective) -> bool:
    """Returns whether XLA makes the steps of a model's layers faster on a CPU.

    It does for float32. CPUs that multiply bfloat16 (AVX512_BF16, AMX) do it in TensorFlow's own
    kernels alone: with three layers of BERT-Base a step takes 0.7 s, and 1.1 s with XLA.
    """
    return all(layer.compute_dtype != "bfloat16" for layer in model.layers)


def update_function(
    strategy: tf.distribute.Strategy, model: keras.Model, optimizer: StepOptimizer
) -> Callable[[Sequence[tf.Tensor | tf.IndexedSlices | None]], None]:
    """Returns what updates a model's variables with their gradients, in a training step.

    XLA compiles it where it does not compile the step, on a CPU with bfloat16. TensorFlow's kernels
    would go through the float32 variables and moments once for each operation: 6 times as long.
    """

    def update(gradients):
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    if xla_pays_on_cpu(model) or on_gpu() or not may_compile(strategy):
        return update
    return tf.function(update, jit_compile=True, autograph=False)


class TrainingLoop:
    """Makes training or evaluation steps on batches of one shape; traced once.

    A metric is averaged over the replicas. That is the mean of a scalar, and leaves the quotient
    of a weighted sum and its weight as it is.

    Args:
        strategy: the devices.
        replica_step: the step of one replica; it returns float32 scalars in any structure.
        seed: folded with the replica's number into the seed of each replica.
        buckets: lengths that batches are cut to, each batch to the first that its `longest` fits
            in; the step is traced and compiled once for each. None leaves batches as they are.
        compile_on_cpu: whether XLA compiles the step on a CPU; see `xla_pays_on_cpu`. With
            `buckets` it does not: it gains a tenth, which does not pay for compiling many lengths.

    `input_seconds` is how long the devices waited for input in the last `run`: from a step's
    metrics to the next batch, as the host sees it. A batch that was there before does not count. It
    is 0 after an error.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        replica_step: ReplicaStep,
        seed: int = 0,
        buckets: Buckets | None = None,
        compile_on_cpu: bool = True,
    ):
        self._buckets = buckets
        self._control = LoopControl(strategy)
        self._host = self._control.host
        # Processes that make steps together must agree on the last one. So they hold interrupts,
        # and each adds its `stop` to the metrics, which are averaged over all of them.
        self._several = distribution.several_processes(strategy)
        self.input_seconds = 0.0
        self._structure: Any = None
        compiled = compile_on_cpu and buckets is None
        step = replicate(strategy, replica_step, self._average, seed, compiled)
        self.step = lambda batches: self._first(step(batches, *self._own_stop()))
        self._loop = tf.function(self._run_steps)

    def _own_stop(self) -> tuple[tf.Tensor, ...]:
        return (tf.cast(self._control.stop, tf.float32),) if self._several else ()

    def _average(self, metrics: Any, *stop: tf.Tensor) -> list[tf.Tensor]:
        """Returns the metrics, and `stop`, averaged over the replicas: one float32 vector."""
        self._structure = tf.nest.map_structure(lambda _: None, metrics)
        values = [tf.cast(x, tf.float32) for x in (*tf.nest.flatten(metrics), *stop)]
        context = tf.distribute.get_replica_context()
        if context.num_replicas_in_sync == 1:
            return [tf.stack(values)]
        return [context.all_reduce(tf.distribute.ReduceOp.MEAN, tf.stack(values))]

    def _first(self, outputs: list[list[tf.Tensor]]) -> tf.Tensor:
        """Returns the vector of the first replica, at the host; all replicas have the same."""
        with tf.device(self._host):
            return tf.identity(outputs[0][0])

    def _step_in_bucket(self, batches: Batches) -> tf.Tensor:
        """Returns the metrics of a step on the batches, cut to the length of their bucket."""
        buckets = self._buckets
        if buckets is None:
            return self.step(batches)
        longest = [batch.pop("longest") for batch in batches][0]  # the same on all hosts
        with tf.device(self._host):
            index = buckets.index(longest)

        def cut_to(bucket: int) -> tf.Tensor:
            return self.step([buckets.trim(batch, bucket) for batch in batches])

        return tf.switch_case(
            index, [functools.partial(cut_to, i) for i in range(len(buckets.lengths))]
        )

    def _run_steps(
        self, iterators: Sequence[Iterator], num_steps: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the metrics of each step, float32 [steps, metrics], and `input_seconds`."""
        with tf.device(self._host):
            rows = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[None])
            waited, free_since = tf.constant(0.0, tf.float64), tf.timestamp()
        done = tf.constant(0)
        # Looked at a step late, so that the devices have their next step while the host waits for
        # the metrics of the last.
        good, good_before = tf.constant(True), tf.constant(True)
        while done < num_steps and good_before and (self._several or not self._control.stop):
            batches = [iterator.get_next() for iterator in iterators]
            with tf.device(self._host), tf.control_dependencies(tf.nest.flatten(batches)):
                waited += tf.maximum(tf.timestamp() - free_since, 0.0)
            row = self._step_in_bucket(batches)
            with tf.device(self._host), tf.control_dependencies([row]):
                free_since = tf.timestamp()
            with tf.device(self._host):
                rows = rows.write(done, row)
                good_before, good = good, self._is_good(row)
            done += 1
            self._control.steps_done.assign(done)
        return rows.stack(), waited

    def _is_good(self, row: tf.Tensor) -> tf.Tensor:
        """Returns whether another step may follow: all is finite, and no process has to stop."""
        good = tf.reduce_all(tf.math.is_finite(row))
        return tf.logical_and(good, row[-1] == 0.0) if self._several else good

    @interrupts.hold()
    def run(
        self, iterators: Sequence[Iterator], num_steps: int, advance: Callable[[int], None]
    ) -> Any:
        """Returns the metrics in the structure of the step, each float32 [steps made].

        The loop ends early, within one more step, after a value that is not finite.

        Args:
            iterators: give the batches, one for each of `distribution.input_shards`.
            num_steps: number of steps to make.
            advance: called now and then with the number of further steps that have been made.

        Raises:
            KeyboardInterrupt: there was an interrupt before the loop began.
            LoopInterrupted: there was one during the loop, in this or another process of the run.
        """
        self.input_seconds = 0.0
        if interrupts.held() and not self._several:
            raise interrupts.held()

        metrics, waited = self._control.run(
            lambda: self._loop(list(iterators), tf.constant(num_steps)), advance
        )
        self.input_seconds = float(waited)
        columns = list(metrics.numpy().T)
        interrupt = interrupts.held()
        if self._several:
            stopped = columns.pop().any()
            interrupt = (interrupt or interrupts.Terminated()) if stopped else None
        metrics = tf.nest.pack_sequence_as(self._structure, columns)
        if interrupt:
            raise LoopInterrupted(metrics) from interrupt
        return metrics
