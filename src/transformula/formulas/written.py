"""Formulas put together as text, with as few brackets as the parser needs: what other notations are turned into."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from numbers import Rational, Real
from typing import Any, NamedTuple

from transformula.errors import FormulaError
from transformula.kernel.syntax.parsing import MAX_LENGTH

#: How strongly a text holds together.
_SUM, _PRODUCT, _POWER, _ATOM = range(4)


class Written(NamedTuple):
    """A formula's text, and how strongly it holds together."""

    text: str
    strength: int = _ATOM

    def _as(self, least: int) -> str:
        return self.text if self.strength >= least and not self.text.startswith("-") else f"({self.text})"

    def _led(self) -> str:
        """As what others are multiplied or divided by: a minus sign may lead it."""
        return self.text if self.strength >= _PRODUCT else f"({self.text})"


def _made(text: str, strength: int) -> Written:
    if len(text) > MAX_LENGTH:  # sub-expressions that are used again and again are written out each time
        raise FormulaError(f"the formula is too long: written out it has over {MAX_LENGTH} characters")
    return Written(text, strength)


def plus(a: Written, b: Written) -> Written:
    """A sum.

    Examples
    --------
    >>> x, y = Written("x"), Written("y")
    >>> plus(x, minus(x, y)).text, times(plus(x, y), negative(y)).text, over(x, times(x, y)).text
    ('x + x - y', '(x + y)*(-y)', 'x/(x*y)')
    """
    if b.text.startswith("-"):
        return _made(f"{a.text} - {b.text[1:]}", _SUM)
    return _made(f"{a.text} + {b.text}", _SUM)


def minus(a: Written, b: Written) -> Written:
    """A difference."""
    return _made(f"{a.text} - {b._as(_PRODUCT)}", _SUM)


def negative(a: Written) -> Written:
    """Minus a formula."""
    return _made(f"-{a._as(_PRODUCT)}", _PRODUCT)


def times(a: Written, b: Written) -> Written:
    """A product."""
    return _made(f"{a._led()}*{b._as(_PRODUCT)}", _PRODUCT)


def over(a: Written, b: Written) -> Written:
    """A quotient."""
    return _made(f"{a._led()}/{b._as(_POWER)}", _PRODUCT)


def power(a: Written, b: Written) -> Written:
    """A power."""
    return _made(f"{a._as(_ATOM)}**{b._as(_ATOM)}", _POWER)


def call(name: str, *args: Written) -> Written:
    """A function of its arguments; whether it is known is for the parser to say."""
    return _made(f"{name}({', '.join(a.text for a in args)})", _ATOM)


def number(value: Any) -> Written | None:
    """A number of any kind, exactly; floats mean the decimal they print as. None if it is no number.

    Examples
    --------
    >>> number(0.1).text, number(Fraction(-1, 3)).text, number(1e-7).text, number("x")
    ('0.1', '-1/3', '1e-07', None)
    """
    if isinstance(value, Decimal):
        text, finite = str(value), value.is_finite()
    elif isinstance(value, Rational):
        return _signed(Fraction(int(value.numerator), int(value.denominator)))
    elif isinstance(value, Real):
        text, finite = repr(float(value)), math.isfinite(float(value))
    else:
        return None
    if not finite:
        raise FormulaError(f"the number {text} in the formula is not finite")
    return Written(text.replace("E", "e"), _PRODUCT if text.startswith("-") else _ATOM)


def _signed(value: Fraction) -> Written:
    if max(abs(value.numerator), value.denominator).bit_length() > 13_000:  # beyond what Python writes down
        raise FormulaError("a number in the formula has thousands of digits: too large")
    return Written(str(value), _ATOM if value.denominator == 1 and value >= 0 else _PRODUCT)
