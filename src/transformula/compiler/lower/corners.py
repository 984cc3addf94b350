"""Corners: quotients that are continuous where their divisor vanishes, such as x*y/(x + y) from 0.

S = k · Π b^n / D^c, with bases b >= 0 and D a sum of terms t = q · Π b^e, is exp(Σ n log b − c log D) with
log D = log t_1 + log(1 + exp(log t_2 − log t_1)) and so on. With max(b, d) for every b that touches 0 this takes few
tokens, and it is S but where some b < d. There both are small: D >= t for every term, so D^c >= Π t^w for w >= 0 with
sum c, and |S| <= k · Π b^n / Π t^w, which vanishes with a base. Where D vanishes, S vanishes with a power of D:
Π b^n = Π t^w <= D^v, v the sum of the w, if v > c. The kernel checks all of this (`kernel.derivations.floors`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import Any

from flint import fmpq_mat

from transformula.compiler import policy
from transformula.compiler.lower.factors import factors_of, lowest_terms, product_of
from transformula.compiler.lower.removable import Step, defined_at, may_vanish
from transformula.kernel.derivations.extensions import split_quotient
from transformula.kernel.enclosures.balls import float_above, to_fmpq, to_fraction
from transformula.kernel.enclosures.intervals import try_range
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.exceptions import FormulaError
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box
from transformula.kernel.syntax.expression import Expr, to_text, walk
from transformula.kernel.syntax.parsing import parse

Powers = dict[Expr, Fraction]
_ONE = ex.number(1)


@dataclass(frozen=True)
class CornerForm:
    """A quotient ``of`` = outside · Π bases^above / (Σ terms)^by; ``tops`` are the largest values of bases from 0."""

    of: Expr
    outside: Expr
    above: Powers
    terms: tuple[tuple[Fraction, Powers], ...]
    by: Fraction
    tops: dict[Expr, float]
    within: tuple[Expr, ...]
    at: tuple[tuple[str, Fraction], ...]

    def step(self, bits: int) -> dict[str, Any]:
        """The step that model.json stores, with floors that many bits below the largest values."""
        logs = {base: _log(base, self.tops.get(base, 0.0), bits) for _, powers in self.terms for base in powers}
        (scale, pivot), *others = self.terms
        inside = {b: self.above.get(b, Fraction(0)) - self.by * pivot.get(b, Fraction(0)) for b in logs}
        ratios: list[Expr] = []
        for q, powers in others:
            apart = {b: powers.get(b, Fraction(0)) - pivot.get(b, Fraction(0)) for b in logs}
            constant = () if q == scale else (ex.call("log", ex.number(q / scale)),)
            ratio = ex.add(_sum(apart, logs), *constant, *map(ex.neg, ratios))
            ratios.append(ex.call("log", ex.add(_ONE, ex.call("exp", ratio))))
        rest = (ex.mul(ex.number(-self.by), ratio) for ratio in ratios)
        factor = _ONE if scale == 1 else ex.power(ex.number(scale), ex.number(-self.by))
        new = ex.mul(self.outside, factor, ex.call("exp", ex.add(_sum(inside, logs), *rest)))
        return {
            "of": to_text(self.of),
            "is": to_text(new),
            "within": [*map(to_text, self.within)],
            "at": {name: str(value) for name, value in self.at},
        }

    @property
    def signed(self) -> list[Expr]:
        """The bases, whose signs the proof needs."""
        return [*dict.fromkeys(base for _, powers in self.terms for base in powers)]


def _log(base: Expr, top: float, bits: int) -> Expr:
    least = ex.number(Fraction(top) / 2**bits)
    return ex.call("log", ex.call("max", base, least) if top else base)


def _sum(powers: Powers, logs: dict[Expr, Expr]) -> Expr:
    return ex.add(*(ex.mul(ex.number(e), logs[b]) for b, e in powers.items() if e))


def corners_of(outputs: Sequence[Expr], box: Box) -> list[CornerForm]:
    """The quotients of a formula that have a corner, none inside another.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> box = Box.of("x=0..1, y=0..1")
    >>> [str(e) for e in corners_of([parse("1 + x*y/(x + y)")], box)[0].within]
    ['x + y', 'y', 'x']
    >>> corners_of([parse("x/(x + y)")], box)
    []
    """
    found: list[CornerForm] = []
    for node in dict.fromkeys(node for expr in outputs for node in walk(expr)):
        if node.op in ("mul", "div", "pow") and not any(corner.of in walk(node) for corner in found):
            corner = _corner(node, box)
            found += [] if corner is None else [corner]
    return found


def _corner(node: Expr, box: Box) -> CornerForm | None:
    if not may_vanish(split_quotient(node)[1], box):
        return None
    (constant, powers), at = factors_of(node), defined_at(node, box)
    below = [base for base, e in powers.items() if e < 0 and may_vanish(base, box)]
    terms = _terms(below[0]) if len(below) == 1 else []
    bases = dict.fromkeys(base for _, term in terms for base in term)
    ranges = {base: try_range(base, Region.of_box(box).ends) for base in bases}
    poles = (b for _, term in terms for b, e in term.items() if (e < 0 or b.op != "variable") and may_vanish(b, box))
    if at is None or not terms or any(poles) or any(ends is None or ends[0] < 0 for ends in ranges.values()):
        return None
    tops = {base: float_above(ends[1]) for base, ends in ranges.items() if ends is not None and ends[0] == 0}
    above, by = {b: e for b, e in powers.items() if b in bases}, -powers[below[0]]
    outside = product_of(constant, {b: e for b, e in powers.items() if b not in bases and b != below[0]})
    within = [ex.mul(outside, bound) for bound in _bounds(below[0], terms, above, by, [*tops])]
    smallest = {b for bound in within for b, e in factors_of(bound)[1].items() if e > 0}
    if not within or not set(tops) <= smallest or any(e < 0 for b, e in above.items() if b in tops):
        return None
    pivot = max(terms, key=lambda term: min(above.get(b, 0) - by * term[1].get(b, 0) for b in bases))
    return CornerForm(node, outside, above, (pivot, *(t for t in terms if t is not pivot)), by, tops, tuple(within), at)


def _terms(total: Expr) -> list[tuple[Fraction, Powers]]:
    """The terms of a sum as positive numbers and powers of bases that are no sums; none if it has others."""
    small = total.op == "add" and len(total.args) <= policy.ZERO_TERMS
    for whole in (total, (lowest_terms(total) or (total,))[0]) if small else ():
        parts = [factors_of(term) for term in whole.args]
        if all((q.number or 0) > 0 and all(b.op != "add" for b in powers) for q, powers in parts):
            return [(q.number or Fraction(0), powers) for q, powers in parts]
    return []


def _bounds(total: Expr, terms: Sequence[Any], above: Powers, by: Fraction, tops: Sequence[Expr]) -> Iterator[Expr]:
    """Bounds of the quotient: a power of the divisor, then products of bases that all stay."""
    weights = _shares(terms, above, tops)
    if weights is not None and sum(weights) > by:
        yield ex.mul(ex.power(total, ex.number(sum(weights) - by)), _left(terms, above, weights))
    missing = set(tops)
    for count in range(1, len(terms) + 1):
        for some in combinations(range(len(terms)), count) if missing else ():
            weights = [by / count if k in some else Fraction(0) for k in range(len(terms))]
            bound = _left(terms, above, weights)
            powers = factors_of(bound)[1]
            if all(powers.get(b, 0) >= 0 for b in tops) and not missing.isdisjoint(powers):
                missing -= set(powers)
                yield bound


def _left(terms: Sequence[Any], above: Powers, weights: Sequence[Fraction]) -> Expr:
    """Π b^n / Π (t/q)^w times Π q^-w, rounded up."""
    left, scale = dict(above), Fraction(1)
    for (q, powers), w in zip(terms, weights, strict=True):
        left |= {b: left.get(b, Fraction(0)) - w * e for b, e in powers.items()}
        exact = w.denominator == 1 or q == 1
        scale *= q ** int(-w) if exact else Fraction(math.nextafter(float(q) ** float(-w), math.inf))
    return product_of(ex.number(scale), {b: e for b, e in left.items() if e})


def _shares(terms: Sequence[Any], above: Powers, tops: Sequence[Expr]) -> list[Fraction] | None:
    """Weights w > 0 of some terms with Π t^w = Π b^n, as far as bases from 0 go; those with the largest sum."""
    best: list[Fraction] | None = None
    for count in range(1, len(tops) + 1):
        for some in combinations(range(len(terms)), count):
            rows = [[to_fmpq(terms[k][1].get(b, Fraction(0))) for k in some] for b in tops]
            matrix, right = fmpq_mat(rows), fmpq_mat([[to_fmpq(above.get(b, Fraction(0)))] for b in tops])
            square = matrix.transpose() * matrix
            if square.det() == 0:
                continue
            found = square.solve(matrix.transpose() * right)
            if matrix * found == right and all(found[k, 0] > 0 for k in range(count)):
                shares = dict(zip(some, (to_fraction(found[k, 0]) for k in range(count)), strict=True))
                weights = [shares.get(k, Fraction(0)) for k in range(len(terms))]
                best = max(best or weights, weights, key=sum)
    return best


def opened_steps(outputs: Sequence[Expr], box: Box) -> tuple[tuple[Expr, ...], list[Step]]:
    """Steps to quotients with corners: 1/(1/x + 1/y) is x*y/(x + y), x**2/(x + y) is x − x*y/(x + y).

    None are taken where they do not lead to a corner.
    """
    for node in dict.fromkeys(node for expr in outputs for node in walk(expr)):
        for steps in _ways(node, box):
            try:
                known = [replace(step, becomes=parse(to_text(step.becomes), box.variables)) for step in steps]
            except FormulaError:
                continue
            last = known[-1].becomes
            if corners_of([last], box) and not corners_of([node], box):
                current = tuple(outputs)
                for step in known:
                    current = tuple(step.applied(expr) for expr in current)
                more, others = opened_steps(current, box)
                return more, [*known, *others]
    return tuple(outputs), []


def _ways(node: Expr, box: Box) -> Iterator[list[Step]]:
    open_at_zero = node.op in ("div", "mul", "pow") and may_vanish(split_quotient(node)[1], box)
    at = defined_at(node, box) if open_at_zero else None
    if at is None:
        return
    below = node.args[1] if node.op == "div" else _ONE
    if below.op == "add" and any(may_vanish(split_quotient(term)[1], box) for term in below.args):
        inner, outer = lowest_terms(below), lowest_terms(node)
        if inner is not None and outer is not None and outer[1].number is None:
            whole = ex.div(*inner)
            yield [Step(below, whole, at), Step(ex.div(node.args[0], whole), ex.div(*outer), at)]
    constant, powers = factors_of(node)
    for total in [b for b, e in powers.items() if e == -1 and b.op == "add" and may_vanish(b, box)]:
        for term in total.args:
            scale, inside = factors_of(term)
            left = {b: e - inside.get(b, 0) for b, e in powers.items() if b is not total}
            if scale.number and all(powers.get(b, 0) >= e > 0 for b, e in inside.items()):
                part = ex.mul(ex.div(constant, scale), product_of(_ONE, {b: e for b, e in left.items() if e}))
                rest = ex.add(*(other for other in total.args if other is not term))
                yield [Step(node, ex.add(part, ex.neg(ex.div(_multiplied(part, rest), total))), at)]


def _multiplied(part: Expr, rest: Expr) -> Expr:
    return ex.add(*(ex.mul(part, term) for term in (rest.args if rest.op == "add" else (rest,))))
