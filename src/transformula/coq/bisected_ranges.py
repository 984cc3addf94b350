"""Ranges that Interval can prove by bisection in few boxes: like terms gathered, and wider where it is slow.

Interval arithmetic takes x - x for anything within the width of a box, so that a tight range takes as many boxes as
fill the surface on which the expression is nearly largest. They are counted here, as Interval cuts them; a range that
is some per cent wider takes far fewer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache, reduce

from flint import fmpq

from transformula.coq.coq_terms import above, below
from transformula.kernel.enclosures.intervals import Ends, try_range
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr

Range = tuple[Fraction, Fraction]
Box = tuple[tuple[str, Ends], ...]
#: Boxes that Interval may take for a range, and depths of bisection; how much wider than proven it may be, in turn.
MAX_BOXES, MAX_DEPTH = 1_500, 40
WIDER = (Fraction(1, 200), Fraction(1, 50), Fraction(1, 20), Fraction(1, 8), Fraction(1, 4), Fraction(1, 2))


def easy_range(expr: Expr, box: Box, proven: Range, known: Range) -> Range | None:
    """A range a little wider than a proven one for which Interval is quick, if it says more than is known."""
    seen = by_sizes(expr)
    for share in WIDER:
        spare = (proven[1] - proven[0]) * share
        found = max(below(proven[0] - spare, 8), known[0]), min(above(proven[1] + spare, 8), known[1])
        if found == known:
            return None
        if is_quick(seen, box, found):
            return found
    return None


def by_sizes(expr: Expr) -> Expr:
    """The same expression with absolute values for min and max, as Interval is given it (`kinks` in Analysis.v)."""

    def two(op: str, a: Expr, b: Expr) -> Expr:
        sign, half = Fraction(1 if op == "max" else -1), ex.number(Fraction(1, 2))
        size = ex.call("abs", ex.add(a, ex.mul(ex.number(Fraction(-1)), b)))
        return ex.mul(half, ex.add(a, b, ex.mul(ex.number(sign), size)))

    def written(node: Expr, args: list[Expr]) -> Expr:
        if node.op not in ("min", "max"):
            return ex.rebuild(node.op, args) if args else node
        return reduce(lambda right, left: two(node.op, left, right), reversed(args))

    return ex.fold(expr, written)


@lru_cache(maxsize=512)
def is_quick(expr: Expr, box: Box, wanted: Range) -> bool:
    """Whether bisection of all variables in turn shows a range in few boxes."""
    names = sorted(expr.names)
    low, high = (fmpq(end.numerator, end.denominator) for end in wanted)
    waiting, count = [(dict(box), 0)], 0
    while waiting:
        part, depth = waiting.pop()
        found = try_range(expr, part)
        count += 1
        if found is not None and low <= found[0] and found[1] <= high:
            continue
        if count + len(waiting) > MAX_BOXES or depth > MAX_DEPTH * len(names):
            return False
        name = names[depth % len(names)]
        a, b = part[name]
        waiting += [(part | {name: (a, (a + b) / 2)}, depth + 1), (part | {name: ((a + b) / 2, b)}, depth + 1)]
    return True


def gathered(expr: Expr) -> Expr:
    """The same expression with like terms of each sum added up, and equal factors of each product as powers."""
    return ex.fold(expr, lambda node, args: _gathered(ex.rebuild(node.op, args)) if args else node)


def _gathered(node: Expr) -> Expr:
    if node.op == "mul":
        return ex.mul(*(f if n == 1 else ex.power(f, ex.number(Fraction(n))) for f, n in Counter(node.args).items()))
    if node.op != "add":
        return node
    terms: dict[Expr, Fraction] = {}
    for coefficient, term in _terms(node, Fraction(1)):
        terms[term] = terms.get(term, Fraction(0)) + coefficient
    return ex.add(*(ex.mul(ex.number(c), term) for term, c in terms.items() if c), ex.number(Fraction(0)))


def _terms(expr: Expr, scale: Fraction) -> Iterator[tuple[Fraction, Expr]]:
    """Terms with their rational coefficients, through sums that are multiplied by numbers."""
    if expr.op == "add":
        for term in expr.args:
            yield from _terms(term, scale)
    elif expr.number is not None:
        yield scale * expr.number, ex.number(Fraction(1))
    elif expr.op == "mul" and expr.args[0].number is not None:
        yield from _terms(ex.mul(*expr.args[1:]), scale * expr.args[0].number)
    else:
        yield scale, expr
