"""Tables and heads of several softmax layers as weights: no feed-forward layer anywhere.

One data token carries the inputs, the constant 1 and the slots that heads write; memory tokens carry the slopes and
offsets of their table, its columns of values and its mark. A head's gate is low enough that tokens of other tables
have no weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import fmpq

from transformula.compiler.one_layer_layout import GATE_MARGIN
from transformula.errors import NotProvenError
from transformula.kernel.folder.weights import Attention, Block, FloatArray, Head, Matrix, Weights
from transformula.runtime.matrices import dense_matrix, matrix_of

Entries = list[tuple[int, int, Any]]
#: Coefficients of slots by their names.
Reads = Mapping[str, fmpq]


@dataclass(frozen=True, eq=False)
class Tokens:
    """A table: slopes and offsets are tokens × axes, values tokens × columns, in slots of that name."""

    slopes: FloatArray
    offsets: FloatArray
    values: FloatArray
    name: str = "value"

    @property
    def columns(self) -> list[str]:
        """The slots of its values."""
        return [f"{self.name}{k + 1}" for k in range(self.values.shape[1])]


@dataclass(frozen=True, eq=False)
class HeadSpec:
    """A head: its block, the number of its table, what each axis reads and how far that goes, and what it writes."""

    block: int
    table: int
    arguments: tuple[Reads, ...]
    reach: tuple[float, ...]
    writes: tuple[str, ...]


def assembled(
    inputs: Sequence[str],
    tables: Sequence[Tokens],
    heads: Sequence[HeadSpec],
    readout: Sequence[tuple[Reads, fmpq]],
    dtype: str,
) -> Weights:
    """The weights; ``readout`` has a form of slots and a constant for each output. Inputs are read as x.NAME."""
    axes = max((t.slopes.shape[1] for t in tables), default=0)
    names = [f"x.{name}" for name in inputs] + ["one", *dict.fromkeys(slot for h in heads for slot in h.writes)]
    names += [f"{kind}{k + 1}" for kind in ("slope", "offset") for k in range(axes)]
    names += dict.fromkeys(slot for t in tables for slot in t.columns)
    names += [f"gate{g}" for g in range(len(tables) + 1)]
    at = {name: k for k, name in enumerate(names)}
    width, tokens = len(names), 1 + sum(len(t.slopes) for t in tables)
    memory = np.zeros((tokens, width))
    memory[0, [at["one"], at["gate0"]]] = 1
    start = 1
    for g, table in enumerate(tables):
        rows = slice(start, start + len(table.slopes))
        for k in range(table.slopes.shape[1]):
            memory[rows, at[f"slope{k + 1}"]] = table.slopes[:, k]
            memory[rows, at[f"offset{k + 1}"]] = table.offsets[:, k]
        memory[rows, at[table.columns[0]] : at[table.columns[-1]] + 1] = table.values
        memory[rows, at[f"gate{g + 1}"]] = 1
        start = rows.stop
    if not np.abs(memory).max() < float(np.finfo(dtype).max) / 2:
        raise NotProvenError(f"the numbers of a table are beyond {dtype}'s range: rescale the variables")

    def matrix(shape: tuple[int, int], entries: Entries) -> Matrix:
        return matrix_of(shape, entries, dtype)

    def made(head: HeadSpec) -> Head:
        last = 2 * len(head.arguments)
        gate = _gate(tables, head.reach, dtype)
        query: Entries = [(last, at["one"], 1)]
        key: Entries = [(last, at[f"gate{g}"], gate) for g in range(len(tables) + 1) if g != head.table + 1]
        for k, reads in enumerate(head.arguments):
            query += [(2 * k, at[slot], v) for slot, v in reads.items()] + [(2 * k + 1, at["one"], 1)]
            key += [(2 * k, at[f"slope{k + 1}"], 1), (2 * k + 1, at[f"offset{k + 1}"], 1)]
        value = [(at[to], at[of], 1) for to, of in zip(head.writes, tables[head.table].columns, strict=True)]
        return Head(matrix((last + 1, width), query), matrix((last + 1, width), key), matrix((width, width), value))

    layers = 1 + max((head.block for head in heads), default=0)
    blocks = [Block(Attention(tuple(made(h) for h in heads if h.block == b)), None) for b in range(layers)]
    return Weights(
        inputs=tuple(inputs),
        slots=tuple(names),
        tokens=tokens,
        embedding=matrix((tokens * width, len(inputs)), [(at[f"x.{name}"], k, 1) for k, name in enumerate(inputs)]),
        memory=dense_matrix(memory, dtype),
        blocks=tuple(blocks),
        readout=matrix(
            (len(readout), tokens * width),
            [(o, at[s], v) for o, (form, _) in enumerate(readout) for s, v in form.items()],
        ),
        bias=matrix((len(readout), 1), [(o, 0, constant) for o, (_, constant) in enumerate(readout)]),
        dtype=dtype,
    )


def places(heads: Sequence[HeadSpec]) -> list[tuple[int, int]]:
    """[block, head] of each, as `assembled` lays them out."""
    seen: dict[int, int] = {}
    found = []
    for head in heads:
        found.append((head.block, seen.get(head.block, 0)))
        seen[head.block] = found[-1][1] + 1
    return found


def _gate(tables: Sequence[Tokens], reach: Sequence[float], dtype: str) -> float:
    """A power of two, exact in any format, that no score can make up for."""
    most = 0.0
    for table in tables:
        axes = min(len(reach), table.slopes.shape[1])
        scores = np.abs(table.offsets[:, :axes]) + np.asarray(reach[:axes]) * np.abs(table.slopes[:, :axes])
        most = max(most, float(scores.sum(axis=1).max()))
    if not most < float(np.finfo(dtype).max) / 16:
        raise NotProvenError(f"the scores of a table are beyond {dtype}'s range: rescale the variables")
    return -(2.0 ** math.ceil(math.log2(3 * most + GATE_MARGIN)))
