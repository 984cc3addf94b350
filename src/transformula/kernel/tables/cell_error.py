"""Proof rule for sharp cells with sampled values (Gumaan, Theorem 1, repaired).

*Theorem.* Along an axis sort the tokens by slope: s_{j+1} - s_j = κ_j (x - t_j), κ_j = a_{j+1} - a_j > 0, t_j
= -(b_{j+1} - b_j) / κ_j. With δ_j = L / κ_j, a token whose widened cell [t_{j-1} - δ_{j-1}, t_j + δ_j] does
not contain x has a score at least L below that of a neighbour. On a grid the cells are products: a token
outside its cell is outside it along some axis. With M tokens, L = log M + B log 2, weights w >= 0, sum w = 1,
the tokens outside their cells have at most 2^-B of the weight, so

    |T(x) - f(x)| <= sum_j w_j |y_j - f(x)| <= near + tail,    tail = 2^-B (max|y| + sup|f|),
    near = the largest |y_j - f(x)| over all tokens j and all x in their widened cells,

bounded cell by cell with proven ranges of f, which must be defined there. Every x lies in the cell of the
token that leads at x, so the same ranges bound sup|f|. B is free: a larger one widens the cells.

*Shifts.* If the table reads x' with |x'_k - x_k| <= h_k along each axis, where f(x) is meant, then a token counts
only if x' is in its widened cell, so x is in the cell widened by h_k more: the same bounds hold with those cells.

*Rounding*, as in `softmax`: a computed exponential is e^{s_j} (1 + p_j), |p_j| <= P = (1 + θ) e^D - 1, D = E
+ u (G + 2 E), E the largest error of a score, G the largest gap between two scores. So with exact sums |T' -
T| <= P / (1 - P) sum w_j |y_j - T|, and |y_j - T| <= |y_j - f| + |f - T|: the sum is at most twice the bound
above. Sums and quotient: γ_n |T'| + (1 + γ_n) γ_{n+2d} max|y| with n = M and |T'| <= max|y|; axis by axis there
are fewer sums, but d quotients and products.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from flint import arb

from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import from_float, round_up
from transformula.kernel.enclosures.expression_ranges import enclose_ranges
from transformula.kernel.enclosures.regions import BallEnds, check_defined, leaves, products
from transformula.kernel.enclosures.taylor_models import Floats
from transformula.kernel.exceptions import NotProvenError, RefutedError
from transformula.kernel.rounding.formats import EXP_ULPS, FloatFormat
from transformula.kernel.rounding.softmax import flushed
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.tables.table_error import SoftmaxTable

BITS = 128
#: Order of the Taylor models that give the ranges.
ORDER = 3
MAX_LEAVES = 4_000_000


def partition_bound(
    table: SoftmaxTable,
    function: Expr,
    names: Sequence[str],
    ends: Sequence[BallEnds],
    far_bits: int,
    trees: Any,
    score_error: arb,
    form: FloatFormat,
    shifts: Sequence[float] = (),
) -> tuple[arb, arb]:
    """Bounds of |T - function| and of |computed T - T| over the box of the ends, for the table's own tokens.

    ``far_bits`` is B; ``trees`` cut the cells of `used_cells` (None leaves them whole); ``score_error`` bounds
    |computed - real| scores. ``shifts`` are the h_k.
    """
    with precision(BITS):
        tokens = table.values.size
        near, largest = cell_error(table, function, names, ends, far_of(tokens, far_bits), trees, shifts)
        size = arb(float(np.max(np.abs(table.values))))
        bound = near + arb(2) ** -far_bits * (size + largest)
        wide = [(a - h, b + h) for (a, b), h in zip(ends, shifts or (0.0,) * len(names), strict=True)]
        rounding = blur_factor(table, wide, score_error, form) * 2 * bound + sum_error(form, tokens, size, len(names))
        if not (bound.is_finite() and rounding.is_finite()):
            raise NotProvenError(f"{function} could not be bounded on the cells of a partition")
        return bound.upper(), rounding.upper()


def blur_factor(table: SoftmaxTable, ends: Sequence[BallEnds], score_error: arb, form: FloatFormat) -> arb:
    """P / (1 - P)."""
    u = form.unit_roundoff
    moved = score_error + u * (_largest_gap(table, ends) + 2 * score_error)
    factor = (1 + 2 * EXP_ULPS * u) ** len(ends) * moved.exp() - 1  # one exp for each axis, or one in all
    if not factor < 0.5:
        raise NotProvenError(f"the scores are too large for {form.name}: cells would blur")
    return factor / (1 - factor)


def sum_error(form: FloatFormat, tokens: int, size: arb, axes: int) -> arb:
    """Error of sums, quotient and flushing, of values up to a size."""
    common = form.gamma(tokens)
    sums = (common + (1 + common) * form.gamma(tokens + 2 * axes)) * size  # a quotient and a product for each axis
    return sums + flushed(form, tokens, round_up(size), axes) + form.value_slip


def far_of(tokens: int, far_bits: int) -> arb:
    """L of the theorem."""
    if not 0 < far_bits <= 4096:
        raise RefutedError(f"{far_bits} bits are no sensible weight outside the cells")
    return arb(tokens).log() + far_bits * arb.const_log2()


def cell_error(
    table: SoftmaxTable,
    function: Expr,
    names: Sequence[str],
    ends: Sequence[BallEnds],
    far: arb,
    trees: Any,
    shifts: Sequence[float] = (),
) -> tuple[arb, arb]:
    """``near`` of the theorem, and a bound of sup|function|; infinite where a cell has none."""
    with precision(BITS):
        lower, upper, values = used_cells(table, ends, far, shifts)
        if trees is not None:
            lower, upper, origin = leaves(lower, upper, trees, MAX_LEAVES)
            values = values[origin]
        check_defined(function, names, ends, lower, upper)
    low, high = enclose_ranges(function, names, lower, upper, order=ORDER)
    with np.errstate(all="ignore"):
        error = np.nextafter(np.maximum(high - values, values - low), np.inf)
    return _ball(float(np.max(error))), _ball(float(np.max(np.maximum(np.abs(low), np.abs(high)))))


def used_cells(
    table: SoftmaxTable, ends: Sequence[BallEnds], far: arb, shifts: Sequence[float] = ()
) -> tuple[Floats, Floats, Floats]:
    """Widened cells that meet the box, in C order: ends (d, cells), rounded outward, and values."""
    if table.values.size > MAX_LEAVES:
        raise RefutedError(f"a partition has more than {MAX_LEAVES} cells")
    sides = zip(table.slopes, table.offsets, ends, shifts or (0.0,) * len(ends), strict=True)
    axes = [_widened(a, b, e, far, arb(h)) for a, b, e, h in sides]
    lower, upper = products([a[0] for a in axes]), products([a[1] for a in axes])
    used = ~np.isnan(lower).any(axis=0)
    if not used.any():
        raise RefutedError("no cell of a partition meets the range of its arguments")
    return lower[:, used], upper[:, used], table.values.ravel()[used]


def _widened(slopes: Floats, offsets: Floats, ends: BallEnds, far: arb, shift: arb) -> tuple[Floats, Floats]:
    """BallEnds, rounded outward, of every token's widened cell cut to the range; empty ones are NaN."""
    order, pairs = np.argsort(slopes).tolist(), (slopes.tolist(), offsets.tolist())
    low, high = arb(ends[0].lower()), arb(ends[1].upper())
    starts, stops = [low], []
    for i, j in pairwise(order):
        gap, drop = (from_float(v[j]) - from_float(v[i]) for v in pairs)
        if not gap > 0:
            raise RefutedError("two tokens of a partition have the same slope")
        stops.append(arb(-drop / gap) + far / arb(gap) + shift)
        starts.append(arb(-drop / gap) - far / arb(gap) - shift)
    lower, upper = np.full((2, len(slopes)), np.nan)
    for token, start, stop in zip(order, starts, [*stops, high], strict=True):
        start, stop = start.max(low), stop.min(high)
        if not start > stop:
            lower[token], upper[token] = -round_up(-start), round_up(stop)
    return lower, upper


def _largest_gap(table: SoftmaxTable, ends: Sequence[BallEnds]) -> arb:
    """The largest difference of two scores over the box: each is affine, so largest at an end."""
    total = arb(0)
    for slopes, offsets, axis_ends in zip(table.slopes, table.offsets, ends, strict=True):
        gaps, pairs = [], list(zip(slopes.tolist(), offsets.tolist(), strict=True))
        for end in axis_ends:
            scores = [arb(a) * end + arb(b) for a, b in pairs]
            gaps.append(max(round_up(s) for s in scores) + max(round_up(-s) for s in scores))
        total += arb(max(gaps)) * (1 + arb(2) ** -50)  # the sum of two floats above
    return total


def _ball(value: float) -> arb:
    return arb(value) if np.isfinite(value) else arb.pos_inf()
