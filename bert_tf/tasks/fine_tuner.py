"""Fine-tunes a model, evaluates it and predicts, for the programs and for loaded models."""

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf import optimization
from bert_tf.engine import input_pipeline
from bert_tf.engine.length_buckets import Buckets, parse_lengths
from bert_tf.engine.prediction import CHUNK_BATCHES, Columns, Predictor, check_prediction
from bert_tf.engine.whole_file_input import WholeFileInput
from bert_tf.errors import UserError
from bert_tf.files import records, storage
from bert_tf.files.model_notes import ModelInput, write_model_input
from bert_tf.files.temporary_names import WORKING, temporary_name
from bert_tf.files.whole_folders import check_folder, whole_folder
from bert_tf.model.configuration import BertConfig
from bert_tf.model.layer_scopes import layerwise_lr_factors, parse_frozen_layers
from bert_tf.model_folder.hugging_face.vector_settings import VECTOR_FILES, write_vector_settings
from bert_tf.model_folder.reader import ModelFiles
from bert_tf.model_folder.writer import CONFIG_FILE, MODEL_NAMES, write_model, write_model_files
from bert_tf.runs.flags.setting_fields import MAX_COUNT
from bert_tf.runs.flags.settings import FineTuningOptions
from bert_tf.runs.folder.run import BestCheckpoint, Run
from bert_tf.runs.results.tables import Cell, KeptRows
from bert_tf.runs.training.fine_tuning_checks import check_settings
from bert_tf.runs.training.plan import Phase, Work
from bert_tf.runs.training.trainer import Trainer, model_options
from bert_tf.runs.training.watch import CallbackWatch
from bert_tf.tasks.long_text import windows
from bert_tf.tasks.matrix_products import training_flops
from bert_tf.tasks.pretraining.schema import MLM
from bert_tf.tasks.pretraining.training.settings import RecordBatches
from bert_tf.tasks.task import Evaluated, ExampleSet, FineTuningTask, Start

# Arguments of `whole_folder` for --export_dir.
_EXPORTED = (
    "export_dir",
    CONFIG_FILE,
    (*MODEL_NAMES, *VECTOR_FILES),
    "one that an earlier export wrote",
)


