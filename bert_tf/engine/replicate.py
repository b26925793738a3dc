"""Wraps the step of one replica for `strategy.run`; compiles it with XLA where that is faster."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from bert_tf.engine import distribution
from bert_tf.engine.steps import Objective
from bert_tf.optimization import AdamWeightDecayOptimizer
from bert_tf.seeds import fold_in

# The step of one replica: (its part of the batch, its seed, int32 [2]) -> tensors in any structure.
ReplicaStep = Callable[[dict[str, tf.Tensor], tf.Tensor], Any]


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

    Args:
        combine: called as (outputs of the replica's step, *more); it may reduce over replicas.
        seed: folded with the replica's number into the seed of each replica.
        compile_on_cpu: whether XLA compiles the step on a CPU; on a single GPU it always does.
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
