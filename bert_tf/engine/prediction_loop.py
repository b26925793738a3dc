"""The prediction loop: a model's outputs for the examples of many batches, on the devices."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.engine import distribution, interrupts
from bert_tf.engine.loop_control import LoopControl
from bert_tf.engine.replicate import ReplicaStep, replicate


class PredictionLoop:
    """Predicts batches of one shape one after another; traced once for each shape.

    Args:
        strategy: the devices.
        replica_step: the step of one replica; it returns tensors [batch, ...] by name.
    """

    def __init__(self, strategy: tf.distribute.Strategy, replica_step: ReplicaStep):
        self._strategy = strategy
        # A function of its own: shapes are found by the same trace that the loop then calls.
        self._replica_step = tf.function(replica_step, autograph=False)
        self._control = LoopControl(strategy)
        self._host = self._control.host
        self._names: list[str] = []
        # Without XLA on a CPU: there prediction takes twice as long with it.
        self._step = replicate(strategy, self._replica_step, self._flatten, 0, False)
        self._loop = tf.function(self._run_steps, autograph=False)  # converting takes 0.2 s

    def _flatten(self, outputs: dict[str, tf.Tensor]) -> list[tf.Tensor]:
        self._names = sorted(outputs)
        return [outputs[name] for name in self._names]

    def _output_specs(self, iterators: Sequence[Iterator]) -> list[tf.TensorSpec]:
        """Returns dtype and shape of each output for a whole batch."""
        replicas = self._strategy.num_replicas_in_sync
        hosts = distribution.input_shards(self._strategy)[0].count
        part = {
            name: tf.TensorSpec([spec.shape[0] * hosts // replicas, *spec.shape[1:]], spec.dtype)
            for name, spec in iterators[0].element_spec.items()
        }
        traced = self._replica_step.get_concrete_function(part, tf.TensorSpec([2], tf.int32))
        outputs = traced.structured_outputs
        return [
            tf.TensorSpec([replicas * x.shape[0], *x.shape[1:]], x.dtype)
            for x in (outputs[name] for name in sorted(outputs))
        ]

    def _run_steps(self, iterators: Sequence[Iterator], num_steps: tf.Tensor) -> list[tf.Tensor]:
        """Returns each output of all steps, [steps, batch, ...]."""
        with tf.device(self._host):
            arrays = [
                tf.TensorArray(spec.dtype, size=0, dynamic_size=True, element_shape=spec.shape)
                for spec in self._output_specs(iterators)
            ]

        def step(done: tf.Tensor, arrays: list[tf.TensorArray]):
            outputs = self._step([iterator.get_next() for iterator in iterators])
            with tf.device(self._host):
                batches = [tf.concat(parts, 0) for parts in outputs]
                arrays = [array.write(done, x) for array, x in zip(arrays, batches, strict=True)]
            self._control.steps_done.assign(done + 1)
            return done + 1, arrays

        _, arrays = tf.while_loop(
            lambda done, _: (done < num_steps) & ~self._control.stop, step, (0, arrays)
        )
        return [array.stack() for array in arrays]

    @interrupts.hold()
    def run(
        self, iterators: Sequence[Iterator], num_steps: int, advance: Callable[[int], None]
    ) -> dict[str, np.ndarray]:
        """Returns the outputs by name, [steps * batch, ...], in the order of the examples.

        Args:
            iterators: give the batches, one for each of `distribution.input_shards`.
            num_steps: number of batches.
            advance: called now and then with the number of further batches that are done.

        Raises:
            KeyboardInterrupt: there was an interrupt; the step in hand has been made.
        """
        if interrupts.held():
            raise interrupts.held()

        stacked = self._control.run(
            lambda: self._loop(list(iterators), tf.constant(num_steps)), advance
        )
        outputs = [x.numpy() for x in stacked]
        if interrupts.held():
            raise interrupts.held()
        columns = [x.reshape(-1, *x.shape[2:]) for x in outputs]
        return dict(zip(self._names, columns, strict=True))
