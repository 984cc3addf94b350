r"""Tables in several variables: a tensor grid of one-dimensional softmaxes.

One head whose tokens are all pairs (triples, ...) of axis tokens, with scores added, factorises:

.. math::  T(x) = \sum_{j, k, \dots} Y_{jk\dots}\, u_j(x_1)\, v_k(x_2) \cdots

so each axis needs scores whose softmax spans the *sections* of f along that axis.  The sections
are compressed by a singular value decomposition (a function of rank R has R of them), the scores
of the axis are fitted to all of them at once, and the value tensor is the Kronecker least-squares
solution, one small QR an axis.  With P_k the projection along axis k,

.. math::  f - T = (f - P_1 f) + P_1 (f - P_2 f) + \cdots

hence the tolerance is shared between the axes so that the product of the sizes is smallest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from transformula.budget import checkpoint
from transformula.compiler import policy
from transformula.compiler.tables.descent import (
    FitProblem,
    FitState,
    Fresh,
    improve,
    part_left,
    solve_values,
)
from transformula.compiler.tables.fit_task import CannotFit, acceptable
from transformula.compiler.tables.softmax_table import (
    UNIT_ROUNDOFF,
    Array,
    FittedTable,
    least_squares,
    multiply_axes,
    score_roundoff,
    softmax_weights,
    to_dtype,
)
from transformula.compiler.tables.start_scores import Leaves, Scores, resolve, sample, split, starts, worst_tokens

GridFunction = Callable[..., NDArray[np.float64]]

MAX_POINTS = 20_000_000  # points of a mesh: its values are held several times over


class _GridSearch(NamedTuple):
    """The cheapest grid, or the best failure; whether it meets the tolerance; and the largest |f|."""

    grid: FittedTable
    enough: bool
    largest: float

    def may_improve(self, eps: float) -> bool:
        """Whether smaller values may help: rounding is the larger error, not far off, and not that of any values."""
        grid = self.grid
        least = (
            UNIT_ROUNDOFF[grid.dtype] * (sum(grid.values.shape) + 6) * self.largest
        )  # half the model, without scores
        close = grid.total_error <= 100 * eps and least <= eps
        return close and grid.rounding_estimate >= grid.error_estimate


def fit_grid(
    f: GridFunction,
    lowers: Sequence[float],
    uppers: Sequence[float],
    eps: float,
    dtype: str = "float64",
    *,
    max_tokens: int,
) -> FittedTable:
    """Find a small tensor grid of 2 to 4 axes with ``|T - f| + rounding <= eps`` on the box; f broadcasts.

    Raises `CannotFit` if no grid meets the tolerance of which the product of the axis sizes is at most ``max_tokens``.
    """
    best: FittedTable | None = None
    for caution in policy.GRID_PRICES:
        with np.errstate(over="ignore", invalid="ignore"):  # candidates that diverge are dropped by their cost
            axes = [_GridAxis.make(f, lowers, uppers, k, eps, dtype, caution) for k in range(len(lowers))]
            found = _search(f, axes, eps, dtype, max_tokens)
        if found.enough:
            return found.grid
        best = found.grid if best is None or found.grid.total_error < best.total_error else best
        if not found.may_improve(eps):
            break
    assert best is not None
    if best.total_error <= eps:
        return best  # without headroom: the proof decides
    message = f"no grid of at most {max_tokens} tokens met eps = {eps:g}; best total: {best.total_error:.3g}"
    raise CannotFit(message, best)


def _search(f: GridFunction, axes: Sequence[_GridAxis], eps: float, dtype: str, max_tokens: int) -> _GridSearch:
    """The cheapest grid on these axes, or the best failure."""
    points = policy.GRID_POINTS[len(axes)]
    mesh, check = _mesh(axes, points), _mesh(axes, 2 * points + 1)
    target, truth = on_mesh(f, mesh), on_mesh(f, check)
    largest = float(np.abs(target).max())
    share = goal = policy.APPROXIMATION_SHARE * eps
    best: FittedTable | None = None
    worse = 0  # smaller goals in a row that made no better grid
    for _ in range(8):
        sizes = _cheapest_sizes(axes, goal, max_tokens)
        hopeless = sizes is None
        if sizes is None:  # build the best there is, to report its error
            sizes = _largest_sizes(axes, max_tokens)
        states = [axis.curve[size] for axis, size in zip(axes, sizes, strict=True)]
        grid = _solve_grid(axes, states, mesh, target, check, truth, eps, dtype)
        if acceptable(grid, eps):
            return _GridSearch(grid, True, largest)
        better = best is None or grid.total_error < best.total_error
        best, worse = (grid, 0) if better else (best, worse + 1)
        if hopeless or worse == 3:
            break
        goal *= min(0.8, share / max(grid.error_estimate, 1e-300))
    assert best is not None
    return _GridSearch(best, False, largest)


def on_mesh(f: GridFunction, axes: Sequence[Array]) -> NDArray[np.float64]:
    """Values of f on the tensor product of the coordinates; refuses values that are not finite."""
    count = math.prod(len(x) for x in axes)
    if count > MAX_POINTS:
        raise CannotFit(f"f is so uneven that {count:.2g} points would be needed to measure a grid", None)
    points = np.meshgrid(*axes, indexing="ij", sparse=True)
    values = np.asarray(f(*points), dtype=np.float64)
    values = np.broadcast_to(values, tuple(len(x) for x in axes))
    if not np.isfinite(values).all():
        raise CannotFit("f is not finite everywhere on the box: narrow the box", None)
    return values


@dataclass
class _GridAxis:
    """One axis: its leaves, its compressed sections, and the best state found for each size."""

    leaves: Leaves
    sections: Callable[[Array], Array]
    origin: float
    half: float
    unit: float
    caution: float
    curve: dict[int, FitState]
    errors: dict[int, float]
    work: float = 0.0

    @classmethod
    def make(
        cls, f: GridFunction, lowers: Sequence[float], uppers: Sequence[float], axis: int,
        eps: float, dtype: str, caution: float = 1.0,
    ) -> _GridAxis:  # fmt: skip
        dimension = len(lowers)
        others = [
            _chebyshev(low, high, policy.GRID_SECTIONS[dimension]) for low, high in zip(lowers, uppers, strict=True)
        ]

        def rows(x: Array) -> Array:
            coordinates = [*others[:axis], x, *others[axis + 1 :]]
            return np.moveaxis(on_mesh(f, coordinates), axis, 0).reshape(len(x), -1)

        leaves = resolve(rows, lowers[axis], uppers[axis], eps / 10)
        x = sample(leaves, 200)
        _, sigma, right = np.linalg.svd(rows(x), full_matrices=False)
        # a direction far below eps in its largest entry cannot matter in the sup-norm
        weight = sigma / np.sqrt(len(x)) * np.abs(right).max(axis=1)
        kept = right[weight > policy.MINOR_SHARE * eps]
        lift = np.abs(kept).max(axis=1) if len(kept) else np.ones(0)
        mix = kept.T * lift if len(kept) else np.zeros((right.shape[1], 1))
        origin, half = leaves.finest, 0.5 * (uppers[axis] - lowers[axis])
        unit = UNIT_ROUNDOFF[dtype]
        return cls(leaves, lambda t: rows(t) @ mix, origin, half, unit, caution, {}, {})

    def reach(self, size: int, eps: float) -> float:
        """Error of the best scores of ``size`` tokens for the sections (cached)."""
        if size not in self.errors:
            self._fit(size, eps)
        return self.errors[size]

    @property
    def budget(self) -> float:
        """Work that may be spent on this axis: less where sampling met a jump or noise."""
        wanted = policy.TABLE_WORK * (1.0 if self.leaves.resolved else 0.25)
        return min(wanted, part_left(policy.GROWING_PART))

    def stalled(self, size: int) -> bool:
        """Whether the last few tokens have gained next to nothing: rounding's price, or a jump."""
        before = [error for earlier, error in self.errors.items() if earlier <= size - 6]
        return bool(before) and min(self.errors[k] for k in range(1, size + 1)) > 0.9 * min(before)

    def _fit(self, size: int, eps: float) -> None:
        checkpoint()
        x = sample(self.leaves, 8 * size + 20)
        target = self.sections(x)
        price = max(self.unit * self.caution * (size + 10), 1e-3 * eps / (np.abs(target).max() + 1e-300))
        problem = FitProblem((x - self.origin) / self.half, target, price * len(x) ** 0.5, False)
        edges = (self.leaves.edges - self.origin) / self.half
        candidates = list(starts(replace(self.leaves, edges=edges), size))
        candidates = self._grown(problem, size) + candidates
        pool = improve(problem, [Fresh(*scores, problem.price) for scores in candidates], 6)
        pool.sort(key=lambda state: state.cost)
        state = min(improve(problem, pool[:3], 60), key=lambda state: state.sup)
        self.curve[size], self.errors[size] = state, self._error(problem, state)
        self.work += problem.work

    def _grown(self, problem: FitProblem, size: int) -> list[Scores]:
        smaller = self.curve.get(size - 1)
        if smaller is None:
            return []
        state = solve_values(problem, smaller.slopes, smaller.offsets)
        total = np.abs(state.values).sum(axis=1)
        tokens = worst_tokens(state.errors, state.softmax, total, 2)
        scores = state.slopes, state.offsets
        return [split(scores, problem.points, state.softmax, [token], policy.TURNS[0]) for token in tokens]

    def _error(self, problem: FitProblem, state: FitState) -> float:
        """Bound on the sup-norm over all sections: the compressed errors add up at worst."""
        rows = problem.target - state.softmax @ state.values
        return float(np.sqrt((rows**2).sum(axis=1)).max())

    def scores(self, state: FitState, dtype: str) -> Scores:
        """Scores in the coordinate x, flat at the token that keeps them smallest, rounded."""
        slopes = state.slopes / self.half
        offsets = state.offsets - slopes * self.origin
        order = np.argsort(slopes, kind="stable")
        slopes, offsets = slopes[order], offsets[order]
        x = sample(self.leaves, 100)
        weights = softmax_weights(x, slopes, offsets)
        cost = [
            (weights * score_roundoff(x, slopes - a, offsets - b)).sum(axis=1).max()
            for a, b in zip(slopes, offsets, strict=True)
        ]
        k = int(np.argmin(cost))
        return to_dtype(slopes - slopes[k], dtype), to_dtype(offsets - offsets[k], dtype)


