"""Factors that vanish where a simple expression does, as its power times something else: erf(u) = u·erf_rest1(u).

Integers up to ``_LAST`` are tried as places of zeros, and orders up to ``_MOST``. Sums are constants, powers and
functions of arguments that are multiples of each other, up to a constant: exp(u) − 1, (exp(u) − exp(−u))/2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from transformula.kernel.derivations.normal_forms import Algebra
from transformula.kernel.enclosures.balls import to_fraction
from transformula.kernel.errors import RefutedError
from transformula.kernel.functions.registry import find
from transformula.kernel.functions.rests import first_terms
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, substitute
from transformula.rewriting.factors import factors_of

_LAST, _MOST, _TERMS = 2, 4, 8
#: What vanishes, how often, and what is left: g = vanishing**order * left.
Zero = tuple[Expr, int, Expr]


def zeros_of(g: Expr, may_vanish: Callable[[Expr], bool]) -> Iterator[Zero]:
    """Ways to write an expression as a power times something else, those of the highest order first.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> [(str(w), m, str(left)) for w, m, left in zeros_of(parse("cos(x) - 1"), lambda e: True)]
    [('x', 2, 'cos_rest2(x)'), ('x', 1, 'cos_rest1(x)')]
    """
    if g.op == "sin":
        yield g.args[0], 1, ex.call("sinc", g.args[0])
    elif g.op == "add" and len(g.args) <= _TERMS:
        yield from _of_sum(g, may_vanish)
    elif len(g.args) == 1:
        for at in range(_LAST + 1):
            w = ex.add(g.args[0], ex.number(-at))
            for order in reversed(range(1, _MOST + 1)):
                terms = _terms(g, at, order) if may_vanish(w) else None
                if terms is not None and not any(terms):
                    yield w, order, _rest(g, at, order)


def _of_sum(g: Expr, may_vanish: Callable[[Expr], bool]) -> Iterator[Zero]:
    parts = []
    for term in g.args:
        factors = term.args if term.op == "mul" else (term,)
        calls = [a for a in factors if not a.is_constant]
        if len(calls) == 1 and len(calls[0].args) == 1:
            parts.append((ex.mul(*(a for a in factors if a.is_constant)), calls[0]))
    for at in range(_LAST + 1) if parts else ():
        if not may_vanish(ex.add(parts[0][1].args[0], ex.number(-at))):
            continue
        for order in reversed(range(1, _MOST + 1)):
            if all(_terms(base, at, order) is not None for _, base in parts):
                yield from _checked(g, parts, at, order)


def _checked(g: Expr, parts: list[tuple[Expr, Expr]], at: int, order: int) -> Iterator[Zero]:
    """The sum written with the rests of its functions, if the terms before these cancel."""
    first = ex.add(parts[0][1].args[0], ex.number(-at))
    swap, left = {}, []
    for scale, base in parts:
        w, terms = ex.add(base.args[0], ex.number(-at)), _terms(base, at, order)
        ratio = _ratio(w, first)
        if ratio is None or terms is None:
            return
        known = [ex.mul(ex.number(c), ex.power(w, ex.number(j))) for j, c in enumerate(terms) if c]
        swap[base] = ex.add(*known, ex.mul(ex.power(w, ex.number(order)), _rest(base, at, order)))
        left.append(ex.mul(scale, ex.number(ratio**order), _rest(base, at, order)))
    found = ex.add(*left)
    algebra = Algebra(sorted(g.names))
    try:
        whole = ex.mul(ex.power(first, ex.number(order)), found)
        if algebra.same(algebra.of(substitute(g, swap)), algebra.of(whole)):
            yield first, order, found
    except RefutedError:
        return


def _ratio(one: Expr, other: Expr) -> Fraction | None:
    (a, powers), (b, others) = factors_of(one), factors_of(other)
    return a.number / b.number if powers == others and a.number and b.number else None


def _terms(call: Expr, at: int, order: int) -> list[Fraction] | None:
    base = find(call.op)
    found = None if base is None else first_terms(base, at, order)
    return None if found is None else [to_fraction(c) for c in found]


def _rest(call: Expr, at: int, order: int) -> Expr:
    name, colon, index = call.op.partition(":")
    return ex.call(f"{name}_rest{order}{f'_at{at}' if at else ''}{colon}{index}", *call.args)
