"""Metrics of a model over record files, computed on the devices."""

import dataclasses
from collections.abc import Iterator, Sequence

import tensorflow as tf
from absl import logging

from bert_tf.engine import distribution, input_pipeline
from bert_tf.engine.loops import TrainingLoop
from bert_tf.engine.metrics import means
from bert_tf.engine.replicate import xla_pays_on_cpu
from bert_tf.engine.steps import Objective, evaluation_step
from bert_tf.files import record_checks, records
from bert_tf.progress import Progress


@dataclasses.dataclass(frozen=True)
class EvaluationInput:
    """The records that an evaluation reads.

    batch_size: examples in a step, over all replicas.
    files: TFRecord files.
    schema: features of their records.
    limits: see `input_pipeline.TrainingInput`.
    max_steps: number of batches to read, repeating the files if they have fewer; 0 for every
        example once.
    augment: changes each batch, in the same way in all evaluations; None: no change.
    """

    batch_size: int
    files: Sequence[str]
    schema: records.Schema
    limits: input_pipeline.Limits
    max_steps: int
    augment: input_pipeline.Augment | None = None


class Evaluator:
    """Evaluates a model by the losses of its objective; traced once for each shape of batch.

    Args:
        objective: gives loss and metrics; it must ignore examples of `example_weight` 0.
    """

    def __init__(self, objective: Objective, strategy: tf.distribute.Strategy):
        self._strategy = strategy
        self._loop = TrainingLoop(
            strategy,
            lambda features, seed: evaluation_step(objective, features),
            compile_on_cpu=xla_pays_on_cpu(objective),
        )

    def evaluate(self, source: EvaluationInput) -> dict[str, float]:
        """Returns the objective's metrics, and `loss`: the batches' mean, weighted by examples.

        Raises:
            UserError: the batch size does not fit the replicas, or the input is damaged.
            OSError: the input cannot be read.
        """
        try:
            num_steps, num_examples = self._size(source)
            logging.info(
                "Evaluating on %d examples, batches of %d", num_examples, source.batch_size
            )
            iterators = self._iterators(source, num_examples)
            with Progress("Evaluating", "steps", num_steps) as progress:
                return means(self._loop.run(iterators, num_steps, progress.advance))
        except record_checks.READ_ERRORS as error:
            schema = records.limited(source.schema, source.limits)
            raise record_checks.explain(error, source.files, schema) from error

    def _size(self, source: EvaluationInput) -> tuple[int, int]:
        """Returns the number of batches and of examples."""
        batch_size = source.batch_size
        distribution.replica_batch_size(self._strategy, batch_size, "eval_batch_size")
        if source.max_steps:
            return source.max_steps, source.max_steps * batch_size
        num_examples = input_pipeline.count_records(source.files)
        return -(-num_examples // batch_size), num_examples

    def _iterators(self, source: EvaluationInput, num_examples: int) -> list[Iterator]:
        iterators = []
        for shard in distribution.input_shards(self._strategy):
            with tf.device(shard.device):
                dataset = input_pipeline.evaluation_dataset(
                    source.files,
                    source.schema,
                    source.batch_size,
                    source.limits,
                    num_examples,
                    shard,
                    source.augment,
                )
                iterators.append(iter(dataset))
        return iterators
