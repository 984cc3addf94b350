"""The theorem as written: sharp cells, sampled values (Gumaan, Theorem 1).

Along each axis the cells are chosen so that the function varies equally much over each of them: with
g_k(u) = max over the other variables of |∂f/∂u_k| and total variation G_k = ∫ g_k, axis k gets
N_k = ⌈d G_k / 2ε⌉ cells of variation 2ε/d, each represented by the point that halves its variation. In one
dimension that is the covering number itself: no set of intervals on which f varies by at most 2ε can
be smaller. Flat places get wide cells.

Scores are max-affine along each axis: slopes a_{j+1} = a_j + κ_j, offsets so that tokens j and j + 1 take
turns at the threshold t_j. The slope gaps κ_j = L/δ_j follow from the weight e^{−L} that may lie outside the
cells widened by δ_j; δ_j is a small part of the narrower neighbour, so widening costs next to nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from transformula.budget import checkpoint
from transformula.compiler import policy
from transformula.compiler.attempts import Attempt, BuildTask, Built
from transformula.compiler.constructions import PARTITION
from transformula.compiler.layout import TableTokens
from transformula.compiler.lower.additive import Part
from transformula.compiler.one_layer_parts import Wanted, one_layer_built, one_layer_spec
from transformula.compiler.refusal import too_many_cells, too_steep, undefined_on_box
from transformula.formula.evaluation import evaluate
from transformula.kernel.enclosures.coverings import products

Floats = NDArray[np.float64]


def partition_attempts(task: BuildTask) -> Iterator[Attempt]:
    """Models with ever finer cells, coarsest first."""
    dtype = task.options.dtype
    for finer in policy.FINER_CELLS:

        def build(finer: float = finer) -> Built:
            def fit(parts: Sequence[Wanted]) -> list[TableTokens]:
                return [fit_partition(part, ranges, share / finer, dtype) for part, ranges, share in parts]

            spec = one_layer_spec(task.ground, task.eps, fit, dtype, task.options.shape)
            return one_layer_built(task.ground, spec, policy.FAR_BITS[dtype] - 1)

        yield Attempt(PARTITION, build)


def fit_partition(part: Part, ranges: Sequence[tuple[float, float]], eps: float, dtype: str) -> TableTokens:
    """Cells and sampled values for one part."""
    dimension = len(ranges)
    names = [f"u{k + 1}" for k in range(dimension)]
    axes, values = _sampled(part, names, ranges, eps)
    cuts = [_equal_variation(axes[k], values, k, eps / dimension) for k in range(dimension)]
    tokens = math.prod(len(middles) for _, middles in cuts)
    _check_count(tokens)
    scores = [sharp_scores(thresholds, ends, dtype, tokens) for (thresholds, _), ends in zip(cuts, ranges, strict=True)]
    slopes, offsets = (products(side).T for side in zip(*scores, strict=True))
    sampled = evaluate(part.expr, names, list(products([middles for _, middles in cuts])))
    return TableTokens(slopes, offsets, sampled.astype(dtype).astype(float)[:, None])


def _check_count(tokens: float) -> None:
    if tokens > policy.MAX_PARTITION_TOKENS:
        raise too_many_cells(tokens)


def _sampled(
    part: Part, names: Sequence[str], ranges: Sequence[tuple[float, float]], eps: float
) -> tuple[list[Floats], Floats]:
    """The function on a mesh that is refined, axis by axis, where it jumps by much of a cell."""
    axes = [np.linspace(low, high, policy.MESH[len(ranges)]) for low, high in ranges]
    for left in reversed(range(policy.MOST_ROUNDS)):
        checkpoint()
        values = evaluate(part.expr, names, np.meshgrid(*axes, indexing="ij"))
        if not np.all(np.isfinite(values)):
            raise undefined_on_box(part.original)
        steps = [_steps(values, k) for k in range(len(ranges))]
        _check_count(math.prod(max(1.0, float(s.sum()) * len(ranges) / (2 * eps)) for s in steps))
        steep = [s > 0.2 * eps / len(ranges) for s in steps]
        finer = math.prod(len(a) + int(s.sum()) for a, s in zip(axes, steep, strict=True))
        if not any(s.any() for s in steep) or finer > policy.MAX_MESH or not left:
            break
        axes = [np.unique(np.append(a, (a[:-1] + a[1:])[s] / 2)) for a, s in zip(axes, steep, strict=True)]
    return axes, values


def _steps(values: Floats, k: int) -> Floats:
    """The largest change from each mesh point of an axis to the next."""
    along = np.abs(np.diff(np.moveaxis(values, k, 0), axis=0))
    largest: Floats = along.reshape(len(along), -1).max(axis=1)
    return largest


def _equal_variation(axis: Floats, values: Floats, k: int, eps: float) -> tuple[Floats, Floats]:
    """Thresholds and representatives of cells over which the function varies by 2 eps."""
    steps = _steps(values, k)
    # a tiny uniform part keeps the map one-to-one where the function is flat
    steps = steps + 1e-9 * max(steps.sum(), eps) / len(steps)
    total = np.concatenate([[0.0], np.cumsum(steps)])
    cells = max(1, math.ceil(total[-1] / (2 * eps)))
    levels = total[-1] * (np.arange(2 * cells + 1) / (2 * cells))  # in this order nothing overflows
    points = np.interp(levels, total, axis)
    return points[2:-1:2], points[1::2]


def sharp_scores(thresholds: Floats, ends: tuple[float, float], dtype: str, tokens: int) -> tuple[Floats, Floats]:
    """Slopes and offsets of one axis, in the dtype."""
    edges = np.concatenate([[ends[0]], thresholds, [ends[1]]])
    widths = np.diff(edges)
    if not np.all(widths > 0):
        raise too_steep(edges[np.argmin(widths)])
    far = math.log(max(tokens, 2)) + policy.FAR_BITS[dtype] * math.log(2)
    widening = min(0.1, policy.WIDENING[dtype] * max(1.0, len(widths) / policy.BLUNTER_BEYOND))
    gaps = far / (widening * np.minimum(widths[:-1], widths[1:]))
    slopes = np.concatenate([[0.0], np.cumsum(gaps)])
    slopes = (slopes - slopes[len(slopes) // 2]).astype(dtype).astype(float)
    offsets = np.concatenate([[0.0], -np.cumsum(np.diff(slopes) * thresholds)])
    return slopes, (offsets - offsets[len(offsets) // 2]).astype(dtype).astype(float)
