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
    validation = given.get("validation_data")
    if isinstance(validation, tuple) and 1 <= len(validation) <= 3:
        x, y, *weights = (*validation, None)[: max(2, len(validation))]
        found = _arrays(x, y, model)
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


def weigh_classes(arguments: dict[str, Any], label_names: Sequence[str]) -> None:
    """Moves the label among the features of `fit` to y, where Keras's class_weight needs it.

    Raises:
        UserError: the model has no single label for each example, or the label is not found.
    """
    name = label_names[0] if label_names == ("label_ids",) else None
    x, y = arguments.get("x"), arguments.get("y")
    if name is None:
        raise UserError(
            "class_weight needs a model with one label for each example; the labels of this one"
            f" are {listed(label_names) or 'none'}. Use sample_weight"
        )
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


def set_modes(callbacks: Any, metrics: Sequence[str]) -> None:
    """Tells callbacks that monitor one of the metrics in which direction it improves.

    Keras finds it only for metrics that `compile` was given.
    """
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks = callbacks.callbacks
    for callback in callbacks if isinstance(callbacks, list | tuple) else [callbacks]:
        metric = str(getattr(callback, "monitor", "")).removeprefix("val_")
        if metric in metrics and getattr(callback, "mode", None) == "auto":
            callback.mode = "max" if metric.endswith("accuracy") else "min"


def _array(value: Any) -> Any:
    """Returns a list of Python's numbers or texts, nested or not, as an array."""
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
    return isinstance(value, str) or getattr(dtype, "kind", None) in ("U", "S", "O")


def _numbers(value: Any, name: str) -> Any:
    """Returns a value that is not an array of texts."""
    if _is_text(value) and not (hasattr(value, "tolist") and _all_numbers(value)):
        raise UserError(
            f"{name} must be numbers; received {quoted(str(_first(value)))}. A tokenizer makes ids"
            " of texts, and classes are numbered from 0"
        )
    return value


def _all_numbers(value: Any) -> bool:
    """Returns whether an array of Python objects has only numbers, as some tables do."""
    return all(isinstance(x, int | float | np.number) for x in np.ravel(value.tolist()).tolist())


def _first(value: Any) -> Any:
    return value if isinstance(value, str) else np.ravel(np.asarray(value))[0]
