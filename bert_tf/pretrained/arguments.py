"""Checks the arguments of `load` and of a loaded model's methods."""

import numbers
import os
from collections.abc import ItemsView, Mapping
from typing import Any

import numpy as np

from bert_tf.errors import UserError, as_line, listed, quoted

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

_BYTES = "Decode it: text.decode('utf-8')"
_MISSING = "Leave missing texts out, or replace them: of pandas, column.dropna() or fillna('')"


def received(value: object) -> str:
    """Returns a value and its type for a message, on one line: `received '64' (str)`."""
    if value is None or isinstance(value, bool):
        return f"received {value}"
    return f"received {as_line(quoted(value))} ({type(value).__name__})"


def check_type(name: str, value: Any, types: tuple[type, ...], default: str = "") -> None:
    """Raises UserError if an argument has none of the types, which are a constant of this module.

    `default` says what None means, such as "which detects it"; "" if None is not allowed.
    """
    is_bool = isinstance(value, SWITCH)
    if (value is None and default) or (isinstance(value, types) and is_bool == (types is SWITCH)):
        return
    rule = _NAMES[types] + (f", or None, {default}" if default else "")
    raise UserError(f"{name} must be {rule}; {received(value)}")


def as_list(texts: Any, pairs: bool = False, name: str = "texts") -> tuple[list, bool]:
    """Returns texts as a list, and whether a single text was given.

    Args:
        texts: a text, or anything that gives texts one after the other, such as a list, a NumPy
            array or a column of a table. With `pairs`, a tuple of texts is one pair, wherever it
            stands; without, it is a list.
        pairs: whether a text may be a pair, a tuple of two texts.
        name: the argument's name, for messages.

    Raises:
        UserError: the argument is something else.
    """
    if isinstance(texts, str):
        return [texts], True
    if pairs and isinstance(texts, tuple) and any(isinstance(part, str) for part in texts):
        if not _is_pair(texts):
            raise UserError(
                f"{name} is a tuple, so it must be one pair of texts, (a, b); {received(texts)}."
                " Write several texts as a list: [a, b]"
            )
        return [texts], True
    _check_collection(texts, pairs, name)
    found = list(texts)
    if set(map(type, found)) != {str}:  # the check of each text takes longer
        for i, text in enumerate(found):
            if not (isinstance(text, str) or (pairs and _is_pair(text))):
                kind = "a text or a pair of texts, (a, b)" if pairs else "a text (str)"
                hint = _remedy(text, pairs, name)
                raise UserError(
                    f"{name}[{i}] must be {kind}; {received(text)}{hint and '. '}{hint}"
                )
    return found, False


def as_names(names: Any, meaning: str) -> tuple[str, ...]:
    """Returns the names of classes in the order of the logits: the argument `labels`.

    Raises:
        UserError: they are not texts in a list, or in something else that has an order.
    """
    found = tuple(names) if has_order(names) else (None,)
    if not all(isinstance(name, str) for name in found):
        raise UserError(f"labels must be a list of {meaning}; {received(names)}")
    return tuple(map(str, found))  # NumPy's have a type of their own


def has_order(values: Any) -> bool:
    """Returns whether an argument gives values one after the other, such as a list or a column."""
    is_other = isinstance(values, str | bytes | Mapping | set | frozenset)
    return not is_other and _rank(values) == 1


def is_list(values: Any) -> bool:
    """Returns whether an argument `has_order` and a length."""
    return has_order(values) and hasattr(values, "__len__")


def _is_pair(text: Any) -> bool:
    return (
        isinstance(text, tuple)
        and len(text) == 2
        and isinstance(text[0], str)
        and isinstance(text[1], str)
        and not _has_index(text)
    )


def _has_index(row: tuple) -> bool:
    """Returns whether a tuple is from pandas' `itertuples()`, and begins with the index."""
    return getattr(row, "_fields", ("",))[:1] == ("Index",)


