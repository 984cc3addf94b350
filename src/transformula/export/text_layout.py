"""The blocks of a text model: a compiled softmax model between blocks that read digits and blocks that print them.

Every character of a prompt, and every printed one, is a data token of the compiled model, which runs at each of them;
the answer is read at the last. Slots are added to the compiled ones, and the blocks are:

1. *Names.* Heads copy the latest name: its score is pos·`NEARER` + `far`. ReLUs make of it, for each name, a number
   that is exactly 0 where that name holds and about 1 elsewhere.
2. *Numbers.* A head for each name adds up the values d·10^k of its tokens: the anchor `<s>` has value 0 and weight
   2^`ANCHOR_BITS`, which makes the normaliser a constant; other names' tokens are masked by −`MASK`. It also adds up
   what was printed, p.
3. The compiled blocks compute y.
4. *Digits.* The state (sign s, next place k) opens one of the ReLUs t = 10^−k (s (y − p) + h), h half a unit of the
   last place. For the leading digit, ReLUs measure how far y lies beyond either side of each cell; others, how far an
   input lies outside its box.
5. *Choice.* ReLUs (t − d) and (d − t) measure the distance of t from each digit's interval d..d + 1.

The logit of a token is minus its distance, minus `APART` unless the state asks for it: the right one is 0, without
any cancellation, so that nothing is lost when `generate` rounds logits to float32. ReLUs that are closed are exactly 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from transformula.export.text_grammar import ANCHOR, END, FINISH, LEAD, NAN, REFUSE, Cell, NextDigit, TextGrammar
from transformula.kernel.folder.weights import Block, FloatArray, Weights

#: Binary logarithm of the anchor's weight.
ANCHOR_BITS = 60
#: Its score, the logarithm of that weight.
ANCHOR_SCORE = ANCHOR_BITS * math.log(2)
#: Score of a token that belongs to another name.
MASK = 64.0
#: Score of a name for each position that it is nearer.
NEARER = 8.0
#: Logit below the right token of those that the state does not ask for.
APART = 4.0
#: Logits of nan: where nothing is wrong, and added for a malformed prompt or a number outside the box.
CALM, ALARM = -2.0, 4.0

Heads = list[tuple[FloatArray, FloatArray, FloatArray, FloatArray]]
Row = Mapping[str, float]


@dataclass(frozen=True)
class TextLayer:
    """hidden, hidden_bias, output, output_bias of W₂ ReLU(W₁ z + b₁) + b₂."""

    hidden: FloatArray
    hidden_bias: FloatArray
    output: FloatArray
    output_bias: FloatArray


@dataclass(frozen=True)
class TextBlock:
    """Heads (query, key, value, output), and perhaps a feed-forward layer."""

    heads: Heads
    layer: TextLayer | None = None


@dataclass(frozen=True)
class Fence:
    """The ends of an input's interval, each half a unit of the last decimal beyond the last number inside."""

    low: Fraction
    high: Fraction