def _chebyshev(lower: float, upper: float, count: int) -> Array:
    nodes = -np.cos(np.pi * np.arange(count) / max(count - 1, 1))
    return np.asarray(0.5 * (lower + upper) + 0.5 * (upper - lower) * nodes)


def _mesh(axes: Sequence[_GridAxis], count: int) -> list[Array]:
    return [sample(axis.leaves, count) for axis in axes]


def _cheapest_sizes(axes: Sequence[_GridAxis], goal: float, limit: int) -> tuple[int, ...] | None:
    """Sizes with the smallest product whose errors add up to at most ``goal``."""
    ladders: list[list[tuple[int, float]]] = [[] for _ in axes]
    least = [1] * len(axes)  # what an axis takes, as far as is known
    growing = set(range(len(axes)))
    for size in range(1, limit + 1):
        for k in sorted(growing):
            axis, ladder = axes[k], ladders[k]
            if size * math.prod(least[:k] + least[k + 1 :]) > limit:
                growing.remove(k)
                continue
            error = axis.reach(size, goal)
            if not ladder or error < ladder[-1][1]:
                ladder.append((size, error))
            if min(error, ladder[-1][1]) > goal:
                least[k] = size + 1
            if error < 0.1 * goal / len(axes) or axis.work > axis.budget or axis.stalled(size):
                growing.remove(k)
    options = [[entry for entry in ladder if entry[1] <= goal] for ladder in ladders]
    best: tuple[int, tuple[int, ...]] | None = None
    for combination in product(*options):
        sizes = tuple(size for size, _ in combination)
        tokens = int(np.prod(sizes))
        if tokens <= limit and sum(error for _, error in combination) <= goal:
            best = min(best, (tokens, sizes)) if best is not None else (tokens, sizes)
    return None if best is None else best[1]


