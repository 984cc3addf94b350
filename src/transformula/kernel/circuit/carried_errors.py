"""Proven ranges of wires, and errors and rounding carried through linear forms of them.

*Ranges.* A wire's argument is a linear form of earlier wires, so its range follows from theirs; that forgets what
they have in common. Evidence may name an expression in the inputs, in earlier wires (#w3) and in quantities defined
on the way (#q0) that has the same normal form: then its range over the given parts counts as well. A sign that is
proven cuts a range too. All ranges are floats, rounded outwards.

*Errors.* A form Σ c_w·slot_w + c_0 is read where Σ p_w M_w + p_0 is meant, and slot w holds M_w up to e_w: it is off
by at most

    Σ |c_w| e_w + Σ |c_w − p_w| sup|M_w| + |c_0 − p_0|.

Rounding is carried the same way, with γ_n of every term for the n roundings it meets (`network.roundings`). Lengths
made of ReLUs bring their own error along (`stored_circuit`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from flint import arb, fmpq

from transformula.kernel.circuit.error_flow import NO_FUZZ, ErrorFlow, FormEnds, Fuzz
from transformula.kernel.derivations.meanings import Meanings
from transformula.kernel.enclosures.balls import enclose, float_above, float_below, round_up, to_fmpq
from transformula.kernel.enclosures.expression_ranges import range_on
from transformula.kernel.enclosures.intervals import Pair, length, squared, times
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.enclosures.taylor_models import Floats
from transformula.kernel.exceptions import FormulaError, RefutedError
from transformula.kernel.folder.evidence import Evidence, Meant
from transformula.kernel.rounding.formats import FloatFormat, check_size
from transformula.kernel.structures.network import ONE, Term, WireForm
from transformula.kernel.structures.stored_circuit import Circuit, LinearForm, Wire
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, variables_of
from transformula.kernel.syntax.parsing import parse
from transformula.kernel.tables.table_slopes import Cells

Interval = tuple[float, float]


class WireRanges:
    """``values`` has a range for every wire, ``arguments`` for every table of one axis and every ReLU."""

    def __init__(self, circuit: Circuit, meanings: Meanings, evidence: Evidence) -> None:
        self.circuit = circuit
        self.meanings = meanings
        self.evidence = evidence
        self.values: dict[int, Interval] = {}
        self.arguments: dict[int, Interval] = {}
        #: How large the lengths are that folds measure, by their sides.
        self.lengths: dict[tuple[LinearForm, LinearForm], float] = {}
        #: Ends of every name an expression of the evidence may use.
        self.names: dict[str, tuple[fmpq, fmpq]] = {}
        region = meanings.region
        for name, low, high in zip(region.names, region.lower, region.upper, strict=True):
            self.names[name] = low, high

    def add(self, k: int) -> None:
        """Bound the next wire's argument, and its value unless it is a table."""
        wire = self.circuit.wires[k]
        if not wire.arguments:
            lower, upper = self.meanings.region.floats
            self.values[k] = float(lower[k]), float(upper[k])
            self._name(k)
            return
        if wire.total is not None:
            sides = [_pair(self._sum(argument)) for argument in wire.arguments]
            same = wire.arguments[0] == wire.arguments[1]
            found = length(*sides) if wire.is_norm else squared(sides[0]) if same else times(*sides)
            ends = float(np.min(found[0])), float(np.max(found[1]))
            self.found(k, _pair(self._claimed(k, "w", ends)))
        elif len(wire.arguments) == 1:
            ends = self._claimed(k, "u", self._within(wire, self._sum(wire.arguments[0])))
            low, high = self.arguments[k] = self._cut(k, ends)
            if wire.function is None:
                self.found(k, _pair((max(low, 0.0), max(high, 0.0))))

    def found(self, k: int, pair: Pair) -> Interval:
        """Take down a wire's value."""
        self.values[k] = float(np.min(pair[0])), float(np.max(pair[1]))
        self._name(k)
        return self.values[k]

    def meant(self, k: int) -> Meant:
        """The meant range of a table's argument."""
        exact = self._exact(self.circuit.wires[k].arguments[0])
        if exact is None:
            return Meant(self.arguments[k])
        return Meant(self.arguments[k], (exact, self.meanings.defined_nodes(k)))

    def _exact(self, linear: LinearForm) -> tuple[fmpq, fmpq] | None:
        """The range that a rational form of inputs has if these have rational ends."""
        box = self.meanings.formula.box
        if linear.constant.number is None:
            return None
        low = high = to_fmpq(linear.constant.number)
        for i, c in linear.terms:
            ends = (box.lower[i].number, box.upper[i].number) if i < box.dimension else (None, None)
            if c.number is None or ends[0] is None or ends[1] is None:
                return None
            corners = to_fmpq(c.number * ends[0]), to_fmpq(c.number * ends[1])
            low, high = low + min(corners), high + max(corners)
        return low, high

    def _name(self, k: int) -> None:
        low, high = self.values[k]
        if math.isfinite(high - low):
            self.names[f"#w{k}"] = to_fmpq(Fraction(low)), to_fmpq(Fraction(high))

    def _sum(self, linear: LinearForm) -> Interval:
        exact = self._exact(linear)
        if exact is not None:
            return float_below(exact[0]), float_above(exact[1])
        low, high = FormEnds(linear).of({k: _pair(self.values[k]) for k, _ in linear.terms})
        factors = [linear.constant.number, *(c.number for _, c in linear.terms)]
        whole = all(f is not None and f >= 0 for f in factors) and all(self.values[k][0] >= 0 for k, _ in linear.terms)
        return (max(float(low), 0.0) if whole else float(low)), float(high)  # a sum of nonnegative terms is one

    def _within(self, wire: Wire, ends: Interval) -> Interval:
        """No more than its part of the length that it helps to measure."""
        if wire.inside is None:
            return ends
        left, right, part = wire.inside
        if (left, right) not in self.lengths:  # all units of a length have the same two
            self.lengths[left, right] = float(length(_pair(self._sum(left)), _pair(self._sum(right)))[1])
        most = math.nextafter(part * self.lengths[left, right], math.inf)
        return max(ends[0], -most), min(ends[1], most)

    def _cut(self, k: int, ends: Interval) -> Interval:
        """Never below or above zero, if that is proven."""
        sign = self.meanings.argument_sign(k) if ends[0] < 0 < ends[1] else 0
        return (0.0 if sign > 0 else ends[0]), (0.0 if sign < 0 else ends[1])

    def _claimed(self, k: int, of: str, ends: Interval) -> Interval:
        """The range of a wire's argument (u) or value (w), with what evidence adds to it."""
        for name, text, cut in self.evidence.ranges(k, of, ends, self.meanings.region, self.meanings.known):
            try:
                expr = parse(text, self.names)
            except FormulaError as error:
                raise RefutedError(f"a range in evidence.json cannot be read: {error}") from None
            low, high = self._range(expr, cut)
            if name.startswith("#q") and name not in self.names:
                self.meanings.define(name, expr)
                self.names[name] = to_fmpq(Fraction(low)), to_fmpq(Fraction(high))
            elif name == of:
                self.meanings.check_same(k, of, expr)
                ends = max(ends[0], low), min(ends[1], high)
                if not ends[0] <= ends[1]:
                    raise RefutedError("two proven ranges of a wire do not meet")
            else:
                raise RefutedError(f"evidence.json bounds {name[:40]!r}, which is not asked for here")
        return ends

    def _range(self, expr: Expr, cut: Any) -> Interval:
        names = sorted(variables_of(expr))
        region = Region(tuple(names), *(tuple(self.names[n][end] for n in names) for end in (0, 1)))
        low, high = range_on(expr, region, cut, self.meanings.known)
        if not math.isfinite(high - low):
            raise RefutedError("a range in evidence.json is not finite")
        return low, high


