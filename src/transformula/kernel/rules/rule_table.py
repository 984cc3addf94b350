"""One rule for each construction: what it takes from model.json, and the theorem that it checks.

A rule proves what the weights achieve or raises `NotProvenError`. `description.STATES` says which keys a
construction has in model.json, so a rule finds here what it reads.
"""

from __future__ import annotations

from collections.abc import Callable

from transformula.kernel.circuit.head_proofs import check_size
from transformula.kernel.exceptions import ModelFileError, RefutedError
from transformula.kernel.folder.certificate import Proof
from transformula.kernel.folder.description import Description
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.weights import Weights
from transformula.kernel.gallery.compact_rule import prove_compact
from transformula.kernel.gallery.in_context_rule import prove_in_context
from transformula.kernel.gallery.linear_attention_rule import prove_linear_attention
from transformula.kernel.gallery.local_rule import prove_local
from transformula.kernel.gallery.memorize_rule import prove_memorize
from transformula.kernel.gallery.prompt_tasks import PromptTask
from transformula.kernel.gallery.yun_rule import prove_yun
from transformula.kernel.rounding.formats import FORMATS, check_stored
from transformula.kernel.rules.corollary_rule import prove_corollary
from transformula.kernel.rules.polynomial_rule import prove_polynomial
from transformula.kernel.rules.softmax_rule import prove_softmax
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


def _formula(weights: Weights, stated: Description, may_underflow: tuple[str, ...] = ()) -> Formula:
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


def _tables(weights: Weights, stated: Description, feed_forward: bool = True) -> Formula:
    """The target of softmax tables, of one point or of a sequence."""
    formula = _formula(weights, stated)
    check_shape(stated, weights)
    if not feed_forward and any(block.feed_forward is not None for block in weights.blocks):
        raise RefutedError("a model without feed-forward layers has one")
    return formula


def _stored(weights: Weights) -> Weights:
    check_stored(weights)
    return weights


RULES: dict[str, Rule] = {
    "polynomial": lambda w, s, e: prove_polynomial(w, _formula(w, s, _BOUNDED)),
    "corollary": lambda w, s, e: prove_corollary(w, _formula(w, s, _BOUNDED), s.circuit or {}, e),
    "lookup": lambda w, s, e: prove_softmax(w, _tables(w, s), s.circuit, e),
    "circuit": lambda w, s, e: prove_softmax(w, _tables(w, s), s.circuit, e),
    "partition": lambda w, s, e: prove_softmax(w, _tables(w, s), s.circuit, e, sharp=True),
    "attention-only": lambda w, s, e: prove_softmax(w, _tables(w, s, feed_forward=False), s.circuit, e, sharp=True),
    "local-polynomials": lambda w, s, e: prove_local(w, _tables(w, s, feed_forward=False), s.circuit, e),
    "yun": lambda w, s, e: prove_yun(w, _formula(w, s), s.circuit or {}, e),
    "memorize": lambda w, s, e: prove_memorize(_stored(w), s.samples or {}),
    "compact": lambda w, s, e: prove_compact(_stored(w), s.samples or {}),
    "in-context": lambda w, s, e: prove_in_context(_stored(w), PromptTask.of(s.task or {})),
    "linear-attention": lambda w, s, e: prove_linear_attention(w, _formula(w, s)),
}
