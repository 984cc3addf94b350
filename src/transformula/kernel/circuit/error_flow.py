"""The flow of errors from the wires of a circuit to an output, on given parts of the box.

*Theorem.* Let every wire be computed with a small error: v_k = f_k(u_k + α_k) + β_k, u_k a linear form of
earlier wires. Bring the errors in one wire after the other. By the mean value theorem the output moves by
Σ_k A_k (f_k' α_k + β_k), where A_k is the derivative of the output with respect to wire k at *some* values of
the wires between the exact and the computed ones.

So on a part of the box: intervals that contain every wire, exact or computed (forwards), then intervals of
the derivatives A_k (backwards). A product is one wire with derivatives b and a, though the weights hold two
squares: their errors meet with opposite signs, and bounding each square's path alone would count both.
A square h² is then compared with u², u the linear form of computed wires, which need not lie where h and the u that is
meant do. If α = h − u, h² − u² = (h + m) α + (u − m) α for any m, and between two states h_1² − u_1² − h_0² + u_0² =
(h_1 + h_0)(α_1 − α_0) + (u_1 − u_0)(α_1 + α_0): a square's β includes the last term of both (`softmax_rule`).
Where f_k' may be unbounded the path is cut: there the wire's whole error, bounded otherwise, counts as new.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from flint import arb
from numpy.typing import NDArray

from transformula.kernel.enclosures.balls import enclose, round_up, to_fmpq
from transformula.kernel.enclosures.intervals import Pair, direction, length, plus, size, squared, times, widen
from transformula.kernel.enclosures.taylor_models import Floats
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.structures.stored_circuit import Circuit, LinearForm, Wire
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.tables.table_slopes import Cells

#: Parts of the box times what is read: what is held in memory at once.
MAX_NUMBERS = 10_000_000
#: Sums and products of fewer than 2^20 non-negative floats, rounded to nearest, err by less than this factor.
UP = 1 + 2.0**-32
#: More than all that underflows in them.
TINY = 2.0**-1040


_Pairs = Mapping[int, Pair]


class Fuzz(NamedTuple):
    """Errors of a wire's argument and value, apart from those that earlier wires bring along."""

    argument: float = 0.0
    value: float = 0.0

    def plus(self, other: Fuzz) -> Fuzz:
        """Both at once, rounded up."""
        sums = self.argument + other.argument, self.value + other.value
        return Fuzz(*(math.nextafter(total, math.inf) for total in sums))


NO_FUZZ = Fuzz()


@dataclass
class Paths:
    """For each wire, on each part: sup|A_k|, sup|A_k f_k'|, and where the path is cut."""

    value: dict[int, Floats] = field(default_factory=dict)
    argument: dict[int, Floats] = field(default_factory=dict)
    cut: dict[int, NDArray[np.bool_]] = field(default_factory=dict)

    def carry(self, fuzz: Mapping[int, Fuzz], whole: Mapping[int, float]) -> Floats:
        """The errors at the output; ``whole`` is a wire's error where its path is cut."""
        total = np.zeros(1)
        with np.errstate(invalid="ignore", over="ignore"):
            for k, amplitude in self.value.items():
                own = fuzz.get(k, NO_FUZZ)
                part = amplitude * own.value + self.argument[k] * own.argument
                if k in self.cut:
                    part = np.where(self.cut[k], amplitude * whole[k], part)
                total = total + part
        return np.asarray(np.where(np.isnan(total), np.inf, total * UP + TINY))


