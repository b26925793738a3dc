"""Checks the arguments of a loaded model's methods, and names them in messages."""

import itertools
import numbers
import os
import types
from collections.abc import ItemsView, Iterable, Mapping
from typing import Any, get_args

import numpy as np
from absl import logging

from bert_tf.bounds import as_float
from bert_tf.errors import UserError, as_line, quoted
from bert_tf.runs.flags.setting_fields import MAX_COUNT
from bert_tf.start import lazy_tensorflow as tf

# Types that `check_type` accepts. A bool only counts as a SWITCH.
SWITCH = (bool, np.bool_)
WHOLE_NUMBER = (numbers.Integral,)
NUMBER = (numbers.Real,)
STRING = (str,)
PATH = (str, os.PathLike)
_NAMES = {
    SWITCH: "True or False",
    WHOLE_NUMBER: "a whole number (int)",
    NUMBER: "a number",
    STRING: "a string",
    PATH: "a path",
}
_TYPES = {bool: SWITCH, int: WHOLE_NUMBER, float: NUMBER, str: STRING}
_MISSING = "Leave missing texts out, or replace them: in pandas, column.dropna() or fillna('')"
TABLE = "Give a column of a table, table['text'], or for pairs list(zip(table['a'], table['b']))"
_MANY, _MOST = 10**6, 2 * 10**7  # values from an iterator at which to warn, and to refuse
_PAIRS = "A pair of texts is a tuple, (a, b); write several texts as a list: [a, b]"


def received(value: object) -> str:
    """Formats a value and its type for a message, on one line: `received '64' (str)`."""
    if value is None or isinstance(value, bool):
        return f"received {value}"
    return f"received {as_line(quoted(value))} ({type(value).__name__})"


def check_type(name: str, value: Any, types: tuple[type, ...], default: str = "") -> None:
    """Raises UserError unless an argument has one of the types; `default` says what None does."""
    is_bool = isinstance(value, SWITCH)
    if (value is None and default) or (isinstance(value, types) and is_bool == (types is SWITCH)):
        return
    rule = _NAMES[types] + (f", or None, {default}" if default else "")
    raise UserError(f"{name} must be {rule}; {received(value)}")


def check_count(
    name: str, value: Any, low: int, high: int = MAX_COUNT, what: str = "", default: str = ""
) -> None:
    """Raises UserError unless an argument is a whole number from `low` to `high`."""
    check_type(name, value, WHOLE_NUMBER, default)
    if value is not None and not low <= value <= high:
        rule = f"from {low} to {high}" + (f", {what}" if what else "")
        raise UserError(f"{name} must be {rule}; {received(value)}")


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    if value not in [*choices]:
        raise UserError(f"{name} must be one of {', '.join(choices)}; {received(value)}")


def as_list(texts: Any, pairs: bool = False, name: str = "texts") -> tuple[list, bool]:
    """Returns texts as a list, and whether a single text was given; with `pairs`, (a, b) is one."""
    if isinstance(texts, str):
        return [texts], True
    single = pairs and isinstance(texts, tuple) and any(isinstance(part, str) for part in texts)
    if single:
        texts = [texts]
    check_order(texts, name, "a text or a list of texts", TABLE)
    found = whole(texts, name)
    if set(map(type, found)) != {str}:  # checking each text takes longer
        for i, text in enumerate(found):
            if not (isinstance(text, str) or (pairs and _is_pair(text))):
                kind = "a text or a pair of texts, (a, b)" if pairs else "a text (str)"
                hint = _MISSING if is_missing(text) else _PAIRS if pairs and is_list(text) else ""
                raise _wrong(f"{name}[{i}]", kind, text, hint)
    return found, single


