"""How far softmax attention computed in floats can be from the real function of its weights.

*Model.* fl(a op b) = (a op b)(1 + d), abs(d) <= u, for + - * /; exp within ``exp_ulps`` units in
the last place, so within a relative theta = 2 u exp_ulps; results below ``min_normal`` may be
flushed to zero; sums in any order; the input x is a real number rounded once. gamma_n = n u / (1
- n u).

*Theorem.* Tokens j with scores s_j = a_j.x + b_j, values y_j, weights w_j = e^{s_j} / sum
e^{s_i}, T = sum w_j y_j.

1. The computed score has abs(s^_j - s_j) <= E_j = gamma_{L+1} (abs(a_j).abs(x) + abs(b_j)): L
   roundings for each product of the dot product (``score_roundings``) and one for x.
2. Subtracting the computed maximum m^ adds u abs(s^_j - m^) <= u (m - s_j + E_j + max E), m = max
   s. (Which number is subtracted does not matter: it cancels between numerator and denominator.)
3. So the computed exponential is e_j (1 + p_j), e_j = e^{s_j - m^}, with abs(p_j) <= P_j = (1 +
   theta) e^{D_j} - 1, D_j = E_j + u (m - s_j + E_j + max E), or is flushed, an error of at most
   min_normal.
4. With exact sums and quotient, T' - T = sum e_j p_j (y_j - T) / sum e_j (1 + p_j): *the common
   part of the errors cancels*, and abs(T' - T) <= A = sum w_j P_j abs(y_j - T) / (1 - sum w_j
   P_j).
5. The sum of the exponentials carries n roundings (n = M - 1 in any order), common to all tokens:
   gamma_n abs(T'). Dividing, multiplying by y_j and adding: gamma_{n+2} sum w'_j abs(y_j), where
   sum w'_j abs(y_j) <= sum w_j abs(y_j) (1 + max P) / (1 - sum w_j P_j).
6. The affine part and the residual additions: gamma_{d+3} (abs(O) + sum abs(alpha_i x_i) +
   abs(gamma)).

*Over the box.* The box is cut into small boxes. On each, `Sheets` gives a number mu and a bound
of abs(T - mu), and abs(y_j - T) <= abs(y_j - mu) + abs(T - mu). Along an axis each weight has the
bound W_j (Bernstein coefficients of its Taylor model, `axes`); m - s_j is convex, so largest at
an end of the interval; and w_j (e^{D_j} - 1) <= Q_j with Q_j = W_j (D_j + D_j**2) if D_j <= 1,
else e^{D_j - least gap}: tokens far away do no harm however large their scores. On a grid scores
add, weights multiply, and prod(w e^D) - prod(w) <= sum over axes of W+Q before, Q at, W after the
axis. A table is the case d = 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flint import arb

from transformula.certificates.axis_models import Axis
from transformula.certificates.grid_bounds import first_edges, halve, products
from transformula.certificates.grid_models import Grid, Sheets
from transformula.certificates.table_bounds import Table
from transformula.formulas.enclosures import precision, round_up
from transformula.taylor import bernstein
from transformula.taylor.models import TINY, UP, U, boxes_of
from transformula.taylor.results import Floats

_BITS = 80
_ORDERS = {1: 6, 2: 6, 3: 4, 4: 3}
_CUTS = {1: 1, 2: 1, 3: 0, 4: 0}
_CUT_SCORE = 45.0
_COARSE = 0.01
_MAX_HALVINGS = 40
#: Numbers held at once: boxes times tokens.
_CHUNK = 2_000_000


@dataclass(frozen=True)
class Arithmetic:
    """What is assumed of the floats and of the evaluation.

    Attributes
    ----------
    unit_roundoff, min_normal : float
        2**-53 and 2**-1022 for float64; 2**-24 and 2**-126 for float32.
    exp_ulps : float
        The exponential is this close, in units in the last place (NumPy states 2.52 for its
        vectorised float32 exp, and below 1 for float64; 4 leaves room for other libraries).
    score_roundings : int, optional
        Roundings that a product a_i x_i meets on its way into a score, its own included; offsets
        meet one fewer. Default 2 d: a dot product with d slopes and d offsets in any order (terms
        that are zero cost nothing). Raise it if queries, keys or a scaling are computed in floats.
    sum_roundings : int, optional
        Roundings in a sum over tokens; default M - 1, which holds for any order.
    factorised : bool
        A grid is evaluated axis by axis: d softmaxes, then a contraction.
    argument_errors : tuple of float
        For each axis the absolute error of an argument that is itself computed (a linear form).
    """

    unit_roundoff: float = 2.0**-53
    exp_ulps: float = 4.0
    min_normal: float = 2.0**-1022
    score_roundings: int | None = None
    sum_roundings: int | None = None
    factorised: bool = False
    argument_errors: tuple[float, ...] = ()

    def evaluated_by_axes(self) -> Arithmetic:
        """The same arithmetic for a grid evaluated axis by axis."""
        return replace(self, factorised=True)

    @classmethod
    def of(cls, dtype: str, **changes: Any) -> Arithmetic:
        """The arithmetic of ``float64`` or ``float32``."""
        units = {"float64": (2.0**-53, 2.0**-1022), "float32": (2.0**-24, 2.0**-126)}
        u, least = units[dtype]
        return cls(unit_roundoff=u, min_normal=least, **changes)

    def gamma(self, roundings: int) -> float:
        """n u / (1 - n u), rounded up."""
        small = roundings * self.unit_roundoff
        return small / (1 - small) * UP if small < 0.5 else math.inf


@dataclass(frozen=True)
class _Factors:
    """Bounds on the intervals of one axis, shapes (intervals, M): W_j, Q_j, and W_j + Q_j."""

    weights: Floats
    moved: Floats
    both: Floats


def rounding_bound(table: Table | Grid, box: Sequence[tuple[arb, arb]], arithmetic: Arithmetic) -> float:
    """Prove a bound of abs(computed - (T(x) + alpha.x + gamma)) over a box.

    Returns
    -------
    float
        Rounded up; ``inf`` where the dtype is too coarse for the scores.
    """
    grid = _as_grid(table)
    d = len(grid.axes)
    with precision(_BITS):
        edges = [
            _fine_edges(axis, ends, _ORDERS[d], _CUTS[d]) for axis, ends in zip(grid.axes, box, strict=True)
        ]
        lower, upper = products([e[:-1] for e in edges]), products([e[1:] for e in edges])
        sheets = Sheets(grid, lower, upper, _ORDERS[d], _CUT_SCORE)
        factors = [
            _axis_factors(axis, e, models.terms, models.rest, d, arithmetic, wrong)
            for axis, e, models, wrong in zip(
                grid.axes, edges, sheets.models, arithmetic.argument_errors or (0.0,) * d, strict=True
            )
        ]
    reach = [float(np.abs(e).max()) for e in edges]
    step = max(1, _CHUNK // grid.values.size)
    parts = (slice(k, k + step) for k in range(0, lower.shape[1], step))
    return max(_bound(grid, sheets, factors, reach, part, arithmetic) for part in parts)


def _bound(
    grid: Grid,
    sheets: Sheets,
    factors: Sequence[_Factors],
    reach: Sequence[float],
    part: slice,
    arithmetic: Arithmetic,
) -> float:
    """The bound on some boxes: steps 4 to 6 of the theorem."""
    d, values = len(factors), np.asarray(grid.values, dtype=np.float64)
    index = [i[part] for i in sheets.index]
    boxes = len(index[0])
    softmaxes = d if arithmetic.factorised else 1
    theta = 2 * arithmetic.unit_roundoff * arithmetic.exp_ulps * softmaxes
    theta = theta * (1 + theta) * UP  # (1 + t)**d - 1 <= d t (1 + d t) while d t <= 1
    terms, rest, rounding = sheets.table(part)
    flat = terms.reshape(boxes, -1)
    middle = flat[:, 0]
    deviation = (np.abs(flat[:, 1:]).sum(axis=1) + rest + rounding) * UP
    away = np.abs(values[None] - middle.reshape(-1, *([1] * d))) * UP
    weights = [f.weights[i] for f, i in zip(factors, index, strict=True)]
    moved = [f.moved[i] for f, i in zip(factors, index, strict=True)]
    both = [f.both[i] for f, i in zip(factors, index, strict=True)]
    spread = theta * (_contract(away, weights) + deviation)
    share = np.full(boxes, theta)
    for k in range(d):
        mass = (1 + theta) * moved[k].sum(axis=1) * UP
        for earlier in both[:k]:
            mass = mass * earlier.sum(axis=1) * UP
        share = share + mass
        product = _contract(away, [*both[:k], moved[k], *weights[k + 1 :]])
        spread = spread + (1 + theta) * product + mass * deviation
    if not share.max() < 0.5:
        return math.inf
    shifted = spread / (1 - share) * UP
    carried = (1 + theta) * _contract(np.broadcast_to(np.abs(values), away.shape), both)
    carried = carried / (1 - share) * UP
    adds = sum(values.shape) - d if arithmetic.factorised else values.size - 1
    adds = adds if arithmetic.sum_roundings is None else arithmetic.sum_roundings
    result = np.abs(middle) + deviation + shifted
    common = arithmetic.gamma(adds)
    summed = common * result + (1 + common) * arithmetic.gamma(adds + 2 * d) * carried
    flushed = 4 * values.size * arithmetic.min_normal * (1 + 2 * float(np.abs(values).max()))
    error = (shifted + summed) * UP + flushed
    slopes = grid.slopes or (0.0,) * d
    affine = sum(abs(a) * r for a, r in zip(slopes, reach, strict=True)) + abs(grid.constant)
    total = error + arithmetic.gamma(d + 3) * (result + error + affine)
    worst = float(total.max()) * UP
    return worst if math.isfinite(worst) else math.inf


def _as_grid(table: Table | Grid) -> Grid:
    if isinstance(table, Grid):
        return table
    axis = Axis(np.asarray(table.slopes), np.asarray(table.offsets))
    return Grid((axis,), np.asarray(table.values), (table.slope,), table.constant)


def _fine_edges(axis: Axis, ends: tuple[arb, arb], order: int, cuts: int) -> Floats:
    """Edges of intervals on which the weights' Taylor models converge (only a guide)."""
    edges = first_edges(axis, *ends)
    for _ in range(cuts):
        edges = halve(edges)
    for _ in range(_MAX_HALVINGS):
        centre, radius = boxes_of(edges[:-1], edges[1:])
        scores = axis.slopes * centre[:, None] + axis.offsets
        scores -= scores.max(axis=1, keepdims=True)
        weights = np.exp(scores)
        weights /= weights.sum(axis=1, keepdims=True)
        rates = np.abs(axis.slopes - weights @ axis.slopes[:, None]) * radius[:, None]
        growth = np.exp(np.clip(scores + rates, -700.0, 100.0))
        lost = (growth * rates**order).sum(axis=1) / math.factorial(order)
        bad = lost > _COARSE
        if not bad.any():
            break
        edges = np.unique(np.concatenate([edges, centre[bad]]))
    return edges


