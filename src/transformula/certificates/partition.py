"""The proof for the theorem as written: sharp cells, sampled values (Gumaan, Theorem 1, repaired).

Along an axis the tokens, sorted by slope, take turns at t_j = −(b_{j+1} − b_j)/(a_{j+1} − a_j).
With κ_j = a_{j+1} − a_j and δ_j = L/κ_j, a token whose widened cell [t_{j−1} − δ_{j−1}, t_j + δ_j] does
not contain x has a score at least L below the largest, provided the widened cells of tokens that are
not neighbours do not meet. So with M tokens in all, weights w ≥ 0, Σ w = 1, ::

    |T(x) − f(x)| ≤ Σ_j w_j |y_j − f(x)|
                  ≤ max over widened cells around x of |y_j − f(x)|  +  M e^{−L} (max|y| + sup|f|)

and the first term is bounded cell by cell with proven ranges of f. On a grid the cells are products.
Rounding moves scores by at most D, hence weights by a factor e^{±2D}, which mixes only neighbours.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from flint import arb, fmpq
from numpy.typing import NDArray

from transformula.certificates.leaks import head_leak, score_error
from transformula.certificates.one_layer import Group, OneLayer, affine_range, plan_outputs, read_one_layer
from transformula.certificates.one_layer_rounding import output_rounding
from transformula.certificates.proof import Proof, RefutedError
from transformula.certificates.rounding import EXP_ULPS, FORMATS
from transformula.formulas.enclosures import precision, round_up, to_fmpq
from transformula.formulas.formula import Formula
from transformula.formulas.numeric import evaluate
from transformula.taylor.cells import enclose_ranges
from transformula.transformers.one_layer import TableHead
from transformula.transformers.weights import FloatArray, Weights, to_rational

Floats = NDArray[np.float64]

#: Bits below the largest weight that a token outside its widened cell must be.
FAR_BITS = {"float64": 40, "float32": 16}
#: Rounds of splitting cells whose range is not enclosed tightly enough.
_ROUNDS = 8
_BITS = 128


def prove_partition(weights: Weights, formula: Formula) -> Proof:
    """Prove a one-layer model with sharp cells, or raise `RefutedError`."""
    with precision(_BITS):
        network = read_one_layer(weights, formula.box)
        approximations = []
        errors: dict[tuple[int, int], tuple[arb, arb]] = {}
        cells = 0
        for plan in plan_outputs(network, formula):
            total = plan.leftover
            for group in plan.groups:
                bound, wrong, count = _prove_group(group, network, formula, weights.dtype)
                total += bound
                cells += count
                errors.update(wrong)
            approximations.append(total)
        for h, head in enumerate(network.heads):
            for column in range(len(head.slots)):
                errors.setdefault((h, column), (_size(head, column), arb(0)))
        rounding = output_rounding(weights, network.heads, errors, formula.box)
        approximation = max(round_up(a) for a in approximations)
        return Proof(approximation, max(map(round_up, rounding)), {"cells": cells})


def _size(head: TableHead, column: int) -> arb:
    return arb(float(np.abs(head.values[:, column]).max()))


def _prove_group(
    group: Group, network: OneLayer, formula: Formula, dtype: str
) -> tuple[arb, dict[tuple[int, int], tuple[arb, arb]], int]:
    """(approximation, {table: (size, rounding)}, number of cells)."""
    if len(group.tables) != 1 or any(v != 0 for v in group.slopes) or group.constant != 0:
        raise RefutedError("a summand of the formula has no partition of its own")
    ((h, column),) = group.tables
    head = network.heads[h]
    if head.grid is None:
        raise RefutedError("the cells of a partition do not form a grid")
    far = math.log(head.tokens) + FAR_BITS[dtype] * math.log(2)
    ends = [affine_range([to_fmpq(v) for v in f], fmpq(0), formula.box) for f in group.forms]
    axes = [
        _widened_cells(head.grid.slopes[k], head.grid.offsets[k], ball, far) for k, ball in enumerate(ends)
    ]
    near, largest = _cell_errors(group, head, column, axes)
    size = _size(head, column)
    spread = size + largest
    tail = arb(2) ** -FAR_BITS[dtype] * spread
    leak = head_leak(head, ends, column, FORMATS[dtype], formula.box)
    bound = near + tail + leak
    form = FORMATS[dtype]
    moved = 2 * score_error(head, ends, form, formula.box)
    factor = (1 + 2 * EXP_ULPS * form.unit_roundoff) ** 2 * moved.exp() - 1
    if not factor < arb(1) / 2:
        raise RefutedError(f"the scores are too large for {dtype}: cells would blur")
    blur = factor / (1 - factor) * (2 * bound + 2 * tail * (1 + factor))
    sums = form.gamma(head.tokens + head.axes + 4) * size + (head.tokens + 4) * form.tiny * (1 + size)
    return bound, {(h, column): (size, (blur + sums + leak).upper())}, int(head.tokens)


def _widened_cells(slopes: FloatArray, offsets: FloatArray, ball: arb, far: float) -> tuple[Floats, Floats]:
    """Lower and upper ends, rounded outwards, of every token's widened cell; empty ones are NaN."""
    order = np.argsort(slopes)
    low, high = arb(ball.lower()), arb(ball.upper())
    thresholds: list[arb] = []
    widths: list[arb] = []
    for i, j in itertools.pairwise(order):
        gap = to_rational(float(slopes[j])) - to_rational(float(slopes[i]))
        if gap <= 0:
            raise RefutedError("two tokens of a partition have the same slope")
        drop = to_rational(float(offsets[j])) - to_rational(float(offsets[i]))
        thresholds.append(arb(-drop / gap))
        widths.append(arb(far) / arb(gap))
    for k in range(len(thresholds) - 1):
        if not thresholds[k] + widths[k] <= thresholds[k + 1] - widths[k + 1]:
            raise RefutedError("the cells of a partition are blurred into each other")
    lower = np.full(len(slopes), np.nan)
    upper = np.full(len(slopes), np.nan)
    for rank, token in enumerate(order):
        start = thresholds[rank - 1] - widths[rank - 1] if rank else low
        stop = thresholds[rank] + widths[rank] if rank < len(thresholds) else high
        start, stop = start.max(low), stop.min(high)
        if not start > stop:
            lower[token], upper[token] = -round_up(-start), round_up(stop)
    return lower, upper


