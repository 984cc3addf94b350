"""Proof.v of a softmax model: every wire of the circuit in turn is near what it is meant to be, and the output is the formula.

Of wire k, W_k is what the model holds and M_k what is meant; A_k is a table's argument as stored, N_k the circuit's form of
it in the wires as held, Q_k in the wires as meant. Lemmas by letter: C (A = N up to rounded constants), Z (range of Q),
S (A near Q), G (a square near its argument's square), R (range of M), E (W near M), P and F (ranges and errors of factors).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

from transformula.coq.coq_source import ONE, SQUARE, LinearForm, Source, Wire, WireForm, fraction
from transformula.coq.coq_statement import names_of
from transformula.coq.coq_terms import above, below, exact, literal, term
from transformula.coq.table_lemmas import SAMPLES, TableLemma, TableLemmas
from transformula.errors import NotProvenError
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.syntax.parsing import parse

#: What tokens behind a gate may add to a table, as Attention.v proves.
LEAK = Fraction(1, 10**25)
#: Smallest bound that is written for a difference of constants.
TINY = Fraction(1, 10**30)
_LINEAR = "first [lra | interval with (i_prec 110)]"


def number(expr: Expr) -> Fraction:
    """A constant's value, nearly."""
    return exact(enclose(expr))


class Wires:
    """What is known of each wire: its range as meant, and its error."""

    def __init__(self, source: Source, slack: Fraction) -> None:
        self.source, self.circuit, self.network = source, source.circuit, source.network
        self.variables = names_of(source)
        self.environment = dict(zip(source.formula.box.variables, self.variables, strict=True))
        self.tables = TableLemmas(slack)
        self.lemma_of: dict[int, TableLemma] = {}
        self.index, self.place = self._matched()
        self.found = {self.index[self.inputs + i]: wire for i, wire in enumerate(self.network.wires)}
        self.restart()

    @property
    def inputs(self) -> int:
        """How many inputs there are."""
        return len(self.variables)

    def restart(self) -> None:
        """Forget the wires' bounds and lines, not the tables' ranges."""
        self.lines: list[str] = []
        self.ranges: dict[int, tuple[Fraction, Fraction]] = {}
        self.errors: dict[int, Fraction] = {}
        self.own: dict[int, Fraction] = {}
        self.sized: set[int] = set()
        box = self.source.formula.box
        for k, (low, high) in enumerate(zip(box.lower, box.upper, strict=True)):
            ends = below(number(low), 25), above(number(high), 25)
            self.ranges[k] = low.number if low.number is not None else ends[0], high.number or ends[1]
            if high.number is not None:
                self.ranges[k] = self.ranges[k][0], high.number
            self.errors[k] = Fraction(0)

    def _matched(self) -> tuple[dict[int, int], dict[int, int]]:
        """The circuit's number of each wire of the weights, and where Coq's reader puts it."""
        held = {(w.function is None, w.place): k for k, w in enumerate(self.circuit.wires) if w.place}
        starts, count = [], self.inputs + 1
        for block in self.source.weights.blocks:
            columns = [len(head.value.rows) for head in block.attention.heads]
            offsets = [count + sum(columns[:h]) for h in range(len(columns))]
            count += sum(columns)
            starts.append((offsets, count))
            layer = block.feed_forward
            count += 0 if layer is None else 1 + int(max(layer.output.cols.tolist(), default=-1))
        index: dict[int, int] = {ONE: ONE} | {i: i for i in range(self.inputs)}
        place: dict[int, int] = {}
        for i, wire in enumerate(self.network.wires):
            b, first, second = wire.place
            k = index[self.inputs + i] = held[wire.table is None, wire.place]
            place[k] = starts[b][1] + first if wire.table is None else starts[b][0][first] + second
        return index, place

    def say(self, *lines: str) -> None:
        """Add lines to the proof."""
        self.lines += lines

    def lemma(self, name: str, statement: str, proof: str) -> None:
        """Add a lemma."""
        self.say(f"Lemma {name} : {statement}.", f"Proof. {proof}. Qed.")

    def held(self, k: int) -> str:
        """A wire as the model holds it."""
        return self.variables[k] if k < self.inputs else f"W_{k}"

    def meant(self, k: int) -> str:
        """A wire as it is meant."""
        return self.variables[k] if k < self.inputs else f"M_{k}"

    def form(self, linear: LinearForm, what: Callable[[int], str]) -> str:
        """A linear form of the circuit."""
        return _sum([(what(k), term(c, {})) for k, c in linear.terms], term(linear.constant, {}))

    def stored(self, form: WireForm) -> str:
        """A linear form of the weights."""
        terms = [(self.index[k], literal(fraction(t.coefficient))) for k, t in form.terms.items()]
        return _sum([(self.held(k), c) for k, c in terms if k != ONE], next((c for k, c in terms if k == ONE), "0"))

    def ends(self, linear: LinearForm) -> tuple[Fraction, Fraction]:
        """The range of a form of meant wires, from theirs."""
        low = high = number(linear.constant)
        for k, c in linear.terms:
            corners = [number(c) * end for end in self.ranges[k]]
            low, high = low + min(corners), high + max(corners)
        return below(low, 20), above(high, 20)

    def carried(self, linear: LinearForm) -> Fraction:
        """The error of a form, from those of its wires."""
        return sum((abs(number(c)) * self.errors[k] for k, c in linear.terms), Fraction(0))

    def known(self, wires: Iterable[int]) -> str:
        """Ranges and errors of wires as hypotheses."""
        real = sorted({k for k in wires if k >= self.inputs})
        return "".join(f"pose proof R_{k}; pose proof E_{k}; " for k in real)

    def unfold_virtual(self) -> str:
        """Unfold the products that are defined so far."""
        virtual = [k for k, w in enumerate(self.circuit.wires) if w.total is not None and k in self.errors]
        return f"unfold {', '.join(f'W_{k}' for k in reversed(virtual))}; " if virtual else ""

    def close(self, name: str, linear: LinearForm, form: WireForm, left: str, right: str) -> Fraction:
        """Lemma C: the stored form is the circuit's up to what is returned; they differ in constants such as pi."""
        meant, _ = self.circuit.written_out(linear)
        have = {self.index[i]: fraction(t.coefficient) for i, t in form.terms.items()}
        want: dict[int, Expr] = dict(meant.terms) | {ONE: meant.constant}
        if all(c.number is not None for c in want.values()):
            self.lemma(f"C_{name}", f"{left} = {right}", f"unfold {left}, {right}; {self.unfold_virtual()}lra")
            return Fraction(0)
        off, parts = Fraction(0), []
        for i in sorted({*have, *want}):
            size = Fraction(1) if i == ONE else max(map(abs, self.ranges[i])) + self.errors[i]
            off += abs(have.get(i, Fraction(0)) - (number(want[i]) if i in want else 0)) * size
            difference = f"({literal(have.get(i, Fraction(0)))} - {term(want[i], {}) if i in want else '0'})"
            parts.append(difference if i == ONE else f"{difference} * {self.held(i)}")
        wires = [i for i in {*have, *want} if i >= self.inputs]
        for i in wires:
            self._size(i)
        bound = max(above(off * Fraction(101, 100), 2), TINY)
        same = f"unfold {left}, {right}; {self.unfold_virtual()}field; nonzero"
        self.lemma(
            f"C_{name}",
            f"Rabs ({left} - {right}) <= {literal(bound)}",
            "".join(f"pose proof B_{i}; " for i in wires)
            + f"replace ({left} - {right}) with ({' + '.join(parts)}) by ({same}); interval with (i_prec 160)",
        )
        return bound

    def _size(self, k: int) -> None:
        """Lemma B: the range of a wire as held."""
        if k not in self.sized:
            self.sized.add(k)
            low, high = self.ranges[k][0] - self.errors[k], self.ranges[k][1] + self.errors[k]
            self.lemma(f"B_{k}", f"{literal(low)} <= W_{k} <= {literal(high)}", f"{self.known([k])}lra")

    def moved(self, linear: LinearForm, left: str, right: str) -> str:
        """A tactic for left - right, where both are one form, of wires as held and as meant."""
        if all(c.number is not None for _, c in linear.terms):
            return f"unfold {left}, {right}; lra"
        own = [(i, term(c, {})) for i, c in linear.terms if i >= self.inputs]
        total = " + ".join(f"{c} * (W_{i} - M_{i})" for i, c in own) or "0"
        each = " ".join(f"generalize E_{i}; generalize (W_{i} - M_{i}); intros D{i} ?;" for i, _ in own)
        same = f"replace ({left} - {right}) with ({total}) by (unfold {left}, {right}; ring)"
        return f"{same}; {each} interval with (i_prec 110)"

    def unfolded_meanings(self, start: str, last: int) -> str:
        """Unfold what is meant, from wire ``last`` down to the inputs."""
        names = [start]
        for j in range(last, self.inputs - 1, -1):
            names += [f"M_{j}"] + ([f"a_{j}", f"b_{j}"] if self.circuit.wires[j].total is not None else [f"Q_{j}"])
        functions = [f"f_{lemma.number}" for lemma in self.tables]
        return f"unfold {', '.join(dict.fromkeys(names))}" + (f"; unfold {', '.join(functions)}" if functions else "")

    def better(self, k: int, kind: str, low: Fraction, high: Fraction, name: str) -> tuple[Fraction, Fraction, str] | None:
        """A narrower range from an expression of the inputs in the evidence, with its proof."""
        for what, text in self.source.claims(k):
            if what != kind or "#" in text:
                continue
            ranges = self.source.walk.ranges
            a, b = map(Fraction, (ranges.arguments if kind == "u" else ranges.values)[k])
            a, b = below(a - (b - a) / 200, 8), above(b + (b - a) / 200, 8)
            if a <= low and high <= b:
                return None
            expr = parse(text, self.source.formula.box.variables)
            cuts = ", ".join(f"i_bisect {self.environment[v]}" for v in sorted(expr.names))
            unfold = self.unfolded_meanings(name, k if kind == "w" else k - 1)
            same = f"replace {name} with ({term(expr, self.environment)}) by ({unfold}; meaning)"
            return max(a, low), min(b, high), f"{same}; interval with ({cuts}, i_depth 40, i_prec 53)"
        return None


