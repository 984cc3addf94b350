r"""A function that is nearly constant on cells: quantisation, contextual mapping, value mapping (Yun et al. 2020).

*Are Transformers universal approximators of sequence-to-sequence functions?* (1912.10077, Theorem 3; section 4 of Fang
et al. describes it). The n variables are a sequence of n tokens with one number each. Three stages follow one another:

* *Quantisation*, by feed-forward layers. Token i carries its variable, scaled to [0, 1], plus a positional encoding
  that keeps the tokens' ranges apart. With thresholds t_1 < t_2 < .. for all tokens and slope κ,

      z = Σ_j ReLU(1 − ReLU(κ (t_j − x)))

  is the number of x's cell, except on seams t_j − 1/κ < x < t_j.
* *Contextual mapping*, by attention. A selective shift adds s (max_j z_j − min_j z_j) to the token whose z lies between
  b and b': its two heads have the scores β (z_i − b) z_j and β (z_i − b') z_j, so each finds the largest z if z_i is
  above its threshold and the smallest if it is below, and their difference is max − min between b and b' and 0
  elsewhere. After one shift for each token, in their order, the last token's z tells all contexts (q_1, .., q_n) apart;
  s is the smallest whole number for which it does. Softmax instead of the paper's hardmax costs a multiple of e^{−β/2},
  far less than the next layer rounds off.
* *Value mapping*, by feed-forward layers. With the contexts' numbers in order, c_1 < c_2 < .., and values v_1, v_2, ..,
  v_1 + Σ_k (v_{k+1} − v_k) ReLU(1 − ReLU(4 (c_{k+1} − 1/4 − z))) is v_k at every z within 1/4 of c_k.

Two more layers keep the output between the smallest and the largest value, on the seams too: with low and high for
these, the output is high − ReLU(high − low − ReLU(v − low)).

*Error.* On a cell it is at most half the range of f, on a seam at most the range; seams are a part of about
Σ_k (N_k − 1)/κ of the box, and only rounding limits κ. So the theorem holds in L^p for p < ∞ and *not* uniformly: eps
is a tolerance for the mean of |computed − f| over the box, the paper's d_1 if that is the unit cube. The
kernel's `yun_rule` proves it, and says beside it how large the error is outside the seams.

*Size.* A context for each cell of the box: N_1 ⋯ N_n hidden units in the value mapping, at a mean error of about
Σ_k G_k / 4N_k or less, G_k the mean variation of f along axis k: of the order of eps^−n. The paper has one step, one
grid value or one context in each layer (``narrow``, with two ReLU layers for each of its activations). Here the steps
of a stage share two layers, and one shift for each *token* replaces the paper's one for each *grid value*.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformula.budget import checkpoint
from transformula.compiler import policy
from transformula.compiler.attempts import Attempt, BuildTask, Built
from transformula.compiler.constructions import YUN
from transformula.compiler.evidence.finder import Finder
from transformula.compiler.layout import Unit, feed_forward
from transformula.compiler.refusal import undefined_on_box
from transformula.errors import InputError, NotProvenError
from transformula.formula.evaluation import evaluate
from transformula.kernel.enclosures.balls import float_above, float_below
from transformula.kernel.enclosures.intervals import range_of
from transformula.kernel.folder.weights import Attention, Block, FeedForward, Head, Matrix, Weights
from transformula.kernel.rounding.formats import FORMATS
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.runtime.matrices import dense_matrix, matrix_of

Floats = NDArray[np.float64]

#: Distance between a cell and a seam, in widths of the seam: more than rounding can move it.
_APART = 0.125


def yun_attempts(task: BuildTask, narrow: bool = False) -> Iterator[Attempt]:
    """Models with ever finer cells, coarsest first; ``narrow`` ones have the paper's many layers."""
    formula, ground = task.formula, task.ground
    if formula.box.dimension not in policy.MESH:
        most = max(policy.MESH)
        raise InputError(f"the construction yun takes at most {most} variables, not {formula.box.dimension}")
    for share in policy.MEASURED_SHARES:

        def build(share: float = share) -> Built:
            plan = replace(_plan(ground.extended, task.eps, share, task.options.dtype), narrow=narrow)
            finder = Finder(trees=ground.signs)
            finder.written["grid"] = _grid(plan, formula.box)
            return Built(assemble(plan), ground.derivation, finder)

        yield Attempt(YUN, build)


