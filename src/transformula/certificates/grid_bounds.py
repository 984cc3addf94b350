"""Proof rule for a softmax table on a tensor grid in 2 to 4 variables.

T's polynomial on a box comes from `sheets`, f's Taylor model from `modelling`; the polynomial of
T + alpha.x + gamma - f is bounded by its tensor Bernstein coefficients on parts of the box, and the
rests are added.

Boxes above the target are cut in 2**d; if f's rest is to blame (a kink, a singular place), only
along the axes that lower it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb
from numpy.typing import NDArray

from transformula.certificates.axis_models import Axis
from transformula.certificates.grid_models import Grid, Sheets
from transformula.formulas.enclosures import precision
from transformula.formulas.expression import Expr
from transformula.taylor import bernstein
from transformula.taylor.modelling import model_of, to_tensor
from transformula.taylor.models import TINY, UP, boxes_of
from transformula.taylor.ranges import check_defined
from transformula.taylor.results import DEFAULT_LIMITS, Bound, Floats, Ints, Limits

Mask = NDArray[np.bool_]

_BITS = 96
_ORDERS = {1: 12, 2: 10, 3: 9, 4: 7}
_PARTS = {1: 4, 2: 2, 3: 2, 4: 1}
_CHUNK = {1: 4096, 2: 1024, 3: 512, 4: 256}
_MAX_LEVELS = 60
#: Order of the models that only choose where to cut.
_ROUGH = 4


def bound_grid(
    expr: Expr,
    variables: Sequence[str],
    box: Sequence[tuple[arb, arb]],
    grid: Grid,
    target: float | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Bound:
    """Prove a bound of sup abs(T(x) + alpha.x + gamma - f(x)) on a box.

    Parameters
    ----------
    box : pairs of arb
        Balls around the exact ends for each variable.
    target : float, optional
        Stop when the bound is at most this. Without it, refine until the bound is tight.

    Raises
    ------
    NotProvenError
        If f is undefined or unbounded in the box.
    """
    with precision(_BITS):
        ends = {n: (a.lower(), b.upper()) for n, (a, b) in zip(variables, box, strict=True)}
        check_defined(expr, ends)
        return _Prover(expr, tuple(variables), box, grid, limits).run(target)


@dataclass
class _State:
    """What is known so far: the proven bound of the finished boxes, and an error that occurs."""

    bound: float = 0.0
    place: tuple[Floats, Floats] | None = None
    seen: float = 0.0
    boxes: int = 0

    def take(self, bounds: Floats, lower: Floats, upper: Floats) -> None:
        """Accept the bounds of some boxes."""
        if len(bounds) and (self.place is None or bounds.max() > self.bound):
            worst = int(bounds.argmax())
            self.bound = float(bounds[worst])
            self.place = lower[:, worst], upper[:, worst]


class _Prover:
    def __init__(
        self,
        expr: Expr,
        variables: tuple[str, ...],
        box: Sequence[tuple[arb, arb]],
        grid: Grid,
        limits: Limits,
    ) -> None:
        self.expr, self.variables, self.grid, self.limits = expr, variables, grid, limits
        self.dimension = len(variables)
        if self.dimension not in _ORDERS:
            raise ValueError(f"a grid of {self.dimension} variables; at most {max(_ORDERS)}")
        self.order = limits.order or _ORDERS[self.dimension]
        self.parts = _PARTS[self.dimension]
        edges = [first_edges(a, *ends) for a, ends in zip(grid.axes, box, strict=True)]
        self.lower, self.upper = products([e[:-1] for e in edges]), products([e[1:] for e in edges])
        self.deadline = time.monotonic() + limits.seconds

    def run(self, target: float | None) -> Bound:
        lower, upper = self.lower, self.upper
        state = _State()
        bounds = np.full(lower.shape[1], np.inf)
        for _ in range(_MAX_LEVELS):
            again, blame, stopped = self._level(lower, upper, bounds, state, target)
            if not again.any() or stopped:
                break
            lower, upper, bounds = lower[:, again], upper[:, again], bounds[again]
            axes = self._axes_to_cut(lower, upper, blame[again])
            lower, upper, origin = _cut(lower, upper, axes)
            bounds = bounds[origin]
        place = state.place or (np.array([]), np.array([]))
        goal = target if target is not None else max(self._tight(state), TINY)
        return Bound(
            state.bound,
            state.boxes,
            state.bound <= goal,
            (tuple(place[0].tolist()), tuple(place[1].tolist())),
            state.seen,
        )

    def _tight(self, state: _State) -> float:
        return max(self.limits.tightness, 1.5) * state.seen

    def _level(
        self, lower: Floats, upper: Floats, bounds: Floats, state: _State, target: float | None
    ) -> tuple[Mask, Mask, bool]:
        """Lower the bounds of the boxes.

        Returns
        -------
        again, blame : arrays of bool
            Which boxes to cut further, and where f's rest is most of the bound.
        stopped : bool
            Whether the limits are reached.
        """
        sheets = Sheets(self.grid, lower, upper, self.order)
        count = lower.shape[1]
        rests = np.zeros(count)
        noise = np.zeros(count)
        size = _CHUNK[self.dimension]
        for start in range(0, count, size):
            part = slice(start, start + size)
            if time.monotonic() > self.deadline or state.boxes >= self.limits.boxes:
                break
            here, noise[part], rests[part], seen = self._bound(sheets, part, lower[:, part], upper[:, part])
            bounds[part] = np.minimum(bounds[part], here)
            state.boxes += bounds[part].size
            if self.limits.progress:
                self.limits.progress(state.boxes, count - start - bounds[part].size)
            state.seen = max(state.seen, seen)
        goal = self._tight(state)
        if target is not None:
            goal = max(goal, target) if state.seen > target else target
        stuck = (noise > 0.5 * bounds) & (bounds > goal)  # cutting can not help against rounding
        if stuck.any():
            goal = float(bounds[stuck].max())
        done = bounds <= max(goal, state.bound)
        stopped = time.monotonic() > self.deadline
        stopped |= state.boxes + 2 * int((~done).sum()) > self.limits.boxes
        if stopped:
            done = np.ones_like(done)
        state.take(bounds[done], lower[:, done], upper[:, done])
        return ~done, rests > 0.5 * bounds, bool(stopped)

    def _bound(
        self, sheets: Sheets, part: slice, lower: Floats, upper: Floats
    ) -> tuple[Floats, Floats, Floats, float]:
        """Proven bounds, the shares of rounding and of f's rest, and an error that occurs."""
        centre, radius = boxes_of(lower, upper)
        model = model_of(self.expr, self.variables, centre, radius, self.order)
        table, table_rest, rounding = sheets.table(part)
        goal = to_tensor(model)
        difference = np.ascontiguousarray(table - goal)
        affine_wrong = self._add_affine(difference, centre, radius)
        boxes = difference.shape[0]
        norm = (np.abs(table) + np.abs(goal)).reshape(boxes, -1).sum(axis=1)
        rounding = (rounding + (norm * UP + affine_wrong) * bernstein.ROUNDING * 2) * UP
        wrong = (model.rest + table_rest + rounding) * UP + TINY
        values = np.abs(bernstein.coefficients(difference, self.parts))
        bounds = (values.reshape(boxes, -1).max(axis=1) + wrong) * UP
        bounds = np.where(np.isfinite(bounds), bounds, np.inf)
        corner = values.reshape(boxes, -1)[:, 0]
        middle = np.abs(difference.reshape(boxes, -1)[:, 0])
        reached = np.maximum(corner, middle) - wrong
        reached = np.where(np.isfinite(reached), reached, 0.0)
        return bounds, rounding, model.rest, max(float(reached.max()), 0.0)

    def _axes_to_cut(self, lower: Floats, upper: Floats, blame: Mask) -> Mask:
        """Axes, shape (d, boxes): all, or where f's rest is to blame those that lower it."""
        axes = np.ones(lower.shape, dtype=np.bool_)
        centre, radius = boxes_of(lower[:, blame], upper[:, blame])
        if not blame.any():
            return axes
        rest = self._rest(centre, radius)
        for axis in range(self.dimension):
            narrow = radius.copy()
            narrow[axis] /= 2
            with np.errstate(invalid="ignore"):
                axes[axis, blame] = ~(self._rest(centre, narrow) > 0.85 * rest)
        axes[:, ~axes.any(axis=0)] = True
        return axes

    def _rest(self, centre: Floats, radius: Floats) -> Floats:
        order = min(self.order, _ROUGH)
        size = 4096
        parts = [slice(k, k + size) for k in range(0, centre.shape[1], size)]
        models = [model_of(self.expr, self.variables, centre[:, p], radius[:, p], order) for p in parts]
        return np.concatenate([m.rest for m in models])

    def _add_affine(self, terms: Floats, centre: Floats, radius: Floats) -> Floats:
        """Add alpha.x + gamma to the polynomials; returns the sizes of what was added."""
        flat = terms.reshape(len(terms), -1)  # a view: power p of t_axis sits at p * strides[axis]
        strides = [self.order ** (self.dimension - 1 - k) for k in range(self.dimension)]
        added = np.full(centre.shape[1], abs(self.grid.constant))
        flat[:, 0] += self.grid.constant
        for axis, slope in enumerate(self.grid.slopes):
            flat[:, 0] += slope * centre[axis]
            flat[:, strides[axis]] += slope * radius[axis]
            added = added + abs(slope) * (np.abs(centre[axis]) + radius[axis])
        return added


