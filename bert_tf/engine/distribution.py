"""Devices: the `tf.distribute` strategy, each host's part of a batch, and the peak FLOP/s."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from absl import logging

from bert_tf.errors import UserError, as_given, as_line
from bert_tf.start import lazy_tensorflow as tf

# How gradients are reduced over replicas: see `steps.reduce_gradients`.
GRADIENT_REDUCTIONS = ("local_clip_sum", "global_mean_clip")
PJRT = "pjrt"  # the value of --tpu for JAX's devices
_TF_CONFIG = (
    '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}'
)
STRATEGIES = ("one_device", "mirrored", "multi_worker_mirrored")


def get_strategy(
    distribution_strategy: str = STRATEGIES[0], num_cpu_devices: int = 1
) -> tf.distribute.Strategy:
    """Returns the strategy. Call this before TensorFlow computes anything.

    `distribution_strategy` is "one_device" for one GPU, or the CPU; "mirrored" for every GPU of
    this machine, or each of the `num_cpu_devices` logical devices that the CPU is split into;
    "multi_worker_mirrored" for the devices of all machines in the environment variable TF_CONFIG.
    """
    if distribution_strategy != "mirrored" and num_cpu_devices > 1:
        raise UserError(
            f"--num_cpu_devices={num_cpu_devices} needs --distribution_strategy=mirrored; it is"
            f" {distribution_strategy}"
        )
    if distribution_strategy == "one_device":
        return tf.distribute.get_strategy()
    if distribution_strategy == "multi_worker_mirrored":
        strategy = _multi_worker_strategy()
    else:
        devices = None
        if num_cpu_devices > 1:
            cpu = tf.config.list_physical_devices("CPU")[0]
            logical = [tf.config.LogicalDeviceConfiguration()] * num_cpu_devices
            tf.config.set_logical_device_configuration(cpu, logical)
            devices = [f"CPU:{i}" for i in range(num_cpu_devices)]
        strategy = tf.distribute.MirroredStrategy(devices)
    names = ", ".join(strategy.extended.worker_devices)
    logging.info("Running on %d replicas: %s", strategy.num_replicas_in_sync, names)
    return strategy


def _multi_worker_strategy() -> tf.distribute.Strategy:
    problem: Any = "TF_CONFIG lists no machine"
    try:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        if strategy.cluster_resolver.cluster_spec().jobs:  # or each machine would train by itself
            return strategy
    except (LookupError, TypeError, ValueError, tf.errors.OpError) as error:
        problem = error
    raise UserError(
        "--distribution_strategy=multi_worker_mirrored needs the environment variable TF_CONFIG,"
        f" on each machine with its own index, like {_TF_CONFIG}; {as_line(str(problem))}"
    )


def get_tpu_strategy(
    tpu: str, num_tpu_cores: int | None = None, flag: str = "tpu"
) -> tf.distribute.TPUStrategy:
    """Returns the strategy for all cores of this machine's TPU; checks `num_tpu_cores`, if given.

    `tpu`, which `flag` (no dashes) sets, must be "local". The original's programs also took names
    and addresses of TPU nodes.
    """
    if tpu != "local":
        raise UserError(
            f"--{flag}={as_given(tpu)} names a TPU node, a TPU on a different machine. Google ended"
            " TPU nodes in April 2025: run on the TPU's own machine, with --tpu=pjrt or --tpu=local"
        )
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except Exception as error:  # TensorFlow raises errors of all kinds
        raise UserError(
            f"--tpu=local: no TPU can be reached ({_cause(error)}). On a TPU machine `local` needs"
            " TensorFlow's build for TPUs; with the extra `pjrt` give --tpu=pjrt. Elsewhere leave"
            " --tpu and --use_tpu out"
        ) from error
    strategy = tf.distribute.TPUStrategy(resolver)
    cores = strategy.num_replicas_in_sync
    if num_tpu_cores is not None and cores != num_tpu_cores:
        raise UserError(f"--num_tpu_cores={num_tpu_cores}, but --tpu={tpu} has {cores} cores")
    logging.info("Running on %d TPU cores", cores)
    return strategy


def _cause(error: Exception) -> str:
    cause = getattr(error, "reason", None) or getattr(error, "message", None) or error
    text = " ".join(str(cause).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]} [...]"


@dataclasses.dataclass(frozen=True)
class InputShard:
    """The part of every batch, `index` of `count`, that a host reads and feeds to its replicas.

    `device` is the host's CPU, and `replicas` the number of the run's replicas, over all hosts.
    """

    index: int = 0
    count: int = 1
    device: str = "CPU:0"
    replicas: int = 1


ONE_HOST = InputShard()


def input_shard(strategy: tf.distribute.Strategy) -> InputShard:
    """Returns the shard that this process reads: each host runs the program and reads one."""
    if runs_by_pjrt(strategy):
        return strategy.input_shard
    replicas = strategy.num_replicas_in_sync
    kinds = (tf.distribute.TPUStrategy, tf.distribute.MultiWorkerMirroredStrategy)
    if not isinstance(strategy, kinds):
        return InputShard(replicas=replicas)
    device = tf.DeviceSpec.from_string(strategy.extended.worker_devices[0])
    host = device.replace(device_type="CPU", device_index=0).to_string()
    if isinstance(strategy, tf.distribute.TPUStrategy):
        return InputShard(0, 1, host, replicas)
    resolver = strategy.cluster_resolver
    cluster = resolver.cluster_spec().as_dict()
    workers = [(kind, i) for kind in ("chief", "worker") for i in range(len(cluster.get(kind, ())))]
    index = workers.index((resolver.task_type, resolver.task_id))
    return InputShard(index, len(workers), host, replicas)


def runs_by_pjrt(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether the strategy is a `pjrt.PjrtStrategy`; importing that class needs JAX."""
    return hasattr(strategy, "mesh")


