"""Classification and regression, trained from texts in memory."""

import collections
import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from absl import logging
from numpy.typing import NDArray

from bert_tf.bounds import as_float
from bert_tf.errors import UserError, listed, quoted
from bert_tf.files.label_file import check_label
from bert_tf.files.records import LARGEST_TARGET
from bert_tf.pretrained.arguments import as_list, as_names, is_list, received
from bert_tf.pretrained.kinds.base import Kind
from bert_tf.pretrained.kinds.rows import check_there, plain, read_rows
from bert_tf.runs.flags.settings import FineTuningSettings
from bert_tf.tasks.classification.examples import InputExample
from bert_tf.tasks.classification.settings import TableColumns
from bert_tf.tasks.classification.several_labels import SEPARATOR
from bert_tf.tasks.classification.table import TableProcessor, sort_labels
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.task import ExampleSet

_MULTI_HOT = "For rows with 0 or 1 for each class give np.array(y)"


class ClassificationKind(Kind):
    """Gives each text, or pair of texts, a class.

    Args:
        labels: the classes in the order of the logits; None for those of the training labels.
    """

    name = "classification"
    heads = ("classification",)
    predict_options = frozenset({"long_text", "window_stride"})

    def __init__(self, labels: Sequence[str] | None = None):
        if labels is not None:
            names = as_names(labels, "the classes' names")
            self.labels = tuple(TableColumns(labels=names).labels or ())
        self._are_given = labels is not None

    def example_set(self, purpose: str, x: Any, y: Any, weights: Any = None) -> ExampleSet:
        inputs, targets = self.names(purpose)
        x, y, weights = read_rows(x, y, weights, inputs, targets, ranks=self.ranks)
        texts, _ = as_list(x, pairs=True, name=inputs)
        labels = self._labels(y, targets, is_training=purpose == "train")
        pairs = [text if isinstance(text, tuple) else (text, None) for text in texts]
        examples = [
            InputExample(f"{purpose}-{i}", *pair, label)
            for i, (pair, label) in enumerate(zip(pairs, labels, strict=True))
        ]
        for example, weight in zip(examples, weights or (), strict=False):
            example.weight = weight
        return ExampleSet(self.set_name(purpose), examples)

    def _labels(self, values: list[Any], name: str, is_training: bool) -> list[Any]:
        """Returns the classes of the examples by name; in training also collects them."""
        if self.labels is None and is_training:
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
        self._warn_of_unseen(set(names), name)

    def _warn_of_unseen(self, seen: Collection[str], name: str) -> None:
        if unseen := [label for label in self.labels or () if label not in seen]:
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

    def predict(self, model: Any, x: Any, options: dict[str, Any]) -> NDArray[np.float64]:
        found = model.classify(as_list(x, pairs=True, name=self.inputs)[0], **options)
        rows = [x if isinstance(x, float) else list(x.probabilities.values()) for x in found]
        shape = (len(rows), len(self.labels)) if self.labels else (len(rows),)
        return np.array(rows, np.float64).reshape(shape)

    def task(self, settings: FineTuningSettings) -> ClassificationTask:
        return ClassificationTask(settings, TableProcessor(TableColumns(labels=self.labels), ""))


