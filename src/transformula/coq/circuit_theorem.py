"""Proof.v of a softmax model: every wire is near what it is meant to be, and what the output means is the formula.

Of wire k, W_k is what the model holds and M_k what is meant; A_k is a table's argument as stored, N_k the circuit's
form of it in the wires as held, Q_k in the wires as meant. Lemmas by letter: D (W is its table at A), C (A = N up to
rounded constants), Z (range of Q), S (A near Q), G (a square near the square of N), R (range of M), E (W near M),
P and F (ranges and errors of factors).
"""

from __future__ import annotations

from fractions import Fraction

from transformula.coq.circuit_folds import CircuitFolds, Side
from transformula.coq.coq_source import SQUARE, Wire
from transformula.coq.coq_terms import above, below, literal
from transformula.coq.table_lemmas import SAMPLES, TableLemma
from transformula.errors import NotProvenError

#: What tokens behind a gate may add to a table, as Attention.v proves.
LEAK = Fraction(1, 10**25)
_LINEAR = "first [lra | atoms; interval with (i_prec 110)]"


def _sides(bound: Fraction, what: str) -> str:
    return f"- {literal(bound)} <= {what} <= {literal(bound)}"


class CircuitTheorem(CircuitFolds):
    """The proof's lines, wire by wire."""

    def run(self) -> None:
        """All wires and outputs, again until no table's range grows any more."""
        for _ in range(6):
            before = [(t.low, t.high, t.error, t.slope) for t in self.tables]
            self.restart()
            units = self.fold_units
            for k, wire in enumerate(self.circuit.wires):
                if wire.is_norm:
                    self.norm(k, wire, self._sides_of(k, wire))
                elif wire.total is not None:
                    self._product(k, wire)
                elif k in units:
                    self.say(f"Definition A_{k} : R := {self.stored(self.found[k].arguments[0])}.")
                    self._definition(k)
                elif wire.function is not None:
                    self._table(k, wire)
                elif wire.arguments:
                    self._relu(k, wire)
            self.bounds = [self._output(o) for o in range(len(self.circuit.outputs))]
            if before == [(t.low, t.high, t.error, t.slope) for t in self.tables]:
                return
        raise NotProvenError("the ranges of the tables do not settle: no Coq theorem can be written")

    def _argument(self, k: int, wire: Wire) -> tuple[Fraction, Fraction, Fraction]:
        """Definitions and lemmas of a wire's argument: its range as meant, and by how much it is off."""
        linear, form = wire.arguments[0], self.found[k].arguments[0]
        self.say(
            f"Definition A_{k} : R := {self.stored(form)}.",
            f"Definition N_{k} : R := {self.form(linear, self.held)}.",
            f"Definition Q_{k} : R := {self.form(linear, self.meant)}.",
        )
        self._definition(k)
        rounded = self.rounded[k] = self.close(str(k), linear, form, f"A_{k}", f"N_{k}")
        carried = self.carried(linear)
        shift = above(carried * Fraction(10001, 10000) + rounded, 3) if carried or rounded else Fraction(0)
        low, high = self.ends(linear)
        better = self.better(k, "u", low, high, f"Q_{k}")
        proof = f"{self.known(i for i, _ in linear.terms)}unfold Q_{k}; {_LINEAR}"
        if better:
            low, high, proof = better
        self.lemma(f"Z_{k}", f"{literal(low)} <= Q_{k} <= {literal(high)}", proof)
        rest = literal(shift - rounded)
        moved = f"assert (- {rest} <= N_{k} - Q_{k} <= {rest}) by ({self.moved(linear, f'N_{k}', f'Q_{k}')})"
        first = f"pose proof C_{k} as C; " + ("apply two_sided in C; " if rounded else "rewrite C; ")
        known = self.known(i for i, _ in linear.terms)
        exactly = f"{known}rewrite C_{k}; unfold N_{k}, Q_{k}; lra"
        inside = f"{known}{first}{moved}; lra"
        self.lemma(f"S_{k}", _sides(shift, f"A_{k} - Q_{k}"), inside if shift else exactly)
        return low, high, shift

    def _definition(self, k: int) -> None:
        """Lemma D: the wire is its table or ReLU at A, as Coq's reader of the model found."""
        start, at = self.inputs + 1, self.place[k] - self.inputs - 1
        table = self.found[k].table is not None
        value = f"attend all_{self.gates(k)} A_{k}" if table else f"Rmax 0 A_{k}"
        wire = f"(Table asked_{at} all_{self.gates(k)})" if table else f"(Relu asked_{at})"
        given = f"holds_nth w (fst net) {start} {at} (Relu []) wires ltac:(vm_compute; lia)"
        self.lemma(
            f"D_{k}",
            f"W_{k} = {value}",
            f"change W_{k} with (w ({start} + N.of_nat {at})%N); rewrite ({given}); "
            f"change (nth {at} (fst net) (Relu [])) with {wire}; unfold value_of; f_equal; unfold A_{k}; "
            f"reading_form asked_{at}; {self.rewrites}; lra",
        )

    @property
    def rewrites(self) -> str:
        """Wires that are the constant 1 and the inputs."""
        return "rewrite ?one" + "".join(f", ?X_{i}" for i in range(self.inputs))

    def _table(self, k: int, wire: Wire) -> None:
        low, high, shift = self._argument(k, wire)
        ends = (below(low - shift, 12), above(high + shift, 12)) if shift else (low, high)
        lemma = self.lemma_of[k] = self.tables.read(wire, self.found[k], *ends, bool(shift))
        n, own = lemma.number, above(lemma.error + LEAK, 6)
        self.own[k] = own
        self.say(f"Definition M_{k} : R := f_{n} Q_{k}.")
        at_table = f"pose proof Z_{k}; pose proof S_{k}; pose proof (K_{n}_{self.gates(k)} A_{k} ltac:(lra)) as T"
        self.lemma(f"T_at_{k}", _sides(own, f"W_{k} - f_{n} A_{k}"), f"{at_table}; rewrite D_{k}; lra")
        self.ranges[k] = self._values(k, lemma, low, high)
        square = wire.function == SQUARE
        if square:
            self._squared(k, n, max(abs(low), abs(high)) + shift)
        if not shift:
            self.errors[k] = own
            equal = f"assert (A_{k} = Q_{k}) as A by (pose proof S_{k}; lra)"
            proof = f"{equal}; pose proof T_at_{k} as T; rewrite A in T; exact T"
        elif square:
            change = above(2 * (max(abs(low), abs(high)) + shift) * shift * Fraction(102, 100), 4)
            self.errors[k] = own + change
            between = (
                f"replace (A_{k} * A_{k} - Q_{k} ^ 2) with ((A_{k} - Q_{k}) * (2 * Q_{k} + (A_{k} - Q_{k}))) by ring"
            )
            inside = f"{between}; revert S; generalize (A_{k} - Q_{k}); intros d S; interval with (i_prec 60)"
            near = f"assert ({_sides(change, f'A_{k} * A_{k} - Q_{k} ^ 2')}) by ({inside})"
            proof = f"pose proof T_at_{k} as T; pose proof Z_{k}; pose proof S_{k} as S; unfold f_{n} in *; {near}; lra"
        else:
            self.errors[k] = above(own + lemma.slope * shift, 4)
            moved = f"pose proof (L_{n} A_{k} Q_{k} ltac:(lra) ltac:(lra)) as L; apply two_sided in L"
            size = f"assert (Rabs (A_{k} - Q_{k}) <= {literal(shift)}) by (apply Rabs_le; lra)"
            proof = f"pose proof Z_{k}; pose proof S_{k}; pose proof T_at_{k}; {moved}; {size}; nra"
        self.lemma(f"E_{k}", _sides(self.errors[k], f"W_{k} - M_{k}"), f"unfold M_{k}; {proof}")

    def _squared(self, k: int, n: int, reach: Fraction) -> None:
        """Lemma G: a table of squares near the square of N; its argument is at most ``reach``."""
        rounded = self.rounded[k]
        change = above(rounded * (2 * reach + rounded) * Fraction(102, 100), 4)
        self.squared[k] = self.own[k] + change
        proof = f"rewrite C_{k} in T; lra"
        if rounded:
            difference = f"(A_{k} - N_{k}) * (2 * A_{k} - (A_{k} - N_{k}))"
            known = f"pose proof (two_sided _ _ C_{k}) as C; pose proof Z_{k}; pose proof S_{k}; "
            inside = f"generalize (A_{k} - N_{k}); intros d; generalize A_{k}; intros a C B; interval with (i_prec 110)"
            near = f"assert ({_sides(change, difference)}) by (revert C B; {inside})"
            proof = f"{known}assert ({_sides(reach, f'A_{k}')}) as B by lra; {near}; lra"
        opened = f"pose proof T_at_{k} as T; unfold f_{n} in T"
        self.lemma(f"G_{k}", _sides(self.squared[k], f"W_{k} - N_{k} * N_{k}"), f"{opened}; {proof}")

    def gates(self, k: int) -> int:
        """The number of a wire's list of all tokens among those of its table."""
        return self.token_lists().index(self._tokens(k))

    def token_lists(self) -> list[bytes]:
        """The distinct lists of all tokens that heads attend to."""
        return list(dict.fromkeys(self._tokens(k) for k in sorted(self.found) if self.found[k].table is not None))

    def _tokens(self, k: int) -> bytes:
        """The keys of a wire's head and the slot of its values, which make the list of all tokens."""
        b, h, column = self.found[k].place
        head = self.source.weights.blocks[b].attention.heads[h]
        keys = (head.key.rows, head.key.cols, head.key.values, head.value.cols[column])
        return b"".join(array.tobytes() for array in keys)

    def _values(self, k: int, lemma: TableLemma, low: Fraction, high: Fraction) -> tuple[Fraction, Fraction]:
        """Lemma R: the range of a table's function."""
        n = lemma.number
        if lemma.function == SQUARE:
            found = Fraction(0), above(max(abs(low), abs(high)) ** 2, 12)
            proof = "split; nra"
        else:
            values = [lemma.meant(low + (high - low) * j / SAMPLES) for j in range(SAMPLES + 1)]
            spare = max((max(values) - min(values)) / 1000, lemma.error / 50)
            found = below(min(values) - spare, 8), above(max(values) + spare, 8)
            proof = "first [interval with (i_bisect u) | interval with (i_bisect u, i_taylor u, i_prec 90)]"
        statement = f"{literal(found[0])} <= M_{k} <= {literal(found[1])}"
        opened = f"pose proof Z_{k} as H; unfold M_{k}, f_{n}; revert H; generalize Q_{k}; intros u H; kinks"
        self.lemma(f"R_{k}", statement, f"{opened}; {proof}")
        return found

    def _relu(self, k: int, wire: Wire) -> None:
        low, high, shift = self._argument(k, wire)
        self.say(f"Definition M_{k} : R := Rmax 0 Q_{k}.")
        self.ranges[k] = max(low, Fraction(0)), max(high, Fraction(0))
        self.errors[k] = shift
        statement = f"{literal(self.ranges[k][0])} <= M_{k} <= {literal(self.ranges[k][1])}"
        self.lemma(f"R_{k}", statement, f"pose proof Z_{k}; unfold M_{k}, Rmax; destruct (Rle_dec 0 Q_{k}); lra")
        self.lemma(
            f"E_{k}", _sides(shift, f"W_{k} - M_{k}"), f"rewrite D_{k}; unfold M_{k}; apply relu_moved; exact S_{k}"
        )

    def _sides_of(self, k: int, wire: Wire) -> list[Side]:
        """A virtual wire as held, and its factors with their lemmas P and F."""
        assert wire.total is not None
        self.say(f"Definition W_{k} : R := {self.form(wire.total, self.held)}.")
        sides: list[Side] = []
        for name, linear in zip("ab", wire.arguments, strict=True):
            held, meant = f"{name}h_{k}", f"{name}_{k}"
            self.say(f"Definition {held} : R := {self.form(linear, self.held)}.")
            self.say(f"Definition {meant} : R := {self.form(linear, self.meant)}.")
            (low, high), error = self.ends(linear), above(self.carried(linear), 4)
            sides.append((low, high, error))
            known = self.known(i for i, _ in linear.terms)
            self.lemma(
                f"P{name}_{k}", f"{literal(low)} <= {meant} <= {literal(high)}", f"{known}unfold {meant}; {_LINEAR}"
            )
            self.lemma(f"F{name}_{k}", _sides(error, f"{held} - {meant}"), f"{known}{self.moved(linear, held, meant)}")
        return sides

    def _product(self, k: int, wire: Wire) -> None:
        sides = self._sides_of(k, wire)
        self.say(f"Definition M_{k} : R := a_{k} * b_{k}.")
        same = wire.arguments[0] == wire.arguments[1]
        low, high = _corners(sides[0], sides[1], same)
        better = self.better(k, "w", low, high, f"M_{k}")
        equal = f"assert (b_{k} = a_{k}) as B by reflexivity; rewrite B; " if same else ""
        proof = f"unfold M_{k}; {equal}first [nra | split; interval with (i_prec 80)]"
        if better:
            low, high, proof = better
        self.ranges[k] = low, high
        self.lemma(
            f"R_{k}", f"{literal(low)} <= M_{k} <= {literal(high)}", f"pose proof Pa_{k}; pose proof Pb_{k}; {proof}"
        )
        self._product_error(k, wire, sides)

    def _product_error(self, k: int, wire: Wire, sides: list[Side]) -> None:
        """Lemma E of a product: the identity of squares, each square's own error, and the factors' errors."""
        largest = [max(abs(low), abs(high)) for low, high, _ in sides]
        off = [error for _, _, error in sides]
        squares = dict(wire.parts)
        made = sum((abs(c) * self.squared[i] for i, c in squares.items()), Fraction(0))
        self.errors[k] = above(made + largest[0] * off[1] + largest[1] * off[0] + off[0] * off[1], 5)
        terms = [f"ah_{k} * bh_{k}", *(f"{literal(c)} * (W_{i} - N_{i} * N_{i})" for i, c in squares.items())]
        unfold = f"unfold W_{k}, ah_{k}, bh_{k}{''.join(f', N_{i}' for i in squares)}; clear; field; nonzero"
        numbers = " ".join(map(literal, (*off, *largest)))
        factors = f"product_error a_{k} b_{k} ah_{k} bh_{k} {numbers} Fa_{k} Fb_{k}"
        self.lemma(
            f"E_{k}",
            _sides(self.errors[k], f"W_{k} - M_{k}"),
            "".join(f"pose proof G_{i}; " for i in squares)
            + f"assert (W_{k} = {' + '.join(terms)}) by ({unfold}); pose proof Pa_{k}; pose proof Pb_{k}; "
            + f"pose proof ({factors} ltac:(apply Rabs_le; lra) ltac:(apply Rabs_le; lra)); unfold M_{k}; lra",
        )

    def _output(self, o: int) -> Fraction:
        """The lemmas of an output; its error."""
        linear, form = self.circuit.outputs[o], self.network.outputs[o]
        self.say(
            f"Definition out_{o} : R := {self.stored(form)}.",
            f"Definition near_{o} : R := {self.form(linear, self.held)}.",
            f"Definition meant_{o} : R := {self.form(linear, self.meant)}.",
        )
        rounded = self.close(f"out_{o}", linear, form, f"out_{o}", f"near_{o}")
        error = above(self.carried(linear) * Fraction(1000001, 1000000) + rounded, 6)
        rest = literal(error - rounded)
        first = f"pose proof C_out_{o} as C; " + ("apply two_sided in C; " if rounded else "rewrite C; ")
        moved = self.moved(linear, f"near_{o}", f"meant_{o}")
        self.lemma(
            f"E_out_{o}",
            f"Rabs (out_{o} - meant_{o}) <= {literal(error)}",
            f"{self.known(i for i, _ in linear.terms)}{first}"
            f"assert (- {rest} <= near_{o} - meant_{o} <= {rest}) by ({moved}); apply Rabs_le; lra",
        )
        return error


def _corners(left: Side, right: Side, same: bool) -> tuple[Fraction, Fraction]:
    """The range of a product from those of its factors, or of a square."""
    products = [a * b for a in left[:2] for b in right[:2]]
    low = min(products)
    if same:
        low = Fraction(0) if left[0] <= 0 <= left[1] else min(left[0] ** 2, left[1] ** 2)
    return below(low, 20), above(max(products), 20)
