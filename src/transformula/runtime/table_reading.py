"""One-layer softmax Transformers as tables, head by head: what is shown of them.

Every data token carries all inputs, a constant 1 and its position; memory tokens carry slopes, offsets and values.
`kernel.network` reads a head as

    score_j(x) = Σ_axes (slope_j · form·x + offset_j) + gate_j,     gate_j = 0 or very negative

so head h reads its own table T_h(x) = Σ_j softmax_j(score) value_j, and tokens behind the gate leak in
with weight e^gate, which the proof bounds and floats do not hold. If the (slope, offset) pairs of the axes form
a full grid, softmax factorises over the axes and costs Σ M_k exponentials instead of Π M_k.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from flint import fmpq

from transformula.errors import ModelFileError, RefutedError
from transformula.kernel.folder.weights import FloatArray, Weights
from transformula.kernel.structures.network import read_network
from transformula.kernel.structures.network_wires import ONE, HeadTable
from transformula.kernel.tables.table_error import lattice
from transformula.runtime import reference


class NotOneLayerError(ModelFileError):
    """The weights are not a one-layer table Transformer; the message names what is out of place."""


@dataclass(frozen=True, eq=False)
class TableHead:
    """One head's table.

    ``forms[k]`` maps input index to coefficient, one form an axis; ``columns`` holds a table for each written slot,
    alike in all but their values, and ``slots`` says which these are.
    """

    forms: tuple[Mapping[int, fmpq], ...]
    columns: tuple[HeadTable, ...]
    slots: tuple[int, ...]

    @property
    def axes(self) -> int:
        """How many linear forms the table depends on."""
        return len(self.forms)

    @property
    def tokens(self) -> int:
        """How many memory tokens the table has."""
        return len(self.slopes)

    @property
    def slopes(self) -> FloatArray:
        """Memory tokens × axes."""
        return self.columns[0].slopes

    @property
    def offsets(self) -> FloatArray:
        """Memory tokens × axes."""
        return self.columns[0].offsets

    @cached_property
    def values(self) -> FloatArray:
        """Memory tokens × written slots."""
        return np.stack([column.values for column in self.columns], axis=1)

    @cached_property
    def grid(self) -> Grid | None:
        """The table as a tensor grid, if it is one (a table of one axis always is)."""
        return Grid.of(self)


@dataclass(frozen=True, eq=False)
class Grid:
    """Axis k has slopes[k] and offsets[k]; values has one dimension for each axis, slots last."""

    slopes: tuple[FloatArray, ...]
    offsets: tuple[FloatArray, ...]
    values: FloatArray

    @classmethod
    def of(cls, head: TableHead) -> Grid | None:
        """Find the product structure, or None."""
        found = lattice(head.slopes, head.offsets)
        return None if found is None else cls(found.slopes, found.offsets, found.arranged(head.values))


def read_heads(weights: Weights) -> tuple[TableHead, ...]:
    """Read every head's table out of the weights, or raise `NotOneLayerError`."""
    _require(len(weights.blocks) == 1, f"there are {len(weights.blocks)} layers, not one")
    try:
        network = read_network(weights)
    except RefutedError as error:
        raise NotOneLayerError(str(error)) from None
    _require(not network.repeated, "every position carries its own inputs")
    found = []
    for h, head in enumerate(weights.blocks[0].attention.heads):
        wires = [w for w in network.wires if w.table is not None and w.place[1] == h]
        _require(bool(wires), "a head writes nothing")
        forms = tuple({k: t.coefficient for k, t in form.terms.items()} for form in wires[0].arguments)
        _require(all(form and ONE not in form for form in forms), "an axis reads no inputs, or a constant")
        tables = [wire.table for wire in wires if wire.table is not None]
        # slopes, offsets and gates are the same for all: keep them once
        columns = (replace(tables[0], values=t.values, foreign_values=t.foreign_values) for t in tables)
        found.append(TableHead(forms, tuple(columns), tuple(head.value.rows.tolist())))
    return tuple(found)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise NotOneLayerError(message)


def read_table(head: TableHead, x: FloatArray) -> FloatArray:
    """T(x): samples × written slots. Grids by products of one-axis softmaxes."""
    arguments = [_argument(form, x) for form in head.forms]
    if head.grid is None:
        scores = np.stack(arguments, axis=1) @ head.slopes.T.astype(x.dtype)
        scores += head.offsets.sum(axis=1).astype(x.dtype)
        scattered: FloatArray = reference.softmax(scores) @ head.values.astype(x.dtype)
        return scattered
    grid = head.grid
    values = grid.values.astype(x.dtype)
    weights = [
        reference.softmax(u[:, None] * a.astype(x.dtype) + b.astype(x.dtype))
        for u, a, b in zip(arguments, grid.slopes, grid.offsets, strict=True)
    ]
    result = np.tensordot(weights[0], values, axes=(1, 0))  # samples × other axes × slots
    for w in weights[1:]:
        result = np.einsum("sj,sj...->s...", w, result)
    return result


def _argument(form: Mapping[int, fmpq], x: FloatArray) -> FloatArray:
    coefficients = np.array([float(v.p) / float(v.q) for v in form.values()], dtype=x.dtype)
    argument: FloatArray = x[:, list(form)] @ coefficients
    return argument
