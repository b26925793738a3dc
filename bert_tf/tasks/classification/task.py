"""Classification and regression as a fine-tuning task."""

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.engine.prediction import Columns, join
from bert_tf.errors import UserError, first_of, listed
from bert_tf.files.model_notes import LABELS_FILE, PAIRS, TEXTS, check_label
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.folder import reporting
from bert_tf.runs.results import tables
from bert_tf.runs.results.reports import Calibration, Report, calibrate
from bert_tf.runs.results.tables import Decision
from bert_tf.runs.training.fine_tuning_checks import learned_labels
from bert_tf.tasks import class_weights
from bert_tf.tasks.classification import scores
from bert_tf.tasks.classification.decision import configured
from bert_tf.tasks.classification.examples import (
    ClassificationEncoder,
    DataProcessor,
    InputExample,
    in_both_orders,
)
from bert_tf.tasks.classification.model import ClassificationModel
from bert_tf.tasks.classification.rows import ClassificationRows
from bert_tf.tasks.classification.settings import ClassifierOptions
from bert_tf.tasks.classification.table import TableProcessor
from bert_tf.tasks.classification.teacher import DistilledClassification, copy_head, read_teacher
from bert_tf.tasks.long_text import text_columns
from bert_tf.tasks.task import Chunks, Evaluated, ExampleSet, FineTuningTask, Start
from bert_tf.tasks.task_model import TaskModel
from bert_tf.text.base_tokenizer import Tokenizer


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
        self._config: BertConfig | None = None  # set if a text can have several labels

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
        settings, labels = self.settings, self.processor.get_labels()
        if settings.temperature_scaling and labels is None:
            raise UserError(
                "--temperature_scaling is for classes: a regression has no probabilities. Leave it"
                " out"
            )
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
                found = [x.label for x in training.examples]
                found = [tuple(x) if isinstance(x, list) else x for x in found]
                refuses = bool(labels) and isinstance(self.processor, TableProcessor)
                self.check_differ(found, refuses)
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
        return tables.report_of(*self.reviewed(example_set, evaluated))

    def reviewed(self, example_set: ExampleSet, evaluated: Evaluated) -> tuple[Any, ...]:
        """Returns the arguments of `tables.report_of` for an evaluation."""
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
