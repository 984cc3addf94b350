"""One file for each distinct table: |table − function| wherever it is read, and the function's slope.

Interval proves both by bisection with univariate Taylor models; tables of many tokens are given to it in pieces
(`centred_pieces`). Low degrees and native floats are fast; values that cancel need more bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

from flint import arb

from transformula.coq.centred_pieces import CentredPiece, TableSample, pieces
from transformula.coq.coq_source import LARGEST, SQUARE, NetworkWire, Wire
from transformula.coq.coq_terms import above, exact, literal, quotient, term
from transformula.errors import ExportError, NotProvenError
from transformula.kernel.enclosures.balls import enclose, to_fmpq
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, walk

HEADER = """Require Import Reals Lra Psatz List QArith Qreals Coquelicot.Coquelicot Interval.Tactic.
Require Import Transformula.Transformer Transformula.Attention Transformula.Analysis.
Import ListNotations.
Open Scope R_scope.
"""
#: Points at which a table is compared with its function to foresee a provable error.
SAMPLES = 240
#: Squares are read on this range in every product, so that one lemma serves all of them.
SQUARE_RANGE = Fraction(1001, 1000)
#: Margin of a table's lemma over its sampled error.
MARGIN = Fraction(6, 5)
#: Degree of Interval's Taylor models, the most tokens without pieces, and the bits that values need if they cancel.
DEGREE, FEW_TOKENS, BITS = 7, 12, 90
#: Scores that differ by more from end to end are too large for exp.
STEEP = 200
#: A lemma whose error is this many units of rounding of its values, or of what cancels, is proven in native floats.
NATIVE, NATIVE_PIECE = 20_000, 2_000
#: A root at 0 is bounded by plain intervals up to this part of the range.
EDGE = Fraction(1, 2**23)
#: Bisection without Taylor models, which end where a root's argument cancels.
PLAIN = "interval with (i_bisect u, i_depth {})"

Key = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]


@dataclass
class TableLemma:
    """|table − function| <= error for low <= u <= high, and |function'| <= slope there if an argument is off."""

    number: int
    tokens: Key
    function: Expr
    low: Fraction
    high: Fraction
    error: Fraction = Fraction(0)
    slope: Fraction = Fraction(0)
    samples: list[TableSample] = field(default_factory=list)

    def widen(self, low: Fraction, high: Fraction, slack: Fraction, moved: bool) -> None:
        """Cover one more reader's range."""
        if self.function == SQUARE:
            low, high = min(low, -SQUARE_RANGE), max(high, SQUARE_RANGE)
        self.low, self.high = min(self.low, low), max(self.high, high)
        points = [self.low + (self.high - self.low) * k / SAMPLES for k in range(SAMPLES + 1)]
        self.samples = [TableSample(float(u), float(m := self.meant(u)), float(self.table(u) - m)) for u in points]
        sampled = Fraction(max(abs(sample.error) for sample in self.samples))
        self.error = max(self.error, above(sampled * MARGIN * slack + Fraction(1, 10**16), 2))
        if moved:
            self.widen_slope()

    def widen_slope(self) -> None:
        """Cover the function's steepest place."""
        width, step = self.high - self.low, (self.high - self.low) / 10**12
        inner = [
            min(max(self.low + width * k / SAMPLES, self.low + step), self.high - step) for k in range(SAMPLES + 1)
        ]
        steepest = max(abs(self.meant(u + step) - self.meant(u - step)) for u in inner) / (2 * step)
        self.slope = max(self.slope, above(steepest * Fraction(102, 100), 2))

    def meant(self, u: Fraction) -> Fraction:
        """The function's value, nearly."""
        ball = enclose(self.function, {"u": arb(to_fmpq(u))})
        if not ball.is_finite():
            raise NotProvenError(f"the table {self.function} is read where the function is not defined")
        return exact(ball)

    def table(self, u: Fraction) -> Fraction:
        """The table's value, nearly."""
        at = arb(to_fmpq(u))
        weights = [(arb(a) * at + arb(b)).exp() for a, b in zip(self.tokens[0], self.tokens[1], strict=True)]
        total = sum((w * arb(y) for w, y in zip(weights, self.tokens[2], strict=True)), arb(0))
        return exact(total / sum(weights, arb(0)))

    @property
    def where(self) -> str:
        """The range as a hypothesis on u."""
        return f"{literal(self.low)} <= u <= {literal(self.high)}"

    def file(self) -> str:
        """The text of Table_N.v."""
        n = self.number
        self._refuse_powers_from_0()
        tokens = "; ".join(
            f"({', '.join(quotient(Fraction(v)) for v in token)})" for token in zip(*self.tokens, strict=True)
        )
        lines = [
            HEADER.rstrip(),
            f"Definition f_{n} (u : R) : R := {term(self.function, {'u': 'u'})}.",
            f"Definition tab_{n} : list token := [{tokens}].",
        ]
        lines += self.proof()
        if self.slope:
            inside = f"{literal(self.low)} <= {{}} <= {literal(self.high)}"
            lines += [
                f"Lemma L_{n} a b : {inside.format('a')} -> {inside.format('b')} -> "
                f"Rabs (f_{n} a - f_{n} b) <= {literal(self.slope)} * Rabs (a - b).",
                f"Proof. apply moved. intros u H. unfold f_{n}, tan. eexists; split; "
                "[auto_derive; [slope_domain u | reflexivity] | simpl; interval with (i_bisect u, i_prec 40)]. Qed.",
            ]
        return "\n".join(lines) + "\n"

    def _refuse_powers_from_0(self) -> None:
        for node in walk(self.function):
            exponent = node.args[1].number if node.op == "pow" else None
            if exponent is not None and exponent.denominator > 2 and list(_zeros(node.args[0], self.low, self.high)):
                raise ExportError(f"no Coq theorem can be written for the power {node} yet, whose base touches 0")

    @property
    def bounded(self) -> str:
        """The claim of lemma T."""
        return f"Rabs (attend tab_{self.number} u - f_{self.number} u) <= {literal(self.error)}"

    def proof(self) -> list[str]:
        """The lines of lemma T."""
        return self._in_pieces() if self._bends or len(self.tokens[0]) > FEW_TOKENS else self._whole()

    @property
    def _bends(self) -> bool:
        """Whether the function has kinks, and steep scores: there Interval loses a quotient of large numbers."""
        reach = (max(self.tokens[0]) - min(self.tokens[0])) * float(self.high - self.low)
        return reach > STEEP and any(node.op in LARGEST for node in walk(self.function))

    def _whole(self) -> list[str]:
        """Lemma T by one bisection."""
        n, largest = self.number, max(abs(y) for y in self.tokens[2])
        bits = 53 if self.error > Fraction(NATIVE * largest * 2.0**-52) else BITS
        opened = f"intros H. unfold attend, num. sums tab_{n} f_{n}; kinks"
        proof = self._beside_roots(_bisected(DEGREE, bits), self.low, self.high)
        return [f"Lemma T_{n} u : {self.where} -> {self.bounded}.", f"Proof. {opened}. {proof}. Qed."]

    def _beside_roots(self, tactic: str, low: Fraction, high: Fraction) -> str:
        """A tactic by Taylor models, with plain intervals where the argument of a root vanishes."""
        width, written = (high - low) * EDGE, tactic
        roots = {s for root in _roots(self.function) for s in _zeros(root, low, high)}
        cuts = sorted({low, high, *(min(max(s + d, low), high) for s in roots for d in (-width, width))})
        for a, b in reversed(list(pairwise(cuts)) if roots else []):
            by = PLAIN.format(20) if b - a <= 2 * width else f"first [{tactic} | {PLAIN.format(15)}]"
            part = f"assert ({literal(a)} <= u <= {literal(b)}) by lra; clear H; {by}"
            written = part if b == high else f"destruct (Rle_lt_dec u {literal(b)}); [{part} | {written}]"
        return written

    def _in_pieces(self) -> list[str]:
        """Lemma T from one lemma a piece."""
        n, parts = self.number, pieces(self.tokens, self.samples, self.low, self.high, float(self.error))
        cases = [f"destruct (Rle_lt_dec u {literal(p.high)}); [apply P_{n}_{j}; lra|]." for j, p in enumerate(parts)]
        return [
            *(line for j, piece in enumerate(parts) for line in self._piece_lemma(j, piece)),
            f"Lemma T_{n} u : {self.where} -> {self.bounded}.",
            f"Proof. intros H. {' '.join(cases[:-1])} apply P_{n}_{len(parts) - 1}; lra. Qed.",
        ]

    def _piece_lemma(self, j: int, piece: CentredPiece) -> list[str]:
        n, line = self.number, f"{quotient(piece.slope)} {quotient(piece.offset)} tab_{self.number}"
        bits = 53 if self.error > Fraction(NATIVE_PIECE * piece.cancels * 2.0**-52) else BITS
        first = _bisected(piece.mass_degree, 53)
        second = self._beside_roots(_bisected(piece.degree, bits), piece.low, piece.high)
        numbers = f"{literal(self.error)} {literal(piece.mass)}"
        return [
            f"Definition tab_{n}_{j} : list token := Eval vm_compute in shifted {line}.",
            f"Lemma P_{n}_{j} u : {literal(piece.low)} <= u <= {literal(piece.high)} -> {self.bounded}.",
            f"Proof. intros H. apply (centred {line} (f_{n} u) u {numbers}); change (shifted {line}) with tab_{n}_{j};",
            f"  [lra | sums tab_{n}_{j} f_{n}; kinks; {first} | sums tab_{n}_{j} f_{n}; kinks; {second}]. Qed.",
        ]


