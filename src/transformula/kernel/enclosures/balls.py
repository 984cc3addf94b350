"""Expressions in Arb's balls, and as power series in one variable with such coefficients.

Together with the parser this gives an expression its meaning. A function outside its domain yields a
ball that is not finite, never a wrong one: a ball that is partly outside counts as outside.

*Theorem (Taylor, Lagrange).* With x = c + r t, abs(t) <= 1,

    f(x) = sum_{k<K} f_k t**k + f_K(xi) t**K,   xi in [c - r, c + r],

where f_k are the coefficients of the series of f at c and f_K(xi) that of the series at xi. Series
arithmetic over the ball [c - r, c + r] encloses f_K(xi) for all xi at once. It fails (a
coefficient is not finite, or `SingularError`) where f is not smooth: there a caller uses the
plain range of f.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Generic, TypeVar

from flint import arb, arb_series, ctx, fmpq

from transformula.kernel.arithmetic import coefficients, head, series_length
from transformula.kernel.enclosures.taylor_models import whole_power
from transformula.kernel.exceptions import SingularError
from transformula.kernel.functions.elementary_functions import Ends, absolute, inverse, positive
from transformula.kernel.functions.function_table import function_of
from transformula.kernel.syntax.expression import Expr, fold, walk

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


__all__ = ["SeriesOf", "SingularError", "lowest_part", "partial"]

#: With more variables all the partial derivatives would take too long.
_MAX_VARIABLES = 12


def _series_power(base: arb_series, exponent: arb_series, by: Fraction | None) -> arb_series:
    if by is None:
        return (exponent * positive(base).log()).exp()
    if by < 0:
        base, by = inverse(base), -by
    if not by and not head(base).is_finite():
        raise SingularError
    if by.denominator == 1:
        return whole_power(base, int(by)) if by else arb_series([1], base.prec)
    return (arb_series([arb(to_fmpq(by))], base.prec) * positive(base).log()).exp()


def _larger(a: arb_series, b: arb_series) -> arb_series:
    absolute(a - b)  # refuses arguments that may be equal
    return a if head(a - b) > 0 else b


_SERIES: Operations[arb_series] = Operations("series", lambda a, b: a * inverse(b), _series_power, _larger)


class SeriesOf:
    """An expression of one variable, ready to be expanded many times."""

    def __init__(self, expr: Expr, variable: str) -> None:
        self.expr = expr
        self.variable = variable
        self.nodes = tuple(walk(expr))
        self.constants = {node: enclose(node) for node in self.nodes if not node.names}
        self.defined = expr.names <= {variable} and all(value.is_finite() for value in self.constants.values())

    def expand(self, centre: arb, radius: arb, order: int) -> tuple[list[arb], arb]:
        """Coefficients below the order at the centre, and a bound of the rest for abs(t) <= 1."""
        remainder = self._at(centre + arb(0, radius.upper()), radius, order + 1)[order]
        exact = self._at(centre, radius, order)
        if not all(c.is_finite() for c in (remainder, *exact)):
            raise SingularError
        return exact, arb(remainder.abs_upper())

    def slope(self, ball: arb) -> arb:
        """An enclosure of f' on a ball."""
        slope = self._at(ball, arb(1), 2)[1]
        if not slope.is_finite():
            raise SingularError
        return slope

    def _at(self, centre: arb, radius: arb, length: int) -> list[arb]:
        if not self.defined:
            raise SingularError
        return _series_values(self.nodes, {self.variable: [centre, radius]}, self.constants, length)


def _series_values(
    nodes: Sequence[Expr], variables: Mapping[str, list[arb]], constants: Mapping[Expr, arb], length: int
) -> list[arb]:
    known: dict[Expr, arb_series] = {}
    with series_length(length):
        for node in nodes:
            if node.op == "variable":
                known[node] = arb_series(variables[str(node.value)], length)
            elif not node.names:
                known[node] = arb_series([constants[node] if node in constants else enclose(node)], length)
            else:
                try:
                    known[node] = _SERIES.apply(node, [known[a] for a in node.args])
                except (ValueError, ZeroDivisionError, NotImplementedError):
                    raise SingularError from None
        return coefficients(known[nodes[-1]], length)


def partial(expr: Expr, name: str, values: Mapping[str, Ends]) -> arb:
    """An enclosure of a partial derivative on a box, on all of which it exists if that is finite."""
    balls = {n: [arb(values[n][0]).union(arb(values[n][1])), arb(n == name)] for n in expr.names}
    return _series_values(tuple(walk(expr)), balls, {}, 2)[1]


def lowest_part(expr: Expr, values: Mapping[str, Ends], sign: int) -> dict[str, Ends]:
    """A part of a box on which sign * expr takes its least value: monotone variables stand at their ends.

    If a partial derivative keeps its sign on what is left of the box, the least value is at one end of its variable.
    """
    left = dict(values)
    names = sorted(expr.names)
    for name in names + names if len(names) <= _MAX_VARIABLES else []:  # twice: fewer are left to vary
        slope = sign * partial(expr, name, left)
        if slope >= 0 or slope <= 0:
            left[name] = (left[name][0 if slope >= 0 else 1],) * 2
    return left
