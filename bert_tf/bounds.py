"""Bounds of a number, for settings and for a model's configuration."""

import dataclasses
import math
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounds:
    """The range of a number. `str` gives it in words, such as "above 0 and at most 10".

    At most one of `at_least` and `above` (not allowed itself) is given, and with it at most one of
    `at_most` and `below` (not allowed itself).
    """

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    def hold(self, value: Any) -> bool:
        """Returns whether a number is finite and within the bounds."""
        return (
            not (isinstance(value, float) and not math.isfinite(value))
            and (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        if self.at_least is not None and self.at_most is not None:
            return f"between {self.at_least:.10g} and {self.at_most:.10g}"
        names = ("at_least", "above", "at_most", "below")
        values = {name.replace("_", " "): getattr(self, name) for name in names}
        return " and ".join(f"{k} {v:.10g}" for k, v in values.items() if v is not None)
