"""Lemmas of tables with sharp cells: in its own cell, and a little beyond, a token's value is near the function.

On a piece of the range only the tokens count whose scores are not everywhere at least G below a leading one (`sharp` in
Attention.v). G is the least for which all others add a small part of the error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from transformula.coq.coq_terms import above, literal, quotient
from transformula.coq.table_lemmas import TableLemma
from transformula.errors import ExportError

#: Points of a cell at which the function is compared with the token's value; margin over the largest difference.
POINTS, MARGIN = 16, Fraction(10005, 10000)
#: Parts of the error that may be left to tokens elsewhere: a larger one makes cells narrower.
ELSEWHERE = (Fraction(1, 10_000), Fraction(1, 1000), Fraction(1, 100), Fraction(1, 25))
#: The most cells: each takes 0.6 s of `coqc`.
MAX_CELLS = 300
#: Part by which cells are widened beyond what G asks for, so that cuts may be rounded.
SPARE = 1.001


class SharpCell(NamedTuple):
    """A token's place among the stored ones, and where it may count."""

    token: int
    low: Fraction
    high: Fraction


class SharpLemma(TableLemma):
    """A table whose lemma is proven cell by cell."""

    gap: int = 0
    near: Fraction = Fraction(0)
    largest: Fraction = Fraction(0)

    def widen(self, low: Fraction, high: Fraction, slack: Fraction, moved: bool) -> None:
        """Cover one more reader's range."""
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.largest = above(max(abs(Fraction(v)) for v in self.tokens[2]), 6)
        error, self.near, self.gap = min(self._spread(part, max(slack, Fraction(1))) for part in ELSEWHERE)
        self.error = max(self.error, error)
        if moved:
            self.widen_slope()

    def _spread(self, part: Fraction, slack: Fraction) -> tuple[Fraction, Fraction, int]:
        """The error with a part left to tokens elsewhere; the one in cells; and G."""
        self.gap = 30
        for _ in range(3):  # a narrower cell has a smaller error, which asks for a larger G
            near = above(max(map(self._distance, self._cells())) * MARGIN * slack + Fraction(1, 10**12), 6)
            worst = len(self.tokens[0]) * float(2 * self.largest + near) / float(near * part)
            self.gap, before = math.ceil(math.log(worst)), self.gap
        self.gap = max(self.gap, before)
        return above(near * (1 + part), 6), near, self.gap

    def _sorted(self) -> list[int]:
        """The tokens by slope, which are those that lead from left to right."""
        order = sorted(range(len(self.tokens[0])), key=lambda k: self.tokens[0][k])
        if len(order) > MAX_CELLS or any(self.tokens[0][a] == self.tokens[0][b] for a, b in pairwise(order)):
            raise ExportError(
                f"no Coq theorem can be written for over {MAX_CELLS} cells along an axis, or cells of equal slopes: "
                f"this partition has {len(order)}"
            )
        return order

    def _seams(self) -> Iterator[tuple[Fraction, Fraction]]:
        """Intervals on which a token and the next are less than G apart."""
        slopes, offsets, _ = self.tokens
        for a, b in pairwise(self._sorted()):
            steep = slopes[b] - slopes[a]
            middle, half = (offsets[a] - offsets[b]) / steep, SPARE * self.gap / steep
            yield Fraction(middle - half).limit_denominator(10**9), Fraction(middle + half).limit_denominator(10**9)

    def _cells(self) -> list[SharpCell]:
        """The cells inside the range."""
        seams = [(self.low, self.low), *self._seams(), (self.high, self.high)]
        ends = zip(self._sorted(), seams[:-1], seams[1:], strict=True)
        cells = [SharpCell(k, max(start, self.low), min(end, self.high)) for k, (start, _), (_, end) in ends]
        return [cell for cell in cells if cell.low < cell.high]

    def _distance(self, cell: SharpCell) -> Fraction:
        points = (cell.low + (cell.high - cell.low) * k / POINTS for k in range(POINTS + 1))
        value = Fraction(self.tokens[2][cell.token])
        return max(abs(value - self.meant(u)) for u in points)

    def _token(self, k: int) -> str:
        return f"({', '.join(quotient(Fraction(side[k])) for side in self.tokens)})"

    def proof(self) -> list[str]:
        """Lemma C of each cell, P of each piece between two ends of cells, and T of the whole range."""
        n, cells = self.number, self._cells()
        tail = (
            f"{literal(self.near)} + {len(self.tokens[0])} * (2 * Q2R {quotient(self.largest)} + {literal(self.near)})"
        )
        lines = [
            f"Lemma S_{n} : {tail} * exp (- Q2R {quotient(Fraction(self.gap))}) <= {literal(self.error)}.",
            "Proof. cbv [Q2R Qnum Qden]; interval. Qed.",
        ]
        for cell in cells:
            lines += [
                f"Lemma C_{n}_{cell.token} u : {literal(cell.low)} <= u <= {literal(cell.high)} -> "
                f"Rabs (Q2R {quotient(Fraction(self.tokens[2][cell.token]))} - f_{n} u) <= {literal(self.near)}.",
                f"Proof. intros H. cbv [f_{n} Q2R Qnum Qden]; kinks. first [interval with (i_bisect u, i_taylor u, "
                "i_degree 3, i_depth 30) | interval with (i_bisect u, i_depth 40)]. Qed.",
            ]
        cuts = sorted({end for cell in cells for end in cell[1:]})
        pieces = list(pairwise(cuts))
        for j, (low, high) in enumerate(pieces):
            lines += self._piece(j, low, high, [c.token for c in cells if c.low <= low and high <= c.high])
        cases = [
            f"destruct (Rle_lt_dec u {literal(high)}); [apply P_{n}_{j}; lra|]." for j, (_, high) in enumerate(pieces)
        ]
        return [
            *lines,
            f"Lemma T_{n} u : {self.where} -> {self.bounded}.",
            f"Proof. intros H. {' '.join(cases[:-1])} apply P_{n}_{len(pieces) - 1}; lra. Qed.",
        ]

    def _piece(self, j: int, low: Fraction, high: Fraction, loud: list[int]) -> list[str]:
        n, near = self.number, "; ".join(self._token(k) for k in sorted(loud))
        numbers = f"{quotient(low)} {quotient(high)} {quotient(Fraction(self.gap))} {self._token(loud[0])}"
        each = "|".join(f"exact (C_{n}_{k} u H)" for k in sorted(loud))
        return [
            f"Lemma P_{n}_{j} u : {literal(low)} <= u <= {literal(high)} -> {self.bounded}.",
            f"Proof. intros H. eapply Rle_trans; [apply (sharp {numbers} tab_{n} [{near}] {quotient(self.largest)} "
            f"{len(self.tokens[0])} _ {literal(self.near)});",
            "  [vm_compute; reflexivity | vm_compute; reflexivity | cbv [Q2R Qnum Qden]; lra | discriminate |]",
            f"  | exact S_{n}]. intros t [<-{'|[<-' * (len(loud) - 1)}|[]{']' * (len(loud) - 1)}];",
            f"  [{each.replace('u H)', 'u ltac:(lra))')}]. Qed.",
        ]
