"""The same formula at every position of a sequence."""

from __future__ import annotations

from transformula.formulas import expression as ex
from transformula.formulas.additive import substitute
from transformula.formulas.boxes import Box
from transformula.formulas.formula import Formula


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


def formula_of_a_position(formula: Formula, positions: int) -> Formula | None:
    """What every position computes from its own inputs, if it is the same for all.

    Examples
    --------
    >>> str(formula_of_a_position(Formula.of(["sin(a)", "sin(b)"], "a=0..1, b=0..1"), 2))
    'sin(a)'
    """
    box, names = formula.box, formula.box.variables
    inputs, rest = divmod(len(names), positions)
    outputs, left = divmod(len(formula.outputs), positions)
    if rest or left:
        return None
    first = formula.outputs[:outputs]
    if any(ex.variables_of(e) - set(names[:inputs]) for e in first):
        return None
    for p in range(1, positions):
        own = slice(p * inputs, (p + 1) * inputs)
        swap = {ex.variable(a): ex.variable(b) for a, b in zip(names[:inputs], names[own], strict=True)}
        if box.lower[own] != box.lower[:inputs] or box.upper[own] != box.upper[:inputs]:
            return None
        if formula.outputs[p * outputs : (p + 1) * outputs] != tuple(substitute(e, swap) for e in first):
            return None
    return Formula(first, Box(names[:inputs], box.lower[:inputs], box.upper[:inputs]))
