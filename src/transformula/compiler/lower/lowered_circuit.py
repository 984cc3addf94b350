"""Wires added to a circuit one after the other: tables, ReLUs, squares, products and lengths.

A lowered circuit is the kernel's own, with what the planner knows about its wires beside it. Products are made of
squares, ab = a₀b + b₀a − a₀b₀ + ((a−a₀ + λ(b−b₀))² − (a−a₀ − λ(b−b₀))²) / 4λ with any a₀, b₀ and λ > 0, which the
guide chooses: they change accuracy, not correctness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from transformula.kernel.structures.stored_circuit import SQUARE, Circuit, LinearForm, Measure, Wire, single
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, substitute


class Balance(NamedTuple):
    """How to split a product: ab with centres a₀, b₀ and weight λ."""

    left: Fraction
    right: Fraction
    weight: Fraction


class Guide:
    """The plainest choices: products split evenly, nothing clamped, everything else as it is written."""

    def balance(self, left: Expr, right: Expr) -> Balance:
        """How to split the product of two meanings."""
        return Balance(Fraction(0), Fraction(0), Fraction(1))

    def centre(self, argument: Expr) -> Fraction:
        """The centre c in u² = (u − c)² + 2cu − c²."""
        return Fraction(0)

    def offset(self, function: Expr, argument: Expr) -> Fraction:
        """The constant to subtract from the values of a table of ``function`` in u."""
        return Fraction(0)

    def clamp(self, function: Expr, argument: Expr) -> tuple[bool, bool]:
        """Whether errors might carry the argument below or above the function's domain."""
        return False, False

    def exchange(self, factors: Sequence[Expr], others: Sequence[Expr], last: Expr, inner: Expr) -> bool:
        """Whether to write a product with other factors: the others, and ``last`` in u of ``inner``."""
        return False

    def measure(self, radicand: Expr) -> Measure | None:
        """By which ReLUs to measure the length √radicand; None for a table of the root."""
        return None

    def in_logs(self, bases: Sequence[Expr], alone: bool) -> bool:
        """Whether to read a function of a product of powers of these bases at the sum of their logarithms.

        ``alone`` if the function is the logarithm itself.
        """
        return False

    def by_logs(self, bases: Sequence[Expr]) -> list[Expr]:
        """The bases of a product, positive ones, that are to be multiplied by adding logarithms."""
        return []

    def divides(self, base: Expr) -> bool:
        """Whether to divide a sum by ``base``, which then must not be zero anywhere."""
        return False

    def divides_always(self) -> bool:
        """Whether to divide though that takes more tables."""
        return False

    def complements(self, part: Expr, rest: Expr) -> bool:
        """Whether to write p/(p + r) as 1 - r/(p + r)."""
        return False


#: The variable of a table's function.
ARGUMENT = ex.variable("u")
ZERO, ONE = ex.number(0), ex.number(1)


@dataclass(frozen=True)
class Combination:
    """A linear form of wires, and its meaning."""

    form: LinearForm
    meaning: Expr

    @property
    def is_constant(self) -> bool:
        """Whether the form reads no wires."""
        return not self.form.terms


def constant_of(value: Expr) -> Combination:
    """A constant as a form without wires."""
    return Combination(LinearForm((), value), value)


def combined(parts: Sequence[tuple[Expr, Combination]], meaning: Expr, plus: Expr = ZERO) -> Combination:
    """Σ factor·combination + plus as one combination."""
    forms = [(factor, part.form) for factor, part in parts]
    form = LinearForm.sum([*forms, (ONE, LinearForm((), plus))])
    terms = [(wire, collected(coefficient)) for wire, coefficient in form.terms]
    kept = tuple((wire, coefficient) for wire, coefficient in terms if coefficient.number != 0)
    return Combination(LinearForm(kept, collected(form.constant)), meaning)


def collected(constant: Expr) -> Expr:
    """A constant with equal terms of its sums added up, so that pi − pi is 0.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> str(collected(parse("pi/2 - 1 + 2*pi - (pi - 3)", ())))
    '3/2*pi + 2'
    """
    if constant.number is not None:
        return constant
    terms: dict[Expr, Fraction] = {}
    stack = [(Fraction(1), constant)]
    while stack:
        factor, node = stack.pop()
        if node.op == "add":
            stack += [(factor, a) for a in reversed(node.args)]
        elif node.number is not None:
            terms[ONE] = terms.get(ONE, Fraction(0)) + factor * node.number
        elif node.op == "mul" and node.args[0].number is not None:
            stack.append((factor * node.args[0].number, ex.mul(*node.args[1:])))
        elif node.op == "div" and (number := _leading(node.args[0])) not in (None, 1):
            above = ex.mul(ex.number(1 / number), node.args[0])
            stack.append((factor * number, ex.div(above, node.args[1])))
        else:
            terms[node] = terms.get(node, Fraction(0)) + factor
    return ex.add(*(ex.mul(ex.number(f), node) for node, f in terms.items() if f))


