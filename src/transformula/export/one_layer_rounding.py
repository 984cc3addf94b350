"""Rounding after attention: residual sums, the ReLU layer and the readout of a one-layer model.

Each slot of a data token has a bound S of its value and a bound E of its computed value's error. A dot
product of m stored weights (each within 1.01u of its rational) with such slots errs by at most ::

    Σ |w| E  +  γ_{m+4} Σ |w| (S + E)  +  underflow

in any order of summation, and ReLU does not enlarge an error. Bounds and errors of the tables are given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from flint import arb, fmpq

from transformula.errors import InputError
from transformula.kernel.folder.weights import Matrix, Weights
from transformula.kernel.rounding.formats import FORMATS, FloatFormat
from transformula.kernel.syntax.boxes import Box
from transformula.runtime.table_reading import TableHead

Slot = tuple[arb, arb]
Tables = Mapping[tuple[int, int], Slot]
Seen = Callable[[list[Slot]], list[Slot]]


def output_rounding(
    weights: Weights, heads: Sequence[TableHead], tables: Tables, box: Box, seen: Seen = list
) -> list[arb]:
    """Bound |computed − real| of every output; ``tables[h, column]`` is (sup|T|, error of T).

    ``seen`` says what the feed-forward layer reads of the slots, where that is not the slots themselves.
    """
    form = FORMATS[weights.dtype]
    streams = {}
    for token in weights.data_tokens.tolist():
        slots = _attended(weights, heads, tables, box, token, form)
        streams[token] = _feed_forward(weights, slots, seen(slots), form)
    readout: dict[int, list[tuple[fmpq, Slot]]] = {o: [] for o in range(weights.outputs)}
    for output, column, value in weights.readout.entries():
        token, slot = divmod(column, weights.width)
        readout[output].append((value, streams[token][slot]))
    bias = {row: value for row, _, value in weights.bias.entries()}
    return [_dot(terms, bias.get(o, fmpq(0)), form)[1] for o, terms in readout.items()]


def _attended(
    weights: Weights, heads: Sequence[TableHead], tables: Tables, box: Box, token: int, form: FloatFormat
) -> list[Slot]:
    zero = (arb(0), arb(0))
    slots = [zero] * weights.width
    for row, column, _ in weights.embedding.entries():
        if row // weights.width == token:
            size = box.magnitude(column)
            slots[row % weights.width] = (size, size * form.unit_roundoff + form.tiny)
    for row, slot, value in weights.memory.entries():
        if row == token:
            slots[slot] = (abs(arb(value)), arb(0))
    terms: dict[int, list[tuple[fmpq, Slot]]] = {}
    for h, head in enumerate(heads):
        for column, slot in enumerate(head.slots):
            terms.setdefault(slot, []).append((fmpq(1), tables[h, column]))
    for slot, written in terms.items():
        slots[slot] = _dot([(fmpq(1), slots[slot]), *written], fmpq(0), form)
    return slots


def _feed_forward(weights: Weights, slots: list[Slot], seen: list[Slot], form: FloatFormat) -> list[Slot]:
    layer = weights.blocks[0].feed_forward
    if layer is None:
        return slots
    hidden_bias = {row: value for row, _, value in layer.hidden_bias.entries()}
    output_bias = {row: value for row, _, value in layer.output_bias.entries()}
    units = [
        _dot(((v, seen[c]) for c, v in row), hidden_bias.get(unit, fmpq(0)), form)
        for unit, row in enumerate(_rows(layer.hidden))
    ]
    result = []
    for slot, row in enumerate(_rows(layer.output)):
        terms = [(fmpq(1), slots[slot]), *((v, units[c]) for c, v in row)]
        changed = bool(row) or slot in output_bias
        result.append(_dot(terms, output_bias.get(slot, fmpq(0)), form) if changed else slots[slot])
    return result


def _rows(matrix: Matrix) -> list[list[tuple[int, fmpq]]]:
    rows: list[list[tuple[int, fmpq]]] = [[] for _ in range(matrix.shape[0])]
    for row, column, value in matrix.entries():
        rows[row].append((column, value))
    return rows


def _dot(terms: Iterable[tuple[fmpq, Slot]], bias: fmpq, form: FloatFormat) -> Slot:
    """(sup, error) of Σ weight·slot + bias."""
    size, error, total, count = abs(arb(bias)), arb(0), abs(arb(bias)), 1
    for weight, (value, wrong) in terms:
        w = abs(arb(weight))
        size += w * value
        error += w * wrong
        total += w * (value + wrong)
        count += 1
    if not total < form.largest:
        raise InputError(f"the values on this box reach {total.str(3)}, beyond {form.name}'s range")
    return size.upper(), (error + form.gamma(count + 4) * total + 2 * count * form.tiny).upper()