def whole(values: Iterable[Any], name: str) -> list[Any]:
    """Reads all values; warns after 1 million of an iterator, and refuses more than 20 million."""
    if _has_length(values):
        return list(values)
    # A tf.data.Dataset's tensors would take more memory than arrays.
    values = iter(getattr(values, "as_numpy_iterator", lambda: values)())
    found = list(itertools.islice(values, _MANY))
    if len(found) == _MANY:
        logging.warning(
            "%s: %s values were read so far and are all kept in memory. A generator must end:"
            " epochs says how often its values are used",
            *(name, f"{_MANY:,}"),
        )
        found += itertools.islice(values, _MOST - _MANY)
        if next(values, found) is not found:
            raise UserError(
                f"{name} must end, but gave more than {_MOST:,} values. If a generator is to be"
                " that long, pass a list of its values"
            )
    return found


def check_order(values: Any, name: str, rule: str, hint: str = "") -> None:
    """Raises UserError unless an argument `has_order`; `hint` is for tables and arrays."""
    if not has_order(values):
        hint = hint if (_rank(values) or 0) > 1 else _MISSING if is_missing(values) else ""
        raise _wrong(name, rule, values, hint)


def _wrong(name: str, rule: str, value: Any, hint: str) -> UserError:
    return UserError(f"{name} must be {rule}; {received(value)}{hint and '. '}{hint}")


def as_names(names: Any, meaning: str) -> tuple[str, ...]:
    """Checks the argument `labels`: the names of the classes in the order of the logits."""
    found = whole(names, "labels") if has_order(names) else [None]
    if not all(isinstance(name, str) for name in found):
        raise UserError(f"labels must be a list of {meaning}; {received(names)}")
    return tuple(map(str, found))  # np.str_ becomes str


def has_order(values: Any) -> bool:
    """Returns whether values come one by one in a fixed order, as in a list or a column."""
    others = str | bytes | bytearray | Mapping | ItemsView | set | frozenset
    return not isinstance(values, others) and _rank(values) == 1


def is_list(values: Any) -> bool:
    """Returns whether an argument has a fixed order (see `has_order`) and a length."""
    return has_order(values) and _has_length(values)


def _has_length(values: Any) -> bool:
    try:
        len(values)
    except TypeError:  # also raised by a tf.data.Dataset that repeats without end
        return False
    return True


def _is_pair(text: Any) -> bool:
    is_pair = isinstance(text, tuple) and len(text) == 2 and all(isinstance(x, str) for x in text)
    return is_pair and getattr(text, "_fields", ("",))[0] != "Index"  # pandas' itertuples()


def is_missing(value: Any) -> bool:
    """Returns whether a value is missing: None, NaN, or pandas' NA or NaT."""
    is_nan = isinstance(value, float) and value != value
    return (
        value is None or is_nan or type(value).__name__ in ("NAType", "NaTType", "MaskedConstant")
    )


def _rank(value: Any) -> int | None:
    """Returns the number of axes of an array or a table; 1 for other collections, else None."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) or hasattr(shape, "rank"):  # tf.TensorShape has a rank
        return len(shape)
    try:
        iter(value)
    except TypeError:
        return None
    return 1 if hasattr(value, "__iter__") else None


def plain(value: Any, rank: int = 0) -> Any:
    """Converts a label to a Python number or str, or to an array if `rank` is above 0."""
    if isinstance(value, tf.Tensor):
        value = value.numpy()
    if not rank and isinstance(value, np.ndarray) and value.size == 1 and value.dtype != object:
        value = value.reshape([])[()]
    if isinstance(value, np.generic):
        value = value.item()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def option_value(name: str, value: Any, hint: Any) -> Any:
    """Converts an option to the Python type of its field, `hint`; see `check_type`."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else plain(value)
    hints = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if isinstance(value, list | tuple) and not {bool, int, float} & {*hints}:  # such as sizes
        value = [str(x) if isinstance(x, numbers.Real) else x for x in map(plain, value)]
        if str in hints and all(isinstance(x, str) for x in value):
            value = ",".join(value)
    for kind, accepted in _TYPES.items():
        if kind in hints:
            check_type(name, value, accepted)
            return as_float(value) if kind is float else kind(value)
    if isinstance(value, str):
        raise UserError(f"{name} must be a list of strings; {received(value)}")
    return value
