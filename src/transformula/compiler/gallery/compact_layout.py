"""The weights of a compact memory: two heads, and feed-forward layers that take a word apart (see `compact`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transformula.kernel.folder.weights import Attention, Block, FeedForward, Head, Matrix, Weights
from transformula.runtime.matrices import dense_matrix, matrix_of

Floats = NDArray[np.float64]
Entries = list[tuple[int, int, Any]]

#: The lead of a token over all others: e^-760 is less than the smallest number of float64.
LEAD = 900.0


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of samples along a direction: the edges between them, their offsets (in widths) and their words.

    ``places`` are all samples along the direction, in widths.
    """

    direction: Floats
    bits: int
    width: float
    edges: Floats  # (runs - 1,)
    offsets: Floats  # (runs,)
    words: tuple[int, ...]
    places: Floats

    @property
    def cost(self) -> int:
        """About how many parameters it takes."""
        return 4 * len(self.words) + 17 * self.bits


class Words(NamedTuple):
    """What the runs of a compact memory hold: so many bits in each word, and the bucket at which a run begins."""

    bits: int
    words: list[int]
    offsets: list[float]


def stored_words(weights: Weights) -> Words:
    """The words as the memory tokens hold them."""
    memory = weights.memory.dense()[1:]
    index, words, offsets = (memory[:, weights.slot(name)] for name in ("index", "word", "shift"))
    return Words(int(index.max()), [int(v) for v in words if v], offsets[words != 0].tolist())


def assemble(runs: Runs, inputs: Sequence[str], values: Sequence[float], dtype: str) -> Weights:
    """The weights; ``values`` are what the bits 0 and 1 stand for."""
    bits = runs.bits
    bit_names = [f"bit{k}" for k in range(1, bits)] + ["rest"]  # the last bit is what the others leave
    names = [*(f"x.{name}" for name in inputs), "one", "slope1", "offset1", "word", "shift", "slope2", "offset2"]
    names += ["index", "square", "rest", "place", "found", "found2", *bit_names[:-1], "label"]
    at = {name: k for k, name in enumerate(names)}
    width, tokens = len(names), 1 + max(len(runs.words), bits)

    memory = np.zeros((tokens, width))
    memory[0, at["one"]] = 1
    at_runs = runs.places - runs.offsets[np.searchsorted(runs.edges, runs.places * runs.width)]
    for tag, lines in (
        ("1", _lines(runs.edges, runs.places * runs.width)),
        ("2", _lines(np.arange(2.0, bits + 1), at_runs)),
    ):
        memory[1 : len(lines) + 1, [at[f"slope{tag}"], at[f"offset{tag}"]]] = lines
    memory[1 : len(runs.words) + 1, at["word"]] = runs.words
    memory[1 : len(runs.words) + 1, at["shift"]] = runs.offsets
    memory[1 : bits + 1, at["index"]] = np.arange(1, bits + 1)
    memory[1 : bits + 1, at["square"]] = np.arange(1, bits + 1) ** 2

    def matrix(rows: int, columns: int, entries: Entries) -> Matrix:
        return matrix_of((rows, columns), entries, dtype)

    def head(tag: str, query: Entries, copied: Sequence[tuple[str, str]]) -> Head:
        ones = [(1, at["one"], 1), (2, at["one"], 1)]
        key = [(0, at[f"slope{tag}"], 1), (1, at[f"offset{tag}"], 1)]
        return Head(
            matrix(3, width, [*query, *ones]),
            matrix(3, width, key),
            matrix(width, width, [(at[target], at[source], 1) for source, target in copied]),
        )

    def layer(units: Sequence[tuple[dict[str, int], int, dict[str, int]]]) -> FeedForward:
        """Hidden units as (weights, bias, what is added to which slot)."""
        return FeedForward(
            matrix(
                len(units), width, [(u, at[name], v) for u, (row, _, _) in enumerate(units) for name, v in row.items()]
            ),
            matrix(len(units), 1, [(u, 0, bias) for u, (_, bias, _) in enumerate(units)]),
            matrix(
                width, len(units), [(at[name], u, v) for u, (_, _, out) in enumerate(units) for name, v in out.items()]
            ),
            matrix(width, 1, []),
        )

    along = [(0, at[f"x.{name}"], float(v)) for name, v in zip(inputs, runs.direction, strict=True)]
    within = [(row, slot, float(v / np.dtype(dtype).type(runs.width))) for row, slot, v in along]
    first = head("1", along, [("word", "rest"), ("shift", "place")])
    second = head("2", [*within, (0, at["place"], -1)], [("index", "found"), ("square", "found2")])
    peel = [
        layer([({"rest": 1}, 1 - t, {f"bit{k}": 1, "rest": -t}), ({"rest": 1}, -t, {f"bit{k}": -1, "rest": t})])
        for k in range(1, bits)
        for t in (2 ** (bits - k),)
    ]
    pick = layer(
        [({name: 1, "found": 2 * k, "found2": -1}, -k * k, {"label": 1}) for k, name in enumerate(bit_names, 1)]
    )
    blocks = [Block(Attention((first,))), Block(Attention((second,)), peel[0] if peel else None)]
    blocks += [Block(Attention(()), one) for one in (*peel[1:], pick)]
    low, high = values
    return Weights(
        inputs=tuple(inputs),
        slots=tuple(names),
        tokens=tokens,
        embedding=matrix(tokens * width, len(inputs), [(at[f"x.{name}"], i, 1) for i, name in enumerate(inputs)]),
        memory=dense_matrix(memory.astype(dtype), dtype),
        blocks=tuple(blocks),
        readout=matrix(1, tokens * width, [(0, at["label"], high - low)]),
        bias=matrix(1, 1, [(0, 0, low)]),
        dtype=dtype,
    )


def _lines(edges: Floats, samples: Floats) -> Floats:
    """Lines (slope, offset) whose upper envelope changes at the edges, with a lead over all others at the samples.

    Others are lines that are zero: tokens of the other head, and the data token.
    """
    if not len(edges):
        return np.array([[0.0, 1.1 * LEAD]])
    steep = LEAD / _nearest(edges, samples)
    slopes = steep * (np.arange(len(edges) + 1) - len(edges) // 2)
    offsets = -steep * np.concatenate([[0.0], np.cumsum(edges)])
    run = np.searchsorted(edges, samples)
    least = float((slopes[run] * samples + offsets[run]).min())
    return np.column_stack([slopes, offsets + (1.1 * LEAD - least)])


def _nearest(edges: Floats, samples: Floats) -> float:
    """The least distance of a sample to an edge."""
    place = np.searchsorted(edges, samples)
    below, above = edges[np.maximum(place - 1, 0)], edges[np.minimum(place, len(edges) - 1)]
    return float(np.minimum(np.abs(samples - below), np.abs(samples - above)).min())
