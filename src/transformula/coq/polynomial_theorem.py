"""Proof.v of Fang's polynomial models: Coq reads the powers out of the weights, and the polynomial is near the formula.

Hardmax picks the diagonal because its offset exceeds twice every product, which Powers.v checks by computation from the
ends of the box. A polynomial with rational coefficients is met exactly. One with others (pi) is met up to the digits
that are stored: its coefficients are compared one by one. Any other formula (Corollary 3.7) is compared with the
polynomial by Interval's Taylor models, which have one variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from transformula.coq.coq_source import Source, fraction
from transformula.coq.coq_statement import allowed_bound, names_of
from transformula.coq.coq_terms import above, below, exact, literal, quotient, term
from transformula.errors import ExportError
from transformula.kernel.enclosures.balls import enclose

HEADER = """Require Import Reals Lra Lia Psatz List NArith ZArith QArith Qreals Interval.Tactic.
Require Import Transformula.Transformer Transformula.Attention Transformula.Reading Transformula.Analysis.
Require Import Transformula.Powers Transformula.Model Transformula.Statement.
Import ListNotations.
Open Scope R_scope.
"""
#: Tokens of a polynomial that Coq may expand.
MAX_TOKENS = 200
#: What stays as it is when the readout is computed; everything else is data.
_KEPT = "Rplus Rmult Rinv Ropp Rminus Rdiv IZR pow"
#: Bits at which irrational coefficients are compared with the stored ones, which have 320; degree of Taylor models.
BITS, DEGREE = 420, 12


def polynomial_files(source: Source) -> dict[str, str]:
    """The generated files beside Model.v, by name."""
    weights = source.weights
    if weights.tokens > MAX_TOKENS:
        raise ExportError(f"no Coq theorem can be written for polynomials of over {MAX_TOKENS} directions")
    source.ridge  # noqa: B018 refuses weights that are not Fang's blocks
    place, hots = _layout(source)
    ends = [_ends(source, k) for k in range(len(weights.inputs))]
    reach = above(max((_reach(source, t, ends) for t in range(weights.tokens)), default=Fraction(0)), 6)
    box = "; ".join(f"({quotient(low)}, {quotient(high)})" for low, high in ends)
    arguments = f"model_ {place} [{'; '.join(map(str, hots))}]%N box {quotient(reach)}"
    lines = [
        HEADER.rstrip(),
        f"Definition box : ends := [{box}].",
        "Definition slots : list form := Eval vm_compute in",
        f"  match read_powers {arguments} with Some d => d | None => [] end.",
        f"Lemma slots_read : read_powers {arguments} = Some slots.",
        "Proof. vm_compute. reflexivity. Qed.",
        *_theorem(source, arguments),
    ]
    return {"Proof.v": "\n".join(lines) + "\n"}


def _layout(source: Source) -> tuple[int, list[int]]:
    """The slot of t, and the slot of each token's one-hot."""
    weights = source.weights
    one, hots = weights.slot("one"), [0] * weights.tokens
    for token, slot in zip(weights.memory.rows.tolist(), weights.memory.cols.tolist(), strict=True):
        if slot != one:
            hots[token] = slot
    return int(weights.embedding.rows[0] % weights.width), hots


def _ends(source: Source, k: int) -> tuple[Fraction, Fraction]:
    """Rational ends of an input, outside of its interval if that has irrational ones."""
    low, high = source.formula.box.lower[k], source.formula.box.upper[k]
    return (
        low.number if low.number is not None else below(exact(enclose(low)), 15),
        high.number if high.number is not None else above(exact(enclose(high)), 15),
    )


def _reach(source: Source, token: int, ends: list[tuple[Fraction, Fraction]]) -> Fraction:
    """The largest |t| of a token."""
    low = high = Fraction(0)
    for k, coefficient in source.ridge.directions[token].items():
        corners = [fraction(coefficient) * end for end in ends[k]]
        low, high = low + min(corners), high + max(corners)
    return max(-low, high)


def _theorem(source: Source, arguments: str) -> list[str]:
    variables = names_of(source)
    names, point = " ".join(variables), f"(inputs [{'; '.join(variables)}])"
    hypotheses = " ".join(f"I_{k}" for k in range(len(variables)))
    each = "cbv [nth fst snd Q2R Qnum Qden]; split; first [lra | interval with (i_prec 90)]"
    cases = f"do {len(variables)} (destruct m as [|m]; [{each}|])"
    lines = [
        "Theorem certified : claim.",
        f"Proof. unfold claim, bound. intros {names} {hypotheses}.",
        f"  assert (B : inside box {point}).",
        "  { intros j. unfold inputs, end_of, box. generalize (N.to_nat j). intros m.",
        f"    {cases}.",
        "    destruct m; cbv [nth fst snd Q2R Qnum Qden]; lra. }",
        f"  pose proof (powers {arguments} slots {point} slots_read B) as P.",
    ]
    for o in range(len(source.typed)):
        fact = f"Rabs (output model_ {point} {o} - formula_{o} {names}) <= {literal(allowed_bound(source))}"
        cut = f"interval with ({', '.join(f'i_bisect {name}' for name in variables)})"
        defined = f"unfold defined_{o}; conditions; kinks; first [condition | {cut}]"
        lines += [
            f"  assert (D_{o} : defined_{o} {names}) by ({defined}).",
            f"  assert (F_{o} : {fact}).",
            f"  {{ rewrite (P {o}%N). {_compared(source, o)} }}",
        ]
    return [*lines, "  tauto. Qed."]


def _compared(source: Source, o: int) -> str:
    """The tactics that compare an output's polynomial with the formula."""
    (network, formula), variables = source.polynomials[o], names_of(source)
    powers = {e: literal(fraction(c)) for e, c in network.to_dict().items()}
    if formula is not None and formula.is_rational:
        return (
            "match goal with |- Rabs ?d <= _ => replace d with 0 end. { rewrite Rabs_R0. lra. } "
            f"symmetry. unfold formula_{o}. cbv -[{_KEPT}]. field."
        )
    opened = f"replace p with ({_sum(powers, variables)}) by (cbv -[{_KEPT}]; field)"
    opened = f"match goal with |- Rabs (?p - _) <= _ => {opened} end. unfold formula_{o}."
    if formula is None:
        if len(variables) > 1:
            raise ExportError("no Coq theorem can be written for a polynomial near a formula of several variables yet")
        (x,) = variables
        return f"{opened} kinks; interval with (i_bisect {x}, i_taylor {x}, i_degree {DEGREE}, i_depth 30)."
    gaps = dict(powers)
    constants = [term(c, {}) for c in formula.irrationals]
    for exponents, coefficient in formula.exact.to_dict().items():
        own, others = exponents[: len(variables)], exponents[len(variables) :]
        gaps[own] = f"{gaps.get(own, '0')} - {_sum({others: literal(fraction(coefficient))}, constants)}"
    near = _sum({e: f"({gap})" for e, gap in gaps.items()}, variables)
    return (
        f"{opened} match goal with |- Rabs ?d <= _ => replace d with ({near}) by (field; nonzero) end. "
        f"interval with (i_prec {BITS})."
    )


def _sum(powers: Mapping[tuple[int, ...], str], names: list[str]) -> str:
    """A polynomial in given names from its coefficients."""
    terms = (
        " * ".join([c, *(f"({n}) ^ {e}" for n, e in zip(names, exponents, strict=True) if e)])
        for exponents, c in powers.items()
    )
    return " + ".join(terms) or "0"
