"""One rule for each construction: its module, and what it takes from model.json.

A rule proves what the weights achieve or raises `NotProvenError`. `description.STATES` says which keys a
construction has in model.json. A rule's module is imported when the rule is asked for, so that a proof runs the code of
its own construction and none of the others'.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from transformula.kernel.exceptions import ModelFileError, RefutedError
from transformula.kernel.folder.certificate import Proof
from transformula.kernel.folder.description import Description
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.weights import Weights
from transformula.kernel.rounding.formats import FORMATS, check_size, check_stored
from transformula.kernel.syntax.boxes import Formula

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


class Rule(NamedTuple):
    """The module of a rule within this package, and the call of its function."""

    module: str
    call: Callable[[Any, Weights, Description, Evidence], Proof]

    def load(self) -> ModuleType:
        """Import the module."""
        return import_module(f"transformula.kernel.{self.module}")

    def prove(self, weights: Weights, stated: Description, evidence: Evidence) -> Proof:
        """Prove what these weights achieve."""
        return self.call(self.load(), weights, stated, evidence)


_POLYNOMIAL, _COROLLARY, _SOFTMAX = "rules.polynomial_rule", "rules.corollary_rule", "rules.softmax_rule"
RULES: dict[str, Rule] = {
    "polynomial": Rule(_POLYNOMIAL, lambda m, w, s, e: m.prove_polynomial(w, _formula(w, s, _BOUNDED))),
    "corollary": Rule(
        _COROLLARY, lambda m, w, s, e: m.prove_corollary(w, _formula(w, s, _BOUNDED), s.circuit or {}, e)
    ),
    "lookup": Rule(_SOFTMAX, lambda m, w, s, e: m.prove_softmax(w, _tables(w, s), s.circuit, e)),
    "circuit": Rule(_SOFTMAX, lambda m, w, s, e: m.prove_softmax(w, _tables(w, s), s.circuit, e)),
    "partition": Rule(_SOFTMAX, lambda m, w, s, e: m.prove_softmax(w, _tables(w, s), s.circuit, e, sharp=True)),
    "attention-only": Rule(
        _SOFTMAX, lambda m, w, s, e: m.prove_softmax(w, _tables(w, s, feed_forward=False), s.circuit, e, sharp=True)
    ),
    "local-polynomials": Rule(
        "gallery.local_rule", lambda m, w, s, e: m.prove_local(w, _tables(w, s, feed_forward=False), s.circuit, e)
    ),
    "yun": Rule("gallery.yun_rule", lambda m, w, s, e: m.prove_yun(w, _formula(w, s), s.circuit or {}, e)),
    "memorize": Rule("gallery.memorize_rule", lambda m, w, s, e: m.prove_memorize(_stored(w), s.samples or {})),
    "compact": Rule("gallery.compact_rule", lambda m, w, s, e: m.prove_compact(_stored(w), s.samples or {})),
    "in-context": Rule(
        "gallery.in_context_rule", lambda m, w, s, e: m.prove_in_context(_stored(w), m.PromptTask.of(s.task or {}))
    ),
    "linear-attention": Rule(
        "gallery.linear_attention_rule", lambda m, w, s, e: m.prove_linear_attention(w, _formula(w, s))
    ),
}