def _axis_factors(
    axis: Axis,
    edges: Floats,
    terms: Floats,
    rest: Floats,
    d: int,
    arithmetic: Arithmetic,
    argument_error: float,
) -> _Factors:
    low, high = edges[:-1], edges[1:]
    order = terms.shape[1]
    flat = bernstein.matrix(order, 2).reshape(-1, order)
    peaks = np.abs(np.einsum("sk,nkj->nsj", flat, terms)).max(axis=1)
    norms = np.abs(terms).sum(axis=1)
    weights = np.minimum((peaks + rest + norms * bernstein.ROUNDING) * UP + TINY, 1.0)
    reach = np.maximum(np.abs(low), np.abs(high))[:, None]
    roundings = arithmetic.score_roundings or 2 * d
    error = arithmetic.gamma(roundings + 1) * np.abs(axis.slopes) * reach
    error = error + arithmetic.gamma(roundings - 1) * np.abs(axis.offsets)
    error = error + (roundings + 1 + np.abs(axis.slopes)) * arithmetic.min_normal
    error = error + np.abs(axis.slopes) * argument_error
    gaps = np.maximum(_gaps(axis, low), _gaps(axis, high))
    worst = error.max(axis=1, keepdims=True)
    shifts = (error + arithmetic.unit_roundoff * (gaps + error + worst)) * UP + TINY
    small = np.minimum(shifts, 1.0)
    moved = weights * (small + small * small)
    for i, j in np.argwhere(shifts > 1).tolist():
        moved[i, j] = _far(axis, j, float(low[i]), float(high[i]), float(shifts[i, j]))
    moved = moved * UP + TINY
    return _Factors(weights, moved, (weights + moved) * UP)


