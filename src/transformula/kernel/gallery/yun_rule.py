"""The proof of a Transformer that is close to a formula on average: cells, and seams between them.

*Any softmax Transformer, run on boxes of inputs: every number inside, real or computed, as a ball.*

A `BoxBalls` holds a middle m and two radii: for every input of a box the real number of the exact weights lies within
``real`` of m, and the number that is computed in the format within ``computed``. The rules, for weights of any kind:

* *Sums.* Σ a_i z_i has the middle Σ a_i m_i and the radii Σ |a_i| radius_i, and with k terms the computed sum is off by
  γ_k Σ |a_i| (|m_i| + radius_i) more, in any order (`formats`); k counts all terms, those of several products, biases
  and the residual, so they may be added up together. What float64 loses here, in the middle and in the radii, is at
  most `_lost(k)` of the same sum, and belongs to both radii.
* *ReLU.* A ball above 0 stays, a ball below 0 is 0 exactly. Another one, ρ its larger radius, becomes [0, m + ρ].
* *Softmax.* Let L be the token with the largest middle of its score, and g_j = (s_L − s_j) − (ρ_L + ρ_j). Then
  Σ p_j v_j = v_L + Σ_{j≠L} p_j (v_j − v_L) with p_j <= e^{−g_j} and p_j <= 1. Computed weights follow computed scores:
  the largest is subtracted, exp is within `EXP_ULPS`, and exp(0) is divided by itself and others, so each weight is at
  most 1 + γ_{4n+64} times as large, or else it is faint (`formats`), and all of them add up to 1 within γ_{4n+64}. The
  quotient may be taken last: n times the largest value must not overflow.
  e^{−g} <= 2^{−⌊1.4426 g⌋}, since 1.4426 is below 1/ln 2 by more than what rounding does to g.

Where nothing is written, in a slot or a unit, all executors add zero, which rounds nothing.

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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from flint import fmpq
from numpy.typing import NDArray

from transformula.kernel.derivations.derivation_steps import Facts
from transformula.kernel.enclosures.balls import float_above, from_float, round_up
from transformula.kernel.enclosures.expression_ranges import enclose_ranges, leaf_range, order_for
from transformula.kernel.enclosures.intervals import range_of
from transformula.kernel.enclosures.regions import products
from transformula.kernel.enclosures.taylor_models import TINY, Floats
from transformula.kernel.exceptions import NotProvenError, RefutedError
from transformula.kernel.folder.description import Mean, Proof
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.weights import Attention, FeedForward, Head, Matrix, Weights, named_matrices
from transformula.kernel.rounding.formats import FORMATS, QUERY_FACTOR
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.expression import Expr

#: Numbers that are held at once for a chunk of boxes, and at most for one box: half a gigabyte.
_CHUNK, _MOST = 6_000_000, 60_000_000


@dataclass(frozen=True, eq=False)
class BoxBalls:
    """Numbers for each box, of any one shape: middles, and how far real and computed numbers are from them."""

    middle: Floats
    real: Floats
    computed: Floats

    @property
    def reach(self) -> Floats:
        """The larger radius."""
        return np.maximum(self.real, self.computed)

    @property
    def size(self) -> Floats:
        """A bound of all numbers of a ball."""
        return np.abs(self.middle) + self.reach

    def shaped(self, *shape: int) -> BoxBalls:
        """The numbers in another shape."""
        return BoxBalls(*(values.reshape(shape) for values in (self.middle, self.real, self.computed)))


def _lost(terms: int) -> float:
    """An upper bound of the relative rounding of float64 in a sum of products and a few operations more."""
    return (terms + 16) * 2.0**-52


class Runner:
    """Runs the weights' blocks on boxes; refuses what may overflow."""

    def __init__(self, weights: Weights) -> None:
        for name, matrix in named_matrices(weights):
            if matrix.exact is not None:
                raise RefutedError(f"{name} holds rationals, not floats")
        for block in weights.blocks:
            if block.attention.kind != "softmax" or block.attention.scale != 1:
                raise RefutedError("a block has another attention than plain softmax")
        self.weights, self.form = weights, FORMATS[weights.dtype]
        self.tiny, self.largest = round_up(self.form.tiny), float(self.form.largest / QUERY_FACTOR)

    def run(self, lower: Floats, upper: Floats) -> BoxBalls:
        """Outputs on boxes with ends (inputs, boxes): shape (boxes, outputs)."""
        weights, boxes = self.weights, lower.shape[1]
        parts = self._parts()
        stream = 16 * weights.tokens * weights.width
        each = stream + max(parts)
        if each > _MOST or 12 * boxes * weights.outputs > _MOST:
            raise RefutedError("the blocks hold too many numbers at once")
        step = max(1, _CHUNK // each)
        found = [self._chunk(lower[:, k : k + step].T, upper[:, k : k + step].T) for k in range(0, boxes, step)]
        return BoxBalls(*(np.concatenate(values) for values in zip(*(vars(p).values() for p in found), strict=True)))

    def _parts(self) -> list[int]:
        """Numbers that embedding, readout, each head and each layer make of one box, beside the stream's."""
        weights, tokens = self.weights, self.weights.tokens
        parts = [3 * m.nonzeros + 8 * m.shape[0] for m in (weights.embedding, weights.readout)]
        for block in weights.blocks:
            for part in (*block.attention.heads, *((block.feed_forward,) if block.feed_forward else ())):
                made = sum(tokens * (3 * m.nonzeros + 8 * m.shape[0]) for m in vars(part).values() if m is not None)
                if isinstance(part, Head):
                    made += tokens**2 * (part.query.shape[0] + 12 * part.value.shape[0] + 32)
                parts.append(made)
        return parts

    def _chunk(self, lower: Floats, upper: Floats) -> BoxBalls:
        weights, form = self.weights, self.form
        with np.errstate(all="ignore"):  # what is not finite is refused
            middle = lower / 2 + upper / 2
            radius = np.maximum(upper - middle, middle - lower) * (1 + 2.0**-50) + TINY
            size = np.abs(middle) + radius
            asked = BoxBalls(middle, radius, radius + size * (2 * float(form.unit_roundoff)) + 2 * self.tiny)
            memory = self._constant(weights.memory.dense().astype(np.float64).ravel())
            flat = self._total([(weights.embedding, asked)], memory)
            stream = flat.shaped(len(middle), weights.tokens, weights.width)
            for block in weights.blocks:
                stream = self._attended(block.attention, stream)
                if block.feed_forward is not None:
                    stream = self._bent(block.feed_forward, stream)
            flat = stream.shaped(len(middle), weights.tokens * weights.width)
            return self._total([(weights.readout, flat)], self._column(weights.bias))

    def _constant(self, values: Floats) -> BoxBalls:
        zeros = np.zeros_like(values)
        return BoxBalls(values, zeros, zeros)

    def _column(self, bias: Matrix) -> BoxBalls:
        return self._constant(bias.dense().astype(np.float64)[:, 0])

    def _check(self, size: Floats) -> None:
        if not np.all(4 * size < self.largest):
            raise NotProvenError(f"the values on this box may leave {self.form.name}'s range")

    def _total(self, products: Sequence[tuple[Matrix, BoxBalls]], *plain: BoxBalls) -> BoxBalls:
        """Matrices times the last axis and other terms, added up in any order."""
        terms = sum(_longest(matrix) for matrix, _ in products) + len(plain)
        return self._added(terms, chain((self._product(matrix, z, terms) for matrix, z in products), plain))

    def _added(self, terms: int, found: Iterable[BoxBalls]) -> BoxBalls:
        """The sum of the given number of terms, of which one is held at a time."""
        middle = real = computed = size = np.zeros(())
        count = np.zeros((), np.int64)
        for one in found:
            middle = middle + one.middle
            real = real + one.real
            computed = computed + one.computed
            size, count = size + one.size, count + (one.size != 0)
        self._check(size)
        lost = np.where(count > 1, _lost(terms) * size + TINY, 0.0)
        rounded = np.where(count > 1, round_up(self.form.gamma(terms + 1)) * size, 0.0)
        return BoxBalls(middle, (real + lost) * (1 + _lost(terms)), (computed + lost + rounded) * (1 + _lost(terms)))

    def _product(self, matrix: Matrix, z: BoxBalls, terms: int) -> BoxBalls:
        """The matrix times the last axis, as a sum of the given number of terms; rows without entries are 0."""
        shape = (*z.middle.shape[:-1], matrix.shape[0])
        result = BoxBalls(*(np.zeros(shape) for _ in range(3)))
        if not matrix.nonzeros:
            return result
        order = np.argsort(matrix.rows, kind="stable")
        used, starts = np.unique(matrix.rows[order], return_index=True)
        columns, values = matrix.cols[order], matrix.values[order].astype(np.float64)

        def total(what: Floats, factors: Floats) -> Floats:
            return np.asarray(np.add.reduceat(what[..., columns] * factors, starts, axis=-1))

        size = total(z.size, np.abs(values)) + TINY
        self._check(size)
        lost = _lost(terms) * size + TINY
        rounded = round_up(self.form.gamma(terms + 1)) * size + 2 * (terms + 1) * self.tiny
        result.middle[..., used] = total(z.middle, values)
        result.real[..., used] = (total(z.real, np.abs(values)) + lost) * (1 + _lost(terms))
        result.computed[..., used] = (total(z.computed, np.abs(values)) + lost + rounded) * (1 + _lost(terms))
        return result

    def _bent(self, layer: FeedForward, stream: BoxBalls) -> BoxBalls:
        inside = self._total([(layer.hidden, stream)], self._column(layer.hidden_bias))
        above, reach = inside.middle > inside.reach, inside.reach
        half = np.where(-inside.middle >= reach, 0.0, (inside.middle + reach) * (0.5 + 2.0**-51) + TINY)
        ends = ((inside.middle, half), (inside.real, half), (inside.computed, half))
        hidden = BoxBalls(*(np.where(above, kept, cut) for kept, cut in ends))
        return self._total([(layer.output, hidden)], stream, self._column(layer.output_bias))

    def _attended(self, attention: Attention, stream: BoxBalls) -> BoxBalls:
        heads = attention.heads
        terms = 1 + sum(1 if head.output is None else _longest(head.output) for head in heads)

        def written(head: Head) -> BoxBalls:
            mixed = self._mixed(head, stream)
            return mixed if head.output is None else self._product(head.output, mixed, terms)

        return self._added(terms, chain((stream,), map(written, heads)))

    def _mixed(self, head: Head, stream: BoxBalls) -> BoxBalls:
        """The values that a head mixes for each token."""
        self._check(np.abs(head.query.values))
        query, key, value = (self._total([(matrix, stream)]) for matrix in (head.query, head.key, head.value))
        inner, tokens = head.query.shape[0], self.weights.tokens
        turned = BoxBalls(*(values.swapaxes(1, 2) for values in vars(key).values()))
        size = query.size @ turned.size + TINY  # (boxes, tokens that ask, tokens that answer)
        self._check(size)
        scores, lost = query.middle @ turned.middle, _lost(inner) * size + TINY
        rounded = round_up(self.form.gamma(inner + 1)) * size + 2 * (inner + 1) * self.tiny
        leader = scores.argmax(axis=2)[:, :, None]
        led = np.arange(tokens) == leader
        slack, faint = round_up(self.form.gamma(4 * tokens + 64)), round_up(2 * self.form.faint)
        found = []
        for ask, answer, own, more in (
            (query.real, turned.real, value.real, lost),
            (query.computed, turned.computed, value.computed, lost + rounded),
        ):
            wrong = (ask @ np.abs(turned.middle) + np.abs(query.middle) @ answer + ask @ answer) * (1 + _lost(inner))
            wrong += more
            gap = np.take_along_axis(scores, leader, 2) - scores
            gap -= (np.take_along_axis(wrong, leader, 2) + wrong) * (1 + 2.0**-50) + 2.0**-50 * np.abs(gap)
            # NaN counts as no gap at all
            bits = np.where(gap > 0, np.minimum(np.floor(1.4426 * gap), 1000.0), 0.0)
            weight = np.where(led, 0.0, np.ldexp(1.0, -bits.astype(np.int64)) + faint)
            apart = np.abs(value.middle[:, None] - _of(value.middle, leader)[:, :, None])
            apart = apart + own[:, None] + _of(own, leader)[:, :, None]
            others = np.einsum("bij,bijd->bid", weight, apart)
            found.append((_of(own, leader) + others) * (1 + _lost(tokens)) + TINY)
        most = value.size.max(axis=1, keepdims=True)
        self._check(tokens * most)
        computed = (found[1] + slack * (found[1] + most) + 8 * tokens * self.tiny) * (1 + _lost(4))
        return BoxBalls(_of(value.middle, leader), found[0], computed)


def _longest(matrix: Matrix) -> int:
    """The most entries of a row."""
    return int(np.bincount(matrix.rows).max(initial=0)) if matrix.nonzeros else 0


def _of(values: Floats, leader: NDArray[np.intp]) -> Floats:
    """For each asking token the leader's numbers: (boxes, tokens, depth)."""
    return np.take_along_axis(values, leader, axis=1)


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