def _pair(ends: Interval) -> Pair:
    return np.asarray(ends[0]), np.asarray(ends[1])


#: Numbers in one chunk of parts of the box, some 50 ms of work.
_TOGETHER = 300_000


class Relative(NamedTuple):
    """A value off by a relative (1 + d)ⁿ with |d| ≤ u for n roundings of the whole, plus ``lost`` to underflow.

    An input is, with one. If û = u(1 + δ) + e, ReLU(û) is ReLU(u)(1 + δ) up to |e|. A sum of nonnegative terms
    that are all such is within the largest of their factors; a multiple of one of them is such whatever its sign.
    """

    roundings: int
    lost: arb


@dataclass(frozen=True)
class Value:
    """A wire: |M| ≤ size, held up to ``error``, computed up to ``rounding``.

    ``ends`` enclose what it holds in exact arithmetic. ``nonnegative``: never below 0, not even in floats, as a ReLU,
    whatever its error, and an input that is meant to be so, for rounding to nearest keeps the sign. ``made``
    and ``rounded`` are what the wire itself adds to error and rounding, at its argument and at its value;
    ``cells`` bound a table's function on ``reach``, where its argument can be, exact or computed.
    """

    size: arb
    error: arb
    rounding: arb
    ends: tuple[arb, arb]
    made: Fuzz = NO_FUZZ
    rounded: Fuzz = NO_FUZZ
    cells: Cells | None = None
    reach: tuple[float, float] | None = None
    nonnegative: bool = False
    relative: Relative | None = None


