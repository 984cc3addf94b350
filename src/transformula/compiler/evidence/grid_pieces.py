"""Cuts of the box of a grid's arguments, or the cells of a partition, so that the kernel's bounds are tight.

Boxes above the target are cut into 2**d; if the function's remainder is the cause (a corner, a singular place), only
along the axes that lower it. Every leaf is kept: the kernel bounds exactly these leaves again. Of a partition, only
the worst cells are cut, near which a range is surely overestimated, and cells without a range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from flint import arb
from numpy.typing import NDArray

from transformula.budget import checkpoint, report, spend
from transformula.compiler import policy
from transformula.compiler.evidence import costs
from transformula.compiler.evidence.table_pieces import turns
from transformula.formula.evaluation import evaluate, increasing
from transformula.kernel.arithmetic import at_most, precision
from transformula.kernel.enclosures.balls import round_up
from transformula.kernel.enclosures.expression_ranges import enclose_ranges, models_on
from transformula.kernel.enclosures.regions import BallEnds, DefinedCells, products
from transformula.kernel.enclosures.taylor_models import TINY, Floats, boxes_of
from transformula.kernel.exceptions import NotProvenError
from transformula.kernel.rounding.softmax import ORDERS as SOFTMAX_ORDERS
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.tables.cell_error import BITS as CELL_BITS
from transformula.kernel.tables.cell_error import ORDER, far_of, used_cells
from transformula.kernel.tables.grid_error import BITS, MAX_LEAVES, ORDERS, Bounds, bounds_on
from transformula.kernel.tables.table_error import SoftmaxTable

Mask = NDArray[np.bool_]

#: Order of the models that choose where to cut.
_ROUGH = 4
#: Cells between two checkpoints where each is looked at by exact intervals.
_CELLS = 64
#: Halvings of all intervals of a rounding bound, by the number of axes.
_CUTS = {1: 1, 2: 1, 3: 0, 4: 0}
_BUDGET = "the budget of boxes to examine ran out"
_TOO_SMALL = "a box became too small to be cut"


def find_pieces(
    table: SoftmaxTable,
    function: Expr,
    names: Sequence[str],
    ends: Sequence[BallEnds],
    target: float | None = None,
    budget: int = MAX_LEAVES,
) -> dict[str, Any]:
    """Find edges and trees for `grid_error.grid_error` from at most ``budget`` boxes.

    The bound ``target`` is good enough where no tight one is found.
    """
    edges = [first_edges(a, b, *e) for a, b, e in zip(table.slopes, table.offsets, ends, strict=True)]
    lower, upper = products([e[:-1] for e in edges]), products([e[1:] for e in edges])
    levels: list[Mask] = []
    settled = seen = 0.0
    if lower.shape[1] > budget:
        raise _refusal(function, "it has too many tokens", math.inf, seen)
    enough = 0.0 if target is None else target
    examined = 0
    with precision(BITS):
        cells = DefinedCells(function, names, ends)
        while True:
            checkpoint()
            intervals = sum(len(np.unique(low + 1j * high)) for low, high in zip(lower, upper, strict=True))
            spend(costs.grid(table, function, lower.shape[1], intervals))
            checkpoint()
            bounds = bounds_on(table, function, names, lower, upper)
            error = bounds.error
            examined += lower.shape[1]
            seen = max(seen, float(bounds.reached.max()))
            done = error <= max(_goal(bounds, seen, enough), settled)
            done[done] = _defined(cells, lower[:, done], upper[:, done])
            settled = float(np.max(error[done], initial=settled))
            best = max(settled, float(error.max()))
            report("proving", examined, int((~done).sum()))
            left, blame = ~done, bounds.rest > 0.5 * error
            axes = np.zeros(lower.shape, dtype=np.bool_)
            axes[:, left] = _axes_to_cut(function, names, lower[:, left], upper[:, left], blame[left])
            levels.append(axes)
            if done.all():
                break
            halves = cut_boxes(lower, upper, axes)
            spent = examined + halves[0].shape[1] > budget or len(levels) > policy.MOST_ROUNDS
            if spent or not (halves[0] < halves[1]).all():
                if not (best <= enough and _defined(cells, lower, upper).all()):
                    raise _refusal(function, _BUDGET if spent else _TOO_SMALL, best, seen)
                axes[:] = False
                break
            lower, upper = halves
    return {"edges": [e.tolist() for e in edges], "trees": trees_of(levels)}


def _defined(cells: DefinedCells, lower: Floats, upper: Floats) -> Mask:
    """The cells on which a function is defined, in chunks between which the search can be stopped."""
    if cells.everywhere:
        return cells.on(lower, upper)
    found = np.ones(lower.shape[1], dtype=np.bool_)
    for start in range(0, lower.shape[1], _CELLS):
        part = slice(start, start + _CELLS)
        checkpoint()
        spend(costs.defined(cells.function, found[part].size))
        found[part] = cells.on(lower[:, part], upper[:, part])
    return found


def _goal(bounds: Bounds, seen: float, enough: float) -> float:
    """The bound at which a box need not be cut; where rounding is the cause, cuts cannot help."""
    goal = max(policy.GRID_TIGHTNESS * seen, policy.GRID_NEGLIGIBLE * enough, TINY)
    stuck = (bounds.rounding > 0.5 * bounds.error) & (bounds.error > goal)
    return float(np.max(bounds.error[stuck], initial=goal))


def _refusal(function: Expr, reason: str, best: float, seen: float) -> NotProvenError:
    proven = best if math.isfinite(best) else None
    said = f"the best bound of its error is {at_most(best)}" if proven else f"an error of {seen:.3g} was seen"
    return NotProvenError(f"a table of {function} is not proven: {reason}; {said}", best_bound=proven, measured=seen)


def _axes_to_cut(function: Expr, names: Sequence[str], lower: Floats, upper: Floats, blame: Mask) -> Mask:
    """Axes, shape (d, boxes): all, or where the function's remainder is the cause, those that lower it."""
    axes = np.ones(lower.shape, dtype=np.bool_)
    if not blame.any():
        return axes
    lower, upper = lower[:, blame], upper[:, blame]
    spend((1 + len(names)) * costs.models(function, lower.shape[1]))
    rest = _rest(function, names, lower, upper)
    for axis in range(len(names)):
        quarter = (upper[axis] - lower[axis]) / 4
        inner, outer = lower.copy(), upper.copy()
        inner[axis] += quarter
        outer[axis] -= quarter
        with np.errstate(invalid="ignore"):
            axes[axis, blame] = ~(_rest(function, names, inner, outer) > 0.85 * rest)
    axes[:, ~axes.any(axis=0)] = True
    return axes