def first_edges(axis: Axis, lower: arb, upper: arb) -> Floats:
    """Edges of the first boxes: where neighbouring tokens hand over, ends rounded outward."""
    low, high = _below(lower), -_below(-upper)
    order = np.argsort(axis.slopes)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        at = -np.diff(axis.offsets[order]) / np.diff(axis.slopes[order])
    at = np.unique(at[np.isfinite(at)])
    gap = (high - low) * 1e-9
    marks = [low]
    for mark in at.tolist():
        if mark - marks[-1] > gap and high - mark > gap:
            marks.append(mark)
    return np.array([*marks, high])


def _below(x: arb) -> float:
    value = float(x.lower())
    while not arb(value) <= x:
        value = math.nextafter(value, -math.inf)
    return value


def halve(edges: Floats) -> Floats:
    """Cut every interval in two."""
    middle = edges[:-1] + (edges[1:] - edges[:-1]) / 2
    result = np.empty(2 * len(edges) - 1)
    result[0::2], result[1::2] = edges, middle
    return result


def products(parts: Sequence[Floats]) -> Floats:
    """All combinations of one number from each array, shape (d, combinations)."""
    return np.stack(np.meshgrid(*parts, indexing="ij")).reshape(len(parts), -1)


def _cut(lower: Floats, upper: Floats, axes: Mask) -> tuple[Floats, Floats, Ints]:
    """Halve boxes along the chosen axes; also says which box each part comes from."""
    origin = np.arange(lower.shape[1])
    for axis, chosen in enumerate(axes):
        pick = chosen[origin]
        middle = lower[axis] + (upper[axis] - lower[axis]) / 2
        left, right = upper.copy(), lower[:, pick]
        left[axis, pick] = middle[pick]
        right[axis] = middle[pick]
        lower = np.concatenate([lower, right], axis=1)
        upper = np.concatenate([left, upper[:, pick]], axis=1)
        origin = np.concatenate([origin, origin[pick]])
    return lower, upper, origin
