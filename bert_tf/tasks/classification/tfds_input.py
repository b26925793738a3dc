"""Examples of a classification task from TensorFlow Datasets instead of files."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import numpy as np
from absl import logging

from bert_tf.datasets import tfds
from bert_tf.datasets.tables import check_filled
from bert_tf.errors import UserError, listed, quoted
from bert_tf.files.model_notes import check_label
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.class_weights import parse_weight
from bert_tf.tasks.classification.examples import (
    DataProcessor,
    InputExample,
    default_label,
    parse_label,
)
from bert_tf.tasks.classification.settings import TableColumns, TfdsSource

_EXAMPLES_PER_BATCH = 256

# Names of the texts in GLUE, XNLI, SNLI, PAWS, IMDB, Yelp and other datasets.
_TEXT_FEATURES = (
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("premise", "hypothesis"),
    ("sentence", None),
    ("text", None),
)


class TfdsProcessor(DataProcessor):
    """A task that reads its examples from a dataset. Labels and metrics are the task's own.

    Classes are matched by name if the dataset uses the names of the task, otherwise by number: for
    CoLA, 0 is "unacceptable" in the dataset and "0" in the task. If the dataset has the feature
    `idx`, like GLUE's, examples are sorted by it: the files are shuffled, and submissions need the
    original order. Texts in several languages are read in `language`.
    """

    def __init__(
        self, task: DataProcessor, source: TfdsSource, columns: TableColumns, language: str = "en"
    ):
        self._source = source
        self._language = language
        self._builder = tfds.find(source.tfds, source.tfds_data_dir, source.tfds)
        self._text_a, self._text_b, self._label = feature_names(self._builder, columns)
        self._groups = {"group": columns.group_column, "fold_group": columns.fold_group_column}
        self._weight = columns.weight_column
        self._classes = _class_names(self._builder, self._label)
        # For messages: the labels of the task `table` come from flags, all other tasks' are fixed.
        self._label_flag = "--labels" if columns.labels else "--task_name"
        if columns.regression:
            self._label_flag = "--regression"
        self.labels, self.label_range = task.get_labels(), task.label_range
        self.multi_label, self.label_separator = task.multi_label, task.label_separator
        self.metrics, self.best_metric = task.metrics, task.best_metric
        self.submission_file, self.tfds_splits = task.submission_file, task.tfds_splits
        # The flags choose splits for the task itself, not for the tasks in `also`.
        plain = dataclasses.replace(source, tfds_dev_split=None, tfds_test_split=None)
        self.also = {
            name: TfdsProcessor(other, plain, columns, language)
            for name, other in task.also.items()
        }

    def has(self, split: str, data_dir: str) -> bool:
        return self._dataset_split(split) is not None

    def read(self, split: str, data_dir: str) -> list[InputExample]:
        specification = self._source.tfds
        dataset_split = self._dataset_split(split)
        if dataset_split is None:
            raise UserError(
                f"--tfds={specification} has no split {' or '.join(self.tfds_splits[split])}; it"
                f" has {listed(sorted(self._builder.info.splits))}. Choose one with"
                f" --tfds_{split}_split"
            )
        dataset, _ = tfds.read_split(self._builder, dataset_split, specification)
        is_test = split == "test"
        self._check_features(dataset.element_spec, needs_label=not is_test)
        index = dataset.element_spec.get("idx")
        is_numbered = index in (tf.TensorSpec([], dtype) for dtype in (tf.int32, tf.int64))
        is_in_order = is_numbered or self._builder.info.disable_shuffling
        if is_test and self.submission_file and not is_in_order:
            logging.warning(
                "--tfds=%s is shuffled and has no feature `idx` with the numbers of its examples:"
                " predictions are in the order of its files, but %s needs the order of the numbers",
                *(specification, self.submission_file),
            )
        numbers, examples = [], []
        dataset = dataset.enumerate().map(
            lambda i, example: (example["idx"] if is_numbered else i, *self._select(example))
        )
        for batch in dataset.batch(_EXAMPLES_PER_BATCH).as_numpy_iterator():
            for number, text_a, text_b, value, *more in zip(*batch, strict=True):
                i = len(examples)
                place = f"--tfds={specification}, split {dataset_split}, example {i}"
                place += " (counted from 0)"
                label = default_label(self) if is_test else self._parse_label(value, split, place)
                known = self._known_label(value, split, place) if is_test else label
                second = None if self._text_b is None else _decode(text_b, place)
                numbers.append(number)
                first = _decode(text_a, place)
                example = InputExample(f"{split}-{i}", first, second, label, known)
                for field, group in zip(self._groups, more, strict=False):
                    if self._groups[field]:
                        setattr(example, field, _decode(group, place))
                        check_filled(getattr(example, field), place, "group")
                if self._weight and not is_test:
                    remedy = "Correct the dataset, or change --weight_column"
                    example.weight = parse_weight(more[-1], f"{place}: the weight", remedy)
                examples.append(example)
        # A stable sort, because joined splits repeat the numbers: each split keeps its order.
        return [examples[i] for i in np.argsort(numbers, kind="stable")]

    def _dataset_split(self, split: str) -> str | None:
        chosen = getattr(self._source, f"tfds_{split}_split")
        existing = (name for name in self.tfds_splits[split] if name in self._builder.info.splits)
        return chosen or next(existing, None)

    def _check_features(self, spec: dict[str, Any], needs_label: bool) -> None:
        for name in filter(None, (self._text_a, self._text_b)):
            is_translation = isinstance(spec[name], dict) and (
                self._language in spec[name] or "translation" in spec[name]
            )
            if not is_translation and spec[name] != tf.TensorSpec([], tf.string):
                raise UserError(
                    f"--tfds={self._source.tfds}: the feature {name!r} must be a string, or a"
                    f" string for each language, {self._language} included; it is"
                    f" {quoted(spec[name])}. Choose others with --text_a_column and"
                    " --text_b_column, or another language with --xnli_language"
                )
        several = getattr(spec.get(self._label), "shape", tf.TensorShape([])).rank
        if several and not (self.multi_label and self._classes):
            raise UserError(
                f"--tfds={self._source.tfds}: the feature {self._label!r} has several values for"
                " each example. Set --multi_label if they are classes, or choose another feature"
                " with --label_column"
            )
        if needs_label and self._label not in spec:
            raise UserError(
                f"--tfds={self._source.tfds} has no feature {self._label!r}; choose the labels with"
                f" --label_column from {listed(sorted(spec))}"
            )

    def _select(self, example: dict[str, Any]) -> tuple[tf.Tensor, ...]:
        """Returns text_a, text_b, label, groups and weight; "" and -1 stand for none."""
        none = tf.constant(-1, tf.int64)
        text_b = self._text(example[self._text_b]) if self._text_b else tf.constant("")
        label, weight = example.get(self._label, none), example.get(self._weight, none)
        if self.multi_label and label.shape.rank == 1 and label.dtype != tf.string:
            label = tf.strings.reduce_join(tf.strings.as_string(label), separator=" ")
        groups = [example[x] if x else tf.constant("") for x in self._groups.values()]
        groups = [x if x.dtype == tf.string else tf.strings.as_string(x) for x in groups]
        return self._text(example[self._text_a]), text_b, label, *groups, weight

    def _text(self, feature: tf.Tensor | dict[str, tf.Tensor]) -> tf.Tensor:
        if not isinstance(feature, dict):
            return feature
        if self._language in feature:  # tfds.features.Translation
            return feature[self._language]
        # tfds.features.TranslationVariableLanguages
        found = tf.boolean_mask(feature["translation"], feature["language"] == self._language)
        return tf.strings.reduce_join(found[:1])

    def _known_label(self, value: Any, split: str, place: str) -> str | tuple[str, ...] | None:
        if self._classes and (self.multi_label if isinstance(value, bytes) else value >= 0):
            with contextlib.suppress(UserError):  # the dataset's classes are not the task's
                return self._parse_label(value, split, place)
        return None

    def _parse_label(self, value: Any, split: str, place: str) -> str | float | tuple[str, ...]:
        """Converts a dataset's label to the task's; `_select` joins several labels' numbers."""
        if self.multi_label and self._classes and isinstance(value, bytes):
            numbers = map(int, value.split())
            return tuple(self._parse_label(number, split, place) for number in numbers)
        labels = self.get_labels()
        names = self._classes
        if labels is None or names is None:
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
            remedy = f"change --label_column, --tfds_{split}_split or {self._label_flag}"
            return parse_label(text, self, place, remedy)
        if not 0 <= value < len(names):
            raise UserError(
                f"{place}: the example has no label; choose a split that has labels with"
                f" --tfds_{split}_split"
            )
        if set(names) <= set(labels):
            return names[value]
        if len(names) != len(labels):
            raise UserError(
                f"--tfds={self._source.tfds} has the classes {listed(names)}, but the task has"
                f" {listed(labels)}; choose another --task_name, such as table"
            )
        return labels[value]


