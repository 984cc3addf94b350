"""Trees of halvings: where to cut a box so that the kernel bounds a range, proves a sign, or follows errors tightly.

Nothing here is trusted: the kernel computes every bound again on the parts that are found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from transformula.budget import checkpoint, spend
from transformula.compiler import policy
from transformula.compiler.evidence import costs
from transformula.compiler.evidence.definedness import find_bounded
from transformula.formula.evaluation import evaluate
from transformula.kernel.enclosures.expression_ranges import (
    each_once,
    leaf_range,
    model_range,
    models_on,
    order_for,
    place_text,
    undecided,
)
from transformula.kernel.enclosures.intervals import Ends, UndefinedError, corner_range, range_of
from transformula.kernel.enclosures.regions import Region, halfway
from transformula.kernel.enclosures.taylor_models import TINY, Floats
from transformula.kernel.exceptions import NotProvenError
from transformula.kernel.syntax.expression import Expr, short_text

#: From the lower and upper ends of parts, shape (inputs, parts), to a bound on each part.
Bound = Callable[[Floats, Floats], Floats]


class Tree:
    """A tree of halvings that grows at its leaves."""

    def __init__(self, preorder: Sequence[int] = (-1,)) -> None:
        self.axes: list[int] = [-1]
        self.first_child: list[int] = [0]
        self.start: list[int] = []  # the leaves of the given tree, in preorder
        stack = [0]
        for axis in preorder:
            node = stack.pop()
            if axis < 0:
                self.start.append(node)
            else:
                low = self.split(node, axis)
                stack += [low + 1, low]

    def split(self, node: int, axis: int) -> int:
        """Halve a leaf; the number of its lower half, the upper half is the next."""
        self.axes[node] = axis
        self.first_child[node] = child = len(self.axes)
        self.axes += [-1, -1]
        self.first_child += [0, 0]
        return child

    def preorder(self) -> list[int]:
        """The tree as evidence."""
        found, stack = [], [0]
        while stack:
            node = stack.pop()
            found.append(self.axes[node])
            if self.axes[node] >= 0:
                stack += [self.first_child[node] + 1, self.first_child[node]]
        return found


class _Front:
    """The leaves that may still be cut, and what their Taylor models say."""

    def __init__(self, expr: Expr, region: Region, start: Sequence[int]) -> None:
        self.expr, self.used = expr, [k for k, n in enumerate(region.names) if n in expr.names]
        self.names = [region.names[k] for k in self.used]
        self.tree = Tree(start)
        self.nodes = np.array(self.tree.start)
        self.lower, self.upper = region.leaves(list(start))
        self.whole = (region.floats[1] - region.floats[0])[self.used]

    def look(self) -> None:
        """Ranges, values at centres with their errors, and linear coefficients of the present leaves."""
        count, d = len(self.nodes), len(self.used)
        self.low, self.high, self.value, self.rest = (np.empty(count) for _ in range(4))
        self.linear = np.empty((d, count))
        lower, upper = self.lower[self.used], self.upper[self.used]
        spend(costs.models(self.expr, count))
        for part, model in models_on(self.expr, self.names, lower, upper, order_for(d)):
            self.low[part], self.high[part] = model_range(model)
            self.value[part], self.rest[part] = model.constant, model.rest
            self.linear[:, part] = np.abs(model.terms[1 : 1 + d])

    def cut(self, chosen: NDArray[np.bool_]) -> bool:
        """Halve the chosen leaves along the axis on which the model varies most; False if none can be."""
        lower, upper = self.lower[:, chosen].copy(), self.upper[:, chosen].copy()
        nodes, linear = self.nodes[chosen], self.linear[:, chosen]
        known = np.isfinite(self.rest[chosen])
        with np.errstate(all="ignore"):
            share = np.nan_to_num((upper - lower)[self.used] / self.whole[:, None])
            slope = linear / np.maximum(linear.max(axis=0), TINY)
        best = np.argmax(np.where(known, slope + 0.1, 1.0) * share, axis=0)
        axis, columns = np.array(self.used)[best], np.arange(len(nodes))
        bottom, top = lower[axis, columns], upper[axis, columns]
        middle = bottom + (top - bottom) / 2
        able = (bottom < middle) & (middle < top)
        axis, middle = axis[able], middle[able]
        nodes, columns = nodes[able], np.arange(int(able.sum()))
        lower, upper = lower[:, able], upper[:, able]
        left, right = upper.copy(), lower.copy()
        left[axis, columns] = middle
        right[axis, columns] = middle
        children = [self.tree.split(n, a) for n, a in zip(nodes.tolist(), axis.tolist(), strict=True)]
        self.nodes = np.array([*children, *(c + 1 for c in children)], dtype=np.int64)
        self.lower = np.concatenate([lower, right], axis=1)
        self.upper = np.concatenate([left, upper], axis=1)
        return bool(children)


def _whole(expr: Expr, region: Region, defined: Container[Expr]) -> Ends | None:
    try:
        return range_of(expr, region.ends, defined)
    except UndefinedError:
        return None


def sub_region(region: Region, names: Sequence[str]) -> Region:
    """The region of some of the variables, in the order given."""
    ends = region.ends
    return Region(tuple(names), tuple(ends[n][0] for n in names), tuple(ends[n][1] for n in names))


def _values(expr: Expr, region: Region) -> tuple[float, float]:
    """The least and largest value at corners and the centre: a guide to what is worth cutting, not a bound."""
    names = [n for n in region.names if n in expr.names]
    lower, upper = (ends[:, None] for ends in sub_region(region, names).floats)
    if len(names) <= policy.RANGE_CORNERS:
        corners = np.array(list(product((0.0, 1.0), repeat=len(names)))).T
    else:
        corners = np.random.default_rng(0).integers(0, 2, (len(names), 2**policy.RANGE_CORNERS)).astype(float)
    share = np.concatenate([corners, np.full((len(names), 1), 0.5)], axis=1)
    values = evaluate(expr, names, [*(lower * (1 - share) + upper * share)])
    values = values[np.isfinite(values)]
    return (float(values.min()), float(values.max())) if len(values) else (np.inf, -np.inf)


def find_tree(
    expr: Expr,
    region: Region,
    defined: Container[Expr] = (),
    tolerance: float = 2e-3,
    max_boxes: int = 2000,
) -> list[int]:
    """A tree for `ranges.range_on`: its range is at most ``tolerance`` too wide where ``max_boxes`` allow.

    Only a quarter of them is used unless they decide a sign.

    Raises
    ------
    NotProvenError
        If the expression is not shown to be defined on the region.

    Examples
    --------
    >>> from transformula.kernel.syntax.boxes import Box
    >>> from transformula.kernel.syntax.parsing import parse
    >>> find_tree(parse("x + y"), Region.of_box(Box.of("x=0..1, y=0..1")))
    [-1]
    """
    whole = _whole(expr, region, defined)
    if whole is not None and (each_once(expr) or not expr.names):
        return [-1]
    front = _Front(expr, region, [-1] if whole is not None else find_bounded(expr, region, defined))
    ends = (-np.inf, np.inf) if whole is None else (float(whole[0]), float(whole[1]))
    noise = TINY if whole is None else 1e-13 * max(map(abs, ends))  # nothing finer is seen
    reached = _values(expr, region)
    used = 0
    while True:
        checkpoint()
        slack = max(tolerance * (reached[1] - reached[0]), noise, 2e-15 * max(map(abs, reached)))
        sign = ends[0] <= 0 < reached[0] or ends[1] >= 0 > reached[1]
        if not sign and ends[0] >= reached[0] - slack and ends[1] <= reached[1] + slack:  # the whole will do
            return front.tree.preorder()
        front.look()
        used += len(front.nodes)
        known = np.isfinite(front.rest)
        if known.any():
            reached = (
                min(reached[0], float((front.value + front.rest)[known].min())),
                max(reached[1], float((front.value - front.rest)[known].max())),
            )
            slack = max(tolerance * (reached[1] - reached[0]), noise, 2e-15 * max(map(abs, reached)))
        low, high = front.low, front.high
        unbounded = np.flatnonzero(~(np.isfinite(low) & np.isfinite(high))).tolist()
        spend(len(unbounded) * costs.interval(expr))
        for k in unbounded:  # as `range_on` will do
            a, b = leaf_range(expr, region, front.lower[:, k], front.upper[:, k], defined)
            low[k], high[k] = np.fmax(low[k], float(a)), np.fmin(high[k], float(b))
        low, high = np.fmax(low, ends[0]), np.fmin(high, ends[1])
        worth = ~(np.isfinite(low) & np.isfinite(high))
        worth |= (low < reached[0] - slack) | (high > reached[1] + slack)
        deciding = (low <= 0) & (reached[0] > 0) | (high >= 0) & (reached[1] < 0)
        worth |= deciding
        most = max_boxes if deciding.any() else max_boxes // 4
        if not worth.any() or used + 2 * int(worth.sum()) > most or not front.cut(worth):
            return front.tree.preorder()


def find_sign_tree(expr: Expr, region: Region, defined: Container[Expr] = (), max_boxes: int = 3000) -> list[int]:
    """A tree for `ranges.sign_on`.

    Raises
    ------
    NotProvenError
        If the expression takes both signs, or the allowed number of parts does not show one.
    """
    whole = _whole(expr, region, defined)
    if whole is not None and (whole[0] >= 0 or whole[1] <= 0):
        return [-1]
    front = _Front(expr, region, [-1] if whole is not None else find_bounded(expr, region, defined))
    sign = 0
    used = 0
    while True:
        checkpoint()
        front.look()
        used += len(front.nodes)
        open_leaves = np.zeros(len(front.nodes), bool)
        for k in range(len(front.nodes)):
            sign = sign or _sign_at_centre(front.value[k], front.rest[k])
            if not undecided(front.low[k : k + 1], front.high[k : k + 1])[0]:
                seen = 1 if front.low[k] > 0 else -1
                if sign and seen != sign:
                    raise _changes(expr, region, front.lower[:, k], front.upper[:, k])
                continue
            spend(4 * costs.interval(expr))
            low, high = leaf_range(expr, region, front.lower[:, k], front.upper[:, k], defined, corner_range)
            open_leaves[k] = not (low >= 0 if sign > 0 else high <= 0)
            if (sign > 0 and high < 0) or (sign < 0 and low > 0):
                raise _changes(expr, region, front.lower[:, k], front.upper[:, k])
        if not open_leaves.any():
            return front.tree.preorder()
        if used + 2 * int(open_leaves.sum()) > max_boxes or not front.cut(open_leaves):
            raise NotProvenError(f"the sign of {short_text(expr)} is not seen on {used} parts of the box")


def _sign_at_centre(value: float, rest: float) -> int:
    return 1 if value > rest else -1 if value < -rest else 0


def _changes(expr: Expr, region: Region, lower: Floats, upper: Floats) -> NotProvenError:
    place = place_text(region.exact(lower, upper))
    return NotProvenError(f"{short_text(expr)} takes both signs, for example at {place}", place=place)


def find_parts(bound: Bound, lower: Floats, upper: Floats, terms: int = 0) -> list[int]:
    """A tree of the parts on which errors are followed (`cut_parts`)."""
    return _search(_counted(bound, terms), lower, upper)[0]


def cut_parts(bound: Bound, lower: Floats, upper: Floats, terms: int = 0) -> tuple[Floats, Floats]:
    """Parts of the box, shape (inputs, parts), cut where a bound is largest until that no longer helps.

    ``terms`` is the size of the circuit that the bound runs through (`costs.terms_of`).
    """
    return _search(_counted(bound, terms), lower, upper)[1:]


def _counted(bound: Bound, terms: int) -> Bound:
    """The bound, which counts its work and can be stopped."""

    def counted(lower: Floats, upper: Floats) -> Floats:
        checkpoint()
        spend(costs.flow(terms, lower.shape[1]))
        return bound(lower, upper)

    return counted


def _search(bound: Bound, lower: Floats, upper: Floats) -> tuple[list[int], Floats, Floats]:
    """Cut the box where a bound of parts, whose ends have shape (inputs, parts), is largest, while that helps."""
    low, high = lower[:, None], upper[:, None]
    tree = Tree()
    nodes = np.zeros(1, dtype=np.int64)
    bounds = bound(low, high)
    history = [float(bounds.max())]
    for _ in range(policy.MOST_ROUNDS):
        worst = bounds >= policy.FLOW_WORST * bounds.max()
        if low.shape[1] + worst.sum() > policy.FLOW_PARTS or not worst.any():
            break
        axis, cuttable = _cut_axis(bound, low[:, worst], high[:, worst])
        worst[np.flatnonzero(worst)[~cuttable]] = False
        axis = axis[cuttable]
        if not len(axis):
            break
        first = np.array([tree.split(*cut) for cut in zip(nodes[worst].tolist(), axis.tolist(), strict=True)])
        cut_low, cut_high = _halved(low[:, worst], high[:, worst], axis)
        kept = ~worst
        bounds = np.concatenate([bounds[kept], bound(cut_low, cut_high)])
        low = np.concatenate([low[:, kept], cut_low], axis=1)
        high = np.concatenate([high[:, kept], cut_high], axis=1)
        nodes = np.concatenate([nodes[kept], first, first + 1])
        history.append(float(bounds.max()))
        if len(history) > len(lower) + 2 and history[-1] > policy.STALLED * history[-len(lower) - 3]:
            break
    return tree.preorder(), low, high


def _cut_axis(bound: Bound, low: Floats, high: Floats) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The input whose width costs most: with it fixed at its middle, the bound is smallest."""
    middle = low + (high - low) / 2
    inputs, parts = low.shape
    least, along = np.full(parts, math.inf), np.full(parts, -1)
    flat_low, flat_high = np.tile(low, inputs), np.tile(high, inputs)
    for axis in range(inputs):
        flat_low[axis, axis * parts : (axis + 1) * parts] = middle[axis]
        flat_high[axis, axis * parts : (axis + 1) * parts] = middle[axis]
    for axis, here in enumerate(bound(flat_low, flat_high).reshape(inputs, parts)):
        better = (here < least) & (low[axis] < middle[axis]) & (middle[axis] < high[axis])
        least, along = np.where(better, here, least), np.where(better, axis, along)
    return along, along >= 0


def _halved(low: Floats, high: Floats, axis: NDArray[np.int64]) -> tuple[Floats, Floats]:
    left_high, right_low = high.copy(), low.copy()
    for part, along in enumerate(axis.tolist()):
        middle = halfway(float(low[along, part]), float(high[along, part]))
        left_high[along, part] = right_low[along, part] = middle
    return np.concatenate([low, right_low], axis=1), np.concatenate([left_high, high], axis=1)