class ErrorFlow:
    """A circuit whose wires carry errors.

    Parameters
    ----------
    circuit : Circuit
    cells : mapping
        For each table of one axis, its function on the range its argument can have.
    fuzz : mapping
        For each wire, how far off it may be.
    ends : mapping
        For some wires, bounds of what they hold on the whole box, exact or computed.
    reach : mapping
        The same for the arguments of tables.
    """

    def __init__(
        self,
        circuit: Circuit,
        cells: Mapping[int, Cells],
        fuzz: Mapping[int, Fuzz],
        ends: Mapping[int, tuple[float, float]],
        reach: Mapping[int, tuple[float, float]],
    ) -> None:
        self.circuit = circuit
        self.cells = cells
        self.fuzz = fuzz
        self.ends = ends
        self.reach = reach
        self._forms: dict[LinearForm, FormEnds] = {}

    def on(self, lower: Floats, upper: Floats, output: LinearForm) -> Paths:
        """The paths to an output on parts of the box; lower and upper have shape (inputs, parts)."""
        values, arguments = dict[int, Pair](), dict[int, Pair]()
        needed = self.circuit.needed(output)
        read = sum(2 + len(a.terms) for k in needed for a in self.circuit.wires[k].arguments)
        if read * lower.shape[1] > MAX_NUMBERS:
            raise RefutedError("the parts of the box are too many for so many wires")
        for k in needed:
            wire, fuzz = self.circuit.wires[k], self.fuzz.get(k, NO_FUZZ)
            if not wire.arguments:
                values[k] = widen((lower[k], upper[k]), fuzz.value)
            elif wire.total is not None:
                values[k] = self._virtual(k, wire, values, arguments)
            elif self._is_whole(k, wire):
                low, high = self.ends[k]
                values[k] = np.full(lower.shape[1], low), np.full(lower.shape[1], high)
            else:
                inside = widen(self.form(wire.arguments[0]).of(values), fuzz.argument)
                arguments[k] = _met(inside, self.reach.get(k))
                if k in self.cells:
                    found = self.cells[k].values(*arguments[k])
                else:
                    found = np.maximum(arguments[k][0], 0), np.maximum(arguments[k][1], 0)
                values[k] = _met(widen(found, fuzz.value), self.ends.get(k))
        return self._backwards(output, values, arguments, lower.shape[1])

    def _is_whole(self, k: int, wire: Wire) -> bool:
        """Whether it is a table of several axes, or a sharp one: it reads inputs, and its error is known as a whole."""
        return wire.function is not None and k not in self.cells

    def _virtual(self, k: int, wire: Wire, values: _Pairs, arguments: _Pairs) -> Pair:
        left, right = (self.form(argument).of(values) for argument in wire.arguments)
        off: Floats | float = self.fuzz.get(k, NO_FUZZ).value
        for part, factor in wire.parts:
            fuzz, (weight, steepest) = self.fuzz.get(part, NO_FUZZ), self._part(wire, part, factor, arguments)
            with np.errstate(invalid="ignore", over="ignore"):
                off = off + weight * (fuzz.value + np.nextafter(steepest * fuzz.argument, math.inf))
        if wire.is_norm:
            return widen(length(left, right), off * UP + TINY)
        same = wire.arguments[0] == wire.arguments[1]
        return widen(squared(left) if same else times(left, right), off * UP + TINY)

    def _part(self, wire: Wire, part: int, factor: Fraction, arguments: _Pairs) -> tuple[float, Floats | float]:
        """Sensitivities: of a virtual wire to its part's own error, and of the part to its argument's."""
        if wire.measure is not None:
            return wire.measure.unit_factor * float(factor), 1.0
        if part not in self.cells:
            raise RefutedError("a product is made of squares that are no smooth tables")
        return round_up(arb(to_fmpq(abs(factor)))), size(self.cells[part].slopes(*arguments[part]))

    def _backwards(self, output: LinearForm, values: _Pairs, arguments: _Pairs, count: int) -> Paths:
        paths, slopes = Paths(), dict[int, Pair]()
        self.form(output).share((np.ones(count), np.ones(count)), slopes)
        for k in reversed(range(len(self.circuit.wires))):
            if k not in slopes:
                continue
            wire, slope = self.circuit.wires[k], slopes[k]
            if wire.total is not None:
                self._through_virtual(k, wire, slopes, values, arguments, paths)
                continue
            paths.value[k] = paths.value.get(k, 0.0) + size(slope)
            paths.argument.setdefault(k, np.zeros(count))
            if not wire.arguments:
                continue
            if self._is_whole(k, wire):
                paths.cut[k] = np.ones(count, dtype=bool)
                continue
            if k in self.cells:
                steps = self.cells[k].slopes(*arguments[k])
                cut = ~(np.isfinite(steps[0]) & np.isfinite(steps[1]))
                if cut.any():
                    paths.cut[k] = cut
                    steps = np.where(cut, 0.0, steps[0]), np.where(cut, 0.0, steps[1])
            else:
                low, high = arguments[k]
                steps = np.where(low > 0, 1.0, 0.0), np.where(high > 0, 1.0, 0.0)
            back = times(slope, steps)  # rounded outwards: it may underflow, and an error may be huge
            paths.argument[k] = paths.argument[k] + size(back)
            self.form(wire.arguments[0]).share(back, slopes)
        return paths

    def _through_virtual(
        self, k: int, wire: Wire, slopes: dict[int, Pair], values: _Pairs, arguments: _Pairs, paths: Paths
    ) -> None:
        """A product or norm: its sides get their derivatives, its parts only carry their own errors."""
        slope, (left, right) = slopes[k], map(self.form, wire.arguments)
        sides = left.of(values), right.of(values)
        shares = direction(*sides) if wire.is_norm else (sides[1], sides[0])
        left.share(times(slope, shares[0]), slopes)
        right.share(times(slope, shares[1]), slopes)
        paths.value[k], paths.argument[k] = size(slope), np.zeros(len(slope[0]))
        for part, factor in wire.parts:
            weight, steepest = self._part(wire, part, factor, arguments)
            with np.errstate(invalid="ignore", over="ignore"):
                amplitude = np.nextafter(size(slope) * weight, math.inf)
                paths.value[part] = paths.value.get(part, 0.0) + amplitude
                paths.argument[part] = paths.argument.get(part, 0.0) + np.nextafter(amplitude * steepest, math.inf)

    def form(self, linear: LinearForm) -> FormEnds:
        """A linear form with intervals as coefficients, made once."""
        found = self._forms[linear] = self._forms.get(linear) or FormEnds(linear)
        return found


class FormEnds:
    """A linear form with coefficients as intervals."""

    def __init__(self, linear: LinearForm) -> None:
        self.terms = [(k, _ends(c)) for k, c in linear.terms]
        self.constant = _ends(linear.constant)

    def of(self, values: Mapping[int, Pair]) -> Pair:
        """Its range where the wires have theirs."""
        total = self.constant
        for k, c in self.terms:
            total = plus(total, times(c, values[k]))
        return total

    def share(self, slope: Pair, slopes: dict[int, Pair]) -> None:
        """Add what flows back to each wire."""
        for k, c in self.terms:
            back = times(c, slope)
            slopes[k] = plus(slopes[k], back) if k in slopes else back


def _met(found: Pair, known: tuple[float, float] | None) -> Pair:
    """Both what was found on the part and what is known on the whole box."""
    return found if known is None else (np.clip(found[0], *known), np.clip(found[1], *known))


def _ends(constant: Expr) -> Pair:
    ball = enclose(constant)
    return np.asarray(-round_up(-ball)), np.asarray(round_up(ball))