class FineTuner:
    """Trains, evaluates and predicts with one model; a context manager that owns --output_dir.

    Its methods raise UserError if settings, examples, checkpoint and model do not fit together, and
    OSError if --output_dir cannot be written to or another run has taken it over. The training set
    in `sets` is removed once its records are written. Without `saves` no checkpoint is written.
    """

    def __init__(
        self,
        task: FineTuningTask,
        start: Start,
        strategy: tf.distribute.Strategy,
        sets: dict[str, list[ExampleSet]],
        watch: CallbackWatch | None = None,
        saves: bool = True,
    ):
        settings, config, tokenizer = task.settings, start.config, start.tokenizer
        labels = task.labels(sets)
        self.start, self._watch = start, watch
        self.evaluated: list[tuple[ExampleSet, Evaluated]] = []
        lengths = parse_lengths(settings.length_buckets, settings.max_seq_length)
        check_settings(config, settings, len(lengths) == 1, start.folder)
        self._task = task
        self._settings = settings
        options = model_options(settings, strategy)
        self._build = functools.partial(task.build, config, labels, **options)
        self._teaching = {}
        if settings.do_train:
            self._teaching = task.teaching(start, labels, strategy)
        self._sets = sets
        task.prepare(sets, labels)
        self.model_input = ModelInput()
        if settings.do_train:
            reads = task.reads(sets["train"][0].examples)
            self.model_input = ModelInput(reads, settings.max_seq_length, *windows(settings))
        for example_set in self._distinct_sets():
            example_set.encoder = task.encoder(example_set, tokenizer, labels)
        schema = next(iter(self._distinct_sets())).encoder.schema
        self._limits = _limits(config, labels)
        self._schema = records.limited(schema, self._limits)  # of the training set, if any
        self._frozen = parse_frozen_layers(
            settings.freeze_layers, config.layer_scopes, config.has_pooler
        )
        decay = settings.layerwise_lr_decay
        self._learning_rate_factors = layerwise_lr_factors(decay, config.layer_scopes)
        self._buckets = Buckets.of_schema(lengths, schema)
        self._keeps_best = settings.keep_best or settings.early_stopping_patience > 0
        best = BestCheckpoint(
            settings.output_dir,
            task.best_metric,
            patience=settings.early_stopping_patience,
            every_steps=settings.evaluate_every_steps,
            labels=labels,
        )
        self.run = Run(strategy, settings, best, labels, saves=saves)
        self._trainer: Trainer | None = None
        self._working_files: dict[str, str] = {}
        self._check_checkpoints()
        if settings.export_dir:
            check_folder(settings.export_dir, *_EXPORTED)
            storage.make_output_dir(settings.export_dir, "export_dir")

    def _check_checkpoints(self) -> None:
        settings = self._settings
        if settings.do_train and self._keeps_best:
            self.run.best.check()
        finds_threshold = getattr(settings, "find_threshold", False)
        if finds_threshold and not self._keeps_best and self.run.best.prefix():
            raise UserError(
                f"--find_threshold needs --keep_best here: {settings.output_dir} would be loaded"
                f" from its best checkpoint. Add --keep_best, or delete {self.run.best.folder}"
            )
        if self.run.checkpoints.latest():
            return
        if self.start.initialize:
            pass
        elif settings.init_checkpoint:
            ModelFiles.of_flag(settings.init_checkpoint)
        elif settings.do_train:
            logging.warning(
                "Training begins with random weights, because --init_checkpoint is not set. To"
                " fine-tune a pre-trained model, set it to the model's checkpoint"
            )
        if settings.do_train and self.run.best.prefix():
            raise UserError(
                f"{self.run.best.folder} must belong to the run in --output_dir, which has no"
                " checkpoint; delete that folder to start over, or choose another --output_dir"
            )

    def __enter__(self) -> "FineTuner":
        self.run.__enter__()
        return self

    def __exit__(self, *exception) -> bool | None:
        for example_set in self._distinct_sets():
            if example_set.rows:
                example_set.rows.close()
        for name, path in self._working_files.items():
            # Renamed as in the original. Best effort: nothing reads the files.
            with contextlib.suppress(tf.errors.OpError):
                tf.io.gfile.rename(path, self.run.path(f"{name}.tf_record"), overwrite=True)
        return self.run.__exit__(*exception)

    def write_records(self, row: Callable[..., Mapping[str, Cell] | None] | None = None) -> None:
        """Writes the records of all sets; `row` makes the rows to keep for prediction tables."""
        wanted = {"eval": self._settings.do_eval, "predict": self._settings.do_predict}
        for purpose in (name for name in self._sets if row and wanted.get(name)):
            for example_set in self._sets[purpose]:
                rows = (row(x, purpose, i) for i, x in enumerate(example_set.examples))
                self._keep_rows(example_set, rows)
        for example_set in self._distinct_sets():
            example_set.write_records(self._record_file(example_set.name))
        if self._settings.do_train:
            (training,) = self._sets.pop("train")  # frees its memory: the records are written
            self._num_records = training.num_records
            self._epoch_size = self._task.epoch_size(training.num_examples, training.num_records)

    def _keep_rows(
        self, example_set: ExampleSet, rows: Iterator[Mapping[str, Cell] | None]
    ) -> None:
        first = next(rows, None)
        if first is not None:
            folder = None if "://" in self.run.output_dir else self.run.output_dir
            example_set.rows = KeptRows(itertools.chain([first], rows), folder)

    def _distinct_sets(self) -> Iterable[ExampleSet]:
        return dict.fromkeys(itertools.chain.from_iterable(self._sets.values()))

    def _record_file(self, name: str) -> str:
        # Only the run that trains writes train.tf_record. Other sets' files have temporary names,
        # because another program may evaluate other examples in the same --output_dir.
        if name == "train":
            return self.run.path(f"{name}.tf_record")
        if name not in self._working_files:
            self._working_files[name] = temporary_name(self.run.output_dir, WORKING)
        return self._working_files[name]

    def train(self) -> None:
        """Trains on the records; resumes an earlier run that was stopped."""
        settings = self._settings
        scales_decay = self.start.config.warmup_scales_decay
        num_train_steps, schedule = training_schedule(settings, self._epoch_size, scales_decay)
        logging.info("***** Running training *****")
        logging.info("  Num examples = %d", self._epoch_size)
        logging.info("  Batch size = %d", settings.train_batch_size)
        logging.info("  Num steps = %d", num_train_steps)
        trainer = Trainer(
            *(self._build, self.run, schedule, self._frozen),
            learning_rate_factors=self._learning_rate_factors,
            start=self.start.initialize,
            **self._teaching,
        )
        trainer.objective.sums_losses = settings.loss_reduction == "sum"
        self._trainer = trainer
        config = self.start.config.to_json_string()
        self.run.check_same("configurations (--bert_config_file)", config)
        self.run.write_labels()  # after `Trainer`, which refuses a checkpoint that does not fit
        if self.run.chief:
            write_model_files(settings.output_dir, *self._model_files())
            self._write_use(settings.output_dir)

        open_input = functools.partial(
            WholeFileInput,
            [self._record_file("train")],
            self._schema,
            settings.train_batch_size,
            num_batches=num_train_steps,
            buckets=self._buckets,
            group_by_length=settings.group_by_length,
        )
        phase = Phase(
            *(num_train_steps, settings.train_batch_size, open_input),
            num_examples=self._num_records,
            work=self._work(),
        )
        watch = self._watch
        if watch:
            steps_of_epoch = self._epoch_size / settings.train_batch_size
            evaluate = self.evaluate if "eval" in self._sets else None
            steps = (trainer.global_step, num_train_steps, steps_of_epoch)
            watch.begin(trainer.model, trainer.optimizer, *steps, evaluate)
        trainer.train([phase], self._evaluate_and_keep, watch)
        # The last weights may be the best, whatever their step; and an earlier run that got this
        # far may have been stopped before its last evaluation.
        if self._keeps_best and self.run.evaluated_step != trainer.global_step:
            self._evaluate_and_keep()
        self._finish(trainer)

    def _work(self) -> Work:
        """Returns the work of a step: the encoder's operations, without the task's head."""
        settings, config = self._settings, self.start.config
        *choices, length = self._schema["input_ids"].shape
        sequences = settings.train_batch_size * math.prod(choices)

        @functools.cache
        def flops(length: int) -> int:
            return training_flops(config, RecordBatches(length, 1, sequences, 0), objective=MLM)

        # `flops` counts neither a teacher's work nor what frozen layers save.
        known = not settings.freeze_layers and not self._teaching
        return Work(sequences, length, flops if known else None)

    def _evaluate_and_keep(self) -> bool:
        """Evaluates during training and saves the best weights; returns False to stop early."""
        trainer = self._trained()
        results = self.run.report(self.evaluate(), trainer.global_step)
        if not self._keeps_best:
            return True
        with self.run.clock.spent("saving"):
            self.run.check_directory()
            return self.run.best.update(results, trainer.global_step, trainer.values())

    def _finish(self, trainer: Trainer) -> None:
        """Restores the best weights, fits the threshold and temperature, and exports the model."""
        self._take_best(trainer)
        if getattr(self._settings, "find_threshold", False):
            self.evaluate()  # finds the threshold of the final weights
            if self.run.chief:
                write_model_files(self._settings.output_dir, *self._model_files())
        self._calibrate(trainer)
        export_dir = self._settings.export_dir
        if export_dir and self.run.chief:
            weights = {v.path: v.value for v in trainer.model.variables}
            with whole_folder(export_dir, *_EXPORTED) as place:
                write_model(place, weights, *self._model_files(), self.run.labels)
                self._write_use(place)
            logging.info("Exported the weights to %s", export_dir)

    def _write_use(self, folder: str) -> None:
        """Writes the model's input format and, if the task trains vectors, their settings."""
        write_model_input(folder, self.model_input)
        if vectors := self._task.vector_settings:
            write_vector_settings(folder, vectors, self.start.config.hidden_size)

    def _take_best(self, trainer: Trainer) -> None:
        best = self.run.best.prefix()
        if best and self._keeps_best:
            trainer.restore(best)
            logging.info("Restored the weights of the best checkpoint, %s", best)
        elif best:
            logging.warning("Using the last weights; set --keep_best to use the best, %s", best)
        elif self._keeps_best:
            logging.warning(
                "--keep_best: %s has no checkpoint; using the weights in --output_dir, or, if it"
                " has none, --init_checkpoint",
                self.run.best.folder,
            )

    def _calibrate(self, trainer: Trainer) -> None:
        if getattr(self._settings, "temperature_scaling", False):
            logging.info("***** Fitting the temperature *****")
            example_set = self._sets["eval"][0]
            predictions = self._predict(example_set, "eval")
            self._task.calibrate(trainer.model, example_set, predictions)

    def _model_files(self) -> tuple[BertConfig, Mapping[str, str | bytes], bool]:
        return self.start.config, self.start.vocabulary, self._settings.do_lower_case

    def _trained(self) -> Trainer:
        """Returns the trainer; without training, it only restores weights."""
        if self._trainer is None:
            self._trainer = Trainer(
                self._build, self.run, schedule=None, start=self.start.initialize
            )
            self._take_best(self._trainer)
            self._calibrate(self._trainer)
        return self._trainer

    @functools.cached_property
    def _predictor(self) -> Predictor:
        return Predictor(self._trained().model, self.run.strategy)

    def evaluate(self) -> dict[str, float]:
        """Evaluates the current weights; returns the results."""
        results = {}
        self.evaluated = []
        for example_set in self._sets["eval"]:
            found = self._task.evaluate(example_set, self._predict(example_set, "eval"))
            self.evaluated.append((example_set, found))
            results |= {f"{key}{example_set.suffix}": x for key, x in found.results.items()}
        return results

    def predict(self) -> Iterator[tuple[ExampleSet, Any]]:
        """Yields each set to predict, with the task's outputs for it."""
        for example_set in self._sets["predict"]:
            predictions = self._predict(example_set, "predict")
            yield example_set, self._task.predict(example_set, predictions)

    @property
    def global_step(self) -> int:
        """Number of steps that the weights were trained for."""
        return self._trained().global_step

    def _predict(self, example_set: ExampleSet, purpose: str) -> Iterator[Columns]:
        # Raises OSError, before anything is written, if another run has taken over --output_dir.
        batch_size = getattr(self._settings, self._task.batch_flags[purpose])
        logging.info("  Num examples = %d", example_set.num_records)
        logging.info("  Batch size = %d", batch_size)
        schema = records.limited(example_set.encoder.schema, self._limits)
        chunks = input_pipeline.record_chunks(
            [self._record_file(example_set.name)], schema, CHUNK_BATCHES * batch_size
        )
        one_length = len(self._buckets.lengths) == 1
        yield from self._predictor.predict(
            chunks, batch_size, None if one_length else self._buckets, example_set.num_records
        )
        self.run.check_directory()


