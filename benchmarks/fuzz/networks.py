"""Random table Transformers: what the kernel and the program read in the weights is what the blocks compute."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from fuzz.cases import Case, fuzzer
from transformula.kernel.exceptions import TransformulaError
from transformula.kernel.folder.weights import Attention, Block, FeedForward, Head, Matrix, Weights
from transformula.kernel.structures.network import ONE, HeadTable, Network, WireForm, read_network
from transformula.runtime import reference
from transformula.runtime.matrices import matrix_of
from transformula.runtime.program.numpy_backend import run_numpy
from transformula.runtime.program.weights_program import read_tables

#: A token's score where its gate is closed.
CLOSED = -4096.0
SAMPLES, CLOSE = 20, 1e-9


class Layout:
    """The names of the slots and the numbers of the tokens of a random model."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.inputs, self.axes = rng, rng.randint(1, 3), rng.choice((1, 1, 2))
        self.repeated = rng.random() < 0.3
        self.positions = rng.randint(2, 3) if self.repeated or rng.random() < 0.2 else 1
        self.work = [f"w{k}" for k in range(rng.randint(1, 4))]
        self.own = [f"x{k}" for k in range(self.inputs)]
        self.columns = [rng.randint(1, 2) for _ in range(rng.randint(1, 3))]  # of values, for each table
        self.sizes = [rng.randint(1, 4) if self.axes == 1 else 4 for _ in self.columns]
        self.slots = [
            "one",
            *self.own,
            *self.work,
            "closed",
            *(s for t in range(len(self.columns)) for s in self.of(t)),
        ]
        self.tokens = self.positions + sum(self.sizes)

    def of(self, table: int) -> list[str]:
        """The slots of a table: slopes, offsets, values and a gate."""
        scores = [f"{kind}{table}.{k}" for k in range(self.axes) for kind in ("slope", "offset")]
        return [*scores, *(f"value{table}.{c}" for c in range(self.columns[table])), f"gate{table}"]

    @property
    def readable(self) -> list[str]:
        return ["one", *self.own, *self.work]

    def matrix(self, rows: int | Iterable[str], entries: Iterable[tuple[Any, Any, float]]) -> Matrix:
        """Rows by number or by slot, columns by slot; of entries at one place the last counts."""
        height = rows if isinstance(rows, int) else len(self.slots)
        found = {(r if isinstance(r, int) else self.slots.index(r), self.slots.index(c)): v for r, c, v in entries}
        return matrix_of((height, len(self.slots)), [(r, c, v) for (r, c), v in found.items()])