def _rest(function: Expr, names: Sequence[str], lower: Floats, upper: Floats) -> Floats:
    """The remainders of rough Taylor models."""
    order = min(ORDERS[len(names)], _ROUGH)
    return np.concatenate([model.rest for _, model in models_on(function, tuple(names), lower, upper, order)])


def cut_boxes(lower: Floats, upper: Floats, axes: Mask) -> tuple[Floats, Floats]:
    """The open boxes, halved along the chosen axes: parts of a box side by side, as in a tree's preorder."""
    chosen = axes.any(axis=0)
    lower, upper, axes = lower[:, chosen], upper[:, chosen], axes[:, chosen]
    for axis in range(len(lower)):
        copies = np.repeat(np.arange(lower.shape[1]), 1 + axes[axis])
        second = np.concatenate([[False], copies[1:] == copies[:-1]])
        first = np.concatenate([second[1:], [False]])
        lower, upper, axes = lower[:, copies], upper[:, copies], axes[:, copies]
        middle = lower[axis] + (upper[axis] - lower[axis]) / 2
        lower[axis, second] = middle[second]
        upper[axis, first] = middle[first]
    return lower, upper


def trees_of(levels: Sequence[Mask]) -> list[list[int]]:
    """Preorder lists from the axes cut at each level."""
    cuts = [[np.flatnonzero(column).tolist() for column in level.T] for level in levels]
    first = [np.concatenate([[0], np.cumsum([2 ** len(c) if c else 0 for c in level])]) for level in cuts]
    trees = []
    for box in range(len(cuts[0])):
        tree: list[int] = []
        stack: list[tuple[int, int, list[int]]] = [(0, box, [])]  # level, first of its parts, axes left to cut
        while stack:
            level, part, axes = stack.pop()
            if axes:
                tree.append(axes[0])
                stack.append((level, part + 2 ** (len(axes) - 1), axes[1:]))
                stack.append((level, part, axes[1:]))
            elif cuts[level][part]:
                stack.append((level + 1, int(first[level][part]), cuts[level][part]))
            else:
                tree.append(-1)
        trees.append(tree)
    return trees


