"""The proof of a Transformer that is close to a formula on average: cells, and seams between them.

A continuous function cannot jump, so one that is nearly constant on cells has seams where it goes from one value to the
next (Yun et al. 2020 state their theorem in L^p for that reason). Let C_1, C_2, .. be disjoint boxes inside the box B,
products of given intervals of the axes, and let μ be the part of B that they leave out. If

    |T − f| <= A_i and |computed − T| <= R_i  on C_i,    T and computed lie in [m − ρ, m + ρ]  on B,    f(B) ⊂ [a, b],

then the *mean* over B satisfies, with |C_i| and |B| for volumes,

    mean|T − f| <= Σ_i |C_i| / |B| A_i + μ max(b − m + ρ, m + ρ − a),
    mean|computed − T| <= Σ_i |C_i| / |B| R_i + 2 μ ρ.

These two are the claim; nothing is said about every point of B but |computed| <= |m| + ρ. On all C_i together
|computed − f| is at most max_i(A_i + R_i). The network is enclosed for any weights (`blocks`), so nothing here has to
know what the blocks are for. The C_i are pieces of cells: those of a cell share the enclosure of the network on it. f
is enclosed on C'_i ⊃ C_i that cover B. Lengths are rational; where an end of B is not, each is taken at its worst.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from flint import fmpq
from numpy.typing import NDArray

from transformula.kernel.derivations.derivation_steps import Facts
from transformula.kernel.enclosures.balls import float_above, from_float
from transformula.kernel.enclosures.expression_ranges import enclose_ranges, leaf_range, order_for
from transformula.kernel.enclosures.intervals import range_of
from transformula.kernel.enclosures.regions import products
from transformula.kernel.enclosures.taylor_models import TINY, Floats
from transformula.kernel.exceptions import NotProvenError, RefutedError
from transformula.kernel.folder.certificate import Mean, Proof
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.weights import Weights
from transformula.kernel.gallery.boxed_blocks import Runner
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.expression import Expr

MAX_PIECES, MAX_AXES = 200_000, 16
#: More than a sum of so many terms, or a few operations, can lose in float64.
_UP = 1 + 2.0**-34


class _CellAxis(NamedTuple):
    """An axis: the ends of its cells, and for the pieces of all cells their starts, which cell they belong to, what
    part of the axis each of them is (or more) and all of them are (or less)."""

    lower: Floats
    upper: Floats
    starts: Floats
    owners: NDArray[np.intp]
    shares: Floats
    covered: fmpq


def prove_yun(weights: Weights, formula: Formula, derivation: Any, evidence: Evidence) -> Proof:
    """Prove how close the weights are to the formulas on average."""
    if not isinstance(derivation, dict) or not set(derivation) <= {"extends", "signs"}:
        raise RefutedError("the derivation in model.json has other parts than extends and signs")
    facts = Facts(formula, derivation, evidence)
    axes = _axes(formula.box, evidence)
    lower, upper = products([axis.lower for axis in axes]), products([axis.upper for axis in axes])
    shares = np.prod(products([axis.shares for axis in axes]), axis=0) + TINY  # a product may underflow
    places = np.meshgrid(*(axis.owners for axis in axes), indexing="ij")
    owners = np.ravel_multi_index(tuple(places), [len(axis.lower) for axis in axes]).ravel()
    seams = fmpq(1) - math.prod((axis.covered for axis in axes), start=fmpq(1))
    left = float_above(seams)
    runner, ends = Runner(weights), facts.region.floats
    cells, whole = runner.run(lower, upper), runner.run(*(end[:, None] for end in ends))
    largest = float(np.max(whole.size)) * _UP
    found = []
    for output, expr in enumerate(facts.formula.outputs):
        low, high = _ranges(expr, facts, axes)
        middle, real, lost = (values[owners, output] for values in vars(cells).values())
        missed = (
            np.maximum(high - middle, middle - low) + real + 2.0**-50 * (np.abs(high) + np.abs(low) + np.abs(middle))
        )
        lost = (real + lost) * _UP
        reach = float(whole.reach[0, output])
        farthest = max(float(high.max()) - whole.middle[0, output], whole.middle[0, output] - float(low.min())) + reach
        farthest += 2.0**-50 * (float(np.abs(high).max()) + float(np.abs(low).max()) + float(whole.size[0, output]))
        mean = float(np.sum(shares * missed)) + left * farthest
        rounding = float(np.sum(shares * lost)) + left * 2 * reach
        found.append((mean * _UP + TINY, rounding * _UP + TINY, float(np.max(missed + lost)) * _UP + TINY))
    numbers = np.array(found)
    if not (np.isfinite(numbers).all() and math.isfinite(largest)):
        raise NotProvenError("no bound is found on some cell of the box")
    approximation, rounding, outside = numbers.max(axis=0).tolist()
    return Proof(approximation, rounding, Mean(outside, left, largest))


def _axes(box: Box, evidence: Evidence) -> list[_CellAxis]:
    if box.dimension > MAX_AXES:
        raise RefutedError(f"cells have at most {MAX_AXES} variables")
    given, pieces = [evidence.grid(name) for name in box.variables], 1
    for cells in given:
        listed = (
            isinstance(cells, list) and cells and all(isinstance(edges, list) and len(edges) > 1 for edges in cells)
        )
        if not (listed and all(type(edge) is float for edges in cells for edge in edges)):
            raise RefutedError("the cells of an axis are not lists of two or more floats")
        pieces *= sum(len(edges) - 1 for edges in cells)
    if pieces > MAX_PIECES:
        raise RefutedError(f"the cells have more than {MAX_PIECES} pieces")
    return [
        _axis(cells, range_of(a, {}), range_of(b, {})) for cells, a, b in zip(given, box.lower, box.upper, strict=True)
    ]


def _axis(cells: list[list[float]], first: tuple[fmpq, fmpq], last: tuple[fmpq, fmpq]) -> _CellAxis:
    """``first`` and ``last`` enclose the ends of the axis."""
    exact = [[from_float(edge) for edge in edges] for edges in cells]
    if not all(a < b for edges in exact for a, b in pairwise(edges)):
        raise RefutedError("a piece of a cell is empty")
    if not all(before[-1] <= after[0] for before, after in pairwise(exact)):
        raise RefutedError("two cells overlap")
    if not (first[1] <= exact[0][0] and exact[-1][-1] <= last[0]):
        raise RefutedError("a cell lies outside the box")
    lengths = [b - a for edges in exact for a, b in pairwise(edges)]
    shares = np.array([float_above(length / (last[0] - first[1])) for length in lengths])
    owners = np.repeat(np.arange(len(cells), dtype=np.intp), [len(edges) - 1 for edges in cells])
    lower, upper = np.array([edges[0] for edges in cells]), np.array([edges[-1] for edges in cells])
    starts = np.array([edge for edges in cells for edge in edges[:-1]])
    return _CellAxis(lower, upper, starts, owners, shares, sum(lengths, fmpq(0)) / (last[1] - first[0]))


def _ranges(expr: Expr, facts: Facts, axes: list[_CellAxis]) -> tuple[Floats, Floats]:
    """Ranges of a formula on pieces that reach up to the next one, or to the end of the box: together they cover it."""
    region = facts.region
    starts = [np.append(low, axis.starts[1:]) for low, axis in zip(region.floats[0], axes, strict=True)]
    stops = [np.append(axis.starts[1:], high) for high, axis in zip(region.floats[1], axes, strict=True)]
    lower, upper = products(starts), products(stops)
    low, high = enclose_ranges(expr, region.names, lower, upper, order_for(len(region.names)))
    known = facts.seen(expr)
    for k in np.flatnonzero(~(np.isfinite(low) & np.isfinite(high))).tolist():
        a, b = leaf_range(expr, region, lower[:, k], upper[:, k], known)
        low[k], high[k] = -float_above(-a), float_above(b)
    return low, high
