"""Where to cut the box of a grid table's arguments, so that the kernel's bounds on the pieces are small.

Boxes above the target are cut into 2**d; if the function's remainder is the cause (a kink, a singular place), only
along the axes that lower it. Every leaf is kept: the kernel bounds exactly these leaves again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from flint import arb
from numpy.typing import NDArray

from transformula.budget import checkpoint, spend
from transformula.compiler.evidence import costs
from transformula.compiler.evidence.table_pieces import turns
from transformula.errors import UnboundedError
from transformula.formula.evaluation import increasing
from transformula.kernel.arithmetic import precision
from transformula.kernel.digits import at_most
from transformula.kernel.enclosures.balls import round_up
from transformula.kernel.enclosures.coverings import Ends, defined_on, products
from transformula.kernel.enclosures.expression_models import model_of
from transformula.kernel.enclosures.taylor_models import TINY, Floats, boxes_of
from transformula.kernel.exceptions import NotProvenError
from transformula.kernel.rounding.softmax import ORDERS as SOFTMAX_ORDERS
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.tables.grid_error import BITS, MAX_LEAVES, ORDERS, bounds_on
from transformula.kernel.tables.table_error import SoftmaxTable
from transformula.progress import report

Mask = NDArray[np.bool_]

_MAX_LEVELS = 60
#: Without a target: refine until the bound is at most this times an error that occurs.
_TIGHTNESS = 1.5
#: An error that occurs and is so many times the target leaves nothing to prove: any bound will do for the refusal.
_HOPELESS, _LOOSE, _SHARE = 2.0, 4.0, 4
#: A bound this small beside the target is not worth tightening.
_NEGLIGIBLE = 1e-6
#: Order and number at once of the models that only choose where to cut.
_ROUGH, _CHUNK = 4, 4096
#: Halvings of all intervals of a rounding bound by the number of axes; what a weight's series may leave out.
_CUTS = {1: 1, 2: 1, 3: 0, 4: 0}
_COARSE = 0.01
_MAX_HALVINGS = 80
#: Boxes without any bound, and levels at which they did not become fewer, before they are given up.
_MANY_UNBOUNDED, _PATIENT_LEVELS = 100, 4
_NO_BOUND = "along an edge of the box its derivatives are unbounded"


def find_pieces(
    table: SoftmaxTable,
    function: Expr,
    names: Sequence[str],
    ends: Sequence[Ends],
    target: float | None = None,
    budget: int = MAX_LEAVES,
) -> dict[str, Any]:
    """Find edges and trees for `kernel.grids.grid_error`.

    Parameters
    ----------
    target : float, optional
        A bound that is good enough where no tight one is found.
    budget : int
        Boxes that may be examined.

    Raises
    ------
    NotProvenError
        With the best bound, if the budget is spent or boxes get too small.
    """
    starts = zip(table.slopes, table.offsets, ends, strict=True)
    edges = [first_edges(a, b, *e) for a, b, e in starts]
    lower, upper = products([e[:-1] for e in edges]), products([e[1:] for e in edges])
    levels: list[Mask] = []
    unbounded: list[int] = []
    settled = seen = 0.0
    if lower.shape[1] > budget:
        raise _refusal(function, "it has too many tokens", math.inf, seen)
    best, examined, enough = math.inf, 0, 0.0 if target is None else target
    with precision(BITS):
        while True:
            checkpoint()
            spend(costs.grid(table, function, lower.shape[1]))
            bounds = bounds_on(table, function, names, lower, upper)
            error = bounds.error
            examined += lower.shape[1]
            seen = max(seen, float(bounds.reached.max()))
            hopeless = target is not None and seen > _HOPELESS * target
            goal = max((_LOOSE if hopeless else _TIGHTNESS) * seen, _NEGLIGIBLE * enough, TINY)
            stuck = (bounds.rounding > 0.5 * error) & (error > goal)  # cutting cannot help against rounding
            goal = float(np.max(error[stuck], initial=goal))
            done = error <= max(goal, settled)
            done[done] = defined_on(function, names, ends, lower[:, done], upper[:, done])
            settled = float(np.max(error[done], initial=settled))
            best = max(settled, float(error.max()))
            report("proving", examined, int((~done).sum()))
            axes = np.zeros(lower.shape, dtype=np.bool_)
            axes[:, ~done] = _axes_to_cut(function, names, lower[:, ~done], upper[:, ~done],
                                          (bounds.rest > 0.5 * error)[~done])  # fmt: skip
            levels.append(axes)
            if done.all():
                break
            halves = cut_boxes(lower, upper, axes)
            most = budget // _SHARE if hopeless else budget
            spent = examined + halves[0].shape[1] > most or len(levels) > _MAX_LEVELS
            unbounded.append(int((~np.isfinite(error)).sum()))
            lost = _never_bounded(unbounded)
            if spent or lost or not (halves[0] < halves[1]).all():
                if not (best <= enough and defined_on(function, names, ends, lower, upper).all()):
                    reason = "the budget of boxes to examine ran out" if spent else "a box became too small to be cut"
                    reason = _NO_BOUND if lost else reason
                    raise _refusal(function, reason, best, seen, UnboundedError if lost else NotProvenError)
                axes[:] = False
                break
            lower, upper = halves
    return {"edges": [e.tolist() for e in edges], "trees": trees_of(levels)}


def _never_bounded(counts: Sequence[int]) -> bool:
    """Whether boxes without any bound only multiply, however often they are cut."""
    last = counts[-_PATIENT_LEVELS:]
    return len(last) == _PATIENT_LEVELS and last[0] > _MANY_UNBOUNDED and sorted(last) == last


def _refusal(
    function: Expr, reason: str, best: float, seen: float, kind: type[NotProvenError] = NotProvenError
) -> NotProvenError:
    proven = best if math.isfinite(best) else None
    said = f"the best bound of its error is {at_most(best)}" if proven else f"an error of {seen:.3g} was seen"
    return kind(f"a table of {function} is not proven: {reason}; {said}", best_bound=proven, measured=seen)


def _axes_to_cut(function: Expr, names: Sequence[str], lower: Floats, upper: Floats, blame: Mask) -> Mask:
    """Axes, shape (d, boxes): all, or where the function's remainder is the cause, those that lower it."""
    axes = np.ones(lower.shape, dtype=np.bool_)
    if not blame.any():
        return axes
    centre, radius = boxes_of(lower[:, blame], upper[:, blame])
    spend((1 + len(names)) * costs.models(function, centre.shape[1]))
    rest = _rest(function, names, centre, radius)
    for axis in range(len(names)):
        narrow = radius.copy()
        narrow[axis] /= 2
        with np.errstate(invalid="ignore"):
            axes[axis, blame] = ~(_rest(function, names, centre, narrow) > 0.85 * rest)
    axes[:, ~axes.any(axis=0)] = True
    return axes


