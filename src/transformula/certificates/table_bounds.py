"""Proof rule for one softmax table on an interval.

A table is T(x) = N(x) / D(x) with N = sum y_j e^{s_j(x)}, D = sum e^{s_j(x)}, s_j = a_j x + b_j.
The error

    T(x) + alpha x + gamma - f(x) = (N - D g) / D,     g = f - alpha x - gamma

needs no division of series. On a piece x = c + r t, abs(t) <= 1, multiply N and D by e^{-s*(x)},
s* affine (the largest score at c, and the mean slope there): this changes nothing and leaves
exponentials e_j e^{l_j t}, l_j = (a_j - a*) r. Then

- N and D below order K are closed forms in Arb, sum y_j e_j l_j**k / k!; beyond it they are at
  most sum abs(y_j) e_j abs(l_j)**K / K! e^{abs(l_j)} (Lagrange);
- g has Taylor coefficients and a Lagrange remainder from `series`, or, where f is singular, a
  Taylor model from `modelling` or the middle of its range with half the range as remainder;
- tokens whose score stays below -CUT on the piece enter only through e^{-CUT};
- the polynomial N - D g and the polynomial D are bounded on parts of the piece by `bernstein`.

Pieces are bisected, the worst first, until all are below the target. No step samples.
"""

from __future__ import annotations

import heapq
import math
import time
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from flint import arb, arb_series, ctx

from transformula.certificates.axis_models import Axis, leading
from transformula.formulas.enclosures import precision, round_up
from transformula.formulas.expression import Expr
from transformula.taylor import bernstein
from transformula.taylor.modelling import model_of
from transformula.taylor.ranges import UndefinedError, check_defined, enclose_ends
from transformula.taylor.results import DEFAULT_LIMITS, Bound, Floats, Limits
from transformula.taylor.series import SeriesOf, SingularError

_BITS = 128
_ORDER = 14
_PARTS = 4
#: Scores this far below the largest are bounded, not expanded: e^-80 = 2e-35.
_CUT = 80.0
#: Cuts spent on a tighter bound once the target is met.
_POLISH = 60
#: Errors below this share of abs(f) are not worth refining: no float shows them.
_NOISE = 2.0**-60
#: Terms of the Taylor models that help out at singular places.
_ROUGH = 8


@dataclass(frozen=True)
class Table:
    """One head over memory tokens, exactly as stored: shapes (M,), and an affine part."""

    slopes: Floats
    offsets: Floats
    values: Floats
    slope: float = 0.0
    constant: float = 0.0

    def __post_init__(self) -> None:
        shapes = {np.shape(self.slopes), np.shape(self.offsets), np.shape(self.values)}
        if len(shapes) != 1 or np.ndim(self.slopes) != 1 or not len(self.slopes):
            raise ValueError(f"a table needs three arrays of one length, not shapes {shapes}")


@dataclass(order=True)
class _Piece:
    """A part of the interval, as fractions of it, with its proven bound."""

    priority: float
    low: float = field(compare=False)
    high: float = field(compare=False)
    bound: float = field(compare=False)
    seen: float = field(compare=False)


