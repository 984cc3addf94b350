"""What is shown of a formula: the text as typed where the parser wrote functions out, else our own."""

from __future__ import annotations

import re

from transformula.formula.prompt_target import Prompts
from transformula.formula.sample_target import Samples
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.definitions import ALIASES, DEFINITIONS, JUMPING, JUMPS, PIECEWISE, POLYNOMIALS

_NAMES = (*DEFINITIONS, *ALIASES, *POLYNOMIALS, *PIECEWISE, *JUMPS, *JUMPING)
_WRITTEN_OUT = re.compile(rf"\b({'|'.join(_NAMES)})\s*\(", re.ASCII)


def shown(formula: Formula | Samples | Prompts) -> list[str]:
    """One text for each output.

    Examples
    --------
    >>> shown(Formula.of(["sigmoid(x)", "0.5 *x"], "x=0..1"))
    ['sigmoid(x)', '1/2*x']
    """
    if not isinstance(formula, Formula):
        return list(formula.texts)
    typed = formula.typed if len(formula.typed) == len(formula.outputs) else formula.texts
    return [own if _WRITTEN_OUT.search(own) else text for own, text in zip(typed, formula.texts, strict=True)]
