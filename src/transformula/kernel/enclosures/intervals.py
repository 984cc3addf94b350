"""Ranges of expressions by interval arithmetic with exact rational ends, and where they are undefined.

*Theorem.* If `range_of` returns (a, b), then at every point of the given intervals every node of the
expression is defined (except that nodes in ``defined`` are taken to be so) and its value is in [a, b].

*Corners.* If moreover an argument that seems to leave a domain is monotone in some variables (their partial
derivatives, enclosed by series arithmetic, keep their signs), its extrema are where these are at their ends.

Sums, products, quotients, whole powers, abs, min and max are exact, so an argument that just touches
the end of a domain is seen to do so; functions and fractional powers are rounded outward to dyadic
numbers at 128 bits. Ends that need more than ``_MAX_BITS`` are rounded outward too.
Definedness is strict: sqrt(u) needs u >= 0 on the whole interval, not up to rounding.

*Floats.* Intervals are also computed as pairs of float arrays, rounded outwards; infinity times zero counts as unknown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Mapping
from fractions import Fraction
from functools import lru_cache, reduce
from typing import NamedTuple

import numpy as np
from flint import arb, fmpq

from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import lowest_part, to_fmpq
from transformula.kernel.enclosures.taylor_models import Floats
from transformula.kernel.exceptions import NotProvenError, SingularError
from transformula.kernel.functions.elementary_functions import Ends, abs_ends, dyadic_above, dyadic_below, root_ends
from transformula.kernel.functions.function_table import FUNCTIONS, Domain, domain_of, function_of
from transformula.kernel.syntax.expression import Expr, short_text, walk

__all__ = ["Domain", "Ends", "UndefinedError", "corner_range", "domain_of", "range_of", "try_range"]

_BITS = 128
#: Rationals wider than this are rounded outward to so many bits, so that nothing explodes.
_MAX_BITS, _ROUNDED_BITS = 1_500, 192


class UndefinedError(NotProvenError):
    """A node, ``part``, is undefined or unbounded: at every point considered if ``certain``, else perhaps somewhere."""

    def __init__(self, part: Expr, certain: bool) -> None:
        super().__init__("")
        self.part, self.certain = part, certain

    def __str__(self) -> str:
        return f"{short_text(self.part)} {'is' if self.certain else 'may be'} undefined or unbounded"


def range_of(expr: Expr, values: Mapping[str, Ends], defined: Container[Expr] = ()) -> Ends:
    """Exact ends between which the expression lies at every point of the given intervals, or `UndefinedError`.

    Nodes in ``defined`` are known to be so: their arguments are cut to the domain, not refused.
    """
    return _range(expr, _Where(values, defined, True))


def corner_range(expr: Expr, values: Mapping[str, Ends], defined: Container[Expr] = ()) -> Ends:
    """The range of `range_of`, with variables in which the expression is monotone at their ends."""
    where = _Where(values, defined, True)
    return _at_corners(expr, _range(expr, where), where)


def try_range(expr: Expr, values: Mapping[str, Ends], defined: Container[Expr] = ()) -> Ends | None:
    """The range of `range_of`, or None if a node may be undefined or unbounded."""
    try:
        return range_of(expr, values, defined)
    except UndefinedError:
        return None


class _Where(NamedTuple):
    values: Mapping[str, Ends]
    defined: Container[Expr]
    corners: bool


def _at_corners(expr: Expr, ends: Ends, where: _Where) -> Ends:
    try:
        with precision(_BITS):
            places = lowest_part(expr, where.values, 1), lowest_part(expr, where.values, -1)
        low, high = (_range(expr, _Where(place, where.defined, False)) for place in places)
    except (SingularError, UndefinedError):
        return ends
    return max(low[0], ends[0]), min(high[1], ends[1])


def _range(expr: Expr, where: _Where) -> Ends:
    known: dict[Expr, Ends] = {}
    with precision(_BITS):
        for node in _nodes(expr):
            constant = None if node.names else _constant(node) or _each(node, where)
            known[node] = constant or _node_range(node, [known[a] for a in node.args], where)
    return known[expr]


def _each(expr: Expr, where: _Where) -> Ends:
    known: dict[Expr, Ends] = {}
    for node in walk(expr):
        known[node] = _node_range(node, [known[a] for a in node.args], where)
    return known[expr]


@lru_cache(maxsize=4096)
def _constant(expr: Expr) -> Ends | None:
    """The range of an expression without variables, found once; None if it is not seen to be defined."""
    try:
        return _each(expr, _Where({}, (), False))
    except UndefinedError:
        return None


@lru_cache(maxsize=2048)
def _nodes(expr: Expr) -> tuple[Expr, ...]:
    """The nodes of an expression, none below a constant; remembered, as it is evaluated on many boxes."""
    nodes = tuple(walk(expr))
    read = {expr}.union(*(node.args for node in nodes if node.names))
    return tuple(node for node in nodes if node.names or node in read)


def _node_range(node: Expr, args: list[Ends], where: _Where) -> Ends:
    if node.op == "variable":
        if node.value not in where.values:
            raise UndefinedError(node, certain=False)
        return where.values[str(node.value)]
    try:
        return _fitted(*_apply(node, args, where))
    except SingularError:
        raise UndefinedError(node, certain=False) from None


def _fitted(low: fmpq, high: fmpq) -> Ends:
    if low.height_bits() <= _MAX_BITS and high.height_bits() <= _MAX_BITS:
        return low, high
    with precision(_ROUNDED_BITS):
        return dyadic_below(arb(low)), dyadic_above(arb(high))


def _apply(node: Expr, args: list[Ends], where: _Where) -> Ends:
    op = node.op
    if op == "add":
        return reduce(lambda a, b: _fitted(a[0] + b[0], a[1] + b[1]), args)
    if op == "mul":  # equal factors are a power
        ranges = dict(zip(node.args, args, strict=True))
        return reduce(_mul, (_whole_power(ranges[a], n) for a, n in Counter(node.args).items()))
    if node.number is not None:
        exact = to_fmpq(node.number)
        return exact, exact
    if op == "constant":
        ball = arb.pi() if node.value == "pi" else arb.const_e()
        return dyadic_below(ball), dyadic_above(ball)
    if op == "div":
        return _mul(args[0], _inverse(node, args[1]))
    if op == "pow":
        return _power(node, args[0], args[1], where)
    if op in ("min", "max"):
        pick = min if op == "min" else max
        return pick(a[0] for a in args), pick(a[1] for a in args)
    function = function_of(op)
    if function.low is None and function.high is None:
        return function.ends(*args[0])
    low, high = _inside(node, args[0], function.low, function.high, where)
    if function.open and (_is(low, function.low) or _is(high, function.high)):
        raise UndefinedError(node, certain=low == high)
    return function.ends(low, high)


def _is(end: fmpq, limit: Fraction | None) -> bool:
    return limit is not None and bool(end == to_fmpq(limit))


def _inside(node: Expr, ends: Ends, least: Fraction | None, most: Fraction | None, where: _Where) -> Ends:
    """Ends that are inside the domain; cut to it if the node is known to be defined."""
    bottom, top = ends[0] if least is None else to_fmpq(least), ends[1] if most is None else to_fmpq(most)
    if where.corners and (ends[0] < bottom or ends[1] > top):
        ends = _at_corners(node.args[0], ends, where)
    low, high = ends
    if low >= bottom and high <= top:
        return ends
    outside = high < bottom or low > top
    if outside or node not in where.defined:
        raise UndefinedError(node, certain=outside)
    return max(low, bottom), min(high, top)


def _mul(a: Ends, b: Ends) -> Ends:
    if a[0] >= 0 and b[0] >= 0:
        return _fitted(a[0] * b[0], a[1] * b[1])
    if a[0] == a[1]:
        return _fitted(*sorted((a[0] * b[0], a[0] * b[1])))
    corners = a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1]
    return _fitted(min(corners), max(corners))


def _inverse(node: Expr, a: Ends) -> Ends:
    if a[0] <= 0 <= a[1]:
        raise UndefinedError(node, certain=a[0] == a[1])
    return 1 / a[1], 1 / a[0]


def _whole_power(base: Ends, by: int) -> Ends:
    """u**by for a whole number by >= 0."""
    if by == 1:
        return base
    low, high = abs_ends(*base) if by % 2 == 0 else base
    if by * max(low.height_bits(), high.height_bits()) <= 2 * _MAX_BITS:
        return low**by, high**by
    return dyadic_below(arb(low) ** by), dyadic_above(arb(high) ** by)


def _power(node: Expr, base: Ends, exponent: Ends, where: _Where) -> Ends:
    by = node.args[1].number
    if by is not None:
        if by.denominator == 1:
            result = _whole_power(base, abs(int(by)))
        else:
            result = root_ends(*_inside(node, base, Fraction(0), None, where), abs(by))
        return _inverse(node, result) if by < 0 else result
    low, high = _inside(node, base, Fraction(0), None, where)
    log, exp = FUNCTIONS["log"].ends, FUNCTIONS["exp"].ends
    if low > 0:  # exp(y log x)
        return exp(*_mul(exponent, log(low, high)))
    if not exponent[0] > 0:
        raise UndefinedError(node, certain=high == 0 and not exponent[1] > 0)
    top = _mul(exponent, log(high, high))[1] if high > 0 else None
    return fmpq(0), fmpq(0) if top is None else exp(top, top)[1]


Pair = tuple[Floats, Floats]


def plus(a: Pair, b: Pair) -> Pair:
    """Sums of intervals."""
    with np.errstate(invalid="ignore", over="ignore"):
        low, high = a[0] + b[0], a[1] + b[1]
    return outward(low, high)


def outward(low: Floats, high: Floats) -> Pair:
    """Ends rounded outwards; an end that is not a number is not known."""
    low, high = np.fmax(low, -math.inf), np.fmin(high, math.inf)  # of a NaN and a number, the number
    return np.nextafter(low, -math.inf), np.nextafter(high, math.inf)


def times(a: Pair, b: Pair) -> Pair:
    """Products of intervals."""
    with np.errstate(invalid="ignore", over="ignore"):
        p, q, r, s = a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1]
    low, high = np.minimum(np.minimum(p, q), np.minimum(r, s)), np.maximum(np.maximum(p, q), np.maximum(r, s))
    return outward(low, high)


def squared(a: Pair) -> Pair:
    """Squares of intervals."""
    low, high = times(a, a)
    return np.maximum(low, 0.0), high


def length(a: Pair, b: Pair) -> Pair:
    """√(a² + b²) of intervals."""
    low, high = plus(squared(a), squared(b))
    return np.nextafter(np.sqrt(np.maximum(low, 0.0)), -math.inf), np.nextafter(np.sqrt(high), math.inf)


def direction(a: Pair, b: Pair) -> tuple[Pair, Pair]:
    """a/√(a² + b²) and b/√(a² + b²), which lie in [−1, 1] even where the length vanishes."""
    low, high = length(a, b)
    with np.errstate(divide="ignore"):
        inverse = np.nextafter(1 / high, 0.0), np.nextafter(1 / np.maximum(low, 0.0), math.inf)
    shares = times(a, inverse), times(b, inverse)
    first, second = ((np.clip(s[0], -1.0, 1.0), np.clip(s[1], -1.0, 1.0)) for s in shares)
    return first, second


def widen(a: Pair, by: Floats | float) -> Pair:
    """Intervals widened on both sides."""
    with np.errstate(invalid="ignore", over="ignore"):
        return outward(a[0] - by, a[1] + by)


def size(a: Pair) -> Floats:
    """The largest absolute value."""
    return np.maximum(np.abs(a[0]), np.abs(a[1]))
