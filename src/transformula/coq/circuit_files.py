"""The Coq files of a softmax model: its tables, each in a file of its own, and the proof that puts them together."""

from __future__ import annotations

from fractions import Fraction

from transformula.coq.circuit_theorem import LEAK, CircuitTheorem
from transformula.coq.coq_source import Source
from transformula.coq.coq_statement import allowed_bound
from transformula.coq.coq_terms import above, literal, quotient, term
from transformula.coq.table_lemmas import TableLemma
from transformula.errors import NotProvenError

HEADER = """Require Import Reals Lra Lia Psatz List NArith ZArith QArith Qreals Coquelicot.Coquelicot Interval.Tactic.
Require Import Transformula.Transformer Transformula.Attention Transformula.Reading Transformula.Analysis.
Require Import Transformula.Folds Transformula.Model Transformula.Statement{tables}.
Import ListNotations.
Open Scope R_scope.
"""
#: Shares of the tolerance that looser tables may use up, tried in turn: looser lemmas are proven faster.
SHARES = (Fraction(7, 10), Fraction(45, 100), Fraction(2, 10))
#: Share of a table's usual error that is tried where the tolerance leaves no room: just above what is sampled.
TIGHTEST = Fraction(88, 100)


def circuit_files(source: Source) -> dict[str, str]:
    """The generated files beside Model.v, by name."""
    proof = _budgeted(source)
    files = {f"Table_{lemma.number}.v": lemma.file() for lemma in proof.tables}
    return files | {"Proof.v": "\n".join(_proof(proof)) + "\n"}


def _budgeted(source: Source) -> CircuitTheorem:
    """The proof with the loosest tables that the bound allows."""
    allowed = allowed_bound(source)
    tight = CircuitTheorem(source, Fraction(1))
    tight.run()
    if max(tight.bounds) > allowed:
        tight = CircuitTheorem(source, TIGHTEST)
        tight.run()
    least = max(tight.bounds)
    for share in SHARES if least else ():
        slack = share * allowed / least
        if slack > Fraction(13, 10):
            loose = CircuitTheorem(source, slack)
            loose.run()
            if max(loose.bounds) <= allowed:
                return loose
    if least > allowed:
        raise NotProvenError(
            f"the errors carried through the circuit add up to {float(least):.3g}, above eps - rounding = "
            f"{float(allowed):.3g}: no Coq theorem can be written",
            best_bound=float(least),
        )
    return tight


def _proof(proof: CircuitTheorem) -> list[str]:
    source, count = proof.source, len(proof.circuit.outputs)
    outputs = "; ".join(map(str, range(count)))
    tables = "".join(f" Transformula.Table_{lemma.number}" for lemma in proof.tables)
    lines = [
        HEADER.format(tables=tables).rstrip(),
        f"Definition outputs : list N := [{outputs}]%N.",
        f"Definition net : list wire * list form := Eval vm_compute in "
        f"match read model_ {proof.inputs} outputs with Some p => p | None => ([], []) end.",
        f"Lemma net_read : read model_ {proof.inputs} outputs = Some (fst net, snd net).",
        "Proof. vm_compute. reflexivity. Qed.",
        f"Lemma net_ordered : ordered (N.succ {proof.inputs}) (fst net) = true.",
        "Proof. vm_compute. reflexivity. Qed.",
    ]
    lines += _token_lists(proof)
    lines += ["Section Net.", f"Variables {' '.join(proof.variables)} : R."]
    box = source.formula.box
    for i, (low, high) in enumerate(zip(box.lower, box.upper, strict=True)):
        lines.append(f"Hypothesis I_{i} : {term(low, {})} <= {proof.variables[i]} <= {term(high, {})}.")
    lines += ["Variable w : vector.", "Hypothesis one : w 0%N = 1."]
    lines += [f"Hypothesis X_{i} : w {i + 1}%N = {name}." for i, name in enumerate(proof.variables)]
    lines.append(f"Hypothesis wires : holds w {proof.inputs + 1} (fst net).")
    lines += [f"Notation W_{k} := (w {place}%N)." for k, place in sorted(proof.place.items())]
    lines += proof.lines
    for o in range(count):
        lines += _final(proof, o)
    return [*lines, "End Net.", *_theorem(proof)]


def _token_lists(proof: CircuitTheorem) -> list[str]:
    """The tokens that heads attend to, the forms they ask for, and each table's lemma with all other tokens."""
    lines, named, proven = [], set(), set()
    for k in sorted(proof.found):
        at = proof.place[k] - proof.inputs - 1
        wire = f"nth {at} (fst net) (Relu [])"
        lines.append(f"Definition asked_{at} : form := Eval vm_compute in asked ({wire}).")
        if k not in proof.lemma_of:
            continue
        gates, lemma = proof.gates(k), proof.lemma_of[k]
        if gates not in named:
            named.add(gates)
            lines.append(f"Definition all_{gates} : list token := Eval vm_compute in tokens_of ({wire}).")
        if (lemma.number, gates) not in proven:
            proven.add((lemma.number, gates))
            lines += _table_among_all(proof, k, lemma, gates)
    return lines


