"""A circuit with inputs x and c, and a head that makes the c of x, joined into one model.

Each head moves to the first block in which what it reads is there: the head of the cells is in the first, and so are
tables of the inputs alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flint import fmpq

from transformula.compiler.attempts import Built
from transformula.compiler.head_layout import HeadSpec, Tokens, assembled, places
from transformula.errors import NotProvenError
from transformula.kernel.folder.weights import FloatArray
from transformula.kernel.gallery.local_rule import column_names
from transformula.kernel.structures.network_wires import HeadTable
from transformula.kernel.syntax.boxes import Box
from transformula.runtime.table_reading import read_circuit


def joined(
    built: Built,
    box: Box,
    axes: Sequence[str],
    slopes: FloatArray,
    offsets: FloatArray,
    columns: FloatArray,
    stated: dict[str, Any],
) -> Built:
    """The model whose inputs are the box's variables.

    Parameters
    ----------
    built : Built
        A circuit of one data token whose inputs are the variables and then the columns.
    axes : sequence of str
        The variables that the cells are cut along.
    slopes, offsets, columns
        Of the cells' tokens: tokens × axes, and tokens × columns.
    stated : dict
        What model.json says of the local models, but for the head.
    """
    circuit, names, count = read_circuit(built.weights), built.weights.slots, columns.shape[1]
    if any(block.units or block.bias for block in circuit.blocks):
        raise NotProvenError("the products of local polynomials would need a feed-forward layer")
    local = column_names(count)
    slot = {k: name.removeprefix("x.") if name.removeprefix("x.") in local else name for k, name in enumerate(names)}
    reach = tuple(max(map(abs, box.floats()[box.variables.index(name)])) for name in axes)
    reads = tuple({f"x.{name}": fmpq(1)} for name in axes)
    tables = [Tokens(slopes, offsets, columns, "coefficient")]
    heads = [HeadSpec(0, 0, reads, reach, tuple(local))]
    ready = dict.fromkeys(local, 1)
    known: dict[HeadTable, int] = {}
    old: dict[tuple[int, int], int] = {}
    for b, block in enumerate(circuit.blocks):
        for h, head in enumerate(block.heads):
            (table,), written = head.columns, slot[head.slots[0]]
            if table not in known:
                known[table] = len(tables)
                tables.append(Tokens(head.slopes, head.offsets, head.values))
            form = {slot[k]: v for k, v in head.forms[0].items()}
            when = max((ready.get(name, 0) for name in form), default=0)
            ready[written] = when + 1
            old[b, h] = len(heads)
            heads.append(HeadSpec(when, known[table], (form,), (2.0,), (written,)))
    rows = zip(circuit.readout, circuit.bias, strict=True)
    readout = [({slot[k]: v for k, v in form.items()}, bias) for form, bias in rows]
    assert built.circuit is not None
    at = places(heads)
    wires = [_moved(wire, old, at) for wire in built.circuit["wires"]]
    data = {**built.circuit, "wires": wires, "local": {"head": at[0][1], **stated}}
    weights = assembled(box.variables, tables, heads, readout, built.weights.dtype)
    built.evidence.follow = False  # the errors of so shallow a circuit need not be followed
    return Built(weights, data, built.evidence)


def _moved(wire: dict[str, Any], old: dict[tuple[int, int], int], at: list[tuple[int, int]]) -> dict[str, Any]:
    """A stored wire with its new place."""
    if "from" not in wire:
        return wire
    block, head, column = wire["from"]
    return {**wire, "from": [*at[old[block, head]], column]}
