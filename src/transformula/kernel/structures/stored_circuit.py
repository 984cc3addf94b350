"""The stored circuit: what the weights are meant to compute, wire by wire, with exact constants.

A wire is an input, a table f(u_1, .., u_d), ReLU(u), or *virtual*: it has no place in the weights and stands
for a combination of wires that have one. An argument u is a linear form of earlier wires whose coefficients
are constant expressions (1/3, 2*pi). Two kinds are virtual:

* a **product** a·b, with a ``total`` of squares and other wires that must equal it (`derivations` checks);
* a **norm** √(a² + b²), measured by folds of ReLUs: its ``total`` is nearly that.

*Lengths √(a² + b²) made of ReLUs, within a relative tan²(x/2), by m folds in turn.*

The four ReLUs of ±a and ±b turn the vector into the first quadrant, |a| = ReLU(a) + ReLU(−a). Then, with
φ_k = π/2^k, it is turned back by half the angle that it may have, and what is below the axis is folded up:

    z_2 = e^{−iφ_2} (|a| + i |b|),
    z_k = e^{−iφ_k} (Re z_{k−1} + i |Im z_{k−1}|) = e^{−iφ_k} (conj(z_{k−1}) + 2i ReLU(Im z_{k−1})),   k = 3..m.

Sizes stay. The angle of z_k is at most φ_k either way: before the turn it is from 0 to 2φ_k, for k = 2 because that is
the quadrant, later because that of z_{k−1} was at most φ_{k−1} = 2φ_k. So |Im z_k| ≤ sin(φ_k) times the length, and
with x = φ_m

    N = 2 Re z_m / (1 + cos x)

is between 2 cos x/(1 + cos x) and 2/(1 + cos x) times the length: within (1 − cos x)/(1 + cos x) = tan²(x/2). Where no
argument of a ReLU is zero N is linear in (a, b), with a gradient of length 2/(1 + cos x): z_m is then the vector, or
its mirror image, turned. The gradient points to where a vector has to be for z_m to be positive: at most x away from
this one.

*Errors of the ReLUs.* If unit k holds ReLU(u + α_k) + β_k where it should hold ReLU(u), and e_k = |α_k| + |β_k|, each
of the first four units moves z_2 by e_k, along e^{±iπ/4}, and that of z_k moves it by 2 e_k, along e^{i(π/2 − φ_k)}.
What comes after, conj(z) + 2i ReLU(Im z + α), mirrors what z moves by or leaves it as it is, whatever α is, and turns
it by φ_{k+1}, φ_{k+2}, .., which add up to less than φ_k: in the end it is at least π/2 − 2φ_k away from the real
axis, either way, and Re z_m moves by 2 sin(2φ_k) e_k at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from flint import arb

from transformula.kernel.enclosures.balls import round_up
from transformula.kernel.enclosures.intervals import try_range
from transformula.kernel.exceptions import FormulaError, RefutedError
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.syntax.parsing import parse

MIN_UNITS, MAX_UNITS = 4, 40


class FoldRow(NamedTuple):
    """A form left·a + right·b + Σ units[j]·ReLU_j, over the first ReLUs."""

    left: Expr
    right: Expr
    units: tuple[Expr, ...]


class Measure(NamedTuple):
    """The measure of a length, by its number of ReLUs, which is m + 2."""

    units: int

    @property
    def step(self) -> arb:
        """x."""
        return arb.pi() / arb(2) ** (self.units - 2)

    @property
    def error(self) -> arb:
        """tan²(x/2), relative to the length."""
        return (self.step / 2).tan() ** 2

    @property
    def gradient_gap(self) -> arb:
        """Bound of the distance between the gradients of N and of the length."""
        return 2 / (1 + self.step.cos()) - 1 + 2 * (self.step / 2).sin()

    @property
    def unit_factor(self) -> float:
        """Factor of a ReLU's errors in the length, but for its ``share``."""
        return round_up(2 / (1 + self.step.cos()))

    def share(self, k: int) -> Fraction:
        """The share of an error of unit k that counts, the first being 0."""
        return Fraction(2 * self.reach(k) if k >= 4 else 1)

    def reach(self, k: int) -> float:
        """Largest argument of unit k as a part of the length: sin(φ_{k−2}), for φ_{k−1} is next."""
        return round_up((arb.pi() / 2 ** (k - 2)).sin()) if k >= 4 else 1.0

    def rows(self) -> list[FoldRow]:
        """The arguments of the ReLUs, and last N."""
        return _rows(self.units)


