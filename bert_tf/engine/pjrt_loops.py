"""Runs the loops of `bert_tf.engine.loops` on devices that PJRT drives.

Python starts each step and does not wait for it: while one step runs, the next one's batch is
already on the devices. A second thread fetches the results.
"""

import collections
import functools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.bounds import inputs_were_checked, stored_scores
from bert_tf.engine import distribution, interrupts
from bert_tf.engine.distribution import device_kind
from bert_tf.engine.length_buckets import Buckets
from bert_tf.engine.pjrt import PjrtStrategy, Step, together
from bert_tf.engine.steps import ReplicaStep, replicas_are
from bert_tf.seeds import fold_in


class _Loop:
    """Base of training and prediction: compiles a step for each shape, and runs steps."""

    _several = False  # whether other processes must agree on the last step

    def __init__(self, strategy: PjrtStrategy, function: Callable[..., Any], joins: bool):
        self._strategy, self._joins = strategy, joins  # see `Step`
        # XLA drops assertions, but TensorFlow would turn the tensors that they read into constants.
        traced = inputs_were_checked()(function)
        if device_kind(strategy) == "TPU7x":
            traced = stored_scores()(traced)
        self._function = tf.function(traced, jit_compile=True, autograph=False)
        self._steps: dict[Any, Step] = {}

    def step_of(self, batch: dict[str, Any]) -> Step:
        """Returns the step for whole batches of this shape; each shape is lowered once."""
        specs = {name: tf.TensorSpec(x.shape, x.dtype) for name, x in batch.items()}
        key = frozenset(specs.items())
        if key not in self._steps:
            self._steps[key] = Step(self._strategy, self._function, specs, self._joins)
        return self._steps[key]

    @interrupts.hold()
    def _make_steps(
        self,
        batches: Iterator[dict[str, Any]],
        num_steps: int,
        advance: Callable[[int], None],
        may_go_on: Callable[[Any], bool] = lambda result: True,
    ) -> tuple[list[Any], float]:
        """Returns each step's results, on the host, and the seconds spent waiting for input."""
        hold = functools.cache(Step.hold)  # variables are assigned between loops only
        results: list[Any] = []
        arrived: list[float] = []
        free = [time.monotonic()]
        running: collections.deque[Future] = collections.deque()

        def take() -> bool:
            """Waits for the oldest running step; returns whether to go on."""
            result, finished = running.popleft().result()
            results.append(result)
            free.append(finished)
            advance(1)
            return may_go_on(result)

        with together(), ThreadPoolExecutor(1) as pool:
            goes_on = True
            while goes_on and len(arrived) < num_steps:
                if interrupts.held() and not self._several:
                    break
                batch = next(batches)
                arrived.append(time.monotonic())
                if len(running) > 1:
                    goes_on = take()  # this batch is still used: the input's position counts it
                step = self.step_of(batch)
                running.append(pool.submit(_fetch, step(batch, *hold(step))))
            while running:
                take()
        self._strategy.fetch()
        return results, sum(max(0.0, a - f) for a, f in zip(arrived, free, strict=False))


def _fetch(results: Any) -> tuple[Any, float]:
    return tf.nest.map_structure(np.asarray, results), time.monotonic()


class PjrtTraining(_Loop):
    """Training steps; for the arguments see `loops.TrainingLoop`. XLA always compiles them."""

    def __init__(
        self,
        strategy: PjrtStrategy,
        replica_step: ReplicaStep,
        stack: Callable[..., tf.Tensor],
        seed: int,
        buckets: Buckets | None,
        compile_on_cpu: bool,
    ):
        self._buckets = buckets
        self._lengths: list[int] = []  # of the batches of a run
        self._several = distribution.several_processes(strategy)
        seeds = [seed % 2**31, 0]

        def step(batch: dict[str, tf.Tensor], number: tf.Tensor) -> tf.Tensor:
            features = dict(batch)
            stop = [features.pop("stop")[0]] if self._several else []
            replicas = strategy.replicas(number)
            with replicas_are(replicas):
                metrics = replica_step(features, fold_in(tf.constant(seeds, tf.int32), number))
            (total,) = replicas.sum([stack(metrics, *stop)])
            return total / replicas.count

        super().__init__(strategy, step, joins=False)

    def _batches(self, iterator: Any) -> Iterator[dict[str, Any]]:
        while True:
            batch = {name: x.numpy() for name, x in iterator.get_next().items()}
            if self._buckets is not None:
                longest = batch.pop("longest")
                index = int(self._buckets.index(longest))
                batch = self._buckets.trim(batch, index)
                self._lengths.append(self._buckets.lengths[index])
            if self._several:
                local = len(self._strategy.mesh.local_devices)
                batch["stop"] = np.full(local, interrupts.held() is not None, np.float32)
            yield self._strategy.put(batch)

    def run(
        self, iterator: Iterator, num_steps: int, advance: Callable[[int], None]
    ) -> tuple[np.ndarray, float]:
        def may_go_on(row: np.ndarray) -> bool:
            return bool(np.isfinite(row).all()) and not (self._several and row[-1])

        self._lengths.clear()
        rows, waited = self._make_steps(self._batches(iterator), num_steps, advance, may_go_on)
        if self._buckets is not None:
            rows = [[length, *row] for length, row in zip(self._lengths, rows, strict=True)]
        return np.array(rows, np.float32), waited


class PjrtPrediction(_Loop):
    def __init__(self, strategy: PjrtStrategy, replica_step: ReplicaStep):
        def step(features: dict[str, tf.Tensor], number: tf.Tensor) -> dict[str, tf.Tensor]:
            return replica_step(features, fold_in(tf.zeros([2], tf.int32), number))

        super().__init__(strategy, step, joins=True)

    def run(
        self, iterator: Iterator, num_steps: int, advance: Callable[[int], None]
    ) -> dict[str, np.ndarray]:
        batches = (self._strategy.put(batch) for batch in iterator)
        steps, _ = self._make_steps(batches, num_steps, advance)
        names = steps[0] if steps else ()
        return {name: np.array([outputs[name] for outputs in steps]) for name in names}
