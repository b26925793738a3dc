"""Reads x and y of `fit`, `evaluate` and `predict` for classification and regression."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from absl import logging
from numpy.typing import NDArray

from bert_tf.errors import UserError, listed, quoted
from bert_tf.files.model_notes import check_label
from bert_tf.tasks.arguments import as_list, as_names, is_list, plain, received
from bert_tf.tasks.classification.examples import InputExample
from bert_tf.tasks.classification.settings import TableColumns
from bert_tf.tasks.classification.table import sort_labels
from bert_tf.tasks.rows import SEVERAL, Rows, check_there, number, read_rows

_MULTI_HOT = "For rows with 0 or 1 for each class give np.array(y)"


class ClassificationRows(Rows):
    """Gives each text, or pair of texts, a class; training collects `labels` if none are given."""

    task = "classification"
    head = "classification"
    predict_options = frozenset({"long_text", "window_stride"})
    left_out = {"folds": "in Python use scikit-learn's cross_validate"}

    def __init__(self, labels: Sequence[str] | None = None):
        if labels is not None:
            names = as_names(labels, "the classes' names")
            self.labels = tuple(TableColumns(labels=names).labels or ())
        self._are_given = labels is not None

    def examples(
        self, purpose: str, x: Any, y: Any = None, weights: Any = None
    ) -> list[InputExample]:
        inputs, targets = self.names(purpose)
        x, y, weights = read_rows(x, y, weights, inputs, targets, ranks=self.ranks)
        texts, _ = as_list(x, pairs=True, name=inputs)
        labels = self._labels(y, targets, is_training=purpose == "train")
        pairs = [text if isinstance(text, tuple) else (text, None) for text in texts]
        rows = zip(pairs, labels, weights or [None] * len(pairs), strict=True)
        return [
            InputExample(f"{purpose}-{i}", *pair, label, weight=weight)
            for i, (pair, label, weight) in enumerate(rows)
        ]

    def _labels(self, values: list[Any], name: str, is_training: bool) -> list[Any]:
        """Returns the names of the examples' classes; in training also collects the classes."""
        are_known = self.labels is not None or not is_training
        name_of = self._known if are_known else class_name
        kinds = {*map(type, values)}
        if not are_known and bool in kinds and kinds & {int, float}:  # True equals 1
            values = [int(x) if isinstance(x, bool) else x for x in values]
        names = [name_of(value, f"{name}[{i}]") for i, value in enumerate(values)]
        if is_training:
            self._collect(names, name)
        return names

    def _collect(self, seen: Collection[str], name: str) -> None:
        """Sets the classes if they are not known; otherwise warns of classes without an example."""
        there = dict.fromkeys(seen)
        if self.labels is None:
            for label in there:
                check_label(label, name)
            self.labels = tuple(sort_labels(there))
        if unseen := [label for label in self.labels or () if label not in there]:
            logging.warning("%s: no example has the class %s", name, listed(unseen))

    def _known(self, value: Any, place: str) -> str:
        """Returns the class for a value: the class's name, or its number from 0."""
        labels = self.labels or ()
        name = class_name(value, place)
        if name in labels:
            return name
        is_number = isinstance(value, int | float) and not any(map(str.isdecimal, labels))
        if is_number and 0 <= value < len(labels):
            return labels[int(value)]
        numbers = f", or a number from 0 to {len(labels) - 1}" if is_number else ""
        source, other = ", the classes of the training labels", ""
        if self._are_given:
            source, other = "", ". For other classes begin with for_classification(labels=[...])"
        raise UserError(
            f"{place} must be one of {listed(labels)}{numbers}{source}; {received(value)}{other}"
        )

    def predict(self, model: Any, x: Any, options: dict[str, Any]) -> NDArray[np.float64]:
        found = model.classify(as_list(x, pairs=True, name=self.inputs)[0], **options)
        rows = [x if isinstance(x, float) else list(x.probabilities.values()) for x in found]
        shape = (len(rows), len(self.labels)) if self.labels else (len(rows),)
        return np.array(rows, np.float64).reshape(shape)

    def columns(self) -> TableColumns:
        return TableColumns(labels=self.labels)


class MultiLabelRows(ClassificationRows):
    """Gives each text, or pair of texts, any number of classes."""

    multi_label = True
    ranks = (0, 1)

    def examples(
        self, purpose: str, x: Any, y: Any = None, weights: Any = None
    ) -> list[InputExample]:
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
        return super().examples(purpose, x, y, weights)

    def _of_table(self, table: Any, name: str, is_training: bool) -> NDArray[Any]:
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
        return [[label for label, has in zip(labels, row, strict=True) if has] for row in y]

    def _row(self, value: Any, place: str) -> list[Any]:
        """Returns the classes of an example by name or number; an array may have 0 and 1."""
        if not isinstance(value, set | frozenset) and not is_list(value):
            raise UserError(
                f"{place} must be a list of classes, such as ['a', 'b'], or [] for none;"
                f" {received(value)}"
            )
        is_array = isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
        if is_array and value.shape == (len(self.labels or ()),):
            return self._of_array(value[np.newaxis], place)[0]
        return [plain(label) for label in value]

    def _labels(self, values: list[Any], name: str, is_training: bool) -> list[Any]:
        places = [f"{name}[{i}]" for i in range(len(values))]
        rows = [self._row(value, place) for value, place in zip(values, places, strict=True)]
        name_of = self._known if self.labels is not None or not is_training else class_name
        named_rows = [
            [name_of(x, place) for x in row] for place, row in zip(places, rows, strict=True)
        ]
        labels = self.labels or tuple(sort_labels({x for row in named_rows for x in row}))
        for place, names in zip(places, named_rows, strict=True):
            if twice := [label for label in labels if names.count(label) > 1]:
                raise UserError(
                    f"{place} must name each of its classes once; it names {listed(twice)} more"
                    f" than once. {_MULTI_HOT}"
                )
        if labels and all(len(row) == len(labels) and {*row} <= {0, 1} for row in rows):
            raise UserError(
                f"{name} must be lists of classes; each has {len(labels)} numbers that are 0 or 1."
                f" {_MULTI_HOT}. If every example has both classes, name them"
            )
        found = [tuple(label for label in labels if label in names) for names in named_rows]
        if is_training:
            self._collect([label for row in found for label in row], name)
        return found

    def columns(self) -> TableColumns:
        # In y labels are in lists, so they may contain any character.
        used = "".join(self.labels or ())
        sign = next(sign for sign in f"{TableColumns.label_separator},;/\x1f" if sign not in used)
        return TableColumns(labels=self.labels, multi_label=True, label_separator=sign)


class RegressionRows(ClassificationRows):
    """Gives each text, or pair of texts, a number."""

    head = "regression"

    def __init__(self) -> None:
        super().__init__()
        self.labels = ()

    def _labels(self, values: list[Any], name: str, is_training: bool) -> list[Any]:
        return [number(value, f"{name}[{i}]") for i, value in enumerate(values)]

    def columns(self) -> TableColumns:
        return TableColumns(regression=True)


def class_name(value: Any, place: str) -> str:
    check_there(value, place)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if not isinstance(value, str | int):
        hint = "" if isinstance(value, float) else f". {SEVERAL}"
        raise UserError(f"{place} must be a class's name or number; {received(value)}{hint}")
    return str(value)
