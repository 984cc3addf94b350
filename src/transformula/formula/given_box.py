"""Boxes as a user may give them: text, or a mapping of names to pairs of numbers of any kind."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from numbers import Complex, Rational, Real
from typing import Any

from flint import fmpq, fmpz

from transformula.errors import BoxError, FormulaError, brief
from transformula.formula.as_written import intervals_of
from transformula.formula.formula_text import number_text
from transformula.formula.from_sympy import from_sympy
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box, expanded_names, is_variable_name, parse_end
from transformula.kernel.syntax.expression import Expr


def is_sympy(given: object) -> bool:
    """Whether something is an expression of sympy, which only a caller with one has imported."""
    sympy = sys.modules.get("sympy")
    return sympy is not None and isinstance(given, sympy.Basic)


def box_of(given: str | Mapping[str, Any] | Box) -> Box:
    """A box from text (``x=0..1, y1..y9=-3..3``), a mapping of pairs, or a box.

    Examples
    --------
    >>> str(box_of({"x": (0, 0.1), "y": "0..2*pi"}))
    'x=0..1/10, y=0..2*pi'
    """
    return box_and_constants(given)[0]


def box_and_constants(given: str | Mapping[str, Any] | Box) -> tuple[Box, dict[str, str]]:
    """A box, and the values of the variables that have one value on it, which are no variables of the model.

    Examples
    --------
    >>> box, constants = box_and_constants("x in [0, 1], c=299792458, a=9..9")
    >>> str(box), constants
    ('x=0..1', {'c': '299792458', 'a': '9'})
    """
    if isinstance(given, Box):
        return given, {}
    if isinstance(given, str):
        read = [(name, *ends) for names, *ends in intervals_of(given) for name in expanded_names(names)]
    elif isinstance(given, Mapping):
        names = [from_sympy(name).text if is_sympy(name) else name for name in given]
        read = [(name, *_ends(name, pair)) for name, pair in zip(names, given.values(), strict=True)]
    else:
        raise BoxError(f"a box is text or a mapping of name to (low, high), not {brief(given)}")
    intervals = [(name, exact_number(low, name), exact_number(high, name)) for name, low, high in read]
    constants = {
        name: _as_typed(value, low)
        for (name, value, _), (_, low, high) in zip(read, intervals, strict=True)
        if isinstance(name, str) and low == high
    }
    _check_constants(constants, [name for name, *_ in read])
    varying = [entry for entry in intervals if entry[0] not in constants]
    columns = zip(*varying, strict=True) if varying else ((), (), ())
    return Box(*(tuple(column) for column in columns)), constants  # type: ignore[arg-type]


def _as_typed(value: Any, meaning: Expr) -> str:
    """The value of a constant as it was given, else its exact meaning."""
    if isinstance(value, str):
        return value
    text = None if isinstance(value, Expr) or is_sympy(value) else number_text(value)
    return str(meaning) if text is None else text.text


def _check_constants(constants: Mapping[str, str], names: Sequence[Any]) -> None:
    for name in constants:
        if names.count(name) > 1:
            raise BoxError(f"the box gives {name} twice")
        if not is_variable_name(name):
            raise BoxError(f"{name!r} cannot be the name of a constant: use letters, digits and _, not a function")
    if constants and len(constants) == len(names):
        raise BoxError(f"nothing varies on the box: give an interval for {names[0]}, like {names[0]}=0..1")


def _ends(name: Any, pair: Any) -> tuple[Any, Any]:
    if isinstance(pair, str):
        return intervals_of(f"x={pair}")[0][1:]
    if isinstance(pair, (Real, Decimal, fmpq, fmpz)) and not isinstance(pair, bool):
        return pair, pair
    try:
        low, high = pair
    except (TypeError, ValueError):
        raise BoxError(f"the interval of {name} must be a pair (low, high), not {brief(pair)}") from None
    return low, high


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
