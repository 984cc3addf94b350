"""One rule for each construction, and what it takes from model.json.

A rule proves what the weights achieve or raises `NotProvenError`. `description.STATES` says which keys a
construction has in model.json. A rule's module is imported when the rule is asked for, so that a proof runs the code of
its own construction and none of the others'.
"""

from __future__ import annotations

from collections.abc import Callable

from transformula.kernel.exceptions import ModelFileError, RefutedError
from transformula.kernel.folder.description import Description, Proof
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.weights import Weights
from transformula.kernel.rounding.formats import FORMATS, check_size, check_stored
from transformula.kernel.syntax.boxes import Formula

Rule = Callable[[Weights, Description, Evidence], Proof]
#: Matrices of a polynomial model that multiply bounded numbers; its rules count what underflow costs there.
_BOUNDED = ("readout", "bias")


def target(stated: Description) -> Formula:
    """The formulas on their box, as model.json states them."""
    if stated.formulas is None or stated.box is None:
        raise ModelFileError("model.json states no formulas on a box")
    return Formula.of(stated.formulas, stated.box)


def check_shape(stated: Description, weights: Weights) -> None:
    """A sequence of shape (positions, features) has one data token and that many numbers a position."""
    positions = len(weights.data_tokens)
    if stated.shape is None:
        if positions > 1:
            raise RefutedError("model.json states no shape, and the weights are those of a sequence")
        return
    n, d = stated.shape
    if not (positions == n and n * d == len(weights.inputs) == weights.outputs):
        raise RefutedError(f"the weights are not those of a sequence of shape {n} x {d}")


def checked_target(weights: Weights, stated: Description, may_underflow: tuple[str, ...] = ()) -> Formula:
    """The target of stored weights that have its inputs and outputs, each input within the format's reach."""
    formula = target(stated)
    if weights.inputs != formula.box.variables:
        raise RefutedError("the weights' inputs are not the box's variables")
    if weights.outputs != len(formula.outputs):
        raise RefutedError(f"the weights have {weights.outputs} outputs, not {len(formula.outputs)}")
    for k in range(formula.box.dimension):  # used or not: a dense product multiplies infinity by 0
        check_size(FORMATS[weights.dtype], formula.box.magnitude(k))
    check_stored(weights, may_underflow)
    return formula


def _tables(weights: Weights, stated: Description) -> Formula:
    """The target of softmax tables, of one point or of a sequence."""
    formula = checked_target(weights, stated)
    check_shape(stated, weights)
    return formula


def _attention(weights: Weights, stated: Description) -> Formula:
    """The target of softmax tables in a model without feed-forward layers."""
    formula = _tables(weights, stated)
    if any(block.feed_forward is not None for block in weights.blocks):
        raise RefutedError("a model without feed-forward layers has one")
    return formula


def _polynomial(weights: Weights, stated: Description, evidence: Evidence) -> Proof:
    from transformula.kernel.rules.polynomial_rule import prove_polynomial

    return prove_polynomial(weights, checked_target(weights, stated, _BOUNDED))


def _corollary(weights: Weights, stated: Description, evidence: Evidence) -> Proof:
    from transformula.kernel.rules.corollary_rule import prove_corollary

    return prove_corollary(weights, checked_target(weights, stated, _BOUNDED), stated.circuit or {}, evidence)


def _smooth(weights: Weights, stated: Description, evidence: Evidence) -> Proof:
    from transformula.kernel.rules.softmax_rule import prove_softmax

    return prove_softmax(weights, _tables(weights, stated), stated.circuit, evidence)


def _sharp(weights: Weights, stated: Description, evidence: Evidence) -> Proof:
    from transformula.kernel.rules.softmax_rule import prove_softmax

    return prove_softmax(weights, _tables(weights, stated), stated.circuit, evidence, sharp=True)


def _attention_only(weights: Weights, stated: Description, evidence: Evidence) -> Proof:
    from transformula.kernel.rules.softmax_rule import prove_softmax

    return prove_softmax(weights, _attention(weights, stated), stated.circuit, evidence, sharp=True)


def _local(weights: Weights, stated: Description, evidence: Evidence) -> Proof:
    from transformula.kernel.gallery.local_rule import prove_local

    return prove_local(weights, _attention(weights, stated), stated.circuit, evidence)


def _yun(weights: Weights, stated: Description, evidence: Evidence) -> Proof:
    from transformula.kernel.gallery.yun_rule import prove_yun

    return prove_yun(weights, checked_target(weights, stated), stated.circuit or {}, evidence)


def _memorize(weights: Weights, stated: Description, evidence: Evidence) -> Proof:
    from transformula.kernel.gallery.memorize_rule import prove_memorize

    check_stored(weights)
    return prove_memorize(weights, stated.samples or {})


def _compact(weights: Weights, stated: Description, evidence: Evidence) -> Proof:
    from transformula.kernel.gallery.memorize_rule import prove_compact

    check_stored(weights)
    return prove_compact(weights, stated.samples or {})


def _in_context(weights: Weights, stated: Description, evidence: Evidence) -> Proof:
    from transformula.kernel.gallery.in_context_blocks import PromptTask
    from transformula.kernel.gallery.in_context_rule import prove_in_context

    check_stored(weights)
    return prove_in_context(weights, PromptTask.of(stated.task or {}))


def _linear_attention(weights: Weights, stated: Description, evidence: Evidence) -> Proof:
    from transformula.kernel.gallery.linear_attention_rule import prove_linear_attention

    return prove_linear_attention(weights, checked_target(weights, stated))


RULES: dict[str, Rule] = {
    "polynomial": _polynomial,
    "corollary": _corollary,
    "lookup": _smooth,
    "circuit": _smooth,
    "partition": _sharp,
    "attention-only": _attention_only,
    "local-polynomials": _local,
    "yun": _yun,
    "memorize": _memorize,
    "compact": _compact,
    "in-context": _in_context,
    "linear-attention": _linear_attention,
}
