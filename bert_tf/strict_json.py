"""Reads JSON as its standard has it, without the numbers that only Python knows."""

import json
import math
from typing import Any

from bert_tf.errors import quoted


def loads(text: str) -> Any:
    """Returns the value of a JSON text, as `json.loads` does.

    Raises:
        ValueError: it is not JSON. JSON has no NaN and no Infinity; a number that Python makes
            infinite counts as one.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number in JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{quoted(text)} is beyond the range of a number")
    return value
