"""What a model says of each example, in the order in which they are given."""

from collections.abc import Iterable, Iterator, Mapping

import keras
import numpy as np
import tensorflow as tf

from bert_tf.engine import distribution
from bert_tf.engine.length_buckets import Buckets, example_lengths
from bert_tf.engine.loops import StepLoop
from bert_tf.engine.steps import Task
from bert_tf.errors import UserError
from bert_tf.progress import Progress

WINDOW_BATCHES = 100  # held in memory and sorted by length together
MIN_BATCHES = 4  # a length that fewer batches of a window need is not compiled


def check_prediction(strategy: tf.distribute.Strategy, batch_size: int, flag: str) -> None:
    """Returns nothing if predictions can be made in such batches: to be asked before training.

    Args:
        strategy: where.
        batch_size: examples computed at a time, over all replicas.
        flag: the flag (no dashes) that sets it, for messages.

    Raises:
        UserError: the batch size does not fit the replicas, or several processes run together.
    """
    if distribution.several_processes(strategy):
        raise UserError(
            "Evaluation and prediction run on one machine, not on several workers; leave out"
            " --do_eval, --do_predict and --evaluate_every_steps, and use one machine when the"
            " training is over"
        )
    distribution.replica_batch_size(strategy, batch_size, flag)


class Predictor:
    """Runs a task's `predictions` over examples. Each length is traced and compiled once.

    Args:
        task: says what is predicted.
        model: the task's model.
        strategy: where.
    """

    def __init__(self, task: Task, model: keras.Model, strategy: tf.distribute.Strategy):
        self._shards = distribution.input_shards(strategy)
        self._loop = StepLoop(
            strategy, lambda features, seed: task.predictions(model, features), per_example=True
        )

    def predict(
        self,
        windows: Iterable[Mapping[str, tf.Tensor]],
        batch_size: int,
        buckets: Buckets | None = None,
        num_examples: int | None = None,
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yields what the task predicts for each example, in their order.

        Args:
            windows: the features of so many examples at a time, each [examples, ...]; a window and
                what is predicted for it are held in memory. 100 batches are a good size.
            batch_size: examples computed at a time, over all replicas, such as
                `check_prediction` allows.
            buckets: the examples of a window are sorted by length, and a batch is cut to the
                bucket of its longest one. A prediction with the sequence's axis has the bucket's
                length. None leaves order and lengths as they are.
            num_examples: how many there will be, for the progress bar, if that is known.
        """
        with Progress("Predicting", "examples", num_examples) as progress:
            for window in windows:
                features = {name: np.asarray(value) for name, value in window.items()}
                yield from self._predict_window(features, batch_size, buckets, progress)

    def _predict_window(
        self,
        features: dict[str, np.ndarray],
        batch_size: int,
        buckets: Buckets | None,
        progress: Progress,
    ) -> list[dict[str, np.ndarray]]:
        count = len(next(iter(features.values())))
        order, batch_buckets = np.arange(count), np.zeros(-(-count // batch_size), int)
        if buckets:
            lengths = example_lengths(features["input_mask"]).numpy()
            # The longest first: what does not fit into memory shows at once.
            order = np.argsort(-lengths, kind="stable")
            longest = lengths[order[::batch_size]]
            buckets = buckets.frequent(longest, MIN_BATCHES)
            batch_buckets = np.searchsorted(buckets.lengths, longest)
        # The last batch is filled up with the last example.
        padded = np.append(order, np.full(-count % batch_size, order[-1]))
        results: list[dict[str, np.ndarray]] = [{}] * count
        for bucket in np.unique(batch_buckets)[::-1]:
            steps = np.flatnonzero(batch_buckets == bucket)
            first, end = int(steps[0]), int(steps[-1]) + 1
            indices = padded[first * batch_size : end * batch_size]
            part = {name: value[indices] for name, value in features.items()}
            if buckets:
                part = buckets.trim(part, bucket)
            real = order[first * batch_size : end * batch_size]
            outputs = self._loop.run(
                self._iterators(part, end - first, batch_size), end - first, lambda steps: None
            )
            for row, i in enumerate(real):
                results[i] = {name: values[row] for name, values in outputs.items()}
            progress.advance(len(real))
        return results

    def _iterators(
        self, features: dict[str, np.ndarray], num_steps: int, batch_size: int
    ) -> list[Iterator]:
        """Returns the batches for each of this process's hosts."""
        iterators = []
        for shard in self._shards:
            part = batch_size // shard.count
            mine = slice(shard.index * part, (shard.index + 1) * part)
            with tf.device(shard.device):
                batches = {
                    name: value.reshape(num_steps, batch_size, *value.shape[1:])[:, mine]
                    for name, value in features.items()
                }
                iterators.append(iter(tf.data.Dataset.from_tensor_slices(batches)))
        return iterators
