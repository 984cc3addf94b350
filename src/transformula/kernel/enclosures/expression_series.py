"""Expressions as power series in one variable, with Arb coefficients.

*Theorem (Taylor, Lagrange).* With x = c + r t, abs(t) <= 1,

    f(x) = sum_{k<K} f_k t**k + f_K(xi) t**K,   xi in [c - r, c + r],

where f_k are the coefficients of the series of f at c and f_K(xi) that of the series at xi. Series
arithmetic over the ball [c - r, c + r] encloses f_K(xi) for all xi at once. It fails (a
coefficient is not finite, or `SingularError`) where f is not smooth: there a caller uses the
plain range of f.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from flint import arb, arb_series

from transformula.kernel.arithmetic import coefficients, head, series_length
from transformula.kernel.enclosures.balls import Operations, enclose, to_fmpq
from transformula.kernel.enclosures.taylor_models import whole_power
from transformula.kernel.exceptions import SingularError
from transformula.kernel.functions.elementary_functions import Ends, absolute, inverse, positive
from transformula.kernel.syntax.expression import Expr, walk

__all__ = ["SeriesOf", "SingularError", "lowest_part"]

#: With more variables all the partial derivatives would take too long.
_MAX_VARIABLES = 12


def _power(base: arb_series, exponent: arb_series, by: Fraction | None) -> arb_series:
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


_SERIES: Operations[arb_series] = Operations("series", lambda a, b: a * inverse(b), _power, _larger)


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
        return _evaluated(self.nodes, {self.variable: [centre, radius]}, self.constants, length)


def _evaluated(
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


def lowest_part(expr: Expr, values: Mapping[str, Ends], sign: int) -> dict[str, Ends]:
    """A part of a box on which sign * expr takes its least value: monotone variables stand at their ends.

    If a partial derivative keeps its sign on what is left of the box, the least value is at one end of its variable.
    """
    left = dict(values)
    nodes = tuple(walk(expr))
    names = sorted(expr.names)
    for name in names + names if len(names) <= _MAX_VARIABLES else []:  # twice: fewer are left to vary
        balls = {n: [arb(left[n][0]).union(arb(left[n][1])), arb(n == name)] for n in names}
        slope = sign * _evaluated(nodes, balls, {}, 2)[1]
        if slope >= 0 or slope <= 0:
            left[name] = (left[name][0 if slope >= 0 else 1],) * 2
    return left
