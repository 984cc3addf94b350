"""Lemmas of a length √(a² + b²) that folds of ReLUs measure (`kernel/structures/stored_circuit` has the mathematics).

Folds.v proves once what exact folds measure and how errors of the units grow. Of one length it is left to show that the
first four units are ReLUs of ±a and ±b (lemmas V), that the stored coefficients are near the sines and cosines of the
folds' angles (J), and how long the vector is (H).
"""

from __future__ import annotations

import math
from fractions import Fraction

from flint import arb

from transformula.coq.circuit_wires import TINY, CircuitWires, number
from transformula.coq.coq_source import Wire, fraction
from transformula.coq.coq_terms import above, below, exact, literal, term
from transformula.errors import ExportError

#: Margin of a bound that is foreseen in floats.
MARGIN = Fraction(1001, 1000)
#: A factor's range as meant, and its error.
Side = tuple[Fraction, Fraction, Fraction]


class CircuitFolds(CircuitWires):
    """The lines of lengths made of ReLUs."""

    def norm(self, k: int, wire: Wire, sides: list[Side]) -> None:
        """Lemmas R and E of a length, after its factors' lemmas P and F."""
        units = [i for i, _ in wire.parts]
        folds = len(units) - 4
        self.say(f"Definition units_{k} : nat -> R := fun j => nth j [{'; '.join(f'W_{i}' for i in units)}] 0.")
        near = self._quadrant(k, units[:4])
        off = max(self._turns(k, units), self._gauge(k, wire, units))
        longest = sum((max(abs(low), abs(high)) + error) ** 2 for low, high, error in sides)
        reach = above(_root(Fraction(longest)) * MARGIN, 6)
        self._length(k, sides, reach)
        numbers = " ".join(map(literal, (off, reach, near)))
        grown = Fraction(4) * near
        for j in range(folds):
            grown = (3 + 2 * off) * grown + 2 * (off * reach * (4 + j) + near)
        cosine = exact((arb.pi() / 2 ** (folds + 2)).cos())
        q = 2 / (1 + cosine)
        own = above((q * ((1 + off) * grown + off * reach * (4 + folds)) + (q - 1) * reach) * MARGIN, 5)
        self._measured(k, units, numbers, own, above((reach + grown) * MARGIN, 5))
        self.errors[k] = own + sides[0][2] + sides[1][2]
        self.lemma(
            f"E_{k}",
            f"- {literal(self.errors[k])} <= W_{k} - M_{k} <= {literal(self.errors[k])}",
            f"pose proof (length_moved a_{k} b_{k} ah_{k} bh_{k} _ _ Fa_{k} Fb_{k}); pose proof (two_sided _ _ Y_{k}); "
            f"unfold M_{k}; lra",
        )

    def _quadrant(self, k: int, units: list[int]) -> Fraction:
        """Lemmas V of the first four units; by how much their arguments are off."""
        off = Fraction(0)
        for i, side in zip(units, (f"ah_{k}", f"(- ah_{k})", f"bh_{k}", f"(- bh_{k})"), strict=True):
            linear, form = self.circuit.wires[i].arguments[0], self.found[i].arguments[0]
            self.say(f"Definition N_{i} : R := {self.form(linear, self.held)}.")
            rounded = self.close(str(i), linear, form, f"A_{i}", f"N_{i}")
            last = f"exact C_{i}" if rounded else f"rewrite C_{i}; unfold Rminus; rewrite Rplus_opp_r, Rabs_R0; lra"
            same = f"replace {side} with N_{i} by (unfold N_{i}, ah_{k}, bh_{k}; first [lra | field])"
            self.lemma(
                f"V_{i}",
                f"Rabs (W_{i} - Rmax 0 {side}) <= {literal(rounded)}",
                f"rewrite D_{i}; {same}; eapply Rle_trans; [apply relu_apart|]; {last}",
            )
            off = max(off, rounded)
        return off

    def _turns(self, k: int, units: list[int]) -> Fraction:
        """Lemmas V and J of the other units; by how much their coefficients are off."""
        rows, off = [], TINY
        for n, i in enumerate(units[4:]):
            terms = {self.index[j]: fraction(t.coefficient) for j, t in self.found[i].arguments[0].terms.items()}
            if not terms.keys() <= set(units[: 4 + n]):
                raise ExportError("no Coq theorem can be written for a length whose folds read other wires")
            rows.append([terms.get(j, Fraction(0)) for j in units[: 4 + n]])
            meant = dict(self.circuit.wires[i].arguments[0].terms)
            gaps = (abs(c - (number(meant[j]) if j in meant else 0)) for j, c in zip(units, rows[-1], strict=False))
            off = max(off, *gaps)
        off = above(off * MARGIN, 2)
        written = "; ".join(f"[{'; '.join(map(literal, row))}]" for row in rows)
        self.say(f"Definition turns_{k} : list (list R) := [{written}].")
        for n, i in enumerate(units[4:]):
            row, opened = f"(nth {n} turns_{k} [])", f"cbv [dot units seq map sum nth Nat.add units_{k} turns_{k}]"
            self.lemma(
                f"V_{i}",
                f"Rabs (W_{i} - Rmax 0 (dot {row} units_{k} {n})) <= 0",
                f"rewrite D_{i}; replace (dot {row} units_{k} {n}) with A_{i} by (unfold A_{i}; {opened}; lra); "
                "unfold Rminus; rewrite Rplus_opp_r, Rabs_R0; lra",
            )
            self._coefficients(f"J_{i}", n, row, f"turns_{k}", "sin", off)
        return off

    def _gauge(self, k: int, wire: Wire, units: list[int]) -> Fraction:
        """Lemma J of the length itself: its coefficients over 2/(1 + cos x)."""
        assert wire.total is not None
        folds, given = len(units) - 4, dict(wire.total.terms)
        scale = f"(2 / (1 + cos (PI / 2 ^ {folds + 2})))"
        written = "; ".join(f"{term(given[i], {}) if i in given else '0'} / {scale}" for i in units)
        self.say(f"Definition gauge_{k} : list R := [{written}].")
        self._coefficients(f"J_{k}", folds, f"gauge_{k}", f"gauge_{k}", "cos", TINY)
        return TINY

    def _coefficients(self, name: str, n: int, row: str, opened: str, wave: str, off: Fraction) -> None:
        self.lemma(
            name,
            f"forall j, In j (units {n}) -> Rabs (nth j {row} 0 - factor j * {wave} (angle {n} j)) <= {literal(off)}",
            f"intros j I; do {4 + n} (destruct j as [|j]; [coefficient {opened}|]); apply in_seq in I; lia",
        )

    def _length(self, k: int, sides: list[Side], reach: Fraction) -> None:
        """Lemmas R and H: the range of the length as meant, and the most it can be as held."""
        least = sum(Fraction(0) if low <= 0 <= high else min(low**2, high**2) for low, high, _ in sides)
        self.ranges[k] = below(_root(Fraction(least)) / MARGIN, 6), reach
        self.say(f"Definition M_{k} : R := sqrt (a_{k} * a_{k} + b_{k} * b_{k}).")
        squares = (
            "replace ({0} * {0} + {1} * {1}) with ({0} ^ 2 + {1} ^ 2) by ring; revert A B; generalize {0} {1}; "
            "intros a b A B"
        )
        self.lemma(
            f"R_{k}",
            f"{literal(self.ranges[k][0])} <= M_{k} <= {literal(reach)}",
            f"unfold M_{k}; pose proof Pa_{k} as A; pose proof Pb_{k} as B; "
            f"{squares.format(f'a_{k}', f'b_{k}')}; interval with (i_prec 80)",
        )
        outside = [
            f"assert ({literal(low - off)} <= {x}h_{k} <= {literal(high + off)}) as {x.upper()} "
            f"by (pose proof P{x}_{k}; pose proof F{x}_{k}; lra)"
            for x, (low, high, off) in zip("ab", sides, strict=True)
        ]
        self.lemma(
            f"H_{k}",
            f"sqrt (ah_{k} * ah_{k} + bh_{k} * bh_{k}) <= {literal(reach)}",
            f"{'; '.join(outside)}; {squares.format(f'ah_{k}', f'bh_{k}')}; interval with (i_prec 80)",
        )

    def _measured(self, k: int, units: list[int], numbers: str, own: Fraction, largest: Fraction) -> None:
        """Lemma Y: the wire against the length of what is held; lemmas B: the units' sizes."""
        folds = len(units) - 4
        cases = {
            kind: f"intros i L; {''.join(f'destruct i as [|i]; [{last.format(i)}|]; ' for i in units[4:])}lia"
            for kind, last in (
                ("V", "eapply Rle_trans; [exact V_{}|lra]"),
                ("J", "eapply coefficients_less; [exact J_{}|lra]"),
            )
        }
        four = " ".join(f"ltac:(eapply Rle_trans; [exact V_{i}|lra])" for i in units[:4])
        given = (
            f"measured ah_{k} bh_{k} {folds} units_{k} turns_{k} gauge_{k} {numbers} ltac:(lra) ltac:(lra) H_{k} "
            f"{four} ltac:({cases['V']}) ltac:({cases['J']}) ltac:(eapply coefficients_less; [exact J_{k}|lra])"
        )
        self.say(f"Definition measured_{k} := {given}.")
        self.lemma(
            f"Y_{k}",
            f"Rabs (W_{k} - sqrt (ah_{k} * ah_{k} + bh_{k} * bh_{k})) <= {literal(own)}",
            f"pose proof (proj2 measured_{k}) as Y; "
            f"replace W_{k} with (2 / (1 + cos (PI / 2 ^ ({folds} + 2))) * dot gauge_{k} units_{k} {folds}) "
            f"by (unfold W_{k}; cbv [dot units seq map sum nth Nat.add units_{k} gauge_{k}]; field; nonzero); "
            f"eapply Rle_trans; [exact Y|]; cbv [growth INR Nat.add]; interval with (i_prec 80)",
        )
        for j, i in enumerate(units):
            self.sized.add(i)
            self.ranges[i], self.errors[i] = (-largest, largest), Fraction(0)
            self.lemma(
                f"B_{i}",
                f"- {literal(largest)} <= W_{i} <= {literal(largest)}",
                "apply Rabs_le_between; eapply Rle_trans; "
                f"[exact (proj1 measured_{k} {j}%nat ltac:(apply in_seq; lia))|]; "
                "cbv [growth INR Nat.add]; interval with (i_prec 80)",
            )


def _root(value: Fraction) -> Fraction:
    return Fraction(math.sqrt(value))
