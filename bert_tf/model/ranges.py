"""Tensor shapes, and checks of the shapes and ranges of inputs and labels.

Static shapes and the values of eager tensors are checked at once: `UserError`. In a graph
`tf.debugging.Assert` checks them and fails with `InvalidArgumentError`. XLA drops assertions, so
they cost nothing on TPUs, and `jit_compile=True` checks nothing. Inside
`bounds.inputs_were_checked` graphs do not get assertions.
"""

import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.bounds import inputs_are_checked
from bert_tf.errors import UserError

Dimensions = Sequence[int | None | tf.Tensor]
WEIGHTS = (0.0, math.inf, "1 counts an example once")  # the bounds of weights


def in_range(
    numbers: tf.Tensor,
    name: str,
    below: int | tf.Tensor,
    source: str,
    counted: tf.Tensor | None = None,
) -> tf.Tensor:
    """Checks that whole numbers are from 0 to `below` - 1; returns them as int32 [...].

    Args:
        numbers: integers, bool, or floats without a fraction, [...].
        source: what sets `below`, for the message.
        counted: bool [...], False where any number will do; None to check all.
    """
    dtype = tf.as_dtype(numbers.dtype)
    if not (dtype.is_bool or inputs_are_checked() or isinstance(numbers, keras.KerasTensor)):
        # In the widest type: `below` may not fit into int8, and int32 would hide 2**32.
        wide = tf.cast(numbers, tf.float64 if dtype.is_floating else tf.int64)
        right = (wide >= 0) & (wide < tf.cast(below, wide.dtype))  # False for NaN
        if dtype.is_floating:
            right &= wide == tf.floor(wide)
        if counted is not None:
            right |= ~counted
        rule = [f"{name} must be from 0 to", below - 1, f"({source}); received"]
        numbers = _all_right(right, numbers, rule)
    return as_dtype(numbers, "int32")


def finite(
    numbers: tf.Tensor,
    name: str,
    counted: tf.Tensor | None = None,
    bounds: tuple[float, float, str] = (-math.inf, math.inf, ""),
) -> tf.Tensor:
    """Checks that numbers are finite and within `bounds`; returns them as float32 [...].

    `bounds` are the least and the greatest number, and what sets them, for the message. For
    `counted` see `in_range`.
    """
    floating = as_dtype(numbers, "float32")
    if not (inputs_are_checked() or isinstance(numbers, keras.KerasTensor)):
        least, greatest, source = bounds
        right = tf.math.is_finite(floating) & (floating >= least) & (floating <= greatest)
        if counted is not None:
            right |= ~counted
        rule = f"{name} must be finite"
        if source:
            to = "" if greatest == math.inf else f" and at most {greatest:g}"
            rule += f", at least {least:g}{to} ({source})"
        floating = _all_right(right, floating, [f"{rule}; received"])
    return floating


def shaped(tensor: tf.Tensor, name: str, expected: Dimensions, meaning: str) -> tf.Tensor:
    """Checks a tensor's shape, and returns it without an extra last axis of size 1.

    Args:
        expected: for each axis its size: a number or a scalar tensor; None for any size.
        meaning: the expected shape in words, for the message.
    """
    symbolic = isinstance(tensor, keras.KerasTensor)
    if not symbolic and tensor.shape.rank is None:
        tensor = tf.ensure_shape(tensor, [None] * len(expected))
    given, sizes = tensor.shape, list(tensor.shape)
    if len(sizes) == len(expected) + 1 and sizes[-1] == 1:
        tensor, sizes = keras.ops.squeeze(tensor, -1), sizes[:-1]
    differ = any(
        isinstance(size, int) and isinstance(wanted, int) and size != wanted
        for size, wanted in zip(sizes, expected, strict=False)
    )
    if differ or len(sizes) != len(expected):
        rule = [wanted if isinstance(wanted, int) else None for wanted in expected]
        raise UserError(f"{name} must have {meaning}, {_any(rule)}; received {_any(given)}")
    if symbolic or inputs_are_checked():
        return tensor
    unknown = [
        (size, wanted)
        for size, wanted in zip(get_shape_list(tensor), expected, strict=True)
        if wanted is not None and not (isinstance(size, int) and isinstance(wanted, int))
    ]
    if unknown:
        found, wanted = (tf.stack(list(sizes)) for sizes in zip(*unknown, strict=True))
        message = [f"{name} must have {meaning}; received sizes", found, "instead of", wanted]
        check = tf.debugging.Assert(tf.reduce_all(found == wanted), message)
        with tf.control_dependencies([check]):
            tensor = tf.identity(tensor)
    return tensor


def as_dtype(tensor: tf.Tensor, dtype: str) -> tf.Tensor:
    return tensor if tf.as_dtype(tensor.dtype).name == dtype else keras.ops.cast(tensor, dtype)


def _any(sizes: Any) -> str:
    return str(list(sizes)).replace("None", "any")


def _all_right(right: tf.Tensor, numbers: tf.Tensor, rule: list[Any]) -> tf.Tensor:
    """Returns `numbers` if all are `right`, bool [...]; the error gives the first wrong one."""
    wrong = ~right
    if tf.executing_eagerly() and not tf.reduce_any(wrong):
        return numbers
    # A wrong one is appended, so that argmax finds one even in an empty or a right batch.
    index = tf.argmax(tf.concat([tf.reshape(wrong, [-1]), [True]], 0), output_type=tf.int32)
    value = tf.concat([tf.reshape(numbers, [-1]), tf.zeros([1], numbers.dtype)], 0)[index]
    position: list[tf.Tensor] = []
    for size in reversed(get_shape_list(numbers)):  # tf.unravel_index does not run under XLA
        size = tf.maximum(size, 1)
        position.insert(0, index % size)
        index //= size
    message = [*rule, value, "at position", tf.stack(position)]
    if tf.executing_eagerly():
        told = (x.numpy().tolist() if tf.is_tensor(x) else x for x in message)
        raise UserError(" ".join(map(str, told)))
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(right), message)]):
        return tf.identity(numbers)


def get_shape_list(
    tensor: tf.Tensor, expected_rank: int | list[int] | None = None, name: str = "tensor"
) -> list[int | tf.Tensor]:
    """Returns the dimensions of a tensor (original: modeling.get_shape_list).

    Static dimensions are Python integers, dynamic ones int32 scalars.

    Args:
        tensor: a tensor of any dtype; its rank must be static.
        expected_rank: the rank, or a list of ranks, that the tensor must have; None allows all.
        name: the tensor's name in the error message.

    Raises:
        ValueError: the tensor has a different rank.
    """
    if expected_rank is not None:
        ranks = [expected_rank] if isinstance(expected_rank, int) else expected_rank
        if tensor.shape.rank not in ranks:
            raise ValueError(
                f"{name} must have rank {' or '.join(map(str, ranks))}, not {tensor.shape.rank}"
                f" (shape {tensor.shape})"
            )
    static, dynamic = tensor.shape.as_list(), tf.shape(tensor)
    return [dynamic[i] if size is None else size for i, size in enumerate(static)]