def _remedy(text: Any, pairs: bool, name: str) -> str:
    """Returns what to write instead of a list with an element that is not a text, or ""."""
    hints = (
        (isinstance(text, bytes), _BYTES),
        (isinstance(text, Mapping), f"Choose their texts: [row['text'] for row in {name}]"),
        (
            isinstance(text, tuple) and _has_index(text),
            "Leave out the index: itertuples(index=False)",
        ),
        (_num_texts(text) == 1, f"Take the text of each row: [row[0] for row in {name}]"),
        (
            isinstance(text, tuple) and len(text) == 2 and isinstance(text[1], numbers.Real),
            f"Leave labels out: [text for text, _ in {name}]; of a tf.data.Dataset,"
            " dataset.map(lambda text, label: text)",
        ),
        (isinstance(text, tuple) and not pairs, "This method takes no pairs"),
        (
            isinstance(text, tuple),
            "A tuple is one pair of two texts; write texts as a list: [a, b]",
        ),
        (_num_texts(text) == 2 and pairs, f"Write pairs as tuples: [tuple(row) for row in {name}]"),
        (hasattr(text, "numpy"), f"Take a tensor's texts: [x.decode() for x in {name}.numpy()]"),
        (hasattr(text, "as_py"), f"Write the texts of an Arrow column as {name}.to_pylist()"),
        (is_missing(text), _MISSING),
    )
    return next((hint for holds, hint in hints if holds), "")


def _num_texts(values: Any) -> int:
    """Returns the number of texts in a collection; 0 if something else is in it."""
    is_collection = _rank(values) and hasattr(values, "__len__")
    return len(values) if is_collection and all(isinstance(x, str) for x in values) else 0


def is_missing(value: Any) -> bool:
    """Returns whether a value stands for a missing one: None, NaN, or pandas' NA and NaT."""
    is_nan = isinstance(value, float) and value != value
    return (
        value is None or is_nan or type(value).__name__ in ("NAType", "NaTType", "MaskedConstant")
    )


def _rank(value: Any) -> int | None:
    """Returns the number of axes of an array or a table; 1 for other collections, else None."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) or hasattr(shape, "rank"):  # TensorFlow's has a rank
        return len(shape)
    try:
        iter(value)
    except TypeError:
        return None
    return 1 if hasattr(value, "__iter__") else None


def _check_collection(texts: Any, pairs: bool, name: str) -> None:
    """Raises UserError if an argument does not give texts one after the other, in an order."""
    hint = ""
    rank = _rank(texts)
    if isinstance(texts, Mapping | ItemsView):
        hint = f"A dictionary is not a list; write its texts: list({name}.values())"
    elif isinstance(texts, set | frozenset):
        hint = f"A set has no order that the results could keep; write sorted({name})"
    elif isinstance(texts, bytes | bytearray | memoryview):
        hint = _BYTES
    elif rank is None:
        hint = _MISSING if is_missing(texts) else ""
    elif rank == 0:
        item = "item()" if hasattr(texts, "item") else "numpy().decode()"  # TensorFlow's
        hint = f"Write the text of an array without axes as {name}.{item}"
    elif rank > 1:
        hint = _of_table(texts, pairs, name)
    else:
        return
    raise UserError(
        f"{name} must be a text or a list of texts; {received(texts)}{hint and '. '}{hint}"
    )


def _of_table(table: Any, pairs: bool, name: str) -> str:
    """Returns what to write instead of a table or an array with several axes."""
    columns = getattr(table, "columns", None)
    if columns is None:
        hint = f"Take one axis: {name}[:, 0]"
        return hint + (f"; for pairs, list(map(tuple, {name}))" if pairs else "")
    names = getattr(table, "column_names", columns)  # pyarrow's columns are the values
    hint = f"Name the column with the texts, such as {name}['text']"
    if pairs:
        hint += f", or two for pairs: list(zip({name}['a'], {name}['b']))"
    return f"{hint}. The table has {listed(names)}"