@lru_cache(maxsize=64)
def _rows(units: int) -> list[FoldRow]:
    """z_k = Σ c_j e^{iα_j} ReLU_j, all angles multiples of π/2^m; made once, as many lengths are measured alike."""
    zero, one, two = map(ex.number, range(3))
    minus, quarter = ex.neg(one), Fraction(1, 4)
    rows = [FoldRow(one, zero, ()), FoldRow(minus, zero, ()), FoldRow(zero, one, ()), FoldRow(zero, minus, ())]
    angles, factors = [-quarter, -quarter, quarter, quarter], [one] * 4
    for k in range(3, units - 1):
        rows.append(FoldRow(zero, zero, tuple(map(ex.mul, factors, map(sine, angles)))))
        turn = Fraction(1, 2**k)
        angles, factors = [*(-angle - turn for angle in angles), Fraction(1, 2) - turn], [*factors, two]
    last = ex.div(two, ex.add(one, cosine(Fraction(1, 2 ** (units - 2)))))
    return [*rows, FoldRow(zero, zero, tuple(ex.mul(last, c, cosine(a)) for c, a in zip(factors, angles, strict=True)))]


def cosine(angle: Fraction) -> Expr:
    """cos(πr) as a constant."""
    if (2 * angle).denominator == 1:
        return ex.number((1, 0, -1, 0)[int(2 * angle) % 4])
    return ex.call("cos", ex.mul(ex.number(angle), ex.constant("pi")))


def sine(angle: Fraction) -> Expr:
    """sin(πr) as a constant."""
    return cosine(angle - Fraction(1, 2))


MAX_WIRES = 20_000
Place = tuple[int, int, int]
SQUARE = ex.power(ex.variable("u"), ex.number(2))


@dataclass(frozen=True)
class LinearForm:
    """Σ coefficient·wire + constant."""

    terms: tuple[tuple[int, Expr], ...]
    constant: Expr

    @classmethod
    def sum(cls, parts: Sequence[tuple[Expr, LinearForm]]) -> LinearForm:
        """Σ factor·form as one form."""
        terms: dict[int, list[Expr]] = {}
        constants = [ex.number(0)]
        for factor, part in parts:
            constants.append(ex.mul(factor, part.constant))
            for wire, c in part.terms:
                terms.setdefault(wire, []).append(ex.mul(factor, c))
        sums = ((wire, ex.add(*found)) for wire, found in sorted(terms.items()))  # at once: sums are long and flat
        return cls(tuple((k, c) for k, c in sums if c.number != 0), ex.add(*constants))


def single(wire: int) -> LinearForm:
    """One wire as it is."""
    return LinearForm(((wire, ex.number(1)),), ex.number(0))


@dataclass(frozen=True)
class Wire:
    """One wire: ``function`` for a table, no function for a ReLU, ``total`` for a virtual wire.

    ``arguments`` are the table's axes, the ReLU's argument, or the two factors or sides of a virtual wire.
    ``parts`` are a product's squares with their factors, or a norm's ReLUs with how often their errors count.
    ``inside``: bound of the argument as a multiple of √(left² + right²), for a ReLU of a fold.
    """

    arguments: tuple[LinearForm, ...] = ()
    function: Expr | None = None
    place: Place | None = None
    total: LinearForm | None = None
    parts: tuple[tuple[int, Fraction], ...] = ()
    measure: Measure | None = None
    inside: tuple[LinearForm, LinearForm, float] | None = None

    @property
    def is_norm(self) -> bool:
        """Whether it stands for √(left² + right²)."""
        return self.measure is not None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The variables of a table's function."""
        return argument_names(len(self.arguments))


def argument_names(axes: int) -> tuple[str, ...]:
    """u for one axis, u1, u2, .. for several."""
    return ("u",) if axes == 1 else tuple(f"u{k + 1}" for k in range(axes))


@dataclass(frozen=True)
class Circuit:
    """Wires in an order in which they can be computed; the first are the inputs."""

    variables: tuple[str, ...]
    wires: tuple[Wire, ...]
    outputs: tuple[LinearForm, ...]

    def written_out(self, linear: LinearForm) -> tuple[LinearForm, list[tuple[int, Expr]]]:
        """The form in wires that have a place, and the norms met on the way with their coefficients."""
        norms: list[tuple[int, Expr]] = []
        while any(self.wires[k].total is not None for k, _ in linear.terms):
            parts = [(ex.number(1), LinearForm((), linear.constant))]
            for k, c in linear.terms:
                total = self.wires[k].total
                parts.append((c, single(k) if total is None else total))
                if self.wires[k].is_norm:
                    norms.append((k, c))
            linear = LinearForm.sum(parts)
        return linear, norms

    def needed(self, linear: LinearForm) -> list[int]:
        """The wires that a form depends on, in order."""
        found: set[int] = set()
        stack = [k for k, _ in linear.terms]
        while stack:
            k = stack.pop()
            if k not in found:
                found.add(k)
                stack += [i for argument in self.wires[k].arguments for i, _ in argument.terms]
                stack += [i for i, _ in self.wires[k].parts]
        return sorted(found)


