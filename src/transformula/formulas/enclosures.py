"""Expressions over balls: Arb encloses every value the expression takes on the given balls.

This file belongs to what a proof trusts, together with the parser: it gives an expression its
meaning. A function outside its domain yields a ball that is not finite, never a wrong one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from functools import lru_cache, reduce

from flint import arb, ctx, fmpq

from transformula.formulas.expression import Expr, walk


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Work at a given binary precision, and put the old one back."""
    before = ctx.prec
    ctx.prec = bits
    try:
        yield
    finally:
        ctx.prec = before


def to_fmpq(value: Fraction) -> fmpq:
    """A Python fraction as a flint rational."""
    return fmpq(value.numerator, value.denominator)


def to_fraction(value: fmpq) -> Fraction:
    """A flint rational as a Python fraction."""
    return Fraction(int(value.p), int(value.q))


def midpoint_rational(ball: arb) -> fmpq:
    """The exact rational in the middle of a ball."""
    mantissa, exponent = ball.mid().man_exp()
    return fmpq(mantissa) * fmpq(2) ** int(exponent)


def enclose(expr: Expr, values: Mapping[str, arb] | None = None) -> arb:
    """A ball that contains the expression's value for every choice of inputs in the given balls.

    Examples
    --------
    >>> from transformula.formulas import parse
    >>> enclose(parse("sqrt(2)**2"), {}).overlaps(2)
    True
    """
    return _evaluated(expr, values) if values else _constant(expr, ctx.prec)


@lru_cache(maxsize=4096)
def _constant(expr: Expr, bits: int) -> arb:
    """A constant at the working precision; a circuit asks for the same coefficients again and again."""
    return _evaluated(expr, {})


def _evaluated(expr: Expr, values: Mapping[str, arb]) -> arb:
    known: dict[Expr, arb] = {}
    for node in walk(expr):
        known[node] = _apply(node, [known[a] for a in node.args], values)
    return known[expr]


def _apply(node: Expr, args: list[arb], values: Mapping[str, arb]) -> arb:
    op = node.op
    if op == "number":
        return arb(to_fmpq(node.number or Fraction(0)))
    if op == "constant":
        return arb.pi() if node.value == "pi" else arb.const_e()
    if op == "variable":
        return values[str(node.value)]
    if op == "add":
        return sum(args[1:], args[0])
    if op == "mul":
        return reduce(lambda a, b: a * b, args)
    if op == "div":
        return args[0] / args[1]
    if op == "pow":
        return _power(args[0], args[1], node.args[1].number)
    if op in ("min", "max"):
        return reduce(lambda a, b: getattr(a, op)(b), args)
    # FLINT's asin of an indeterminate ball is a finite one: never let it see any
    return _FUNCTIONS[op](args[0]) if args[0].is_finite() else arb.nan()


def _power(base: arb, exponent: arb, by: Fraction | None) -> arb:
    if by is None:
        return base**exponent
    if by.denominator == 1:
        return integer_power(base, int(by))
    if base >= 0:
        return base ** arb(to_fmpq(by))
    return _nonnegative_power(base, by)


def integer_power(base: arb, by: int) -> arb:
    """The power of a ball, from its ends: Arb's own gives nan where the ball contains zero."""
    if by < 0:
        return 1 / integer_power(base, -by)
    if base.is_exact() or not base.is_finite():
        return base**by
    ends = (base.abs_lower(), base.abs_upper()) if by % 2 == 0 else (base.lower(), base.upper())
    return (ends[0] ** by).union(ends[1] ** by)


def _nonnegative_power(base: arb, by: Fraction) -> arb:
    """x ** (p/q) where the ball touches zero: real only for x >= 0, so only that part counts."""
    if base.upper() < 0 or (base.lower() < 0 and not _touches_zero(base)):
        return arb.nan()
    top = arb(base.upper()) ** arb(to_fmpq(by))
    return arb(0).union(top) if by > 0 else arb.nan()


def _touches_zero(base: arb) -> bool:
    """A lower end that is negative only by the rounding of a ball around [0, r]: radii have 30 bits."""
    return bool(-base.lower() <= abs(base).upper() * arb(2) ** -26)


def _sqrt(x: arb) -> arb:
    return x.sqrt() if x > 0 else _nonnegative_power(x, Fraction(1, 2))


_FUNCTIONS: dict[str, Callable[[arb], arb]] = {
    "sin": arb.sin,
    "cos": arb.cos,
    "tan": arb.tan,
    "asin": arb.asin,
    "acos": arb.acos,
    "atan": arb.atan,
    "sinh": arb.sinh,
    "cosh": arb.cosh,
    "tanh": arb.tanh,
    "exp": arb.exp,
    "log": arb.log,
    "sqrt": _sqrt,
    "abs": abs,
    "sinc": arb.sinc,
}


def round_up(value: arb) -> float:
    """The smallest easily found float that is at least every number of the ball."""
    top = value.upper()
    result = float(top)
    while not arb(result) >= top:
        if math.isnan(result) or result == math.inf:
            return math.inf
        result = math.nextafter(result, math.inf)
    return result