def memory(layout: Layout) -> Matrix:
    rng, full = layout.rng, np.zeros((layout.tokens, len(layout.slots)))
    constants = {name: rng.choice((0.0, 0.0, 1.0, 0.5, rng.uniform(-1, 1))) for name in layout.work}
    for name, value in {"one": 1.0, "closed": 1.0, **constants}.items():
        full[: layout.positions, layout.slots.index(name)] = value
    tokens = count(layout.positions)
    for table, size in enumerate(layout.sizes):
        lines = [[(rng.uniform(-2, 2), rng.uniform(-2, 2)) for _ in range(size)] for _ in range(layout.axes)]
        for n in range(size):
            token = next(tokens)
            for k in range(layout.axes):
                j = n if layout.axes == 1 else (n // 2, n % 2)[k]
                for kind, value in zip(("slope", "offset"), lines[k][j], strict=True):
                    full[token, layout.slots.index(f"{kind}{table}.{k}")] = value
            for c in range(layout.columns[table]):
                full[token, layout.slots.index(f"value{table}.{c}")] = rng.uniform(-1, 1)
            full[token, layout.slots.index(f"gate{table}")] = 1
    return matrix_of(full.shape, [(int(r), int(c), float(full[r, c])) for r, c in zip(*np.nonzero(full), strict=True)])


def head(layout: Layout) -> Head:
    rng, table, last = layout.rng, layout.rng.randrange(len(layout.columns)), 2 * layout.axes
    query: list[tuple[int, str, float]] = [(last, "one", 1.0)]
    key = [(last, f"gate{other}", CLOSED) for other in range(len(layout.columns)) if other != table]
    key += [(last, "closed", CLOSED)]
    for k in range(layout.axes):
        query += [(2 * k, name, rng.uniform(-1, 1)) for name in rng.sample(layout.readable, rng.randint(0, 2))]
        query += [(2 * k + 1, "one", 1.0)]
        key += [(2 * k, f"slope{table}.{k}", 1.0), (2 * k + 1, f"offset{table}.{k}", 1.0)]
    values = [f"value{table}.{c}" for c in range(layout.columns[table])]
    targets = rng.sample(layout.work + layout.own, min(len(values), len(layout.work + layout.own)))
    value = layout.matrix(layout.slots, zip(targets, values, [1.0] * len(values), strict=False))
    return Head(layout.matrix(last + 1, query), layout.matrix(last + 1, key), value)


def feed_forward(layout: Layout) -> FeedForward:
    rng, units, slots = layout.rng, layout.rng.randint(1, 4), layout.work + layout.own
    read = layout.slots if rng.random() < 0.3 else layout.readable
    hidden = [(u, name, rng.uniform(-1, 1)) for u in range(units) for name in rng.sample(read, rng.randint(0, 2))]
    written = {
        (layout.slots.index(rng.choice(slots)), u): rng.choice((1.0, -1.0, rng.uniform(-1, 1))) for u in range(units)
    }
    width = len(layout.slots)
    return FeedForward(
        layout.matrix(units, hidden),
        matrix_of((units, 1), [(u, 0, rng.uniform(-1, 1)) for u in range(units) if rng.random() < 0.5]),
        matrix_of((width, units), [(slot, u, v) for (slot, u), v in written.items()]),
        matrix_of(
            (width, 1), [(layout.slots.index(s), 0, rng.uniform(-1, 1)) for s in layout.work if rng.random() < 0.3]
        ),
    )


def _blocks(layout: Layout) -> Iterator[Block]:
    rng, before = layout.rng, None
    for _ in range(rng.randint(1, 3)):
        if before is None or rng.random() < 0.7:  # else the same once more: a loop
            heads = tuple(head(layout) for _ in range(rng.randint(0, 3)))
            before = Block(Attention(heads), feed_forward(layout) if rng.random() < 0.7 else None)
        yield before


def random_weights(rng: random.Random) -> Weights:
    """Heads that read tables, hidden units, and a readout, at one position or at several."""
    layout = Layout(rng)
    width, positions, each = len(layout.slots), layout.positions, layout.inputs
    inputs = each * positions if layout.repeated else each
    places = [(p, k) for p in range(positions) for k in range(each)]
    embedding = [
        (p * width + layout.slots.index(f"x{k}"), (p * each if layout.repeated else 0) + k, 1.0) for p, k in places
    ]
    own = rng.randint(1, 2)
    read = [
        (o, layout.slots.index(name), rng.uniform(-1, 1)) for o in range(own) for name in rng.sample(layout.readable, 2)
    ]
    bias = [rng.choice((0.0, rng.uniform(-1, 1))) for _ in range(own)]
    where = range(positions) if layout.repeated else [rng.randrange(positions)]
    shift = own if layout.repeated else 0
    readout = [(p * shift + o, p * width + slot, v) for p in where for o, slot, v in read]
    biases = [(p * shift + o, 0, v) for p in where for o, v in enumerate(bias)]
    outputs, size = own * (positions if layout.repeated else 1), layout.tokens * width
    return Weights(
        tuple(f"i{k}" for k in range(inputs)), tuple(layout.slots), layout.tokens, matrix_of((size, inputs), embedding),
        memory(layout), tuple(_blocks(layout)), matrix_of((outputs, size), readout), matrix_of((outputs, 1), biases),
    )  # fmt: skip


def spoilt(weights: Weights, rng: random.Random) -> Weights:
    """The weights with one entry that does not belong there; a reader may refuse it, but not overlook it."""

    def other(matrix: Matrix) -> Matrix:
        place = rng.randrange(matrix.shape[0]), rng.randrange(matrix.shape[1])
        entries = {(r, c): v for r, c, v in matrix.entries()} | {
            place: rng.choice((1.0, 0.5, -1.0, rng.uniform(-1, 1)))
        }
        return matrix_of(matrix.shape, [(r, c, v) for (r, c), v in entries.items()])

    name = rng.choice(("embedding", "memory", "memory", "readout", "query", "key", "value"))
    if hasattr(weights, name):
        return replace(weights, **{name: other(getattr(weights, name))})
    blocks = list(weights.blocks)
    b = rng.randrange(len(blocks))
    heads = [replace(h, **{name: other(getattr(h, name))}) for h in blocks[b].attention.heads]
    blocks[b] = replace(blocks[b], attention=Attention(tuple(heads)))
    return replace(weights, blocks=tuple(blocks))


def evaluated(network: Network, x: Any) -> Any:
    """What the kernel has read, in floats: samples × outputs of one position."""
    values = {ONE: np.ones(len(x)), **{k: x[:, k] for k in range(network.inputs)}}

    def form(of: WireForm) -> Any:
        return sum(
            (int(t.coefficient.p) / int(t.coefficient.q) * values[k] for k, t in of.terms.items()), np.zeros(len(x))
        )

    for k, wire in enumerate(network.wires, start=network.inputs):
        arguments = [form(argument) for argument in wire.arguments]
        values[k] = np.maximum(arguments[0], 0) if wire.table is None else _softmax(wire.table, arguments)
    return np.stack([form(output) for output in network.outputs], axis=1)


def _softmax(table: HeadTable, arguments: list[Any]) -> Any:
    """Over the head's own tokens and all others, which pass its gate with less weight."""
    slopes, offsets = (
        np.concatenate(p) for p in ((table.slopes, table.foreign_slopes), (table.offsets, table.foreign_offsets))
    )
    scores = sum(u[:, None] * slopes[:, k] + offsets[:, k] for k, u in enumerate(arguments))
    scores = scores + np.append(np.zeros(len(table.slopes)), table.gates)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers @ np.append(table.values, table.foreign_values) / powers.sum(axis=1)


@fuzzer
def networks(case: Case) -> None:
    """Read random weights, and compare with the blocks."""
    weights = random_weights(case.rng)
    if case.rng.random() < 0.4:
        weights = spoilt(weights, case.rng)
    case.given = f"{weights.tokens} tokens, {weights.width} slots, {len(weights.blocks)} blocks, {weights.inputs}"
    try:
        network = read_network(weights)
    except TransformulaError:
        return
    x = np.random.default_rng(case.seed).uniform(-1, 1, (SAMPLES, len(weights.inputs)))
    wanted = reference.run(weights, x)
    parts = np.split(x, network.positions, axis=1) if network.repeated else [x]
    read = np.concatenate([evaluated(network, part) for part in parts], axis=1)
    room, found = CLOSE * (1 + np.abs(wanted).max()), {"the kernel": read}
    if all((wire.table.gates == CLOSED).all() for wire in network.wires if wire.table is not None):  # as proofs require
        found["the program"] = run_numpy(read_tables(weights, ((-1.0, 1.0),) * len(weights.inputs)), x)
    for who, values in found.items():
        wrong = np.abs(values - wanted).max()
        case.check(f"{who} reads what the blocks compute", wrong <= room, f"off by {wrong}")
