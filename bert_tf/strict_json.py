"""Reads strict JSON: NaN and Infinity, which Python's parser accepts, are errors; checksums."""

import hashlib
import json
import math
from typing import Any

from bert_tf.errors import quoted


def loads(text: str) -> Any:
    """Returns the value of a JSON text, as `json.loads` does.

    Raises:
        ValueError: the text is not JSON, or has NaN, Infinity or a number too large for a float.
        RecursionError: the text is nested too deeply.
    """
    return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)


def checksum(value: Any) -> str:
    """Returns the checksum of a value that JSON can hold: 16 digits, whatever the order of keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{quoted(text)} is beyond the range of a number")
    return value
