"""Evaluates a model on record files: computes metrics on the devices, and their means."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.engine import distribution
from bert_tf.engine.distribution import ONE_HOST, InputShard
from bert_tf.engine.input_pipeline import Augment, Batch, count_records, parsed, without_autotune
from bert_tf.engine.loops import TrainingLoop, xla_pays_on_cpu
from bert_tf.engine.steps import Objective, evaluation_step
from bert_tf.files import record_checks, records
from bert_tf.progress import Progress
from bert_tf.seeds import hash_numbers


@dataclasses.dataclass(frozen=True)
class EvaluationInput:
    """The records that an evaluation reads. For fields not listed see `TrainingInput`.

    batch_size: examples in a step, over all replicas.
    max_steps: number of batches, repeating the files if they have fewer; 0 reads each example once.
    augment: changes each batch. An example's key is a hash of its number, so every evaluation sees
        the same changes.
    """

    batch_size: int
    files: Sequence[str]
    schema: records.Schema
    max_steps: int
    augment: Augment | None = None


class Evaluator:
    """Evaluates a model by its objective's losses, which must ignore examples of weight 0."""

    def __init__(self, objective: Objective, strategy: tf.distribute.Strategy):
        self._strategy = strategy
        self._finish = getattr(objective, "finish", lambda results: results)
        self._loop = TrainingLoop(
            strategy,
            lambda features, seed: evaluation_step(objective, features),
            compile_on_cpu=xla_pays_on_cpu(objective),
        )

    def evaluate(self, source: EvaluationInput) -> dict[str, float]:
        """Returns the objective's metrics, and `loss`, the mean over the examples."""
        batch_size = source.batch_size
        distribution.replica_batch_size(self._strategy, batch_size, "eval_batch_size")
        with record_checks.explained(source.files, source.schema):
            num_examples = source.max_steps * batch_size or count_records(source.files)
            num_steps = -(-num_examples // batch_size)
            logging.info("Evaluating on %d examples, batches of %d", num_examples, batch_size)
            shard = distribution.input_shard(self._strategy)
            with tf.device(shard.device):
                iterator = iter(evaluation_dataset(source, num_examples, shard))
            with Progress("Evaluating", "steps", num_steps) as progress:
                results = means(self._loop.run(iterator, num_steps, progress.advance))
            return self._finish(results)


def evaluation_dataset(
    source: EvaluationInput, num_examples: int, shard: InputShard = ONE_HOST
) -> tf.data.Dataset:
    """Returns a host's part of every batch, in the order of the records, repeated endlessly.

    All hosts read all files. A batch also has `example_weight`, float32 [batch]: 1 for the first
    `num_examples` examples, 0 for the padding of the last batch.
    """
    part = source.batch_size // shard.count
    begin = shard.index * part

    def add_weight(indices: tf.Tensor, serialized: tf.Tensor) -> Batch:
        indices, serialized = indices[begin : begin + part], serialized[begin : begin + part]
        features = records.parse(serialized, source.schema)
        if source.augment is not None:
            features = source.augment(features, hash_numbers(indices))
        features["example_weight"] = tf.cast(indices < num_examples, tf.float32)
        return features

    dataset = tf.data.TFRecordDataset(list(source.files)).repeat().enumerate()
    dataset = dataset.batch(source.batch_size, drop_remainder=True)
    return without_autotune(parsed(dataset, add_weight).prefetch(2))


# Metric -> its values, float [steps], or a pair: its weighted sums and their weights, each float
# [steps]. A metric of several numbers has a list of sums.
StepMetrics = Mapping[str, np.ndarray | tuple[np.ndarray | list[np.ndarray], np.ndarray]]


def means(metrics: StepMetrics, start: int = 0, end: int | None = None) -> dict[str, Any]:
    """Returns each metric's mean over the steps [start, end); 0 if its total weight is 0."""
    result = {}
    for name, values in metrics.items():
        if isinstance(values, tuple):
            total, weight = (
                np.sum(np.asarray(v)[..., start:end], axis=-1, dtype=np.float64) for v in values
            )
            mean = total / weight if weight else 0.0 * total
            result[name] = mean if mean.ndim else float(mean)
        else:
            result[name] = float(np.mean(values[start:end], dtype=np.float64))
    return result
