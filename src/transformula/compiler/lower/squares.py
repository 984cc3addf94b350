"""Sums of squares: what is under a root when it is a length."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

from transformula.compiler.lower.factors import factors_of, product_of
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr


def radicand(expr: Expr) -> Expr | None:
    """u, if the expression is √u."""
    if expr.op == "sqrt":
        return expr.args[0]
    half = expr.op == "pow" and expr.args[1].number == Fraction(1, 2)
    return expr.args[0] if half else None


def as_squares(expr: Expr) -> list[Expr] | None:
    """Expressions whose squares add up to the given one, if it is written as a sum of several.

    The law of cosines counts as one: p² + q² − 2pq cos t = (p − q cos t)² + (q sin t)².

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> [str(e) for e in as_squares(parse("(x - y)**2 + 4*z**2"))]
    ['x - y', '2*z']
    >>> [str(e) for e in as_squares(parse("(x**2 + y**2 - 2*x*y*cos(t))/9"))]
    ['1/3*x - 1/3*y*cos(t)', '1/3*y*sin(t)']
    """
    squares: list[Expr] = []
    mixed: list[Expr] = []
    for term in summands(expr):
        root = root_of(term)
        (mixed if root is None else squares).append(term if root is None else root)
    for term in mixed:
        if not _complete(term, squares):
            return None
    return squares if len(squares) > 1 else None


def summands(expr: Expr) -> list[Expr]:
    """The terms of a sum, or of a constant times a sum."""
    factor, powers = factors_of(expr)
    inner = next(iter(powers), None)
    if inner is None or inner.op != "add" or powers != {inner: 1}:
        return [expr]
    return [ex.mul(factor, term) for term in inner.args]


def root_of(term: Expr) -> Expr | None:
    """p with p² = term, if that can be seen."""
    constant, powers = factors_of(term)
    value = constant.number
    if value is None or value <= 0 or any(e % 2 for e in powers.values()):
        return None
    scale = ex.power(ex.number(value), ex.number(Fraction(1, 2)))
    exact = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
    if exact * exact == value:
        scale = ex.number(exact)
    return product_of(scale, {b: e / 2 for b, e in powers.items()})


def _complete(term: Expr, squares: list[Expr]) -> bool:
    """If the term is ±2pq cos t with p and q among the squares, replace these by p ± q cos t and q sin t."""
    constant, powers = factors_of(term)
    for cosine in (b for b, e in powers.items() if b.op == "cos" and e == 1):
        rest = product_of(constant, {b: e for b, e in powers.items() if b != cosine})
        for i, j in combinations(range(len(squares)), 2):  # by place: equal squares may stand there twice
            p, q = squares[i], squares[j]
            for sign in (1, -1):
                twice = ex.mul(ex.number(2 * sign), p, q)
                if factors_of(twice) == factors_of(rest):
                    turned = ex.mul(ex.number(sign), q, cosine)
                    squares[i] = ex.add(p, turned)
                    squares[j] = ex.mul(q, ex.call("sin", cosine.args[0]))
                    return True
    return False