def _plan(formula: Formula, eps: float, share: float, dtype: str) -> YunPlan:
    box = formula.box
    ends = tuple(box.floats())
    variation = _variation(formula, ends)
    if not np.isfinite(variation).all():
        raise OverflowError("the formula's differences are beyond floats")
    active = np.count_nonzero(variation)
    finer, counts = active / (8 * eps), (1,) * box.dimension
    while True:
        checkpoint()
        counts = tuple(max(1, math.ceil(finer * g)) for g in variation)
        if math.prod(counts) > policy.MAX_CONTEXTS:
            needed = max(math.prod(counts), math.prod(max(1.0, active / (4 * eps) * g) for g in variation))
            about = f" (about {needed:.2g})" if needed > 10 * policy.MAX_CONTEXTS else ""
            said = f"the construction yun would need more than {policy.MAX_CONTEXTS} contexts{about}"
            raise NotProvenError(f"{said}: ask for a larger eps, or use another construction")
        values, missed = _cells(formula, ends, counts)
        if missed <= share * eps:
            break
        finer *= 1.05
    values = values.astype(dtype).astype(float)
    flat = values.reshape(-1, values.shape[-1])
    limits = flat.min(axis=0), flat.max(axis=0)
    span = float((limits[1] - limits[0]).max())
    wanted = 4 * (sum(counts) - len(counts)) * span / (policy.MINOR_SHARE * eps)
    # a number up to 2n, scaled and compared, is off by a few roundings; it must stay well within the room at a seam
    most = _APART / 16 / (2 * len(counts) * float(FORMATS[dtype].unit_roundoff))
    sharpness = 2.0 ** math.floor(math.log2(min(max(wanted, 64.0 * max(counts)), most)))
    return YunPlan(box.variables, ends, counts, values, limits, sharpness, dtype)


def _variation(formula: Formula, ends: tuple[tuple[float, float], ...]) -> Floats:
    """Mean variation of the formula along each axis, the largest over the outputs."""
    axes = [np.linspace(low, high, policy.MESH[len(ends)]) for low, high in ends]
    mesh = np.meshgrid(*axes, indexing="ij")
    total = np.zeros(len(ends))
    for expr in formula.outputs:
        values = _finite(evaluate(expr, formula.box.variables, mesh), mesh[0].shape)
        steps = [np.abs(np.diff(values, axis=k)).sum(axis=k).mean() for k in range(len(ends))]
        total = np.maximum(total, steps)
    return total


def _pieces(counts: tuple[int, ...]) -> int:
    """Number of pieces of a cell along each axis."""
    return max(1, min(policy.YUN_PIECES, int((policy.MAX_YUN_PIECES / math.prod(counts)) ** (1 / len(counts)))))


def _cells(formula: Formula, ends: tuple[tuple[float, float], ...], counts: tuple[int, ...]) -> tuple[Floats, float]:
    """The middle of the values seen in each cell, shape (cells, .., outputs), and their mean distance from it.

    The mean is over the pieces' corners, as the proof takes the largest distance on each piece.
    """
    pieces, n = _pieces(counts), len(counts)
    inside = [(np.arange(count)[:, None] + np.linspace(0, 1, pieces + 1)) / count for count in counts]
    axes = [low + (high - low) * part.ravel() for (low, high), part in zip(ends, inside, strict=True)]
    mesh = np.meshgrid(*axes, indexing="ij")
    split = [size for count in counts for size in (count, pieces + 1)]
    within = tuple(range(1, 2 * n, 2))
    middles, worst = [], 0.0
    for expr in formula.outputs:
        values = _finite(evaluate(expr, formula.box.variables, mesh), mesh[0].shape).reshape(split)
        middle = (values.min(axis=within, keepdims=True) + values.max(axis=within, keepdims=True)) / 2
        missed = np.abs(values - middle)
        for axis in within:
            first, last = (np.take(missed, side, axis) for side in (range(pieces), range(1, pieces + 1)))
            missed = np.maximum(first, last)
        middles.append(middle.reshape(counts))
        worst = max(worst, float(missed.mean()))
    return np.stack(middles, axis=-1), worst