def _roots(function: Expr) -> Iterator[Expr]:
    """The arguments of square roots, also of those by which asin and acos are written."""
    for node in walk(function):
        exponent = node.args[1].number if node.op == "pow" else None
        if node.op == "sqrt" or (exponent is not None and exponent.denominator == 2):
            yield node.args[0]
        if node.op in ("asin", "acos"):
            yield ex.add(ex.number(Fraction(1)), ex.mul(ex.number(Fraction(-1)), node.args[0], node.args[0]))


def _zeros(expr: Expr, low: Fraction, high: Fraction) -> Iterator[Fraction]:
    """Points at which an expression that is never negative vanishes, by ternary search about the least samples."""

    def value(u: Fraction) -> float:
        return float(enclose(expr, {"u": arb(to_fmpq(u))}).mid())

    points = [low + (high - low) * k / SAMPLES for k in range(SAMPLES + 1)]
    values = [value(u) for u in points]
    for k, (before, here, after) in enumerate(
        zip([values[0], *values], values, [*values[1:], values[-1]], strict=False)
    ):
        a, b = points[max(k - 1, 0)], points[min(k + 1, SAMPLES)]
        for _ in range(60 if here <= min(before, after) else 0):
            third = (b - a) / 3
            a, b = (a, b - third) if value(a + third) <= value(b - third) else (a + third, b)
        found = min((points[k], Fraction(float(a)).limit_denominator(10**6)), key=value)
        if value(found) <= max(values) * EDGE:
            yield found


def _bisected(degree: int, bits: int) -> str:
    return f"interval with (i_bisect u, i_taylor u, i_degree {degree}, i_prec {bits}, i_depth 40)"


class TableLemmas:
    """The lemmas of a model's tables, by tokens and function."""

    def __init__(self, slack: Fraction, kind: type[TableLemma] = TableLemma) -> None:
        self.slack, self.kind = slack, kind
        self.known: dict[tuple[Key, Expr], TableLemma] = {}

    def __iter__(self) -> Iterator[TableLemma]:
        return iter(self.known.values())

    def read(self, wire: Wire, found: NetworkWire, low: Fraction, high: Fraction, moved: bool) -> TableLemma:
        """The lemma of a table, widened to one more range."""
        table, function = found.table, wire.function
        assert table is not None and function is not None
        slopes, offsets = table.slopes[:, 0].tolist(), table.offsets[:, 0].tolist()
        key: Key = tuple(slopes), tuple(offsets), tuple(table.values.tolist())
        lemma = self.known.setdefault((key, function), self.kind(len(self.known), key, function, low, high))
        lemma.widen(low, high, self.slack, moved)
        return lemma
