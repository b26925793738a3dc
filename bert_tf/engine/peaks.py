"""The published peaks of the devices that steps run on."""

from __future__ import annotations

from bert_tf.engine import distribution
from bert_tf.start import lazy_tensorflow as tf

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
    if distribution.runs_by_pjrt(strategy):
        return strategy.mesh.devices.flat[0].device_kind
    gpus = tf.config.list_physical_devices("GPU")
    if distribution.on_tpu(strategy) or not gpus:  # TensorFlow does not name the model
        return "TPU" if distribution.on_tpu(strategy) else "CPU"
    return tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU")


def peak_flops(strategy: tf.distribute.Strategy) -> float | None:
    """Returns the peak of all replicas' devices in FLOP/s; None if it is unknown, as on CPUs."""
    kind = device_kind(strategy)
    if kind not in CHIP_FLOPS:
        return None
    return strategy.num_replicas_in_sync * CHIP_FLOPS[kind] / (2 if kind in _TWO_DEVICES else 1)
