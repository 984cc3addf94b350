"""Boxes as a user may give them: text, or a mapping of names to pairs of numbers of any kind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from numbers import Complex, Rational, Real
from typing import Any

from flint import fmpq, fmpz

from transformula.errors import BoxError, FormulaError, brief
from transformula.formula.from_sympy import from_sympy, is_sympy
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box, parse_end, parse_interval
from transformula.kernel.syntax.expression import Expr


def box_of(given: str | Mapping[str, Any] | Box) -> Box:
    """A box from text (``x=0..1, y1..y9=-3..3``), a mapping of pairs, or a box.

    Examples
    --------
    >>> str(box_of({"x": (0, 0.1), "y": "0..2*pi"}))
    'x=0..1/10, y=0..2*pi'
    """
    if isinstance(given, (str, Box)):
        return Box.of(given)
    if not isinstance(given, Mapping):
        raise BoxError(f"a box is text or a mapping of name to (low, high), not {brief(given)}")
    names = [from_sympy(name).text if is_sympy(name) else name for name in given]
    ends = [_ends(name, pair) for name, pair in zip(names, given.values(), strict=True)]
    return Box(tuple(names), tuple(low for low, _ in ends), tuple(high for _, high in ends))


def _ends(name: str, pair: Any) -> tuple[Expr, Expr]:
    if isinstance(pair, str):
        return parse_interval(pair, name)
    try:
        low, high = pair
    except (TypeError, ValueError):
        raise BoxError(f"the interval of {name} must be a pair (low, high), not {brief(pair)}") from None
    return exact_number(low, name), exact_number(high, name)


def exact_number(value: Any, name: str) -> Expr:
    """A number of Python, NumPy, sympy or FLINT, or text, as an exact expression; floats mean the decimal they print
    as."""
    if is_sympy(value):
        try:
            value = from_sympy(value).text
        except FormulaError as error:
            raise BoxError(f"{name} is given as {brief(value)}: {error}") from None
    if isinstance(value, str):
        return parse_end(value, name)
    if isinstance(value, Expr):
        return value
    if isinstance(value, (fmpq, fmpz)):
        return ex.number(Fraction(int(value.numerator), int(value.denominator)))
    if isinstance(value, Rational):
        return ex.number(Fraction(int(value.numerator), int(value.denominator)))
    if isinstance(value, Decimal) and value.is_finite():
        return ex.number(Fraction(value))
    try:
        if isinstance(value, Complex) and not isinstance(value, Real):
            raise TypeError
        as_float = float(value)
    except (TypeError, ValueError, OverflowError):
        raise BoxError(f"{name} is given as {brief(value)}: a number or text is needed") from None
    if not math.isfinite(as_float):
        raise BoxError(f"{name} is given as {value}: only finite numbers can be used")
    return ex.number(Fraction(repr(as_float)))
