"""Proof rule for a softmax table: how far it is from a function, on pieces that are given.

A table of one axis is T(u) = N(u) / D(u) with N = sum y_j e^{s_j(u)}, D = sum e^{s_j(u)}, s_j = a_j u + b_j.
The error

    T(u) - f(u) = (N - D f) / D

needs no division of series. On a piece u = c + r t, abs(t) <= 1, multiply N and D by e^{-s*(u)}, s*
affine (`leading`): this changes nothing and leaves exponentials e_j e^{l_j t}, l_j = (a_j - a*) r. Then

- N and D below order K are closed forms in Arb, sum y_j e_j l_j**k / k!; beyond it they are at
  most sum abs(y_j) e_j abs(l_j)**K / K! e^{abs(l_j)} (Lagrange);
- f has Taylor coefficients and a Lagrange remainder from `series`, which fails unless f is smooth, hence
  defined, on a ball around the piece; or, if `intervals` shows f to be defined on the piece, a Taylor
  model from `expression_ranges` or the middle of its range with half the range as remainder. The latter two leave out
  the linear terms of f, which are added exactly;
- tokens whose score stays below -CUT on the piece enter only through e^{-CUT};
- the polynomial N - D f and the polynomial D are bounded on parts of the piece by Bernstein coefficients.

The pieces cover the range of u (`regions.checked_edges`): the largest of their bounds holds on all of it.

*One axis of a softmax table: Taylor models of its weights on an interval.*

On x = c + r t, abs(t) <= 1, subtract from all scores the affine function that equals the leading score at the
centre and has slope ``mean`` (any number: it cancels). Then the weights are u_j = E_j / D, E_j = e^{s_j}
e^{l_j t}, D = sum E_j. With E_j^K, D^K the series below order K, Q_j any polynomial below order K,

    u_j - Q_j = (E_j - Q_j D) / D,
    abs(E_j - Q_j D) <= abs(E_j^K - [Q_j D^K]_{<K}) + abs([Q_j D^K]_{>=K}) + R_j + abs(Q_j) R_D,

R_j = e^{s_j} abs(l_j)^K / K! e^{abs(l_j)} (Lagrange), R_D the sum of the R_j, and abs(.) of a polynomial the
sum of its abs(coefficients). A token that stays ``cut`` below the leading score has 0 <= E_j <= e^{-cut}: it
is not expanded, and counts in R_D. All of this is computed in balls, but for Bernstein coefficients of D.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from flint import arb, arb_series, fmpq
from numpy.typing import NDArray

from transformula.kernel.arithmetic import coefficients, precision, series_length
from transformula.kernel.enclosures.balls import SeriesOf, from_float, round_up, to_fmpq
from transformula.kernel.enclosures.expression_ranges import bernstein_of_series, model_of
from transformula.kernel.enclosures.intervals import try_range
from transformula.kernel.enclosures.regions import BallEnds, checked_edges
from transformula.kernel.enclosures.taylor_models import Floats, U
from transformula.kernel.exceptions import RefutedError, SingularError
from transformula.kernel.functions.elementary_functions import dyadic_above, dyadic_below
from transformula.kernel.syntax.expression import Expr, add, number, variable

_WEIGHT_PARTS = 4


@dataclass(frozen=True, eq=False)
class TableAxis:
    """Scores a_j x + b_j of one axis, exactly as stored: shapes (M,)."""

    slopes: Floats
    offsets: Floats

    def __len__(self) -> int:
        return len(self.slopes)


@dataclass(frozen=True, eq=False)
class TokenFrame:
    """The tokens that matter on an interval, and the affine function to subtract: see `leading`."""

    axis: TableAxis
    tokens: list[int]
    top: int
    mean: float

    def scores(self, centre: arb, radius: arb) -> Iterator[tuple[int, arb, arb]]:
        """Token, score at the centre below the top's, and rate in t."""
        base = arb(float(self.axis.slopes[self.top])) * centre + arb(float(self.axis.offsets[self.top]))
        mean = arb(self.mean)
        for j in self.tokens:
            a, b = arb(float(self.axis.slopes[j])), arb(float(self.axis.offsets[j]))
            yield j, a * centre + b - base, (a - mean) * radius


