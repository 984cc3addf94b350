"""Where a function of u is defined, as far as its own roots, logarithms and arcs tell."""

from __future__ import annotations

from fractions import Fraction

from transformula.kernel.expression import Expr, walk
from transformula.kernel.functions import find
from transformula.rewriting.additive import as_affine


def domain_ends(function: Expr) -> tuple[Fraction | None, Fraction | None]:
    """Ends beyond which a function of u is undefined, as far as sqrt, log, asin.. of affine u tell.

    Examples
    --------
    >>> from transformula.kernel.parsing import parse
    >>> domain_ends(parse("sqrt(2*u - 1) + u")), domain_ends(parse("acos(u)"))
    ((Fraction(1, 2), None), (Fraction(-1, 1), Fraction(1, 1)))
    """
    low: Fraction | None = None
    high: Fraction | None = None
    for node in walk(function):
        for least, most in _domain(node):
            inside = as_affine(node.args[0], ("u",))
            if inside is None or not inside.form[0] or inside.constant.number is None:
                continue
            slope, shift = inside.form[0], inside.constant.number
            ends = [None if end is None else (end - shift) / slope for end in (least, most)]
            below, above = ends if slope > 0 else ends[::-1]
            low = below if low is None else low if below is None else max(low, below)
            high = above if high is None else high if above is None else min(high, above)
    return low, high


def _domain(node: Expr) -> list[tuple[Fraction | None, Fraction | None]]:
    """Where the argument of a node must lie, if that is an interval."""
    if node.op == "pow" and node.args[1].number is not None and node.args[1].number.denominator > 1:
        return [(Fraction(0), None)]
    function = find(node.op)
    return [] if function is None or function.low is function.high is None else [(function.low, function.high)]
