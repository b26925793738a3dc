"""Runs loops of steps on the devices; only under PJRT does Python start each step."""

import functools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.config_pb2 import ConfigProto
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
from tensorflow.python.eager import context

from bert_tf.engine import distribution, interrupts
from bert_tf.engine.length_buckets import Buckets
from bert_tf.engine.pjrt_loops import PjrtPrediction, PjrtTraining
from bert_tf.engine.steps import Objective, ReplicaStep
from bert_tf.optimization import AdamWeightDecayOptimizer
from bert_tf.seeds import fold_in


def may_compile(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether a replica's step can be compiled on its own: one replica, not on a TPU.

    On a TPU the whole loop is compiled, and under PJRT the step over all replicas. Inside
    strategy.run, jit_compile works only for one replica.
    """
    if distribution.on_tpu(strategy) or distribution.runs_by_pjrt(strategy):
        return False
    return strategy.num_replicas_in_sync == 1


def on_gpu() -> bool:
    return bool(tf.config.list_physical_devices("GPU"))


def replicate(
    strategy: tf.distribute.Strategy,
    replica_step: ReplicaStep,
    combine: Callable[..., Any],
    seed: int,
    compile_on_cpu: bool,
) -> Callable[..., Any]:
    """Returns the function that `strategy.run` calls on each replica: (features, *more) -> tensors.

    `combine` is called as (outputs of the replica's step, *more); it may reduce over replicas.
    Each replica's seed is `seed` folded with the replica's number. XLA always compiles the step on
    a single GPU, and on a CPU with `compile_on_cpu` (see `xla_pays_on_cpu`).
    """
    seeds = tf.constant([seed % 2**31, 0], tf.int32)

    # A step does not need AutoGraph, and tracing is much faster without it.
    @tf.autograph.experimental.do_not_convert
    def step(features, *more):
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return combine(replica_step(features, fold_in(seeds, replica)), *more)

    if may_compile(strategy) and (compile_on_cpu or on_gpu()):
        return tf.function(step, jit_compile=True, autograph=False)
    return step


def xla_pays_on_cpu(model: keras.Model | Objective) -> bool:
    """Returns whether XLA makes a model's steps faster on a CPU.

    It does in float32. In bfloat16 only TensorFlow's own kernels use AVX512_BF16 and AMX: with
    three layers of BERT-Base a step takes 0.7 s, and 1.1 s with XLA.
    """
    return all(layer.compute_dtype != "bfloat16" for layer in model.layers)


def update_function(
    strategy: tf.distribute.Strategy, model: keras.Model, optimizer: AdamWeightDecayOptimizer
) -> Callable[..., None]:
    """Returns `optimizer.apply_reduced`, compiled if that pays.

    It pays on a CPU with bfloat16, where the step is not compiled: TensorFlow's kernels read the
    float32 variables and moments once for each operation and take 6 times as long.
    """
    if xla_pays_on_cpu(model) or on_gpu() or not may_compile(strategy):
        return optimizer.apply_reduced
    return tf.function(optimizer.apply_reduced, jit_compile=True, autograph=False)


POLL_SECONDS = 0.5


def _set_graph_optimizers() -> None:
    """Limits TensorFlow's graph optimizers for the functions that this thread calls from now on.

    The memory optimizer is off: in graphs that use much memory it replaces AddN by additions to one
    variable, in the order in which the summands become ready, so the last bits differ between runs.
    The second pass of all optimizers is off: it takes 0.8 s for a training step of 6 layers and
    does not make it faster.
    """
    options = context.context().function_call_options
    config = ConfigProto.FromString(options.config_proto_serialized)
    rewriting = config.graph_options.rewrite_options
    rewriting.memory_optimization = RewriterConfig.NO_MEM_OPT
    rewriting.meta_optimizer_iterations = RewriterConfig.ONE
    options.config_proto_serialized = config


class _Graph:
    """Base of training and prediction: starts, watches and stops a compiled loop.

    The loop and this process share two variables on the CPU: the loop ends after the current step
    when `_stop` is set, and counts its steps in `_steps_done`.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self._strategy = strategy
        self._host = distribution.input_shard(strategy).device
        with tf.device(self._host):
            self._stop = tf.Variable(False, trainable=False)
            self._steps_done = tf.Variable(0, trainable=False)
        # TensorFlow warns if a function is traced often, and takes all loops of a process for
        # one function; partials are counted separately. AutoGraph would take 0.5 s.
        self._loop = tf.function(functools.partial(self._run_steps), autograph=False)

    @interrupts.hold()
    def run(self, iterator: Iterator, num_steps: int, advance: Callable[[int], None]) -> Any:
        """Runs the loop in a second thread and returns its result.

        This thread notices interrupts, which are raised after the current step unless the caller
        holds them, and calls `advance` now and then with the number of steps made since the last
        call.
        """
        self._stop.assign(interrupts.held() is not None)
        self._steps_done.assign(0)
        # A TPU's host runs the loop. With a GPU, naming a device would move the step to the CPU.
        on_tpu = isinstance(self._strategy, tf.distribute.TPUStrategy)
        device = tf.device(self._host if on_tpu else None)
        told = 0

        def begin() -> None:
            device.__enter__()
            _set_graph_optimizers()

        with ThreadPoolExecutor(1, initializer=begin) as pool:
            future = pool.submit(self._loop, iterator, tf.constant(num_steps))
            try:
                while not future.done():
                    if interrupts.held():
                        self._stop.assign(True)
                    wait([future], POLL_SECONDS)
                    done = int(self._steps_done.numpy())
                    advance(done - told)
                    told = done
            except BaseException:
                self._stop.assign(True)
                raise
        return future.result()


class _GraphTraining(_Graph):
    """Training steps in one `tf.function`; for the arguments see `TrainingLoop`."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        replica_step: ReplicaStep,
        stack: Callable[..., tf.Tensor],
        seed: int,
        buckets: Buckets | None,
        compile_on_cpu: bool,
    ):
        super().__init__(strategy)
        self._stack, self._buckets = stack, buckets
        self._several = distribution.several_processes(strategy)
        compiled = compile_on_cpu and buckets is None
        self.step = replicate(strategy, replica_step, self._average, seed, compiled)

    def _average(self, metrics: Any, *stop: tf.Tensor) -> tf.Tensor:
        row, context = self._stack(metrics, *stop), tf.distribute.get_replica_context()
        if context.num_replicas_in_sync == 1:
            return row
        return context.all_reduce(tf.distribute.ReduceOp.MEAN, row)

    def _run_steps(self, iterator: Iterator, num_steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the metrics, float32 [steps, metrics], and the seconds of waiting for input."""
        with tf.device(self._host):
            rows = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[None])
            waited, free_since = tf.constant(0.0, tf.float64), tf.timestamp()

        def go_on(done, good_before, *_) -> tf.Tensor:
            going = (done < num_steps) & good_before
            return going if self._several else going & ~self._stop

        # `good` is checked one step late, so that the devices already have their next step while
        # the host waits for the metrics of the last one.
        def step(done, good_before, good, rows, waited, free_since) -> tuple[Any, ...]:
            batch = iterator.get_next()
            with tf.device(self._host), tf.control_dependencies(tf.nest.flatten(batch)):
                waited += tf.maximum(tf.timestamp() - free_since, 0.0)
            stop = (tf.cast(self._stop, tf.float32),) if self._several else ()
            if self._buckets is None:
                parts = distribution.split_batch(self._strategy, batch)
                row = self._strategy.run(self.step, (parts, *stop))
            else:
                row = self._step_in_bucket(batch, *stop)
            with tf.device(self._host):
                # All replicas have the same row.
                row = tf.identity(self._strategy.experimental_local_results(row)[0])
                with tf.control_dependencies([row]):
                    free_since = tf.timestamp()
                rows = rows.write(done, row)
                is_good = tf.reduce_all(tf.math.is_finite(row))
                if self._several:
                    is_good &= row[-1] == 0.0  # no process stops
            self._steps_done.assign(done + 1)
            return done + 1, good, is_good, rows, waited, free_since

        yes = tf.constant(True)
        start = tf.constant(0), yes, yes, rows, waited, free_since
        _, _, _, rows, waited, _ = tf.while_loop(go_on, step, start)
        return rows.stack(), waited

    def _step_in_bucket(self, batch: dict[str, tf.Tensor], *stop: tf.Tensor) -> tf.Tensor:
        """Makes a step on the batch cut to its bucket; returns the bucket's length and metrics."""
        longest = batch.pop("longest")  # the same on all hosts
        with tf.device(self._host):
            index = self._buckets.index(longest)

        def cut_to(bucket: int) -> tf.Tensor:
            cut = self._buckets.trim(batch, bucket)
            parts = distribution.split_batch(self._strategy, cut)
            row = self._strategy.run(self.step, (parts, *stop))
            row = self._strategy.experimental_local_results(row)[0]
            return tf.concat([[float(self._buckets.lengths[bucket])], row], 0)

        count = len(self._buckets.lengths)
        if count == 1:
            return cut_to(0)
        return tf.switch_case(index, [functools.partial(cut_to, i) for i in range(count)])


class _GraphPrediction(_Graph):
    def __init__(self, strategy: tf.distribute.Strategy, replica_step: ReplicaStep):
        super().__init__(strategy)
        # A tf.function, so that the loop reuses the trace that gives the shapes.
        self._replica_step = tf.function(replica_step, autograph=False)
        # No XLA on a CPU, where it makes prediction take twice as long.
        self._step = replicate(strategy, self._replica_step, self._flatten, 0, False)

    @staticmethod
    def _flatten(outputs: dict[str, tf.Tensor]) -> list[tf.Tensor]:
        return [outputs[name] for name in sorted(outputs)]

    def _output_specs(self, iterator: Iterator) -> dict[str, tf.TensorSpec]:
        replicas = self._strategy.num_replicas_in_sync
        part = {
            name: tf.TensorSpec([spec.shape[0] // replicas, *spec.shape[1:]], spec.dtype)
            for name, spec in iterator.element_spec.items()
        }
        traced = self._replica_step.get_concrete_function(part, tf.TensorSpec([2], tf.int32))
        return {
            name: tf.TensorSpec([replicas * x.shape[0], *x.shape[1:]], x.dtype)
            for name, x in sorted(traced.structured_outputs.items())
        }

    def _run_steps(self, iterator: Iterator, num_steps: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns each output by name, [steps, batch, ...]."""
        specs = self._output_specs(iterator)
        with tf.device(self._host):
            arrays = [
                tf.TensorArray(spec.dtype, size=0, dynamic_size=True, element_shape=spec.shape)
                for spec in specs.values()
            ]

        def step(done: tf.Tensor, arrays: list[tf.TensorArray]):
            parts = distribution.split_batch(self._strategy, iterator.get_next())
            outputs = self._strategy.run(self._step, (parts,))
            with tf.device(self._host):
                local = self._strategy.experimental_local_results
                batches = [tf.concat(local(output), 0) for output in outputs]
                arrays = [array.write(done, x) for array, x in zip(arrays, batches, strict=True)]
            self._steps_done.assign(done + 1)
            return done + 1, arrays

        _, arrays = tf.while_loop(
            lambda done, _: (done < num_steps) & ~self._stop, step, (0, arrays)
        )
        return {name: array.stack() for name, array in zip(specs, arrays, strict=True)}


class TrainingLoop:
    """Makes training or evaluation steps on batches of one shape; traced once.

    `replica_step` returns float32 scalars in any structure. They are averaged over the replicas,
    a weighted sum and its weight alike, so ratios are right. For `seed` and `compile_on_cpu` see
    `replicate`.

    With `buckets`, each batch is cut to the first length that its `longest` fits in, and the step
    is traced and compiled once for each length. On a CPU XLA is then not used: it would save a
    tenth of the time, less than compiling many lengths takes.

    Attributes:
        input_seconds: how long the devices waited for input in the last `run`: from a step's
            metrics to the next batch, as the host sees it. After an error it is 0.
        lengths: the lengths that the batches of the last `run` were cut to, float32 [steps made];
            None without `buckets`.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        replica_step: ReplicaStep,
        seed: int = 0,
        buckets: Buckets | None = None,
        compile_on_cpu: bool = True,
    ):
        # Processes that make steps together must agree on the last step. So they hold interrupts,
        # and each adds a stop flag to the metrics, which are averaged over all processes.
        self._several = distribution.several_processes(strategy)
        self.input_seconds = 0.0
        self.lengths: np.ndarray | None = None
        self._cuts = buckets is not None
        self._structure: Any = None
        runner = PjrtTraining if distribution.runs_by_pjrt(strategy) else _GraphTraining
        self.runner = runner(strategy, replica_step, self._stack, seed, buckets, compile_on_cpu)

    def _stack(self, metrics: Any, *stop: tf.Tensor) -> tf.Tensor:
        self._structure = tf.nest.map_structure(lambda _: None, metrics)
        return tf.stack([tf.cast(x, tf.float32) for x in (*tf.nest.flatten(metrics), *stop)])

    def run(self, iterator: Iterator, num_steps: int, advance: Callable[[int], None]) -> Any:
        """Returns the metrics in the structure of the step, each float32 [steps made].

        For the arguments see `_Graph.run`. If a value is not finite, the loop ends early, after at
        most two more steps. It then returns the values even if there was an interrupt.
        """
        self.input_seconds = 0.0
        interrupt = interrupts.held()
        if interrupt and not self._several:
            raise interrupt
        rows, waited = self.runner.run(iterator, num_steps, advance)
        self.input_seconds = float(waited)
        columns = list(np.asarray(rows).T)
        self.lengths = columns.pop(0) if self._cuts and columns else None
        interrupt = interrupts.held()
        if self._several:
            stopped = columns.pop().any()
            interrupt = (interrupt or interrupts.Terminated()) if stopped else None
        if interrupt and np.isfinite(columns).all():
            raise interrupt
        return tf.nest.pack_sequence_as(self._structure, columns)


class PredictionLoop:
    """Predicts batches with `replica_step`, which returns tensors [batch, ...] by name."""

    def __init__(self, strategy: tf.distribute.Strategy, replica_step: ReplicaStep):
        runner = PjrtPrediction if distribution.runs_by_pjrt(strategy) else _GraphPrediction
        self.runner = runner(strategy, replica_step)

    def run(
        self, iterator: Iterator, num_steps: int, advance: Callable[[int], None]
    ) -> dict[str, np.ndarray]:
        """Returns the outputs by name, [steps * batch, ...]; for the arguments see `_Graph.run`."""
        if interrupts.held():
            raise interrupts.held()
        found = self.runner.run(iterator, num_steps, advance)
        outputs = {name: np.asarray(x) for name, x in found.items()}
        if interrupts.held():
            raise interrupts.held()
        return {name: x.reshape(-1, *x.shape[2:]) for name, x in outputs.items()}
