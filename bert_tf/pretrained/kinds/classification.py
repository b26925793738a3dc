"""Classification and regression, trained from texts in memory."""

import collections
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging
from numpy.typing import NDArray

from bert_tf.errors import UserError, listed, quoted
from bert_tf.files.label_file import check_label
from bert_tf.files.records import LARGEST_TARGET
from bert_tf.pretrained.arguments import as_list, received
from bert_tf.pretrained.kinds.base import Kind
from bert_tf.pretrained.kinds.rows import check_there, read_rows
from bert_tf.runs.flags.settings import FineTuningSettings
from bert_tf.tasks.classification.examples import InputExample
from bert_tf.tasks.classification.settings import TableColumns
from bert_tf.tasks.classification.table import TableProcessor, sort_labels
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.task import ExampleSet


class ClassificationKind(Kind):
    """Gives each text, or pair of texts, a class.

    Args:
        labels: the classes in the order of the logits; None for those of the training labels.
    """

    name = "classification"
    heads = ("classification",)

    def __init__(self, labels: Sequence[str] | None = None):
        if labels is not None:
            if isinstance(labels, str) or not all(isinstance(label, str) for label in labels):
                raise UserError(f"labels must be a list of the classes' names; {received(labels)}")
            self.labels = tuple(TableColumns(labels=tuple(labels)).labels or ())
        self._are_given = labels is not None

    def example_set(self, purpose: str, x: Any, y: Any, place: str = "") -> ExampleSet:
        inputs, targets = (f"{place}[0]", f"{place}[1]") if place else (self.inputs, self.targets)
        x, y = read_rows(x, y, inputs, targets)
        texts, _ = as_list(x, pairs=True, name=inputs)
        labels = self._labels(y, targets, is_training=purpose == "train")
        pairs = [text if isinstance(text, tuple) else (text, None) for text in texts]
        examples = [
            InputExample(f"{purpose}-{i}", *pair, label)
            for i, (pair, label) in enumerate(zip(pairs, labels, strict=True))
        ]
        return ExampleSet(purpose, examples)

    def _labels(self, values: list[Any], name: str, is_training: bool) -> Sequence[str | float]:
        """Returns the classes of the examples by name; in training also collects them."""
        if self.labels is None:
            names = [_name(value, f"{name}[{i}]") for i, value in enumerate(values)]
            counts = collections.Counter(names)
            if len(counts) < 2:
                raise UserError(
                    f"{name} must have at least two classes; all are {listed(counts)}. For numbers"
                    " to predict, use for_regression"
                )
            for label in counts:
                check_label(label, name)
            self.labels = tuple(sort_labels(counts))
            return names
        names = [self._known(value, f"{name}[{i}]") for i, value in enumerate(values)]
        if is_training:
            self._check_training(names, name)
        return names

    def _check_training(self, names: Sequence[str], name: str) -> None:
        if len(set(names)) == 1:
            raise UserError(
                f"{name} must have examples of at least two classes; all are {quoted(names[0])}, so"
                " there is nothing to learn"
            )
        if unseen := [label for label in self.labels or () if label not in set(names)]:
            logging.warning("%s: no example has the class %s", name, listed(unseen))

    def _known(self, value: Any, place: str) -> str:
        """Returns the class that a value stands for: its name, or its number from 0."""
        labels = self.labels or ()
        name = _name(value, place)
        if name in labels:
            return name
        is_number = isinstance(value, int | float) and not any(map(str.isdecimal, labels))
        if is_number and 0 <= value < len(labels):
            return labels[int(value)]
        numbers = f", or a number from 0 to {len(labels) - 1}" if is_number else ""
        source = "" if self._are_given else ", the classes of the training labels"
        raise UserError(
            f"{place} must be one of {listed(labels)}{numbers}{source}; {received(value)}"
        )

    def predict(self, model: Any, x: Any) -> NDArray[np.float64]:
        found = model.classify(as_list(x, pairs=True, name=self.inputs)[0])
        rows = [x if isinstance(x, float) else list(x.probabilities.values()) for x in found]
        return np.array(rows, np.float64)

    def task(self, settings: FineTuningSettings) -> ClassificationTask:
        return ClassificationTask(settings, TableProcessor(TableColumns(labels=self.labels), ""))


class RegressionKind(ClassificationKind):
    """Gives each text, or pair of texts, a number."""

    heads = ("regression",)

    def __init__(self) -> None:
        super().__init__()
        self.labels = ()

    def _labels(self, values: list[Any], name: str, is_training: bool) -> Sequence[str | float]:
        return [number(value, f"{name}[{i}]") for i, value in enumerate(values)]

    def task(self, settings: FineTuningSettings) -> ClassificationTask:
        return ClassificationTask(settings, TableProcessor(TableColumns(regression=True), ""))


def _name(value: Any, place: str) -> str:
    """Returns the name of the class that a label gives, by its name or as a number."""
    check_there(value, place)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if not isinstance(value, str | int):
        raise UserError(f"{place} must be a class's name or number; {received(value)}")
    return str(value)


def number(value: Any, place: str) -> float:
    """Returns a label of a regression; raises UserError if it is no finite number."""
    check_there(value, place)
    is_number = isinstance(value, int | float) and math.isfinite(value)
    if not is_number or abs(value) > LARGEST_TARGET:
        raise UserError(
            f"{place} must be a number from {-LARGEST_TARGET:g} to {LARGEST_TARGET:g};"
            f" {received(value)}"
        )
    return float(value)
