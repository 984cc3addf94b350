"""The weights of Yun's construction: quantisation, contextual mapping and value mapping, block by block (see `yun`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformula.kernel.weights import Attention, Block, FeedForward, Head, Matrix, Weights
from transformula.transformers.matrices import dense_matrix

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
    """

    inputs: tuple[str, ...]
    ends: tuple[tuple[float, float], ...]
    counts: tuple[int, ...]
    values: Floats
    limits: tuple[Floats, Floats]
    sharpness: float
    dtype: str

    @property
    def contexts(self) -> int:
        """How many cells the box has."""
        return math.prod(self.counts)

    @property
    def firsts(self) -> tuple[int, ...]:
        """The number of each token's first cell, and one past the last: cells of all tokens are numbered together."""
        return (0, *np.cumsum(self.counts).tolist())

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
    def of(cls, counts: Sequence[int]) -> Shifts:
        """The smallest whole factor that gives every context a number of its own."""
        firsts = np.concatenate([[0], np.cumsum(counts)])
        grid = np.meshgrid(*(np.arange(count) for count in counts), indexing="ij")
        start = np.stack([axis.ravel() for axis in grid], axis=1) + firsts[:-1]
        if len(counts) == 1:
            return cls(0, tuple(start[:, 0].tolist()), int(firsts[-1]))
        factor = 2
        while True:
            z = start.astype(object)  # whole numbers of any size
            for first, last in pairwise(firsts):
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
    """What the layers of `assemble` are for."""
    shifts = sum(bool(block.attention.heads) for block in weights.blocks)
    steps, contexts = (sum(slot.startswith(name) for slot in weights.slots) for name in ("below", "before"))
    named = [
        ("quantisation", 2, f"{steps} steps"),
        ("contextual mapping", shifts, f"{shifts} selective shifts"),
        ("value mapping", 2, f"{contexts + 1} contexts"),
        ("limits", 2, "smallest and largest value"),
    ]
    found, done = [], 0
    for name, layers, what in named:
        if layers:
            found.append(Stage(name, done + 1, done + layers, what))
        done += layers
    return found


def assemble(plan: Plan) -> Weights:
    """The weights of a plan."""
    shifts = Shifts.of(plan.counts)
    return _Builder(plan, shifts).weights()


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
        sharp, rest = self.plan.sharpness, Attention(())
        steps = list(enumerate(self.plan.thresholds, 1))
        yield Block(rest, self._layer([({"x": -sharp}, sharp * t, {f"below{k}": 1.0}) for k, t in steps]))
        yield Block(rest, self._layer([({f"below{k}": -1.0}, 1.0, {"z": 1.0}) for k, _ in steps]))
        for token in range(self.tokens) if self.tokens > 1 else ():
            yield Block(self._shift(token))
        ids = [self.shifts.ids[k] for k in self.order]
        far: list[Unit] = [
            ({"z": -STEEP}, STEEP * (number - QUARTER), {f"before{k}": 1.0}) for k, number in enumerate(ids[1:], 1)
        ]
        yield Block(rest, self._layer(far))
        rises = np.diff(ordered, axis=0)
        yield Block(
            rest,
            self._layer(
                [
                    ({f"before{k}": -1.0}, 1.0, {f"value{o}": v for o, v in enumerate(rise, 1)})
                    for k, rise in enumerate(rises.tolist(), 1)
                ]
            ),
        )
        low, high = (ends.tolist() for ends in self.plan.limits)
        numbered = range(1, self.outputs + 1)
        yield Block(rest, self._layer([({f"value{o}": 1.0}, -low[o - 1], {f"above{o}": 1.0}) for o in numbered]))
        span = [b - a for a, b in zip(low, high, strict=True)]
        yield Block(rest, self._layer([({f"above{o}": -1.0}, span[o - 1], {f"y{o}": -1.0}) for o in numbered]))

    def _shift(self, token: int) -> Attention:
        """Adds factor · (max z − min z) to the tokens whose z is one of the token's cells: two heads."""
        firsts, width = self.plan.firsts, len(self.slots)
        # what the other tokens weigh, times all that it is multiplied by on the way, stays far below a quarter
        lead = math.log(64 * self.tokens * (self.shifts.factor + 1) ** self.tokens * self.shifts.largest)
        steep = 2.0 ** math.ceil(math.log2(2 * lead))  # half a unit between z and b, one unit between two z
        heads = []
        for sign, first in ((1.0, firsts[token]), (-1.0, firsts[token + 1])):
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
        kept = sorted((r, c, v) for r, c, v in entries if v != 0)
        places = np.array([(r, c) for r, c, _ in kept], dtype=np.int32).reshape(-1, 2)
        values = np.array([v for _, _, v in kept], dtype=np.float64).astype(self.plan.dtype)
        return Matrix((rows, columns), places[:, 0].copy(), places[:, 1].copy(), values)