def _finite(values: Floats, shape: tuple[int, ...]) -> Floats:
    if not np.all(np.isfinite(values)):
        raise undefined_on_box("the formula")
    return np.broadcast_to(values, shape)


def _grid(plan: YunPlan, box: Box) -> dict[str, list[list[float]]]:
    """The intervals between the seams of each axis."""
    found = {}
    for name, (low, high), count, first, last in zip(
        box.variables, plan.ends, plan.counts, box.lower, box.upper, strict=True
    ):
        stops = [low + (high - low) * (k / count - (1 + _APART) / plan.sharpness) for k in range(1, count)]
        starts = [low + (high - low) * (k / count + _APART / plan.sharpness) for k in range(1, count)]
        begin, end = float_above(range_of(first, {})[1]), float_below(range_of(last, {})[0])
        cells = [
            np.linspace(a, b, _pieces(plan.counts) + 1) for a, b in zip([begin, *starts], [*stops, end], strict=True)
        ]
        if not all(np.all(np.diff(edges) > 0) for edges in cells):
            raise NotProvenError(f"{name} has hardly any numbers in a cell: ask for a larger eps")
        found[name] = [edges.tolist() for edges in cells]
    return found


#: How far a quantised number may be off, and how steep the steps between contexts are: from 1/4 below to 1/2 below.
QUARTER, STEEP = 0.25, 4.0


@dataclass(frozen=True, eq=False)
class YunPlan:
    """Cells of equal length along each axis, and a value for each of them.

    ``counts`` are the cells of each variable, ``values`` has shape (cells, .., outputs), ``sharpness`` is the slope of
    the steps between cells, where a whole axis has length 1, and ``limits`` are the ends that outputs are kept between.
    ``narrow`` is the paper's layout: one step, one grid value, one context at a time.
    """

    inputs: tuple[str, ...]
    ends: tuple[tuple[float, float], ...]
    counts: tuple[int, ...]
    values: Floats
    limits: tuple[Floats, Floats]
    sharpness: float
    dtype: str
    narrow: bool = False

    @property
    def firsts(self) -> tuple[int, ...]:
        """Number of each token's first cell, and one past the last: cells of all tokens are numbered together."""
        return (0, *np.cumsum(self.counts).tolist())

    @property
    def bands(self) -> list[tuple[int, int]]:
        """The numbers that each selective shift selects: those of a token's cells, or one at a time."""
        if len(self.counts) == 1:
            return []
        edges = range(self.firsts[-1] + 1) if self.narrow else self.firsts
        return list(pairwise(edges))

    @property
    def thresholds(self) -> list[float]:
        """Ends of the cells of all tokens, in order: token i has 2i..2i + 1."""
        found = []
        for token, count in enumerate(self.counts):
            found += [2 * token - 0.5] if token else []
            found += [2 * token + k / count for k in range(1, count)]
        return found


@dataclass(frozen=True)
class Shifts:
    """The contextual mapping: the factor of the selective shifts, and the last token's number in every context."""

    factor: int
    ids: tuple[int, ...]
    largest: int

    @classmethod
    def of(cls, plan: YunPlan) -> Shifts:
        """The smallest whole factor that gives every context a number of its own."""
        grid = np.meshgrid(*(np.arange(count) for count in plan.counts), indexing="ij")
        start = np.stack([axis.ravel() for axis in grid], axis=1) + plan.firsts[:-1]
        if len(plan.counts) == 1:
            return cls(0, tuple(start[:, 0].tolist()), plan.firsts[-1])
        factor = 2
        while True:
            z = start.astype(object)  # whole numbers of any size
            for first, last in plan.bands:
                selected = (z > first - 0.5) & (z < last - 0.5)
                z = z + factor * selected * (z.max(axis=1) - z.min(axis=1))[:, None]
            if len(set(z[:, -1])) == len(z):
                return cls(factor, tuple(z[:, -1].tolist()), int(z.max()))
            factor += 1