def leading(axis: TableAxis, centre: float, radius: float, cut: float) -> TokenFrame:
    """Find the tokens that matter on [centre - radius, centre + radius].

    A token j is left out if s_j - s_top at the centre plus abs(a_j - mean) radius < -cut even after adding a
    bound of the rounding of these floats: each passes at most 6 operations, each of which errs by u times
    what it adds up, so 16 u times the sum of all sizes is more than enough. A NaN leaves nothing out.
    """
    with np.errstate(all="ignore"):
        products = axis.slopes * centre
        scores = products + axis.offsets
        top = int(np.argmax(scores))
        weights = np.exp(scores - scores[top])  # only steers the choice of the mean: any number is sound
        mean = float(weights @ axis.slopes / weights.sum())
        size = np.abs(products) + np.abs(axis.offsets)
        reach = np.abs(axis.slopes - mean) * radius
        slack = (size + size[top] + reach) * (16 * U)
        far = scores - scores[top] + reach + slack < -cut
    return TokenFrame(axis, np.flatnonzero(~far).tolist(), top, mean)


def axis_models(
    axis: TableAxis, centres: Floats, radii: Floats, order: int, cut: float = 80.0
) -> tuple[Floats, Floats]:
    """Coefficients (intervals, order, M) of all weights on intervals (exact floats), and rests, maybe infinite."""
    terms = np.zeros((len(centres), order, len(axis)))
    rest = np.full((len(centres), len(axis)), math.inf)
    for i, (centre, radius) in enumerate(zip(centres.tolist(), radii.tolist(), strict=True)):
        frame = leading(axis, centre, radius, cut)
        with series_length(2 * order):
            _fill(frame, arb(centre), arb(radius), order, cut, terms[i], rest[i])
    return terms, rest


def _fill(frame: TokenFrame, centre: arb, radius: arb, order: int, cut: float, terms: Floats, rest: Floats) -> None:
    """Models of all weights on one interval, written into the arrays."""
    kept: dict[int, arb_series] = {}
    lost: dict[int, arb] = {}
    total = arb_series([0], order + 1)
    for j, score, rate in frame.scores(centre, radius):
        kept[j] = term = arb_series([score, rate], order + 1).exp()
        lost[j] = abs(coefficients(term, order + 1)[order]) * abs(rate).exp()
        total = total + term
    most = arb(-cut).exp()
    total_lost = sum(lost.values(), arb(0)) + (len(frame.axis) - len(kept)) * most
    below = coefficients(total, order)
    values, slack = bernstein_of_series(below, total_lost, _WEIGHT_PARTS)
    least = (arb(float(values.min())) - slack).lower()  # of D on the interval
    if not least > 0:
        return
    rest[:] = round_up(most / least)
    inverse, divisor = arb_series(below, order).inv(), arb_series(below, 2 * order)
    for j, series in kept.items():
        floats = [float(c.mid()) for c in coefficients(series * inverse, order)]
        product = coefficients(arb_series(floats, 2 * order) * divisor, 2 * order)
        wrong = sum((abs(p - c) for p, c in zip(product, coefficients(series, order), strict=False)), lost[j])
        wrong = sum(map(abs, product[order:]), wrong)
        wrong = wrong + sum((abs(arb(q)) for q in floats), arb(0)) * total_lost
        terms[:, j] = floats
        rest[j] = round_up(wrong / least)


MAX_PIECES = 400_000
_BITS = 128
_ORDER = 14
_PARTS = 4
#: Scores this far below the largest are bounded, not expanded: e^-80 = 2e-35.
_CUT = 80.0
#: Terms of the Taylor models of f; at most _ORDER, so that N - D f has degree below 2 _ORDER.
_ROUGH = 8


@dataclass(frozen=True, eq=False)
class SoftmaxTable:
    """One softmax table, exactly as stored: slopes and offsets (M_k,) for each axis, values (M_1, ..)."""

    slopes: tuple[Floats, ...]
    offsets: tuple[Floats, ...]
    values: Floats

    def __post_init__(self) -> None:
        shape, arrays = np.shape(self.values), [*self.slopes, *self.offsets]
        if [np.shape(a) for a in arrays] != 2 * [(n,) for n in shape] or not shape or 0 in shape:
            raise RefutedError(f"a table's values have shape {shape}, which does not fit its slopes and offsets")
        if any(a.dtype != np.float64 or not np.isfinite(a).all() for a in (*arrays, self.values)):
            raise RefutedError("a table holds something that is not a finite float64")


