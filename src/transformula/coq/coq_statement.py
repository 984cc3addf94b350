"""Model.v: the stored numbers as a model of Transformer.v, and the claim about it. No proof is in this file.

Its layout is fixed, line by line, so that `transcription` can read it back without knowing this module.
"""

from __future__ import annotations

from fractions import Fraction

from transformula.coq.coq_source import Matrix, Source, fraction
from transformula.coq.coq_terms import TypedFormula, below, literal, term

HEADER = """Require Import Reals List NArith ZArith.
Require Import Transformula.Transformer.
Import ListNotations.
Open Scope R_scope.
"""
_KINDS = {"softmax": "Softmax", "hardmax": "Hardmax"}


def names_of(source: Source) -> list[str]:
    """The variables as Coq names them."""
    return [f"v_{name}" for name in source.formula.box.variables]


def model_file(source: Source, bound: Fraction) -> str:
    """The text of Model.v."""
    lines = [HEADER.rstrip()]
    weights = source.weights
    blocks = [_block(lines, source, b) for b in range(len(weights.blocks))]
    for name in ("embedding", "memory", "readout", "bias"):
        lines.append(f"Definition {name}_ : matrix := {_matrix(getattr(weights, name))}.")
    lines.append(
        f"Definition model_ : model := Model {weights.tokens} {weights.width} embedding_ memory_ "
        f"[{'; '.join(blocks)}] readout_ bias_."
    )
    lines += _claim(source, bound)
    return "\n".join(lines) + "\n"


def _matrix(matrix: Matrix) -> str:
    entries = ((row, column, fraction(value)) for row, column, value in matrix.entries())
    written = [f"Entry {r} {c} ({v.numerator}) {v.denominator}" for r, c, v in entries]
    return "[" + "; ".join(written) + "]"


def _block(lines: list[str], source: Source, b: int) -> str:
    """A block's definitions, once for a block that stands at several places; its name."""
    first = source.weights.first_places[b]
    name, block = f"block_{first}", source.weights.blocks[b]
    if first < b:
        return name
    heads = []
    for h, head in enumerate(block.attention.heads):
        heads.append(f"head_{b}_{h}")
        parts = [_matrix(m) for m in (head.query, head.key, head.value)]
        projection = "None" if head.output is None else f"(Some {_matrix(head.output)})"
        size = head.query.shape[0]
        lines.append(f"Definition {heads[-1]} : head := Head {size} {' '.join(parts)} {projection}.")
    layer = "None"
    if block.feed_forward is not None:
        layer = f"(Some layer_{b})"
        f = block.feed_forward
        parts = [_matrix(m) for m in (f.hidden, f.hidden_bias, f.output, f.output_bias)]
        lines.append(f"Definition layer_{b} : layer := Layer {' '.join(parts)}.")
    kind = _KINDS[block.attention.kind]
    lines.append(f"Definition {name} : block := Block {kind} [{'; '.join(heads)}] {layer}.")
    return name


def _claim(source: Source, bound: Fraction) -> list[str]:
    variables = names_of(source)
    all_of_them = " ".join(variables)
    lines, goals = [], []
    for o, text in enumerate(source.typed):
        typed = TypedFormula(text, source.formula.box.variables)
        conditions = "".join(f"\n  {c} /\\" for c in dict.fromkeys(typed.conditions))
        lines.append(f"Definition formula_{o} ({all_of_them} : R) : R :=\n  {typed.term}.")
        lines.append(f"Definition defined_{o} ({all_of_them} : R) : Prop :={conditions}\n  True.")
        distance = f"output model_ (inputs [{'; '.join(variables)}]) {o} - formula_{o} {all_of_them}"
        goals.append(f"  defined_{o} {all_of_them} /\\ Rabs ({distance}) <= bound /\\")
    lines.append(f"Definition bound : R := {literal(bound)}.")
    box = source.formula.box
    ends = [
        (term(low, {}), name, term(high, {})) for low, name, high in zip(box.lower, variables, box.upper, strict=True)
    ]
    hypotheses = "".join(f"\n  {low} <= {name} <= {high} ->" for low, name, high in ends)
    lines.append(f"Definition claim : Prop := forall {all_of_them} : R,{hypotheses}\n" + "\n".join(goals) + "\n  True.")
    return lines


def allowed_bound(source: Source) -> Fraction:
    """The bound to claim: what the tolerance leaves beside the rounding, in few digits."""
    return below(source.allowance, 4)