@dataclass(frozen=True)
class Stage:
    """Layers of one purpose: its name, their numbers, and its size in words."""

    name: str
    first: int
    last: int
    what: str

    @property
    def layers(self) -> str:
        """Their numbers as text."""
        return str(self.first) if self.first == self.last else f"{self.first} to {self.last}"


def stages(weights: Weights) -> list[Stage]:
    """The purpose of each layer of `assemble`, by the slots that it writes."""
    found: list[Stage] = []
    for number, block in enumerate(weights.blocks):
        layer = block.feed_forward
        slot = "heads" if layer is None else weights.slots[int(layer.output.rows[0])].rstrip("0123456789")
        name, counted, noun = _STAGES[slot]
        if found and found[-1].name == name:
            found[-1] = replace(found[-1], last=number)
            continue
        size = sum(one.startswith(counted) for one in weights.slots) if counted else 0
        found.append(Stage(name, number, number, f"{size + (counted == 'before')} {noun}" if counted else noun))
    return found


#: Slots that a stage writes: its name, the slots that tell its size, and what these are.
_QUANTISATION, _VALUES = ("quantisation", "below", "steps"), ("value mapping", "before", "contexts")
_LIMITS = ("limits", "", "smallest and largest value")
_STAGES = {
    "below": _QUANTISATION, "z": _QUANTISATION, "heads": ("contextual mapping", "", "selective shifts"),
    "before": _VALUES, "value": _VALUES, "above": _LIMITS, "y": _LIMITS,
}  # fmt: skip


def assemble(plan: YunPlan) -> Weights:
    """The weights of a plan."""
    return _YunBuilder(plan, Shifts.of(plan)).weights()


