"""Quotients whose denominator may vanish, rewritten so that a common factor can be seen and cancelled.

* A quotient of polynomials is reduced to lowest terms: (x³ − y³)/(x − y) = x² + xy + y².
* In a sum, u^v with u > 0 becomes exp(v·log u), whose zeros are known: 1 − (1 + r)^(−n).
* A difference of roots is multiplied by its conjugate: (√x − √y)/(x − y) = 1/(√x + √y).
* exp(a) − exp(b) becomes exp(b)·(exp(a − b) − 1), and log(a) − log(b) becomes log(a/b).

Each rewriting is a step that the kernel checks like the others (`derivation_steps`).
"""

from __future__ import annotations

from collections.abc import Mapping

from transformula.compiler.lower.factors import factors_of, product_of
from transformula.kernel.derivations.algebra import QuotientForm
from transformula.kernel.derivations.derivation_steps import split_quotient
from transformula.kernel.derivations.normal_forms import Algebra
from transformula.kernel.enclosures.balls import to_fraction
from transformula.kernel.enclosures.intervals import Ends, try_range
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, walk


def rewritten(expr: Expr, ends: Mapping[str, Ends]) -> Expr | None:
    """The quotient in a form whose zeros can be cancelled, or None.

    Examples
    --------
    >>> from flint import fmpq
    >>> from transformula.kernel.syntax.parsing import parse
    >>> box = {"x": (fmpq(0), fmpq(1)), "y": (fmpq(0), fmpq(1))}
    >>> str(rewritten(parse("(x**2 - y**2)/(x - y)"), box)), str(rewritten(parse("(exp(x) - exp(y))/(x - y)"), box))
    ('x + y', 'exp(y)*(exp(x - y) - 1)/(x - y)')
    """
    above, below = split_quotient(expr)
    if not _may_vanish(below, ends):
        return None
    reduced = _lowest_terms(expr, ends) or _conjugated(above, below, ends)
    if reduced is not None:
        return reduced
    numerator, denominator = (_with_known_zeros(part, ends) for part in (above, below))
    if (numerator, denominator) == (above, below):
        return None
    return ex.div(numerator, denominator)


def _may_vanish(expr: Expr, ends: Mapping[str, Ends]) -> bool:
    found = try_range(expr, ends)
    return found is None or bool(found[0] <= 0 <= found[1])


def _lowest_terms(expr: Expr, ends: Mapping[str, Ends]) -> Expr | None:
    """A quotient of polynomials without common factors, if its denominator does not vanish any more."""
    names = sorted(expr.names)
    algebra = Algebra(names)
    try:
        form = algebra.of(expr)
    except RefutedError:
        return None
    found = _polynomials(form, algebra, names)
    if found is None or _may_vanish(found[1], ends):
        return None
    return ex.div(*found)


def _conjugated(above: Expr, below: Expr, ends: Mapping[str, Ends]) -> Expr | None:
    """A difference of two roots over what its square contains."""
    if above.op != "add" or len(above.args) != 2 or not any(_is_root(node) for node in walk(above)):
        return None
    first, second = above.args
    conjugate = ex.add(first, ex.neg(second))
    squares = ex.add(ex.power(first, ex.number(2)), ex.neg(ex.power(second, ex.number(2))))
    reduced = _lowest_terms(ex.div(squares, below), ends)
    return None if reduced is None or _may_vanish(conjugate, ends) else ex.div(reduced, conjugate)


def _is_root(node: Expr) -> bool:
    by = node.args[1].number if node.op == "pow" else None
    return node.op == "sqrt" or (by is not None and by.denominator == 2)


def _polynomials(form: QuotientForm, algebra: Algebra, names: list[str]) -> tuple[Expr, Expr] | None:
    """Numerator and denominator of a form as expressions, if both are polynomials in the variables."""
    places = {}
    for name in names:
        (monomial,) = algebra.lift(algebra.named[name].num).to_dict()
        places[monomial.index(1)] = ex.variable(name)
    parts = []
    for polynomial in (form.num, form.den):
        terms = []
        for monomial, c in algebra.lift(polynomial).to_dict().items():
            powers = [(places.get(k), e) for k, e in enumerate(monomial) if e]
            if any(variable is None for variable, _ in powers):
                return None
            factors = [ex.power(v, ex.number(int(e))) for v, e in powers if v is not None]
            terms.append(ex.mul(ex.number(to_fraction(c)), *factors))
        parts.append(ex.add(*terms))
    return parts[0], parts[1]


def _with_known_zeros(expr: Expr, ends: Mapping[str, Ends]) -> Expr:
    """The same product with its sums rewritten."""
    factors = expr.args if expr.op == "mul" else (expr,)
    return ex.mul(*(_sum_with_known_zeros(f, ends) if f.op == "add" else f for f in factors))


def _sum_with_known_zeros(total: Expr, ends: Mapping[str, Ends]) -> Expr:
    powers = {
        node: ex.call("exp", ex.mul(node.args[1], ex.call("log", node.args[0])))
        for term in total.args
        for node in walk(term)
        if node.op == "pow" and node.args[1].number is None and not _may_vanish(node.args[0], ends)
    }
    if powers:
        return ex.substitute(total, powers)
    return _difference(total) or total


def _difference(total: Expr) -> Expr | None:
    """c·exp(a) − c·exp(b) as a product, c·log(a) − c·log(b) as one logarithm."""
    if len(total.args) != 2:
        return None
    (scale, first), (other, second) = (factors_of(term) for term in total.args)
    names = ("exp", "log")
    one, two = (next((b for b, e in p.items() if b.op in names and e == 1), None) for p in (first, second))
    if one is None or two is None or one.op != two.op or scale.number is None or other.number != -scale.number:
        return None
    if {b: e for b, e in first.items() if b != one} != {b: e for b, e in second.items() if b != two}:
        return None
    rest = product_of(scale, {b: e for b, e in first.items() if b != one})
    if one.op == "log":
        return ex.mul(rest, ex.call("log", ex.div(one.args[0], two.args[0])))
    apart = ex.call("exp", ex.add(one.args[0], ex.neg(two.args[0])))
    return ex.mul(rest, two, ex.add(apart, ex.number(-1)))