class CircuitReader:
    """model.json's "circuit" as wires; whatever does not fit is refused."""

    def __init__(self, variables: Sequence[str]) -> None:
        self.variables = tuple(variables)
        self.wires: list[Wire] = [Wire() for _ in variables]
        self.known: dict[str, Expr] = {}

    def read(self, data: Any) -> Circuit:
        """Read the wires and the outputs."""
        try:
            for item in data["wires"]:
                self._add(item)
                if len(self.wires) > MAX_WIRES:
                    raise RefutedError(f"the circuit has over {MAX_WIRES} wires")
            outputs = tuple(self._linear(item) for item in data["outputs"])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
            if isinstance(error, RefutedError):
                raise
            raise RefutedError(f"the circuit in model.json cannot be read: {error}") from None
        return Circuit(self.variables, tuple(self.wires), outputs)

    def _add(self, item: Mapping[str, Any]) -> None:
        kind = next(iter(item), None)
        if kind == "table":
            arguments = tuple(map(self._linear, item["of"]))
            if not arguments:
                raise RefutedError("a table of the circuit reads nothing")
            names = argument_names(len(arguments))
            function = self._parsed(item["table"], names)
            self.wires.append(Wire(arguments, function, _place(item["from"])))
        elif kind == "relu":
            self.wires.append(Wire((self._linear(item["relu"]),), None, _place(item["from"])))
        elif kind == "product":
            left, right = map(self._linear, item["product"])
            parts = tuple((self._index(k), Fraction(self._rational(c))) for k, c in item["squares"])
            self.wires.append(Wire((left, right), total=self._linear(item["sum"]), parts=parts))
        elif kind == "norm":
            left, right = map(self._linear, item["norm"])
            self._add_norm(left, right, [_place(place) for place in item["folds"]])
        else:
            raise RefutedError(f"the circuit has a wire of the unknown kind {str(kind)[:40]!r}")

    def _add_norm(self, left: LinearForm, right: LinearForm, places: Sequence[Place]) -> None:
        measure = Measure(len(places))
        if not MIN_UNITS <= measure.units <= MAX_UNITS:
            raise RefutedError(f"a length is made of {measure.units} ReLUs; {MIN_UNITS} to {MAX_UNITS} are allowed")
        first, forms = len(self.wires), []
        for row in measure.rows():
            sides = [(c, side) for c, side in ((row.left, left), (row.right, right)) if c.number != 0]
            form, units = LinearForm.sum(sides), tuple((first + k, c) for k, c in enumerate(row.units))
            forms.append(LinearForm((*form.terms, *units), form.constant))
        for k, (form, place) in enumerate(zip(forms[:-1], places, strict=True)):
            self.wires.append(Wire((form,), None, place, inside=(left, right, measure.reach(k))))
        parts = tuple((first + k, measure.share(k)) for k in range(measure.units))
        self.wires.append(Wire((left, right), total=forms[-1], parts=parts, measure=measure))

    def _linear(self, item: Mapping[str, Any]) -> LinearForm:
        terms = [(self._index(k), self._parsed(c, ())) for k, c in item["wires"]]
        if len({k for k, _ in terms}) != len(terms):
            raise RefutedError("a linear form names a wire twice")
        return LinearForm(tuple(sorted(terms)), self._parsed(item["plus"], ()))

    def _index(self, value: Any) -> int:
        if type(value) is not int or not 0 <= value < len(self.wires):
            raise RefutedError(f"a wire reads wire {str(value)[:40]}, which is not an earlier one")
        return value

    def _rational(self, text: Any) -> Fraction:
        value = self._parsed(text, ()).number
        if value is None:
            raise RefutedError("the factor of a square is not a rational number")
        return value

    def _parsed(self, text: Any, names: Sequence[str]) -> Expr:
        if not isinstance(text, str):
            raise RefutedError("the circuit holds something else where an expression should stand")
        key = f"{len(names)}:{text}"
        if key not in self.known:
            try:
                self.known[key] = parse(text, names)
            except FormulaError as error:
                raise RefutedError(f"the circuit holds an expression that cannot be read: {error}") from None
            # an undefined constant may have the normal form 1 in one ring and -1 in another that knows more signs
            if not names and try_range(self.known[key], {}) is None:
                raise RefutedError(f"a constant of the circuit is not seen to be defined: {text[:80]}")
        return self.known[key]


def _place(item: Any) -> Place:
    if not isinstance(item, list) or len(item) != 3 or not all(type(v) is int and v >= 0 for v in item):
        raise RefutedError("a wire of the circuit has no place in the weights")
    return item[0], item[1], item[2]
