"""Removable singularities: why a formula may be replaced by its continuous extension.

*Removable singularities.* A step replaces a quotient S = A/B in the formula by E. It is checked that

* B, without roots and absolute values of its factors, which have the same zeros, is built of functions that are
  analytic on the whole line, or inside a domain in whose interior the range of their argument over the box lies. By
  continuity it is then analytic on an open connected set that holds the box, and it is not zero at a given point of the
  box: its zeros have measure zero, and the points of the box with B != 0 are dense in the box, whose intervals are no
  single points;
* A is defined on the whole box (`Facts`), and so is B if it has roots, so that S is defined wherever B is not zero:
  what is closed is no larger hole, such as x < 0 in (sin(x) + 0*log(x))/x;
* E*B and A have the same normal form, with f(u) written by the rests that are in E (`taylor_rests`), or once their
  sines and cosines are written in shares (shares), so E = S wherever E is defined and B is not zero;
* no exponent becomes a number: x**(y/y) is defined for x > 0 only, x**1 everywhere.

A step may also replace a product S of A and whole powers of log(u), or a power S = u**A, by an E with xlogx(w) in it,
which is w log(w) and 0 at w = 0, each w a u or with roots and powers of a u, zero where u is. It is checked that each u
is analytic as B is above, positive at the point and >= 0 on the box (by its range, or because E, which is proven to be
defined there, has xlogx(u) in it), that A is defined on the whole box, and that E with w log(w) for xlogx(w) has the
normal form of S, or of exp(A log(u)) for u**A, with the same in it. On a dense set all u > 0; there S and the w log(w)
are defined, and S is E.

*Shares.* Sines, cosines and tangents of sums can be written in those of shares of their terms.

Let their arguments be sums of n (t/m), n a whole number and m one whole number for each term t. Then exp(iu) is the
product of all (cos(t/m) + i sin(t/m))**n (addition, de Moivre); cos u and sin u are its two parts, tan u is their
quotient. The new expressions are defined wherever the old ones are, and equal to them there. So is sin(u)/u for
sinc(u), but where u = 0; it is written for sums u of variables and numbers only, which are zero on a plane or nowhere,
and what is continuous and equal on both sides of a plane is equal on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import reduce
from math import comb, lcm
from typing import Any

from flint import arb

from transformula.kernel.arithmetic import precision
from transformula.kernel.derivations.identities import MAX_ANGLE, MAX_RATIO
from transformula.kernel.derivations.normal_forms import Algebra
from transformula.kernel.enclosures.balls import enclose, to_fmpq, to_fraction
from transformula.kernel.enclosures.intervals import Ends, try_range
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.exceptions import FormulaError, RefutedError
from transformula.kernel.functions.function_table import find, function_of
from transformula.kernel.functions.taylor_rests import first_terms, rest_named
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, short_text, substitute, variables_of, walk
from transformula.kernel.syntax.parsing import parse

_BITS = 256


def extended(outputs: Sequence[Expr], step: Any, region: Region, algebra: Algebra) -> tuple[tuple[Expr, ...], Expr]:
    """The outputs after one step {"of": S, "is": E, "at": {variable: rational number}}, and what must be defined."""
    if not isinstance(step, Mapping) or set(step) != {"of", "is", "at"}:
        raise RefutedError("a step of a derivation has an of, an is and an at")
    old, new = (parsed(step[key], region.names) for key in ("of", "is"))
    nodes = {node for expr in outputs for node in walk(expr)}
    if old not in nodes:
        raise RefutedError(f"the formula has no {short_text(old)} to be extended")
    closed = _closed_logs(old, new, region.ends)
    above, below = closed[:2] if closed else split_quotient(old)
    found = sign_at(below, step["at"], region)
    if not (found > 0 or (found < 0 and closed is None)):
        raise RefutedError(f"{short_text(below)} is not seen to be other than zero at the point given")
    for node in walk(old):
        needs_sign = node.op == "log" or (node.op == "pow" and node.args[1].number is None)
        if needs_sign and _lies_inside(node.args[0], _ZERO, None, region.ends):
            algebra.learn(algebra.of(node.args[0]), 2)
    if closed is not None:
        holds = algebra.same(*map(algebra.of, closed[2:]))
    else:
        a, b = (substitute(part, _by_rests(new)) for part in (above, below))
        holds = same(ex.mul(new, b), a, algebra)
    if not holds:
        raise RefutedError(f"{short_text(new)} is not seen to extend {short_text(old)}")
    exponents = [node.args[1] for node in nodes if node.op == "pow" and node.args[1].number is None]
    if any(substitute(exponent, {old: new}).number is not None for exponent in exponents):
        raise RefutedError(f"an exponent with {short_text(old)} in it would become a number, which has another domain")
    whole = above if stem(below) == below else ex.add(above, below)
    return tuple(substitute(expr, {old: new}) for expr in outputs), whole


def sign_at(below: Expr, at: Any, region: Region) -> int:
    """The sign of a divisor at a point of the box, 0 if not seen; its zeros are of measure zero if it has one."""
    point = {name: rational(text) for name, text in at.items()} if isinstance(at, Mapping) else {}
    if not is_analytic(stem(below), region.ends) or not variables_of(below) <= set(point) <= set(region.names):
        raise RefutedError(f"the zeros of {short_text(below)} are not seen to be of measure zero")
    if not all(low <= to_fmpq(point[name]) <= high for name, (low, high) in region.ends.items() if name in point):
        raise RefutedError("the point of a derivation lies outside the box")
    with precision(_BITS):
        value = enclose(below, {name: arb(to_fmpq(x)) for name, x in point.items()})
    return 1 if value > 0 else -1 if value < 0 else 0


def same(one: Expr, other: Expr, algebra: Algebra) -> bool:
    """Whether two expressions are seen to be equal wherever both are defined."""
    if algebra.same(algebra.of(one), algebra.of(other)):
        return True
    return algebra.same(*map(algebra.of, in_shares(one, other)))


def plus(expr: Expr, value: Fraction) -> Expr:
    """A sum without a zero."""
    return ex.add(expr, ex.number(value)) if value else expr


def _closed_logs(old: Expr, new: Expr, ends: Mapping[str, Ends]) -> tuple[Expr, Expr, Expr, Expr] | None:
    """A and the product of the u, if S is closed where a u = 0; E and S as they are where all u > 0."""
    made = {node: node.args[0] for node in walk(new) if node.op == "xlogx"}
    power = old.op == "pow" and old.args[1].number is None
    factors = old.args if old.op == "mul" else (old,)
    parts = {old: old.args[0]} if power else {f: _inside_log(f) for f in factors}
    us = {f: u for f, u in parts.items() if u and _is_closed(u, list(made.values()), ends)}
    if not us:
        return None
    above = old.args[1] if power else ex.mul(*(f for f in parts if f not in us))
    stems = {stem(u) for u in us.values()}
    whole = {node: ex.mul(w, ex.call("log", w)) for node, w in made.items() if stem(w) in stems}
    logs = ex.call("exp", ex.mul(above, ex.call("log", old.args[0]))) if power else old
    return above, ex.mul(*us.values()), substitute(new, whole), substitute(logs, whole)


def _inside_log(factor: Expr) -> Expr | None:
    """u, if a factor is log(u) or a whole power of it."""
    base, by = (factor.args[0], factor.args[1].number) if factor.op == "pow" else (factor, Fraction(1))
    return base.args[0] if base.op == "log" and by is not None and by.denominator == 1 and by > 0 else None


def _is_closed(u: Expr, made: Sequence[Expr], ends: Mapping[str, Ends]) -> bool:
    """Whether u >= 0 on the box, and xlogx(w) is made of a w with its zeros."""
    found = try_range(u, ends)
    return u in made or (stem(u) in map(stem, made) and found is not None and bool(found[0] >= 0))


def _by_rests(expr: Expr) -> dict[Expr, Expr]:
    """f(u) = P(u) + (u - a)**m rest(u), for every rest in an expression: true wherever f(u) is defined."""
    found: dict[Expr, Expr] = {}
    for node in walk(expr):
        rest = rest_named(node.op)
        terms = rest and first_terms(function_of(rest.base), rest.at, rest.order)
        if rest and terms:
            d, (u,) = substitute(plus(node.args[0], Fraction(-rest.at)), found), node.args
            parts = [ex.mul(ex.number(to_fraction(c)), ex.power(d, ex.number(j))) for j, c in enumerate(terms) if c]
            found[ex.call(rest.base, u)] = ex.add(*parts, ex.mul(ex.power(d, ex.number(rest.order)), node))
    return found


_ZERO = Fraction(0)
#: A sum with more denominators is no quotient.
MAX_QUOTIENTS = 4
#: Functions that are analytic in the interior of their domains, which are intervals.
_ANALYTIC_INSIDE = ("log", "sqrt", "asin", "acos")


def stem(expr: Expr) -> Expr:
    """An expression without roots and absolute values of its factors: it is zero at the same points."""
    if expr.op == "mul":
        return ex.mul(*map(stem, expr.args))
    by = expr.args[1].number if expr.op == "pow" else None
    return stem(expr.args[0]) if expr.op in ("sqrt", "abs") or (by is not None and by > 0) else expr


def is_analytic(expr: Expr, ends: Mapping[str, Ends]) -> bool:
    """Whether an expression with variables is real-analytic on an open connected set that holds a box."""
    good: dict[Expr, bool] = {}
    for node in walk(expr):
        if not variables_of(node):
            good[node] = bool(_constant(node).is_finite())
        else:
            good[node] = all(good[a] for a in node.args) and _keeps_analytic(node, ends)
    return good[expr] and bool(variables_of(expr))


def _keeps_analytic(node: Expr, ends: Mapping[str, Ends]) -> bool:
    """Whether a node of analytic arguments is analytic."""
    if node.op in ("variable", "add", "mul"):
        return True
    if node.op == "div":
        return _avoids_zero(node.args[1], ends)
    if node.op == "pow":
        base, by = node.args[0], node.args[1].number
        if by is None or by.denominator != 1:
            return _lies_inside(base, _ZERO, None, ends)
        return by >= 0 or _avoids_zero(base, ends)
    function = find(node.op)
    if function is None or function.analytic:
        return function is not None
    if node.op == "tan":
        return _avoids_zero(ex.call("cos", *node.args), ends)
    return node.op in _ANALYTIC_INSIDE and _lies_inside(node.args[0], function.low, function.high, ends)


def _avoids_zero(expr: Expr, ends: Mapping[str, Ends]) -> bool:
    return _lies_inside(expr, _ZERO, None, ends) or _lies_inside(expr, None, _ZERO, ends)


def _lies_inside(expr: Expr, low: Fraction | None, high: Fraction | None, ends: Mapping[str, Ends]) -> bool:
    """Whether low < expr < high on the whole box, by its range."""
    found = try_range(expr, ends)
    if found is None:
        return False
    return (low is None or bool(to_fmpq(low) < found[0])) and (high is None or bool(found[1] < to_fmpq(high)))


def _constant(expr: Expr) -> arb:
    with precision(_BITS):
        return enclose(expr, {})


def split_quotient(expr: Expr) -> tuple[Expr, Expr]:
    """Numerator and denominator of a quotient, a negative power, or a product or sum with such parts.

    Those of a sum of a_k/b_k are the sum of all a_k times the other b_j, and the product of the b_k, each b once; those
    of a/(b/c) are a c**2 and b c.
    """
    if expr.op == "add":
        quotients = [split_quotient(term) for term in expr.args]
        below = list(dict.fromkeys(b for _, b in quotients if b.number is None))
        if len(below) > MAX_QUOTIENTS:
            return expr, ex.number(1)
        return ex.add(*(ex.mul(a, *(c for c in below if c != b)) for a, b in quotients)), ex.mul(*below)
    if expr.op == "mul":
        one = ex.number(1)  # factors of a flat product are no products
        parts = [(factor, one) if factor.op == "add" else split_quotient(factor) for factor in expr.args]
        return ex.mul(*(a for a, _ in parts)), ex.mul(*(b for _, b in parts))
    if expr.op == "div":
        a, whole = expr.args
        b, c = whole.args if whole.op == "div" else (whole, ex.number(1))
        return ex.mul(a, c, c), ex.mul(b, c)  # defined where neither b nor c is zero
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


def rational(text: Any) -> Fraction:
    """A rational number of a derivation."""
    value = parsed(text, ()).number
    if value is None:
        raise RefutedError("the point of a derivation is given by rational numbers")
    return value


_OF_ANGLES = ("sin", "cos", "tan", "sinc")


def in_shares(*exprs: Expr) -> list[Expr]:
    """The expressions with the same shares in all of them; what is too long stays as it is.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> [str(e) for e in in_shares(parse("sin(a - 2*b)"), parse("cos(a)"))]
    ['-2*cos(b)*sin(b)*cos(a) + (cos(b)**2 - sin(b)**2)*sin(a)', 'cos(a)']
    """
    nodes = {node: terms_of(node.args[0]) for expr in exprs for node in walk(expr) if node.op in _OF_ANGLES}
    shares: dict[Expr, int] = {}
    for terms in nodes.values():
        for term, count in terms.items():
            shares[term] = lcm(shares.get(term, 1), count.denominator)
    return [ex.substitute(expr, {node: _written(node, nodes[node], shares) for node in nodes}) for expr in exprs]


def terms_of(angle: Expr) -> dict[Expr, Fraction]:
    """The terms of a sum and how often each counts; a rational number is a multiple of 1."""
    found: dict[Expr, Fraction] = {}
    stack = [(angle, Fraction(1))]
    while stack:
        node, times = stack.pop()
        if node.op == "add":
            stack.extend((a, times) for a in node.args)
        elif node.op == "div" and node.args[1].number:
            stack.append((node.args[0], times / node.args[1].number))
        else:
            number = node.number if node.number is not None else node.args[0].number if node.op == "mul" else None
            rest = ex.number(1) if node.number is not None else node if number is None else ex.mul(*node.args[1:])
            if rest != node and rest.op in ("add", "mul", "div"):
                stack.append((rest, times * (number or 0)))
            else:
                found[rest] = found.get(rest, Fraction(0)) + times * (1 if number is None else number)
    return found


def _written(node: Expr, terms: dict[Expr, Fraction], shares: dict[Expr, int]) -> Expr:
    counts = {term: int(times * shares[term]) for term, times in terms.items() if times}
    plain = counts and all(term.op in ("variable", "constant", "number") for term in terms)
    if len(terms) > MAX_ANGLE or sum(map(abs, counts.values())) > MAX_RATIO or (node.op == "sinc" and not plain):
        return node
    turned = [_turned(ex.div(term, ex.number(shares[term])), n) for term, n in counts.items()]
    cos, sin = reduce(_product, turned) if turned else (ex.number(1), ex.number(0))
    if node.op in ("sin", "cos"):
        return sin if node.op == "sin" else cos
    return ex.div(sin, cos if node.op == "tan" else node.args[0])


def _turned(share: Expr, n: int) -> tuple[Expr, Expr]:
    """Cosine and sine of n shares."""
    cos, sin = (ex.call(name, share) for name in ("cos", "sin"))
    parts: tuple[list[Expr], list[Expr]] = [], []
    for j in range(abs(n) + 1):
        sign = (-1) ** (j // 2) * (-1 if n < 0 and j % 2 else 1)
        powers = (ex.power(base, ex.number(by)) for base, by in ((cos, abs(n) - j), (sin, j)) if by)
        parts[j % 2].append(ex.mul(ex.number(sign * comb(abs(n), j)), *powers))
    return ex.add(*parts[0]), ex.add(*parts[1])


def _product(one: tuple[Expr, Expr], other: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
    """Cosine and sine of a sum."""
    (a, b), (c, d) = one, other
    return ex.add(ex.mul(a, c), ex.neg(ex.mul(b, d))), ex.add(ex.mul(b, c), ex.mul(a, d))