@dataclass(frozen=True)
class Argument:
    """A linear form against what is meant: its error and rounding, and what part is not the wires'.

    ``nonnegative`` if it adds up such wires with positive factors, on every path: then it is so too.
    """

    error: arb
    rounding: arb
    made: arb
    rounded: arb
    ends: tuple[arb, arb]
    nonnegative: bool = False
    relative: Relative | None = None


class Carrier:
    """The wires bounded so far; inputs are exact and rounded once."""

    def __init__(self, form: FloatFormat, circuit: Circuit, meanings: Meanings, evidence: Evidence) -> None:
        self.form = form
        self.circuit = circuit
        self.meanings = meanings
        self.evidence = evidence
        self.ranges = WireRanges(circuit, meanings, evidence)
        self.values: dict[int, Value] = {}
        self.norms: dict[int, tuple[Fuzz, Fuzz]] = {}
        box = meanings.formula.box
        #: Below the smallest normal number results may be flushed to zero.
        self.flush = form.normal.max(form.tiny)
        for k in range(box.dimension):
            ends = enclose(box.lower[k]).lower(), enclose(box.upper[k]).upper()
            wrong = box.magnitude(k) * form.unit_roundoff + form.tiny
            fuzz = Fuzz(0.0, round_up(wrong))
            sign = bool(ends[0] >= 0)
            once = Relative(1, self.flush)
            self.values[k] = Value(box.magnitude(k), arb(0), wrong, ends, NO_FUZZ, fuzz, None, None, sign, once)
        #: wire of the weights → wire of the circuit
        self.index = {ONE: ONE} | {k: k for k in range(box.dimension)}

    def argument(self, linear: LinearForm, form: WireForm) -> Argument:
        """A linear form of the weights against the one that is meant."""
        slots, norms = self.circuit.written_out(linear)
        meant = dict(slots.terms)
        terms = {self.index[i]: term for i, term in form.terms.items()}
        made = _gap(form.terms[ONE].coefficient if ONE in form.terms else fmpq(0), slots.constant)
        error = sum((abs(enclose(c)) * arb(self.norm(k)[0].value) for k, c in norms), arb(0))
        low = high = arb(0)
        rounding = rounded = arb(0)
        for k in terms.keys() | meant.keys():
            if k != ONE and k not in self.values:
                raise RefutedError(f"wire {k} is read before it is computed")
            term = terms.get(k)
            c = arb(term.coefficient if term else fmpq(0))
            if k == ONE:
                low, high = low + c, high + c
            else:
                value = self.values[k]
                wrong = _gap(term.coefficient if term else fmpq(0), meant.get(k, ex.number(0)))
                made += wrong * (value.size + value.error)
                rounded += wrong * value.rounding
                error += abs(c) * value.error
                rounding += abs(c) * value.rounding
                products = c * value.ends[0], c * value.ends[1]
                low, high = low + products[0].min(products[1]), high + products[0].max(products[1])
            if term:
                rounded += self.form.gamma(term.roundings) * arb(term.size) * self.reach(k)
        rounded += 2 * arb(form.underflow) * self.form.tiny  # later roundings do not double what underflows
        self.check_overflow([form])
        ends = low.lower(), high.upper()
        signs = all(t.coefficient == t.size > 0 and (k == ONE or self.values[k].nonnegative) for k, t in terms.items())
        error, rounding = (error + made).upper(), (rounding + rounded).upper()
        kept = signs and self.form.keeps_signs
        return Argument(error, rounding, made.upper(), rounded.upper(), ends, kept, self._relative(terms, form, signs))

    def _relative(self, terms: Mapping[int, Term], form: WireForm, signs: bool) -> Relative | None:
        """The rounding of a form whose terms do not cancel, if all its wires have relative rounding."""
        known = [(t, self.values[k].relative) for k, t in terms.items() if k != ONE]
        alone = len(terms) == 1 and all(abs(t.coefficient) == t.size for t in terms.values())
        roundings, lost = 0, arb(form.underflow) * self.flush
        for term, of in known:
            if of is None:
                return None
            roundings, lost = max(roundings, of.roundings + term.roundings), lost + arb(term.size) * of.lost
        # later roundings do not double what is lost
        return Relative(roundings, 2 * lost) if known and len(known) == len(terms) and (signs or alone) else None

    def reach(self, k: int) -> arb:
        """Bound of what a wire holds in floats."""
        if k == ONE:
            return arb(1)
        return self.values[k].size + self.values[k].error + self.values[k].rounding

    def check_overflow(self, forms: Iterable[WireForm], factor: int = 1) -> None:
        """Refuse forms that might be infinite in floats times a factor, now that all wires are bounded."""
        for form in forms:
            sizes = (arb(t.size) * self.reach(self.index[i]) for i, t in form.terms.items())
            check_size(self.form, 2 * factor * sum(sizes, arb(0)))

    def norm(self, k: int) -> tuple[Fuzz, Fuzz]:
        """Error and rounding that a norm adds: its measure is off, and its gradient is not that of the length.

        N(â) − N(a) is |â| − |a| up to sup|∇N − ∇|·|| · |â − a|, and up to twice the error; that the units' coefficients
        are not those meant changes both, by what errors of the units may.
        """
        if k not in self.norms:
            wire = self.circuit.wires[k]
            off = moved = arb(0)
            for side in wire.arguments:
                slots, norms = self.circuit.written_out(side)
                off += sum((abs(enclose(c)) * arb(self.norm(i)[0].value) for i, c in norms), arb(0))
                for i, c in slots.terms:
                    off += abs(enclose(c)) * self.values[i].error
                    moved += abs(enclose(c)) * self.values[i].rounding
            assert wire.measure is not None
            error = wire.measure.error * (arb(self.ranges.values[k][1]) + off + moved)
            wrong = sum((to_fmpq(c) * arb(self.values[i].made.argument) for i, c in wire.parts), arb(0))
            rounded = (2 * error).min(wire.measure.gradient_gap * moved) + 2 * wire.measure.unit_factor * wrong
            self.norms[k] = Fuzz(0.0, round_up(error)), Fuzz(0.0, round_up(rounded))
        return self.norms[k]

    def followed(self, name: str, linear: LinearForm) -> tuple[arb, arb] | None:
        """Bounds of the errors and of the roundings made at the wires that reach a linear form."""
        flow = cache(lambda: self._flow(linear))  # only if it is asked for
        region = self.meanings.region
        tree = self.evidence.parts(name, linear, lambda a, b: np.add(*flow()(a, b)), *region.floats)
        if tree is None or not linear.terms:
            return None
        error, rounding = flow()(*region.leaves(tree))
        return arb(float(np.max(error))), arb(float(np.max(rounding)))

    def _flow(self, linear: LinearForm) -> Callable[[Floats, Floats], tuple[Floats, Floats]]:
        """On each of many parts of the box, what reaches a linear form of the errors, and of the roundings."""
        needed = self.circuit.needed(linear)
        values = {k: self.values[k] for k in needed if k in self.values}
        made, rounded = ({k: getattr(v, part) for k, v in values.items()} for part in ("made", "rounded"))
        for k in needed:
            if self.circuit.wires[k].is_norm:
                made[k], rounded[k] = self.norm(k)
        ends = {}
        whole = {}
        whole_rounding = {}
        for k, value in values.items():
            low, high = value.ends[0] - value.rounding, value.ends[1] + value.rounding
            ends[k] = -round_up(-low), round_up(high)
            whole[k], whole_rounding[k] = round_up(value.error), round_up(value.rounding)
        cells = {k: v.cells for k, v in values.items() if v.cells is not None}
        reach = {k: v.reach for k, v in values.items() if v.reach is not None}
        flow = ErrorFlow(self.circuit, cells, {k: made[k].plus(rounded[k]) for k in made}, ends, reach)

        forms = [flow.form(argument) for k in needed for argument in self.circuit.wires[k].arguments]
        together = max(1, _TOGETHER // sum((2 + len(form.terms) for form in forms), len(flow.form(linear).terms)))

        def both(lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
            errors, roundings = [], []
            for start in range(0, lower.shape[1], together):
                low, high = lower[:, start : start + together], upper[:, start : start + together]
                paths = flow.on(low, high, linear)
                errors.append(np.broadcast_to(paths.carry(made, whole), low.shape[1]))
                roundings.append(np.broadcast_to(paths.carry(rounded, whole_rounding), low.shape[1]))
            return np.concatenate(errors), np.concatenate(roundings)

        return both


def _gap(stored: fmpq, meant: Expr) -> arb:
    """|stored − meant|; exactly zero where a rational is stored as it is."""
    if meant.number is not None:
        return abs(arb(stored - to_fmpq(meant.number)))
    return abs(arb(stored) - enclose(meant))
