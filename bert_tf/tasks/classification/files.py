"""Reads the data of run_classifier.py's processors, and writes the program's results."""

import contextlib
import os

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, listed
from bert_tf.files.whole_files import write_whole
from bert_tf.model.configuration import BertConfig
from bert_tf.runs.folder import reporting
from bert_tf.runs.results import tables
from bert_tf.runs.results.tables import Cell
from bert_tf.runs.training.fine_tuning_checks import learned_labels
from bert_tf.tasks.classification.decision import keep_threshold
from bert_tf.tasks.classification.examples import DataProcessor, InputExample, as_labels, scaled
from bert_tf.tasks.classification.processors import ProcessorSettings, get_processor
from bert_tf.tasks.classification.settings import ClassifierSettings, TableColumns, TfdsSource
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.fine_tuning import run_fine_tuning
from bert_tf.tasks.task import Evaluated, ExampleSet, FoldKey, TaskFiles

# Purpose -> the name of the set in processors.
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

    The names of files for a second dev or test set (`DataProcessor.also`) end in the set's key.
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
                f"--fold_group_column={columns.fold_group_column} needs --folds: it"
                " keeps the examples of a group in one fold"
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
        tables.write_review(*place, *self.reviewed(example_set, evaluated))
        if self._config and self.settings.find_threshold and not self.settings.do_train:
            keep_threshold(self.settings, self._config.threshold)

    def write_predictions(
        self, example_set: ExampleSet, outputs: np.ndarray, global_step: int
    ) -> None:
        path = self.path(f"test_results{example_set.suffix}.tsv")
        reporting.write_probabilities(path, outputs)
        labels = self.processor.get_labels()
        found = tables.predicted_columns(labels, outputs, self.decision)
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
    """Returns predictions as text, from outputs [examples, classes] or, for numbers, [examples].

    Numbers are clipped to the task's range.
    """
    labels = processor.get_labels()
    if labels is not None:
        return [labels[i] for i in np.argmax(outputs, axis=-1)]
    if processor.label_range:
        outputs = np.clip(outputs, *processor.label_range)
    return [f"{value:.3f}" for value in outputs]
