"""A task's examples from TensorFlow Datasets instead of a folder."""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.errors import UserError
from bert_tf.tasks.classification.examples import (
    DataProcessor,
    InputExample,
    parse_label,
    shown,
    stand_in_label,
)
from bert_tf.tasks.classification.settings import TableColumns, TfdsSource
from bert_tf.text import tfds

_EXAMPLES_PER_BATCH = 256

# What the datasets call their texts: those of GLUE, XNLI, SNLI, PAWS, IMDB, Yelp and others.
_TEXT_FEATURES = (
    ("sentence1", "sentence2"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("premise", "hypothesis"),
    ("sentence", None),
    ("text", None),
)


class TfdsProcessor(DataProcessor):
    """A task that reads its examples from a dataset; all else is as the task has it.

    A class is found by its name if the dataset's names are the task's own, and by its number if
    they are not: for CoLA 0 is "unacceptable" there and "0" here. Where the dataset numbers its
    examples by `idx`, as GLUE's do, they come in that order, which submissions need; its files have
    them in another one.
    """

    def __init__(
        self, task: DataProcessor, source: TfdsSource, columns: TableColumns, language: str = "en"
    ):
        """Finds the dataset.

        Args:
            task: says labels, metrics and which splits are which.
            source: the dataset.
            columns: names of the features, where they are not the usual ones.
            language: which translation to take, where the texts come in several languages.

        Raises:
            UserError: there is no such dataset, or it has not the features.
        """
        self._task = task
        self._source = source
        self._language = language
        self._builder = tfds.find(source.tfds, source.tfds_data_dir, source.tfds)
        self._names = feature_names(self._builder, columns)
        self._classes = _class_names(self._builder, self._names[2])
        self.labels = task.labels
        self.label_range = task.label_range
        self.metrics = task.metrics
        self.best_metric = task.best_metric
        self.submission_file = task.submission_file
        self.tfds_splits = task.tfds_splits
        plain = dataclasses.replace(source, tfds_dev_split=None, tfds_test_split=None)
        self.also = {
            name: TfdsProcessor(other, plain, columns, language)
            for name, other in task.also.items()
        }

    def has(self, which: str, data_dir: str) -> bool:
        return self._split(which) is not None

    def read(self, which: str, data_dir: str) -> list[InputExample]:
        specification = self._source.tfds
        split = self._split(which)
        if split is None:
            raise UserError(
                f"--tfds={specification} has no split {' or '.join(self.tfds_splits[which])} but "
                f"{', '.join(sorted(self._builder.info.splits))}; --tfds_{which}_split chooses one"
            )
        dataset, _ = tfds.read_split(self._builder, split, specification)
        self._check_texts(dataset.element_spec)
        index = dataset.element_spec.get("idx")
        is_numbered = index in (tf.TensorSpec([], dtype) for dtype in (tf.int32, tf.int64))
        is_in_order = is_numbered or self._builder.info.disable_shuffling
        if which == "test" and self.submission_file and not is_in_order:
            logging.warning(
                "--tfds=%s has no feature `idx` with the examples' numbers, and they are shuffled:"
                " predictions are in the order of its files, not in that of %s",
                *(specification, self.submission_file),
            )
        numbers, examples = [], []
        dataset = dataset.enumerate().map(
            lambda i, example: (example["idx"] if is_numbered else i, *self._select(example))
        )
        for batch in dataset.batch(_EXAMPLES_PER_BATCH).as_numpy_iterator():
            for number, text_a, text_b, value in zip(*batch, strict=True):
                i = len(examples)
                place = f"--tfds={specification}, split {split}, example {i} (counted from 0)"
                numbers.append(number)
                examples.append(
                    InputExample(
                        guid=f"{which}-{i}",
                        text_a=_decode(text_a, place),
                        text_b=None if self._names[1] is None else _decode(text_b, place),
                        label=self._label(value, which, place),
                    )
                )
        if not examples:
            raise UserError(f"--tfds={specification}: split {split} holds no example")
        # Of joined splits, which have the same numbers, the examples of each stay in their order.
        return [examples[i] for i in np.argsort(numbers, kind="stable")]

    def _split(self, which: str) -> str | None:
        chosen = getattr(self._source, f"tfds_{which}_split")
        there = [s for s in self.tfds_splits[which] if s in self._builder.info.splits]
        return chosen or next(iter(there), None)

    def _check_texts(self, spec: dict[str, Any]) -> None:
        for name in filter(None, self._names[:2]):
            is_translation = isinstance(spec[name], dict) and (
                self._language in spec[name] or "translation" in spec[name]
            )
            if not is_translation and spec[name] != tf.TensorSpec([], tf.string):
                raise UserError(
                    f"--tfds={self._source.tfds}: the text {name!r} must be one string an example, "
                    f"or one for each language with {self._language} among them; it is "
                    f"{spec[name]}. --text_a_column and --text_b_column choose others"
                )

    def _select(self, example: dict[str, Any]) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns text_a, text_b and label, those that are not there empty or -1."""
        name_a, name_b, name_label = self._names
        text_b = self._text(example[name_b]) if name_b else tf.constant("")
        label = example[name_label] if name_label in example else tf.constant(-1, tf.int64)
        return self._text(example[name_a]), text_b, label

    def _text(self, feature: tf.Tensor | dict[str, tf.Tensor]) -> tf.Tensor:
        if not isinstance(feature, dict):
            return feature
        if self._language in feature:  # tfds.features.Translation
            return feature[self._language]
        # tfds.features.TranslationVariableLanguages
        found = tf.boolean_mask(feature["translation"], feature["language"] == self._language)
        return tf.strings.reduce_join(found[:1])

    def _label(self, value: Any, which: str, place: str) -> str | float:
        if which == "test":
            return stand_in_label(self._task)
        labels = self.get_labels()
        names = self._classes
        if labels is None or names is None:
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
            return parse_label(text, labels, self.label_range, place)
        if not 0 <= value < len(names):
            raise UserError(f"{place}: there is no label; choose a split that has them")
        if set(names) <= set(labels):
            return names[value]
        if len(names) != len(labels):
            raise UserError(
                f"--tfds={self._source.tfds} has the classes {shown(names)}, the task "
                f"{shown(labels)}; --task_name must be another, such as table"
            )
        return labels[value]


def _decode(text: bytes, place: str) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{place}: a text is not UTF-8 ({error.reason})") from error


def feature_names(builder: Any, columns: TableColumns) -> tuple[str, str | None, str]:
    """Returns which features are text_a, text_b (None if there is none) and label.

    Raises:
        UserError: a feature that is asked for is not there, or none has a usual name.
    """
    features = builder.info.features
    label = columns.label_column or "label"
    pairs = [pair for pair in _TEXT_FEATURES if all(name in features for name in pair if name)] or [
        (None, None)
    ]
    chosen = (columns.text_a_column, columns.text_b_column)
    text_a, text_b = chosen if columns.text_a_column else pairs[0]
    for flag in ("text_a", "text_b", "label"):
        name = getattr(columns, f"{flag}_column")
        if name and name not in features:
            raise UserError(
                f"--{flag}_column={name}: {builder.info.name} has not that feature but "
                f"{', '.join(sorted(features))}"
            )
    if text_a is None:
        raise UserError(
            f"{builder.info.name} has the features {', '.join(sorted(features))}; "
            "--text_a_column and --text_b_column must say which are the texts"
        )
    return text_a, text_b, label


def class_names(source: TfdsSource, columns: TableColumns) -> list[str]:
    """Returns the classes of a dataset in its own order.

    Raises:
        UserError: the dataset does not tell them.
    """
    builder = tfds.find(source.tfds, source.tfds_data_dir, source.tfds)
    label = feature_names(builder, columns)[2]
    names = _class_names(builder, label)
    if not names:
        raise UserError(
            f"--tfds={source.tfds}: the feature {label!r} does not tell its classes; name them "
            "with --labels, or the feature with --label_column, or set --regression"
        )
    return names


def _class_names(builder: Any, label: str) -> list[str] | None:
    """Returns the names of a label's classes, None if it is no class or not there."""
    features = builder.info.features
    names = getattr(features[label], "names", None) if label in features else None
    return list(names) if names else None
