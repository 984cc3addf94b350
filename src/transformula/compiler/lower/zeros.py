"""Factors that vanish where a simple expression does, as its power times something else: erf(u) = u·erf_rest1(u).

Whole numbers up to ``_LAST`` are looked at as places of zeros, and orders up to ``_MOST``. Sums are of
powers and of functions of arguments that are multiples of each other, up to a constant and times such powers:
exp(u) − 1, (exp(u) − exp(−u))/2, sin(u) − u·cos(u).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from transformula.compiler.lower.factors import factors_of, product_of
from transformula.kernel.derivations.normal_forms import Algebra
from transformula.kernel.enclosures.balls import to_fraction
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.functions.function_table import find
from transformula.kernel.functions.taylor_rests import first_terms, rest_named
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, substitute, walk

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


def by_its_rests(expr: Expr) -> Expr:
    """The same with f(u) and its rests at u all written by the last of these: so is what it is compared with.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> str(by_its_rests(parse("exp(x)*exp(y)/exp_rest1(x)")))
    '(x*exp_rest1(x) + 1)*exp(y)/exp_rest1(x)'
    >>> str(by_its_rests(parse("sinh_rest3(x)/sinh_rest1(x)")))
    'sinh_rest3(x)/(x**2*sinh_rest3(x) + 1)'
    """
    last: dict[tuple[Expr, int], int] = {}
    for node in walk(expr):
        if (rest := rest_named(node.op)) is not None:
            key = ex.call(rest.base, *node.args), rest.at
            last[key] = max(rest.order, last.get(key, 0))
    swap: dict[Expr, Expr] = {}
    for (call, at), order in last.items():
        swap |= {_rest(call, at, k) if k else call: _expanded(call, at, k, order) for k in range(order)}
        if call.op == "sin" and not at and order > 1:
            swap[ex.call("sinc", *call.args)] = _expanded(call, at, 1, order)
    return substitute(expr, swap)


def _expanded(call: Expr, at: int, first: int, order: int) -> Expr:
    """What is left of a function after its first terms, as the terms up to an order and what is left then."""
    w, terms = ex.add(call.args[0], ex.number(-at)), _terms(call, at, order) or []
    known = [ex.mul(ex.number(c), _power(w, j)) for j, c in enumerate(terms[first:]) if c]
    return ex.add(*known, ex.mul(_power(w, order - first), _rest(call, at, order)))


def _power(w: Expr, by: int) -> Expr:
    return ex.power(w, ex.number(by)) if by else ex.number(1)


def _of_sum(g: Expr, may_vanish: Callable[[Expr], bool]) -> Iterator[Zero]:
    parts = [_scaled(term) for whole in g.args for term in _distributed(whole)]
    calls = [call for _, call in parts if call is not None]
    for at in range(_LAST + 1) if calls and len(parts) <= _TERMS else ():
        if not may_vanish(ex.add(calls[0].args[0], ex.number(-at))):
            continue
        for order in reversed(range(1, _MOST + 1)):
            yield from _checked(g, parts, calls, at, order)


def _distributed(term: Expr) -> Sequence[Expr]:
    """The terms of a product with one sum in it."""
    factors = term.args if term.op == "mul" else (term,)
    sums = [a for a in factors if a.op == "add"]
    if len(sums) != 1:
        return (term,)
    return [ex.mul(part, *(a for a in factors if a is not sums[0])) for part in sums[0].args]


def _scaled(term: Expr) -> tuple[Expr, Expr | None]:
    """A factor, and the one function of a single argument in a term, if there is just one."""
    factors = term.args if term.op == "mul" else (term,)
    calls = [a for a in factors if not a.is_constant and len(a.args) == 1 and find(a.op)]
    return (ex.mul(*(a for a in factors if a is not calls[0])), calls[0]) if len(calls) == 1 else (term, None)


def _checked(g: Expr, parts: list[tuple[Expr, Expr | None]], calls: list[Expr], at: int, order: int) -> Iterator[Zero]:
    """The sum as the rests of its functions, if the terms before these cancel."""
    first = ex.add(calls[0].args[0], ex.number(-at))
    needed = {call: order - min(_times(first, scale) for scale, c in parts if c is call) for call in calls}
    left: list[Expr] = []
    for scale, call in parts:
        times = min(_times(first, scale), order)
        cut = product_of(*factors_of(ex.mul(scale, _power(first, -times))))
        own = 0 if call is None else max(needed[call], 0)
        ratio = Fraction(1) if call is None else _ratio(ex.add(call.args[0], ex.number(-at)), first)
        terms = _terms(call, at, own) if call is not None and own else []
        if ratio is None or terms is None:
            return
        terms = [Fraction(1)] if call is None else terms
        for j, c in enumerate(terms):  # those of a lower order have to cancel
            if c and times + j >= order:
                left.append(ex.mul(ex.number(c * ratio**j), cut, _power(first, times + j - order)))
        if call is not None:
            rest = _rest(call, at, own) if own else call
            left.append(ex.mul(ex.number(ratio**own), cut, _power(first, times + own - order), rest))
    found = ex.add(*left)
    algebra = Algebra(sorted(g.names))
    try:
        swap = {call: _expanded(call, at, 0, own) for call, own in needed.items() if own > 0}
        if algebra.same(algebra.of(substitute(g, swap)), algebra.of(ex.mul(_power(first, order), found))):
            yield first, order, found
    except RefutedError:
        return


def _times(w: Expr, expr: Expr) -> int:
    """How often an expression has a factor, as far as is seen."""
    (_, inside), (_, powers) = factors_of(w), factors_of(expr)
    return max(min((int(powers.get(b, Fraction(0)) / e) for b, e in inside.items()), default=0), 0)


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
