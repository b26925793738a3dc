"""A loop of steps on the devices, one `tf.function` with no Python between its steps.

It is run by a second thread, while the first shows progress and looks for interrupts, which are
held until the loop has ended.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.engine import distribution, interrupts
from bert_tf.engine.length_buckets import Buckets
from bert_tf.seeds import fold_in

POLL_SECONDS = 0.5

# A step of one replica: (its part of the batch, its seed) -> float32 scalars in any structure, or
# tensors [batch, ...] in a `per_example` loop.
ReplicaStep = Callable[[dict[str, tf.Tensor], tf.Tensor], Any]


class LoopInterrupted(KeyboardInterrupt):
    """An interrupt that ended a loop after the step in hand; `rows` is what `run` would return.

    Its cause is the interrupt itself.
    """

    def __init__(self, rows: Any):
        super().__init__()
        self.rows = rows


class StepLoop:
    """Makes steps one after another on batches of one shape; traced once.

    Args:
        strategy: where the replicas are.
        replica_step: the step of one replica.
        seed: folded with the replica's number into the seed of each replica.
        per_example: what becomes of the replicas' outputs. False averages scalars over them, which
            leaves the quotient of a sum and its weight as it is; True puts the examples of all
            replicas one behind the other.
        buckets: the lengths that batches are cut to, each as its `longest` needs; the step is
            then traced and compiled once for each.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        replica_step: ReplicaStep,
        seed: int = 0,
        per_example: bool = False,
        buckets: Buckets | None = None,
    ):
        self._buckets = buckets
        self._strategy = strategy
        self._shards = distribution.input_shards(strategy)
        self._host = self._shards[0].device
        # Processes that make a step together must agree on which one is the last: interrupts are
        # held, and what one process hears goes round with the metrics.
        self._agree = distribution.several_processes(strategy)
        self._per_example = per_example
        self._replica_step = replica_step
        self._structure: Any = None
        self._seed = tf.constant([seed % 2**31, 0], tf.int32)
        self.step = self._distribute()
        with tf.device(self._host):
            self._stop = tf.Variable(False, trainable=False)
            self._steps_done = tf.Variable(0, trainable=False)
        self._loop = tf.function(self._run_steps)

    def _distribute(self) -> Callable[[list[dict[str, tf.Tensor]]], list[tf.Tensor]]:
        """Returns a step over all replicas: the batches of the hosts -> a list of tensors.

        These are the outputs for each example, or one float32 vector of the averaged scalars.
        """
        strategy, replica_step = self._strategy, self._replica_step
        one_replica = strategy.num_replicas_in_sync == 1

        # Nothing in a step is for AutoGraph to convert, and tracing is far quicker without it.
        @tf.autograph.experimental.do_not_convert
        def step(features, seed, *stop):
            context = tf.distribute.get_replica_context()
            outputs = replica_step(features, fold_in(seed, context.replica_id_in_sync_group))
            self._structure = tf.nest.map_structure(lambda _: None, outputs)
            outputs = tf.nest.flatten(outputs)
            if self._per_example:
                return outputs
            row = tf.stack([*outputs, *stop])
            # Here and not on the host, which would fetch each scalar of each replica.
            return [row if one_replica else context.all_reduce(tf.distribute.ReduceOp.MEAN, row)]

        # With several replicas XLA cannot have the step, and for a TPU everything is compiled
        # anyway. One GPU is faster with XLA. On a CPU it gains a tenth in training, which many
        # lengths do not pay for, and prediction takes twice as long.
        one_training_shape = not self._per_example and self._buckets is None
        on_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
        on_gpu = bool(tf.config.list_physical_devices("GPU"))
        if one_replica and not on_tpu and (on_gpu or one_training_shape):
            step = tf.function(step, jit_compile=True, autograph=False)

        def run(batches):
            args = (distribution.split_batches(strategy, batches), self._seed)
            if self._agree:
                args += (tf.cast(self._stop, tf.float32),)
            results = [strategy.experimental_local_results(x) for x in strategy.run(step, args)]
            with tf.device(self._host):
                return [
                    tf.concat(x, 0) if self._per_example else tf.identity(x[0]) for x in results
                ]

        return run

    def _step_in_bucket(self, batches: list[dict[str, tf.Tensor]]) -> list[tf.Tensor]:
        """Returns what a step gives on the batches, cut to the length of their bucket."""
        buckets = self._buckets
        if buckets is None:
            return self.step(batches)
        longest = [batch.pop("longest") for batch in batches][0]  # the hosts agree on it
        with tf.device(self._host):
            index = buckets.index(longest)

        def cut_to(bucket: int) -> list[tf.Tensor]:
            return self.step([buckets.trim(batch, bucket) for batch in batches])

        return tf.switch_case(
            index, [functools.partial(cut_to, i) for i in range(len(buckets.lengths))]
        )

    def _output_specs(self, iterators: Sequence[Iterator]) -> list[tf.TensorSpec]:
        """Returns dtype and shape of what a step gives: a row, or the outputs of a whole batch."""
        if not self._per_example:
            return [tf.TensorSpec([None], tf.float32)]
        replicas = self._strategy.num_replicas_in_sync // self._shards[0].count
        part = {
            name: tf.TensorSpec([spec.shape[0] // replicas, *spec.shape[1:]], spec.dtype)
            for name, spec in iterators[0].element_spec.items()
        }
        traced = tf.function(self._replica_step, autograph=False).get_concrete_function(
            part, tf.TensorSpec([2], tf.int32)
        )
        return [
            tf.TensorSpec([self._strategy.num_replicas_in_sync * x.shape[0], *x.shape[1:]], x.dtype)
            for x in tf.nest.flatten(traced.structured_outputs)
        ]

    def _run_steps(self, iterators: Sequence[Iterator], num_steps: tf.Tensor) -> list[tf.Tensor]:
        with tf.device(self._host):
            arrays = [
                tf.TensorArray(spec.dtype, size=0, dynamic_size=True, element_shape=spec.shape)
                for spec in self._output_specs(iterators)
            ]
        done = tf.constant(0)
        # Looked at a step late, so that the devices have their next step while the host waits for
        # the results of the last.
        good, good_before = tf.constant(True), tf.constant(True)
        while done < num_steps and good_before and (self._agree or not self._stop):
            outputs = self._step_in_bucket([iterator.get_next() for iterator in iterators])
            with tf.device(self._host):
                arrays = [array.write(done, x) for array, x in zip(arrays, outputs, strict=True)]
                good_before, good = good, self._is_good(outputs)
            done += 1
            self._steps_done.assign(done)
        return [array.stack() for array in arrays]

    def _is_good(self, outputs: list[tf.Tensor]) -> tf.Tensor:
        """Returns whether another step may follow: all is finite, and no process is to stop."""
        if self._per_example:
            return tf.constant(True)
        row = outputs[0]
        good = tf.reduce_all(tf.math.is_finite(row))
        return tf.logical_and(good, row[-1] == 0.0) if self._agree else good

    def _call(self, iterators: Sequence[Iterator], num_steps: int) -> list[tf.Tensor]:
        # A TPU's host makes the loop, which may not be this machine. A GPU's step would be drawn
        # to the CPU by this.
        on_tpu = isinstance(self._strategy, tf.distribute.TPUStrategy)
        with tf.device(self._host if on_tpu else None):
            return self._loop(list(iterators), tf.constant(num_steps))

    @interrupts.hold()
    def run(
        self, iterators: Sequence[Iterator], num_steps: int, advance: Callable[[int], None]
    ) -> Any:
        """Returns the outputs of the steps in the structure of the step, numpy arrays.

        Scalars are float32 [steps made]; outputs for each example are [steps made * batch, ...].
        The loop ends early after a value that is not finite, within one more step.

        Args:
            iterators: give the batches of `distribution.input_shards`.
            num_steps: how many steps to make.
            advance: is told now and then how many more steps have been made.

        Raises:
            KeyboardInterrupt: there was an interrupt before the loop began.
            LoopInterrupted: there was one in it, here or in another process of the run; the step
                in hand has been made.
        """
        if interrupts.held() and not self._agree:
            raise interrupts.held()
        self._stop.assign(interrupts.held() is not None)
        self._steps_done.assign(0)
        told = 0
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(self._call, iterators, num_steps)
            try:
                while not future.done():
                    if interrupts.held():
                        self._stop.assign(True)
                    try:
                        future.exception(POLL_SECONDS)
                    except TimeoutError:
                        pass
                    done = int(self._steps_done.numpy())
                    advance(done - told)
                    told = done
            except BaseException:
                self._stop.assign(True)
                raise
        outputs: list[np.ndarray] = [x.numpy() for x in future.result()]
        interrupt = interrupts.held()
        if self._per_example:
            outputs = [x.reshape(-1, *x.shape[2:]) for x in outputs]
        else:
            outputs = list(outputs[0].T)
            if self._agree:
                agreed = outputs.pop().any()
                interrupt = (interrupt or interrupts.Terminated()) if agreed else None
        rows = tf.nest.pack_sequence_as(self._structure, outputs)
        if interrupt:
            raise LoopInterrupted(rows) from interrupt
        return rows
