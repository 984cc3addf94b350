"""Why the circuit is the formula: removable singularities, domains that follow from signs, equal normal forms.

*Removable singularities.* A step replaces a quotient S = A/B in the formula by E. It is checked that

* B is built of functions that are analytic on the whole line, so it is analytic on R^n, and is not zero at a
  given point: its zeros have measure zero, and the points of the box with B != 0 are dense in the box, whose
  intervals are no single points;
* A is defined on the whole box (`facts`), so that S is defined wherever B is not zero: what is closed is no larger
  hole, such as x < 0 in (sin(x) + 0*log(x))/x;
* E*B and A have the same normal form, with f(u) written by the rests that are in E (`rests`), so E = S wherever E is
  defined and B is not zero;
* no exponent becomes a number: x**(y/y) is defined for x > 0 only, x**1 everywhere.

All functions of formulas are continuous where they are defined. The new formula is proven to be defined on the
whole box (`facts`); hence it is the old one, continuously extended to zeros of B.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from flint import arb

from transformula.kernel.arithmetic import precision
from transformula.kernel.derivations.algebra import QuotientForm
from transformula.kernel.derivations.node_signs import NodeSigns
from transformula.kernel.derivations.normal_forms import Algebra
from transformula.kernel.enclosures.balls import enclose, to_fmpq, to_fraction
from transformula.kernel.exceptions import FormulaError, RefutedError
from transformula.kernel.functions.function_table import domain_of, find, function_of
from transformula.kernel.functions.taylor_rests import first_terms, rest_named
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, substitute, variables_of, walk
from transformula.kernel.syntax.parsing import parse
from transformula.kernel.syntax.printing import short_text

_BITS = 256


def check_equal(output: int, expr: Expr, form: QuotientForm, algebra: Algebra) -> None:
    """Refuse a circuit's output whose form is not seen to be the formula's."""
    if not algebra.same(form, algebra.of(expr)):
        raise RefutedError(f"output {output + 1} of the circuit is not seen to be the formula {short_text(expr)}")


def defined_nodes(expr: Expr, algebra: Algebra, names: Mapping[str, QuotientForm] | None = None) -> frozenset[Expr]:
    """Nodes whose domain condition follows from known signs, at every point at which their arguments are defined."""
    signs = NodeSigns(algebra, names)
    return frozenset(node for node in walk(expr) if _follows(node, signs))


def _follows(node: Expr, signs: NodeSigns) -> bool:
    if node.op == "tan":
        return abs(signs.of(ex.call("cos", *node.args))) == 2
    domain = domain_of(node)
    if domain is None:
        return False
    u = node.args[domain.argument]
    if domain.low == domain.high == 0:  # a divisor
        return abs(signs.of(u)) == 2
    least = 2 if domain.open else 1
    above = domain.low is None or signs.of(_plus(u, -domain.low)) >= least
    return above and (domain.high is None or signs.of(_plus(ex.neg(u), domain.high)) >= least)


def _plus(expr: Expr, value: Fraction) -> Expr:
    return ex.add(expr, ex.number(value)) if value else expr


def extended(
    outputs: Sequence[Expr], step: Any, names: Sequence[str], algebra: Algebra
) -> tuple[tuple[Expr, ...], Expr]:
    """The outputs after one step {"of": S, "is": E, "at": {variable: rational number}}, and the numerator A."""
    if not isinstance(step, Mapping) or set(step) != {"of", "is", "at"} or not isinstance(step["at"], Mapping):
        raise RefutedError("a step of a derivation has an of, an is and an at")
    old, new = (parsed(step[key], names) for key in ("of", "is"))
    nodes = {node for expr in outputs for node in walk(expr)}
    if old not in nodes:
        raise RefutedError(f"the formula has no {short_text(old)} to be extended")
    above, below = split_quotient(old)
    point = {name: _rational(text) for name, text in step["at"].items()}
    if not is_analytic(below) or not variables_of(below) <= set(point):
        raise RefutedError(f"the zeros of {short_text(below)} are not seen to be of measure zero")
    with precision(_BITS):
        value = enclose(below, {name: arb(to_fmpq(at)) for name, at in point.items()})
    if not (value > 0 or value < 0):
        raise RefutedError(f"{short_text(below)} is not seen to be other than zero at the point given")
    a, b = (algebra.of(substitute(part, _by_rests(new))) for part in (above, below))
    if not algebra.same(algebra.of(new) * b, a):
        raise RefutedError(f"{short_text(new)} is not seen to extend {short_text(old)}")
    exponents = [node.args[1] for node in nodes if node.op == "pow" and node.args[1].number is None]
    if any(substitute(exponent, {old: new}).number is not None for exponent in exponents):
        raise RefutedError(f"an exponent with {short_text(old)} in it would become a number, which has another domain")
    return tuple(substitute(expr, {old: new}) for expr in outputs), above


def _by_rests(expr: Expr) -> dict[Expr, Expr]:
    """f(u) = P(u) + (u - a)**m rest(u), for every rest in an expression (`rests`): true wherever f(u) is defined."""
    found = {}
    for node in walk(expr):
        rest = rest_named(node.op)
        terms = rest and first_terms(function_of(rest.base), rest.at, rest.order)
        if rest and terms:
            d, (u,) = _plus(node.args[0], Fraction(-rest.at)), node.args
            parts = [ex.mul(ex.number(to_fraction(c)), ex.power(d, ex.number(j))) for j, c in enumerate(terms) if c]
            found[ex.call(rest.base, u)] = ex.add(*parts, ex.mul(ex.power(d, ex.number(rest.order)), node))
    return found


def is_analytic(expr: Expr) -> bool:
    """Whether an expression with variables is real-analytic for all real values of them."""
    good: dict[Expr, bool] = {}
    for node in walk(expr):
        op, inside, constant = node.op, all(good[a] for a in node.args), not variables_of(node)
        if constant:
            good[node] = bool(_constant(node).is_finite())
        elif op == "pow":
            by = node.args[1].number
            good[node] = inside and by is not None and by.denominator == 1 and by >= 0
        elif op == "div":
            fixed = not variables_of(node.args[1])
            good[node] = inside and fixed and bool(_constant(node.args[1]) != 0)
        else:
            function = find(op)
            good[node] = inside and ((function is not None and function.analytic) or op in ("variable", "add", "mul"))
    return good[expr] and bool(variables_of(expr))


def _constant(expr: Expr) -> arb:
    with precision(_BITS):
        return enclose(expr, {})


def split_quotient(expr: Expr) -> tuple[Expr, Expr]:
    """Numerator and denominator of a quotient, a negative power, or a product with such factors."""
    if expr.op == "mul":
        parts = [split_quotient(factor) for factor in expr.args]  # factors of a flat product are no products
        return ex.mul(*(a for a, _ in parts)), ex.mul(*(b for _, b in parts))
    if expr.op == "div":
        return expr.args[0], expr.args[1]
    by = expr.args[1].number if expr.op == "pow" else None
    if by is not None and by.denominator == 1 and by < 0:
        return ex.number(1), ex.power(expr.args[0], ex.number(-by))
    return expr, ex.number(1)


def parsed(text: Any, names: Sequence[str]) -> Expr:
    """An expression of a derivation."""
    try:
        return parse(text, names)
    except FormulaError as error:
        raise RefutedError(f"an expression of a derivation cannot be read: {error}") from None


def _rational(text: Any) -> Fraction:
    value = parsed(text, ()).number
    if value is None:
        raise RefutedError("the point of a derivation is given by rational numbers")
    return value