def _rest(function: Expr, names: Sequence[str], centre: Floats, radius: Floats) -> Floats:
    order = min(ORDERS[len(names)], _ROUGH)
    parts = [slice(k, k + _CHUNK) for k in range(0, centre.shape[1], _CHUNK)]
    return np.concatenate([model_of(function, tuple(names), centre[:, p], radius[:, p], order).rest for p in parts])


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


def find_softmax(table: SoftmaxTable, ends: Sequence[Ends]) -> list[list[float]]:
    """Edges for `kernel.softmax.rounding_bound`: intervals on which the weights' Taylor models converge."""
    d = len(table.slopes)
    axes = zip(table.slopes, table.offsets, ends, strict=True)
    values = table.values if d == 1 else None
    return [_fine_edges(a, b, e, SOFTMAX_ORDERS[d], _CUTS[d], values).tolist() for a, b, e in axes]


def _fine_edges(
    slopes: Floats, offsets: Floats, ends: Ends, order: int, cuts: int, values: Floats | None = None
) -> Floats:
    """If ``values`` are larger than the table's own range, small weights matter that much more."""
    edges = first_edges(slopes, offsets, *ends)
    for _ in range(cuts):
        edges = increasing(np.concatenate([edges, edges[:-1] + np.diff(edges) / 2]))
    for _ in range(_MAX_HALVINGS):
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
        bad = lost > _COARSE
        finer = increasing(np.concatenate([edges, centre[bad]]))
        if len(finer) == len(edges):
            break
        edges = finer
    return edges
