"""--tpu and its companions -> a `tf.distribute.Strategy`."""

import tensorflow as tf
from absl import logging


def get_strategy(
    tpu: str | None = None,
    tpu_zone: str | None = None,
    gcp_project: str | None = None,
    num_tpu_cores: int | None = None,
) -> tf.distribute.Strategy:
    """Returns a TPUStrategy for a named TPU, else the strategy of the one GPU or CPU at hand.

    Args:
        tpu: "local" for the TPU of this machine, a Cloud TPU's name, or grpc://ADDRESS:8470;
            None for no TPU.
        tpu_zone: zone of a named TPU; None to ask the machine's metadata.
        gcp_project: project of a named TPU; None to ask the machine's metadata.
        num_tpu_cores: how many cores the TPU must have; None for however many it has.

    Raises:
        ValueError: there is no such TPU, or it has another number of cores.
    """
    if not tpu:
        return tf.distribute.get_strategy()
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
            tpu=tpu, zone=tpu_zone, project=gcp_project
        )
        if tpu != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"--tpu={tpu}: no TPU can be reached ({getattr(error, 'message', error)}). On a TPU"
            " machine `local` is its own TPU; elsewhere leave --tpu and --use_tpu out."
        ) from error
    strategy = tf.distribute.TPUStrategy(resolver)
    cores = strategy.num_replicas_in_sync
    if num_tpu_cores is not None and cores != num_tpu_cores:
        raise ValueError(f"--num_tpu_cores={num_tpu_cores}, but --tpu={tpu} has {cores} cores")
    logging.info("Running on %d TPU cores", cores)
    return strategy


def replica_batch_size(strategy: tf.distribute.Strategy, batch_size: int, flag: str) -> int:
    """Returns the examples of one replica in a batch of `batch_size` over all of them.

    Raises:
        ValueError: the replicas do not divide the batch.
    """
    replicas = strategy.num_replicas_in_sync
    if batch_size % replicas:
        raise ValueError(
            f"--{flag} ({batch_size}) must be a multiple of the number of replicas ({replicas})"
        )
    return batch_size // replicas


def split_batch(
    strategy: tf.distribute.Strategy, batch: dict[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Returns the batch cut into one part a replica along the first axis."""
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        return batch
    parts = {name: tf.split(value, replicas) for name, value in batch.items()}
    return strategy.experimental_distribute_values_from_function(
        lambda context: {
            name: part[context.replica_id_in_sync_group] for name, part in parts.items()
        }
    )
