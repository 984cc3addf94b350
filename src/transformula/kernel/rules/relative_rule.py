"""Pointwise relative errors: |computed − f| ≤ relative · |f| at every point of the box.

If |computed − f| ≤ bound and |1/f| ≤ s on the box, then f is not 0 there, and |computed − f| ≤ bound ≤ bound · s · |f|.
The range of 1/f is enclosed on the given parts of the box; an enclosure exists only where f is seen to be other than 0.
"""

from __future__ import annotations

from fractions import Fraction

from transformula.kernel.enclosures.expression_ranges import range_on
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.exceptions import NotProvenError
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.expression import Expr, short_text


def inverse_of(expr: Expr) -> Expr:
    """1/f; a formula that is 0 everywhere is refused."""
    if expr.number == 0:
        raise NotProvenError("the formula is 0, and no relative error can be promised")
    return ex.div(ex.number(1), expr)


def largest_inverse(formula: Formula, evidence: Evidence) -> Fraction:
    """A bound of |1/f| over the box, for all outputs; refused if an f may be 0."""
    region, largest = Region.of_box(formula.box), Fraction(0)
    for output, expr in enumerate(formula.outputs):
        low, high = range_on(inverse_of(expr), region, evidence.inverse(output))
        if low <= 0 <= high:
            raise NotProvenError(f"{short_text(expr)} may have no bounded inverse on the box")
        largest = max(largest, Fraction(high if low > 0 else -low))
    return largest
