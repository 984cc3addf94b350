"""One proof rule for each construction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeAlias

from transformula.certificates.proof import Proof, RefutedError
from transformula.certificates.stored import check_stored
from transformula.formulas.formula import Formula
from transformula.formulas.samples import Samples
from transformula.transformers.weights import Weights

Target: TypeAlias = Formula | Samples

#: Construction → module here whose ``prove_<construction>`` judges it. Imported when first needed.
RULES = ("polynomial", "lookup", "partition", "circuit", "memorize")


def prove(
    construction: str, weights: Weights, target: Target, plan: Mapping[str, Any] | None = None
) -> Proof:
    """Prove what these weights achieve on this target, or raise `RefutedError`.

    ``plan`` holds hints a rule may follow but never believes (only circuits have any).
    """
    if construction not in RULES:
        raise RefutedError(f"there is no proof rule for the construction {construction!r}")
    if (construction == "memorize") != isinstance(target, Samples):
        raise RefutedError(f"{construction} is not a claim about this kind of target")
    if weights.inputs != target.box.variables:
        raise RefutedError("the weights' inputs are not the box's variables")
    if weights.outputs != len(target.outputs):
        raise RefutedError(f"the weights have {weights.outputs} outputs, not {len(target.outputs)}")
    check_stored(weights, ("readout", "bias") if construction == "polynomial" else ())
    rule: Callable[..., Proof] = getattr(
        import_module(f"transformula.certificates.{construction}"), f"prove_{construction}"
    )
    return rule(weights, target, plan or {}) if construction == "circuit" else rule(weights, target)
