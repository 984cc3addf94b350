"""Boxes with exact ends, and smaller boxes that cover them: products of edges, cut further by trees of halvings.

A tree is a list of whole numbers in preorder: k >= 0 cuts a box in the middle of axis k (then come the trees of
its lower and of its upper half), -1 is a leaf. The halves of a box cover it, so the leaves of every tree cover
what was cut, whatever the numbers: there is nothing to check about evidence that is a tree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from flint import arb, fmpq
from numpy.typing import NDArray

from transformula.kernel.enclosures.balls import float_above, float_below, from_float
from transformula.kernel.enclosures.intervals import Ends, range_of, try_range
from transformula.kernel.enclosures.taylor_models import Floats
from transformula.kernel.exceptions import NotProvenError, RefutedError
from transformula.kernel.functions.elementary_functions import dyadic_above, dyadic_below
from transformula.kernel.syntax.boxes import Box
from transformula.kernel.syntax.expression import Expr, short_text

BallEnds = tuple[arb, arb]


def checked_edges(edges: Any, ends: Sequence[BallEnds], most: int) -> list[Floats]:
    """Edges for each axis as arrays: increasing floats from at most the lower to at least the upper end.

    ``most`` limits the number of boxes of their product.
    """
    if not isinstance(edges, (list, tuple)) or len(edges) != len(ends):
        raise RefutedError("there is not one list of edges for each axis")
    result, boxes = [], 1
    for axis, (low, high) in zip(edges, ends, strict=True):
        numbers = axis.tolist() if isinstance(axis, np.ndarray) else axis
        if not isinstance(numbers, list) or len(numbers) < 2:
            raise RefutedError("the edges of an axis are not a list of two or more numbers")
        boxes *= len(numbers) - 1
        if boxes > most:
            raise RefutedError(f"the edges make more than {most} boxes")
        if not all(isinstance(v, float) and math.isfinite(v) for v in numbers):
            raise RefutedError("an edge is not a finite float")
        array = np.array(numbers)
        if not np.all(array[:-1] < array[1:]):
            raise RefutedError("the edges of an axis do not increase")
        if not (arb(numbers[0]) <= low and arb(numbers[-1]) >= high):
            raise RefutedError("the edges do not cover the range of an argument")
        result.append(array)
    return result


def products(parts: Sequence[Floats]) -> Floats:
    """All combinations of one number from each array in C order, shape (d, combinations)."""
    return np.stack(np.meshgrid(*parts, indexing="ij")).reshape(len(parts), -1)


def edge_boxes(edges: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Lower and upper ends of the boxes between the edges in C order, shape (d, boxes)."""
    return products([e[:-1] for e in edges]), products([e[1:] for e in edges])


def leaves(lower: Floats, upper: Floats, trees: Any, most: int) -> tuple[Floats, Floats, NDArray[np.intp]]:
    """The leaves of one tree for each box (d, boxes), and which box each leaf belongs to."""
    d, boxes = lower.shape
    if not isinstance(trees, list) or len(trees) != boxes or not all(isinstance(t, list) for t in trees):
        raise RefutedError("there is not one tree for each box")
    if sum(map(len, trees)) > 2 * most - boxes:  # n leaves in a tree are 2 n - 1 nodes
        raise RefutedError(f"the trees have more than {most} leaves")
    lows = []
    highs = []
    origin = []
    for box, tree in enumerate(trees):
        stack = [(lower[:, box].tolist(), upper[:, box].tolist())]
        for axis in tree:
            if type(axis) is not int or not -1 <= axis < d or not stack:
                raise RefutedError("a tree of halvings is malformed")
            low, high = stack.pop()
            if axis < 0:
                lows.append(low)
                highs.append(high)
                origin.append(box)
                continue
            middle = halfway(low[axis], high[axis])
            if not low[axis] < middle < high[axis]:
                raise RefutedError("a tree of halvings cuts an interval that is too small to be cut")
            stack.append(([*low[:axis], middle, *low[axis + 1 :]], high))
            stack.append((low, [*high[:axis], middle, *high[axis + 1 :]]))
        if stack:
            raise RefutedError("a tree of halvings ends too early")
    return np.array(lows).T, np.array(highs).T, np.array(origin, dtype=np.intp)


def halfway(low: float, high: float) -> float:
    """The point at which an interval is cut in two."""
    return low + (high - low) / 2


