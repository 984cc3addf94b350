"""The weights of Yun's construction: quantisation, contextual mapping and value mapping, block by block (see `yun`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformula.kernel.folder.weights import Attention, Block, FeedForward, Head, Matrix, Weights
from transformula.runtime.matrices import dense_matrix, matrix_of

Floats = NDArray[np.float64]
Entry = tuple[int, int, Any]
#: A hidden unit: what it reads, its bias, and what it adds to which slot.
Unit = tuple[dict[str, float], float, dict[str, float]]

#: How far a quantised number may be off, and how steep the steps between contexts are: from 1/4 below to 1/2 below.
QUARTER, STEEP = 0.25, 4.0


@dataclass(frozen=True, eq=False)
class Plan:
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
    def contexts(self) -> int:
        """How many cells the box has."""
        return math.prod(self.counts)

    @property
    def firsts(self) -> tuple[int, ...]:
        """The number of each token's first cell, and one past the last: cells of all tokens are numbered together."""
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
        """Where one cell ends and the next begins, of all tokens: token i has 2i..2i + 1, and its cells follow those of
        the tokens before it."""
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
    def of(cls, plan: Plan) -> Shifts:
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
    """Layers that do one thing: their numbers, its name, and its size in words."""

    name: str
    first: int
    last: int
    what: str

    @property
    def layers(self) -> str:
        """Their numbers as text."""
        return str(self.first) if self.first == self.last else f"{self.first} to {self.last}"


def stages(weights: Weights) -> list[Stage]:
    """What the layers of `assemble` are for, by the slots that they write."""
    found: list[Stage] = []
    for number, block in enumerate(weights.blocks, 1):
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


def assemble(plan: Plan) -> Weights:
    """The weights of a plan."""
    return _Builder(plan, Shifts.of(plan)).weights()


class _Builder:
    def __init__(self, plan: Plan, shifts: Shifts) -> None:
        self.plan, self.shifts = plan, shifts
        self.outputs = plan.values.shape[-1]
        self.order = np.argsort(np.array(shifts.ids, dtype=object), kind="stable").astype(int)
        steps, contexts = len(plan.thresholds), plan.contexts
        numbered = range(1, self.outputs + 1)
        self.slots = ["x", "one", "z", *(f"below{k}" for k in range(1, steps + 1))]
        self.slots += [f"before{k}" for k in range(1, contexts)]
        self.slots += [f"{name}{o}" for name in ("value", "above", "y") for o in numbered]
        self.at = {name: k for k, name in enumerate(self.slots)}
        self.tokens = len(plan.inputs)

    def weights(self) -> Weights:
        plan, width, tokens = self.plan, len(self.slots), self.tokens
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
        width, at = len(self.slots), self.at
        return FeedForward(
            self._matrix(
                len(units), width, [(u, at[name], v) for u, (row, _, _) in enumerate(units) for name, v in row.items()]
            ),
            self._matrix(len(units), 1, [(u, 0, bias) for u, (_, bias, _) in enumerate(units)]),
            self._matrix(
                width, len(units), [(at[name], u, v) for u, (_, _, out) in enumerate(units) for name, v in out.items()]
            ),
            self._matrix(width, 1, []),
        )

    def _matrix(self, rows: int, columns: int, entries: Iterable[Entry]) -> Matrix:
        """Of the nearest floats: the proof is about these."""
        kind = np.dtype(self.plan.dtype).type
        return matrix_of((rows, columns), [(r, c, float(kind(v))) for r, c, v in entries], self.plan.dtype)
