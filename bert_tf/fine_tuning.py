"""From a pre-trained checkpoint to a fine-tuned one, and its predictions. It knows no task."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import (
    checkpoints,
    distribution,
    input_pipeline,
    interrupts,
    optimization,
    records,
    reporting,
    tokenization,
    training,
)
from bert_tf.best_checkpoint import BestCheckpoint
from bert_tf.configuration import BertConfig
from bert_tf.fast_tokenization import FastTokenizer
from bert_tf.freezing import parse_frozen_layers
from bert_tf.heartbeat import Heartbeat
from bert_tf.label_file import LABELS_FILE, read_labels
from bert_tf.length_buckets import Buckets, parse_lengths
from bert_tf.prediction import WINDOW, check_prediction
from bert_tf.steps import Task
from bert_tf.whole_file_input import WholeFileInput
from bert_tf.whole_files import write_whole


@dataclasses.dataclass(frozen=True)
class Settings:
    """What every fine-tuning program is told; each field is the flag of that name."""

    output_dir: str
    vocab_file: str
    max_seq_length: int
    do_lower_case: bool = True
    init_checkpoint: str | None = None
    do_train: bool = False
    train_batch_size: int = 32
    learning_rate: float = 5e-5
    num_train_epochs: float = 3.0
    warmup_proportion: float = 0.1
    save_checkpoints_steps: int = 1000
    keep_checkpoint_max: int = 5
    iterations_per_loop: int = 1000
    gradient_accumulation_steps: int = 1
    gradient_reduction: str = "local_clip_sum"
    random_seed: int = 12345
    length_buckets: str = "auto"
    group_by_length: bool = False
    freeze_layers: str = ""
    evaluate_every_steps: int = 0
    keep_best: bool = False
    early_stopping_patience: int = 0
    export_dir: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """What programs that evaluate and predict are told beyond; each field is a flag's name."""

    do_eval: bool = False
    do_predict: bool = False
    eval_batch_size: int = 8
    predict_batch_size: int = 8


def needed_sets(
    strategy: tf.distribute.Strategy, settings: Settings, evaluation: EvaluationSettings
) -> list[str]:
    """Returns which of the sets of examples, "train", "eval" and "predict", a run reads.

    Raises:
        ValueError: there is none, or its batch size does not fit the replicas.
    """
    if not (settings.do_train or evaluation.do_eval or evaluation.do_predict):
        raise ValueError("At least one of --do_train, --do_eval and --do_predict must be given.")
    names = ["train"] if settings.do_train else []
    if evaluation.do_eval or settings.evaluate_every_steps:
        check_prediction(strategy, evaluation.eval_batch_size, "eval_batch_size")
        names.append("eval")
    if evaluation.do_predict:
        check_prediction(strategy, evaluation.predict_batch_size, "predict_batch_size")
        names.append("predict")
    return names


def learned_labels(settings: Settings) -> list[str] | None:
    """Returns the classes of the model that a run begins with: see `label_file.read_labels`."""
    init_checkpoint = None if settings.do_train else settings.init_checkpoint
    return read_labels(settings.output_dir, init_checkpoint)


