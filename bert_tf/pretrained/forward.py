"""Runs a model on inputs of any lengths, batched by length; results keep the inputs' order."""

import collections
import contextlib
import contextvars
import functools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from bert_tf.bounds import Bounds, inputs_were_checked
from bert_tf.model.layers import only_answering
from bert_tf.progress import Progress
from bert_tf.tasks.arguments import WHOLE_NUMBER, check_type

BATCH_SIZE = 32
_batch_size = contextvars.ContextVar("batch_size", default=BATCH_SIZE)
# One batch leaves cores idle: most of its operations are short and wait for each other.
_BATCHES_AT_ONCE = min(4, os.cpu_count() or 1)
# One pool for all models and calls: TensorFlow keeps some memory for every thread that ever called
# it, so new threads in each call would fill a server's memory.
_POOL = ThreadPoolExecutor(_BATCHES_AT_ONCE, "bert_tf")
_BATCHES_WAITING = 2 * _BATCHES_AT_ONCE  # of one call; few, so that calls of other threads get on
_SHOW_PROGRESS = 8 * BATCH_SIZE  # inputs; fewer are done too soon for a progress bar

Row = Mapping[str, Sequence[int]]


@contextlib.contextmanager
def batches_of(size: int | None) -> Iterator[None]:
    """In this context batches have this many inputs; None for the default."""
    if size is not None:
        check_type("batch_size", size, WHOLE_NUMBER)
        Bounds(at_least=1).check(batch_size=size)
    token = _batch_size.set(_batch_size.get() if size is None else int(size))
    try:
        yield
    finally:
        _batch_size.reset(token)


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
        own = functools.partial(only_answering()(inputs_were_checked()(outputs)))
        self._function = tf.function(own, input_signature=[spec], autograph=False)

    def __call__(self, rows: Sequence[Row]) -> list[dict[str, np.ndarray]]:
        """Returns the outputs of each row, in order; a sequence axis has the padded length.

        Args:
            rows: features by name, without padding; the features of a row may differ in length.
        """
        results: list[dict[str, np.ndarray]] = [{}] * len(rows)
        lengths = np.array([len(row["input_ids"]) for row in rows])
        order = np.argsort(-lengths, kind="stable")  # longest first: memory errors show at once
        size = _batch_size.get()
        batches = [order[start : start + size] for start in range(0, len(rows), size)]

        def compute(numbers: np.ndarray) -> dict[str, np.ndarray]:
            features = {name: [rows[i][name] for i in numbers] for name in rows[0]}
            padded = {
                name: tf.constant(keras.utils.pad_sequences(values, padding="post"))
                for name, values in features.items()
            }
            return {name: value.numpy() for name, value in self._function(padded).items()}

        shown = len(rows) >= _SHOW_PROGRESS
        progress = Progress("Computing", "texts", len(rows)) if shown else contextlib.nullcontext()
        with progress as bar, contextlib.closing(_in_pool(compute, batches)) as computed:
            for numbers, arrays in zip(batches, computed, strict=True):
                for i, number in enumerate(numbers):
                    results[number] = {name: array[i] for name, array in arrays.items()}
                if bar:
                    bar.advance(len(numbers))
        return results


def _in_pool(
    compute: Callable[[np.ndarray], dict[str, np.ndarray]], batches: Sequence[np.ndarray]
) -> Iterator[dict[str, np.ndarray]]:
    """Yields the outputs of each batch, in order; once it is closed, no more batches begin."""
    if len(batches) == 1 and threading.current_thread() is threading.main_thread():
        yield compute(batches[0])  # saves 0.1 to 0.3 ms
        return
    begun: collections.deque[Future[dict[str, np.ndarray]]] = collections.deque()
    try:
        for batch in batches:
            begun.append(_POOL.submit(compute, batch))
            if len(begun) > _BATCHES_WAITING:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        for future in begun:
            future.cancel()


def sigmoid(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Returns the probability of each class, if they are independent of each other."""
    return np.exp(-np.logaddexp(0, -logits.astype(np.float64)))


def softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Returns the probabilities over the last axis."""
    logits = logits.astype(np.float64)
    exponentials: NDArray[np.float64] = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)
