"""Cuts of a box so that an expression is shown to be defined on each part; if it is not, what breaks.

A refusal names the part of the formula, the range of its argument and a smaller box that would work.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from operator import itemgetter
from typing import TYPE_CHECKING

from flint import fmpq

from transformula.budget import checkpoint, spend
from transformula.compiler import policy
from transformula.compiler.evidence import costs
from transformula.kernel.enclosures.balls import float_above, float_below, to_fmpq
from transformula.kernel.enclosures.expression_ranges import open_nodes, place_text
from transformula.kernel.enclosures.intervals import Ends, UndefinedError, range_of, try_range
from transformula.kernel.enclosures.regions import Region, halfway
from transformula.kernel.exceptions import NotProvenError
from transformula.kernel.functions.function_table import domain_of
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, short_text, substitute

if TYPE_CHECKING:
    from transformula.kernel.derivations.floors import Floors

#: Distances of a suggested box from the undefined place, as fractions of the interval.
_MARGINS = (Fraction(1, 64), Fraction(1, 16), Fraction(1, 4))


def find_defined(expr: Expr, region: Region, defined: Container[Expr] = ()) -> list[int]:
    """A tree on whose leaves every node is shown to be defined (`ranges.check_defined`).

    Parameters
    ----------
    defined : container of Expr
        Nodes that are known to be defined on the whole region.

    Raises
    ------
    NotProvenError
        Naming the sub-expression, the range of its argument and a smaller box that works, if one is found.

    Examples
    --------
    >>> from transformula.kernel.syntax.boxes import Box
    >>> from transformula.kernel.syntax.parsing import parse
    >>> find_defined(parse("sqrt(1 + x - x**3/2)"), Region.of_box(Box.of("x=0..1")))
    [-1]
    """
    return _found(open_nodes(expr, defined), region, defined)


def find_bounded(expr: Expr, region: Region, defined: Container[Expr] = ()) -> list[int]:
    """A tree on whose leaves an expression has an interval range; as `find_defined`."""
    return _found([expr], region, defined)


def _found(nodes: Sequence[Expr], region: Region, defined: Container[Expr]) -> list[int]:
    found = _search(nodes, region, defined, policy.DEFINED_PARTS)
    if isinstance(found, _UndefinedPart):
        if not found.certain:
            found = _at_a_corner(found, nodes, region, defined) or found
        said, reason = _explained(found, nodes, region, defined)
        raise NotProvenError(said, place=place_text(found.values), reason=reason)
    return found


def find_apart(floors: Floors, known: Container[Expr], enough: float) -> list[int] | None:
    """A tree on whose leaves formulas without and with floors are equal or ``enough`` close, or None."""
    tree: list[int] = []
    region, exprs = floors.region, (*floors.above, *floors.before, *floors.outputs)
    work = sum(costs.defined(expr, 1) + 4 * costs.extrema(expr) for expr in exprs)
    stack = [tuple(ends.tolist() for ends in region.floats)]
    least = [-range_of(expr, region.ends)[0] for expr in floors.above]
    while stack:
        checkpoint()
        spend(work)
        low, high = stack.pop()
        try:
            tree.append(-1)
            if float_above(floors.apart_on(low, high, known)) <= enough:
                continue
            ends = [range_of(expr, region.exact(low, high)) for expr in floors.above]
        except NotProvenError:
            return None
        left = [e for e, (a, b), d in zip(floors.above, ends, least, strict=True) if a < 0 and not b < d]
        axis = next((k for k, name in enumerate(region.names) if left and name in left[0].names), None)
        if axis is None or len(tree) > policy.MOST_PIECES:
            return None
        cut = halfway(low[axis], high[axis])
        tree[-1] = axis
        stack.append(([*low[:axis], cut, *low[axis + 1 :]], high))
        stack.append((low, [*high[:axis], cut, *high[axis + 1 :]]))
    return tree


@dataclass(frozen=True)
class _UndefinedPart:
    """The end of a search: ``part`` is (if ``certain``) undefined on the intervals ``values``."""

    part: Expr
    certain: bool
    values: Mapping[str, Ends]
    tired: bool = False


def _search(nodes: Sequence[Expr], region: Region, defined: Container[Expr], most: int) -> list[int] | _UndefinedPart:
    """The tree, depth first, or why there is none."""
    tree: list[int] = []
    first = tuple(ends.tolist() for ends in region.floats)
    widths = [max(high - low, 1e-300) for low, high in zip(*first, strict=True)]
    stack = [first]
    while stack:
        checkpoint()
        low, high = stack.pop()
        values = region.exact(low, high)
        error = _error(nodes, values, defined)
        if error is None:
            tree.append(-1)
            continue
        middle = {name: (mid, mid) for name, mid in ((n, (a + b) / 2) for n, (a, b) in values.items())}
        for place, wrong in ((values, error), (middle, _error(nodes, middle, defined))):
            if wrong is not None and wrong.certain:
                return _UndefinedPart(wrong.part, True, place)
        shares = [(high[k] - low[k]) / widths[k] for k in range(len(low))]
        axes = [k for k, name in enumerate(region.names) if name in error.part.names]
        axis = max(axes, key=shares.__getitem__, default=0)
        cut = halfway(low[axis], high[axis])
        tired = len(tree) > 2 * most
        if tired or not shares[axis] > policy.SMALLEST_PART or not low[axis] < cut < high[axis] or not axes:
            return _UndefinedPart(error.part, False, values, tired)
        tree.append(axis)
        stack.append(([*low[:axis], cut, *low[axis + 1 :]], high))
        stack.append((low, [*high[:axis], cut, *high[axis + 1 :]]))
    return tree


def _at_a_corner(
    failure: _UndefinedPart, nodes: Sequence[Expr], region: Region, defined: Container[Expr]
) -> _UndefinedPart | None:
    """A corner of the box at which an expression is undefined beyond doubt, the nearest to where a search ended."""
    names = sorted(failure.part.names)[: policy.RANGE_CORNERS]
    inside = {n: (a + b) / 2 for n, (a, b) in failure.values.items()}
    box = region.ends
    found: list[tuple[float, _UndefinedPart]] = []
    for corner in product(*(box[n] for n in names)):
        point = {**inside, **dict(zip(names, corner, strict=True))}
        values = {n: (x, x) for n, x in point.items()}
        error = _error(nodes, values, defined)
        if error is not None and error.certain:
            far = sum(float_above(abs(point[n] - inside[n]) / (box[n][1] - box[n][0])) for n in names)
            found.append((far, _UndefinedPart(error.part, True, values, failure.tired)))
    return min(found, key=itemgetter(0), default=(0.0, None))[1]


def _error(nodes: Sequence[Expr], values: Mapping[str, Ends], defined: Container[Expr]) -> UndefinedError | None:
    spend(sum(map(costs.interval, nodes)))
    try:
        for node in nodes:
            range_of(node, values, defined)
    except UndefinedError as error:
        return error
    return None


@dataclass(frozen=True)
class Undefined:
    """The reason of a refusal: a part of the formula may be undefined on the box.

    ``smaller`` are intervals on which it is defined; ``kept`` is the same part with its argument kept in its domain.
    """

    part: Expr
    smaller: str | None
    kept: Expr | None


def _explained(
    failure: _UndefinedPart, nodes: Sequence[Expr], region: Region, defined: Container[Expr]
) -> tuple[str, Undefined]:
    verb = "is" if failure.certain else "could not be shown to be defined: it may be"
    place = place_text(failure.values)
    reason = f"{short_text(failure.part)} {verb} undefined or unbounded near {place}"
    inner = _broken_argument(failure.part)
    if inner is not None:
        try:
            low, high = range_of(inner, region.ends, defined)
            reach = f"{float_below(low):.4g}..{float_above(high):.4g}"
            reason += f" ({short_text(inner)} may reach {reach} on the box)"
        except UndefinedError:
            reason += f" ({short_text(inner)} cannot be bounded)"
    if failure.tired:
        reason += f"; {policy.DEFINED_PARTS} parts of the box were examined"
    advice = f"{reason}: narrow the box to keep away from there"
    smaller = next(_smaller_boxes(failure, nodes, region, defined), None)
    advice = advice if smaller is None else f"{advice}; {smaller} would work"
    kept = _cube_root(failure.part) or (None if failure.certain else _kept_inside(failure.part, region, defined))
    if kept is not None and isinstance(
        _search([substitute(node, {failure.part: kept}) for node in nodes], region, defined, policy.MOST_PIECES),
        _UndefinedPart,
    ):
        kept = None
    if kept is not None:
        advice = f"{advice}; or write {short_text(kept)}, the same wherever the formula is defined"
    return advice, Undefined(failure.part, smaller, kept)


def _cube_root(part: Expr) -> Expr | None:
    """The power of a cube root that a power with thirds in its exponent is, of negative numbers too."""
    by = part.args[1].number if part.op == "pow" else None
    if by is None or by.denominator != 3 or by < 0:
        return None
    return ex.power(ex.call("cbrt", part.args[0]), ex.number(by.numerator))


def _kept_inside(part: Expr, region: Region, defined: Container[Expr]) -> Expr | None:
    """The same node with its argument kept inside a closed domain: asin(min(u, 1)) where only 1 may be passed."""
    domain = domain_of(part)
    if domain is None or domain.open:
        return None
    kept = inner = part.args[domain.argument]
    low, high = try_range(inner, region.ends, defined) or (None, None)
    if domain.low is not None and (low is None or low < to_fmpq(domain.low)):
        kept = ex.call("max", kept, ex.number(domain.low))
    if domain.high is not None and (high is None or high > to_fmpq(domain.high)):
        root = kept.op == "sqrt"  # one table is enough for a function of a root
        kept = ex.call("min", kept.args[0] if root else kept, ex.number(domain.high**2 if root else domain.high))
        kept = ex.call("sqrt", kept) if root else kept
    return substitute(part, {inner: kept})


def _broken_argument(part: Expr) -> Expr | None:
    """The denominator of a quotient, or the argument of a function or power, unless it is a plain variable."""
    if not part.args:
        return None
    inner = part.args[1] if part.op == "div" else part.args[0]
    return inner if inner.args else None


def _smaller_boxes(
    failure: _UndefinedPart, nodes: Sequence[Expr], region: Region, defined: Container[Expr]
) -> Iterator[str]:
    """Boxes on which the expression is defined: cut beside the bad point, shrunk around their middle, or halved."""
    names = sorted((_broken_argument(failure.part) or failure.part).names)
    if not 0 < len(names) <= policy.SUGGESTION_VARIABLES:
        return
    box = region.ends
    at = {n: (a + b) / 2 for n, (a, b) in failure.values.items()}
    for margin in (*_MARGINS, None):
        cuts = {n: _halves(box[n]) if margin is None else _sides(at[n], box[n], margin) for n in names}
        alone = [{n: side} for n in names for side in cuts[n]]
        together = [dict(zip(names, sides, strict=True)) for sides in product(*cuts.values())]
        shrunk = [{n: _middle(box[n], 1 - 2 * (margin or Fraction(0))) for n in names}]
        for changed in alone + (together if len(names) > 1 else []) + shrunk:
            ends = {**box, **{n: (to_fmpq(a), to_fmpq(b)) for n, (a, b) in changed.items()}}
            if any(a >= b for a, b in ends.values()):
                continue
            inner = Region(region.names, *zip(*(ends[n] for n in region.names), strict=True))
            if not isinstance(_search(nodes, inner, defined, policy.MOST_PIECES), _UndefinedPart):
                yield ", ".join(f"{n}={float(a):.6g}..{float(b):.6g}" for n, (a, b) in changed.items())


def _short(value: fmpq, digits: int) -> Fraction:
    return Fraction(f"{float_below(value):.{digits}g}")


def _middle(ends: Ends, part: Fraction) -> tuple[Fraction, Fraction]:
    low, high = (_short(end, 6) for end in ends)
    cut = (1 - part) / 2 * (high - low)
    return Fraction(f"{float(low + cut):.3g}"), Fraction(f"{float(high - cut):.3g}")


def _halves(ends: Ends) -> list[tuple[Fraction, Fraction]]:
    low, high = (_short(end, 6) for end in ends)
    middle = _short(to_fmpq((low + high) / 2), 3)
    return [(low, middle), (middle, high)]


def _sides(at: fmpq, ends: Ends, margin: Fraction) -> list[tuple[Fraction, Fraction]]:
    """The parts of an interval on either side of a point, widest first, with short decimals as ends."""
    low, high = (_short(end, 6) for end in ends)
    away = to_fmpq(margin * (high - low))
    below, above = (low, _short(at - away, 3)), (_short(at + away, 3), high)
    sides = [(a, b) for a, b in (above, below) if low <= a < b <= high]
    return sorted(sides, key=lambda side: side[0] - side[1])