def make_tokenizer(
    config: BertConfig, settings: Settings, required_tokens: Sequence[str]
) -> FastTokenizer:
    """Returns the tokenizer of the vocabulary that belongs to the checkpoint.

    Raises:
        ValueError: the vocabulary lacks one of `required_tokens`, has more tokens than the model
            has embeddings, or the checkpoint is a released model of the other casing.
    """
    tokenization.validate_case_matches_checkpoint(settings.do_lower_case, settings.init_checkpoint)
    tokenizer = FastTokenizer(settings.vocab_file, settings.do_lower_case, required_tokens)
    tokenization.check_vocab_size(tokenizer.vocab, config.vocab_size, settings.vocab_file)
    return tokenizer


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

    Raises:
        ValueError: the settings contradict each other or do not fit the configuration; another
            run writes to the directory.
        OSError: the directory cannot be written to.
    """

    def __init__(
        self,
        config: BertConfig,
        task: Task,
        strategy: tf.distribute.Strategy,
        settings: Settings,
        schema: records.Schema,
        best_metric: str,
    ):
        lengths = parse_lengths(settings.length_buckets, settings.max_seq_length)
        _check(config, settings, len(lengths) == 1)
        self._config = config
        self._task = task
        self._strategy = strategy
        self._settings = settings
        self._schema = schema
        self._frozen = parse_frozen_layers(settings.freeze_layers, config.num_hidden_layers)
        self._buckets = Buckets.of_schema(lengths, schema)
        self._best = None
        if settings.keep_best or settings.early_stopping_patience:
            self._best = BestCheckpoint(
                settings.output_dir,
                best_metric,
                settings.early_stopping_patience,
                settings.evaluate_every_steps,
            )
        self._trainer: training.Trainer | None = None
        self._stack = contextlib.ExitStack()
        self._heartbeat: Heartbeat | None = None
        self._summaries = reporting.Summaries(None)
        checkpoints.make_output_dir(settings.output_dir)
        trained = checkpoints.CheckpointDirectory(settings.output_dir).latest()
        if settings.init_checkpoint and not trained:
            checkpoints.find_prefix(settings.init_checkpoint)  # before any record is made
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
            settings.init_checkpoint,
            settings.random_seed,
            settings.keep_checkpoint_max,
            self._heartbeat,
            self._frozen,
        )
        return self._trainer

    @property
    def global_step(self) -> int:
        """Number of training steps behind the weights."""
        return self._trained().global_step

    def train(
        self,
        file: str,
        num_examples: int,
        evaluate: Callable[[], dict[str, float]],
    ) -> None:
        """Trains on the records of a file, or goes on where an earlier run was stopped.

        Args:
            file: a TFRecord file.
            num_examples: what an epoch counts; for SQuAD questions, of which a record is a part.
            evaluate: returns the results of an evaluation with the present weights; called every
                --evaluate_every_steps, if that is given, and at the end where the best are kept.

        Raises:
            ValueError: there are too few examples, batch sizes do not fit the replicas, or the
                checkpoints do not fit the model.
            FloatingPointError: a loss or gradient is not finite.
            OSError: a checkpoint cannot be written.
        """
        settings = self._settings
        # The original's, rounding and all.
        num_train_steps = int(num_examples / settings.train_batch_size * settings.num_train_epochs)
        num_warmup_steps = int(num_train_steps * settings.warmup_proportion)
        if num_train_steps < 1:
            raise ValueError(
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
        trainer = self._make_trainer(schedule)
        evaluated = None

        def evaluate_and_keep() -> bool:
            nonlocal evaluated
            evaluated = trainer.global_step
            results = evaluate()
            reporting.log_results(results)
            self._summaries.write(results, trainer.global_step)
            if self._best is None:
                return True
            return self._best.see(results, trainer.global_step, trainer.values())

        phase = _Phase(
            num_train_steps,
            settings.train_batch_size,
            [file],
            self._schema,
            {},
            self._buckets,
            settings.group_by_length,
        )
        trainer.train(
            [phase],
            settings.save_checkpoints_steps,
            settings.iterations_per_loop,
            settings.gradient_accumulation_steps,
            settings.gradient_reduction,
            settings.evaluate_every_steps,
            evaluate_and_keep,
        )
        # The last weights may be the best ones, at whatever step; and an earlier run that came so
        # far may have been stopped before it had seen them.
        if self._best and evaluated != trainer.global_step:
            evaluate_and_keep()
        self._take_best(trainer)
        if settings.export_dir and distribution.is_chief(self._strategy):
            self._export(trainer, settings.export_dir)

    def _take_best(self, trainer: training.Trainer) -> None:
        best = self._best.prefix() if self._best else None
        if best:
            trainer.restore(best)
            logging.info("The weights are now those of the best checkpoint, %s", best)

    def _export(self, trainer: training.Trainer, export_dir: str) -> None:
        """Writes what the archives of released models hold, and the names of the classes."""
        weights = {v.path: v.value for v in trainer.model.variables}
        checkpoints.write(os.path.join(export_dir, "bert_model.ckpt"), weights)
        write_whole(os.path.join(export_dir, "bert_config.json"), self._config.to_json_string())
        labels_file = os.path.join(self._settings.output_dir, LABELS_FILE)
        for path, name in ((self._settings.vocab_file, "vocab.txt"), (labels_file, LABELS_FILE)):
            if tf.io.gfile.exists(path):
                tf.io.gfile.copy(path, os.path.join(export_dir, name), overwrite=True)
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
        self, file: str, num_records: int, batch_size: int
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yields the task's predictions for each record of a file, in its order.

        Args:
            file: a TFRecord file.
            num_records: how many it has, for the progress bar.
            batch_size: records computed at a time, over all replicas.

        Raises:
            ValueError: the file is damaged, or batch size and replicas do not fit.
        """
        logging.info("  Num examples = %d", num_records)
        logging.info("  Batch size = %d", batch_size)
        windows = input_pipeline.record_windows([file], self._schema, WINDOW * batch_size, {})
        one_length = len(self._buckets.lengths) == 1
        return self._trained().predictor.predict(
            windows, batch_size, None if one_length else self._buckets, num_records
        )

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


def _check(config: BertConfig, settings: Settings, one_length: bool) -> None:
    if settings.max_seq_length > config.max_position_embeddings:
        raise ValueError(
            f"--max_seq_length ({settings.max_seq_length}) must be at most max_position_embeddings"
            f" ({config.max_position_embeddings}) of --bert_config_file"
        )
    if (settings.keep_best or settings.early_stopping_patience) and (
        settings.do_train and not settings.evaluate_every_steps
    ):
        raise ValueError(
            "--keep_best and --early_stopping_patience go by the evaluations during training; say"
            " how often by --evaluate_every_steps"
        )
    if settings.group_by_length and one_length:
        raise ValueError(
            "--group_by_length is of use where batches are padded to several lengths; give"
            " --length_buckets, or leave it out"
        )
    if settings.evaluate_every_steps and not settings.do_train:
        raise ValueError("--evaluate_every_steps is of use with --do_train only; leave it out")
    if settings.export_dir and not settings.do_train:
        raise ValueError("--export_dir is written after training; add --do_train or leave it out")
    sources = [path for path in (settings.init_checkpoint, settings.vocab_file) if path]
    folders = {settings.output_dir, *sources, *map(os.path.dirname, sources)}
    if settings.export_dir and _real(settings.export_dir) in map(_real, folders):
        raise ValueError(
            f"--export_dir={settings.export_dir} must not be --output_dir or the folder of"
            " --init_checkpoint or --vocab_file, whose files it would replace"
        )


def _real(folder: str) -> str:
    return os.path.realpath(folder or ".")
