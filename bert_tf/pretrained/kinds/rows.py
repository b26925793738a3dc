"""Reads the examples that users give to `fit` and `evaluate`: inputs, and a label for each."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.pretrained.arguments import is_missing, received

_FORMS = (
    "Give texts and labels of the same length, or a tf.data.Dataset or a generator of (text, label)"
)


def read_rows(x: Any, y: Any, inputs: str, labels: str) -> tuple[list[Any], list[Any]]:
    """Returns the inputs and the labels as lists of the same length.

    Args:
        x: a list, an array or a column of a table; or, without y, a `tf.data.Dataset` or an
            iterator, such as a generator, of pairs (input, label).
        y: a list, an array or a column of labels.
        inputs, labels: names of the two for messages.

    Raises:
        UserError: the two differ in length, are empty, or are something else.
    """
    if isinstance(x, tf.data.Dataset):
        x = _of_dataset(x, inputs)
    elif y is not None or not isinstance(x, Iterator):
        return _columns(x, y, inputs, labels)
    if y is not None:
        raise UserError(f"{labels} must not be given with a tf.data.Dataset, which has them")
    found_x, found_y = [], []
    for i, row in enumerate(x):
        if not isinstance(row, tuple) or len(row) != 2:
            raise UserError(
                f"{inputs} must give pairs (text, label); row {i}, counted from 0, is something"
                f" else: {received(row)}"
            )
        found_x.append(row[0])
        found_y.append(row[1])
    return _checked(found_x, found_y, inputs, labels)


def _columns(x: Any, y: Any, inputs: str, labels: str) -> tuple[list[Any], list[Any]]:
    if y is None:
        raise UserError(f"{labels} must be given: one for each of {inputs}. {_FORMS}")
    for name, value in ((inputs, x), (labels, y)):
        rank = len(getattr(value, "shape", (0,)))
        if isinstance(value, str | bytes | Mapping | set | frozenset) or not _is_iterable(value):
            raise UserError(f"{name} must be a list, an array or a column; {received(value)}")
        if rank != 1 and not (rank == 2 and name == labels and value.shape[1] == 1):
            raise UserError(
                f"{name} must have one axis; its shape is {list(value.shape)}. "
                + (
                    "Give the number of each class: np.argmax(labels, axis=1)"
                    if name == labels
                    else "Name the column: table['text']; for pairs list(zip(table['a'],"
                    " table['b']))"
                )
            )
    return _checked(list(x), [plain(label) for label in y], inputs, labels)


def _is_iterable(value: Any) -> bool:
    try:
        iter(value)
    except TypeError:
        return False
    return True


def _checked(x: list[Any], y: list[Any], inputs: str, labels: str) -> tuple[list[Any], list[Any]]:
    if len(x) != len(y):
        raise UserError(
            f"{labels} must have one label for each of {inputs}: there are {len(x)} {inputs} and"
            f" {len(y)} labels"
        )
    if not x:
        raise UserError(f"{inputs} must have at least one example; there is none")
    return x, y


def _of_dataset(dataset: tf.data.Dataset, name: str) -> Iterable[Any]:
    """Returns the rows of a dataset of (input, label), its texts decoded."""
    spec = dataset.element_spec
    if not isinstance(spec, tuple) or len(spec) != 2:
        raise UserError(
            f"{name} must be a tf.data.Dataset of (text, label); its elements are {spec}"
        )
    if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise UserError(
            f"{name} must end, but the tf.data.Dataset repeats without end. Leave repeat() out;"
            " epochs says how often it is read"
        )
    if all(getattr(leaf, "shape", None) is not None for leaf in tf.nest.flatten(spec)):
        ranks = {leaf.shape.rank for leaf in tf.nest.flatten(spec)}
        if ranks == {1}:
            dataset = dataset.unbatch()
    rows = enumerate(dataset.as_numpy_iterator())
    return ((decoded(x, f"{name}[{i}]"), plain(y)) for i, (x, y) in rows)


def decoded(value: Any, place: str) -> Any:
    """Returns a value of TensorFlow, or several in a tuple, with texts for bytes."""
    if isinstance(value, tuple):
        return tuple(decoded(part, place) for part in value)
    if isinstance(value, np.ndarray):
        return [decoded(part, place) for part in value.tolist()]
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{place} must be UTF-8: {error.reason}") from error


def plain(value: Any) -> Any:
    """Returns a label as Python's number or text, if it is one of NumPy or TensorFlow."""
    if isinstance(value, tf.Tensor):
        value = value.numpy()
    if isinstance(value, np.ndarray) and value.size == 1:
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
