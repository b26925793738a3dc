"""Parses JSON strictly: NaN, Infinity and repeated keys are errors. Also computes checksums."""

import hashlib
import json
import math
from typing import Any

from bert_tf.errors import quoted


def loads(text: str) -> Any:
    """Parses a JSON text like `json.loads`, but strictly.

    Raises:
        ValueError: the text is not JSON, has NaN, Infinity or a number too large for a float, or a
            key twice in an object.
        RecursionError: the text is nested too deeply.
    """
    return json.loads(
        text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_unique
    )


def checksum(value: Any) -> str:
    """Returns a checksum, 16 digits, of a JSON value; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {quoted(twice)} appears twice")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{quoted(text)} is beyond the range of a number")
    return value
