"""Bounds of numbers in settings, in a model's configuration and in a model's inputs.

Also two contexts in which steps trace models: `inputs_were_checked` and `stored_scores`.
"""

import contextlib
import contextvars
import dataclasses
import math
import struct
from collections.abc import Iterator
from numbers import Real
from typing import Any

from bert_tf.errors import UserError, quoted

# The smallest and the largest number whose inverse float32 also holds; updates use the number and
# the inverse. Devices treat smaller numbers as 0.
FLOAT32_RANGE = 2.0**-126, 2.0**126


def fits_float32(value: float) -> bool:
    """Returns whether a number is 0, or both it and its inverse are finite and not 0 in float32."""
    low, high = FLOAT32_RANGE
    return value == 0.0 or low <= abs(value) <= high


def _in_float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def plain_number(value: Any) -> Any:
    """Converts a NumPy or TensorFlow number to a Python number; leaves anything else unchanged."""
    shape = getattr(value, "shape", None)
    if shape is None or len(shape) or hasattr(value, "assign"):
        return value
    value = value.numpy() if hasattr(value, "numpy") else value
    return value.item() if hasattr(value, "item") else value  # unchanged: a tensor in a graph


def as_float(number: Any) -> float:
    """Converts a number to a float; infinite if it is too large."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounds:
    """The range of a number. `str` gives it in words, such as "above 0 and at most 10"."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    def hold(self, value: Any) -> bool:
        """Returns whether a number is finite and within the bounds, also in float32."""
        if not isinstance(value, int | float):
            return self.contain(value)
        if not fits_float32(value) or not self.contain(value):
            return False
        strict = Bounds(above=self.above, below=self.below)  # rounding may cross the other bounds
        return isinstance(value, int) or strict.contain(_in_float32(value))

    def contain(self, value: Any) -> bool:
        """Returns whether a number is within the bounds, ignoring float32."""
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )

    def float32_note(self, value: Any) -> str:
        """Returns a note for the message if a number is within the bounds, but not in float32."""
        finite = isinstance(value, int | float) and -math.inf < value < math.inf
        if not finite or not self.contain(value) or self.hold(value):
            return ""
        if fits_float32(value):
            return f", also in float32, where it is {_in_float32(value):.10g}"
        low, high = FLOAT32_RANGE
        return f", also in float32: 0, or from {low:.2g} to {high:.2g}"

    def check(self, **numbers: Any) -> None:
        """Raises UserError unless all arguments, given by name, are numbers within the bounds."""
        for name, value in numbers.items():
            number = plain_number(value)
            is_number = isinstance(number, Real) and not isinstance(number, bool)
            if not is_number or not self.hold(as_float(number)):
                raise UserError(
                    f"{name} must be a finite number, {self}{self.float32_note(number)}; received"
                    f" {quoted(number)}"
                )

    def __str__(self) -> str:
        if self.at_least is not None and self.at_most is not None:
            return f"between {self.at_least:.10g} and {self.at_most:.10g}"
        names = ("at_least", "above", "at_most", "below")
        values = {name.replace("_", " "): getattr(self, name) for name in names}
        return " and ".join(f"{k} {v:.10g}" for k, v in values.items() if v is not None)


_inputs_are_checked = contextvars.ContextVar("inputs_are_checked", default=False)
_scores_are_stored = contextvars.ContextVar("scores_are_stored", default=False)


@contextlib.contextmanager
def switched(variable: contextvars.ContextVar[Any], value: Any = True) -> Iterator[None]:
    """Sets a context variable inside a `with` block, in this thread only."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def inputs_were_checked() -> Any:  # a context, or a decorator
    """Models called in this context do not check the ranges of their inputs.

    The training loop checks records as it reads them, so its steps need no second check.
    """
    return switched(_inputs_are_checked)


def inputs_are_checked() -> bool:
    return _inputs_are_checked.get()


def stored_scores() -> Any:
    """Models called in this context write attention's scores to memory before the softmax.

    Otherwise TPU7x's compiler (libtpu 0.0.42.1) nests the products around the softmax three deep,
    overflows its own stack and crashes.
    """
    return switched(_scores_are_stored)


def scores_are_stored() -> bool:
    return _scores_are_stored.get()
