"""Formulas put together as text with as few brackets as the parser needs: the target of every other notation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Rational, Real
from typing import Any

from transformula.errors import FormulaError
from transformula.kernel.syntax.definitions import ALIASES
from transformula.kernel.syntax.parsing import MAX_LENGTH

#: Binding strength of a text: a sum binds least, a name or call most.
_SUM = 0
_PRODUCT = 1
_POWER = 2
_ATOM = 3
#: Bits of the largest number that Python writes down in digits.
_MAX_BITS = 13_000


@dataclass(frozen=True)
class FormulaText:
    """The text of a formula and its binding strength; operators add brackets where they are needed.

    Examples
    --------
    >>> x, y = FormulaText("x"), FormulaText("y")
    >>> (x + (x - y)).text, ((x + y) * -y).text, (x / (x * y)).text
    ('x + x - y', '(x + y)*(-y)', 'x/(x*y)')
    """

    text: str
    strength: int = _ATOM

    def __add__(self, other: FormulaText) -> FormulaText:
        if other.text.startswith("-"):
            return _bounded(f"{self.text} - {other.text[1:]}", _SUM)
        return _bounded(f"{self.text} + {other.text}", _SUM)

    def __sub__(self, other: FormulaText) -> FormulaText:
        return _bounded(f"{self.text} - {other._at_least(_PRODUCT)}", _SUM)

    def __neg__(self) -> FormulaText:
        return _bounded(f"-{self._at_least(_PRODUCT)}", _PRODUCT)

    def __mul__(self, other: FormulaText) -> FormulaText:
        return _bounded(f"{self._leading()}*{other._at_least(_PRODUCT)}", _PRODUCT)

    def __truediv__(self, other: FormulaText) -> FormulaText:
        return _bounded(f"{self._leading()}/{other._at_least(_POWER)}", _PRODUCT)

    def __pow__(self, other: FormulaText) -> FormulaText:
        return _bounded(f"{self._at_least(_ATOM)}**{other._at_least(_ATOM)}", _POWER)

    def _at_least(self, strength: int) -> str:
        """The text, in brackets if it binds less or begins with a minus sign."""
        return self.text if self.strength >= strength and not self.text.startswith("-") else f"({self.text})"

    def _leading(self) -> str:
        """The text as the first factor of a product, where a minus sign needs no brackets."""
        return self.text if self.strength >= _PRODUCT else f"({self.text})"


ZERO = FormulaText("0")
ONE = FormulaText("1")


def _bounded(text: str, strength: int) -> FormulaText:
    if len(text) > MAX_LENGTH:  # shared sub-expressions are written out each time
        raise FormulaError(f"the formula is too long: written out it has over {MAX_LENGTH} characters")
    return FormulaText(text, strength)


def call(name: str, *args: FormulaText) -> FormulaText:
    """A function of its arguments, aliases replaced; the parser refuses unknown names."""
    return _bounded(f"{ALIASES.get(name, name)}({', '.join(a.text for a in args)})", _ATOM)


def number_text(value: Any) -> FormulaText | None:
    """A number of any kind, exactly; a float means the decimal it prints as. None for anything else.

    Examples
    --------
    >>> number_text(0.1).text, number_text(Fraction(-1, 3)).text, number_text(1e-7).text, number_text("x")
    ('0.1', '-1/3', '1e-07', None)
    """
    if isinstance(value, Rational):
        return _rational_text(Fraction(int(value.numerator), int(value.denominator)))
    if isinstance(value, Decimal):
        text, finite = str(value), value.is_finite()
    elif isinstance(value, Real):
        text, finite = repr(float(value)), math.isfinite(float(value))
    else:
        return None
    if not finite:
        raise FormulaError(f"the number {text} in the formula is not finite")
    return FormulaText(text.replace("E", "e"), _PRODUCT if text.startswith("-") else _ATOM)


def _rational_text(value: Fraction) -> FormulaText:
    if max(abs(value.numerator), value.denominator).bit_length() > _MAX_BITS:
        raise FormulaError("a number in the formula has thousands of digits: too large")
    return FormulaText(str(value), _ATOM if value.denominator == 1 and value >= 0 else _PRODUCT)
