"""Measures as Wikipedia's template `convert` shows them: "346 kilometres (215 mi)"."""

import math
import re
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from typing import NamedTuple


class _Unit(NamedTuple):
    symbol: str
    singular: str
    plural: str
    scale: float  # in the unit of its kind
    outputs: str  # the units that it is converted to unless the template names others
    offset: float = 0.0


def _regular(symbol: str, name: str, scale: float, outputs: str, ending: str = "s") -> _Unit:
    return _Unit(symbol, name, name + ending, scale, outputs)


_UNITS = {
    "km": _regular("km", "kilometre", 1000, "mi"),
    "m": _regular("m", "metre", 1, "ft"),
    "cm": _regular("cm", "centimetre", 0.01, "in"),
    "mm": _regular("mm", "millimetre", 0.001, "in"),
    "mi": _regular("mi", "mile", 1609.344, "km"),
    "yd": _regular("yd", "yard", 0.9144, "m"),
    "ft": _Unit("ft", "foot", "feet", 0.3048, "m"),
    "in": _Unit("in", "inch", "inches", 0.0254, "mm"),
    "nmi": _regular("nmi", "nautical mile", 1852, "km mi"),
    "km2": _regular("km2", "square kilometre", 1e6, "sqmi"),
    "m2": _regular("m2", "square metre", 1, "sqft"),
    "ha": _regular("ha", "hectare", 1e4, "acre"),
    "acre": _Unit("acres", "acre", "acres", 4046.8564224, "ha"),
    "sqmi": _regular("sq mi", "square mile", 1609.344**2, "km2"),
    "sqft": _Unit("sq ft", "square foot", "square feet", 0.3048**2, "m2"),
    "kg": _regular("kg", "kilogram", 1, "lb"),
    "g": _regular("g", "gram", 0.001, "oz"),
    "lb": _regular("lb", "pound", 0.45359237, "kg"),
    "oz": _regular("oz", "ounce", 0.028349523125, "g"),
    "st": _Unit("st", "stone", "stone", 6.35029318, "lb kg"),
    "t": _regular("t", "tonne", 1000, "LT ST"),
    "LT": _regular("long tons", "long ton", 1016.0469088, "t"),
    "ST": _regular("short tons", "short ton", 907.18474, "t"),
    "L": _regular("L", "litre", 0.001, "impgal USgal"),
    "USgal": _regular("US gal", "US gallon", 0.003785411784, "L"),
    "impgal": _regular("imp gal", "imperial gallon", 0.00454609, "L"),
    "m3": _regular("m3", "cubic metre", 1, "cuft"),
    "cuft": _Unit("cu ft", "cubic foot", "cubic feet", 0.3048**3, "m3"),
    "km/h": _Unit("km/h", "kilometre per hour", "kilometres per hour", 1 / 3.6, "mph"),
    "mph": _Unit("mph", "mile per hour", "miles per hour", 0.44704, "km/h"),
    "m/s": _Unit("m/s", "metre per second", "metres per second", 1, "ft/s"),
    "ft/s": _Unit("ft/s", "foot per second", "feet per second", 0.3048, "m/s"),
    "kn": _regular("kn", "knot", 1852 / 3600, "km/h mph"),
    "kW": _regular("kW", "kilowatt", 1000, "hp"),
    "MW": _regular("MW", "megawatt", 1e6, "hp"),
    "hp": _regular("hp", "horsepower", 745.69987158227, "kW", ""),
    "C": _Unit("°C", "°C", "°C", 1, "F", 273.15),
    "F": _Unit("°F", "°F", "°F", 5 / 9, "C", 459.67 * 5 / 9),
}
_OTHER_NAMES = {
    "kilometre": "km", "kilometer": "km", "metre": "m", "meter": "m", "mile": "mi", "miles": "mi",
    "foot": "ft", "feet": "ft", "inch": "in", "inches": "in", "yard": "yd", "sqkm": "km2",
    "sqm": "m2", "acres": "acre", "hectare": "ha", "kph": "km/h", "knot": "kn", "knots": "kn",
    "l": "L", "gal": "USgal", "U.S.gal": "USgal", "long ton": "LT", "short ton": "ST", "NM": "nmi",
    "°C": "C", "°F": "F", "pound": "lb", "lbs": "lb", "tonne": "t", "stone": "st", "ounce": "oz",
}  # fmt: skip
_BETWEEN = {
    "-": "–", "–": "–", "to": " to ", "to(-)": " to ", "and": " and ", "or": " or ", "x": " by ",
    "by": " by ", "×": " × ", "*": " × ", "+/-": " ± ", "±": " ± ",
}  # fmt: skip
_LONGEST_NUMBER = 100  # characters; a float has at most 309 digits before the point
_NUMBER = re.compile(r"([-−+]?)(?:(\d[\d,]*|\d*)(\.\d+)?|(?:(\d+)[+ ])?(\d+)//?(\d+))$")


def _value(text: str) -> tuple[float, str, float] | None:
    """Returns a number, how it is shown, and its decimal places; None if it is not a number."""
    match = _NUMBER.match(text) if len(text) <= _LONGEST_NUMBER else None
    if not match or not re.search(r"\d", text):
        return None
    sign, whole, decimals, units, above, below = match.groups()
    factor = -1 if sign in ("-", "−") else 1
    shown_sign = "−" if factor < 0 else sign
    if below:
        if not int(below):
            return None
        number = int(units or 0) + Fraction(int(above), int(below))
        shown = f"{units + ' ' if units else ''}{above}⁄{below}"
        return factor * float(number), shown_sign + shown, math.log10(int(below))
    digits = (whole or "0").replace(",", "")
    places = len(decimals) - 1 if decimals else len(digits.rstrip("0")) - len(digits)
    return (
        factor * float(digits + (decimals or "")),
        f"{shown_sign}{int(digits):,}{decimals or ''}",
        places,
    )


