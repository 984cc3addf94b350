"""Expressions over balls: Arb encloses every value the expression takes on the given balls.

Together with the parser this gives an expression its meaning. A function outside its domain yields a
ball that is not finite, never a wrong one: a ball that is partly outside counts as outside.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Generic, TypeVar

from flint import arb, ctx, fmpq

from transformula.kernel.functions.function_table import function_of
from transformula.kernel.syntax.expression import Expr, fold

T = TypeVar("T")


def to_fmpq(value: Fraction) -> fmpq:
    """A Python fraction as a flint rational."""
    return fmpq(value.numerator, value.denominator)


def to_fraction(value: fmpq) -> Fraction:
    """A flint rational as a Python fraction."""
    return Fraction(int(value.p), int(value.q))


@dataclass(frozen=True)
class Operations(Generic[T]):
    """Arithmetic of one kind of numbers; ``kind`` is their column in the table of functions."""

    kind: str
    divide: Callable[[T, T], T]
    power: Callable[[T, T, Fraction | None], T]
    larger: Callable[[T, T], T]

    def apply(self, node: Expr, args: list[T]) -> T:
        """The value of a node from those of its arguments."""
        op = node.op
        if op in ("add", "mul"):
            return reduce(operator.add if op == "add" else operator.mul, args)
        if op == "div":
            return self.divide(*args)
        if op == "pow":
            return self.power(args[0], args[1], node.args[1].number)
        if op in ("min", "max"):
            different = dict(zip(node.args, args, strict=True)).values()  # min(x, x) is smooth
            return reduce(self.larger if op == "max" else self._smaller, different)
        return getattr(function_of(op), self.kind)(args[0])  # type: ignore[no-any-return]

    def _smaller(self, a: T, b: T) -> T:
        return -self.larger(-a, -b)  # type: ignore


def enclose(expr: Expr, values: Mapping[str, arb] | None = None) -> arb:
    """A ball that contains the expression's value for every choice of inputs in the given balls."""
    return _evaluated(expr, values) if values else _constant(expr, ctx.prec)


@lru_cache(maxsize=4096)
def _constant(expr: Expr, bits: int) -> arb:
    """A constant at the working precision; a circuit asks for the same coefficients again and again."""
    return _evaluated(expr, {})


def _evaluated(expr: Expr, values: Mapping[str, arb]) -> arb:
    def ball(node: Expr, args: list[arb]) -> arb:
        if node.number is not None:
            return arb(to_fmpq(node.number))
        if node.op == "constant":
            return arb.pi() if node.value == "pi" else arb.const_e()
        return values[str(node.value)] if node.op == "variable" else _BALLS.apply(node, args)

    return fold(expr, ball)


def _power(base: arb, exponent: arb, by: Fraction | None) -> arb:
    if by is not None and by.denominator == 1:
        return integer_power(base, int(by))
    if base > 0:
        return base**exponent
    if not (base >= 0 and exponent > 0):
        return arb.nan()
    return arb(0).union(arb((arb(base.upper()) ** exponent).upper()))


_BALLS: Operations[arb] = Operations("ball", operator.truediv, _power, lambda a, b: a.max(b))


def integer_power(base: arb, by: int) -> arb:
    """The power of a ball, from its ends: Arb's own gives nan where the ball contains zero."""
    if not base.is_finite():  # Arb's nan**0 is 1
        return arb.nan()
    if by < 0:
        return 1 / integer_power(base, -by)
    if base.is_exact():
        return base**by
    ends = (base.abs_lower(), base.abs_upper()) if by % 2 == 0 else (base.lower(), base.upper())
    return (ends[0] ** by).union(ends[1] ** by)


def round_up(value: arb) -> float:
    """The smallest easily found float that is at least every number of the ball; inf if there is none."""
    top = value.upper()
    result = float(top)
    while not arb(result) >= top:
        if math.isnan(result) or result == math.inf:
            return math.inf
        result = math.nextafter(result, math.inf)
    return result


def round_down(value: arb) -> float:
    """The largest easily found float that is at most every number of the ball; -inf if there is none."""
    return -round_up(-value)


def float_above(value: fmpq) -> float:
    """The smallest float that is at least a rational number."""
    try:
        near = int(value.p) / int(value.q)  # correctly rounded
    except OverflowError:
        near = math.inf if value > 0 else -math.inf
    if near == math.inf or (math.isfinite(near) and from_float(near) >= value):
        return near
    return math.nextafter(near, math.inf)


def float_below(value: fmpq) -> float:
    """The largest float that is at most a rational number."""
    return 0.0 - float_above(-value)


def from_float(value: float) -> fmpq:
    """A finite float as an exact rational number."""
    return fmpq(*value.as_integer_ratio())