def _decode(text: bytes, place: str) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{place}: a text is not UTF-8 ({error.reason}); correct the dataset, or choose other"
            " texts with --text_a_column and --text_b_column"
        ) from error


def feature_names(builder: Any, columns: TableColumns) -> tuple[str, str | None, str]:
    """Returns the names of the features text_a, text_b (or None) and label."""
    features = builder.info.features
    names = listed(sorted(features))
    for flag in ("text_a", "text_b", "label", "group", "fold_group", "weight"):
        name = getattr(columns, f"{flag}_column")
        if name and name not in features:
            raise UserError(
                f"--{flag}_column={name}: {builder.info.name} has no such feature; it has {names}"
            )
    label = columns.label_column or "label"
    if columns.text_a_column:
        return columns.text_a_column, columns.text_b_column, label
    if columns.text_b_column:
        raise UserError(
            f"--text_b_column={columns.text_b_column} needs --text_a_column; the features of"
            f" {builder.info.name} are {names}"
        )
    for text_a, text_b in _TEXT_FEATURES:
        if text_a in features and (text_b is None or text_b in features):
            return text_a, text_b, label
    raise UserError(
        f"{builder.info.name} has no text feature with a usual name, only {names}; name the text"
        " features with --text_a_column and --text_b_column"
    )


def class_names(source: TfdsSource, columns: TableColumns) -> list[str]:
    """Returns the classes in the dataset's order; raises UserError if they have no names."""
    builder = tfds.find(source.tfds, source.tfds_data_dir, source.tfds)
    _, _, label = feature_names(builder, columns)
    names = _class_names(builder, label)
    if not names:
        raise UserError(
            f"--tfds={source.tfds}: the feature {label!r} is missing or does not name its classes;"
            " list them with --labels, choose another feature with --label_column, or set"
            " --regression"
        )
    place = f"--tfds={source.tfds}, the feature {label!r}"
    for name in names:
        check_label(name, place, "choose another feature with --label_column")
    return names


def _class_names(builder: Any, label: str) -> list[str] | None:
    features = builder.info.features
    if label not in features:
        return None
    feature = getattr(features[label], "feature", features[label])  # of a sequence
    names = getattr(feature, "names", None)
    return list(names) if names else None