def _in_unit(value: float, source: _Unit, target: _Unit) -> float:
    return (value * source.scale + source.offset - target.offset) / target.scale


def _digits(value: float, places: float, source: _Unit, target: _Unit) -> int:
    """Returns to how many decimal places the template rounds a value in the target's unit."""
    result = _in_unit(value, source, target)
    if source.offset:  # three digits of the absolute temperature
        adjusted, digits, size = 0.0, 3, value * source.scale + source.offset
    elif result:
        adjusted, digits, size = math.log10(abs(value / result)), 2, result
    else:
        return 0
    least = digits - 1 - math.floor(math.log10(abs(size)) + 1e-14) if size else 0
    return max(math.floor(places + adjusted + math.log10(2)), least)


def _rounded(number: float, digits: int) -> str:
    digits = min(max(digits, -30), 30)
    # repr hides the last bits of the binary number.
    exact = Decimal(repr(number)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return f"{exact:,.{max(digits, 0)}f}".replace("-", "−")


def _range(arguments: Sequence[str]) -> tuple[list[tuple[float, str, float]], list[str], list[str]]:
    """Returns the numbers at the start, the words before each of them, and the other arguments."""
    rest = [argument.strip() for argument in arguments]
    values, between = [], [""]
    while rest and (value := _value(rest[0])):
        values.append(value)
        rest.pop(0)
        if len(rest) < 2 or rest[0] not in _BETWEEN or not _value(rest[1]):
            break
        between.append(_BETWEEN[rest.pop(0)])
    return values, between, rest


def convert(arguments: Sequence[str], options: Mapping[str, str]) -> str | None:
    """Returns what `{{convert|ARGUMENTS|OPTIONS}}` shows; None if it has no number and unit.

    With a unit that is not known here, the measure is shown without its conversion.
    """
    values, between, rest = _range(arguments)
    if not values or not rest or _value(rest[0]):
        return None
    name = rest.pop(0)
    source = _UNITS.get(_OTHER_NAMES.get(name, name))
    style = {"abbr": "out", **options}["abbr"]
    is_adjective = options.get("adj") in ("on", "mid", "pre")

    def unit(measure: _Unit, count: float, is_short: bool) -> str:
        if is_short or measure.offset:
            return f" {measure.symbol}"
        text = measure.singular if is_adjective or count == 1 else measure.plural
        if options.get("sp", "").lower() == "us":
            text = text.replace("metre", "meter").replace("litre", "liter")
        return f"-{text.replace(' ', '-')}" if is_adjective else f" {text}"

    def joined(numbers: Sequence[str], measure: _Unit | None, is_short: bool) -> str:
        """Returns the numbers of a range; "6 m × 8" if units are short, else "6 by 8"."""
        times = f" {measure.symbol} × " if measure and is_short else " by "
        words = [times if word in (" by ", " × ") else word for word in between]
        return "".join(a + b for a, b in zip(words, numbers, strict=True))

    is_short = style in ("on", "in", "values")
    shown = joined([value[1] for value in values], source, is_short)
    if source is None:
        return f"{shown} {name}"
    first = shown + unit(source, values[-1][0], is_short)
    if len(values) == 1 and len(rest) > 1 and (more := _value(rest[0])):  # 5 ft 11 in
        smaller = _UNITS.get(_OTHER_NAMES.get(rest[1], rest[1]))
        if smaller:
            first += f" {more[1]}{unit(smaller, more[0], is_short)}"
            total = values[0][0] * source.scale + more[0] * smaller.scale
            values = [(total / smaller.scale, "", more[2] + 0.2)]  # heights to centimetres
            source, rest = smaller, rest[2:] or ["m" if name in ("ft", "foot") else "kg"]
    outputs = rest.pop(0).split() if rest and not _value(rest[0]) else source.outputs.split()
    fixed = int(rest[0]) if rest and re.fullmatch(r"-?\d{1,2}", rest[0]) else None
    parts, numbers = [], ""
    for output in outputs:
        target = _UNITS.get(_OTHER_NAMES.get(output, output))
        if target is None or bool(target.offset) != bool(source.offset):
            continue
        digits = max(_digits(value, places, source, target) for value, _, places in values)
        digits = digits if fixed is None else fixed
        made = [_rounded(_in_unit(value, source, target), digits) for value, _, _ in values]
        is_short = style in ("on", "out")
        numbers = joined(made, target, is_short)
        parts.append(numbers + unit(target, 1 if made == ["1"] else 2, is_short))
    return _arranged(first, "; ".join(parts), numbers, options) if parts else first


def _arranged(first: str, second: str, numbers: str, options: Mapping[str, str]) -> str:
    """Returns a measure and its conversion in the form that `disp` and `order` ask for."""
    shape = options.get("disp", "b")
    if shape in ("number", "output number only"):
        return numbers
    if shape in ("out", "output only"):
        return second
    if options.get("order") == "flip" or shape == "flip":
        first, second = second, first
    pattern = {"or": "{} or {}", "comma": "{}, {}", "sqbr": "{} [{}]"}.get(shape, "{} ({})")
    return pattern.format(first, second)
