"""Is a formula defined on its box? If not: what breaks, over which range, and on which box it would be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import product

from flint import arb

from transformula.errors import NotProvenError
from transformula.formulas.enclosures import enclose, precision, to_fmpq
from transformula.formulas.expression import Expr, variables_of
from transformula.formulas.formula import Formula
from transformula.taylor.ranges import Range, UndefinedError, UndefinedOnBoxError, check_defined, enclose_ends

_BITS = 128
#: How far from the bad point a suggested box stays, as parts of the interval.
_MARGINS = (Fraction(1, 64), Fraction(1, 16), Fraction(1, 4))
#: With more variables at fault a suggestion would be a guess.
_MAX_VARIABLES = 3


@lru_cache(maxsize=16)
def check_defined_on(formula: Formula) -> None:
    """Refuse a formula that is undefined or unbounded somewhere on its box, and say where it would not be.

    Raises
    ------
    NotProvenError
        Naming the sub-expression, the range of its argument and a smaller box that works, if one is found.
    """
    with precision(_BITS):
        ends = zip(formula.box.variables, formula.box.lower, formula.box.upper, strict=True)
        box = {name: (enclose(low).lower(), enclose(high).upper()) for name, low, high in ends}
        for expr in formula.outputs:
            try:
                check_defined(expr, box)
            except UndefinedOnBoxError as error:
                raise NotProvenError(_explained(error, expr, box), place=error.place) from None


def _explained(error: UndefinedOnBoxError, expr: Expr, box: Mapping[str, Range]) -> str:
    reason = f"{error.part} is undefined or unbounded near {error.place}"
    inner = _broken_argument(error.part)
    if inner is not None:
        try:
            low, high = enclose_ends(inner, box)
            reason += f" ({inner} may reach {float(low):.4g}..{float(high):.4g} on the box)"
        except UndefinedError:
            reason += f" ({inner} can not be bounded)"
    smaller = next(_smaller_boxes(error, expr, box), None)
    if smaller is None:
        return f"{reason}: narrow the box to keep away from there"
    return f"{reason}: narrow the box to keep away from there; {smaller} would work"


def _broken_argument(part: Expr) -> Expr | None:
    """What a quotient divides by, or a function's or power's argument, unless it is a plain variable."""
    if not part.args:
        return None
    inner = part.args[1] if part.op == "div" else part.args[0]
    return inner if inner.args else None


def _smaller_boxes(error: UndefinedOnBoxError, expr: Expr, box: Mapping[str, Range]) -> Iterator[str]:
    """Boxes on which the expression is defined: cut beside the bad point, or shrunk around their middle."""
    names = sorted(variables_of(_broken_argument(error.part) or error.part))
    if not 0 < len(names) <= _MAX_VARIABLES:
        return
    for margin in _MARGINS:
        cuts = {n: _sides(error.point[n], box[n], margin) for n in names}
        alone = [{n: side} for n in names for side in cuts[n]]
        together = [dict(zip(names, sides, strict=True)) for sides in product(*cuts.values())]
        shrunk = [{n: _middle(box[n], 1 - 2 * margin) for n in names}]
        for changed in alone + (together if len(names) > 1 else []) + shrunk:
            inner = {n: (arb(to_fmpq(a)), arb(to_fmpq(b))) for n, (a, b) in changed.items()}
            try:
                check_defined(expr, {**box, **inner})
            except NotProvenError:
                continue
            yield ", ".join(f"{n}={float(a):.6g}..{float(b):.6g}" for n, (a, b) in changed.items())


def _middle(ends: Range, part: Fraction) -> tuple[Fraction, Fraction]:
    low, high = (Fraction(f"{float(end):.6g}") for end in ends)
    cut = (1 - part) / 2 * (high - low)
    return Fraction(f"{float(low + cut):.3g}"), Fraction(f"{float(high - cut):.3g}")


def _sides(at: float, ends: Range, margin: Fraction) -> list[tuple[Fraction, Fraction]]:
    """The parts of an interval on either side of a point, widest first, with short decimals as ends."""
    low, high = (Fraction(f"{float(end):.6g}") for end in ends)
    away = margin * (high - low)
    below = low, Fraction(f"{float(Fraction(at) - away):.3g}")
    above = Fraction(f"{float(Fraction(at) + away):.3g}"), high
    sides = [(a, b) for a, b in (above, below) if low <= a < b <= high]
    return sorted(sides, key=lambda side: side[0] - side[1])
