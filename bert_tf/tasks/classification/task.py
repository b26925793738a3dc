"""Classification and regression as a task of fine-tuning."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.engine.prediction import Columns, join
from bert_tf.errors import UserError, first_of, listed
from bert_tf.files.model_notes import LABELS_FILE, PAIRS, TEXTS, check_label
from bert_tf.files.whole_files import write_whole
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.folder import reporting
from bert_tf.runs.results import review, tables
from bert_tf.runs.results.reports import Calibration, Report, calibrate
from bert_tf.runs.results.review import Decision
from bert_tf.runs.results.tables import Cell
from bert_tf.runs.training.fine_tuning_checks import learned_labels
from bert_tf.tasks import class_weights
from bert_tf.tasks.classification import scores
from bert_tf.tasks.classification.decision import configured, keep_threshold
from bert_tf.tasks.classification.examples import (
    ClassificationEncoder,
    DataProcessor,
    InputExample,
    as_labels,
    in_both_orders,
    scaled,
)
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.classification.processors import ProcessorSettings, get_processor
from bert_tf.tasks.classification.rows import ClassificationRows
from bert_tf.tasks.classification.settings import (
    ClassifierOptions,
    ClassifierSettings,
    TableColumns,
    TfdsSource,
)
from bert_tf.tasks.classification.table import TableProcessor
from bert_tf.tasks.classification.teacher import DistilledClassification, copy_head, read_teacher
from bert_tf.tasks.fine_tuning import run_fine_tuning
from bert_tf.tasks.long_text import text_columns
from bert_tf.tasks.task import (
    Chunks,
    Evaluated,
    ExampleSet,
    FineTuningTask,
    FoldKey,
    Start,
    TaskFiles,
)
from bert_tf.tasks.task_model import TaskModel
from bert_tf.text.tokenizers import Tokenizer


@dataclasses.dataclass(eq=False, kw_only=True)
class GroupedSet(ExampleSet):
    """Examples that are ranked within their groups."""

    groups: Sequence[str]


class ClassificationTask(FineTuningTask):
    options = ClassifierOptions

    def __init__(self, settings: ClassifierOptions, processor: DataProcessor):
        super().__init__(settings)
        self.processor = processor
        self.best_metric = processor.best_metric
        self._calibration: Calibration | None = None
        self._config: BertConfig | None = None  # if a text can have several labels

    @classmethod
    def of_rows(cls, options: ClassifierOptions, rows: ClassificationRows) -> Self:
        return cls(options, TableProcessor(rows.columns(), ""))

    def model_config(self, config: BertConfig) -> BertConfig:
        config = configured(config, self.settings, self.processor.multi_label)
        self._config = config if config.is_multi_label else None
        return config

    @property
    def decision(self) -> Decision | None:
        """How a text gets its labels, if it can have several."""
        if self._config is None:
            return None
        return Decision(self._config.threshold, self.processor.label_separator)

    def check(self, config: BertConfig, strategy: tf.distribute.Strategy) -> None:
        if self.settings.temperature_scaling and self.processor.get_labels() is None:
            raise UserError(
                "--temperature_scaling is for classes: a regression has no probabilities. Leave it"
                " out"
            )
        settings, labels = self.settings, self.processor.get_labels()
        class_weights.check_class_settings(settings.class_weights, settings.label_smoothing, labels)

    def example_set(self, purpose: str, examples: Sequence[InputExample]) -> ExampleSet:
        if purpose == "eval" and getattr(examples[0], "group", None) is not None:
            scores.check_relevance(purpose, examples, self.processor.get_labels())
            return GroupedSet(purpose, examples, groups=[x.group for x in examples])
        return ExampleSet(purpose, examples)

    def key(self, example: InputExample) -> tuple[Hashable, str]:
        if getattr(example, "group", None) is not None:  # a group is not divided
            return None, example.group
        label = None if isinstance(example.label, float) else example.label
        label = tuple(label) if isinstance(label, list) else label
        return label, f"{example.text_a}\n{example.text_b or ''}"

    def labels(self, sets: Mapping[str, Sequence[ExampleSet]]) -> list[str]:
        labels = self.processor.get_labels()
        name = f"get_labels of {type(self.processor).__name__}"
        for label in labels or ():
            check_label(label, name)
        if labels is not None and len(labels) < 2:
            raise UserError(
                f"A classification must have at least two classes; {name} returned"
                f" {listed(labels) or 'none'}. For a regression it must return None"
            )
        labels = labels or []
        if self.settings.find_threshold and "eval" not in sets:
            raise UserError(
                "--find_threshold needs examples to evaluate on: add --do_eval, or leave"
                " --find_threshold out"
            )
        learned = learned_labels(self.settings)
        if learned not in (None, labels):
            raise UserError(
                "The classes must be the ones that the model in --output_dir or --init_checkpoint"
                f" was trained with, in the same order: {first_of(learned)} ({LABELS_FILE}"
                f" in its folder); they are {listed(labels) or 'none'}. For --task_name=table set"
                " --labels or --regression. If only the names of the classes differ, edit"
                f" {LABELS_FILE}. Otherwise choose another model, or another --output_dir to train"
                " into"
            )
        return labels

    def prepare(self, sets: Mapping[str, Sequence[ExampleSet]], labels: Sequence[str]) -> None:
        for training in sets.get("train", ()):
            if not self.settings.teacher_checkpoint:  # a teacher also labels unlabeled text
                labelled = [x.label for x in training.examples]
                refuses = bool(labels) and isinstance(self.processor, TableProcessor)
                self.check_differ(
                    (tuple(x) if isinstance(x, list) else x for x in labelled), refuses
                )
            if self.settings.double_unordered:
                training.examples = in_both_orders(training.examples)
        class_weights.weigh(sets, self.settings.class_weights, labels)

    def reads(self, examples: Sequence[InputExample]) -> str | None:
        num_pairs = sum(bool(example.text_b) for example in examples)
        return {0: TEXTS, len(examples): PAIRS}.get(num_pairs)

    def encoder(
        self, example_set: ExampleSet, tokenizer: Tokenizer, labels: Sequence[str]
    ) -> ClassificationEncoder:
        settings = self.settings
        weighted = any(class_weights.weight_of(x) is not None for x in example_set.examples)
        length, stride = settings.max_seq_length, settings.stride
        several = self.decision is not None
        return ClassificationEncoder(tokenizer, length, labels or None, stride, weighted, several)

    def build(self, config: BertConfig, labels: Sequence[str], **options) -> ClassificationModel:
        options["label_smoothing"] = self.settings.label_smoothing
        return ClassificationModel(config, len(labels) or 1, **options)

    def teaching(
        self, start: Start, labels: Sequence[str], strategy: tf.distribute.Strategy
    ) -> dict[str, Callable]:
        settings = self.settings
        if not settings.teacher_checkpoint:
            return {}
        teacher = read_teacher(settings, start, labels, strategy)
        arguments = teacher, settings.alphas, settings.temperature, settings.cos_all_layers
        found = {"objective": lambda student: DistilledClassification(student, *arguments)}
        if settings.copy_teacher_head:
            found["initialize"] = lambda student: copy_head(student, teacher)
        return found

    def epoch_size(self, num_examples: int, num_records: int) -> int:
        """Returns the number of records: with --long_text every window is trained on."""
        if self.settings.stride is not None:
            logging.info("  Num texts = %d, in %d windows", num_examples, num_records)
        return num_records

    def _columns(self, example_set: ExampleSet, predictions: Chunks, *names: str) -> Columns:
        """Returns the predictions for the texts of a set; with windows, one for each text."""
        columns = join(predictions, *names)
        if self.settings.stride is None:
            return columns
        counts, long_text = example_set.encoder.num_windows, self.settings.long_text
        logging.info("  Num texts = %d, in %d windows", len(counts), sum(counts))
        return text_columns(columns, counts, long_text, self.decision is None)

    def calibrate(self, model: TaskModel, example_set: ExampleSet, predictions: Chunks) -> None:
        columns = self.evaluate(example_set, predictions).found
        importance = columns.get("example_weight")
        self._calibration = calibrate(columns["label_ids"], columns["outputs"], importance)
        for variable in (model.head.output_weights, model.head.output_bias):
            variable.assign(variable.numpy() / self._calibration.temperature)

    def evaluate(self, example_set: ExampleSet, predictions: Chunks) -> Evaluated:
        """Returns the original's results, the processor's metrics, and the rankings within groups.

        The weights of a dev set count in all of them except the rankings.
        """
        names = ["outputs", "label_ids", "per_example_loss"]
        if getattr(example_set.encoder, "weighted", False):
            names.append("example_weight")
        columns = self._columns(example_set, predictions, *names)
        labels, outputs = columns["label_ids"], columns["outputs"]
        importance = columns.get("example_weight")
        if importance is not None and np.allclose(importance, 1.0):
            importance = None
        losses, batch_size = columns["per_example_loss"], self.settings.eval_batch_size
        results = {
            **reporting.mean_losses(losses, batch_size, importance),
            **self._scores(labels, outputs, importance, finds=not example_set.suffix),
        }
        if isinstance(example_set, GroupedSet):
            results |= scores.evaluate_groups(example_set.groups, labels, outputs)
        return Evaluated(results, columns)

    def report(self, example_set: ExampleSet, evaluated: Evaluated) -> Report:
        return review.report_of(*self.reviewed(example_set, evaluated))

    def reviewed(self, example_set: ExampleSet, evaluated: Evaluated) -> tuple[Any, ...]:
        """Returns the arguments of `review.report_of` for an evaluation."""
        found = evaluated.found["label_ids"], evaluated.found["outputs"]
        calibration = None if example_set.suffix else self._calibration
        return self.processor.get_labels(), *found, self.decision, calibration

    def predict(self, example_set: ExampleSet, predictions: Chunks) -> np.ndarray:
        return self._columns(example_set, predictions, "outputs")["outputs"]

    def _scores(
        self, labels: np.ndarray, outputs: np.ndarray, importance: np.ndarray | None, finds: bool
    ) -> dict[str, float]:
        """Returns the processor's metrics; with `finds` sets the threshold for --find_threshold."""
        if self._config is None:
            return scores.evaluate(self.processor.metrics, labels, outputs, importance)
        found = {}
        if self.settings.find_threshold and finds:
            threshold = scores.best_threshold(labels, outputs, importance)
            self._config.threshold = found["eval_threshold"] = threshold
        threshold = self._config.threshold
        return {**found, **scores.evaluate_labels(labels, outputs, threshold, importance)}


