"""√(A² + B) − A without cancellation, as in the roots of a quadratic or an implicit equation.

Where A² is much larger than B the two terms are almost equal, and their difference keeps all of their errors.
With t = A/√B and φ = atan t,

    √(A² + B) ± A = √B (sec φ ± tan φ) = √B tan(π/4 ± φ/2)        for B > 0,
    √(A² + B) ± A = B / (√(A² + B) ∓ A)                           for B < 0 and ±A < 0,

where nothing cancels. Both are identities wherever the conditions hold, which is proven on the box.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from flint import arb

from transformula.formulas import expression as ex
from transformula.formulas.additive import rebuild
from transformula.formulas.boxes import Box
from transformula.formulas.enclosures import precision
from transformula.formulas.expression import Expr, variables_of, walk
from transformula.formulas.factors import factors_of
from transformula.formulas.formula import Formula
from transformula.formulas.squares import radicand, root_of, summands
from transformula.taylor.ranges import Range, UndefinedError, enclose_ends, hull

#: A² above this many times |B| leaves less than a quarter of A.
_SERIOUS = 4
_BITS = 64
_HALF = ex.number(Fraction(1, 2))


def without_cancelling_roots(formula: Formula) -> Formula:
    """The formula with roots that nearly cancel on its box written by their conjugates.

    Examples
    --------
    >>> str(without_cancelling_roots(Formula.of("sqrt(x**2 + y) - x", "x=-1..9, y=1..2")))
    'y**(1/2)*tan(1/4*pi - 1/2*atan(x/y**(1/2)))'
    >>> str(without_cancelling_roots(Formula.of("x - sqrt(x**2 - 4*y)", "x=9..10, y=1..2")))
    '4*y/(sqrt(x**2 - 4*y) + x)'
    """
    return replace(formula, outputs=tuple(_walked(expr, formula.box) for expr in formula.outputs))


def _walked(expr: Expr, box: Box) -> Expr:
    if not any(radicand(node) is not None for node in walk(expr)):
        return expr
    done: dict[Expr, Expr] = {}
    for node in walk(expr):
        new = rebuild(node.op, [done[a] for a in node.args]) if node.args else node
        done[node] = _rewritten(new, box) if new.op == "add" and len(variables_of(new)) > 1 else new
    return done[expr]


def _rewritten(total: Expr, box: Box) -> Expr:
    for k, term in enumerate(total.args if total.op == "add" else ()):
        factor, powers = factors_of(term)
        if factor.number is None or len(powers) != 1:
            continue
        ((inside, exponent),) = powers.items()
        if exponent != Fraction(1, 2) or inside.op != "add":
            continue
        others = [*total.args[:k], *total.args[k + 1 :]]
        for j, square in enumerate(inside.args):
            base = root_of(square)
            if base is None:
                continue
            rest = ex.add(*inside.args[:j], *inside.args[j + 1 :])  # by place: equal terms are one object
            for sign in (-1, 1):
                left = _without(others, ex.mul(ex.number(sign), factor, base))
                better = None if left is None else _conjugate(factor, base, sign, rest, box)
                if left is not None and better is not None:
                    return _rewritten(ex.add(better, *left), box)
    return total


def _conjugate(factor: Expr, base: Expr, sign: int, rest: Expr, box: Box) -> Expr | None:
    """factor · (√(base² + rest) + sign·base), if that may cancel and can be written otherwise."""
    against = _range(ex.mul(ex.number(-sign), base), box)
    low, high = _range(rest, box)
    small = low if low > 0 else -high  # the least |rest|, if its sign is known
    if not small > 0 or not against[1] > 0 or not against[1] ** 2 > _SERIOUS * small:
        return None
    if low > 0:
        root = ex.power(rest, _HALF)
        angle = ex.call("atan", ex.div(base, root))
        quarter = ex.div(ex.constant("pi"), ex.number(4))
        return ex.mul(factor, root, ex.call("tan", ex.add(quarter, ex.mul(ex.number(sign), _HALF, angle))))
    if against[0] > 0:
        inside = ex.add(ex.power(base, ex.number(2)), rest)
        return ex.div(ex.mul(factor, rest), ex.add(ex.call("sqrt", inside), ex.mul(ex.number(-sign), base)))
    return None


def _range(expr: Expr, box: Box) -> Range:
    with precision(_BITS):  # the same for whoever asks
        values = {name: hull(box.interval(k)) for k, name in enumerate(box.variables)}
        try:
            return enclose_ends(expr, values)
        except UndefinedError:
            return arb("-inf"), arb("inf")


def _without(terms: list[Expr], part: Expr) -> list[Expr] | None:
    """The terms left when a part is taken out, as one term or as the terms of a sum, if it is there."""
    for pieces in ([part], summands(part)):
        left = list(terms)
        for piece in map(factors_of, pieces):
            found = next((term for term in left if factors_of(term) == piece), None)
            if found is None:
                break
            left.remove(found)
        else:
            return left
    return None