def on_tpu(strategy: tf.distribute.Strategy) -> bool:
    if runs_by_pjrt(strategy):
        return strategy.on_tpu
    return isinstance(strategy, tf.distribute.TPUStrategy)


def several_processes(strategy: tf.distribute.Strategy) -> bool:
    return input_shard(strategy).count > 1


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether this process writes the checkpoints and results of its run."""
    return input_shard(strategy).index == 0


_at_failure: list[Callable[[int], None]] = []


def at_failure(end: Callable[[int], None]) -> None:
    """Makes `fail` call `end` with the exit status; for runs of several processes."""
    _at_failure[:] = [end]


def fail(status: int) -> NoReturn:
    """Exits after a failure, through the function given to `at_failure`, if any."""
    for end in _at_failure:
        end(status)
    sys.exit(status)


def replica_batch_size(strategy: tf.distribute.Strategy, batch_size: int, flag: str) -> int:
    """Returns each replica's number of examples in a batch; `flag` sets the batch size."""
    replicas = strategy.num_replicas_in_sync
    if batch_size % replicas:
        raise UserError(
            f"--{flag} ({batch_size}) must be a multiple of the number of replicas ({replicas})"
        )
    return batch_size // replicas


def split_batch(
    strategy: tf.distribute.Strategy, batch: dict[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Splits the part of a batch that this process read, along the first axis, for its replicas."""
    if strategy.num_replicas_in_sync == 1:
        return batch
    shard = input_shard(strategy)
    replicas = strategy.num_replicas_in_sync // shard.count  # of this process
    with tf.device(shard.device):
        parts = {name: tf.split(value, replicas) for name, value in batch.items()}

    def part_of_replica(context):
        i = context.replica_id_in_sync_group % replicas
        return {name: values[i] for name, values in parts.items()}

    return strategy.experimental_distribute_values_from_function(part_of_replica)


def make_barrier(strategy: tf.distribute.Strategy) -> Callable[[float], list[float]]:
    """Returns a function that exchanges a number among the processes of the run.

    It waits until every process has called it, and returns their numbers in order.
    """
    if not several_processes(strategy):
        return lambda number: [number]
    if runs_by_pjrt(strategy):
        return lambda number: strategy.gather(number).tolist()
    shard = input_shard(strategy)

    @tf.function(autograph=False)
    def meet(number: tf.Tensor) -> tf.Tensor:
        def one():
            context = tf.distribute.get_replica_context()
            # A sum of vectors: each process fills its own element, on its first replica.
            replicas = context.num_replicas_in_sync // shard.count
            first = tf.cast(context.replica_id_in_sync_group % replicas == 0, number.dtype)
            here = tf.one_hot(shard.index, shard.count, number * first, dtype=number.dtype)
            return context.all_reduce(tf.distribute.ReduceOp.SUM, here)

        return strategy.experimental_local_results(strategy.run(one))[0]

    return lambda number: meet(tf.constant(number, tf.float64)).numpy().tolist()


# FLOP/s of a chip in dense bfloat16 products, by the name of its devices in JAX. Sources:
# https://docs.cloud.google.com/tpu/docs/NAME for v3, v4, v5e, v5p, v6e and tpu7x; for v2 "A Domain
# Specific Supercomputer for Training Deep Neural Networks", https://dl.acm.org/doi/10.1145/3360307;
# NVIDIA's data sheets, without sparsity.
CHIP_FLOPS = {
    "TPU v2": 46e12,
    "TPU v3": 123e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5": 459e12,
    "TPU v6 lite": 918e12,
    "TPU7x": 2307e12,
    "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA H100 80GB HBM3": 989e12,
    "NVIDIA H200": 989e12,
}
_TWO_DEVICES = ("TPU v2", "TPU v3", "TPU7x")  # each chip is two devices in JAX


def device_kind(strategy: tf.distribute.Strategy) -> str:
    """Returns the name that JAX or TensorFlow gives to a replica's device."""
    if runs_by_pjrt(strategy):
        return strategy.mesh.devices.flat[0].device_kind
    gpus = tf.config.list_physical_devices("GPU")
    if on_tpu(strategy) or not gpus:  # TensorFlow does not name the model
        return "TPU" if on_tpu(strategy) else "CPU"
    return tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU")


def peak_flops(strategy: tf.distribute.Strategy) -> float | None:
    """Returns the peak of all replicas' devices in FLOP/s; None if it is unknown, as on CPUs."""
    kind = device_kind(strategy)
    if kind not in CHIP_FLOPS:
        return None
    return strategy.num_replicas_in_sync * CHIP_FLOPS[kind] / (2 if kind in _TWO_DEVICES else 1)