def bound_1d(
    expr: Expr,
    variable: str,
    lower: arb,
    upper: arb,
    table: Table,
    target: float | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Bound:
    """Prove a bound of sup abs(T(x) + alpha x + gamma - f(x)) on [lower, upper].

    Parameters
    ----------
    lower, upper : arb
        Balls around the exact ends.
    target : float, optional
        Stop as soon as the bound is at most this. Without it, refine until the bound is tight.

    Raises
    ------
    NotProvenError
        If f is undefined or unbounded on the interval.
    """
    with precision(_BITS):
        check_defined(expr, {variable: (lower.lower(), upper.upper())})
        return _Prover(expr, variable, lower, upper, table, limits).run(target)


class _Prover:
    def __init__(
        self, expr: Expr, variable: str, lower: arb, upper: arb, table: Table, limits: Limits
    ) -> None:
        self.expr, self.variable = expr, variable
        self.series = SeriesOf(expr, variable)
        self.lower, self.width = lower, upper - lower
        self.tokens = _Tokens(table)
        self.affine = arb(table.slope), arb(table.constant)
        self.limits = limits
        self.order = limits.order or _ORDER
        self.deadline = time.monotonic() + limits.seconds
        self.size = 0.0  # largest abs(f) met at a centre

    def run(self, target: float | None) -> Bound:
        heap: list[_Piece] = []
        marks = self._first_marks()
        count = len(marks) - 1
        for low, high in pairwise(marks):
            heapq.heappush(heap, self._piece(low, high))
        seen = max(piece.seen for piece in heap)
        polish = 0
        while not self._done(heap[0].bound, seen, target):
            worst = heap[0]
            if target is not None and worst.bound <= target:
                polish += 1
                if polish > _POLISH:
                    break
            middle = (worst.low + worst.high) / 2
            if (
                count >= self.limits.boxes
                or time.monotonic() > self.deadline
                or not worst.low < middle < worst.high
            ):
                break
            halves = self._piece(worst.low, middle), self._piece(middle, worst.high)
            heapq.heapreplace(heap, halves[0])
            heapq.heappush(heap, halves[1])
            count += 2
            seen = max(seen, halves[0].seen, halves[1].seen)
            if self.limits.progress and count % 64 < 2:
                goal = max(target or 0.0, self.limits.tightness * seen)
                self.limits.progress(count, sum(piece.bound > goal for piece in heap))
        worst = heap[0]
        tight = self._done(worst.bound, seen, None)
        closed = tight if target is None else worst.bound <= target
        place = float(self._x(worst.low)), float(self._x(worst.high))
        return Bound(worst.bound, count, closed, place, seen)

    def _done(self, bound: float, seen: float, target: float | None) -> bool:
        if target is not None and seen <= target < bound:
            return False
        return bound <= max(self.limits.tightness * seen, self.size * _NOISE)

    def _x(self, fraction: float) -> arb:
        return self.lower + self.width * fraction

    def _first_marks(self) -> list[float]:
        """Where neighbouring tokens hand over, as fractions of the interval."""
        low, width = float(self.lower), float(self.width)
        with np.errstate(divide="ignore", invalid="ignore"):  # an interval of one point has no inside
            inside = (self.tokens.transitions() - low) / width
        inside = np.unique(inside[(inside > 1e-9) & (inside < 1 - 1e-9)])
        marks = [0.0]
        for mark in inside.tolist():
            if mark - marks[-1] > 1e-9:
                marks.append(mark)
        return [*marks, 1.0]

    def _piece(self, low: float, high: float) -> _Piece:
        start, stop = self._x(low), self._x(high)
        centre = arb(float(((start + stop) / 2).mid()))  # a float, as the models of f need
        radius = arb(round_up((stop - centre).max(centre - start)))
        expansion = self.tokens.expand(centre, radius, self.order)
        goal, rest = self._goal(start, stop, centre, radius)
        bound, seen = expansion.error(goal, rest)
        return _Piece(-bound, low, high, bound, seen)

    def _goal(self, start: arb, stop: arb, centre: arb, radius: arb) -> tuple[list[arb], arb]:
        """Coefficients of g = f - alpha x - gamma on the piece, and its remainder."""
        alpha, gamma = self.affine
        goal, rest = self._smooth(centre, radius)
        if not rest < 1e-3 * (1 + abs(goal[0])):
            goal, rest = self._singular(start, stop, centre, radius, goal, rest)
        self.size = max(self.size, abs(float(goal[0])))
        goal = goal if len(goal) > 1 else [*goal, arb(0)]
        return [goal[0] - alpha * centre - gamma, goal[1] - alpha * radius, *goal[2:]], rest

    def _smooth(self, centre: arb, radius: arb) -> tuple[list[arb], arb]:
        """Taylor coefficients of f; the remainder is infinite where f may not be smooth."""
        try:
            goal, rest = self.series.expand(centre, radius, self.order)
        except SingularError:
            return [arb(0)], arb.pos_inf()
        return (goal, rest) if all(c.is_finite() for c in goal) else ([arb(0)], arb.pos_inf())

    def _singular(
        self, start: arb, stop: arb, centre: arb, radius: arb, goal: list[arb], rest: arb
    ) -> tuple[list[arb], arb]:
        """The best of a series, a Taylor model in floats and the plain range of f."""
        x, r = np.array([[float(centre)]]), np.array([[float(radius)]])
        model = model_of(self.expr, [self.variable], x, r, _ROUGH)
        if model.rest[0] < rest:
            goal, rest = [arb(float(c)) for c in model.terms[:, 0]], arb(float(model.rest[0]))
        try:
            ends = enclose_ends(self.expr, {self.variable: (start.lower(), stop.upper())})
        except UndefinedError:
            return goal, rest
        middle = ((ends[0] + ends[1]) / 2).mid()
        spread = arb((ends[1] - middle).max(middle - ends[0]).upper())
        return ([middle], spread) if spread < rest else (goal, rest)


class _Tokens:
    """The tokens of a table in Arb."""

    def __init__(self, table: Table) -> None:
        slopes = np.asarray(table.slopes, dtype=np.float64)
        self.axis = Axis(slopes, np.asarray(table.offsets, dtype=np.float64))
        self.values = [arb(float(y)) for y in table.values]
        self.total = sum((abs(y) for y in self.values), arb(0))

    def transitions(self) -> Floats:
        """Where neighbouring scores are equal (a guide for the first pieces)."""
        order = np.argsort(self.axis.slopes)
        a, b = self.axis.slopes[order], self.axis.offsets[order]
        gaps = np.diff(a)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            at = -np.diff(b) / gaps
        return np.asarray(at[np.isfinite(at)], dtype=np.float64)

    def expand(self, centre: arb, radius: arb, order: int) -> _Expansion:
        """N and D on the piece as series in t with remainders."""
        frame = leading(self.axis, float(centre), round_up(radius), _CUT)
        above = below = arb_series([0], order + 1)
        above_rest = below_rest = arb(0)
        before, ctx.cap = ctx.cap, order + 1
        for j, score, rate in frame.scores(centre, radius):
            term = arb_series([score, rate], order + 1).exp()
            rest = abs(term[order]) * abs(rate).exp()
            below, above = below + term, above + self.values[j] * term
            below_rest, above_rest = below_rest + rest, above_rest + abs(self.values[j]) * rest
        ctx.cap = before
        dropped = len(self.values) - len(frame.tokens)
        if dropped:
            cut = arb(-_CUT).exp()
            below_rest, above_rest = below_rest + dropped * cut, above_rest + self.total * cut
        return _Expansion(above, below, above_rest, below_rest, order)


@dataclass(frozen=True)
class _Expansion:
    """N and D on a piece: series below the order, and bounds of the rest."""

    above: arb_series
    below: arb_series
    above_rest: arb
    below_rest: arb
    order: int

    def error(self, goal: list[arb], rest: arb) -> tuple[float, float]:
        """Proven bound of abs((N - D g) / D) on the piece, and a value it comes close to."""
        order = self.order
        above = [self.above[k] for k in range(order)]
        below = [self.below[k] for k in range(order)]
        before, ctx.cap = ctx.cap, 2 * order
        product = arb_series(below, 2 * order) * arb_series(goal, 2 * order)
        ctx.cap = before
        difference = [above[k] - product[k] for k in range(order)]
        goal_size = sum((abs(g) for g in goal), arb(0))
        below_size = sum((abs(d) for d in below), arb(0)) + self.below_rest
        tail = sum((abs(product[k]) for k in range(order, 2 * order)), arb(0))
        tail += self.above_rest + self.below_rest * goal_size + below_size * rest
        error, error_rest = _bernstein(difference, tail)
        divisor, divisor_rest = _bernstein(below, self.below_rest)
        if not (math.isfinite(error_rest) and math.isfinite(divisor_rest)):
            return math.inf, 0.0
        least = divisor.min(axis=1) - divisor_rest
        if least.min() <= 0:
            return math.inf, 0.0
        sizes = np.abs(error)
        bound = float(((sizes.max(axis=1) + error_rest) / least).max()) * (1 + 2.0**-48)
        ends = (sizes[:, [0, -1]] - error_rest) / (divisor[:, [0, -1]] + divisor_rest)
        return bound, max(float(ends.max()), 0.0)


def _bernstein(series: list[arb], rest: arb) -> tuple[Floats, float]:
    """Bernstein coefficients on the parts, and what each may be wrong by, rest included."""
    floats = np.array([float(c.mid()) for c in series])
    slack = sum((c.rad() for c in series), rest)
    size = sum((abs(c) for c in series), arb(0))
    wrong = round_up(slack + size * bernstein.ROUNDING + 1e-300)  # rounding to floats included
    return bernstein.coefficients(floats[None], _PARTS).reshape(_PARTS, -1), wrong
