"""Computes a batch in equal parts, one after another, to save memory."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from bert_tf.seeds import fold_in

# (a part of the batch's tensors by name, its seed, int32 [2]) -> dense tensors in any structure.
ComputePart = Callable[[Mapping[str, tf.Tensor], tf.Tensor], Any]


class Parts:
    """A batch in equal parts. Both methods give part i the same seed, so the same dropout.

    Args:
        features: tensors [batch, ...]; `count` must divide the batch.
        seed: int32 [2], of the batch.
    """

    def __init__(self, features: Mapping[str, tf.Tensor], seed: tf.Tensor, count: int):
        self._features = {
            name: tf.reshape(x, [count, x.shape[0] // count, *x.shape[1:]])
            for name, x in features.items()
        }
        self._seed = seed
        self._count = count

    def sum(self, compute: ComputePart) -> Any:
        """Returns the sum of `compute`'s results over the parts."""
        traced, outputs = self._traced(compute)

        def body(i: tf.Tensor, total: Any) -> tuple[tf.Tensor, Any]:
            return i + 1, tf.nest.map_structure(tf.add, total, self._compute(traced, i))

        zeros = tf.nest.map_structure(lambda x: tf.zeros(x.shape, x.dtype), outputs)
        return tf.while_loop(lambda i, total: i < self._count, body, (tf.constant(0), zeros))[1]

    def map(self, compute: ComputePart) -> Any:
        """Returns `compute`'s results for the parts, concatenated along the first axis."""
        traced, outputs = self._traced(compute)
        found = tf.map_fn(
            lambda i: self._compute(traced, i),
            tf.range(self._count),
            fn_output_signature=tf.nest.map_structure(
                lambda x: tf.TensorSpec(x.shape, x.dtype), outputs
            ),
        )
        return tf.nest.map_structure(lambda x: tf.reshape(x, [-1, *x.shape[2:]]), found)

    def _compute(self, traced: Callable[..., Any], i: tf.Tensor) -> Any:
        part = {name: x[i] for name, x in self._features.items()}
        return traced(part, fold_in(self._seed, i))

    def _traced(self, compute: ComputePart) -> tuple[Callable[..., Any], Any]:
        function = tf.function(compute, autograph=False)
        specs = {name: tf.TensorSpec(x.shape[1:], x.dtype) for name, x in self._features.items()}
        seed = tf.TensorSpec(self._seed.shape, self._seed.dtype)
        return function, function.get_concrete_function(specs, seed).structured_outputs
