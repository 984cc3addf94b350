"""Where a function of u is defined, as far as its roots, logarithms and arc functions tell."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from flint import fmpq

from transformula.compiler.lower.additive import as_affine
from transformula.compiler.lower.factors import factors_of
from transformula.errors import FormulaError
from transformula.kernel.derivations.polynomials import NotPolynomialError, as_polynomial
from transformula.kernel.enclosures.balls import enclose, to_fraction
from transformula.kernel.functions.function_table import find
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, substitute, walk

_RATIONAL = ("number", "variable", "add", "mul", "div", "pow")


def domain_ends(function: Expr) -> tuple[Fraction | None, Fraction | None]:
    """Ends beyond which a function of u is undefined, as far as sqrt, log, asin.. of affine u tell.

    So do roots and logarithms of a quadratic that is positive between two rational zeros only.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> domain_ends(parse("sqrt(2*u - 1) + u")), domain_ends(parse("acos(u)"))
    ((Fraction(1, 2), None), (Fraction(-1, 1), Fraction(1, 1)))
    >>> domain_ends(parse("sqrt(u*(1 - u))")), domain_ends(parse("sqrt(4 - u**2)"))
    ((Fraction(0, 1), Fraction(1, 1)), (Fraction(-2, 1), Fraction(2, 1)))
    """
    low: Fraction | None = None
    high: Fraction | None = None
    for node in walk(function):
        for least, most in _domain(node):
            below, above = _inverse(node.args[0], least, most)
            low = below if low is None else low if below is None else max(low, below)
            high = above if high is None else high if above is None else min(high, above)
    return low, high


def _inverse(inside: Expr, least: Fraction | None, most: Fraction | None) -> tuple[Fraction | None, Fraction | None]:
    """The interval of u in which an expression stays between two ends, if that is easy to find."""
    affine = as_affine(inside, ("u",))
    if affine is None:
        return _between_zeros(inside) if least == 0 and most is None else (None, None)
    if not affine.form[0] or affine.constant.number is None:
        return None, None
    slope, shift = affine.form[0], affine.constant.number
    ends = [None if end is None else (end - shift) / slope for end in (least, most)]
    return (ends[0], ends[1]) if slope > 0 else (ends[1], ends[0])


def _between_zeros(quadratic: Expr) -> tuple[Fraction | None, Fraction | None]:
    zeros = _zeros(quadratic)
    return (None, None) if zeros is None else zeros[1:]


def _zeros(quadratic: Expr) -> tuple[Fraction, Fraction, Fraction] | None:
    """a, r and s of a(u − r)(s − u) with a > 0 and r < s."""
    if any(node.op not in _RATIONAL for node in walk(quadratic)):
        return None
    try:
        found = as_polynomial(quadratic, ("u",)).terms()
        terms = {degree: to_fraction(c) for (degree,), c in found.items() if isinstance(c, fmpq)}
    except (NotPolynomialError, FormulaError):
        return None
    a, b, c = (terms.get(k, Fraction(0)) for k in (2, 1, 0))
    inside = b * b - 4 * a * c
    if max(terms, default=0) != 2 or a >= 0 or inside <= 0:
        return None
    root = Fraction(math.isqrt(inside.numerator), math.isqrt(inside.denominator))
    return (-a, (-b + root) / (2 * a), (-b - root) / (2 * a)) if root * root == inside else None


def factored(function: Expr) -> Expr:
    """A function of u with such quadratics under its roots and logarithms written as products.

    Ranges of a product are tight at its zeros, and the same function is written in one way wherever it comes from.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> str(factored(parse("sqrt(1 - (u - 1)**2)"))), str(factored(parse("sqrt((2 - u)*u)")))
    ('sqrt(u*(-u + 2))', 'sqrt(u*(-u + 2))')
    """
    written: dict[Expr, Expr] = {}
    for node in walk(function):
        zeros = _zeros(node.args[0]) if (Fraction(0), None) in _domain(node) else None
        if zeros is not None:
            (a, low, high), u = zeros, ex.variable("u")
            above, below = ex.add(u, ex.number(-low)), ex.add(ex.neg(u), ex.number(high))
            written[node.args[0]] = ex.mul(ex.number(a), above, below)
    return substitute(function, written)


def steep_places(function: Expr) -> set[Fraction]:
    """Zeros of cube roots of affine u in a function of u: a table does not extend beyond them.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> steep_places(parse("1 + cbrt(2*u - 1)"))
    {Fraction(1, 2)}
    """
    found = [_inverse(node.args[0], Fraction(0), None) for node in walk(function) if node.op == "cbrt"]
    return {place for ends in found for place in ends if place is not None}


def parted(expr: Expr, range_of: Callable[[Expr], tuple[float, float]]) -> Expr:
    """Roots that are steep inside their range, ∛v = ∛max(v, 0) − ∛max(−v, 0): each side is read at its distance from 0.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> str(parted(parse("1 + cbrt(u)"), lambda v: (-1.0, 1.0)))
    'cbrt(max(u, 0)) - cbrt(max(-u, 0)) + 1'
    """
    written: dict[Expr, Expr] = {}
    for node in walk(expr):
        if node.op == "cbrt" and node.args[0].names:
            (inside,) = node.args
            low, high = range_of(inside)
            if low < 0 < high:
                above, below = (ex.call("max", side, ex.number(0)) for side in (inside, ex.neg(inside)))
                written[node] = ex.add(ex.call("cbrt", above), ex.neg(ex.call("cbrt", below)))
    return substitute(expr, written)


def rooted(expr: Expr, range_of: Callable[[Expr], tuple[float, float]]) -> Expr:
    """Roots of products that touch zero taken apart, √(ab) = √a·√b where no factor is negative.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> str(rooted(parse("1 + sqrt(x*y/3)"), lambda v: (0.0, 1.0)))
    '(1/3)**(1/2)*x**(1/2)*y**(1/2) + 1'
    """
    written: dict[Expr, Expr] = {}
    for node in walk(expr):
        by = Fraction(1, 2) if node.op == "sqrt" else node.args[1].number if node.op == "pow" else None
        if by is None or by.denominator == 1 or node.args[0].op not in ("mul", "div"):
            continue
        constant, powers = factors_of(node.args[0])
        lows = [range_of(base)[0] for base in powers]
        if len(powers) > 1 and enclose(constant) > 0 and min(lows) == 0:
            roots = (ex.power(base, ex.number(e * by)) for base, e in powers.items())
            written[node] = ex.mul(ex.power(constant, ex.number(by)), *roots)
    return substitute(expr, written)


def _domain(node: Expr) -> list[tuple[Fraction | None, Fraction | None]]:
    """Intervals in which the argument of a node must lie."""
    if node.op == "pow" and node.args[1].number is not None and node.args[1].number.denominator > 1:
        return [(Fraction(0), None)]
    function = find(node.op)
    return [] if function is None or function.low is function.high is None else [(function.low, function.high)]
