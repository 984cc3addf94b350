"""What is asked of a head of one argument, and what is found: plain numbers, which `heads` makes wherever it runs."""

from __future__ import annotations

import math
from typing import NamedTuple

from flint import arb

from transformula.kernel.enclosures.function_cells import Cells
from transformula.kernel.exceptions import NotProvenError
from transformula.kernel.folder.evidence import Meant
from transformula.kernel.rounding.formats import FloatFormat
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.tables.table_error import SoftmaxTable

Interval = tuple[float, float]


class Question(NamedTuple):
    """What is asked of a wire's table: how close it is to a function where its argument can be, ``reach``.

    ``meant`` is where the argument is meant to be. If ``plain`` it is an input, off by its own rounding. ``relative``:
    how often it is rounded as a whole, and what is lost to underflow, if that is all (`carrying.Relative`).
    """

    wire: int
    table: SoftmaxTable
    function: Expr
    reach: Interval
    meant: Meant
    plain: bool
    relative: tuple[int, float] | None = None

    def roundings(self, steepest: float) -> tuple[int, float] | None:
        """The same if softmax is to be bounded with them: for inputs, and where f' is unbounded."""
        return self.relative if self.plain or not math.isfinite(steepest) else None


class Found(NamedTuple):
    """sup|T − f| on D, how far T moves on the rest of ``reach``, and D, cut to ``reach``.

    ``where`` is what is meant, known exactly only if that is D: cells must not end before D does. ``steepest`` bounds
    |f'| on ``reach`` and ``gap`` |T' − f'|, or |T'| where the former is infinite. ``softmax`` bounds what softmax adds
    in floats, with an argument as it is held and with an input.
    """

    own: float
    moved: float
    inside: Interval
    where: Meant
    cells: Cells
    steepest: float
    gap: float
    softmax: tuple[float, float]

    def rounding(self, question: Question, rounding: arb, error: arb, form: FloatFormat) -> tuple[arb, arb]:
        """What the softmax adds, and what it comes to with an argument that is off by ``rounding``.

        Where f' is unbounded the table's own slope says how far an argument carries.
        """
        bound, both = map(arb, self.softmax)
        if not bound.is_finite():
            raise NotProvenError(f"the scores of a table are too large for {form.name}")
        gap, whole = arb(self.gap), question.roundings(self.steepest) is not None and both.is_finite()
        if not math.isfinite(self.steepest):
            if not (whole or gap.is_finite()):
                raise NotProvenError(f"the slope of a table of {question.function} could not be bounded")
            return bound + 2 * error, both if whole else bound + gap * rounding
        bent = (2 * error).min(gap * rounding) if gap.is_finite() else 2 * error
        return bound + bent, both if whole else bound + bent + arb(self.steepest) * rounding
