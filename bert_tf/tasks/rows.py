"""Reads the x, y and weights of `fit`, `evaluate` and `predict`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bert_tf.bounds import as_float
from bert_tf.errors import UserError, quoted
from bert_tf.files.records import LARGEST_TARGET
from bert_tf.runs.flags.settings import FineTuningOptions
from bert_tf.start import lazy_tensorflow as tf
from bert_tf.tasks.arguments import TABLE, check_order, is_missing, plain, received, whole
from bert_tf.tasks.class_weights import parse_weight

SEVERAL = "If a text can have several classes, give for_classification multi_label=True"
_CLASSES = f"Give the number of each example's class. {SEVERAL}"
_COLUMN = "a list, an array or a column"
_Lists = tuple[list[Any], list[Any], list[float] | None]


class Rows:
    """Base class of a task's rows, which makes examples from x and y."""

    task: ClassVar[str]  # its name in `registry.TASKS`
    head: ClassVar[str]  # see `Pretrained.heads`; "" for a model without a head
    inputs: str = "texts"  # what messages call x; `targets` is the same for y
    targets: str = "labels"
    # The ranks of x's first tensor and of y in a row of a tf.data.Dataset.
    ranks: ClassVar[tuple[int, int]] = (0, 0)
    multi_label: ClassVar[bool] = False  # whether an example can have several labels
    predict_options: ClassVar[frozenset[str] | None] = None  # None for the options of the task
    left_out: ClassVar[Mapping[str, str]] = {}  # options that do not work on rows -> the reason
    # The classes in the order of the logits; None if they are unknown or there are none.
    labels: tuple[str, ...] | None = None

    def names(self, purpose: str) -> tuple[str, str]:
        """Returns the names of x and y in messages."""
        if purpose == "validation":
            return "validation_data[0]", "validation_data[1]"
        return self.inputs, self.targets

    def examples(self, purpose: str, x: Any, y: Any = None, weights: Any = None) -> Any:
        """Returns the examples for the task's `example_set`; in training also sets `labels`."""
        raise NotImplementedError

    def no_weights(self, weights: Any) -> None:
        """Raises UserError for weights, in tasks that do not support them."""
        if weights is not None:
            raise UserError(
                "sample_weight is for classification, regression and tagging; leave it out"
            )

    def check(self, options: FineTuningOptions) -> None:
        """Raises UserError if the options do not fit the examples."""

    def predict(self, model: Any, x: Any, options: dict[str, Any]) -> Any:
        """Returns the result of `Pretrained.predict`, if `predict_options` is not None."""
        raise NotImplementedError

    def answers(self, outputs: Any) -> Any:
        """Converts the outputs of the task's `predict` to what `Pretrained.predict` returns."""
        raise NotImplementedError


def read_rows(
    x: Any,
    y: Any,
    weights: Any,
    inputs: str,
    labels: str,
    needs_labels: bool = True,
    ranks: tuple[int, int] = (0, 0),
) -> _Lists:
    """Returns the inputs, the labels and the weights as lists of the same length.

    Without y, x may be a `tf.data.Dataset` or an iterator of (input, label) or (input, label,
    weight). Without `needs_labels`, a row has a label only if its first item is a tuple: ((a, b),
    label). For `ranks` see `Rows`.
    """
    if isinstance(x, tf.data.Dataset) or isinstance(x, Iterator) and y is None:
        x = of_dataset(x, inputs, ranks[0]) if isinstance(x, tf.data.Dataset) else x
        x = whole(x, inputs)
        first = x[0] if x and isinstance(x[0], tuple) else ()
        if needs_labels or y is None and [*map(type, first[:1])] == [tuple]:
            if y is not None or weights is not None:
                name = "sample_weight" if y is None else labels
                raise UserError(
                    f"{name} must not be given with a tf.data.Dataset or an iterator: put it in"
                    " the rows, (input, label, weight)"
                )
            x, y, weights = _of_rows(x, inputs)
    if y is None and needs_labels:
        raise UserError(
            f"{labels} must be given: one for each of {inputs}. A tf.data.Dataset or a"
            " generator has them in its rows, (input, label)"
        )
    check_order(x, inputs, _COLUMN, TABLE)
    x = whole(x, inputs)
    if y is None:
        y = [None] * len(x)
    else:
        y = [plain(value, ranks[1]) for value in _column(y, labels, _CLASSES)]
    if weights is not None:
        weights = [plain(weight) for weight in _column(weights, "sample_weight")]
    for name, values in ((labels, y), ("sample_weight", weights)):
        if values is not None and len(x) != len(values):
            raise UserError(
                f"{name} must have one value for each of {inputs}: there are {len(x)} {inputs} and"
                f" {len(values)} {name}"
            )
    if not x:
        raise UserError(f"{inputs} must have at least one example; there is none")
    if weights is not None:
        remedy = "1 counts an example once"
        weights = [parse_weight(w, f"sample_weight[{i}]", remedy) for i, w in enumerate(weights)]
    return x, y, weights


