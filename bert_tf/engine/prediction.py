"""Runs a model over examples, and returns its predictions in the examples' order."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.bounds import inputs_were_checked
from bert_tf.engine import distribution
from bert_tf.engine.length_buckets import Buckets, example_lengths
from bert_tf.engine.loops import PredictionLoop
from bert_tf.engine.steps import Features
from bert_tf.errors import UserError
from bert_tf.progress import Progress

CHUNK_BATCHES = 100  # a good number of batches to hold in memory and sort by length together
MIN_BATCHES = 4  # do not compile a length needed by fewer batches of a chunk

# Output -> its value for each example: an array [examples, ...], or a list of arrays if batches had
# different lengths.
Columns = dict[str, np.ndarray | list[np.ndarray]]


def check_prediction(strategy: tf.distribute.Strategy, batch_size: int, flag: str) -> None:
    """Checks that the strategy can predict in batches of this size. Call this before training."""
    if distribution.several_processes(strategy):
        raise UserError(
            "Evaluation and prediction run on one machine, not on several workers; leave out"
            " --do_eval, --do_predict and --evaluate_every_steps, and use one machine when the"
            " training is over"
        )
    distribution.replica_batch_size(strategy, batch_size, flag)


def join(chunks: Iterable[Columns], *names: str) -> Columns:
    """Concatenates the columns `names`, or all, of several chunks; {} if there are no chunks."""
    # Drops the other columns at once, to save memory.
    chunks = [{name: chunk[name] for name in names or chunk} for chunk in chunks]
    joined: Columns = {}
    for name in chunks[0] if chunks else ():
        columns = [chunk[name] for chunk in chunks]
        if any(isinstance(x, list) for x in columns) or len({x.shape[1:] for x in columns}) > 1:
            raise ValueError(
                f"the length of {name} differs between batches, so the chunks cannot be joined;"
                " read each chunk's examples separately"
            )
        joined[name] = np.concatenate(columns)
    return joined


class Predictor:
    """Runs a model's `predictions` over examples. Each length is traced and compiled once.

    `model.predictions(outputs, features)` returns tensors by name, each [batch, ...] with a static
    shape. Their rows for padding examples are dropped.
    """

    def __init__(self, model: Any, strategy: tf.distribute.Strategy):
        self._host = distribution.input_shard(strategy).device

        @inputs_were_checked()
        def predict(features: Features, seed: tf.Tensor) -> dict[str, tf.Tensor]:
            return model.predictions(model(features), features)

        self._loop = PredictionLoop(strategy, predict)

    def predict(
        self,
        chunks: Iterable[Mapping[str, tf.Tensor]],
        batch_size: int,
        buckets: Buckets | None = None,
        num_examples: int | None = None,
    ) -> Iterator[Columns]:
        """Yields the predictions for the examples of each chunk, in their order.

        Args:
            chunks: features by name, each [examples, ...]. A chunk and its predictions are held in
                memory; `CHUNK_BATCHES` batches are a good size. Empty chunks are skipped.
            batch_size: examples computed at a time, over all replicas.
            buckets: sort the examples of a chunk by length, and cut a batch to the bucket of its
                longest example; an output with a sequence axis then has the bucket's length. None:
                keep order and lengths.
            num_examples: number of examples in all chunks, for the progress bar.
        """
        with Progress("Predicting", "examples", num_examples) as progress:
            for chunk in chunks:
                features = {name: np.asarray(value) for name, value in chunk.items()}
                if len(next(iter(features.values()))):
                    yield self._predict_chunk(features, batch_size, buckets, progress)

    def _predict_chunk(
        self,
        features: dict[str, np.ndarray],
        batch_size: int,
        buckets: Buckets | None,
        progress: Progress,
    ) -> Columns:
        count = len(next(iter(features.values())))
        order, batch_buckets = np.arange(count), np.zeros(-(-count // batch_size), int)
        if buckets:
            lengths = example_lengths(features["input_mask"]).numpy()
            # The longest first, so that running out of memory shows at once.
            order = np.argsort(-lengths, kind="stable")
            longest = lengths[order[::batch_size]]
            buckets = buckets.frequent(longest, MIN_BATCHES)
            batch_buckets = np.searchsorted(buckets.lengths, longest)
        # Repeats the last example to fill the last batch.
        padded = np.append(order, np.full(-count % batch_size, order[-1]))
        parts: list[tuple[np.ndarray, dict[str, np.ndarray]]] = []
        for bucket in np.unique(batch_buckets)[::-1]:
            steps = np.flatnonzero(batch_buckets == bucket)
            first, end = int(steps[0]), int(steps[-1]) + 1
            indices = padded[first * batch_size : end * batch_size]
            part = {name: value[indices] for name, value in features.items()}
            if buckets:
                part = buckets.trim(part, bucket)
            real = order[first * batch_size : end * batch_size]
            batches = self._batches(part, batch_size)
            outputs = self._loop.run(batches, end - first, lambda steps: None)
            parts.append((real, {name: x[: len(real)] for name, x in outputs.items()}))
            progress.advance(len(real))
        return {name: _in_order(count, name, parts) for name in parts[0][1]}

    def _batches(self, features: dict[str, np.ndarray], batch_size: int) -> Iterator:
        batches = {
            name: value.reshape(-1, batch_size, *value.shape[1:])
            for name, value in features.items()
        }
        with tf.device(self._host):
            return iter(tf.data.Dataset.from_tensor_slices(batches))


def _in_order(
    count: int, name: str, parts: list[tuple[np.ndarray, dict[str, np.ndarray]]]
) -> np.ndarray | list[np.ndarray]:
    """Returns the output `name` in the order of the examples.

    `parts` are pairs: the numbers of some examples, and the outputs for these examples.
    """
    (first, *others) = [outputs[name] for _, outputs in parts]
    if any(other.shape[1:] != first.shape[1:] for other in others):
        column = [first] * count
        for numbers, outputs in parts:
            for i, value in zip(numbers, outputs[name], strict=True):
                column[i] = value
        return column
    column = np.empty([count, *first.shape[1:]], first.dtype)
    for numbers, outputs in parts:
        column[numbers] = outputs[name]
    return column
