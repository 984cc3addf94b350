"""Linear forms of wires, in Coq: what is known of each wire, and the lemmas that every kind of wire needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

from transformula.coq.bisected_ranges import easy_range, gathered
from transformula.coq.coq_source import ONE, LinearForm, Source, WireForm, fraction
from transformula.coq.coq_statement import names_of
from transformula.coq.coq_terms import above, below, exact, literal, term
from transformula.coq.sharp_lemmas import SharpLemma
from transformula.coq.table_lemmas import TableLemma, TableLemmas
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.syntax.parsing import parse

#: Smallest bound that is written for a difference of constants.
TINY = Fraction(1, 10**30)


def number(expr: Expr) -> Fraction:
    """A constant's value, nearly."""
    return exact(enclose(expr))


class CircuitWires:
    """The range of each wire as meant, and its error."""

    def __init__(self, source: Source, slack: Fraction) -> None:
        self.source, self.circuit, self.network = source, source.circuit, source.network
        self.variables = names_of(source)
        self.environment = dict(zip(source.formula.box.variables, self.variables, strict=True))
        self.tables = TableLemmas(slack, SharpLemma if source.is_partition else TableLemma)
        self.lemma_of: dict[int, TableLemma] = {}
        self.index, self.place = self._matched()
        self.found = {self.index[self.inputs + i]: wire for i, wire in enumerate(self.network.wires)}
        self.restart()

    @property
    def inputs(self) -> int:
        """How many inputs there are."""
        return len(self.variables)

    @property
    def fold_units(self) -> set[int]:
        """The ReLUs that lengths are made of."""
        return {k for wire in self.circuit.wires if wire.is_norm for k, _ in wire.parts}

    def restart(self) -> None:
        """Forget the wires' bounds and lines, not the tables' ranges."""
        self.lines: list[str] = []
        self.ranges: dict[int, tuple[Fraction, Fraction]] = {}
        self.errors: dict[int, Fraction] = {}
        self.own: dict[int, Fraction] = {}
        self.rounded: dict[int, Fraction] = {}
        self.squared: dict[int, Fraction] = {}
        self.sized: set[int] = set()
        self.irrational: set[int] = set()
        box = self.source.formula.box
        for k, (low, high) in enumerate(zip(box.lower, box.upper, strict=True)):
            self.ranges[k] = (
                below(number(low), 25) if low.number is None else low.number,
                above(number(high), 25) if high.number is None else high.number,
            )
            self.errors[k] = Fraction(0)
            if None in (low.number, high.number):
                self._rational_range(k, low, high)

    def _rational_range(self, k: int, low: Expr, high: Expr) -> None:
        """Lemma R of an input whose ends are irrational, a little outside of them."""
        name, (a, b) = self.variables[k], map(literal, self.ranges[k])
        inside = f"assert ({a} <= {term(low, {})} /\\ {term(high, {})} <= {b}) by (split; interval with (i_prec 110))"
        self.lemma(f"R_{k}", f"{a} <= {name} <= {b}", f"pose proof I_{k}; {inside}; lra")
        self.irrational.add(k)

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
        if any(c.number is None for c in (linear.constant, *dict(linear.terms).values())):
            low, high = low - TINY * abs(low), high + TINY * abs(high)  # Interval rounds what lra adds up exactly
        return below(low, 20), above(high, 20)

    def carried(self, linear: LinearForm) -> Fraction:
        """The error of a form, from those of its wires."""
        return sum((abs(number(c)) * self.errors[k] for k, c in linear.terms), Fraction(0))

    def known(self, wires: Iterable[int]) -> str:
        """Ranges and errors of wires as hypotheses, and rational ranges of inputs."""
        given = sorted(set(wires))
        ends = "".join(f"pose proof R_{k}; " for k in given if k in self.irrational)
        return ends + "".join(f"pose proof R_{k}; pose proof E_{k}; " for k in given if k >= self.inputs)

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
        return f"{same}; {each} first [lra | interval with (i_prec 110)]"

    def unfolded_meanings(self, start: str, last: int) -> str:
        """Unfold what is meant, from wire ``last`` down to the inputs."""
        names = [start]
        for j in (j for j in range(last, self.inputs - 1, -1) if j not in self.fold_units):
            names += [f"M_{j}"] + ([f"a_{j}", f"b_{j}"] if self.circuit.wires[j].total is not None else [f"Q_{j}"])
        functions = [f"f_{lemma.number}" for lemma in self.tables]
        return f"unfold {', '.join(dict.fromkeys(names))}" + (f"; unfold {', '.join(functions)}" if functions else "")

    def better(
        self, k: int, kind: str, low: Fraction, high: Fraction, name: str
    ) -> tuple[Fraction, Fraction, str] | None:
        """A narrower range from an expression of the inputs in the evidence, with its proof."""
        for what, text in self.source.claims(k):
            if what != kind or "#" in text:
                continue
            ranges = self.source.walk.ranges
            a, b = map(Fraction, (ranges.arguments if kind == "u" else ranges.values)[k])
            expr = gathered(parse(text, self.source.formula.box.variables))
            found = easy_range(expr, self.source.ends, (a, b), (low, high))
            if found is None:
                return None
            cuts = ", ".join(f"i_bisect {self.environment[v]}" for v in sorted(expr.names))
            unfold = self.unfolded_meanings(name, k if kind == "w" else k - 1)
            same = f"replace {name} with ({term(expr, self.environment)}) by ({unfold}; meaning)"
            cut = f"interval with ({cuts}, i_depth 40, i_prec 53)"
            cases = f"cases_of_relu; split; first [lra | {cut} | nra]"
            return *found, f"{same}; first [kinks; {cut} | {cases}]"
        return None


def _sum(terms: list[tuple[str, str]], constant: str) -> str:
    parts = [wire if c == "1" else f"{c} * {wire}" for wire, c in terms if c != "0"]
    return " + ".join(parts + ([constant] if constant != "0" else [])) or "0"