def _sum(terms: list[tuple[str, str]], constant: str) -> str:
    parts = [wire if c == "1" else f"{c} * {wire}" for wire, c in terms if c != "0"]
    return " + ".join(parts + ([constant] if constant != "0" else [])) or "0"


def _sides(bound: Fraction, what: str) -> str:
    return f"- {literal(bound)} <= {what} <= {literal(bound)}"


class CircuitTheorem(Wires):
    """The proof's lines, wire by wire."""

    def run(self) -> None:
        """All wires and outputs, again until no table's range grows any more."""
        for _ in range(6):
            before = [(t.low, t.high, t.error, t.slope) for t in self.tables]
            self.restart()
            for k, wire in enumerate(self.circuit.wires):
                if wire.total is not None:
                    self._product(k, wire)
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
        rounded = self.close(str(k), linear, form, f"A_{k}", f"N_{k}")
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
        exactly = f"rewrite C_{k}; unfold N_{k}, Q_{k}; lra"
        inside = f"{self.known(i for i, _ in linear.terms)}{first}{moved}; lra"
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
        n, own = lemma.number, above(lemma.error + LEAK, 3)
        self.own[k] = own
        self.say(f"Definition M_{k} : R := f_{n} Q_{k}.")
        at_table = f"pose proof Z_{k}; pose proof S_{k}; pose proof (K_{n}_{self.gates(k)} A_{k} ltac:(lra)) as T"
        self.lemma(f"T_at_{k}", _sides(own, f"W_{k} - f_{n} A_{k}"), f"{at_table}; rewrite D_{k}; lra")
        self.ranges[k] = self._values(k, lemma, low, high)
        square = wire.function == SQUARE
        if square:
            self.lemma(f"G_{k}", _sides(own, f"W_{k} - A_{k} * A_{k}"), f"pose proof T_at_{k} as T; unfold f_{n} in T; lra")
        if not shift:
            self.errors[k] = own
            proof = f"assert (A_{k} = Q_{k}) as A by (pose proof S_{k}; lra); pose proof T_at_{k} as T; rewrite A in T; exact T"
        elif square:
            change = above(2 * (max(abs(low), abs(high)) + shift) * shift * Fraction(102, 100), 4)
            self.errors[k] = own + change
            between = f"replace (A_{k} * A_{k} - Q_{k} ^ 2) with ((A_{k} - Q_{k}) * (2 * Q_{k} + (A_{k} - Q_{k}))) by ring"
            inside = f"{between}; revert S; generalize (A_{k} - Q_{k}); intros d S; interval with (i_prec 60)"
            near = f"assert ({_sides(change, f'A_{k} * A_{k} - Q_{k} ^ 2')}) by ({inside})"
            proof = f"pose proof G_{k}; pose proof Z_{k}; pose proof S_{k} as S; unfold f_{n}; {near}; lra"
        else:
            self.errors[k] = above(own + lemma.slope * shift, 4)
            moved = f"pose proof (L_{n} A_{k} Q_{k} ltac:(lra) ltac:(lra)) as L; apply two_sided in L"
            size = f"assert (Rabs (A_{k} - Q_{k}) <= {literal(shift)}) by (apply Rabs_le; lra)"
            proof = f"pose proof Z_{k}; pose proof S_{k}; pose proof T_at_{k}; {moved}; {size}; nra"
        self.lemma(f"E_{k}", _sides(self.errors[k], f"W_{k} - M_{k}"), f"unfold M_{k}; {proof}")

    def gates(self, k: int) -> int:
        """The number of a wire's list of all tokens among those of its table."""
        return self.token_lists().index(self._tokens(k))

    def token_lists(self) -> list[bytes]:
        """The distinct lists of all tokens that heads attend to."""
        return list(dict.fromkeys(self._tokens(k) for k in sorted(self.found) if self.found[k].table is not None))

    def _tokens(self, k: int) -> bytes:
        table = self.found[k].table
        assert table is not None
        return b"".join(array.tobytes() for array in vars(table).values())

    def _values(self, k: int, lemma: TableLemma, low: Fraction, high: Fraction) -> tuple[Fraction, Fraction]:
        """Lemma R: the range of a table's function."""
        n = lemma.number
        if lemma.function == SQUARE:
            found = Fraction(0), above(max(abs(low), abs(high)) ** 2, 12)
            proof = "split; nra"
        else:
            values = [lemma.meant(low + (high - low) * j / SAMPLES) for j in range(SAMPLES + 1)]
            spare = (max(values) - min(values)) / 1000
            found = below(min(values) - spare, 8), above(max(values) + spare, 8)
            proof = "interval with (i_bisect u)"
        statement = f"{literal(found[0])} <= M_{k} <= {literal(found[1])}"
        opened = f"pose proof Z_{k} as H; unfold M_{k}, f_{n}; revert H; generalize Q_{k}; intros u H"
        self.lemma(f"R_{k}", statement, f"{opened}; {proof}")
        return found

    def _relu(self, k: int, wire: Wire) -> None:
        low, high, shift = self._argument(k, wire)
        self.say(f"Definition M_{k} : R := Rmax 0 Q_{k}.")
        self.ranges[k] = max(low, Fraction(0)), max(high, Fraction(0))
        self.errors[k] = shift
        statement = f"{literal(self.ranges[k][0])} <= M_{k} <= {literal(self.ranges[k][1])}"
        self.lemma(f"R_{k}", statement, f"pose proof Z_{k}; unfold M_{k}, Rmax; destruct (Rle_dec 0 Q_{k}); lra")
        self.lemma(f"E_{k}", _sides(shift, f"W_{k} - M_{k}"), f"rewrite D_{k}; unfold M_{k}; apply relu_moved; exact S_{k}")

    def _product(self, k: int, wire: Wire) -> None:
        assert wire.total is not None
        self.say(f"Definition W_{k} : R := {self.form(wire.total, self.held)}.")
        sides: list[tuple[Fraction, Fraction, Fraction]] = []
        for name, linear in zip("ab", wire.arguments, strict=True):
            held, meant = f"{name}h_{k}", f"{name}_{k}"
            self.say(f"Definition {held} : R := {self.form(linear, self.held)}.")
            self.say(f"Definition {meant} : R := {self.form(linear, self.meant)}.")
            (low, high), error = self.ends(linear), above(self.carried(linear), 4)
            sides.append((low, high, error))
            known = self.known(i for i, _ in linear.terms)
            self.lemma(f"P{name}_{k}", f"{literal(low)} <= {meant} <= {literal(high)}", f"{known}unfold {meant}; {_LINEAR}")
            self.lemma(f"F{name}_{k}", _sides(error, f"{held} - {meant}"), f"{known}{self.moved(linear, held, meant)}")
        self.say(f"Definition M_{k} : R := a_{k} * b_{k}.")
        same = wire.arguments[0] == wire.arguments[1]
        low, high = _corners(sides[0], sides[1], same)
        better = self.better(k, "w", low, high, f"M_{k}")
        equal = f"assert (b_{k} = a_{k}) as B by reflexivity; rewrite B; " if same else ""
        proof = f"unfold M_{k}; {equal}first [nra | split; interval with (i_prec 80)]"
        if better:
            low, high, proof = better
        self.ranges[k] = low, high
        self.lemma(f"R_{k}", f"{literal(low)} <= M_{k} <= {literal(high)}", f"pose proof Pa_{k}; pose proof Pb_{k}; {proof}")
        self._product_error(k, wire, sides)

    def _product_error(self, k: int, wire: Wire, sides: list[tuple[Fraction, Fraction, Fraction]]) -> None:
        """Lemma E of a product: the identity of squares, each square's own error, and the factors' errors."""
        largest = [max(abs(low), abs(high)) for low, high, _ in sides]
        off = [error for _, _, error in sides]
        squares = dict(wire.parts)
        made = sum((abs(c) * self.own[i] for i, c in squares.items()), Fraction(0))
        self.errors[k] = above(made + largest[0] * off[1] + largest[1] * off[0] + off[0] * off[1], 5)
        terms = [f"ah_{k} * bh_{k}", *(f"{literal(c)} * (W_{i} - A_{i} * A_{i})" for i, c in squares.items())]
        rewrites = " ".join(f"rewrite C_{i};" for i in squares)
        unfold = f"unfold W_{k}, ah_{k}, bh_{k}{''.join(f', N_{i}' for i in squares)}; clear; field"
        numbers = " ".join(map(literal, (*off, *largest)))
        factors = f"product_error a_{k} b_{k} ah_{k} bh_{k} {numbers} Fa_{k} Fb_{k}"
        self.lemma(
            f"E_{k}",
            _sides(self.errors[k], f"W_{k} - M_{k}"),
            "".join(f"pose proof G_{i}; " for i in squares)
            + f"assert (W_{k} = {' + '.join(terms)}) by ({rewrites} {unfold}); pose proof Pa_{k}; pose proof Pb_{k}; "
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
        error = above(self.carried(linear) * Fraction(10001, 10000) + rounded, 4)
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


def _corners(
    left: tuple[Fraction, Fraction, Fraction], right: tuple[Fraction, Fraction, Fraction], same: bool
) -> tuple[Fraction, Fraction]:
    """The range of a product from those of its factors, or of a square."""
    products = [a * b for a in left[:2] for b in right[:2]]
    low = min(products)
    if same:
        low = Fraction(0) if left[0] <= 0 <= left[1] else min(left[0] ** 2, left[1] ** 2)
    return below(low, 20), above(max(products), 20)