def check_purposes(
    task: FineTuningTask, purposes: Collection[str], strategy: tf.distribute.Strategy
) -> None:
    """Raises UserError if settings need a purpose that is missing, or if a batch size is wrong."""
    settings = task.settings
    if getattr(settings, "temperature_scaling", False) and "eval" not in purposes:
        raise UserError(
            "--temperature_scaling is fitted on the dev set: add --do_eval, or leave"
            " --temperature_scaling out"
        )
    for purpose in purposes:
        if flag := task.batch_flags.get(purpose):
            check_prediction(strategy, getattr(settings, flag), flag)


def _limits(config: BertConfig, labels: Sequence[str] | None) -> dict[str, tuple[int, str]]:
    """Returns key of a record -> (what its values must be below, the source of that limit)."""
    limits = {
        "input_ids": (config.vocab_size, "vocab_size of --bert_config_file"),
        "segment_ids": (config.type_vocab_size, "type_vocab_size of --bert_config_file"),
    }
    if labels:
        limits["label_ids"] = (len(labels), "the number of labels")
    return limits


def training_schedule(
    settings: FineTuningOptions, num_examples: int, scales_decay: bool = False
) -> tuple[int, optimization.Schedule]:
    """Returns the number of training steps, rounded as in the original, and the schedule."""
    # ELECTRA's original, with `scales_decay`, does not round the number of warm-up steps.
    steps = int(num_examples / settings.train_batch_size * settings.num_train_epochs)
    if not 1 <= steps <= MAX_COUNT:
        raise UserError(
            f"Training must have at least one step and at most {MAX_COUNT} steps: {num_examples}"
            f" examples, --train_batch_size={settings.train_batch_size} and"
            f" --num_train_epochs={settings.num_train_epochs} make {steps} steps."
            f" {'Lower' if steps else 'Raise'} --num_train_epochs, or change the batch size"
        )
    num_warmup_steps = steps * settings.warmup_proportion
    if not scales_decay:
        num_warmup_steps = int(num_warmup_steps)
    return steps, optimization.PolynomialSchedule(
        settings.learning_rate, steps, num_warmup_steps, scales_decay=scales_decay
    )
