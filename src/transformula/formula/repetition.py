"""The same formula at every position of a sequence."""

from __future__ import annotations

from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.expression import substitute


def at_every_position(formula: Formula, positions: int) -> Formula:
    """Copies of a formula, side by side: x and y become x_1, y_1, x_2, y_2 and so on.

    Examples
    --------
    >>> str(at_every_position(Formula.of("sin(x)", "x=0..1"), 2))
    'sin(x_1); sin(x_2)'
    """
    box, names = formula.box, formula.box.variables
    copies = [{n: f"{n}_{p}" for n in names} for p in range(1, positions + 1)]
    swaps = [{ex.variable(a): ex.variable(b) for a, b in renamed.items()} for renamed in copies]
    return Formula(
        tuple(substitute(e, swap) for swap in swaps for e in formula.outputs),
        Box(
            tuple(b for renamed in copies for b in renamed.values()),
            box.lower * positions,
            box.upper * positions,
        ),
    )
