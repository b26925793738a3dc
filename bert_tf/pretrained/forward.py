"""Runs a model on inputs of any lengths, batched by length; results keep the inputs' order."""

import contextlib
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from bert_tf.progress import Progress

BATCH_SIZE = 32
# One batch leaves cores idle: most of its operations are short and wait for each other.
_BATCHES_AT_ONCE = min(4, os.cpu_count() or 1)
_SHOW_PROGRESS = 8 * BATCH_SIZE  # inputs; fewer are done too soon for a progress bar

Row = Mapping[str, Sequence[int]]


class Forward:
    """A function of a batch, traced once for batches of every size and length.

    Args:
        outputs: takes features by name, int32 [B, S] each, and returns tensors by name, each with
            the examples on its first axis.
        names: the names of the features.
    """

    def __init__(
        self,
        outputs: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]],
        names: Sequence[str],
    ):
        spec = {name: tf.TensorSpec([None, None], tf.int32, name) for name in names}
        # TensorFlow counts traces by a function's source lines, over all models, and warns of many.
        # A partial is counted separately.
        own = functools.partial(outputs)
        self._function = tf.function(own, input_signature=[spec], autograph=False)

    def __call__(self, rows: Sequence[Row]) -> list[dict[str, np.ndarray]]:
        """Returns the outputs of each row, in order; a sequence axis has the padded length.

        Args:
            rows: features by name, without padding; the features of a row may differ in length.
        """
        results: list[dict[str, np.ndarray]] = [{}] * len(rows)
        lengths = np.array([len(row["input_ids"]) for row in rows])
        order = np.argsort(-lengths, kind="stable")  # longest first: memory errors show at once
        batches = [order[start : start + BATCH_SIZE] for start in range(0, len(rows), BATCH_SIZE)]

        def compute(numbers: np.ndarray) -> dict[str, np.ndarray]:
            features = {name: [rows[i][name] for i in numbers] for name in rows[0]}
            padded = {
                name: tf.constant(keras.utils.pad_sequences(values, padding="post"))
                for name, values in features.items()
            }
            return {name: value.numpy() for name, value in self._function(padded).items()}

        shown = len(rows) >= _SHOW_PROGRESS
        progress = Progress("Computing", "texts", len(rows)) if shown else contextlib.nullcontext()
        pool = ThreadPoolExecutor(_BATCHES_AT_ONCE)
        try:
            with progress as bar:
                for numbers, arrays in zip(batches, pool.map(compute, batches), strict=True):
                    for i, number in enumerate(numbers):
                        results[number] = {name: array[i] for name, array in arrays.items()}
                    if bar:
                        bar.advance(len(numbers))
        finally:
            pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C start no more batches
        return results


def sigmoid(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Returns the probability of each class, if they are independent of each other."""
    return np.exp(-np.logaddexp(0, -logits.astype(np.float64)))


def softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Returns the probabilities over the last axis."""
    logits = logits.astype(np.float64)
    exponentials: NDArray[np.float64] = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)