def first_edges(slopes: Floats, offsets: Floats, lower: arb, upper: arb) -> Floats:
    """Edges of the first boxes: where neighbouring tokens have equal scores, ends rounded outward."""
    low, high = -round_up(-lower), round_up(upper)
    return np.array(turns(slopes, offsets, low, max(high, math.nextafter(low, math.inf))))


def find_softmax(table: SoftmaxTable, ends: Sequence[BallEnds]) -> list[list[float]]:
    """Edges for `softmax.rounding_bound`: intervals on which the weights' Taylor models converge."""
    d = len(table.slopes)
    axes = zip(table.slopes, table.offsets, ends, strict=True)
    values = table.values if d == 1 else None
    return [_fine_edges(a, b, e, SOFTMAX_ORDERS[d], _CUTS[d], values).tolist() for a, b, e in axes]


def _fine_edges(
    slopes: Floats, offsets: Floats, ends: BallEnds, order: int, cuts: int, values: Floats | None = None
) -> Floats:
    """Edges of intervals for one axis; small weights matter more if ``values`` exceed the table's own range."""
    edges = first_edges(slopes, offsets, *ends)
    for _ in range(cuts):
        edges = increasing(np.concatenate([edges, edges[:-1] + np.diff(edges) / 2]))
    for _ in range(policy.MOST_ROUNDS):
        centre, radius = boxes_of(edges[:-1], edges[1:])
        scores = slopes * centre[:, None] + offsets
        scores -= scores.max(axis=1, keepdims=True)
        weights = np.exp(scores)
        weights /= weights.sum(axis=1, keepdims=True)
        rates = np.abs(slopes - weights @ slopes[:, None]) * radius[:, None]
        growth = np.exp(np.clip(scores + rates, -700.0, 100.0))
        if values is not None:
            growth *= np.maximum(np.abs(values) / max(float(np.abs(weights @ values).max()), 1e-300), 1.0)
        lost = (growth * rates**order).sum(axis=1) / math.factorial(order)
        bad = lost > policy.SOFTMAX_LOSS
        finer = increasing(np.concatenate([edges, centre[bad]]))
        if len(finer) == len(edges):
            break
        edges = finer
    return edges


def find_partition_cells(
    table: SoftmaxTable,
    function: Expr,
    names: Sequence[str],
    ends: Sequence[BallEnds],
    far_bits: int,
    shifts: Sequence[float] = (),
) -> list[list[int]] | None:
    """Trees for `cell_error.partition_bound`; None if no cell needs to be cut."""
    with precision(CELL_BITS):
        lower, upper, values = used_cells(table, ends, far_of(int(np.size(table.values)), far_bits), shifts)
    levels: list[Any] = []
    settled = 0.0
    cells = DefinedCells(function, names, ends)
    while True:
        checkpoint()
        spend(costs.models(function, lower.shape[1], ORDER))
        low, high = enclose_ranges(function, names, lower, upper, order=ORDER)
        with np.errstate(invalid="ignore"):
            error = np.maximum(high - values, values - low)
        known = np.isfinite(error)
        known[known] = _defined(cells, lower[:, known], upper[:, known])
        cut = (error > policy.STALLED * _attained(function, names, lower, upper, values)) & (error > settled) | ~known
        if len(levels) == policy.PARTITION_ROUNDS or cut.sum() > policy.PARTITION_CUTS:
            if not known.all():
                raise NotProvenError(f"{function} could not be bounded on the cells of a partition")
            cut[:] = False
        settled = float(np.max(error[~cut], initial=settled))
        axes = np.broadcast_to(cut, lower.shape)
        levels.append(axes)
        if not cut.any():
            return trees_of(levels) if len(levels) > 1 else None
        lower, upper = cut_boxes(lower, upper, axes)
        values = np.repeat(values[cut], 2 ** len(names))


def _attained(function: Expr, names: Sequence[str], lower: Floats, upper: Floats, values: Floats) -> float:
    """An error that some cell's middle or corner comes close to: only a guide for cutting."""
    worst = 0.0
    for points in (lower, upper, lower + (upper - lower) / 2):
        with np.errstate(all="ignore"):
            error = np.abs(evaluate(function, list(names), list(points)) - values)
        worst = max(worst, float(np.max(error[np.isfinite(error)], initial=0.0)))
    return worst
