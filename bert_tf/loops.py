"""A loop of steps on the devices, one `tf.function` with no Python between its steps.

It is run by a second thread, while the first shows progress and hears interrupts.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import distribution
from bert_tf.modeling import fold_in

POLL_SECONDS = 0.5

# A step of one replica: (its part of the batch, its seed) -> float32 scalars in any structure.
ReplicaStep = Callable[[dict[str, tf.Tensor], tf.Tensor], Any]


class LoopInterrupted(KeyboardInterrupt):
    """An interrupt that ended a loop after the step in hand; `rows` is what `run` would return."""

    def __init__(self, rows: Any):
        super().__init__()
        self.rows = rows


class StepLoop:
    """Makes steps one after another on batches of one shape; traced once.

    Args:
        strategy: where the replicas are.
        replica_step: the step of one replica.
        seed: folded with the replica's number into the seed of each replica.
    """

    def __init__(self, strategy: tf.distribute.Strategy, replica_step: ReplicaStep, seed: int = 0):
        self._strategy = strategy
        self._structure: Any = None
        self._seed = tf.constant([seed % 2**31, 0], tf.int32)
        self.step = self._distribute(replica_step)
        with tf.device("CPU:0"):
            self._stop = tf.Variable(False, trainable=False)
            self._steps_done = tf.Variable(0, trainable=False)
        self._loop = tf.function(self._run_steps)

    def _distribute(self, replica_step: ReplicaStep) -> Callable[[dict[str, tf.Tensor]], tf.Tensor]:
        """Returns a step over all replicas: a batch -> its metrics as one float32 vector.

        What each replica returns is averaged over them, which leaves the quotient of a sum and
        its weight as it is.
        """
        strategy = self._strategy

        # Nothing in a step is for AutoGraph to convert, and tracing is far quicker without it.
        @tf.autograph.experimental.do_not_convert
        def step(features, seed):
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            return replica_step(features, fold_in(seed, replica))

        # With one replica the step is faster under XLA; with several XLA cannot have it, and for
        # a TPU everything is compiled anyway.
        one_replica = strategy.num_replicas_in_sync == 1
        if one_replica and not isinstance(strategy, tf.distribute.TPUStrategy):
            step = tf.function(step, jit_compile=True, autograph=False)

        def run(batch):
            parts = distribution.split_batch(strategy, batch)
            metrics = strategy.run(step, args=(parts, self._seed))
            self._structure = tf.nest.map_structure(lambda _: None, metrics)
            row = tf.nest.flatten(metrics)
            if not one_replica:
                row = [strategy.reduce(tf.distribute.ReduceOp.MEAN, x, axis=None) for x in row]
            return tf.stack(row)

        return run

    def _run_steps(self, iterator: Iterator, num_steps: tf.Tensor) -> tf.Tensor:
        rows = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[None])
        done = tf.constant(0)
        finite = tf.constant(True)
        while done < num_steps and finite and not self._stop:
            row = self.step(next(iterator))
            rows = rows.write(done, row)
            finite = tf.reduce_all(tf.math.is_finite(row))
            done += 1
            self._steps_done.assign(done)
        return rows.stack()

    def run(self, iterator: Iterator, num_steps: int, advance: Callable[[int], None]) -> Any:
        """Returns the metrics of the steps: in the structure of the step, float32 [steps made].

        The loop ends early after a step with a value that is not finite.

        Args:
            iterator: gives batches over all replicas.
            num_steps: how many steps to make.
            advance: is told now and then how many more steps have been made.

        Raises:
            LoopInterrupted: there was an interrupt; the step in hand has been made.
        """
        self._stop.assign(False)
        self._steps_done.assign(0)
        told = 0
        interrupted = False
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(self._loop, iterator, tf.constant(num_steps))
            try:
                while not future.done():
                    try:
                        future.exception(POLL_SECONDS)
                    except TimeoutError:
                        pass
                    done = int(self._steps_done.numpy())
                    advance(done - told)
                    told = done
            except KeyboardInterrupt:
                interrupted = True
                self._stop.assign(True)
        columns: np.ndarray = future.result().numpy().T
        rows = tf.nest.pack_sequence_as(self._structure, list(columns))
        if interrupted:
            raise LoopInterrupted(rows)
        return rows
