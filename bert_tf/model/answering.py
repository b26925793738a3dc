"""How a model computes when it only answers: oneDNN's kernels for bfloat16."""

import contextlib
import contextvars
import functools
import os
from collections.abc import Iterator

import tensorflow as tf

_only_answers = contextvars.ContextVar("only_answers", default=False)


@contextlib.contextmanager
def only_answering() -> Iterator[None]:
    """Functions traced in this context are never differentiated, and run where they are traced."""
    token = _only_answers.set(True)
    try:
        yield
    finally:
        _only_answers.reset(token)


def answers_in_bfloat16(dtype: tf.DType | str) -> bool:
    """Returns whether this is called inside `only_answering`, for tensors that are bfloat16.

    LayerNorm and softmax may then take and give bfloat16: oneDNN's kernels compute with float32
    inside, so nothing but the casts is left out.
    """
    return _only_answers.get() and tf.as_dtype(dtype) == tf.bfloat16 and _has_one_dnn()


def layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Returns bfloat16 `x` with its last axis normalised, by one kernel."""
    # TensorFlow's graph optimiser makes this operation of others too, if their shapes are static.
    operation = tf.compat.v1.get_default_graph().create_op(
        "_MklLayerNorm",
        [x, *(tf.cast(tf.convert_to_tensor(y), x.dtype) for y in (gamma, beta))],
        [x.dtype],
        name="LayerNorm",
        attrs={
            "T": tf.compat.v1.AttrValue(type=x.dtype.as_datatype_enum),
            "epsilon": tf.compat.v1.AttrValue(f=epsilon),
        },
    )
    return operation.outputs[0]


@functools.cache
def _has_one_dnn() -> bool:
    """Returns whether `layer_norm` works here: TensorFlow uses oneDNN, and there is only a CPU."""
    if os.environ.get("TF_ENABLE_ONEDNN_OPTS", "").lower() in ("0", "false"):
        return False
    if {device.device_type for device in tf.config.list_physical_devices()} != {"CPU"}:
        return False
    ones = tf.ones([1, 2], tf.bfloat16)
    try:
        tf.function(lambda: layer_norm(ones, ones[0], ones[0], 1e-12), autograph=False)()
    except (tf.errors.OpError, ValueError):  # no such kernel, no such operation
        return False
    return True
