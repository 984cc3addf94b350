r"""One fitting task: a function on an interval, its samples, and the judge of finished tables.

The search works in the normalised coordinate t = (x - origin) / half, with the origin at the
finest feature of f so that no digits are lost there.  A finished state goes back to x, gets the
gauge that keeps rounding smallest, is rounded to the dtype, has its values solved once more for
the *rounded* scores, and is measured on a dense sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transformula.budget import checkpoint
from transformula.compiler.tables.descent import Problem, State
from transformula.compiler.tables.minimax import equalise, solve_values
from transformula.compiler.tables.poles import nearest_poles
from transformula.compiler.tables.sample_points import Leaves, resolve, sample
from transformula.compiler.tables.score_library import NODES
from transformula.compiler.tables.softmax_table import (
    UNIT_ROUNDOFF,
    Array,
    Function,
    Table,
    anchor,
    rounding_profile,
    to_dtype,
)

APPROXIMATION_SHARE = 0.7  # of eps, for the measured approximation error
TOTAL_SHARE = 0.9  # of eps, for approximation plus rounding: what is left is for the proof
FINELY = 25  # the same for the last table
POINTS_PER_TOKEN = 10  # about three parameters a token, oversampled threefold
RESOLUTION = 0.03  # of eps: how well the sampling leaves resolve f
NOISE = 4e-15  # relative noise of f and of its interpolants, below which nothing is resolved
ROUNDINGS = 4  # of the values: what the linear part is left out below
DENSE_POINTS = 2000
FIRST_POINTS = 2000  # at most, to see how often f swings to and fro
HALVINGS = 50  # of an interval where f crosses a value
SMALL = 8  # tokens: smaller tables move more freely, next to a singularity too
MAX_SPOILED = 6  # sizes in a row that only rounding spoils, or that are no better than one whose rounding is too much
DEAR = 1e-2  # the higher price lets values of size range(f) cost this share of eps
NEXT = 0.1  # of the least error so far: what the next size may reach


class CannotFit(ValueError):
    """No table met the tolerance; ``best`` is the best one found, with its honest estimates."""

    def __init__(self, message: str, best: Any = None) -> None:
        super().__init__(message)
        self.best = best
        self.best_error: float = np.inf if best is None else best.total_error


class Allowance(NamedTuple):
    """How much arithmetic a fit may take."""

    growing: float
    shrinking: float


PLENTY = Allowance(np.inf, np.inf)


@dataclass
class Task:
    """What is to be fitted, the arithmetic spent so far and the most allowed, the best table, the closest failure."""

    f: Function
    eps: float
    dtype: str
    linear: bool
    leaves: Leaves
    half: float
    work: float = 0.0
    most: Allowance = PLENTY
    best: Table | None = None
    closest: State | None = None
    spoiled: int = 0  # sizes in a row that failed though they came close enough
    in_vain: int = 0  # sizes since the best table, if its rounding alone is too much
    least: float = np.inf  # the best total error before the last size
    searched: set[int] = field(default_factory=set)  # sizes tried from all starts
    samples: dict[tuple[int, bool], tuple[Array, Array]] = field(default_factory=dict)
    dense: Array = field(init=False)
    dense_values: Array = field(init=False)

    def __post_init__(self) -> None:
        self.dense = sample(self.leaves, max(DENSE_POINTS, 24 * len(self.leaves.edges)))
        self.dense_values = self.f(self.dense)

    @property
    def unit(self) -> float:
        """Unit roundoff of the dtype."""
        return UNIT_ROUNDOFF[self.dtype]

    @property
    def goal(self) -> float:
        """Sup-norm to reach on the sample; a little below what the dense sample must show."""
        return 0.9 * APPROXIMATION_SHARE * self.eps

    @property
    def range(self) -> float:
        """Spread of the values of f, at least eps."""
        return max(float(np.ptp(self.dense_values)), self.eps)

    def problem(self, size: int, normalised: bool = True, finely: bool = False) -> Problem:
        """Samples for a table of ``size`` tokens, priced for rounding; so many that hardly an error is missed."""
        if (size, finely) not in self.samples:
            x = sample(self.leaves, (FINELY if finely else POINTS_PER_TOKEN) * size + 20)
            self.samples[size, finely] = x, self.f(x)[:, None]
        x, target = self.samples[size, finely]
        points = (x - self.leaves.finest) / self.half if normalised else x
        price = self.unit * (size + 10) * np.sqrt(len(x))
        return Problem(points, target, float(price), self.linear, self.leaves.graded and size > SMALL)

    def prices(self, problem: Problem, size: int) -> list[float]:
        """The price of rounding itself, and a higher one that makes a smoother landscape.

        For all but small tables that one follows the errors met so far: they grow the same way, whatever they are to
        reach, so that hardly ever more tokens reach less.
        """
        far = NEXT * self.closest.sup if self.closest is not None and size >= SMALL else 0.0
        dear = DEAR * max(self.eps, far) / self.range * float(np.sqrt(len(problem.points)))
        return [dear, problem.price] if dear > 3 * problem.price else [problem.price]

    def normalised_leaves(self) -> Leaves:
        """The leaves in the coordinate t."""
        return replace(self.leaves, edges=(self.leaves.edges - self.leaves.finest) / self.half)

    @property
    def shift(self) -> float:
        """What is to be added to t for a coordinate that is −1 and 1 at the ends."""
        edges = self.leaves.edges
        return float((self.leaves.finest - 0.5 * (edges[0] + edges[-1])) / self.half)

    @cached_property
    def profile(self) -> Array:
        """Values of f at the places where stored scores are compared with it."""
        edges = self.leaves.edges
        return self.f(0.5 * (edges[0] + edges[-1]) + self.half * NODES)

    @cached_property
    def poles(self) -> tuple[float, float] | None:
        """Poles next to the interval, in the coordinate t, if f is smooth and has a pair of them there."""
        if not self.leaves.resolved or self.leaves.graded:
            return None
        found = nearest_poles(self.f, self.leaves.edges[0], self.leaves.edges[-1])
        return None if found is None else ((found[0] - self.leaves.finest) / self.half, found[1] / self.half)

    @cached_property
    def crossings(self) -> Array:
        """Between which points of the dense sample f crosses its median: pairs of places."""
        return self.dense[crossings(self.dense_values, self.eps)]

    def least_size(self) -> int:
        """A size below which no table exists: an M-token T - c x - d has at most 2M - 1 zeros."""
        return max(1, (len(self.crossings) + 1) // 2)

    def swings(self) -> Array:
        """Halfway between crossings of the median: where a wave swings out furthest, to all digits."""
        (left, right), middle = self.crossings.T, np.median(self.dense_values)
        rising = self.f(left) < middle
        for _ in range(HALVINGS):
            checkpoint()
            at = 0.5 * (left + right)
            before = (self.f(at) < middle) == rising
            left, right = np.where(before, at, left), np.where(before, right, at)
        return np.asarray(0.25 * (left[1:] + right[1:] + left[:-1] + right[:-1]))

    def accepts(self, table: Table) -> bool:
        """Whether a table will do."""
        return acceptable(table, self.eps)

    @property
    def stuck(self) -> bool:
        """Whether several sizes came close enough, and only rounding spoiled them: more tokens will not help."""
        return max(self.spoiled, self.in_vain) >= MAX_SPOILED

    def missed(self, state: State) -> None:
        """Remember a failure: its table may still be the best there is."""
        self.spoiled = self.spoiled + 1 if state.sup <= self.goal else 0
        if self.closest is None or state.sup < self.closest.sup:
            self.closest = state
        if self.best is not None:
            noisy = self.best.rounding_estimate > self.eps and not self.best.total_error < self.least
            self.in_vain, self.least = self.in_vain + 1 if noisy else 0, self.best.total_error

    def finish(self, state: State, finely: bool = False) -> Table:
        """The table of a state: back to x, gauge, rounding, values again, measurement."""
        checkpoint()
        slopes = state.slopes / self.half
        offsets = state.offsets - slopes * self.leaves.finest
        order = np.argsort(slopes, kind="stable")
        coarse = self.dense[:: max(1, len(self.dense) // 200)]
        slopes, offsets = anchor(coarse, slopes[order], offsets[order], state.values[order, 0])
        slopes, offsets = to_dtype(slopes, self.dtype), to_dtype(offsets, self.dtype)
        problem = self.problem(len(slopes), normalised=False, finely=finely)
        values, linear = self.solved(problem, slopes, offsets, finely)
        if 0 < abs(linear) * np.abs(self.dense).max() <= ROUNDINGS * self.unit * np.abs(values).max():
            values, linear = self.solved(replace(problem, linear=False, work=0.0), slopes, offsets, finely)
        table = self.measure(Table(slopes, offsets, values, linear, 0.0, 0.0, self.dtype))
        if self.best is None or table.total_error < self.best.total_error:
            self.best = table
        return table

    def solved(self, problem: Problem, slopes: Array, offsets: Array, finely: bool) -> tuple[Array, float]:
        """The values for given scores, and the linear part, in the format of the table."""
        solved = solve_values(problem, slopes, offsets)
        (solved,) = equalise(problem, [solved], 0.0 if finely else 0.5 * self.goal, rounds=30, steps=0)
        self.work += problem.work
        return to_dtype(solved.values[:, 0], self.dtype), float(to_dtype(solved.linear[0], self.dtype))

    def measure(self, table: Table) -> Table:
        """Fill in the error estimates of a table."""
        error = np.abs(table(self.dense) - self.dense_values).max()
        profile = rounding_profile(self.dense, table.slopes, table.offsets, table.values, table.linear, self.unit)
        return replace(table, error_estimate=float(error), rounding_estimate=float(profile.max()))


def crossings(values: Array, eps: float) -> NDArray[np.int64]:
    """Neighbours, or nearly so, on either side of the median and more than eps away from it: pairs of indices."""
    offset = values - np.median(values)
    far = np.flatnonzero(np.abs(offset) > eps)
    turns = np.flatnonzero(np.diff(np.sign(offset[far])))
    return np.stack([far[turns], far[turns + 1]], axis=1)


def acceptable(table: Table, eps: float) -> bool:
    """Whether the measured and modelled errors leave the proof its headroom."""
    return table.error_estimate <= APPROXIMATION_SHARE * eps and table.total_error <= TOTAL_SHARE * eps


def prepare(
    f: Function, lower: float, upper: float, eps: float, dtype: str, singular: Sequence[float],
    linear: bool, most_crossings: int,
) -> Task:  # fmt: skip
    """Check the request, sample f adaptively, and set up the task.

    What crosses its median more often than is said is not sampled any further.
    """
    if not (np.isfinite(lower) and np.isfinite(upper) and lower < upper):
        raise CannotFit(f"there are no floats between {lower} and {upper}", None)
    if dtype not in UNIT_ROUNDOFF:
        raise ValueError(f"dtype must be one of {sorted(UNIT_ROUNDOFF)}, got {dtype!r}")
    if not eps > 0:
        raise ValueError(f"eps must be positive, got {eps}")

    def checked(x: Array) -> Array:
        with np.errstate(all="ignore"):
            inside = np.clip(x, lower, upper)  # rounded, a sample may lie beyond the end of a domain
            values = np.broadcast_to(np.asarray(f(inside), dtype=np.float64), x.shape)
        if not np.isfinite(values).all():
            bad = float(x[~np.isfinite(values)][0])
            raise CannotFit(f"the function is not finite at x = {bad!r}: narrow the interval", None)
        return values

    first = np.linspace(lower, upper, min(FIRST_POINTS, 8 * most_crossings) + 1)
    values = checked(first)
    if len(crossings(values, eps)) > most_crossings:
        leaves = Leaves(first, resolved=False, crowded=True)
    else:
        tolerance = max(RESOLUTION * eps, NOISE * float(np.abs(values).max()))
        leaves = resolve(checked, float(lower), float(upper), tolerance, singular)
    return Task(checked, eps, dtype, linear, leaves, 0.5 * (upper - lower))