def check_defined(function: Expr, names: Sequence[str], ends: Sequence[BallEnds], lower: Floats, upper: Floats) -> None:
    """Refuse unless the function is defined on the box of the ends, or else on each of the given cells."""
    known = DefinedCells(function, names, ends).on(lower, upper)
    if not known.all():
        low, high = lower[:, ~known][:, 0], upper[:, ~known][:, 0]
        place = ", ".join(f"{n} = {a:.6g}..{b:.6g}" for n, a, b in zip(names, low, high, strict=True))
        raise NotProvenError(f"{short_text(function)} may be undefined or unbounded on {place}", place=place)


class DefinedCells:
    """A function proven to be defined by exact intervals: on the whole box of the ends, or else cell by cell."""

    def __init__(self, function: Expr, names: Sequence[str], ends: Sequence[BallEnds]) -> None:
        self.function, self.names = function, names
        self.box = [(dyadic_below(a), dyadic_above(b)) for a, b in ends]
        self.everywhere = try_range(function, dict(zip(names, self.box, strict=True))) is not None

    def on(self, lower: Floats, upper: Floats) -> NDArray[np.bool_]:
        """On which of the cells (d, cells) the function is defined.

        Cells that stick out of the box are cut to it: its ends may be those of the function's domain.
        """
        if self.everywhere:
            return np.ones(lower.shape[1], dtype=np.bool_)
        known = []
        for low, high in zip(lower.T.tolist(), upper.T.tolist(), strict=True):
            sides = zip(self.box, low, high, strict=True)
            cell = [(max(first, from_float(a)), min(last, from_float(b))) for (first, last), a, b in sides]
            empty = any(a > b for a, b in cell)
            known.append(empty or try_range(self.function, dict(zip(self.names, cell, strict=True))) is not None)
        return np.array(known, dtype=np.bool_)


#: Nodes of a tree, and nodes times axes: what is held in memory at once.
MAX_NODES = 400_000
_MAX_NUMBERS = 20_000_000


@dataclass(frozen=True)
class Region:
    """A product of closed intervals; ends are exact where they are rational numbers, else rounded outward."""

    names: tuple[str, ...]
    lower: tuple[fmpq, ...]
    upper: tuple[fmpq, ...]

    @classmethod
    def of_box(cls, box: Box) -> Region:
        """The region of a box."""
        lower = tuple(range_of(end, {})[0] for end in box.lower)
        return cls(box.variables, lower, tuple(range_of(end, {})[1] for end in box.upper))

    @property
    def ends(self) -> dict[str, Ends]:
        """The exact interval of each variable."""
        return dict(zip(self.names, zip(self.lower, self.upper, strict=True), strict=True))

    @cached_property
    def floats(self) -> tuple[Floats, Floats]:
        """The ends as floats, rounded outward, shapes (d,)."""
        return np.array([*map(float_below, self.lower)]), np.array([*map(float_above, self.upper)])

    def leaves(self, tree: Sequence[int]) -> tuple[Floats, Floats]:
        """The leaves of a tree as float boxes, shape (d, leaves), that cover the region."""
        axes = len(self.names)
        if not isinstance(tree, list) or not 0 < len(tree) <= MAX_NODES:
            raise RefutedError(f"a tree of halvings has 1 to {MAX_NODES} nodes")
        if len(tree) * axes > _MAX_NUMBERS:
            raise RefutedError(f"a tree of {len(tree)} nodes over {axes} axes is too large")
        return leaves(self.floats[0][:, None], self.floats[1][:, None], [tree], MAX_NODES)[:2]

    def exact(self, lower: Sequence[float] | Floats, upper: Sequence[float] | Floats) -> dict[str, Ends]:
        """A leaf cut to the region: a leaf at the border gets the exact rational end.

        The float ends of the region are the nearest outward ones, so no leaf lies outside of it.
        """
        found: dict[str, Ends] = {}
        for k, name in enumerate(self.names):
            if not np.isfinite(lower[k]) or not np.isfinite(upper[k]):
                raise RefutedError(f"the interval of {name} is too large for floats")
            low = max(self.lower[k], from_float(float(lower[k])))
            high = min(self.upper[k], from_float(float(upper[k])))
            if not low <= high:
                raise RefutedError(f"a leaf lies outside the interval of {name}")
            found[name] = low, high
        return found