@dataclass(frozen=True, eq=False)
class TextLayout:
    """The whole model in slots: ``size`` bounds |y| and |p| wherever a prompt lies in its box."""

    grammar: TextGrammar
    weights: Weights
    fences: tuple[Fence, ...]
    size: float

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Names whose tokens are kept apart: inputs, negative inputs, outputs."""
        g = self.grammar
        return (*g.inputs, *(f"{v}-" for v in g.inputs if v in g.negative), *g.outputs)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The slots."""
        g = self.grammar
        own = ["pos", "name", "value", "anchor", "printed", "next", "outside", "malformed", _not(LEAD), _not(FINISH)]
        own += [f"{kind}:{group}" for kind in ("is", "latest", "other") for group in self.groups]
        own += [*map(_not, g.states), *map(missed_slot, g.cells), *map(wrong_slot, range(10))]
        return (*self.weights.slots, *(f"text.{name}" for name in own))

    @cached_property
    def _index(self) -> dict[str, int]:
        """The compiled slots by their names, and the added ones by theirs, without "text."."""
        compiled = len(self.weights.slots)
        known = {name: k for k, name in enumerate(self.names[:compiled])}
        return known | {name.removeprefix("text."): compiled + k for k, name in enumerate(self.names[compiled:])}

    def row(self, entries: Row) -> FloatArray:
        """A vector with these entries."""
        vector = np.zeros(len(self.names))
        for name, value in entries.items():
            vector[self._index[name]] += value
        return vector

    def _stack(self, rows: Iterable[Row]) -> FloatArray:
        return np.stack([self.row(entries) for entries in rows])

    @cached_property
    def positions(self) -> int:
        """The longest prompt with its answer, in tokens."""
        return self.grammar.longest

    @cached_property
    def far(self) -> float:
        """Score of a name beyond that of any other token: twice that of the last position, a power of two."""
        return 2.0 ** math.ceil(math.log2(2 * NEARER * self.positions))

    @cached_property
    def half(self) -> Fraction:
        """Half a unit of the last place of an answer."""
        return Fraction(1, 2 * 10**self.grammar.places)

    @cached_property
    def edges(self) -> tuple[Fraction, ...]:
        """The places at which one cell ends and the next begins."""
        cells, h = self.grammar.cells, self.half
        inner = [-(c.digit * Fraction(10) ** c.place) + h if c.sign < 0 else c.digit * Fraction(10) ** c.place - h
                 for c in cells]  # fmt: skip
        # of a negative cell the upper end, of a positive one the lower; between -0 and 0 the latter
        return tuple(inner[k] if later.sign < 0 else inner[k + 1] for k, later in enumerate(cells[1:]))

    @cached_property
    def input_slots(self) -> list[int]:
        """Slots that carry the inputs."""
        order = np.argsort(self.weights.embedding.cols)
        return [int(row) for row in self.weights.embedding.rows[order]]

    @cached_property
    def embedding(self) -> FloatArray:
        """One row for each token of the vocabulary."""
        memory, g = self.weights.memory.dense(np.float64), self.grammar
        shared = {_not(LEAD): 1.0, _not(FINISH): 1.0} | {_not(state): 1.0 for state in g.states}
        rows = []
        for token in g.tokens:
            entries = dict(shared) | {"value": float(token.value)}
            if token.after == REFUSE:
                entries["malformed"] = 1.0
            else:
                entries[_not(token.after)] = 0.0
            if token.name:
                entries |= {"name": 1.0, f"is:{token.name}": 1.0}
            row = self.row(entries)
            if not token.special:
                row[: self.weights.width] += memory[0]
            elif token.text.startswith("<m"):
                row[: self.weights.width] += memory[int(token.text[2:-1])]
            elif token.text == ANCHOR:  # gates keep it out of every table
                row += self.row({"anchor": 1.0} | dict.fromkeys(self._data_gates, 1.0))
            rows.append(row)
        return np.stack(rows)

    @cached_property
    def _data_gates(self) -> set[str]:
        """Slots of the data token's gates, which keep it out of every table."""
        memory, weights = self.weights.memory.dense(np.float64), self.weights
        read = {int(c) for b in weights.blocks for h in b.attention.heads for c in h.key.cols}
        return {weights.slots[c] for c in read if memory[0, c] == 1 and weights.slots[c] != "one"}

    @cached_property
    def blocks(self) -> list[TextBlock]:
        """All blocks in order."""
        compiled = [self._compiled(block) for block in self.weights.blocks]
        digits = self._digit_layer()
        if compiled and compiled[-1].layer is None:
            last = [TextBlock(compiled.pop().heads, digits)]
        else:
            last = [TextBlock([], digits)]
        return [self._name_block(), TextBlock(self._reading_heads()), *compiled, *last, TextBlock([], self._choice())]

    def _compiled(self, block: Block) -> TextBlock:
        width, more = self.weights.width, len(self.names) - self.weights.width

        def wide(matrix: FloatArray) -> FloatArray:
            return np.pad(matrix, ((0, 0), (0, more)))

        def tall(matrix: FloatArray) -> FloatArray:
            return np.pad(matrix, ((0, more), (0, 0)))

        heads: Heads = []
        for head in block.attention.heads:
            rows = np.unique(head.value.rows)
            output = np.eye(width)[:, rows]
            heads.append(
                (wide(head.query.dense()), wide(head.key.dense()), wide(head.value.dense()[rows]), tall(output))
            )
        if (layer := block.feed_forward) is None:
            return TextBlock(heads)
        bias, added = layer.hidden_bias.dense()[:, 0], layer.output_bias.dense()[:, 0]
        return TextBlock(
            heads, TextLayer(wide(layer.hidden.dense()), bias, tall(layer.output.dense()), np.pad(added, (0, more)))
        )

    def _name_block(self) -> TextBlock:
        query, key = self._stack([{"one": 1.0}]), self._stack([{"pos": NEARER, "name": self.far}])
        heads: Heads = []
        for start in range(0, len(self.groups), 4):  # values of a head: at most its dimension
            part = self.groups[start : start + 4]
            read = self._stack([{f"is:{group}": 1.0} for group in part])
            heads.append((query, key, read, self._stack([{f"latest:{group}": 1.0} for group in part]).T))
        units = [({"one": 0.5, f"latest:{group}": -1.0}, 0.0, {f"other:{group}": 4.0}) for group in self.groups]
        return TextBlock(heads, self._layer(units))

    def _layer(self, units: Sequence[tuple[Row | FloatArray, float, Row]]) -> TextLayer:
        hidden = np.stack([self.row(u[0]) if isinstance(u[0], Mapping) else u[0] for u in units])
        bias = np.array([u[1] for u in units], dtype=np.float64)
        return TextLayer(hidden, bias, self._stack(u[2] for u in units).T, np.zeros(len(self.names)))

    def _reading_heads(self) -> Heads:
        g, heads = self.grammar, list[tuple[FloatArray, FloatArray, FloatArray, FloatArray]]()
        for group in self.groups:
            to = "printed" if group in g.outputs else self.names[self.input_slots[g.inputs.index(group.rstrip("-"))]]
            sign = -1.0 if group.endswith("-") else 1.0
            key = self._stack([{"anchor": ANCHOR_SCORE, f"other:{group}": -MASK}])
            write = self._stack([{to: sign * 2.0**ANCHOR_BITS}]).T
            heads.append((self._stack([{"one": 1.0}]), key, self._stack([{"value": 1.0}]), write))
        return heads

    def answer(self, output: int) -> tuple[FloatArray, float]:
        """The row and the bias that read an output y."""
        read = np.zeros(len(self.names))
        read[: self.weights.width] = self.weights.readout.dense()[output, : self.weights.width]
        return read, float(self.weights.bias.dense()[output, 0])

    def gate(self, place: int) -> float:
        """Weight that closes a ReLU of a place: twice what may have to be closed, a power of two."""
        return 2.0 ** math.ceil(math.log2(4 * self.size * 10.0**-place + 4))

    def _shut(self, output: int) -> FloatArray:
        """The gate that closes the ReLUs of an output while another one is asked for."""
        several = len(self.grammar.outputs) > 1
        return self.row({f"other:{self.grammar.outputs[output]}": 2.0 if several else 0.0})

    def place_row(self, output: int, state: NextDigit) -> FloatArray:
        """The row of t, open in one state."""
        scale, y = float(Fraction(10) ** -state.place), self.answer(output)[0]
        shut = self.gate(state.place) * (self.row({_not(state): 1.0}) + self._shut(output))
        return scale * state.sign * (y - self.row({"printed": 1.0})) - shut

    def cell_row(self, output: int, sign: float) -> FloatArray:
        """The row of how far y is above an edge, or below."""
        return sign * self.answer(output)[0] - self.gate(0) * self._shut(output)

    def fence_row(self, number: int, sign: float) -> FloatArray:
        """The row of how far an input is outside its interval; it is closed but for the leading digit."""
        far = 2.0 ** math.ceil(math.log2(4 * 10**self.grammar.integers))  # twice what it may be
        return self.row({self.names[self.input_slots[number]]: sign, _not(LEAD): -far})

    def _digit_layer(self) -> TextLayer:
        units: list[tuple[Row | FloatArray, float, Row]] = []
        for o in range(len(self.grammar.outputs)):
            bias = self.answer(o)[1]
            for state in self.grammar.states:
                added = float(Fraction(10) ** -state.place) * (state.sign * bias + float(self.half))
                units.append((self.place_row(o, state), added, {"next": 1.0}))
            units += self._cell_units(self.cell_row(o, 1.0), self.cell_row(o, -1.0), bias)
        alarm = {"outside": 4 * ALARM * 10.0**self.grammar.decimals}
        for k, fence in enumerate(self.fences):
            units.append((self.fence_row(k, 1.0), -float(fence.high), alarm))
            units.append((self.fence_row(k, -1.0), float(fence.low), alarm))
        return self._layer(units)

    def _cell_units(self, above: FloatArray, below: FloatArray, bias: float) -> list[tuple[FloatArray, float, Row]]:
        """For each edge how far y is above it, and below: what the cells on the other side miss y by."""
        units: list[tuple[FloatArray, float, Row]] = []
        cells = self.grammar.cells
        for k, edge in enumerate(map(float, self.edges)):
            units.append((above, bias - edge, {missed_slot(c): 1.0 for c in cells[: k + 1]}))
            units.append((below, edge - bias, {missed_slot(c): 1.0 for c in cells[k + 1 :]}))
        return units

    def _choice(self) -> TextLayer:
        units: list[tuple[Row | FloatArray, float, Row]] = []
        for d in range(1, 10):
            units.append(({"next": 1.0}, -float(d), {wrong_slot(w): 1.0 for w in range(d)}))
            units.append(({"next": -1.0}, float(d), {wrong_slot(w): 1.0 for w in range(d, 10)}))
        return self._layer(units)

    @cached_property
    def head(self) -> FloatArray:
        """The rows that read the logits."""
        g = self.grammar
        rows: dict[str, Row] = {NAN: {"one": CALM, "malformed": ALARM, "outside": 1.0}, END: {_not(FINISH): -APART}}
        for cell in g.cells:
            rows[g.printed(cell, lead=True)] = {missed_slot(cell): -1.0, _not(LEAD): -APART}
        for state in g.states:
            for d in range(10):
                text = g.printed(Cell(state.sign, d, state.place), lead=False)
                rows[text] = {wrong_slot(d): -1.0, _not(state): -APART}
        return self._stack(rows.get(token.text, {"one": -APART}) for token in g.tokens)


def _not(state: NextDigit | str) -> str:
    return f"not {state}" if isinstance(state, str) else f"not next {'-' if state.sign < 0 else '+'}{state.place}"


def missed_slot(cell: Cell) -> str:
    """Slot of how far y is from a cell."""
    return f"missed {'-' if cell.sign < 0 else '+'}{cell.digit}e{cell.place}"


def wrong_slot(digit: int) -> str:
    """Slot of how far t is from a digit."""
    return f"wrong {digit}"