def _far(axis: Axis, j: int, low: float, high: float, shift: float) -> float:
    """Upper bound of w_j e^{shift} on an interval, against the token that leads at its middle."""
    top = int(np.argmax(axis.slopes * ((low + high) / 2) + axis.offsets))
    slope = arb(float(axis.slopes[j])) - arb(float(axis.slopes[top]))
    offset = arb(float(axis.offsets[j])) - arb(float(axis.offsets[top]))
    score = (slope * low + offset).max(slope * high + offset)
    return round_up((score + shift).exp())


def _gaps(axis: Axis, x: Floats) -> Floats:
    """Upper bounds of max_i s_i - s_j at points, shape (points, M)."""
    products = axis.slopes * x[:, None]
    scores = products + axis.offsets
    slack = (np.abs(products) + np.abs(axis.offsets)) * (4 * U)
    top, most = scores.max(axis=1, keepdims=True), slack.max(axis=1, keepdims=True)
    return np.asarray((top - scores + slack + most) * UP)


def _contract(values: Floats, factors: Sequence[Floats]) -> Floats:
    """Sum over all tokens, box by box; every term is non-negative."""
    result = values
    for factor in factors:
        boxes, first = result.shape[:2]
        shape = result.shape[2:]
        flat = result.reshape(boxes, first, -1)
        result = np.matmul(factor[:, None, :], flat).reshape(boxes, *shape)
    return result * UP