def _cell_errors(
    group: Group, head: TableHead, column: int, axes: list[tuple[Floats, Floats]]
) -> tuple[arb, arb]:
    """max over cells of |y − f|, and a bound of sup|f|."""
    assert head.grid is not None
    names = [f"u{k + 1}" for k in range(head.axes)]
    lower = np.stack([m.ravel() for m in np.meshgrid(*(a[0] for a in axes), indexing="ij")])
    upper = np.stack([m.ravel() for m in np.meshgrid(*(a[1] for a in axes), indexing="ij")])
    values = head.grid.values[..., column].ravel().astype(float)
    used = ~np.isnan(lower).any(axis=0)
    lower, upper, values = lower[:, used], upper[:, used], values[used]
    largest = settled = 0.0
    for round_number in range(_ROUNDS + 1):
        low, high = enclose_ranges(group.expr, names, lower, upper, order=3)
        error = np.nextafter(np.maximum(high - values, values - low), np.inf)
        known = np.isfinite(error)  # a wide cell may defeat the Taylor model: cut it
        sizes = np.maximum(np.abs(low), np.abs(high))
        largest = max(largest, float(sizes[known].max(initial=0.0)))
        # half of a range is surely overestimated only near the worst cells: split those
        split = (error > 0.98 * _attained(group, names, lower, upper, values)) & (error > settled) | ~known
        if round_number == _ROUNDS or not split.any() or split.sum() > _MAX_SPLITS:
            if not known.all():
                raise RefutedError(_unbounded(group, names, lower, upper, error))
            return arb(max(settled, float(error.max()))), arb(largest)
        settled = max(settled, float(error[~split].max(initial=0.0)))
        lower, upper, values = _halve(lower[:, split], upper[:, split], values[split])
    raise AssertionError("the loop returns")


_MAX_SPLITS = 200_000


def _attained(group: Group, names: list[str], lower: Floats, upper: Floats, values: Floats) -> float:
    """An error that some cell's middle or corner comes close to: only a guide for splitting."""
    points = (lower, upper, (lower + upper) / 2)
    errors = [np.abs(evaluate(group.expr, names, list(p)) - values) for p in points]
    return float(np.nanmax(np.where(np.isfinite(errors), errors, 0.0)))


def _halve(lower: Floats, upper: Floats, values: Floats) -> tuple[Floats, Floats, Floats]:
    """Every cell cut into 2^d, each keeping the value of its token."""
    for axis in range(len(lower)):
        middle = (lower[axis] + upper[axis]) / 2
        left, right = upper.copy(), lower.copy()
        left[axis], right[axis] = middle, middle
        lower, upper = np.concatenate([lower, right], axis=1), np.concatenate([left, upper], axis=1)
        values = np.concatenate([values, values])
    return lower, upper, values


def _unbounded(group: Group, names: list[str], lower: Floats, upper: Floats, error: Floats) -> str:
    worst = int(np.argmin(np.isfinite(error)))
    ends = zip(names, lower[:, worst], upper[:, worst], strict=True)
    place = ", ".join(f"{n} = {a:.6g}..{b:.6g}" for n, a, b in ends)
    return f"{group.expr} could not be bounded on {place}"
