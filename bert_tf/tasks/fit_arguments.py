"""Converts lists and tables to arrays before Keras's `fit`, `evaluate` and `predict`."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.bounds import Bounds
from bert_tf.errors import UserError, listed, quoted
from bert_tf.model.inputs import input_names, renamed
from bert_tf.tasks.arguments import received


def array_arguments(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], model: keras.Model
) -> dict[str, Any]:
    """Returns a Keras method's arguments by name, with lists as arrays and no text features."""
    given: dict[str, Any] = inspect.signature(function).bind(*args, **kwargs).arguments
    given |= given.pop("kwargs", {})  # options that `fit` passes to `evaluate`
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
    """Moves the labels of `fit` from the features to y, where Keras's class_weight needs them."""
    weights, name = arguments["class_weight"], "label_ids"
    if (
        model.label_names != (name,)
        or "accuracy" not in model.task_metrics
        or getattr(model, "is_multi_label", False)
    ):
        labels = f"this model's labels are {listed(model.label_names) or 'none'}"
        raise UserError(
            f"class_weight needs a model with one class for each example; {labels}. Use"
            " sample_weight"
        )
    last = getattr(model, "num_labels", 2**31) - 1
    if not isinstance(weights, Mapping) or not all(
        isinstance(label, int | np.integer) and 0 <= label <= last for label in weights
    ):
        raise UserError(
            f"class_weight must be a dictionary from the numbers of classes, from 0 to {last}, to"
            f" their weights, such as {{0: 1.0, 1: 2.0}}; {received(weights)}"
        )
    for label, weight in weights.items():
        Bounds(at_least=0).check(**{f"class_weight[{label}]": weight})
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
    if hasattr(value, "to_numpy"):  # pandas, polars, Arrow; Keras does not know all their types
        return np.asarray(value)
    first = value
    while isinstance(first, list | tuple) and first:
        first = first[0]
    is_list = isinstance(value, list) and isinstance(first, int | float | str | np.generic)
    return np.asarray(value) if is_list else value


def _is_text(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    return isinstance(value, str) or getattr(dtype, "kind", None) in tuple("USOMm")  # M, m: times


def _numbers(value: Any, name: str) -> Any:
    """Converts an array of objects to numbers; raises UserError if the values are texts."""
    if isinstance(value, np.ndarray) and value.dtype == np.object_:
        numbers = np.asarray(value.tolist())
        value = numbers if numbers.dtype.kind in tuple("biuf") else value
    if _is_text(value):
        raise UserError(
            f"{name} must be numbers; {received(value)}. A tokenizer turns texts into ids;"
            " classes are numbered from 0"
        )
    return value