def _of_rows(rows: list[Any], inputs: str) -> tuple[list[Any], list[Any], list[Any] | None]:
    for i, row in enumerate(rows):
        if not isinstance(row, tuple) or not 2 <= len(row) <= 3 or len(row) != len(rows[0]):
            raise UserError(
                f"{inputs} must give pairs (input, label), or all (input, label, weight); row {i},"
                f" counted from 0, is something else: {received(row)}"
            )
    x, y, *weights = map(list, zip(*rows, strict=True)) if rows else ([], [])
    return x, y, weights[0] if weights else None


def _column(values: Any, name: str, hint: str = "") -> list[Any]:
    """Returns the values of an argument, without a second axis of size 1."""
    shape = getattr(values, "shape", ())
    values = np.asarray(values)[:, 0] if len(shape) == 2 and shape[1] == 1 else values
    check_order(values, name, _COLUMN, hint)
    return whole(values, name)


def of_dataset(dataset: tf.data.Dataset, name: str, rank: int) -> Iterable[Any]:
    """Returns a dataset's rows, with texts decoded; `rank` is the rank of a row's first tensor."""
    spec = dataset.element_spec
    first = spec[0] if isinstance(spec, tuple) and spec else spec
    leaves = tf.nest.flatten(spec)
    if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise UserError(
            f"{name} must end, but the tf.data.Dataset repeats without end. Leave repeat() out;"
            " epochs says how often it is read"
        )
    are_tensors = all(isinstance(x, tf.TensorSpec | tf.RaggedTensorSpec) for x in leaves)
    ranks = [leaf.shape.rank for leaf in leaves] if are_tensors else [None]
    is_batched = ranks[0] == rank + 1 and 0 not in ranks
    if None in ranks or isinstance(first, Mapping) or not (is_batched or ranks[0] == rank):
        raise UserError(
            f"{name} must be a tf.data.Dataset of inputs and labels, or of batches of them; its"
            f" elements are {quoted(spec)}"
        )
    if is_batched:
        dataset = dataset.unbatch()
    return (decoded(row, f"{name}[{i}]") for i, row in enumerate(dataset.as_numpy_iterator()))


def decoded(value: Any, place: str) -> Any:
    """Decodes the bytes in a TensorFlow value, also inside tuples, dictionaries and arrays."""
    if isinstance(value, tuple):
        return tuple(decoded(part, place) for part in value)
    if isinstance(value, dict):
        return {name: decoded(part, place) for name, part in value.items()}
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [decoded(part, place) for part in value]
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{place} must be UTF-8: {error.reason}") from error


def check_there(value: Any, place: str) -> None:
    """Raises UserError if a label is missing."""
    if is_missing(value):
        raise UserError(
            f"{place} is missing ({value}). Leave out the examples without a label: in pandas,"
            " table.dropna(subset=['label'])"
        )


def number(value: Any, place: str) -> float:
    """Returns a label as a float; raises UserError unless it is a finite number."""
    check_there(value, place)
    is_number = isinstance(value, int | float) and math.isfinite(as_float(value))
    if not is_number or abs(value) > LARGEST_TARGET:
        raise UserError(
            f"{place} must be a number from {-LARGEST_TARGET:g} to {LARGEST_TARGET:g};"
            f" {received(value)}"
        )
    return float(value)


def decimals(outputs: NDArray[Any]) -> NDArray[np.float64]:
    """Rounds float32 outputs to their shortest decimals, as in test_results.tsv."""
    return outputs.astype(str).astype(np.float64)
