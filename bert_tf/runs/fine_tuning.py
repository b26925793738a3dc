"""From a pre-trained checkpoint to a fine-tuned one, and its predictions. It knows no task."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import optimization
from bert_tf.engine import distribution, input_pipeline, interrupts
from bert_tf.engine.length_buckets import Buckets, parse_lengths
from bert_tf.engine.prediction import WINDOW_BATCHES
from bert_tf.engine.steps import Task
from bert_tf.engine.whole_file_input import WholeFileInput
from bert_tf.errors import UserError
from bert_tf.files import checkpoints, records
from bert_tf.files.label_file import write_labels
from bert_tf.files.whole_files import write_whole
from bert_tf.model.configuration import BertConfig
from bert_tf.model.freezing import parse_frozen_layers
from bert_tf.runs import reporting, training
from bert_tf.runs.best_checkpoint import BestCheckpoint
from bert_tf.runs.fine_tuning_settings import FineTuningSettings, check_settings
from bert_tf.runs.heartbeat import Heartbeat


@dataclasses.dataclass(frozen=True)
class _Phase(training.Phase):
    """Training on all records of some files, shuffled as a whole and cut to buckets."""

    buckets: Buckets
    group_by_length: bool

    def open_input(self, seed: int, shard: distribution.InputShard) -> WholeFileInput:
        return WholeFileInput(
            self.files,
            self.schema,
            self.batch_size,
            self.limits,
            seed,
            shard,
            num_batches=self.num_steps,
            buckets=self.buckets,
            group_by_length=self.group_by_length,
        )


class FineTuner:
    """The course of a fine-tuning run, a context manager that holds its output directory.

    Args:
        config: of the model.
        task: what is trained.
        strategy: where.
        settings: the flags.
        schema: what the records hold.
        best_metric: the result of an evaluation by which the best checkpoint is chosen; higher is
            better.
        labels: the classes in the order of the logits, for `labels.txt` beside the checkpoints;
            () of regression. None if the task always has the same ones.

    Raises:
        UserError: the settings contradict each other or do not fit the configuration; another
            run writes to the directory.
        OSError: the directory cannot be written to.
    """

    def __init__(
        self,
        config: BertConfig,
        task: Task,
        strategy: tf.distribute.Strategy,
        settings: FineTuningSettings,
        schema: records.Schema,
        best_metric: str,
        labels: Sequence[str] | None = None,
    ):
        lengths = parse_lengths(settings.length_buckets, settings.max_seq_length)
        check_settings(config, settings, len(lengths) == 1)
        self._config = config
        self._task = task
        self._strategy = strategy
        self._settings = settings
        self._schema = schema
        self._labels = labels
        self._frozen = parse_frozen_layers(settings.freeze_layers, config.num_hidden_layers)
        self._buckets = Buckets.of_schema(lengths, schema)
        self._keeps_best = settings.keep_best or settings.early_stopping_patience > 0
        self._best = BestCheckpoint(
            settings.output_dir,
            best_metric,
            patience=settings.early_stopping_patience,
            every_steps=settings.evaluate_every_steps,
            labels=labels,
        )
        self._trainer: training.Trainer | None = None
        self._stack = contextlib.ExitStack()
        self._heartbeat: Heartbeat | None = None
        self._summaries = reporting.Summaries(None)
        checkpoints.make_output_dir(settings.output_dir)
        trained = checkpoints.CheckpointDirectory(settings.output_dir).latest()
        if settings.init_checkpoint and not trained:
            checkpoints.find_prefix(settings.init_checkpoint)  # before any record is made
        if settings.do_train and not trained and self._best.prefix():
            raise UserError(
                f"{self._best.folder} must be of the run in --output_dir, which has no checkpoint;"
                " delete that folder to begin anew, or choose another --output_dir"
            )
        if settings.export_dir:
            checkpoints.make_output_dir(settings.export_dir, "export_dir")

    def __enter__(self) -> "FineTuner":
        with contextlib.ExitStack() as stack:
            if distribution.several_processes(self._strategy):
                stack.enter_context(interrupts.hold())
            if distribution.is_chief(self._strategy):
                folder = os.path.join(self._settings.output_dir, "eval")
                self._summaries = reporting.Summaries(folder)
                stack.callback(self._summaries.flush)
                if self._settings.do_train:
                    self._heartbeat = stack.enter_context(Heartbeat(self._settings.output_dir))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception) -> bool | None:
        return self._stack.__exit__(*exception)

    def _make_trainer(self, learning_rate: optimization.Schedule | None) -> training.Trainer:
        settings = self._settings
        self._trainer = training.Trainer(
            self._task,
            self._strategy,
            settings.output_dir,
            learning_rate,
            init_checkpoint=settings.init_checkpoint,
            random_seed=settings.random_seed,
            keep_checkpoint_max=settings.keep_checkpoint_max,
            heartbeat=self._heartbeat,
            frozen=self._frozen,
        )
        return self._trainer

    @property
    def global_step(self) -> int:
        """Number of training steps behind the weights."""
        return self._trained().global_step

    def record_file(self, name: str) -> str:
        """Returns the path of the records "train", "eval" or "predict" (or others) of the run."""
        return os.path.join(self._settings.output_dir, f"{name}.tf_record")

    def train(self, num_examples: int, evaluate: Callable[[], dict[str, float]]) -> None:
        """Trains on the records "train", or goes on where an earlier run was stopped.

        Args:
            num_examples: what an epoch counts; for SQuAD questions, of which a record is a part.
            evaluate: returns the results of an evaluation with the present weights; called every
                --evaluate_every_steps, if that is given, and at the end where the best are kept.

        Raises:
            UserError: there are too few examples, batch sizes do not fit the replicas, or the
                checkpoints do not fit the model.
            FloatingPointError: a loss or gradient is not finite.
            OSError: a checkpoint cannot be written.
        """
        settings = self._settings
        # The original's, rounding and all.
        num_train_steps = int(num_examples / settings.train_batch_size * settings.num_train_epochs)
        num_warmup_steps = int(num_train_steps * settings.warmup_proportion)
        if num_train_steps < 1:
            raise UserError(
                f"Training needs at least one batch: {num_examples} examples,"
                f" --train_batch_size={settings.train_batch_size} and"
                f" --num_train_epochs={settings.num_train_epochs} make {num_train_steps} steps"
            )
        logging.info("***** Running training *****")
        logging.info("  Num examples = %d", num_examples)
        logging.info("  Batch size = %d", settings.train_batch_size)
        logging.info("  Num steps = %d", num_train_steps)
        schedule = optimization.linear_schedule(
            settings.learning_rate, num_train_steps, num_warmup_steps
        )
        write_labels(settings.output_dir, self._labels)
        trainer = self._make_trainer(schedule)
        evaluated = None

        def evaluate_and_keep() -> bool:
            nonlocal evaluated
            evaluated = trainer.global_step
            results = evaluate()
            reporting.log_results(results)
            self._summaries.write(results, trainer.global_step)
            if not self._keeps_best:
                return True
            return self._best.update(results, trainer.global_step, trainer.values())

        phase = _Phase(
            num_steps=num_train_steps,
            batch_size=settings.train_batch_size,
            files=[self.record_file("train")],
            schema=self._schema,
            limits={},
            buckets=self._buckets,
            group_by_length=settings.group_by_length,
        )
        trainer.train(
            [phase],
            save_checkpoints_steps=settings.save_checkpoints_steps,
            iterations_per_loop=settings.iterations_per_loop,
            accumulation_steps=settings.gradient_accumulation_steps,
            gradient_reduction=settings.gradient_reduction,
            evaluate_every_steps=settings.evaluate_every_steps,
            evaluate=evaluate_and_keep,
        )
        # The last weights may be the best ones, at whatever step; and an earlier run that came so
        # far may have been stopped before it had seen them.
        if self._keeps_best and evaluated != trainer.global_step:
            evaluate_and_keep()
        self._take_best(trainer)
        if settings.export_dir and distribution.is_chief(self._strategy):
            self._export(trainer, settings.export_dir)

    def _take_best(self, trainer: training.Trainer) -> None:
        best = self._best.prefix()
        if best and self._keeps_best:
            trainer.restore(best)
            logging.info("The weights are now those of the best checkpoint, %s", best)
        elif best:
            logging.warning("The weights are the last ones; --keep_best takes the best, %s", best)
        elif self._keeps_best:
            logging.warning(
                "--keep_best: %s has no checkpoint; the weights are those of --output_dir, or of"
                " --init_checkpoint if there are none",
                self._best.folder,
            )

    def _export(self, trainer: training.Trainer, export_dir: str) -> None:
        """Writes what the archives of released models hold, and the names of the classes."""
        weights = {v.path: v.value for v in trainer.model.variables}
        checkpoints.write(os.path.join(export_dir, "bert_model.ckpt"), weights)
        write_whole(os.path.join(export_dir, "bert_config.json"), self._config.to_json_string())
        vocab_file = os.path.join(export_dir, "vocab.txt")
        tf.io.gfile.copy(self._settings.vocab_file, vocab_file, overwrite=True)
        write_labels(export_dir, self._labels)
        logging.info("Exported the weights to %s", export_dir)

    def _trained(self) -> training.Trainer:
        """Returns the trainer; without training, one with the weights that are there."""
        if self._trainer is None:
            trainer = self._make_trainer(None)
            self._take_best(trainer)
            if trainer.global_step == 0 and not self._settings.init_checkpoint:
                logging.warning(
                    "The weights are untrained: --output_dir has no checkpoint, and there is no"
                    " --init_checkpoint"
                )
        return self._trainer

    def predict(
        self, name: str, num_records: int, batch_size: int
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yields the task's predictions for each of the records of a name, in their order.

        Args:
            name: see `record_file`.
            num_records: how many it has, for the progress bar.
            batch_size: records computed at a time, over all replicas, such as
                `prediction.check_prediction` allows.

        Raises:
            UserError: the file is damaged.
        """
        logging.info("  Num examples = %d", num_records)
        logging.info("  Batch size = %d", batch_size)
        windows = input_pipeline.record_windows(
            [self.record_file(name)], self._schema, WINDOW_BATCHES * batch_size
        )
        one_length = len(self._buckets.lengths) == 1
        return self._trained().predictor.predict(
            windows, batch_size, None if one_length else self._buckets, num_records
        )

    def run(
        self,
        num_examples: int | None,
        evaluate: Callable[[], dict[str, float]],
        predict: Callable[[], None],
    ) -> dict[str, float | int] | None:
        """Trains, evaluates and predicts, as the settings, `EvaluationSettings`, say.

        Args:
            num_examples: see `train`; None if it does not train.
            evaluate: see `train`.
            predict: writes predictions with the weights of the end.

        Returns:
            The results of the evaluation at the end, if there is one.
        """
        settings = self._settings
        if settings.do_train:
            self.train(num_examples, evaluate)
        results = None
        if settings.do_eval:
            logging.info("***** Running evaluation *****")
            results = self.write_results(evaluate())
        if settings.do_predict:
            logging.info("***** Running prediction*****")
            predict()
        return results

    def write_results(self, results: Mapping[str, float]) -> dict[str, float | int]:
        """Returns the results of the final evaluation with `global_step`.

        They go to the log, to TensorBoard and, in the original's form, to `eval_results.txt`.

        Raises:
            OSError: the file cannot be written.
        """
        results = {**results, "global_step": self.global_step}
        reporting.log_results(results)
        self._summaries.write(results, self.global_step)
        path = os.path.join(self._settings.output_dir, "eval_results.txt")
        reporting.write_results(path, results)
        return results
