"""Expressions as power series in one variable, with Arb coefficients.

*Theorem (Taylor, Lagrange).* With x = c + r t, abs(t) <= 1,

    f(x) = sum_{k<K} f_k t**k + f_K(xi) t**K,   xi in [c - r, c + r],

where f_k are the coefficients of the series of f at c and f_K(xi) that of the series at xi. Series
arithmetic over the ball [c - r, c + r] encloses f_K(xi) for all xi at once. It fails (a
coefficient is not finite, or `SingularError`) where f is not smooth: there a caller uses the
plain range of f.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from flint import arb, arb_series, ctx

from transformula.formulas.enclosures import enclose, to_fmpq
from transformula.formulas.expression import Expr, walk
from transformula.taylor.sinc import sinc_series


class SingularError(Exception):
    """The expression may fail to be smooth on the ball."""


class SeriesOf:
    """An expression of one variable, ready to be expanded many times.

    Examples
    --------
    >>> from transformula.formulas import parse
    >>> coefficients, remainder = SeriesOf(parse("exp(x)"), "x").expand(arb(0), arb(1), 3)
    >>> [float(c) for c in coefficients]
    [1.0, 1.0, 0.5]
    >>> 0.45 < float(remainder) < 0.46  # e / 3!
    True
    """

    def __init__(self, expr: Expr, variable: str) -> None:
        self.expr = expr
        self.variable = variable
        self.nodes = tuple(walk(expr))
        self.constants: dict[Expr, arb] = {}
        for node in self.nodes:
            if node.is_constant:
                self.constants[node] = enclose(node)

    def expand(self, centre: arb, radius: arb, order: int) -> tuple[list[arb], arb]:
        """Coefficients below the order at the centre, and a bound of the rest for abs(t) <= 1.

        Raises
        ------
        SingularError
            If f is not seen to be smooth on the interval.
        """
        whole = centre + arb(0, radius.upper())
        remainder = _coefficients(self._at(whole, radius, order + 1), order + 1)[order]
        if not remainder.is_finite():
            raise SingularError
        exact = _coefficients(self._at(centre, radius, order), order)
        return exact, arb(remainder.abs_upper())

    def slope(self, ball: arb) -> arb:
        """An enclosure of f' on a ball.

        Raises
        ------
        SingularError
            If f is not seen to be smooth there.
        """
        slope = self._at(ball, arb(1), 2)[1]
        if not slope.is_finite():
            raise SingularError
        return slope

    def _at(self, centre: arb, radius: arb, length: int) -> arb_series:
        before, ctx.cap = ctx.cap, length
        try:
            known: dict[Expr, arb_series] = {}
            for node in self.nodes:
                if node in self.constants:
                    known[node] = arb_series([self.constants[node]], length)
                elif node.op == "variable":
                    known[node] = arb_series([centre, radius], length)
                else:
                    known[node] = _apply(node, [known[a] for a in node.args])
            return known[self.expr]
        except (ValueError, ZeroDivisionError, NotImplementedError):
            raise SingularError from None
        finally:
            ctx.cap = before


def _coefficients(series: arb_series, length: int) -> list[arb]:
    return [series[k] for k in range(length)]


def _apply(node: Expr, args: list[arb_series]) -> arb_series:
    op = node.op
    if op == "add":
        return reduce(lambda a, b: a + b, args)
    if op == "mul":
        return reduce(lambda a, b: a * b, args)
    if op == "div":
        return args[0] * _inverse(args[1])
    if op == "pow":
        return _power(node, args[0], args[1])
    if op in ("min", "max"):
        different = dict(zip(node.args, args, strict=True)).values()  # min(x, x) is no kink
        return reduce(_smaller if op == "min" else _larger, different)
    return _FUNCTIONS[op](args[0])


def _inverse(u: arb_series) -> arb_series:
    if u[0].contains(0):
        raise SingularError
    return u.inv()


def _positive(u: arb_series) -> arb_series:
    if not u[0] > 0:
        raise SingularError
    return u


def _power(node: Expr, base: arb_series, exponent: arb_series) -> arb_series:
    by = node.args[1].number
    if by is None:
        return (exponent * _positive(base).log()).exp()
    if by < 0:
        base, by = _inverse(base), -by
    if by.denominator == 1:
        return _integer_power(base, int(by))
    return (arb_series([arb(to_fmpq(by))], ctx.cap) * _positive(base).log()).exp()


def _integer_power(base: arb_series, by: int) -> arb_series:
    result = arb_series([1], ctx.cap)
    while by:
        if by & 1:
            result = result * base
        by >>= 1
        base = base * base if by else base
    return result


def _smaller(a: arb_series, b: arb_series) -> arb_series:
    return a if _sign(b - a) > 0 else b


def _larger(a: arb_series, b: arb_series) -> arb_series:
    return a if _sign(a - b) > 0 else b


def _sign(u: arb_series) -> int:
    if u[0] > 0:
        return 1
    if u[0] < 0:
        return -1
    raise SingularError


def _abs(u: arb_series) -> arb_series:
    return u if _sign(u) > 0 else -u


def _asin(u: arb_series) -> arb_series:
    if not abs(u[0]) < 1:
        raise SingularError
    return u.asin()


def _sinh(u: arb_series) -> arb_series:
    return (u.exp() - (-u).exp()) / 2


def _cosh(u: arb_series) -> arb_series:
    return (u.exp() + (-u).exp()) / 2


def _tanh(u: arb_series) -> arb_series:
    if u[0] < 0:  # decaying exponentials only: no overflow, less cancellation
        return -_tanh(-u)
    return 1 - 2 * (-2 * u).exp() * _inverse(1 + (-2 * u).exp())


_FUNCTIONS: dict[str, Callable[[arb_series], arb_series]] = {
    "sin": lambda u: u.sin(),
    "cos": lambda u: u.cos(),
    "tan": lambda u: u.sin() * _inverse(u.cos()),
    "asin": _asin,
    "acos": lambda u: arb.pi() / 2 - _asin(u),
    "atan": lambda u: u.atan(),
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _tanh,
    "exp": lambda u: u.exp(),
    "log": lambda u: _positive(u).log(),
    "sqrt": lambda u: _positive(u).sqrt(),
    "abs": _abs,
    "sinc": sinc_series,
}
