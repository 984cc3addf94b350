"""Tables of several axes, and sharp ones: they are meant to read exact linear forms of the inputs.

Their arguments are off by rounding only, which `softmax` takes as an error of the scores; those of sharp tables may
also come through tables of u, which interpolate a line, with the errors of these (`partition`). What they are
meant to be is bounded on the pieces that bound their error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from flint import arb

from transformula.kernel.circuit.carried_errors import Argument, Value
from transformula.kernel.circuit.error_flow import Fuzz
from transformula.kernel.circuit.head_proofs import leak
from transformula.kernel.enclosures.balls import enclose, round_up
from transformula.kernel.enclosures.coverings import checked_edges, products
from transformula.kernel.enclosures.expression_models import enclose_ranges
from transformula.kernel.exceptions import NotProvenError, RefutedError
from transformula.kernel.rounding.formats import QUERY_FACTOR, FloatFormat
from transformula.kernel.rounding.softmax import Arithmetic, rounding_bound
from transformula.kernel.structures.network_wires import NetworkWire
from transformula.kernel.structures.stored_circuit import Circuit, LinearForm, Wire, single
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box
from transformula.kernel.tables.cell_error import partition_bound
from transformula.kernel.tables.table_error import MAX_PIECES, SoftmaxTable, table_error

if TYPE_CHECKING:
    from transformula.kernel.rules.softmax_rule import Walk

Ends = tuple[arb, arb]
LINE = ex.variable("u")


def grid_value(walk: Walk, k: int, wire: Wire, found: NetworkWire, arguments: Sequence[Argument]) -> Value:
    """The proven value of a table of several axes, or of a sharp one."""
    function = wire.function
    head = found.table
    form = walk.form
    assert function is not None and head is not None
    if not walk.sharp and any(not argument.error <= 0 for argument in arguments):
        raise RefutedError("a table of several axes does not read exact linear forms of the inputs")
    ends = [_ends(_straight(walk.circuit, linear), walk.meanings.formula.box) for linear in wire.arguments]
    wrong, shifts = ([round_up(getattr(argument, of)) for argument in arguments] for of in ("rounding", "error"))
    reach = [round_up(abs(a).max(abs(b)) + h + w) for (a, b), h, w in zip(ends, shifts, wrong, strict=True)]
    walk.check_overflow(found.arguments, QUERY_FACTOR)
    lost = leak(head, reach, form)
    table = walk.heads.table(head)
    if walk.sharp:
        bits, trees = _partition(walk.evidence.partition(k, table, function, ends, shifts))
        score = score_error(form, table, reach, wrong)
        error, rounding = partition_bound(table, function, wire.names, ends, bits, trees, score, form, shifts)
        error, rounding = error + lost.real, rounding + lost.computed
        size = arb(float(np.max(np.abs(table.values)))) + error
    else:
        pieces = walk.evidence.pieces(k, table, function, wire.names, ends)
        bound = table_error(table, function, wire.names, ends, pieces)
        edges = walk.evidence.softmax(k, table, ends)
        plain = Arithmetic(
            form, 2 * len(ends) + 2, head.values.size + 2, argument_errors=tuple(wrong), input_roundings=0
        )
        roundings = [rounding_bound(table, ends, edges, a) for a in (plain, replace(plain, factorised=True))]
        error, rounding = arb(bound) + lost.real, arb(float(np.max(roundings))) + lost.computed
        size = _largest(function, wire, ends, pieces).min(arb(float(np.max(np.abs(table.values)))) + error)
    if not (error.is_finite() and rounding.is_finite()):
        raise NotProvenError(f"a table of {function} could not be bounded in {form.name}", place=str(function))
    walk.ranges.found(k, (np.asarray(-round_up(size)), np.asarray(round_up(size))))
    held = (size + error).upper()
    made, rounded = Fuzz(0.0, round_up(error)), Fuzz(0.0, round_up(rounding))
    return Value(size.upper(), error.upper(), rounding.upper(), (-held, held), made, rounded)


def _straight(circuit: Circuit, linear: LinearForm) -> LinearForm:
    """The form with each table of u replaced by what it reads, which is what it means."""
    while any(circuit.wires[k].function == LINE for k, _ in linear.terms):
        parts = [(ex.number(1), LinearForm((), linear.constant))]
        for k, c in linear.terms:
            wire = circuit.wires[k]
            parts.append((c, wire.arguments[0] if wire.function == LINE else single(k)))
        linear = LinearForm.sum(parts)
    return linear


def _ends(linear: LinearForm, box: Box) -> Ends:
    """The exact ends of a linear form of the inputs, as balls."""
    low = high = enclose(linear.constant)
    for i, c in linear.terms:
        if i >= box.dimension or c.number is None:
            raise RefutedError("a table of several axes does not read rational linear forms of the inputs")
        ends = enclose(box.lower[i]) * enclose(c), enclose(box.upper[i]) * enclose(c)
        low, high = low + ends[c.number < 0], high + ends[c.number > 0]
    return low, high


def _largest(function: Any, wire: Wire, ends: Sequence[Ends], pieces: Any) -> arb:
    """A bound of |function| on the boxes between the pieces' first edges; the function is defined there."""
    edges = checked_edges(pieces["edges"], ends, MAX_PIECES)
    lower, upper = products([e[:-1] for e in edges]), products([e[1:] for e in edges])
    low, high = enclose_ranges(function, wire.names, lower, upper)
    return arb(float(np.max(np.maximum(np.abs(low), np.abs(high)))))


def _partition(item: Any) -> tuple[int, Any]:
    if not isinstance(item, list) or len(item) != 2 or type(item[0]) is not int:
        raise RefutedError("the evidence for a partition cannot be read")
    return item[0], item[1]


def score_error(form: FloatFormat, table: SoftmaxTable, reach: Sequence[float], wrong: Sequence[float]) -> arb:
    """Largest |computed − real| score: arguments are off, and 2d products and sums are rounded."""
    total = form.score_slip
    for slopes, offsets, far, off in zip(table.slopes, table.offsets, reach, wrong, strict=True):
        steepest, largest = arb(float(np.max(np.abs(slopes)))), arb(float(np.max(np.abs(offsets))))
        total += steepest * arb(off) + form.gamma(2 * len(reach) + 2) * (steepest * arb(far) + largest)
    return total.upper()
