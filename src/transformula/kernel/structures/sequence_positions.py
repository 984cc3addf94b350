"""A sequence whose positions all compute the same from their own inputs."""

from __future__ import annotations

from transformula.kernel.exceptions import RefutedError
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box, Formula


def formula_of_a_position(formula: Formula, positions: int) -> Formula:
    """What every position computes from its own inputs; refused if it is not the same for all.

    Examples
    --------
    >>> str(formula_of_a_position(Formula.of(["sin(a)", "sin(b)"], "a=0..1, b=0..1"), 2))
    'sin(a)'
    """
    box, names = formula.box, formula.box.variables
    inputs, rest = divmod(len(names), positions)
    outputs, left = divmod(len(formula.outputs), positions)
    first = formula.outputs[:outputs]
    same = not rest and not left and not any(ex.variables_of(e) - set(names[:inputs]) for e in first)
    for p in range(1, positions):
        own = slice(p * inputs, (p + 1) * inputs)
        if same:
            swap = {ex.variable(a): ex.variable(b) for a, b in zip(names[:inputs], names[own], strict=True)}
            wanted = tuple(ex.substitute(e, swap) for e in first)
            same = box.lower[own] == box.lower[:inputs] and box.upper[own] == box.upper[:inputs]
            same = same and formula.outputs[p * outputs : (p + 1) * outputs] == wanted
    if not same:
        raise RefutedError("every position computes the same, but the formulas differ")
    return Formula(first, Box(names[:inputs], box.lower[:inputs], box.upper[:inputs]))
