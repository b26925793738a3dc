"""From a pre-trained checkpoint to a fine-tuned one, and its predictions. It knows no task."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

import keras
import tensorflow as tf
from absl import logging

from bert_tf import optimization
from bert_tf.engine import input_pipeline
from bert_tf.engine.length_buckets import Buckets, parse_lengths
from bert_tf.engine.prediction import CHUNK_BATCHES, Columns, Predictor
from bert_tf.engine.steps import Objective
from bert_tf.engine.whole_file_input import WholeFileInput
from bert_tf.errors import UserError
from bert_tf.files import checkpoints, records, storage
from bert_tf.model.configuration import BertConfig
from bert_tf.model.freezing import parse_frozen_layers
from bert_tf.model_folder.writer import write_model, write_model_files
from bert_tf.runs.flags.setting_fields import MAX_COUNT
from bert_tf.runs.flags.settings import FineTuningSettings
from bert_tf.runs.folder.best_checkpoint import BestCheckpoint
from bert_tf.runs.folder.run import Run
from bert_tf.runs.training.fine_tuning_checks import check_settings
from bert_tf.runs.training.plan import Phase
from bert_tf.runs.training.trainer import Trainer
from bert_tf.text.tokenizers import read_vocabulary


class FineTuner:
    """Trains, evaluates and predicts with one model; a context manager that holds its directory.

    Args:
        build: returns the model, a `bert_tf.tasks.task_model.TaskModel`.
        schema: features of the task's records.
        best_metric: the result of an evaluation by which the best checkpoint is chosen; higher is
            better.
        labels: classes in the order of the logits, for `labels.txt` beside the checkpoints; () for
            regression. None if the task always has the same ones.
        objective, initialize: see `Trainer`; for training alone.

    `run` owns the output directory.

    Raises:
        UserError: the settings contradict each other or do not fit the configuration.
        OSError: the directory cannot be written to.
    """

    def __init__(
        self,
        config: BertConfig,
        build: Callable[[], keras.Model],
        strategy: tf.distribute.Strategy,
        settings: FineTuningSettings,
        schema: records.Schema,
        best_metric: str,
        labels: Sequence[str] | None = None,
        objective: Callable[[keras.Model], Objective] = lambda model: model,
        initialize: Callable[[keras.Model], None] = lambda model: None,
    ):
        lengths = parse_lengths(settings.length_buckets, settings.max_seq_length)
        check_settings(config, settings, len(lengths) == 1)
        self._config = config
        self._build = build
        self._teaching = {"objective": objective, "initialize": initialize}
        self._settings = settings
        limits = {
            "input_ids": (config.vocab_size, "vocab_size of --bert_config_file"),
            "segment_ids": (config.type_vocab_size, "type_vocab_size of --bert_config_file"),
        }
        if labels:
            limits["label_ids"] = (len(labels), "the number of labels")
        self._schema = records.limited(schema, limits)
        self._frozen = parse_frozen_layers(settings.freeze_layers, config.layer_scopes)
        self._buckets = Buckets.of_schema(lengths, schema)
        self._keeps_best = settings.keep_best or settings.early_stopping_patience > 0
        best = BestCheckpoint(
            settings.output_dir,
            best_metric,
            patience=settings.early_stopping_patience,
            every_steps=settings.evaluate_every_steps,
            labels=labels,
        )
        self.run = Run(strategy, settings, best, labels)
        self._trainer: Trainer | None = None
        self._predictor: Predictor | None = None
        self._check_checkpoints()
        if settings.export_dir:
            storage.make_output_dir(settings.export_dir, "export_dir")

    def _check_checkpoints(self) -> None:
        """Checks, before records are made, that the run has a checkpoint to begin with."""
        settings = self._settings
        if settings.do_train and self._keeps_best:
            self.run.best.check()
        if self.run.checkpoints.latest():
            return
        if settings.init_checkpoint:
            checkpoints.find_prefix(settings.init_checkpoint)
        elif settings.do_train:
            logging.warning(
                "Training begins with random weights: there is no --init_checkpoint. Name a"
                " pre-trained checkpoint to fine-tune it"
            )
        if settings.do_train and self.run.best.prefix():
            raise UserError(
                f"{self.run.best.folder} must belong to the run in --output_dir, which has no"
                " checkpoint; delete that folder to begin anew, or choose another --output_dir"
            )

    def __enter__(self) -> "FineTuner":
        self.run.__enter__()
        return self

    def __exit__(self, *exception) -> bool | None:
        return self.run.__exit__(*exception)

    @property
    def global_step(self) -> int:
        """Number of training steps behind the weights."""
        return self._trained().global_step

    def record_file(self, name: str) -> str:
        """Returns the path of the records "train", "eval" or "predict" (or others) of the run."""
        return self.run.path(f"{name}.tf_record")

    def train(self, num_examples: int, evaluate: Callable[[], dict[str, float]]) -> None:
        """Trains on the records "train", or goes on where an earlier run was stopped.

        Args:
            num_examples: number of examples in an epoch; for SQuAD that of questions, each of
                which may make several records.
            evaluate: returns the results of an evaluation with the present weights; called every
                --evaluate_every_steps, and at the end where the best checkpoint is kept.

        Raises:
            UserError: there are too few examples, batch sizes do not fit the replicas, or the
                checkpoints do not fit the model.
            FloatingPointError: a loss or gradient is not finite.
            OSError: a checkpoint cannot be written, or another run has taken the directory over.
        """
        settings = self._settings
        num_train_steps, schedule = self._schedule(num_examples)
        logging.info("***** Running training *****")
        logging.info("  Num examples = %d", num_examples)
        logging.info("  Batch size = %d", settings.train_batch_size)
        logging.info("  Num steps = %d", num_train_steps)
        trainer = Trainer(self._build, self.run, schedule, self._frozen, **self._teaching)
        self._trainer = trainer
        self.run.write_labels()  # only now: a checkpoint there that does not fit was refused
        if self.run.chief:
            write_model_files(settings.output_dir, *self._model_files())

        def evaluate_and_keep() -> bool:
            step = trainer.global_step
            results = self.run.report(evaluate(), step)
            if not self._keeps_best:
                return True
            with self.run.clock.spent("saving"):
                self.run.check_directory()
                return self.run.best.update(results, step, trainer.values())

        open_input = functools.partial(
            WholeFileInput,
            [self.record_file("train")],
            self._schema,
            settings.train_batch_size,
            {},
            num_batches=num_train_steps,
            buckets=self._buckets,
            group_by_length=settings.group_by_length,
        )
        phase = Phase(num_train_steps, settings.train_batch_size, open_input)
        trainer.train([phase], evaluate_and_keep)
        # The last weights may be the best ones, at whatever step; and an earlier run that came so
        # far may have been stopped before it had evaluated them.
        if self._keeps_best and self.run.evaluated_step != trainer.global_step:
            evaluate_and_keep()
        self._take_best(trainer)
        if settings.export_dir and self.run.chief:
            self._export(trainer, settings.export_dir)

    def _schedule(self, num_examples: int) -> tuple[int, optimization.Schedule]:
        """Returns the number of training steps, rounded as in the original, and their rates."""
        settings = self._settings
        num_train_steps = int(num_examples / settings.train_batch_size * settings.num_train_epochs)
        if num_train_steps > MAX_COUNT:
            raise UserError(
                f"Training must have at most {MAX_COUNT} steps: {num_examples} examples,"
                f" --train_batch_size={settings.train_batch_size} and"
                f" --num_train_epochs={settings.num_train_epochs} make {num_train_steps}"
            )
        if num_train_steps < 1:
            raise UserError(
                f"Training needs at least one batch: {num_examples} examples,"
                f" --train_batch_size={settings.train_batch_size} and"
                f" --num_train_epochs={settings.num_train_epochs} make {num_train_steps} steps"
            )
        num_warmup_steps = int(num_train_steps * settings.warmup_proportion)
        return num_train_steps, optimization.linear_schedule(
            settings.learning_rate, num_train_steps, num_warmup_steps
        )

    def _take_best(self, trainer: Trainer) -> None:
        best = self.run.best.prefix()
        if best and self._keeps_best:
            trainer.restore(best)
            logging.info("The weights are now those of the best checkpoint, %s", best)
        elif best:
            logging.warning("The weights are the last ones; --keep_best takes the best, %s", best)
        elif self._keeps_best:
            logging.warning(
                "--keep_best: %s has no checkpoint; the weights are those of --output_dir, or of"
                " --init_checkpoint if there are none",
                self.run.best.folder,
            )

    def _export(self, trainer: Trainer, export_dir: str) -> None:
        """Writes a folder like that of a released model, with the names of the classes."""
        weights = {v.path: v.value for v in trainer.model.variables}
        write_model(export_dir, weights, *self._model_files(), self.run.labels)
        logging.info("Exported the weights to %s", export_dir)

    def _model_files(self) -> tuple[BertConfig, Mapping[str, bytes], bool]:
        """Returns configuration, vocabulary and casing, for `write_model_files`."""
        settings = self._settings
        return self._config, read_vocabulary(settings.vocab_file), settings.do_lower_case

    def _trained(self) -> Trainer:
        """Returns the trainer; without training, one with the weights of the directory."""
        if self._trainer is None:
            self._trainer = Trainer(self._build, self.run, schedule=None)
            self._take_best(self._trainer)
        return self._trainer

    def predict(self, name: str, num_records: int, batch_size: int) -> Iterator[Columns]:
        """Yields the model's predictions for the records of a name, in their order.

        They come as columns of some records at a time; see `prediction.Predictor.predict`.

        Args:
            name: see `record_file`.
            num_records: number of records, for the progress bar.
            batch_size: records computed at a time, over all replicas; see
                `prediction.check_prediction`.

        Raises:
            UserError: the file is damaged.
            OSError: at the end, before the predictions are written: another run has taken the
                directory over.
        """
        logging.info("  Num examples = %d", num_records)
        logging.info("  Batch size = %d", batch_size)
        trainer = self._trained()
        if self._predictor is None:
            self._predictor = Predictor(trainer.model, self.run.strategy)
        chunks = input_pipeline.record_chunks(
            [self.record_file(name)], self._schema, CHUNK_BATCHES * batch_size
        )
        one_length = len(self._buckets.lengths) == 1
        yield from self._predictor.predict(
            chunks, batch_size, None if one_length else self._buckets, num_records
        )
        self.run.check_directory()

    def train_evaluate_predict(
        self,
        num_examples: int | None,
        evaluate: Callable[[], dict[str, float]],
        predict: Callable[[], None],
    ) -> dict[str, float | int] | None:
        """Trains, evaluates and predicts, as the settings (`EvaluationSettings`) say.

        Args:
            num_examples: see `train`; None if it does not train.
            evaluate: see `train`.
            predict: writes predictions with the final weights.

        Returns:
            The results of the final evaluation, if there is one.
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
            OSError: the file cannot be written, or another run has taken the directory over.
        """
        results = self.run.report(results, self.global_step)
        self.run.write_results(results)
        return results