def _table_among_all(proof: CircuitTheorem, k: int, lemma: TableLemma, gates: int) -> list[str]:
    table = proof.found[k].table
    assert table is not None
    reach = above(max(abs(lemma.low), abs(lemma.high)), 6)
    values = [abs(Fraction(v)) for v in (*table.values.tolist(), *table.foreign_values.tolist())]
    n, everything, U, V = lemma.number, f"all_{gates}", quotient(reach), quotient(above(max(values), 3))
    total = literal(lemma.error + LEAK)
    return [
        f"Lemma K_{n}_{gates} u : {lemma.where} -> - {total} <= attend {everything} u - f_{n} u <= {total}.",
        f"Proof. intros H. pose proof (two_sided _ _ (T_{n} u H)) as T.",
        f"  assert (G : guarded {U} {V} {everything} = true) by (vm_compute; reflexivity).",
        f"  assert (O : own {U} {everything} = tab_{n}) by (vm_compute; reflexivity).",
        f"  assert (B : Rabs u <= Q2R {U}) by (apply Rabs_le; cbv [Q2R Qnum Qden]; lra).",
        f"  pose proof (two_sided _ _ (leak {U} {V} {everything} u G B)) as L.",
        "  rewrite O in L. pose proof leak_small. lra. Qed.",
    ]


def _final(proof: CircuitTheorem, o: int) -> list[str]:
    variables = " ".join(proof.variables)
    last = len(proof.circuit.wires) - 1
    cut = f"interval with ({', '.join(f'i_bisect {name}' for name in proof.variables)}, i_depth 30)"
    squares = "".join(f" | squares_of {term(e, proof.environment)}" for e in proof.source.signs)
    cases = f"cases_of_relu; first [lra | nra | {cut}]"
    signs = f"apply Rgt_not_eq, Rlt_gt; {cut} | apply Rlt_not_eq; {cut}"
    return [
        f"Definition out_form_{o} : form := Eval vm_compute in nth {o} (snd net) [].",
        f"Lemma O_{o} : eval w out_form_{o} = out_{o}.",
        f"Proof. reading_form out_form_{o}; {proof.rewrites}; unfold out_{o}; lra. Qed.",
        f"Lemma means_{o} : meant_{o} = formula_{o} {variables}.",
        f"Proof. unfold formula_{o}; {proof.unfolded_meanings(f'meant_{o}', last)}; meaning. Qed.",
        f"Lemma is_defined_{o} : defined_{o} {variables}.",
        f"Proof. unfold defined_{o}; conditions; kinks; first [condition{squares} | {cut} | {signs} | {cases}]. Qed.",
        f"Lemma final_{o} : {_fact(proof, o)}.",
        f"Proof. split; [exact is_defined_{o}|]. rewrite O_{o}, <- means_{o}.",
        f"  eapply Rle_trans; [exact E_out_{o}|lra]. Qed.",
    ]


def _fact(proof: CircuitTheorem, o: int) -> str:
    """The bound proven for an output, as the reader of the model gives it."""
    names, bound = " ".join(proof.variables), literal(allowed_bound(proof.source))
    return f"defined_{o} {names} /\\ Rabs (eval w out_form_{o} - formula_{o} {names}) <= {bound}"


def _theorem(proof: CircuitTheorem) -> list[str]:
    variables, count = proof.variables, len(proof.circuit.outputs)
    hypotheses = " ".join(f"I_{i}" for i in range(proof.inputs))
    point = f"(inputs [{'; '.join(variables)}])"
    lines = [
        "Theorem certified : claim.",
        f"Proof. unfold claim, bound. intros {' '.join(variables)} {hypotheses}.",
        f"  destruct (reading model_ {proof.inputs} outputs (fst net) (snd net) {point} net_read net_ordered)",
        "    as (w & one & X & H & O).",
    ]
    lines += [
        f"  assert (X_{i} : w {i + 1}%N = {name}) by exact (X {i}%N eq_refl)." for i, name in enumerate(variables)
    ]
    for o in range(count):
        lines += [
            f"  assert (O_{o} : output model_ {point} {o} = eval w out_form_{o})",
            f"    by exact (f_equal (fun l => nth {o} l 0) O).",
            f"  rewrite O_{o}. assert (F_{o} : {_fact(proof, o)}) by (eapply final_{o}; eassumption).",
        ]
    return [*lines, "  tauto. Qed."]
