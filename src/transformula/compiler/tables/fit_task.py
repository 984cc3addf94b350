r"""One fitting task: a function on an interval, its samples, and the judge of finished tables.

The search works in the normalised coordinate t = (x - origin) / half, with the origin at the
finest feature of f so that no digits are lost there.  A finished state goes back to x, gets the
gauge that keeps rounding smallest, is rounded to the dtype, has its values solved once more for
the *rounded* scores, and is measured on a dense sample.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transformula.budget import checkpoint
from transformula.compiler import policy
from transformula.compiler.tables.descent import FitProblem, FitState, equalise, solve_values
from transformula.compiler.tables.softmax_table import (
    UNIT_ROUNDOFF,
    Array,
    FittedTable,
    Function,
    anchor,
    rounding_profile,
    to_dtype,
)
from transformula.compiler.tables.start_scores import Leaves, nearest_poles, resolve, sample

PROFILE_NODES = -np.cos(np.pi * (np.arange(64) + 0.5) / 64)  # points on −1..1 where functions are compared
NOISE = 4e-15  # relative noise of f and of its interpolants
SMALL = 8  # tokens below which a table is fitted without regard to smaller ones


class CannotFit(ValueError):
    """No table met the tolerance; ``best`` is the best one found, with its estimates."""

    def __init__(self, message: str, best: Any = None) -> None:
        super().__init__(message)
        self.best = best
        self.best_error: float = np.inf if best is None else best.total_error


class Allowance(NamedTuple):
    """Microseconds of work that a fit may take."""

    growing: float
    shrinking: float


PLENTY = Allowance(np.inf, np.inf)


@dataclass
class FitTask:
    """A function to fit, the work spent and allowed, the best table, and the closest failure."""

    f: Function
    eps: float
    dtype: str
    linear: bool
    leaves: Leaves
    half: float
    work: float = 0.0
    most: Allowance = PLENTY
    best: FittedTable | None = None
    closest: FitState | None = None
    spoiled: int = 0  # sizes in a row that failed though they came close enough
    rounding_limited: int = 0  # sizes since the best table, if its rounding alone is too much
    least: float = np.inf  # the best total error before the last size
    searched: set[int] = field(default_factory=set)  # sizes tried from all starts
    samples: dict[tuple[int, bool], tuple[Array, Array]] = field(default_factory=dict)
    dense: Array = field(init=False)
    dense_values: Array = field(init=False)

    def __post_init__(self) -> None:
        self.dense = sample(self.leaves, max(policy.DENSE_POINTS, 24 * len(self.leaves.edges)))
        self.dense_values = self.f(self.dense)

    @property
    def unit(self) -> float:
        """Unit roundoff of the dtype."""
        return UNIT_ROUNDOFF[self.dtype]

    @property
    def goal(self) -> float:
        """Sup-norm to reach on the sample; a little below what the dense sample must show."""
        return 0.9 * policy.APPROXIMATION_SHARE * self.eps

    @property
    def range(self) -> float:
        """Spread of the values of f, at least eps."""
        return max(float(np.ptp(self.dense_values)), self.eps)

    def problem(self, size: int, normalised: bool = True, finely: bool = False) -> FitProblem:
        """Samples for a table of ``size`` tokens, priced for rounding."""
        if (size, finely) not in self.samples:
            each = policy.LAST_POINTS_PER_TOKEN if finely else policy.POINTS_PER_TOKEN
            x = sample(self.leaves, each * size + 20)
            self.samples[size, finely] = x, self.f(x)[:, None]
        x, target = self.samples[size, finely]
        points = (x - self.leaves.finest) / self.half if normalised else x
        price = self.unit * (size + 10) * np.sqrt(len(x))
        return FitProblem(points, target, float(price), self.linear, self.leaves.graded and size > SMALL)

    def prices(self, problem: FitProblem, size: int) -> list[float]:
        """The price of rounding itself, and a higher one that makes a smoother landscape.

        The higher price of all but small tables follows the errors met so far. Tables grow the same way then, whatever
        the tolerance, so that a smaller tolerance hardly ever takes fewer tokens.
        """
        next_error = 0.1 * self.closest.sup if self.closest is not None and size >= SMALL else 0.0
        points = float(np.sqrt(len(problem.points)))
        high = policy.HIGH_PRICE * max(self.eps, next_error) / self.range * points
        return [high, problem.price] if high > 3 * problem.price else [problem.price]

    def normalised_leaves(self) -> Leaves:
        """The leaves in the coordinate t."""
        return replace(self.leaves, edges=(self.leaves.edges - self.leaves.finest) / self.half)

    @property
    def shift(self) -> float:
        """Difference between the coordinate that is −1 and 1 at the ends, and t."""
        edges = self.leaves.edges
        return float((self.leaves.finest - 0.5 * (edges[0] + edges[-1])) / self.half)

    @cached_property
    def profile(self) -> Array:
        """Values of f at the points where functions are compared."""
        edges = self.leaves.edges
        return self.f(0.5 * (edges[0] + edges[-1]) + self.half * PROFILE_NODES)

    @cached_property
    def poles(self) -> tuple[float, float] | None:
        """Poles next to the interval, in the coordinate t, if f is smooth and has a pair of them there."""
        if not self.leaves.resolved or self.leaves.graded:
            return None
        found = nearest_poles(self.f, self.leaves.edges[0], self.leaves.edges[-1])
        return None if found is None else ((found[0] - self.leaves.finest) / self.half, found[1] / self.half)

    @cached_property
    def crossings(self) -> Array:
        """Pairs of points of the dense sample between which f crosses its median."""
        return self.dense[crossings(self.dense_values, self.eps)]

    def least_size(self) -> int:
        """A size below which no table exists: an M-token T - c x - d has at most 2M - 1 zeros."""
        return max(1, (len(self.crossings) + 1) // 2)

    def extrema(self) -> Array:
        """Extrema of an oscillatory f: the points halfway between its crossings of the median."""
        (left, right), middle = self.crossings.T, np.median(self.dense_values)
        rising = self.f(left) < middle
        for _ in range(50):  # halvings, to all digits of a float
            checkpoint()
            at = 0.5 * (left + right)
            before = (self.f(at) < middle) == rising
            left, right = np.where(before, at, left), np.where(before, right, at)
        return np.asarray(0.25 * (left[1:] + right[1:] + left[:-1] + right[:-1]))

    def accepts(self, table: FittedTable) -> bool:
        """Whether a table will do."""
        return acceptable(table, self.eps)

    @property
    def stuck(self) -> bool:
        """Whether several sizes came close enough, and only rounding spoiled them: more tokens will not help."""
        return max(self.spoiled, self.rounding_limited) >= policy.MAX_SPOILED

    def missed(self, state: FitState) -> None:
        """Record a failure: its table may still be the best there is."""
        self.spoiled = self.spoiled + 1 if state.sup <= self.goal else 0
        if self.closest is None or state.sup < self.closest.sup:
            self.closest = state
        if self.best is not None:
            noisy = self.best.rounding_estimate > self.eps and not self.best.total_error < self.least
            self.rounding_limited = self.rounding_limited + 1 if noisy else 0
            self.least = self.best.total_error

    def finish(self, state: FitState, finely: bool = False) -> FittedTable:
        """The table of a state: back to x, gauge, rounding, values again, measurement."""
        checkpoint()
        slopes = state.slopes / self.half
        offsets = state.offsets - slopes * self.leaves.finest
        order = np.argsort(slopes, kind="stable")
        coarse = self.dense[:: max(1, len(self.dense) // 200)]
        slopes, offsets = anchor(coarse, slopes[order], offsets[order], state.values[order, 0])
        slopes, offsets = to_dtype(slopes, self.dtype), to_dtype(offsets, self.dtype)
        problem = self.problem(len(slopes), normalised=False, finely=finely)
        values, linear = self._solved(problem, slopes, offsets, finely)
        rounding = 4 * self.unit * np.abs(values).max()
        if 0 < abs(linear) * np.abs(self.dense).max() <= rounding:  # a linear part this small is only rounding
            values, linear = self._solved(replace(problem, linear=False, work=0.0), slopes, offsets, finely)
        table = self.measure(FittedTable((slopes,), (offsets,), values, linear, dtype=self.dtype))
        if self.best is None or table.total_error < self.best.total_error:
            self.best = table
        return table

    def _solved(self, problem: FitProblem, slopes: Array, offsets: Array, finely: bool) -> tuple[Array, float]:
        """The values for given scores, and the linear part, in the format of the table."""
        solved = solve_values(problem, slopes, offsets)
        (solved,) = equalise(problem, [solved], 0.0 if finely else 0.5 * self.goal, rounds=30, steps=0)
        self.work += problem.work
        return to_dtype(solved.values[:, 0], self.dtype), float(to_dtype(solved.linear[0], self.dtype))

    def measure(self, table: FittedTable) -> FittedTable:
        """Fill in the error estimates of a table."""
        error = np.abs(table.on_mesh([self.dense]) - self.dense_values).max()
        rounding = rounding_profile(self.dense, table).max()
        return replace(table, error_estimate=float(error), rounding_estimate=float(rounding))


def crossings(values: Array, eps: float) -> NDArray[np.int64]:
    """Pairs of indices of neighbours on either side of the median, skipping values within eps of it."""
    offset = values - np.median(values)
    far = np.flatnonzero(np.abs(offset) > eps)
    turns = np.flatnonzero(np.diff(np.sign(offset[far])))
    return np.stack([far[turns], far[turns + 1]], axis=1)


def acceptable(table: FittedTable, eps: float) -> bool:
    """Whether the measured and modelled errors leave the proof its headroom."""
    return table.error_estimate <= policy.APPROXIMATION_SHARE * eps and table.total_error <= policy.TOTAL_SHARE * eps


def prepare(
    f: Function, lower: float, upper: float, eps: float, dtype: str, linear: bool, most_crossings: int
) -> FitTask:
    """Check the request, sample f adaptively, and set up the task.

    A function that crosses its median more than ``most_crossings`` times is not sampled any further.
    """
    if not (np.isfinite(lower) and np.isfinite(upper) and lower < upper):
        raise CannotFit(f"there are no floats between {lower} and {upper}", None)
    if dtype not in UNIT_ROUNDOFF:
        raise ValueError(f"dtype must be one of {sorted(UNIT_ROUNDOFF)}, got {dtype!r}")
    if not eps > 0:
        raise ValueError(f"eps must be positive, got {eps}")

    def checked(x: Array) -> Array:
        with np.errstate(all="ignore"):
            inside = np.clip(x, lower, upper)  # a rounded sample may lie beyond the end of a domain
            values = np.broadcast_to(np.asarray(f(inside), dtype=np.float64), x.shape)
        if not np.isfinite(values).all():
            bad = float(x[~np.isfinite(values)][0])
            raise CannotFit(f"the function is not finite at x = {bad!r}: narrow the interval", None)
        return values

    first = np.linspace(lower, upper, min(policy.DENSE_POINTS, 8 * most_crossings) + 1)
    values = checked(first)
    if len(crossings(values, eps)) > most_crossings:
        leaves = Leaves(first, resolved=False, crowded=True)
    else:
        tolerance = max(policy.MINOR_SHARE * eps, NOISE * float(np.abs(values).max()))
        leaves = resolve(checked, float(lower), float(upper), tolerance)
    return FitTask(checked, eps, dtype, linear, leaves, 0.5 * (upper - lower))
