"""Boxes of inputs: products of closed intervals whose ends are exact."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Rational, Real
from typing import Any

from flint import arb

from transformula.errors import BoxError, FormulaError
from transformula.formulas import expression as ex
from transformula.formulas.enclosures import enclose, precision
from transformula.formulas.expression import Expr
from transformula.formulas.parsing import parse_constant

MAX_VARIABLES = 1_000
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NUMBERED = re.compile(r"([A-Za-z_]\w*?)(\d+)", re.ASCII)
#: Enough to tell apart any two ends a person would write down.
_COMPARE_BITS = 512


@dataclass(frozen=True)
class Box:
    """A product of closed intervals, one for each variable, in the order given.

    Examples
    --------
    >>> box = Box.of("x=0..2*pi, y1..y2=-1/3..1")
    >>> box.variables
    ('x', 'y1', 'y2')
    >>> str(box)
    'x=0..2*pi, y1=-1/3..1, y2=-1/3..1'
    """

    variables: tuple[str, ...]
    lower: tuple[Expr, ...]
    upper: tuple[Expr, ...]

    def __post_init__(self) -> None:
        if not self.variables:
            raise BoxError("the box has no variables: give one interval for each, like x=0..1")
        if len(self.variables) > MAX_VARIABLES:
            raise BoxError(f"the box has {len(self.variables)} variables; at most {MAX_VARIABLES}")
        for name in self.variables:
            _check_name(name)
            if self.variables.count(name) > 1:
                raise BoxError(f"the box gives {name} twice")
        for name, low, high in zip(self.variables, self.lower, self.upper, strict=True):
            _check_interval(name, low, high)

    @classmethod
    def of(cls, given: str | Mapping[str, Any] | Box) -> Box:
        """A box from text (``x=0..1, y1..y9=-3..3``), a mapping of pairs, or a box."""
        if isinstance(given, Box):
            return given
        if isinstance(given, str):
            return cls._from_intervals(_parse_box(given))
        if isinstance(given, Mapping):
            return cls._from_intervals([_from_pair(n, pair) for n, pair in given.items()])
        raise BoxError(f"a box is text or a mapping of name to (low, high), not {given!r}")

    @classmethod
    def _from_intervals(cls, intervals: list[tuple[str, Expr, Expr]]) -> Box:
        names, lows, highs = zip(*intervals, strict=True) if intervals else ((), (), ())
        return cls(tuple(names), tuple(lows), tuple(highs))

    @property
    def dimension(self) -> int:
        """How many variables."""
        return len(self.variables)

    def interval(self, index: int) -> arb:
        """The smallest ball around one interval, at the working precision."""
        return enclose(self.lower[index]).union(enclose(self.upper[index]))

    def intervals(self) -> dict[str, arb]:
        """Each variable's interval as a ball."""
        return {name: self.interval(k) for k, name in enumerate(self.variables)}

    def magnitude(self, index: int) -> arb:
        """Upper bound of abs(x) on one interval, as an exact ball."""
        ends = abs(enclose(self.lower[index])), abs(enclose(self.upper[index]))
        return ends[0].max(ends[1]).upper()

    def floats(self) -> list[tuple[float, float]]:
        """The ends rounded to the nearest floats: for plots and sampling, never for proofs."""
        with precision(_COMPARE_BITS):
            return [
                (float(enclose(low)), float(enclose(high)))
                for low, high in zip(self.lower, self.upper, strict=True)
            ]

    def __str__(self) -> str:
        return ", ".join(
            f"{name}={low}..{high}"
            for name, low, high in zip(self.variables, self.lower, self.upper, strict=True)
        )


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BoxError(f"{name!r} is not a variable name: use letters, digits and _")
    if name in ex.FUNCTIONS or name in ex.VARIADIC:
        raise BoxError(f"{name} is a function: give the variable another name")


