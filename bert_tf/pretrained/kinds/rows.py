"""Reads the examples that users give to `fit` and its kin: inputs, labels and weights."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, listed, quoted
from bert_tf.pretrained.arguments import is_list, is_missing, received
from bert_tf.tasks.class_weights import parse_weight

_FORMS = (
    "Give the two with the same length (of a list of rows: *zip(*rows)), or a tf.data.Dataset or a"
    " generator of (input, label)"
)
Rows = tuple[list[Any], list[Any], list[float] | None]


def read_rows(
    x: Any,
    y: Any,
    weights: Any,
    inputs: str,
    labels: str,
    needs_labels: bool = True,
    ranks: tuple[int, int] = (0, 0),
) -> Rows:
    """Returns the inputs, the labels and the weights as lists of the same length.

    Args:
        x: a list, an array or a column of a table; or, without y, a `tf.data.Dataset` or an
            iterator, such as a generator, of (input, label) or (input, label, weight).
        y: a list, an array or a column of labels.
        weights: a list, an array or a column of weights; None for none.
        inputs, labels: names of x and y for messages.
        needs_labels: whether there must be labels. If not, they may be None; rows of x that begin
            with a tuple, as in ((a, b), label), have them.
        ranks: see `Kind`.

    Raises:
        UserError: the lengths differ or are 0, an argument is something else, or a weight is not a
            finite number of at least 0.
    """
    are_rows = isinstance(x, tf.data.Dataset) or isinstance(x, Iterator) and y is None
    if isinstance(x, tf.data.Dataset):
        x = of_dataset(x, inputs, ranks[0])
    if are_rows and not needs_labels:
        x = list(x)
        first = x[0] if x and isinstance(x[0], tuple) else ()
        are_rows = y is None and [*map(type, first[:1])] == [tuple]
    if not are_rows:
        x, y, weights = _columns(x, y, weights, inputs, labels, needs_labels)
        return _checked(x, [plain(label, ranks[1]) for label in y], weights, inputs, labels)
    if y is not None or weights is not None:
        raise UserError(f"{labels} must not be given with a tf.data.Dataset, which has them")
    rows = list(x)
    for i, row in enumerate(rows):
        if not isinstance(row, tuple) or not 2 <= len(row) <= 3 or len(row) != len(rows[0]):
            raise UserError(
                f"{inputs} must give pairs (input, label), or all (input, label, weight); row {i},"
                f" counted from 0, is something else: {received(row)}"
            )
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], []]
    found_weights = columns[2] if len(columns) == 3 else None
    found_labels = [plain(label, ranks[1]) for label in columns[1]]
    return _checked(columns[0], found_labels, found_weights, inputs, labels)


def _columns(x: Any, y: Any, weights: Any, inputs: str, labels: str, needs_labels: bool) -> Rows:
    if y is None and needs_labels:
        raise UserError(f"{labels} must be given: one for each of {inputs}. {_FORMS}")
    for name, value in ((inputs, x), (labels, y), ("sample_weight", weights)):
        if value is None and name != inputs:
            continue
        shape = getattr(value, "shape", (0,))
        if isinstance(value, str | bytes | Mapping | set | frozenset) or not _is_iterable(value):
            raise UserError(f"{name} must be a list, an array or a column; {received(value)}")
        if len(shape) != 1 and not (len(shape) == 2 and name != inputs and shape[1] == 1):
            hint = "Name the column: table['text']; for pairs list(zip(table['a'], table['b']))"
            if name == labels and not hasattr(value, "columns"):  # an array, not a table
                hint = "Give the number of each class: np.argmax(labels, axis=1)"
            raise UserError(f"{name} must have one axis; its shape is {list(shape)}. {hint}")
    x = list(x)
    y = [None] * len(x) if y is None else list(_column(y))
    weights = None if weights is None else [plain(weight) for weight in _column(weights)]
    return x, y, weights


def _column(values: Any) -> Any:
    """Returns the only column of a table or an array with two axes; other values unchanged."""
    return np.asarray(values)[:, 0] if len(getattr(values, "shape", ())) == 2 else values


def _is_iterable(value: Any) -> bool:
    try:
        iter(value)
    except TypeError:
        return False
    return True


def _checked(x: list[Any], y: list[Any], weights: list[Any] | None, *names: str) -> Rows:
    inputs, labels = names
    for name, values in ((labels, y), ("sample_weight", weights)):
        if values is not None and len(x) != len(values):
            if len(x) == 2 and all(is_list(column) and len(column) == len(values) for column in x):
                raise UserError(f"{inputs} must be pairs, not two columns: list(zip(*{inputs}))")
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


def of_dataset(dataset: tf.data.Dataset, name: str, rank: int) -> Iterable[Any]:
    """Returns the rows of a dataset, its texts decoded.

    Args:
        name: what the rows are, for messages.
        rank: that of a row's first tensor. One more, and the dataset has batches.
    """
    spec = dataset.element_spec
    first = spec[0] if isinstance(spec, tuple) and spec else spec
    if isinstance(first, Mapping):
        row = "row" if first is spec else "row, *rest"
        rest = "row['label']" if first is spec else "*rest"
        raise UserError(
            f"{name} must not be dictionaries in a tf.data.Dataset; theirs have {listed(first)}."
            f" Choose, such as by dataset.map(lambda {row}: (row['text'], {rest}))"
        )
    leaves = tf.nest.flatten(spec)
    if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise UserError(
            f"{name} must end, but the tf.data.Dataset repeats without end. Leave repeat() out;"
            " epochs says how often it is read"
        )
    are_tensors = all(isinstance(x, tf.TensorSpec | tf.RaggedTensorSpec) for x in leaves)
    ranks = [leaf.shape.rank for leaf in leaves] if are_tensors else [None]
    is_batched = ranks[0] == rank + 1 and 0 not in ranks
    if None in ranks or not (is_batched or ranks[0] == rank):
        raise UserError(
            f"{name} must be a tf.data.Dataset of inputs and labels, or of batches of them; its"
            f" elements are {quoted(spec)}"
        )
    if is_batched:
        dataset = dataset.unbatch()
    return (decoded(row, f"{name}[{i}]") for i, row in enumerate(dataset.as_numpy_iterator()))


def decoded(value: Any, place: str) -> Any:
    """Returns a value of TensorFlow, or several in a tuple or dictionary, with texts for bytes."""
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


def plain(value: Any, rank: int = 0) -> Any:
    """Returns a label of a rank as Python's number or text, or as NumPy's array."""
    if isinstance(value, tf.Tensor):
        value = value.numpy()
    if not rank and isinstance(value, np.ndarray) and value.size == 1 and value.dtype != object:
        value = value.reshape([])[()]
    if isinstance(value, np.generic):
        value = value.item()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def check_there(value: Any, place: str) -> None:
    """Raises UserError if a label is missing."""
    if is_missing(value):
        raise UserError(
            f"{place} is missing ({value}). Leave out the examples without a label: of pandas,"
            " table.dropna(subset=['label'])"
        )
