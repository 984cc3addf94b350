"""Rewritings for accuracy, and where a function of u is defined as far as roots, logarithms and arc functions tell.

*Conjugates.* Where A² is much larger than B the terms of √(A² + B) − A are almost equal, and their difference keeps all
of their errors. With t = A/√B and φ = atan t,

    √(A² + B) ± A = √B (sec φ ± tan φ) = √B tan(π/4 ± φ/2)        for B > 0,
    √(A² + B) ± A = B / (√(A² + B) ∓ A)                           for B < 0 and ±A < 0,

where nothing cancels. Both are identities wherever the conditions hold. The kernel proves these again: it needs the
signs of B and A² + B, which `conjugated` returns beside the new expressions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from flint import fmpq

from transformula.compiler import policy
from transformula.compiler.lower.additive import as_affine, is_nonsmooth
from transformula.compiler.lower.factors import factors_of, radicand, root_of, summands
from transformula.errors import FormulaError
from transformula.kernel.derivations.polynomials import NotPolynomialError, as_polynomial
from transformula.kernel.enclosures.balls import enclose, to_fraction
from transformula.kernel.enclosures.intervals import Ends, UndefinedError, range_of
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.functions.function_table import find
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box
from transformula.kernel.syntax.expression import Expr, rebuild, substitute, variables_of, walk

_RATIONAL = ("number", "variable", "add", "mul", "div", "pow")


def domain_ends(function: Expr) -> tuple[Fraction | None, Fraction | None]:
    """Ends beyond which a function of u is undefined, as far as sqrt, log, asin.. of affine u tell.

    So do roots and logarithms of a quadratic that is positive between two rational zeros only.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> domain_ends(parse("sqrt(2*u - 1) + u")), domain_ends(parse("acos(u)"))
    ((Fraction(1, 2), None), (Fraction(-1, 1), Fraction(1, 1)))
    >>> domain_ends(parse("sqrt(u*(1 - u))")), domain_ends(parse("sqrt(4 - u**2)"))
    ((Fraction(0, 1), Fraction(1, 1)), (Fraction(-2, 1), Fraction(2, 1)))
    >>> domain_ends(parse("asin(sqrt(2*u))"))
    (Fraction(0, 1), Fraction(1, 2))
    """
    low: Fraction | None = None
    high: Fraction | None = None
    for node in walk(function):
        for least, most in _domain(node):
            below, above = _inverse(node.args[0], least, most)
            low = below if low is None else low if below is None else max(low, below)
            high = above if high is None else high if above is None else min(high, above)
    return low, high


def _inverse(inside: Expr, least: Fraction | None, most: Fraction | None) -> tuple[Fraction | None, Fraction | None]:
    """The interval of u in which an expression stays between two ends, if that is easy to find."""
    if inside.op == "exp" and most == 1 and (least is None or least <= 0):
        return _inverse(inside.args[0], None, Fraction(0))
    if inside.op == "sqrt" and most is not None and most >= 0:
        return _inverse(inside.args[0], None if least is None or least < 0 else least**2, most**2)
    affine = as_affine(inside, ("u",))
    if affine is None:
        return _between_zeros(inside) if least == 0 and most is None else (None, None)
    if not affine.form[0] or affine.constant.number is None:
        return None, None
    slope, shift = affine.form[0], affine.constant.number
    ends = [None if end is None else (end - shift) / slope for end in (least, most)]
    return (ends[0], ends[1]) if slope > 0 else (ends[1], ends[0])


def _between_zeros(quadratic: Expr) -> tuple[Fraction | None, Fraction | None]:
    zeros = _zeros(quadratic)
    return (None, None) if zeros is None else zeros[1:]


def _zeros(quadratic: Expr) -> tuple[Fraction, Fraction, Fraction] | None:
    """a, r and s of a(u − r)(s − u) with a > 0 and r < s."""
    if any(node.op not in _RATIONAL for node in walk(quadratic)):
        return None
    try:
        found = as_polynomial(quadratic, ("u",)).terms()
        terms = {degree: to_fraction(c) for (degree,), c in found.items() if isinstance(c, fmpq)}
    except (NotPolynomialError, FormulaError):
        return None
    a, b, c = (terms.get(k, Fraction(0)) for k in (2, 1, 0))
    inside = b * b - 4 * a * c
    if max(terms, default=0) != 2 or a >= 0 or inside <= 0:
        return None
    root = Fraction(math.isqrt(inside.numerator), math.isqrt(inside.denominator))
    return (-a, (-b + root) / (2 * a), (-b - root) / (2 * a)) if root * root == inside else None


def factored(function: Expr) -> Expr:
    """A function of u with such quadratics under its roots and logarithms written as products.

    Ranges of a product are tight at its zeros, and the same function is written in one way wherever it comes from.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> str(factored(parse("sqrt(1 - (u - 1)**2)"))), str(factored(parse("sqrt((2 - u)*u)")))
    ('sqrt(u*(-u + 2))', 'sqrt(u*(-u + 2))')
    """
    written: dict[Expr, Expr] = {}
    for node in walk(function):
        zeros = _zeros(node.args[0]) if (Fraction(0), None) in _domain(node) else None
        if zeros is not None:
            (a, low, high), u = zeros, ex.variable("u")
            above, below = ex.add(u, ex.number(-low)), ex.add(ex.neg(u), ex.number(high))
            written[node.args[0]] = ex.mul(ex.number(a), above, below)
    return substitute(function, written)


def steep_places(function: Expr) -> set[Fraction]:
    """Zeros of cube roots of affine u in a function of u: a table does not extend beyond them.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> steep_places(parse("1 + cbrt(2*u - 1)"))
    {Fraction(1, 2)}
    """
    found = [_inverse(node.args[0], Fraction(0), None) for node in walk(function) if node.op == "cbrt"]
    return {place for ends in found for place in ends if place is not None}


def parted(expr: Expr, range_of: Callable[[Expr], tuple[float, float]]) -> Expr:
    """Roots that are steep inside their range, ∛v = ∛max(v, 0) − ∛max(−v, 0): each side is read at its distance from 0.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> str(parted(parse("1 + cbrt(u)"), lambda v: (-1.0, 1.0)))
    'cbrt(max(u, 0)) - cbrt(max(-u, 0)) + 1'
    """
    written: dict[Expr, Expr] = {}
    for node in walk(expr):
        if node.op == "cbrt" and node.args[0].names:
            (inside,) = node.args
            low, high = range_of(inside)
            if low < 0 < high:
                above, below = (ex.call("max", side, ex.number(0)) for side in (inside, ex.neg(inside)))
                written[node] = ex.add(ex.call("cbrt", above), ex.neg(ex.call("cbrt", below)))
    return substitute(expr, written)


def rooted(expr: Expr, range_of: Callable[[Expr], tuple[float, float]]) -> Expr:
    """Roots of products that touch zero taken apart, √(ab) = √a·√b where no factor is negative.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> str(rooted(parse("1 + sqrt(x*y/3)"), lambda v: (0.0, 1.0)))
    '(1/3)**(1/2)*x**(1/2)*y**(1/2) + 1'
    """
    written: dict[Expr, Expr] = {}
    for node in walk(expr):
        by = Fraction(1, 2) if node.op == "sqrt" else node.args[1].number if node.op == "pow" else None
        if by is None or by.denominator == 1 or node.args[0].op not in ("mul", "div"):
            continue
        constant, powers = factors_of(node.args[0])
        lows = [range_of(base)[0] for base in powers]
        if len(powers) > 1 and enclose(constant) > 0 and min(lows) == 0:
            roots = (ex.power(base, ex.number(e * by)) for base, e in powers.items())
            written[node] = ex.mul(ex.power(constant, ex.number(by)), *roots)
    return substitute(expr, written)


def _domain(node: Expr) -> list[tuple[Fraction | None, Fraction | None]]:
    """Intervals in which the argument of a node must lie."""
    if node.op == "pow" and node.args[1].number is not None and node.args[1].number.denominator > 1:
        return [(Fraction(0), None)]
    function = find(node.op)
    return [] if function is None or function.low is function.high is None else [(function.low, function.high)]


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
    if is_nonsmooth(base) or is_nonsmooth(rest):
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