# Purpose -> what processors call the set.
_SPLITS = {"train": "train", "eval": "dev", "predict": "test"}


def run_classifier(
    config: BertConfig,
    processor: DataProcessor,
    strategy: tf.distribute.Strategy,
    settings: ClassifierSettings,
) -> dict[str, float | int] | None:
    """Fine-tunes, evaluates and predicts with a `DataProcessor`: see `run_fine_tuning`."""
    return run_fine_tuning(ClassificationFiles(settings, processor), config, strategy)


class ClassificationFiles(TaskFiles, ClassificationTask):
    """Reads a processor's files; writes test_results.tsv, predictions.tsv and GLUE's submission.

    Files of a second dev or test set (`DataProcessor.also`) have its suffix.
    """

    @classmethod
    def from_settings(
        cls,
        settings: ClassifierSettings,
        named: ProcessorSettings,
        columns: TableColumns,
        source: TfdsSource,
    ) -> "ClassificationFiles":
        if not settings.data_dir and not source.tfds:
            raise UserError("--data_dir or --tfds must be given, to say where the examples are")
        if columns.fold_group_column is not None and not settings.folds:
            raise UserError(
                f"--fold_group_column={columns.fold_group_column} needs --folds: it says which"
                " examples are never in two folds"
            )
        of_name = named.task_name, settings.data_dir or "", named.xnli_language
        processor = get_processor(*of_name, columns, source, learned_labels(settings))
        task = cls(settings, processor)
        task.other_settings = (named, columns, source)
        return task

    def check(self, config: BertConfig, strategy: tf.distribute.Strategy) -> None:
        super().check(config, strategy)
        scale, labels = self.settings.label_scale, self.processor.get_labels()
        if scale != 1.0 and labels is not None:
            raise UserError(
                f"--label_scale={scale} is for numbers; this task has the classes"
                f" {listed(labels)}. Leave it out"
            )

    def read_sets(self, purpose: str) -> list[ExampleSet]:
        sets = [self.example_set(purpose, self._read(purpose, self.processor))]
        if purpose != "train":
            for key, processor in self.processor.also.items():
                if processor.has(_SPLITS[purpose], self.settings.data_dir):
                    examples = self._read(purpose, processor)
                    sets.append(ExampleSet(f"{purpose}_{key}", examples, suffix=f"_{key}"))
        return sets

    def _read(self, purpose: str, processor: DataProcessor) -> list[InputExample]:
        split, data_dir = _SPLITS[purpose], self.settings.data_dir
        examples = getattr(processor, f"get_{split}_examples")(data_dir)
        if not examples:
            raise UserError(
                f"The {split} set must have at least one example; get_{split}_examples of"
                f" {type(processor).__name__} returned none for --data_dir={data_dir or ''}"
            )
        return scaled(examples, self.settings.label_scale)

    def dev_set(self) -> str | None:
        with contextlib.suppress(NotImplementedError):  # a processor written for the original
            if self.processor.has("dev", self.settings.data_dir):
                return f"one in {self.settings.data_dir or '--tfds'}"
        return None

    def fold_key(self, example: InputExample) -> FoldKey:
        labels: tuple[str, ...] | None = None
        if self.processor.get_labels() is not None:
            labels = tuple(sorted(set(as_labels(example.label))))
        group = getattr(example, "fold_group", None) or getattr(example, "group", None)
        return FoldKey(labels, f"{example.text_a}\n{example.text_b or ''}", group)

    def row(self, example: InputExample, purpose: str, number: int) -> dict[str, Cell]:
        # Examples of a processor that was written for the original have no `known_label`.
        known = getattr(example, "known_label", None)
        label = known if purpose == "predict" else example.label
        if isinstance(label, list | tuple):
            label = self.processor.label_separator.join(label)
        texts = {"text_a": example.text_a, "text_b": example.text_b or None}
        return {"id": example.guid, **texts, "label": label}

    def write_review(self, example_set: ExampleSet, evaluated: Evaluated) -> None:
        place = self.settings.output_dir, example_set.suffix, example_set.rows
        review.write_review(*place, *self.reviewed(example_set, evaluated))
        if self._config and self.settings.find_threshold and not self.settings.do_train:
            keep_threshold(self.settings, self._config.threshold)

    def write_predictions(
        self, example_set: ExampleSet, outputs: np.ndarray, global_step: int
    ) -> None:
        path = self.path(f"test_results{example_set.suffix}.tsv")
        reporting.write_probabilities(path, outputs)
        labels = self.processor.get_labels()
        found = review.predicted_columns(labels, outputs, self.decision)
        path = self.path(f"predictions{example_set.suffix}.tsv")
        tables.write_predictions(path, example_set.rows, found)
        processor = self.processor.also.get(example_set.suffix[1:], self.processor)
        outputs = outputs * self.settings.label_scale
        write_submission(self.settings.output_dir, processor, outputs)


def write_submission(output_dir: str, processor: DataProcessor, outputs: np.ndarray) -> str | None:
    """Writes the submission file of a task; returns its path, or None if the task has none.

    Each line has the index of an example, from 0, and its predicted class or number. The indices
    are GLUE's own if the whole test set was predicted in order. For `outputs` see `predicted`.
    """
    if processor.submission_file is None:
        return None
    path = os.path.join(output_dir, processor.submission_file)
    lines = [f"{i}\t{text}\n" for i, text in enumerate(predicted(processor, outputs))]
    write_whole(path, "".join(["index\tprediction\n", *lines]))
    return path


def predicted(processor: DataProcessor, outputs: np.ndarray) -> list[str]:
    """Returns each prediction as text, from outputs [examples, classes], or [examples] if numbers.

    Numbers are clipped to the task's range.
    """
    labels = processor.get_labels()
    if labels is not None:
        return [labels[i] for i in np.argmax(outputs, axis=-1)]
    if processor.label_range:
        outputs = np.clip(outputs, *processor.label_range)
    return [f"{value:.3f}" for value in outputs]
