"""Statement.v: the claim of Model.v in plain terms of real numbers, which Proof.v proves, and that it suffices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from transformula.coq.coq_source import Source
from transformula.coq.coq_terms import FUNCTIONS, literal, quotient, term
from transformula.errors import ExportError

HEADER = """Require Import Reals Lra List NArith ZArith Transformula.Transformer Transformula.Analysis.
Require Transformula.Typed Transformula.Model.
Import ListNotations.
Open Scope R_scope.
"""
#: Operations that stay as they are when a typed formula is written in plain terms; everything else is computed.
KEPT = (
    "Rplus Rminus Rmult Rdiv Ropp Rinv IZR pow Rpower sqrt exp ln sin cos tan atan asin acos sinh cosh tanh Rabs Rmin "
    "Rmax PI Rle Rlt not Rlt_dec Rle_dec"
)
#: Words that Typed.v knows beside functions of one argument.
_WORDS = {"ln", "min", "max", "sum", "prod", "where", "Piecewise", "True", "pi", "e", "E"}
#: Functions that Typed.v defines by others, as the kernel does.
SHORT = [
    "log2", "log10", "log1p", "exp2", "expm1", "pow", "hypot", "sec", "csc", "cot", "sech", "csch", "coth", "sigmoid",
    "logit", "softplus", "relu", "silu", "softsign", "clip", "radians", "degrees",
]  # fmt: skip
#: Other names for some of them.
OTHER_NAMES = [
    "arctan", "Abs", "Max", "Min", "power", "expit", "swish", "clamp", "deg2rad", "rad2deg",
]  # fmt: skip


def names_of(source: Source) -> list[str]:
    """The variables as Coq names them."""
    return [f"v_{name}" for name in source.formula.box.variables]


def allowed_bound(source: Source) -> Fraction:
    """The bound to claim: what the tolerance leaves beside the rounding."""
    return source.allowance


def refuse_unknown_words(source: Source) -> None:
    """Refuse functions that Typed.v does not have, by name."""
    for text in source.typed:
        for word in re.findall(r"(?<![\w.])[A-Za-z_]\w*", text):
            if word not in {*source.formula.box.variables, *FUNCTIONS, *SHORT, *OTHER_NAMES, *_WORDS}:
                raise ExportError(f"Coq's Interval library cannot bound {word}: no theorem can be written")


def statement_file(source: Source) -> str:
    """The text of Statement.v."""
    if source.samples:
        return _samples_statement(source)
    variables, box = names_of(source), source.formula.box
    names, count = " ".join(variables), len(source.typed)
    applied = " ".join(f"(Typed.variable {name})" for name in variables)
    lines, goals = [HEADER.rstrip()], ""
    for o in range(count):
        formula = f"(Model.formula_{o} {applied})"
        lines.append(f"Definition formula_{o} ({names} : R) : R := Eval cbv -[{KEPT}] in Typed.result {formula}.")
        lines.append(f"Definition defined_{o} ({names} : R) : Prop := Eval cbv -[{KEPT}] in Typed.domain {formula}.")
        distance = f"output Model.model_ (inputs [{'; '.join(variables)}]) {o} - formula_{o} {names}"
        goals += f"  defined_{o} {names} /\\ Rabs ({distance}) <= bound /\\\n"
    lines.append(f"Definition bound : R := {literal(allowed_bound(source))}.")
    inside = [
        f"{term(low, {})} <= {v} <= {term(high, {})}"
        for low, v, high in zip(box.lower, variables, box.upper, strict=True)
    ]
    given = "".join(f"\n  {fact} ->" for fact in inside)
    lines.append(f"Definition claim : Prop := forall {names} : R,{given}\n{goals}  True.")
    hypotheses = [f"J_{i}" for i in range(len(variables))]
    known = " ".join(f"(D_{o} & R_{o} &" for o in range(count)) + " _" + ")" * count
    proof = "".join(f"(conj (conj D_{o} R_{o}) " for o in range(count)) + "I" + ")" * count
    lines += [
        "Lemma restated : claim -> Model.claim.",
        f"Proof. intros proven {names} {' '.join(hypotheses)}.",
        *(f"  assert ({h}_ : {fact}) by (open_box {h}; lra)." for h, fact in zip(hypotheses, inside, strict=True)),
        f"  destruct (proven {names} {' '.join(f'{h}_' for h in hypotheses)}) as {known}.",
        f"  exact {proof}. Qed.",
    ]
    return "\n".join(lines) + "\n"


def _samples_statement(source: Source) -> str:
    """The claim of a memorised table: one function of its rows."""
    rows = "; ".join(f"({_numbers(x)}, {_numbers(y)})" for x, y in source.samples)
    lines = [
        "Require Import Reals List NArith ZArith QArith Qreals.",
        "Require Import Transformula.Transformer Transformula.Typed Transformula.Samples.",
        "Require Transformula.Model.",
        "Import ListNotations.",
        f"Definition rows : list (numbers * numbers) := [{rows}]%Z.",
        f"Definition claim : Prop := remembered Model.model_ (Q2R {quotient(allowed_bound(source))}) rows.",
        "Lemma restated : claim -> Model.claim.",
        "Proof. intros proven. cbv [claim remembered outputs_match rows typed_numbers map fst snd N.succ Pos.succ]",
        "  in proven. exact proven. Qed.",
    ]
    return "\n".join(lines) + "\n"


def _numbers(values: Sequence[float]) -> str:
    parts = (f"({n}, {d}%positive)" for n, d in (Fraction(value).as_integer_ratio() for value in values))
    return f"[{'; '.join(parts)}]"
