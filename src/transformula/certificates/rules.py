"""One proof rule for each construction."""

from __future__ import annotations

from collections.abc import Callable

from transformula.certificates.polynomial import prove_polynomial
from transformula.certificates.proof import Proof, RefutedError
from transformula.formulas.formula import Formula
from transformula.transformers.weights import Weights

RULES: dict[str, Callable[[Weights, Formula], Proof]] = {"polynomial": prove_polynomial}


def prove(construction: str, weights: Weights, formula: Formula) -> Proof:
    """Prove what these weights achieve on this formula, or raise `RefutedError`."""
    if construction not in RULES:
        raise RefutedError(f"there is no proof rule for the construction {construction!r}")
    if weights.inputs != formula.box.variables:
        raise RefutedError("the weights' inputs are not the box's variables")
    if weights.outputs != len(formula.outputs):
        raise RefutedError(
            f"the weights have {weights.outputs} outputs, the formula has {len(formula.outputs)}"
        )
    return RULES[construction](weights, formula)
