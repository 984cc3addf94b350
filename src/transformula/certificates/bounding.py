"""sup|table + affine − expression| over a box of arguments, whatever the number of axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from flint import arb

from transformula.certificates.axis_models import Axis
from transformula.certificates.grid_bounds import bound_grid
from transformula.certificates.grid_models import Grid
from transformula.certificates.table_bounds import Table, bound_1d
from transformula.errors import NotProvenError
from transformula.formulas.expression import Expr
from transformula.progress import report
from transformula.taylor.results import DEFAULT_LIMITS, Bound, Limits

Ends = tuple[arb, arb]
MAX_AXES = 4
#: Pieces of an interval that a proof may examine: a bound that is not tight by then will not be soon.
MAX_PIECES = 6_000


def bound_table(
    expr: Expr,
    names: Sequence[str],
    ends: Sequence[Ends],
    table: Table | Grid,
    limits: Limits = DEFAULT_LIMITS,
) -> Bound:
    """Prove a bound, or raise `NotProvenError` naming the place where none was found."""
    limits = replace(limits, progress=lambda done, left: report("proving", done, left))
    if isinstance(table, Table):
        limits = replace(limits, boxes=max(MAX_PIECES, 40 * len(table.slopes)))
        bound = bound_1d(expr, names[0], *ends[0], table, limits=limits)
    else:
        bound = bound_grid(expr, names, ends, table, limits=limits)
    if not np.isfinite(bound.value):
        low, high = bound.worst_place
        place = f"{', '.join(names)} = {low}..{high}"
        raise NotProvenError(f"{expr} could not be bounded near {place}", place=place)
    return bound


def empty_table(slopes: Sequence[float], constant: float = 0.0) -> Table | Grid:
    """No table at all: one token of value zero on each axis."""
    zero = np.zeros(1)
    if len(slopes) == 1:
        return Table(zero, zero, zero, slopes[0], constant)
    axes = tuple(Axis(zero, zero) for _ in slopes)
    return Grid(axes, np.zeros((1,) * len(slopes)), tuple(slopes), constant)
