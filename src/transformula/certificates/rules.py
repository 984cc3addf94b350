"""One proof rule for each construction."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeAlias

from transformula.certificates.proof import Proof, RefutedError
from transformula.certificates.stored import check_stored
from transformula.formulas.formula import Formula
from transformula.formulas.samples import Samples
from transformula.transformers.weights import Weights

Target: TypeAlias = Formula | Samples

#: Construction → module here whose ``prove_<construction>`` judges it. Imported when first needed.
RULES = ("polynomial", "lookup", "partition", "memorize")


def prove(construction: str, weights: Weights, target: Target) -> Proof:
    """Prove what these weights achieve on this target, or raise `RefutedError`."""
    if construction not in RULES:
        raise RefutedError(f"there is no proof rule for the construction {construction!r}")
    if (construction == "memorize") != isinstance(target, Samples):
        raise RefutedError(f"{construction} is not a claim about this kind of target")
    if weights.inputs != target.box.variables:
        raise RefutedError("the weights' inputs are not the box's variables")
    if weights.outputs != len(target.outputs):
        raise RefutedError(f"the weights have {weights.outputs} outputs, not {len(target.outputs)}")
    check_stored(weights)
    rule: Callable[[Weights, Any], Proof] = getattr(
        import_module(f"transformula.certificates.{construction}"), f"prove_{construction}"
    )
    return rule(weights, target)
