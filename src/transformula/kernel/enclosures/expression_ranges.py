"""Proven ranges and signs of an expression on a region that is cut into the leaves of a given tree.

On each leaf an expression lies in its interval range (exact ends, `intervals`) and in the range of its
Taylor model (`expression_models`). Taylor models take roots and arcsines as defined; that they are is what the
interval range proves, on the whole region or else on every leaf.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from transformula.kernel.enclosures.balls import float_above, float_below, from_float
from transformula.kernel.enclosures.expression_models import enclose_ranges
from transformula.kernel.enclosures.intervals import Ends, UndefinedError, corner_range, range_of, try_range
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.enclosures.taylor_models import Floats
from transformula.kernel.exceptions import NotProvenError
from transformula.kernel.functions.function_table import is_open
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.syntax.printing import short_text

#: Variables that a message names.
_SHOWN = 12


def order_for(dimension: int) -> int:
    """The affordable order of Taylor models, by number of variables."""
    return 4 if dimension <= 6 else 3 if dimension <= 60 else 2


def range_on(expr: Expr, region: Region, tree: Sequence[int], defined: Container[Expr] = ()) -> tuple[float, float]:
    """Floats between which the expression lies on a region; nodes in ``defined`` are known to be so on all of it."""
    whole = try_range(expr, region.ends, defined)
    bottom, top = (-math.inf, math.inf) if whole is None else (float_below(whole[0]), float_above(whole[1]))
    if whole is None or not each_once(expr):
        lower, upper = region.leaves(tree)
        low, high = _taylor(expr, region, lower, upper)
        needed = np.ones(len(low), bool) if whole is None else ~(np.isfinite(low) & np.isfinite(high))
        for k in np.flatnonzero(needed).tolist():
            a, b = leaf_range(expr, region, lower[:, k], upper[:, k], defined)
            low[k], high[k] = max(low[k], float_below(a)), min(high[k], float_above(b))
        bottom, top = max(bottom, float(np.min(low))), min(top, float(np.max(high)))
    if not (math.isfinite(bottom) and math.isfinite(top) and bottom <= top):
        raise NotProvenError(f"no range of {short_text(expr)} is found on the given parts of the box")
    return bottom, top


def sign_on(expr: Expr, region: Region, tree: Sequence[int], defined: Container[Expr] = ()) -> int:
    """The sign of an expression on a region: 2 (> 0), 1 (>= 0), -1 (<= 0) or -2 (< 0)."""
    whole = try_range(expr, region.ends, defined)
    parts = [] if whole is None else [whole]
    if whole is None or whole[0] < 0 < whole[1]:
        lower, upper = region.leaves(tree)
        low, high = _taylor(expr, region, lower, upper)
        needed = undecided(low, high) if whole is not None else np.ones(len(low), bool)
        parts = [(from_float(a), from_float(b)) for a, b in zip(low[~needed], high[~needed], strict=True)]
        for k in np.flatnonzero(needed).tolist():
            a, b = leaf_range(expr, region, lower[:, k], upper[:, k], defined, corner_range)
            a, b = max(a, from_float(low[k])) if math.isfinite(low[k]) else a, b
            parts.append((a, min(b, from_float(high[k])) if math.isfinite(high[k]) else b))
    least, most = min(a for a, _ in parts), max(b for _, b in parts)
    if least < 0 < most:
        raise NotProvenError(f"the sign of {short_text(expr)} is not seen on the given parts of the box")
    return (2 if least > 0 else 1) if least >= 0 else (-2 if most < 0 else -1)


def check_defined(expr: Expr, region: Region, tree: Sequence[int], defined: Container[Expr] = ()) -> None:
    """Refuse an expression of which some node may be undefined on some leaf, naming both."""
    for node in open_nodes(expr, defined):
        if try_range(node, region.ends, defined) is None:
            for low, high in zip(*(ends.T for ends in region.leaves(tree)), strict=True):
                leaf_range(node, region, low, high, defined)


def open_nodes(expr: Expr, defined: Container[Expr] = ()) -> list[Expr]:
    """The outermost nodes of which it is not known that they are defined wherever their arguments are."""
    found = []
    stack = [expr]
    seen = set[Expr]()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node not in defined and is_open(node):
            found.append(node)
        else:
            stack += node.args
    return found


def leaf_range(
    expr: Expr,
    region: Region,
    lower: Floats,
    upper: Floats,
    defined: Container[Expr],
    of: Callable[[Expr, Mapping[str, Ends], Container[Expr]], Ends] = range_of,
) -> Ends:
    """The interval range on one leaf; a refusal names the place."""
    values = region.exact(lower, upper)
    try:
        return of(expr, values, defined)
    except UndefinedError as error:
        place = place_text(values)
        raise NotProvenError(f"{error} near {place}", place=place) from None


def place_text(values: Mapping[str, Ends]) -> str:
    """A part of the box, for a message."""
    shown = [(n, *(f"{float_below(end):.9g}" for end in ends)) for n, ends in [*values.items()][:_SHOWN]]
    more = [".."] if len(values) > _SHOWN else []
    return ", ".join([f"{n} = {a}" + ("" if a == b else f"..{b}") for n, a, b in shown] + more)


def each_once(expr: Expr) -> bool:
    """Whether no variable occurs twice: then the interval range is exact but for rounding."""
    seen: set[Expr] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if node.names and node in seen:
            return False
        if node.names:
            seen.add(node)
            stack.extend(node.args)
    return True


def undecided(low: Floats, high: Floats) -> NDArray[np.bool_]:
    """A mask of the ranges that do not show a strict sign."""
    return ~(((low > 0) | (high < 0)) & np.isfinite(low) & np.isfinite(high))


def _taylor(expr: Expr, region: Region, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    used = [k for k, name in enumerate(region.names) if name in expr.names]
    if not used:
        return np.full(lower.shape[1], -np.inf), np.full(lower.shape[1], np.inf)
    return enclose_ranges(expr, [region.names[k] for k in used], lower[used], upper[used], order_for(len(used)))