def _largest_sizes(axes: Sequence[_GridAxis], limit: int) -> tuple[int, ...]:
    """The most accurate size of every axis, cut back evenly to at most ``limit`` tokens."""
    cap = max(1, int(limit ** (1 / len(axes))))
    return tuple(
        min((size for size in axis.errors if size <= cap), key=lambda size: axis.errors[size]) for axis in axes
    )


def _solve_grid(
    axes: Sequence[_GridAxis], states: Sequence[FitState], mesh: Sequence[Array],
    target: NDArray[np.float64], check: Sequence[Array], truth: NDArray[np.float64], eps: float,
    dtype: str,
) -> FittedTable:  # fmt: skip
    """Values by one regularised pseudo-inverse an axis, then rounding and measuring."""
    scores = [axis.scores(state, dtype) for axis, state in zip(axes, states, strict=True)]
    cheap = 1e-4 * eps / (np.abs(target).max() + eps)  # far below eps, yet it bounds the values
    least = policy.LEAST_WEIGHT ** (1 / len(axes))  # weights multiply over the axes, and so do values
    slopes, offsets = tuple(s[0] for s in scores), tuple(s[1] for s in scores)
    best: FittedTable | None = None
    for factor in policy.GRID_PRICES:
        inverses = [
            _regularised_inverse(softmax_weights(x, *pair), factor * max(axis.unit * (len(pair[0]) + 10), cheap), least)
            for axis, x, pair in zip(axes, mesh, scores, strict=True)
        ]
        values = to_dtype(multiply_axes(target, inverses), dtype)
        grid = FittedTable(slopes, offsets, values, dtype=dtype)
        error = float(np.abs(grid.on_mesh(check) - truth).max())
        rounding = _rounding(grid, mesh, axes[0].unit)
        grid = replace(grid, error_estimate=error, rounding_estimate=rounding)
        best = grid if best is None or grid.total_error < best.total_error else best
        if rounding < max(error, 0.1 * eps):  # a higher price would only fit worse
            break
    assert best is not None
    return best


def _regularised_inverse(weights: Array, price_of_values: float, least: float) -> Array:
    """Pseudo-inverse of the weights with a price of large values as Tikhonov rows."""
    size = weights.shape[1]
    price = price_of_values * np.sqrt(len(weights))
    price = price * np.maximum(weights.max(axis=0), least)
    matrix = np.vstack([weights, np.diag(price)])
    identity = np.vstack([np.eye(len(weights)), np.zeros((size, len(weights)))])
    return least_squares(matrix, identity, 1e-16)


def _rounding(grid: FittedTable, mesh: Sequence[Array], unit: float) -> float:
    """The one-dimensional model with score errors added over the axes."""
    factors = [softmax_weights(x, a, b) for x, a, b in zip(mesh, grid.slopes, grid.offsets, strict=True)]
    magnitude = np.abs(grid.values)
    total = (sum(grid.values.shape) + 6) * multiply_axes(magnitude, factors)
    for k, (x, a, b) in enumerate(zip(mesh, grid.slopes, grid.offsets, strict=True)):
        noisy = factors[k] * score_roundoff(x, a, b)
        total = total + multiply_axes(magnitude, [*factors[:k], noisy, *factors[k + 1 :]])
    return float(2 * unit * total.max())
