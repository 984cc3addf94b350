"""What is proven of one head of a circuit: its table's error, its leak and its rounding."""

from __future__ import annotations

import math

import numpy as np
from flint import arb

from transformula.certificates.bounding import bound_table
from transformula.certificates.leaks import SILENT, score_slack
from transformula.certificates.proof import RefutedError
from transformula.certificates.rounding import EXP_ULPS, FORMATS, FloatFormat
from transformula.certificates.softmax_rounding import Arithmetic, rounding_bound
from transformula.certificates.table_bounds import Table
from transformula.certificates.table_slopes import slope_gap, table_slope
from transformula.errors import NotProvenError
from transformula.formulas.expression import Expr
from transformula.formulas.wires import SQUARE
from transformula.taylor.function_cells import Cells, FunctionCells, SquareCells
from transformula.transformers.circuit import CircuitHead
from transformula.transformers.weights import Weights


class HeadProofs:
    """Bounds of heads; equal tables with equal functions on equal ranges are judged once."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.form: FloatFormat = FORMATS[weights.dtype]
        self.pieces = 0
        self._proved: dict[object, arb] = {}
        self._rounded: dict[object, tuple[float, float, float]] = {}
        self._cells: dict[object, Cells] = {}

    def error(self, head: CircuitHead, function: Expr, ends: tuple[float, float]) -> arb:
        """sup|T − f| of the head's own table, by Taylor models."""
        key = (function, ends, head.table)
        if key not in self._proved:
            bound = bound_table(function, ["u"], [(arb(ends[0]), arb(ends[1]))], _table(head))
            self.pieces += bound.boxes
            self._proved[key] = arb(bound.value)
        return self._proved[key]

    def cells(self, function: Expr, ends: tuple[float, float]) -> Cells:
        """The wire's function on the range of its argument, exact or computed."""
        if function == SQUARE:
            return SquareCells(*ends)
        if (function, ends) not in self._cells:
            self._cells[function, ends] = FunctionCells(function, *ends)
        return self._cells[function, ends]

    def leak(self, head: CircuitHead, ends: tuple[float, float]) -> arb:
        """Share of the weight outside the head's own table, times the spread of values.

        For real scores and for computed ones: ``ends`` are those of computed arguments.
        """
        reach = max(abs(ends[0]), abs(ends[1]))
        if not math.isfinite(reach):
            raise NotProvenError("the argument of a table could not be bounded")
        slope, offset, value = head.foreign_reach
        own = float((head.offsets - np.abs(head.slopes) * reach).max())
        foreign = head.gate + offset + slope * reach
        largest = float((np.abs(head.offsets) + np.abs(head.slopes) * reach).max())
        size = 1 + largest + abs(head.strongest_gate) + offset + slope * reach
        check_size(self.form, arb(size) + arb(value) + arb(float(np.abs(head.values).max())))
        gap = own - foreign - score_slack(size, 5, self.form)
        others = self.weights.tokens - len(head.slopes)
        if not gap > SILENT:
            raise RefutedError(
                f"a head is not kept to its own table where its argument may reach {reach:.3g}: "
                "the gate is too weak"
            )
        spread = math.nextafter(float(np.abs(head.values).max()) + value, math.inf)
        return (arb(others) * (-arb(gap)).exp() * arb(spread)).upper()

    def rounding(
        self,
        head: CircuitHead,
        function: Expr,
        steepest: float,
        reach: tuple[float, float],
        rounding: arb,
        error: arb,
    ) -> tuple[arb, arb]:
        """What the softmax adds, and what it comes to with an argument that is off by ``rounding``.

        T(û) − T(u) is f(û) − f(u) up to sup|T' − f'| · |û − u|, and up to twice the table's error, which is
        proven on all of ``reach`` but where f is not defined: there its slope is infinite, and the path cut.
        """
        key = (function, reach, head.table)
        if key not in self._rounded:
            table = _table(head)
            arithmetic = Arithmetic.of(
                self.weights.dtype,
                exp_ulps=EXP_ULPS,
                score_roundings=2,  # u·slope + offset, each read as it is
                sum_roundings=len(head.slopes),  # behind the gate everything is zero in floats
            )
            bound = rounding_bound(table, [(arb(reach[0]), arb(reach[1]))], arithmetic)
            if math.isfinite(steepest):
                gap = slope_gap(table, function, *reach, 0.02 * steepest)
                self._rounded[key] = bound, steepest, gap
            else:
                self._rounded[key] = bound, table_slope(table, *reach), math.inf
        bound, slope, gap = self._rounded[key]
        if not (math.isfinite(bound) and math.isfinite(slope)):
            raise NotProvenError(f"the scores of a table are too large for {self.weights.dtype}")
        if not math.isfinite(steepest):  # the table's own slope says how far an argument carries
            return arb(bound) + 2 * error, arb(bound) + arb(slope) * rounding
        bent = (2 * error).min(arb(gap) * rounding) if math.isfinite(gap) else 2 * error
        return arb(bound) + bent, arb(bound) + bent + arb(slope) * rounding


def _table(head: CircuitHead) -> Table:
    return Table(head.slopes.astype(float), head.offsets.astype(float), head.values.astype(float))


def check_size(form: FloatFormat, size: arb) -> None:
    """Refuse what might overflow."""
    if not size < form.largest:
        raise NotProvenError(f"the values on this box reach {size.str(3)}, beyond {form.name}'s range")
