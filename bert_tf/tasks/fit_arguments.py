"""Arguments of Keras's `fit`, `evaluate` and `predict`, made fit for the models of the tasks."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, listed, quoted
from bert_tf.model.inputs import input_names, renamed


def array_arguments(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], model: keras.Model
) -> dict[str, Any]:
    """Returns the arguments of a method of Keras by name, x and y with arrays instead of lists.

    Features that are not numbers are dropped, as from the batches of a dataset.

    Raises:
        UserError: an input or a label is not a number.
    """
    given: dict[str, Any] = inspect.signature(function).bind(*args, **kwargs).arguments
    given |= given.pop("kwargs", {})  # Keras's own, from `fit` to `evaluate`
    given |= _arrays(given.get("x"), given.get("y"), model)
    if given.get("sample_weight") is not None:
        given["sample_weight"] = _numbers(_array(given["sample_weight"]), "sample_weight")
    validation = given.get("validation_data")
    if isinstance(validation, tuple) and 1 <= len(validation) <= 3:
        x, y, *weights = (*validation, None)[: max(2, len(validation))]
        found = _arrays(x, y, model)
        weights = [_numbers(_array(value), "sample_weight") for value in weights]
        given["validation_data"] = (found.get("x", x), found.get("y", y), *weights)
    return given


def _arrays(x: Any, y: Any, model: keras.Model) -> dict[str, Any]:
    """Returns x, if it is a dictionary, and y, if there is one, with arrays instead of lists."""
    known = {*input_names(model), *model.label_names}
    found: dict[str, Any] = {}
    if isinstance(x, Mapping):
        arrays = {name: _array(value) for name, value in renamed(x, [*known]).items()}
        found["x"] = {
            name: _numbers(value, name) if name in known else value
            for name, value in arrays.items()
            if value is not None and (name in known or not _is_text(value))
        }
    y = _array(y)
    if isinstance(y, Mapping):
        found["y"] = {name: _numbers(_array(value), name) for name, value in y.items()}
    elif isinstance(y, list | tuple):
        found["y"] = type(y)([_numbers(_array(value), "y") for value in y])
    elif y is not None:
        found["y"] = _numbers(y, "y")
    return found


def weigh_classes(arguments: dict[str, Any], model: keras.Model) -> None:
    """Moves the label among the features of `fit` to y, where Keras's class_weight needs it.

    Raises:
        UserError: the model has no single label for each example, the label is not found, or the
            weights do not name its classes.
    """
    weights = arguments["class_weight"]
    if not isinstance(weights, Mapping):
        raise UserError(
            "class_weight must be a dictionary from the number of a class to its weight, such as"
            f" {{0: 1.0, 1: 2.0}}; received {quoted(weights)}"
        )
    name = "label_ids"
    if (
        model.label_names != (name,)
        or "accuracy" not in model.task_metrics
        or getattr(model, "is_multi_label", False)
    ):
        labels = f"the labels of this one are {listed(model.label_names) or 'none'}"
        raise UserError(
            f"class_weight needs a model with one class for each example; {labels}. Use"
            " sample_weight"
        )
    num_labels = getattr(model, "num_labels", 2**31)
    for label, weight in weights.items():
        if not isinstance(label, int | np.integer) or not 0 <= label < num_labels:
            raise UserError(
                f"class_weight names the class {quoted(label)}; classes are numbered from 0"
                + (f" to {num_labels - 1}" if num_labels < 2**31 else "")
            )
        if not isinstance(weight, int | float | np.number) or not 0 <= weight < float("inf"):
            raise UserError(
                f"class_weight[{label}] must be a finite number and not negative; received"
                f" {quoted(weight)}"
            )
    x, y = arguments.get("x"), arguments.get("y")
    if y is None and isinstance(x, tf.data.Dataset) and isinstance(x.element_spec, Mapping):
        y = "in a dictionary"
    if y is None and isinstance(x, Mapping):
        arguments["x"] = {key: value for key, value in x.items() if key != name}
        arguments["y"] = y = x.get(name)
    if isinstance(y, str) or (y is None and isinstance(x, Mapping)):
        raise UserError(
            f"class_weight needs the labels as y, or as {quoted(name)} in a dictionary of arrays;"
            " from a dataset: dataset.map(lambda x: (x, x.pop('label_ids')))"
        )


def _array(value: Any) -> Any:
    """Returns a list of numbers or texts, nested or not, or a column of a table, as an array."""
    if hasattr(value, "to_numpy"):  # pandas, polars, Arrow; Keras lacks some of their types
        return np.asarray(value)
    first = value
    while isinstance(first, list | tuple) and first:
        first = first[0]
    if isinstance(value, list) and isinstance(first, int | float | str | np.generic):
        try:
            return np.asarray(value)
        except ValueError as error:  # rows of different lengths
            raise UserError(f"a list must have rows of one length: {error}") from error
    return value


def _is_text(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    return isinstance(value, str) or getattr(dtype, "kind", None) in tuple("USOMm")  # and times


def _numbers(value: Any, name: str) -> Any:
    """Returns a value that is not an array of texts."""
    if isinstance(value, np.ndarray) and value.dtype == np.object_:
        try:
            numbers = np.asarray(value.tolist())
        except ValueError as error:
            raise UserError(f"{name} must have rows of one length: {error}") from error
        value = numbers if numbers.dtype.kind in tuple("biuf") else value
    if _is_text(value):
        raise UserError(
            f"{name} must be numbers; received {quoted(str(_wrong(value)))}. A tokenizer makes ids"
            " of texts, and classes are numbered from 0"
        )
    return value


def _wrong(value: Any) -> Any:
    """Returns the first value that is not a number, or else all."""
    values = [value] if isinstance(value, str) else np.ravel(np.asarray(value))
    return next((x for x in values if not isinstance(x, int | float | np.number)), value)