class _YunBuilder:
    def __init__(self, plan: YunPlan, shifts: Shifts) -> None:
        self.plan, self.shifts = plan, shifts
        self.outputs = plan.values.shape[-1]
        self.order = np.argsort(np.array(shifts.ids, dtype=object), kind="stable").astype(int)
        steps, contexts = len(plan.thresholds), math.prod(plan.counts)
        numbered = range(1, self.outputs + 1)
        self.slots = ["x", "one", "z", *(f"below{k}" for k in range(1, steps + 1))]
        self.slots += [f"before{k}" for k in range(1, contexts)]
        self.slots += [f"{name}{o}" for name in ("value", "above", "y") for o in numbered]
        self.at = {name: k for k, name in enumerate(self.slots)}
        self.tokens = len(plan.inputs)

    def weights(self) -> Weights:
        plan = self.plan
        width = len(self.slots)
        tokens = self.tokens
        memory = np.zeros((tokens, width))
        memory[:, self.at["one"]] = 1
        embedding = []
        for token, (low, high) in enumerate(plan.ends):
            scale = float(np.dtype(plan.dtype).type(1 / (high - low)))
            embedding.append((token * width + self.at["x"], token, scale))
            memory[token, self.at["x"]] = 2 * token - low * scale
        ordered = plan.values.reshape(-1, self.outputs)[self.order]
        for o, value in enumerate(ordered[0], 1):
            memory[tokens - 1, self.at[f"value{o}"]] = value
        last = (tokens - 1) * width
        return Weights(
            inputs=plan.inputs,
            slots=tuple(self.slots),
            tokens=tokens,
            embedding=self._matrix(tokens * width, tokens, embedding),
            memory=dense_matrix(memory.astype(plan.dtype), plan.dtype),
            blocks=tuple(self._blocks(ordered)),
            readout=self._matrix(
                self.outputs, tokens * width, [(o, last + self.at[f"y{o + 1}"], 1.0) for o in range(self.outputs)]
            ),
            bias=self._matrix(self.outputs, 1, [(o, 0, v) for o, v in enumerate(plan.limits[1].tolist())]),
            dtype=plan.dtype,
        )

    def _blocks(self, ordered: Floats) -> Iterable[Block]:
        sharp = self.plan.sharpness
        steps = list(enumerate(self.plan.thresholds, 1))
        yield from self._pairs(
            [({"x": -sharp}, sharp * t, {f"below{k}": 1.0}) for k, t in steps],
            [({f"below{k}": -1.0}, 1.0, {"z": 1.0}) for k, _ in steps],
        )
        yield from (Block(self._shift(*band)) for band in self.plan.bands)
        ids = enumerate((self.shifts.ids[k] for k in self.order[1:]), 1)
        rises = enumerate(np.diff(ordered, axis=0).tolist(), 1)
        yield from self._pairs(
            [({"z": -STEEP}, STEEP * (number - QUARTER), {f"before{k}": 1.0}) for k, number in ids],
            [({f"before{k}": -1.0}, 1.0, {f"value{o}": v for o, v in enumerate(rise, 1)}) for k, rise in rises],
        )
        ends = list(enumerate(zip(*(ends.tolist() for ends in self.plan.limits), strict=True), 1))
        yield from self._pairs(
            [({f"value{o}": 1.0}, -low, {f"above{o}": 1.0}) for o, (low, _) in ends],
            [({f"above{o}": -1.0}, high - low, {f"y{o}": -1.0}) for o, (low, high) in ends],
        )

    def _pairs(self, first: Sequence[Unit], second: Sequence[Unit]) -> Iterable[Block]:
        """Two layers, units of the second after those of the first that they read; in the narrow layout two each."""
        each: list[tuple[Sequence[Unit], Sequence[Unit]]] = [(first, second)] if first else []
        if self.plan.narrow:
            each = [([a], [b]) for a, b in zip(first, second, strict=True)]
        return [Block(Attention(()), self._layer(units)) for pair in each for units in pair]

    def _shift(self, start: int, stop: int) -> Attention:
        """Two heads that add factor · (max z − min z) to the tokens whose z is a number from start up to stop."""
        width = len(self.slots)
        # what the other tokens weigh, times all that it is multiplied by on the way, stays far below a quarter
        lead = math.log(64 * self.tokens * (self.shifts.factor + 1) ** self.tokens * self.shifts.largest)
        steep = 2.0 ** math.ceil(math.log2(2 * lead))  # half a unit between z and b, one unit between two z
        heads = []
        for sign, first in ((1.0, start), (-1.0, stop)):
            query = [(0, self.at["z"], steep), (0, self.at["one"], -steep * (first - 0.5))]
            heads.append(
                Head(
                    self._matrix(1, width, query),
                    self._matrix(1, width, [(0, self.at["z"], 1.0)]),
                    self._matrix(1, width, [(0, self.at["z"], 1.0)]),
                    self._matrix(width, 1, [(self.at["z"], 0, sign * self.shifts.factor)]),
                )
            )
        return Attention(tuple(heads))

    def _layer(self, units: Sequence[Unit]) -> FeedForward:
        def rounded(row: Mapping[str, float]) -> dict[str, float]:
            return {slot: self._float(value) for slot, value in row.items()}

        nearest = [(rounded(reads), self._float(bias), rounded(adds)) for reads, bias, adds in units]
        return feed_forward(nearest, self.at, self.plan.dtype)

    def _float(self, value: float) -> float:
        """The nearest float of the format: the proof is about these."""
        return float(np.dtype(self.plan.dtype).type(value))

    def _matrix(self, rows: int, columns: int, entries: Iterable[tuple[int, int, Any]]) -> Matrix:
        return matrix_of((rows, columns), [(r, c, self._float(v)) for r, c, v in entries], self.plan.dtype)