def _check_interval(name: str, low: Expr, high: Expr) -> None:
    with precision(_COMPARE_BITS):
        ends = enclose(low), enclose(high)
        if not all(end.is_finite() for end in ends):
            raise BoxError(f"the interval {name}={low}..{high} has an end that is not a number")
        if ends[0] > ends[1]:
            raise BoxError(f"the interval {name}={low}..{high} is reversed: write {high}..{low}")
        if not ends[0] < ends[1]:
            raise BoxError(
                f"the interval {name}={low}..{high} is empty or a single point: "
                f"put the value of {name} into the formula instead"
            )


def _from_pair(name: str, pair: Any) -> tuple[str, Expr, Expr]:
    if isinstance(pair, str):
        return (name, *_parse_interval(name, pair))
    try:
        low, high = pair
    except (TypeError, ValueError):
        raise BoxError(f"the interval of {name} must be a pair (low, high), not {pair!r}") from None
    return name, exact_number(low, name), exact_number(high, name)


def exact_number(value: Any, name: str) -> Expr:
    """A Python number or text as an exact expression; floats mean the decimal they print as."""
    if isinstance(value, str):
        return _constant(value, name)
    if isinstance(value, Expr):
        return value
    if isinstance(value, Decimal) and value.is_finite():
        return ex.number(Fraction(value))
    if isinstance(value, Rational):
        return ex.number(Fraction(int(value.numerator), int(value.denominator)))
    if isinstance(value, Real) or hasattr(value, "__float__"):
        as_float = float(value)
        if not math.isfinite(as_float):
            raise BoxError(f"{name} is given as {value}: only finite numbers can be used")
        return ex.number(Fraction(repr(as_float)))
    raise BoxError(f"{name} is given as {value!r}: a number or text is needed")


def _constant(text: str, name: str) -> Expr:
    if text.strip().lower().lstrip("+-") in ("nan", "inf", "infinity"):
        raise BoxError(f"{name} is given as {text.strip()}: only finite numbers can be used")
    try:
        return parse_constant(text)
    except FormulaError as error:
        raise BoxError(f"the value {text.strip()!r} of {name} can not be read: {error}") from None


def _parse_box(text: str) -> list[tuple[str, Expr, Expr]]:
    intervals: list[tuple[str, Expr, Expr]] = []
    for part in split_commas(text):
        names, equals, interval = part.partition("=")
        if not equals:
            raise BoxError(f"can not read {part!r} in the box: write name=low..high")
        ends = _parse_interval(names.strip(), interval)
        intervals.extend((name, *ends) for name in _expand_names(names.strip()))
    return intervals


def split_commas(text: str) -> list[str]:
    """Split at the commas outside parentheses; empty text gives no parts."""
    parts, depth, start = [], 0, 0
    for position, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    if text.strip():
        parts.append(text[start:].strip())
    return parts


def _parse_interval(name: str, text: str) -> tuple[Expr, Expr]:
    low, dots, high = text.partition("..")
    if not dots or not low.strip() or not high.strip():
        raise BoxError(f"can not read the interval {text.strip()!r} of {name}: write low..high")
    return _constant(low, name), _constant(high, name)


def _expand_names(text: str) -> list[str]:
    first, dots, last = text.partition("..")
    if not dots:
        return [text]
    ends = _NUMBERED.fullmatch(first.strip()), _NUMBERED.fullmatch(last.strip())
    if not ends[0] or not ends[1] or ends[0][1] != ends[1][1]:
        raise BoxError(f"can not read the names {text!r}: a range of names looks like x1..x9")
    start, stop = int(ends[0][2]), int(ends[1][2])
    digits = len(ends[0][2])
    if digits > len(str(start)) and digits != len(ends[1][2]):
        raise BoxError(f"can not read the names {text!r}: write both ends with as many digits")
    if not 0 <= stop - start < MAX_VARIABLES:
        raise BoxError(f"the range of names {text!r} is empty, reversed or too long")
    return [f"{ends[0][1]}{k:0{digits}d}" for k in range(start, stop + 1)]