class Lattice(NamedTuple):
    """A full grid of tokens: slopes and offsets of each axis, and the place of each token among the values."""

    slopes: tuple[NDArray[Any], ...]
    offsets: tuple[NDArray[Any], ...]
    place: NDArray[np.intp]

    def arranged(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values, one row a token, with the axes of the grid first."""
        ordered = np.empty_like(values)
        ordered[self.place] = values
        return ordered.reshape(*map(len, self.slopes), *values.shape[1:])


def lattice(slopes: NDArray[Any], offsets: NDArray[Any]) -> Lattice | None:
    """The grid that tokens form, tokens × axes, or None: each combination of its axes' lines must occur just once."""
    lines = slopes + 1j * offsets  # complex numbers are sorted much faster than pairs
    pairs = [np.unique(lines[:, k], return_inverse=True) for k in range(slopes.shape[1])]
    shape = tuple(len(found) for found, _ in pairs)
    if math.prod(shape) != len(slopes):
        return None
    place = np.ravel_multi_index(tuple(inverse.ravel() for _, inverse in pairs), shape)
    if not np.all(np.bincount(place, minlength=len(slopes)) == 1):
        return None
    return Lattice(tuple(f.real.copy() for f, _ in pairs), tuple(f.imag.copy() for f, _ in pairs), place)


def table_error(
    table: SoftmaxTable, function: Expr, names: Sequence[str], ends: Sequence[BallEnds], pieces: Any
) -> float:
    """Bound sup abs(T - function) over the box of arguments; infinite where a piece has no bound."""
    if not len(table.slopes) == len(names) == len(ends) or not function.names <= set(names):
        raise RefutedError(f"a table of {len(table.slopes)} axes does not go with a function of {', '.join(names)}")
    if len(names) > 1:
        from transformula.kernel.tables.grid_error import grid_error  # which needs the class above

        return grid_error(table, function, names, ends, pieces)
    edges = checked_edges([pieces], ends, MAX_PIECES)[0].tolist()
    first, last = dyadic_below(ends[0][0]), dyadic_above(ends[0][1])
    bounds = TablePieces(table, function, names[0], first, last)
    worst = float(np.max([bounds.on(low, high).error for low, high in pairwise(edges)]))
    return worst if math.isfinite(worst) else math.inf


class Piece(NamedTuple):
    """A proven bound of abs(T - f); for the search only: an error that occurs, and abs(f) in the middle."""

    error: float
    reached: float
    size: float


class TablePieces:
    """Bounds of abs(T - f) for a table of one axis, piece by piece, between two ends.

    Nodes of f in ``defined`` are known to be defined there.
    """

    def __init__(
        self, table: SoftmaxTable, function: Expr, name: str, first: fmpq, last: fmpq, defined: Container[Expr] = ()
    ) -> None:
        self.name = name
        self.first = first
        self.last = last
        self.defined = defined
        self.axis = TableAxis(table.slopes[0], table.offsets[0])
        self.values = [arb(y) for y in table.values.tolist()]
        with precision(_BITS):
            self.curved, self.slope, self.constant = _split(function, name)
            self.series = SeriesOf(function, name)
            self.total = sum((abs(y) for y in self.values), arb(0))

    def on(self, low: float, high: float) -> Piece:
        """Bounds on the part of [low, high] between the ends."""
        with precision(_BITS), series_length(2 * _ORDER):
            centre = arb(low + (high - low) / 2)  # a float, as Taylor models need
            radius = arb(round_up((arb(high) - centre).max(centre - arb(low))))
            goal, rest = self._smooth(centre, radius)
            if not rest < 1e-3 * (1 + abs(goal[0])):
                goal, rest = self._singular(low, high, centre, radius, goal, rest)
            error, reached = self._expand(centre, radius).error(goal, rest)
        return Piece(error, reached, abs(float(goal[0])))

    def _smooth(self, centre: arb, radius: arb) -> tuple[list[arb], arb]:
        """Taylor coefficients of f and their remainder, infinite where f may not be smooth."""
        try:
            return self.series.expand(centre, radius, _ORDER)
        except SingularError:
            return [arb(0)], arb.pos_inf()

    def _singular(
        self, low: float, high: float, centre: arb, radius: arb, goal: list[arb], rest: arb
    ) -> tuple[list[arb], arb]:
        """The best of the series and, if f is defined on the piece, of a Taylor model and the range of f."""
        start, stop = max(from_float(low), self.first), min(from_float(high), self.last)
        # where the piece lies beyond the ends the series may do
        ends = try_range(self.curved, {self.name: (start, stop)}, self.defined) if start <= stop else None
        if ends is None:
            return goal, rest
        at = np.array([[float(centre)]]), np.array([[float(radius)]])
        model = model_of(self.curved, [self.name], *at, _ROUGH)
        middle = arb((ends[0] + ends[1]) / 2).mid()
        spread = arb((arb(ends[1]) - middle).max(middle - arb(ends[0])).upper())
        linear = self.slope * centre + self.constant, self.slope * radius
        rough = float(model.rest[0])
        if rough < rest and not spread <= rough:
            terms = [arb(c) for c in model.terms[:, 0].tolist()]
            return [linear[0] + terms[0], linear[1] + terms[1], *terms[2:]], arb(rough)
        return ([linear[0] + middle, linear[1]], spread) if spread < rest else (goal, rest)

    def _expand(self, centre: arb, radius: arb) -> _QuotientExpansion:
        """N and D on the piece as series in t with remainders."""
        frame = leading(self.axis, float(centre), float(radius), _CUT)
        above = below = arb_series([0], _ORDER + 1)
        above_rest = below_rest = arb(0)
        for j, score, rate in frame.scores(centre, radius):
            term = arb_series([score, rate], _ORDER + 1).exp()
            rest = abs(coefficients(term, _ORDER + 1)[_ORDER]) * abs(rate).exp()
            below, above = below + term, above + self.values[j] * term
            below_rest, above_rest = below_rest + rest, above_rest + abs(self.values[j]) * rest
        dropped, cut = len(self.values) - len(frame.tokens), arb(-_CUT).exp()
        if dropped:
            below_rest, above_rest = below_rest + dropped * cut, above_rest + self.total * cut
        series = coefficients(above, _ORDER), coefficients(below, _ORDER)
        return _QuotientExpansion(*series, above_rest, below_rest)


def _split(function: Expr, name: str) -> tuple[Expr, arb, arb]:
    """f = curved + slope u + constant, with exact numbers that are terms of the sum f."""
    curved = []
    slope = fmpq(0)
    constant = fmpq(0)
    for term in function.args if function.op == "add" else (function,):
        factors = term.args if term.op == "mul" and len(term.args) == 2 else (number(1), term)
        if term.number is not None:
            constant += to_fmpq(term.number)
        elif factors[0].number is not None and factors[1] == variable(name):
            slope += to_fmpq(factors[0].number)
        else:
            curved.append(term)
    return add(*curved) if curved else number(0), arb(slope), arb(constant)


class _QuotientExpansion(NamedTuple):
    """N and D on a piece: coefficients below the order, and bounds of the rest."""

    above: list[arb]
    below: list[arb]
    above_rest: arb
    below_rest: arb

    def error(self, goal: list[arb], rest: arb) -> tuple[float, float]:
        """Bound of abs((N - D f) / D) on the piece, infinite if there is none, and a value that occurs."""
        product = coefficients(arb_series(self.below, 2 * _ORDER) * arb_series(goal, 2 * _ORDER), 2 * _ORDER)
        difference = [a - product[k] for k, a in enumerate(self.above)]
        goal_size = sum((abs(g) for g in goal), arb(0))
        below_size = sum((abs(d) for d in self.below), self.below_rest)
        tail = sum(map(abs, product[_ORDER:]), self.above_rest)
        tail += self.below_rest * goal_size + below_size * rest
        error, error_rest = bernstein_of_series(difference, tail, _PARTS)
        divisor, divisor_rest = bernstein_of_series(self.below, self.below_rest, _PARTS)
        with np.errstate(invalid="ignore"):
            least = divisor.min(axis=1) - divisor_rest
        if not least.min() > 0:
            return math.inf, 0.0
        sizes = np.abs(error)
        # a sum, a difference, a quotient and this product: 4 roundings, fewer than the 32u charged; it may underflow
        with np.errstate(over="ignore"):
            bound = math.nextafter(np.max((sizes.max(axis=1) + error_rest) / least), math.inf) * (1 + 2.0**-48)
        if not math.isfinite(bound):
            return math.inf, 0.0
        ends = (sizes[:, [0, -1]] - error_rest) / (divisor[:, [0, -1]] + divisor_rest)
        return bound, max(float(ends.max()), 0.0)
