"""The dtype in which a loaded model answers, chosen by a look at the processor."""

import functools
from pathlib import Path

import keras
import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError
from bert_tf.model.dtypes import ROUNDED
from bert_tf.pretrained.arguments import received

_CPU_INFO = Path("/proc/cpuinfo")
_DTYPES = ("float32", "bfloat16", "mixed_bfloat16", "auto")
# Measured on an Intel Xeon (Sapphire Rapids) without AMX; see docs/devices.md.
_SLOW = (
    'dtype="bfloat16" is slow on a processor that does not multiply bfloat16, such as this one:'
    ' float32 answered 1.9 times as fast there. load(..., dtype="auto") chooses float32 here'
)


def answering_dtype(dtype: str | None) -> keras.DTypePolicy | str | None:
    """Returns the dtype of a model that answers; see `dtype` of `pretrained.model.load`.

    Raises:
        UserError: the dtype is unknown.
    """
    if dtype not in (None, *_DTYPES):
        raise UserError(
            f"dtype must be one of {', '.join(_DTYPES)}, or None, for Keras's global policy:"
            f" float32 if it was not set; {received(dtype)}"
        )
    if dtype == "auto":
        return ROUNDED if multiplies_bfloat16() else "float32"
    if dtype in ("bfloat16", "mixed_bfloat16") and not multiplies_bfloat16():
        _warn()
    return ROUNDED if dtype == "bfloat16" else dtype


@functools.cache
def _warn() -> None:
    logging.warning(_SLOW)


def multiplies_bfloat16() -> bool:
    """Returns whether the device multiplies bfloat16 faster than float32.

    GPUs do from compute capability 8.0 on, and processors with `amx_bf16`, or AMD's with
    `avx512_bf16`: Intel's `avx512_bf16` without AMX is slower than float32.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        details = map(tf.config.experimental.get_device_details, gpus)
        return all(x.get("compute_capability", (0, 0)) >= (8, 0) for x in details)
    try:
        lines = _CPU_INFO.read_text(errors="replace").splitlines()
    except OSError:  # not Linux
        return False
    flags = {word for line in lines if line.startswith("flags") for word in line.split()}
    is_amd = any(line.startswith("vendor_id") and "AuthenticAMD" in line for line in lines)
    return "amx_bf16" in flags or (is_amd and "avx512_bf16" in flags)
