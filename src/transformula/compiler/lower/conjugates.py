"""√(A² + B) − A without cancellation, as in the roots of a quadratic or an implicit equation.

Where A² is much larger than B the two terms are almost equal, and their difference keeps all of their errors.
With t = A/√B and φ = atan t,

    √(A² + B) ± A = √B (sec φ ± tan φ) = √B tan(π/4 ± φ/2)        for B > 0,
    √(A² + B) ± A = B / (√(A² + B) ∓ A)                           for B < 0 and ±A < 0,

where nothing cancels. Both are identities wherever the conditions hold. The kernel proves these again: it
needs the signs of B and A² + B, which `conjugated` returns beside the new expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from transformula.compiler import policy
from transformula.compiler.lower.additive import has_kinks
from transformula.compiler.lower.factors import factors_of, radicand, root_of, summands
from transformula.kernel.enclosures.intervals import Ends, UndefinedError, range_of
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box
from transformula.kernel.syntax.expression import Expr, rebuild, variables_of, walk

_HALF = ex.number(Fraction(1, 2))


def conjugated(outputs: Sequence[Expr], box: Box) -> tuple[tuple[Expr, ...], list[Expr]]:
    """The outputs with roots that nearly cancel on the box written by their conjugates.

    The second value lists B and A² + B of every such root, since the identities need their signs, and the replacement:
    its sign is easy to prove, and that of the difference with it.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> (found,), facts = conjugated([parse("x - sqrt(x**2 - 4*y)")], Box.of("x=9..10, y=1..2"))
    >>> str(found), [str(fact) for fact in facts]
    ('4*y/(sqrt(x**2 - 4*y) + x)', ['-4*y', 'x**2 - 4*y', '4*y/(sqrt(x**2 - 4*y) + x)'])
    >>> str(conjugated([parse("sqrt(x**2 + y) - x")], Box.of("x=-1..9, y=1..2"))[0][0])
    'y**(1/2)*tan(1/4*pi - 1/2*atan(x/y**(1/2)))'
    """
    facts: dict[Expr, None] = {}
    return tuple(_walked(expr, box, facts) for expr in outputs), list(facts)


def _walked(expr: Expr, box: Box, facts: dict[Expr, None]) -> Expr:
    if not any(radicand(node) is not None for node in walk(expr)):
        return expr
    done: dict[Expr, Expr] = {}
    for node in walk(expr):
        new = rebuild(node.op, [done[a] for a in node.args]) if node.args else node
        done[node] = _rewritten(new, box, facts) if new.op == "add" and len(variables_of(new)) > 1 else new
    return done[expr]


def _rewritten(total: Expr, box: Box, facts: dict[Expr, None]) -> Expr:
    for k, term in enumerate(total.args if total.op == "add" else ()):
        factor, powers = factors_of(term)
        if factor.number is None or len(powers) != 1:
            continue
        ((inside, exponent),) = powers.items()
        if exponent != Fraction(1, 2) or inside.op != "add":
            continue
        others = [*total.args[:k], *total.args[k + 1 :]]  # by place, here and below: equal terms may repeat
        for j, square in enumerate(inside.args):
            base = root_of(square)
            if base is None:
                continue
            rest = ex.add(*inside.args[:j], *inside.args[j + 1 :])
            for sign in (-1, 1):
                left = _without(others, ex.mul(ex.number(sign), factor, base))
                better = None if left is None else _conjugate(factor, base, sign, rest, box)
                if left is not None and better is not None:
                    facts.update(dict.fromkeys((rest, inside, better)))
                    return _rewritten(ex.add(better, *left), box, facts)
    return total


def _conjugate(factor: Expr, base: Expr, sign: int, rest: Expr, box: Box) -> Expr | None:
    """factor · (√(base² + rest) + sign·base) rewritten, if it may cancel and can be rewritten."""
    against, beside = _range(ex.mul(ex.number(-sign), base), box), _range(rest, box)
    if against is None or beside is None:
        return None
    low, high = beside
    small = low if low > 0 else -high  # the least |rest|, if its sign is known
    if not small > 0 or not against[1] > 0 or not against[1] ** 2 > policy.SERIOUS_CANCELLATION * small:
        return None
    if has_kinks(base) or has_kinks(rest):
        return None  # the normal form knows these identities without cases only
    if low > 0:
        if any(node.op == "sqrt" or (node.op == "pow" and not _is_whole(node.args[1])) for node in walk(rest)):
            return None  # nor does it find √B again in √B² once that is multiplied out
        root = ex.power(rest, _HALF)
        angle = ex.call("atan", ex.div(base, root))
        quarter = ex.div(ex.constant("pi"), ex.number(4))
        return ex.mul(factor, root, ex.call("tan", ex.add(quarter, ex.mul(ex.number(sign), _HALF, angle))))
    if against[0] > 0:
        inside = ex.add(ex.power(base, ex.number(2)), rest)
        return ex.div(ex.mul(factor, rest), ex.add(ex.call("sqrt", inside), ex.mul(ex.number(-sign), base)))
    return None


def _is_whole(exponent: Expr) -> bool:
    return exponent.number is not None and exponent.number.denominator == 1


def _range(expr: Expr, box: Box) -> Ends | None:
    try:
        return range_of(expr, Region.of_box(box).ends)
    except UndefinedError:
        return None


def _without(terms: list[Expr], part: Expr) -> list[Expr] | None:
    """The terms left when a part is taken out, as one term or as the terms of a sum; None if it is not there."""
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