def _leading(expr: Expr) -> Fraction | None:
    """The number that a product starts with, or is; None if there is none, or for zero."""
    return (expr.number if expr.op != "mul" else expr.args[0].number) or None


_MINUS_ONE = ex.number(-1)
#: A length's sides, and the most that a ReLU of its folds may be as a multiple of the length.
_Inside = tuple[LinearForm, LinearForm, float]


class WireFacts(NamedTuple):
    """A wire's meaning, its arguments' meanings, and when its value is there.

    ``time`` counts half-layers: 0 for inputs, 2k − 1 after attention k, 2k after feed-forward k.
    """

    meaning: Expr
    arguments: tuple[Expr, ...] = ()
    time: int = 0


@dataclass(frozen=True)
class LoweredCircuit:
    """A circuit, whose wires have no places yet, and facts about each wire."""

    circuit: Circuit
    facts: tuple[WireFacts, ...]

    @property
    def layers(self) -> int:
        """Blocks needed."""
        return max((fact.time + 1) // 2 for fact in self.facts)


def has_slot(wire: Wire) -> bool:
    """Whether a wire is a table or a ReLU: inputs are given, and virtual wires stand for forms of others."""
    return bool(wire.arguments) and wire.total is None


class CircuitBuilder:
    """A circuit under construction, in which equal tables and ReLUs are made once."""

    def __init__(self, variables: Sequence[str], guide: Guide) -> None:
        self.variables, self.guide = tuple(variables), guide
        self.wires = [Wire() for _ in variables]
        self.facts = [WireFacts(ex.variable(name)) for name in variables]
        self._made: dict[tuple[Expr | None, Combination], Combination] = {}
        self._norms: dict[tuple[Combination, Combination, Measure], Combination] = {}

    def finished(self, outputs: Sequence[Combination]) -> LoweredCircuit:
        """The circuit of all wires."""
        forms = tuple(output.form for output in outputs)
        return LoweredCircuit(Circuit(self.variables, tuple(self.wires), forms), tuple(self.facts))

    def ready(self, *parts: Combination) -> int:
        """The time at which all wires of some combinations are there."""
        return max((self.facts[k].time for part in parts for k, _ in part.form.terms), default=0)

    def table(self, function: Expr, argument: Combination) -> Combination:
        """f(u) = (f(u) − c) + c: values around zero are rounded less."""
        meaning = substitute(function, {ARGUMENT: argument.meaning})
        if argument.is_constant:  # its wires cancel
            value = substitute(function, {ARGUMENT: argument.form.constant})
            return Combination(LinearForm((), value), meaning)
        shift = self.guide.offset(function, argument.meaning)
        if not shift:
            return self._wire(function, argument)
        moved = self._wire(ex.add(function, ex.number(-shift)), argument)
        return combined([(ONE, moved)], meaning, plus=ex.number(shift))

    def relu(self, argument: Combination) -> Combination:
        """ReLU(u)."""
        if argument.is_constant:
            return constant_of(ex.call("max", argument.form.constant, ZERO))
        return self._wire(None, argument)

    def absolute(self, argument: Combination) -> Combination:
        """|u| = ReLU(u) + ReLU(−u)."""
        minus = combined([(_MINUS_ONE, argument)], ex.neg(argument.meaning))
        parts = [(ONE, self.relu(argument)), (ONE, self.relu(minus))]
        return combined(parts, ex.call("abs", argument.meaning))

    def extreme(self, op: str, args: Sequence[Combination]) -> Combination:
        """The smallest or largest of several: of the first half and of the second, as the kernel reads it."""
        if len(args) == 1:
            return args[0]
        half = len(args) // 2
        a, b = self.extreme(op, args[:half]), self.extreme(op, args[half:])
        difference = combined([(ONE, a), (_MINUS_ONE, b)], ex.add(a.meaning, ex.neg(b.meaning)))
        kept, sign = (b, 1) if op == "max" else (a, -1)
        parts = [(ONE, kept), (ex.number(sign), self.relu(difference))]
        return combined(parts, ex.call(op, a.meaning, b.meaning))

    def square(self, argument: Combination) -> Combination:
        """u² = (u − c)² + 2cu − c²: around its centre the square is smaller, hence more accurate."""
        if argument.is_constant:
            return self.table(SQUARE, argument)
        centre = self.guide.centre(argument.meaning)
        shift = ex.number(-centre)
        twice = ex.number(2 * centre)
        corner = ex.number(-(centre**2))
        moved = combined([(ONE, argument)], ex.add(argument.meaning, shift), plus=shift)
        square = self._wire(SQUARE, moved)
        meaning = ex.power(argument.meaning, ex.number(2))
        total = combined([(ONE, square), (twice, argument)], meaning, plus=corner)
        return self._product(argument, argument, [(square, Fraction(1))], total)

    def times(self, a: Combination, b: Combination) -> Combination:
        """The product of two combinations."""
        meaning = ex.mul(a.meaning, b.meaning)
        if a.is_constant or b.is_constant:
            factor, other = (a, b) if a.is_constant else (b, a)
            return combined([(factor.form.constant, other)], meaning)
        left, right, weight = self.guide.balance(a.meaning, b.meaning)
        if weight <= 0:
            raise ValueError("the weight of a product must be positive")
        squares = []
        for sign in (1, -1):
            shift = ex.number(-left - sign * weight * right)
            signed = ex.number(sign * weight)
            inside = ex.add(a.meaning, ex.mul(signed, b.meaning), shift)
            squares.append(self._wire(SQUARE, combined([(ONE, a), (signed, b)], inside, plus=shift)))
        quarter = ex.number(1 / (4 * weight))
        corner = ex.number(-left * right)
        parts = [(ex.number(left), b), (ex.number(right), a), (quarter, squares[0]), (ex.neg(quarter), squares[1])]
        share = 1 / (4 * weight)
        total = combined(parts, meaning, plus=corner)
        return self._product(a, b, [(squares[0], share), (squares[1], -share)], total)

    def norm(self, a: Combination, b: Combination, measure: Measure) -> Combination:
        """√(a² + b²), nearly, made of ReLUs (`kernel.structures.stored_circuit`)."""
        key = (a, b, measure)
        if key not in self._norms:
            self._norms[key] = self._new_norm(a, b, measure)
        return self._norms[key]

    def _new_norm(self, a: Combination, b: Combination, measure: Measure) -> Combination:
        """A length and its ReLUs, which nothing else reads; they share its meaning, since none is larger."""
        meaning = ex.power(ex.add(*(ex.power(p.meaning, ex.number(2)) for p in (a, b))), ex.number(Fraction(1, 2)))
        if a.is_constant and b.is_constant:
            return constant_of(meaning)
        *rows, last = measure.rows()
        units: list[Combination] = []
        for k, row in enumerate(rows):
            sides = [(row.left, a), (row.right, b), *zip(row.units, units, strict=False)]
            units.append(self._new_wire(None, combined(sides, meaning), (a.form, b.form, measure.reach(k))))
        total = combined([(last.left, a), (last.right, b), *zip(last.units, units, strict=True)], meaning)
        parts = tuple((unit.form.terms[0][0], measure.share(k)) for k, unit in enumerate(units))
        wire = Wire((a.form, b.form), total=total.form, parts=parts, measure=measure)
        return self._added(wire, WireFacts(meaning, (a.meaning, b.meaning), self.ready(*units)))

    def _product(
        self, a: Combination, b: Combination, squares: Sequence[tuple[Combination, Fraction]], total: Combination
    ) -> Combination:
        """A product as a virtual wire, through which errors are followed."""
        parts = tuple((square.form.terms[0][0], factor) for square, factor in squares)
        wire = Wire((a.form, b.form), total=total.form, parts=parts)
        time = self.ready(*(square for square, _ in squares))
        return self._added(wire, WireFacts(total.meaning, (a.meaning, b.meaning), time))

    def _wire(self, function: Expr | None, argument: Combination) -> Combination:
        key = (function, argument)
        if key not in self._made:
            self._made[key] = self._new_wire(function, argument)
        return self._made[key]

    def _new_wire(self, function: Expr | None, argument: Combination, inside: _Inside | None = None) -> Combination:
        """A table, or a ReLU if there is no function."""
        ready = self.ready(argument)
        # tables come at odd times, ReLUs at even ones
        time = ready + 1 if (ready % 2 == 0) == (function is not None) else ready + 2
        if function is None:
            meaning = ex.call("max", argument.meaning, ZERO)
        else:
            meaning = substitute(function, {ARGUMENT: argument.meaning})
        return self._added(
            Wire((argument.form,), function, inside=inside), WireFacts(meaning, (argument.meaning,), time)
        )

    def _added(self, wire: Wire, facts: WireFacts) -> Combination:
        """A new wire, as a combination of itself."""
        self.wires.append(wire)
        self.facts.append(facts)
        return Combination(single(len(self.wires) - 1), facts.meaning)
