"""The distance of softmax attention computed in floats from the real function of its weights.

*Model* (`formats`). fl(a op b) = (a op b)(1 + d), abs(d) <= u, for + - * /; exp within `EXP_ULPS` units in
the last place, at most 2 u each, so within a relative theta = 2 u EXP_ULPS, unless it is and should be at most 3 eta;
results below the smallest normal number eta may be flushed to zero; sums in any order; x is a real number rounded once.
gamma_n = n u / (1 - n u) bounds n factors (1 + d) or 1 / (1 + d) (Higham, Lemma 3.1).

*Theorem.* Tokens j with scores s_j = a_j.x + b_j, values y_j, weights w_j = e^{s_j} / sum e^{s_i}, T = sum
w_j y_j.

1. The computed score has abs(s^_j - s_j) <= E_j = gamma_{L+1} abs(a_j).abs(x) + gamma_{L-1} abs(b_j): L
   roundings for each product of the dot product (``score_roundings``) and one for x. An argument that is off
   by e adds (1 + gamma_L) abs(a_j) e. L operations, step 2 and x may underflow: 2 eta each, as later
   roundings do not double it; for x it is multiplied by abs(a_j).
2. Subtracting the computed maximum m^ adds u abs(s^_j - m^) <= u (m - s_j + E_j + max E), m = max s. (Which
   number is subtracted does not matter: it cancels between numerator and denominator.)
3. So the computed exponential is e_j (1 + p_j), e_j = e^{s_j - m^}, abs(p_j) <= P_j = (1 + theta) e^{D_j} -
   1, D_j = E_j + u (m - s_j + E_j + max E), or off by at most 3 eta.
4. With exact sums and quotient, T' - T = sum e_j p_j (y_j - T) / sum e_j (1 + p_j): *the common part of the
   errors cancels*, and abs(T' - T) <= A = sum w_j P_j abs(y_j - T) / (1 - sum w_j P_j).
5. The sum of the exponentials carries n roundings (n = M - 1 in any order), common to all tokens: gamma_n
   abs(T'). Dividing, multiplying by y_j and adding: (1 + gamma_n) gamma_{n+2} sum w'_j abs(y_j), where sum
   w'_j abs(y_j) <= sum w_j abs(y_j) (1 + P_j) / (1 - sum w_j P_j). For flushing see `flushed`.
6. Adding the result to a residual stream: gamma_{d+3} abs(O), for d + 3 sums of at most that size.

*Orders that are covered.* (a) Weights first, e_j / sum e_i, then their sum with the values, as the blocks are written.
(b) The quotient last, sum e_j y_j / sum e_j: in step 5 each e_j y_j meets a product, n sums and a quotient, n + 2
roundings as before, and eta each for what underflows. With n = M, as the rules count, a product with the reciprocal may
take the place of the quotient. (c) Any number subtracted instead of m^ if the exponentials, their products with values
and all sums stay in range and one exponential is at least 1 (`program.bounds`). (d) Grids axis by axis.
The largest numbers are scores and, in (b), the sum of M products: no exponential is above 1, so that it is at most
M Y (1 + gamma_{n+1}) with abs(values) <= Y. `rounding_bound` keeps both below `largest`, and `overflow` the values of
all N tokens of a model, for kernels that add up foreign tokens before they meet the head's own.

*Over the box*, cut into small boxes. On each, `Sheets` gives a number mu and a bound of abs(T - mu), and
abs(y_j - T) <= abs(y_j - mu) + abs(T - mu). Along an axis each weight has the bound W_j <= 1 (Bernstein
coefficients of its Taylor model); m - s_j is convex, so largest at an end of the interval; and w_j (e^{D_j} -
1) <= Q_j with Q_j = W_j (D_j + D_j**2) if D_j <= 1, else e^{D_j - least gap}: tokens far away do no harm
however large their scores. On a grid scores add, weights multiply, and prod(w e^D) - prod(w) <= sum over axes
of W+Q before, Q at, W after the axis. Evaluated axis by axis, the roundings of d softmaxes add up: (1 +
theta)^d - 1, and n is a sum over axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from flint import arb

from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import round_up
from transformula.kernel.enclosures.expression_ranges import BERNSTEIN_ROUNDING, bernstein_matrix
from transformula.kernel.enclosures.regions import BallEnds, checked_edges, edge_boxes
from transformula.kernel.enclosures.taylor_models import TINY, UP, Floats, U
from transformula.kernel.rounding.formats import EXP_ULPS, FloatFormat
from transformula.kernel.tables.grid_error import Sheets
from transformula.kernel.tables.table_error import SoftmaxTable, TableAxis

BITS = 80
#: Orders of the weights' Taylor models, by the number of axes.
ORDERS = {1: 6, 2: 6, 3: 4, 4: 3}
_CUT = 45.0
_MAX_BOXES = 1_000_000
#: Numbers held at once: boxes times tokens.
_CHUNK = 2_000_000


@dataclass(frozen=True)
class Arithmetic:
    """Assumptions about the floats and the evaluation."""

    form: FloatFormat
    #: Roundings that a product a_i x_i meets on its way into a score, its own included; offsets meet one fewer.
    #: Default 2 d: a dot product with d slopes and d offsets in any order (terms that are zero cost nothing).
    score_roundings: int | None = None
    #: Roundings in a sum over tokens; default M - 1, which holds for any order.
    sum_roundings: int | None = None
    #: A grid is evaluated axis by axis: d softmaxes, then a contraction.
    factorised: bool = False
    #: For each axis the absolute error of an argument that is itself computed.
    argument_errors: tuple[float, ...] = ()
    #: Roundings of x itself; 0 if x is a float, or if the argument errors count them.
    input_roundings: int = 1

    def gamma(self, roundings: int) -> float:
        """gamma_n, rounded up; infinite where n u is not below 1/2."""
        return round_up(self.form.gamma(roundings)) if self.form.unit_roundoff * roundings < 0.5 else math.inf


class _Factors(NamedTuple):
    """Bounds on the intervals of one axis, shapes (intervals, M): W_j, Q_j, and W_j + Q_j."""

    weights: Floats
    moved: Floats
    both: Floats


def flushed(form: FloatFormat, tokens: int, largest: float, axes: int = 1) -> float:
    """The effect of flushing: at most 4 axes M eta (1 + 2 Y), M tokens with abs(values) <= Y.

    An exponential: 3 eta 2 Y / S with a sum S >= 1 - theta, as the leading token has e^0; a quotient: eta Y; a
    product and an addition: eta each. That is 2 + 7.1 Y a token and axis, and later roundings add less than the rest.
    """
    return 4 * axes * tokens * round_up(form.normal) * (1 + 2 * largest) * UP


def rounding_bound(table: SoftmaxTable, ends: Sequence[BallEnds], edges: Any, arithmetic: Arithmetic) -> float:
    """Prove a bound of abs(computed - T(x)) over the box of the ends, with one list of edges for each axis."""
    d, form = len(table.slopes), arithmetic.form
    wrong = arithmetic.argument_errors or (0.0,) * d
    with precision(BITS), np.errstate(all="ignore"):
        edges = checked_edges(edges, ends, _MAX_BOXES)
        step = max(1, _CHUNK // table.values.size)
        if d == 1 and len(edges[0]) - 1 > step:  # part by part
            parts = [edges[0][k : k + step + 1].tolist() for k in range(0, len(edges[0]) - 1, step)]
            return max(rounding_bound(table, [(arb(p[0]), arb(p[-1]))], [p], arithmetic) for p in parts)
        lower, upper = edge_boxes(edges)
        sheets = Sheets(table, lower, upper, ORDERS[d], _CUT)
        axes = [TableAxis(a, b) for a, b in zip(table.slopes, table.offsets, strict=True)]
        sizes = [float(np.max(np.abs(a.slopes)) * np.max(np.abs(e)) + np.max(np.abs(a.offsets)))
                 for a, e in zip(axes, edges, strict=True)]  # fmt: skip
        # scores, and sums of values before they are divided
        if not 4 * max(sum(sizes), table.values.size * float(np.max(np.abs(sheets.values)))) < float(form.largest):
            return math.inf
        factors = [_axis_factors(axes[k], edges[k], sheets, k, arithmetic, wrong[k]) for k in range(d)]
        boxes = (slice(k, k + step) for k in range(0, lower.shape[1], step))
        worst = float(np.max([_bound(sheets, factors, part, arithmetic) for part in boxes]))
    return worst if math.isfinite(worst) else math.inf


def _bound(sheets: Sheets, factors: Sequence[_Factors], part: slice, arithmetic: Arithmetic) -> float:
    """The bound on some boxes: steps 4 to 6 of the theorem."""
    d, values = len(factors), sheets.values
    index = [i[part] for i in sheets.index]
    up = sheets.up  # sums over tokens
    theta = round_up(2 * EXP_ULPS * arithmetic.form.unit_roundoff) * (d if arithmetic.factorised else 1)
    theta = theta * (1 + theta) * UP  # (1 + t)**d - 1 <= d t (1 + d t) while d t <= 1
    terms, rest, rounding = sheets.table(part)
    flat = terms.reshape(len(rest), -1)
    middle = flat[:, 0]
    deviation = (np.abs(flat[:, 1:]).sum(axis=1) + rest + rounding) * UP
    away = np.abs(values[None] - middle.reshape(-1, *([1] * d))) * UP
    weights, moved, both = ([f[side][i] for f, i in zip(factors, index, strict=True)] for side in range(3))
    spread = theta * (_contract(away, weights) * up + deviation)
    share = np.full(len(rest), theta)
    for k in range(d):
        mass = (1 + theta) * moved[k].sum(axis=1) * up
        for earlier in both[:k]:
            mass = mass * earlier.sum(axis=1) * up
        share = share + mass
        product = _contract(away, [*both[:k], moved[k], *weights[k + 1 :]]) * up
        spread = spread + (1 + theta) * product + mass * deviation
    share = share * UP
    if not share.max() < 0.5:
        return math.inf
    shifted = spread / (1 - share) * UP
    carried = (1 + theta) * _contract(np.broadcast_to(np.abs(values), away.shape), both) * up
    carried = carried / (1 - share) * UP
    adds = sum(values.shape) - d if arithmetic.factorised else values.size - 1
    adds = adds if arithmetic.sum_roundings is None else arithmetic.sum_roundings
    result = np.abs(middle) + deviation + shifted
    common = arithmetic.gamma(adds)
    summed = common * result + (1 + common) * arithmetic.gamma(adds + 2 * d) * carried
    lost = flushed(arithmetic.form, values.size, float(np.abs(values).max()), d)
    error = (shifted + summed) * UP + lost + round_up(arithmetic.form.value_slip)
    return float((error + arithmetic.gamma(d + 3) * (result + error)).max()) * UP


def _axis_factors(
    axis: TableAxis, edges: Floats, sheets: Sheets, k: int, arithmetic: Arithmetic, wrong: float
) -> _Factors:
    """Steps 1 to 3 on the intervals of axis k; the argument is off by ``wrong``."""
    low = edges[:-1]
    high = edges[1:]
    d = len(sheets.terms)
    terms, rest, norms = (of[k] for of in (sheets.terms, sheets.rests, sheets.norms))
    flat = bernstein_matrix(sheets.order, 2).reshape(-1, sheets.order)
    used = norms[:, 0] != 0  # the models of most tokens are zero
    peaks = np.zeros(used.shape)
    peaks[used] = np.abs(terms.swapaxes(1, 2)[used] @ flat.T).max(axis=1)
    weights = np.minimum((peaks + (rest + norms * BERNSTEIN_ROUNDING)[:, 0]) * UP + TINY, 1.0)
    reach = np.maximum(np.abs(low), np.abs(high))[:, None]
    sizes, eta = np.abs(axis.slopes), round_up(arithmetic.form.normal)
    roundings = 2 * d if arithmetic.score_roundings is None else arithmetic.score_roundings
    error = arithmetic.gamma(roundings + arithmetic.input_roundings) * (sizes * reach)  # one may be next to underflow
    error = error + arithmetic.gamma(roundings - 1) * np.abs(axis.offsets)
    error = error + round_up(arithmetic.form.score_slip)
    error = error + (roundings + 1 + sizes) * 2 * eta + (1 + arithmetic.gamma(roundings)) * sizes * wrong
    gaps = np.maximum(_gaps(axis, low), _gaps(axis, high))
    worst = error.max(axis=1, keepdims=True)
    shifts = (error + round_up(arithmetic.form.unit_roundoff) * (gaps + error + worst)) * UP + TINY
    small = np.minimum(shifts, 1.0)
    moved = weights * (small + small * small)
    for i, j in np.argwhere(~(shifts <= 1)).tolist():
        moved[i, j] = _far(axis, j, float(low[i]), float(high[i]), float(shifts[i, j]))
    moved = moved * UP + TINY
    return _Factors(weights, moved, (weights + moved) * UP)


def _far(axis: TableAxis, j: int, low: float, high: float, shift: float) -> float:
    """Upper bound of w_j e^{shift} on an interval, against the token that leads at its middle."""
    top = int(np.argmax(axis.slopes * ((low + high) / 2) + axis.offsets))
    slope = arb(float(axis.slopes[j])) - arb(float(axis.slopes[top]))
    offset = arb(float(axis.offsets[j])) - arb(float(axis.offsets[top]))
    score = (slope * low + offset).max(slope * high + offset)
    return round_up((score + shift).exp())


def _gaps(axis: TableAxis, x: Floats) -> Floats:
    """Upper bounds of max_i s_i - s_j at points, shape (points, M)."""
    parts = axis.slopes * x[:, None]
    scores = parts + axis.offsets
    slack = (np.abs(parts) + np.abs(axis.offsets)) * (4 * U)
    top, most = scores.max(axis=1, keepdims=True), slack.max(axis=1, keepdims=True)
    return np.asarray((top - scores + slack + most) * UP)


def _contract(values: Floats, factors: Sequence[Floats]) -> Floats:
    """Sum over all tokens, box by box; every term is non-negative."""
    result = values
    for factor in factors:
        shape = result.shape
        flat = result.reshape(*shape[:2], -1)
        result = np.matmul(factor[:, None, :], flat).reshape(shape[0], *shape[2:])
    return result
