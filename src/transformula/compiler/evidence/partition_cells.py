"""How to cut the cells of a partition, so that the kernel's ranges of the function on them are tight.

A range is surely overestimated only near the worst cells: only those are cut, and cells without a range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from transformula.budget import checkpoint, spend
from transformula.compiler.evidence import costs
from transformula.compiler.evidence.grid_pieces import cut_boxes, trees_of
from transformula.formula.evaluation import evaluate
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.coverings import Ends, defined_on
from transformula.kernel.enclosures.expression_models import enclose_ranges
from transformula.kernel.enclosures.taylor_models import Floats
from transformula.kernel.exceptions import NotProvenError
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.tables.cell_error import BITS, ORDER, far_of, used_cells
from transformula.kernel.tables.table_error import SoftmaxTable

#: Rounds of cutting cells whose range is not enclosed tightly enough, and cells that one round may cut.
_ROUNDS = 8
_MAX_CUTS = 200_000
#: Bounds this close to an error that occurs are not worth cutting for.
_CLOSE = 0.98
#: Microseconds for a value in floats.
_LOOK = 0.1


def find_cells(
    table: SoftmaxTable,
    function: Expr,
    names: Sequence[str],
    ends: Sequence[Ends],
    far_bits: int,
    shifts: Sequence[float] = (),
) -> list[list[int]] | None:
    """Trees for `kernel.partition.partition_bound`; None if no cell needs to be cut."""
    with precision(BITS):
        lower, upper, values = used_cells(table, ends, far_of(int(np.size(table.values)), far_bits), shifts)
    levels: list[Any] = []
    settled = 0.0
    while True:
        checkpoint()
        spend(costs.models(function, lower.shape[1], ORDER))
        low, high = enclose_ranges(function, names, lower, upper, order=ORDER)
        with np.errstate(invalid="ignore"):
            error = np.maximum(high - values, values - low)
        known = np.isfinite(error)
        known[known] = defined_on(function, names, ends, lower[:, known], upper[:, known])
        cut = (error > _CLOSE * _attained(function, names, lower, upper, values)) & (error > settled) | ~known
        if len(levels) == _ROUNDS or cut.sum() > _MAX_CUTS:
            if not known.all():
                raise NotProvenError(f"{function} could not be bounded on the cells of a partition")
            cut[:] = False
        settled = float(np.max(error[~cut], initial=settled))
        axes = np.broadcast_to(cut, lower.shape)
        levels.append(axes)
        if not cut.any():
            return trees_of(levels) if len(levels) > 1 else None
        lower, upper = cut_boxes(lower, upper, axes)
        values = np.repeat(values[cut], 2 ** len(names))


def _attained(function: Expr, names: Sequence[str], lower: Floats, upper: Floats, values: Floats) -> float:
    """An error that some cell's middle or corner comes close to: only a guide for cutting."""
    worst = 0.0
    for points in (lower, upper, lower + (upper - lower) / 2):
        spend(_LOOK * points.size)
        with np.errstate(all="ignore"):
            error = np.abs(evaluate(function, list(names), list(points)) - values)
        worst = max(worst, float(np.max(error[np.isfinite(error)], initial=0.0)))
    return worst