class MultiLabelKind(ClassificationKind):
    """Gives each text, or pair of texts, any number of classes."""

    multi_label = True
    ranks = (0, 1)

    def example_set(self, purpose: str, x: Any, y: Any, weights: Any = None) -> ExampleSet:
        targets = self.names(purpose)[1]
        if len(getattr(y, "shape", ())) == 2:
            if hasattr(y, "columns"):
                y = self._of_table(y, targets, purpose == "train")
            y = self._of_array(np.asarray(y), targets)
        elif isinstance(y, list | tuple):
            y = [
                self._row(row, f"{targets}[{i}]") if isinstance(row, np.ndarray) else row
                for i, row in enumerate(y)
            ]
        return super().example_set(purpose, x, y, weights)

    def _of_table(self, table: Any, name: str, is_training: bool) -> NDArray[Any]:
        """Returns the columns of a table in the order of the classes that they name."""
        columns = getattr(table, "column_names", table.columns)  # pyarrow's columns are the values
        named = {str(column): column for column in columns}
        if self.labels is None and is_training:
            names = as_names([*named], "the classes' names")
            self.labels = tuple(TableColumns(labels=names).labels or ())
        labels = self.labels or ()
        if {*named} != {*labels} or len(columns) != len(labels):
            raise UserError(
                f"{name} as a table must have a column for each of the classes {listed(labels)};"
                f" its columns are {listed(columns)}"
            )
        return np.stack([np.asarray(table[named[label]]) for label in labels], axis=1)

    def _of_array(self, y: NDArray[Any], name: str) -> list[list[str]]:
        """Returns the classes of each row of an array of 0 and 1."""
        labels = self.labels or ()
        rule = "as an array must have 0 or 1 for each of the classes that labels=[...] names"
        if y.shape[1] != len(labels):
            raise UserError(
                f"{name} {rule}, [texts, {len(labels) or 'classes'}]; its shape is {list(y.shape)}"
            )
        for i, j in np.argwhere(~np.isin(y, (0, 1)))[:1]:
            raise UserError(
                f"{name} {rule}; for {quoted(labels[j])} in row {i}, counted from 0,"
                f" {received(plain(y[i, j]))}"
            )
        return [self._of_row(row) for row in y]

    def _of_row(self, row: NDArray[Any]) -> list[str]:
        return [label for label, has in zip(self.labels or (), row, strict=True) if has]

    def _row(self, value: Any, place: str) -> list[Any]:
        """Returns the classes of an example by name or number; an array may have 0 and 1."""
        if not isinstance(value, set | frozenset) and not is_list(value):
            raise UserError(
                f"{place} must be a list of classes, such as ['a', 'b'], or [] for none;"
                f" {received(value)}"
            )
        shape, count = getattr(value, "shape", None), len(self.labels or ())
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf" or shape != (count,):
            return [plain(label) for label in value]
        if not np.isin(value, (0, 1)).all():
            raise UserError(
                f"{place} is an array with a number for each of the {count} classes, so each must"
                f" be 0 or 1; {received(value)}. For the numbers of classes give a list"
            )
        return self._of_row(value)

    def _labels(self, values: list[Any], name: str, is_training: bool) -> list[Any]:
        places = [f"{name}[{i}]" for i in range(len(values))]
        rows = [self._row(value, place) for value, place in zip(values, places, strict=True)]
        if self.labels is None and is_training:
            named = {_name(x, place) for place, row in zip(places, rows, strict=True) for x in row}
            if len(named) < 2:
                raise UserError(
                    f"{name} must have at least two classes; it has {listed(named) or 'none'}"
                )
            for label in named:
                check_label(label, name)
            self.labels = tuple(sort_labels(named))
        labels = self.labels or ()
        named_rows = [
            [self._known(x, place) for x in row] for place, row in zip(places, rows, strict=True)
        ]
        for place, names in zip(places, named_rows, strict=True):
            if twice := [label for label in labels if names.count(label) > 1]:
                raise UserError(
                    f"{place} must name each of its classes once; it names {listed(twice)} more"
                    f" often. {_MULTI_HOT}"
                )
        if labels and all(len(row) == len(labels) and {*row} <= {0, 1} for row in rows):
            raise UserError(
                f"{name} must be lists of classes; each has {len(labels)} numbers that are 0 or 1."
                f" {_MULTI_HOT}. If every example has both classes, name them"
            )
        found = [tuple(label for label in labels if label in names) for names in named_rows]
        if is_training:
            self._check_training(found, name)
        return found

    def _check_training(self, names: Sequence[Collection[str]], name: str) -> None:
        if len(set(names)) == 1:
            raise UserError(
                f"{name} must have examples with different classes; all have"
                f" {listed(names[0]) or 'none'}, so there is nothing to learn"
            )
        self._warn_of_unseen({label for row in names for label in row}, name)

    def task(self, settings: FineTuningSettings) -> ClassificationTask:
        # For the files of a run: y is in lists, so its labels may have any sign in them.
        used = "".join(self.labels or ())
        sign = next(sign for sign in f"{SEPARATOR},;/\x1f" if sign not in used)
        columns = TableColumns(labels=self.labels, multi_label=True, label_separator=sign)
        return ClassificationTask(settings, TableProcessor(columns, ""))


class RegressionKind(ClassificationKind):
    """Gives each text, or pair of texts, a number."""

    heads = ("regression",)

    def __init__(self) -> None:
        super().__init__()
        self.labels = ()

    def _labels(self, values: list[Any], name: str, is_training: bool) -> list[Any]:
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
    is_number = isinstance(value, int | float) and math.isfinite(as_float(value))
    if not is_number or abs(value) > LARGEST_TARGET:
        raise UserError(
            f"{place} must be a number from {-LARGEST_TARGET:g} to {LARGEST_TARGET:g};"
            f" {received(value)}"
        )
    return float(value)
