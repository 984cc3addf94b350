"""How errors made at the wires of a circuit reach its outputs, on many parts of the box at once.

*Theorem.* Let every wire of a circuit be computed with a small error: v_k = f_k(u_k + α_k) + β_k, u_k a
linear combination of earlier wires. Bring the errors in one wire after the other. By the mean value
theorem the output moves by Σ_k A_k (f_k' α_k + β_k), where A_k is the derivative of the output with
respect to wire k at *some* values of the wires between the exact and the computed ones.

So on a part of the box: intervals that contain every wire, exact or computed (forwards), then intervals of
the derivatives A_k (backwards). A product is one wire with derivatives b and a, though its slots hold two
squares: their errors meet with opposite signs, and bounding each square's path alone would count both.
Where f_k' may be unbounded the path is cut: there the wire's whole error, bounded otherwise, counts as new.

All interval operations are floats rounded outwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from flint import arb
from numpy.typing import NDArray

from transformula.formulas.circuits import Circuit
from transformula.formulas.enclosures import enclose, round_up, to_fmpq
from transformula.formulas.expression import Expr
from transformula.formulas.wires import Linear, Norm
from transformula.taylor.function_cells import Cells, Pair
from transformula.taylor.results import Floats

#: Parts of the box that a search may look at, and how much worse than the worst still deserves a cut.
_MAX_PARTS = 1500
_WORTH = 0.85
_ROUNDS = 40
_ENOUGH = 0.98


class Fuzz(NamedTuple):
    """How far off a wire's argument and value may be, apart from what earlier wires bring along."""

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
        """What the errors amount to at the output; ``whole`` is a wire's error where its path is cut."""
        total = np.zeros(1)
        with np.errstate(invalid="ignore", over="ignore"):
            for k, amplitude in self.value.items():
                own = fuzz.get(k, NO_FUZZ)
                part = amplitude * own.value + self.argument[k] * own.argument
                if k in self.cut:
                    part = np.where(self.cut[k], amplitude * whole[k], part)
                total = total + part
        # sums and products of non-negative floats, rounded to nearest; nan is ∞ · 0: not known
        return np.asarray(np.where(np.isnan(total), np.inf, total * (1 + 1e-12)))


class ErrorFlow:
    """A circuit whose wires carry errors.

    Parameters
    ----------
    circuit : Circuit
    cells : mapping
        For each table wire, its function on the range its argument can have.
    fuzz : mapping
        For each wire, how far off it may be.
    ends : mapping, optional
        For some wires, bounds of what they hold on the whole box, exact or computed.
    """

    def __init__(
        self,
        circuit: Circuit,
        cells: Mapping[int, Cells],
        fuzz: Mapping[int, Fuzz] | None = None,
        ends: Mapping[int, tuple[float, float]] | None = None,
    ) -> None:
        self.circuit, self.cells, self.fuzz, self.ends = circuit, cells, fuzz or {}, ends or {}
        self._forms: dict[int, Form] = {}

    def on(self, lower: Floats, upper: Floats, output: Linear) -> Paths:
        """The paths to an output on parts of the box; lower and upper have shape (inputs, parts)."""
        values: dict[int, Pair] = {}
        arguments: dict[int, Pair] = {}
        for k in self.circuit.needed(output):
            wire = self.circuit.wires[k]
            fuzz = self.fuzz.get(k, NO_FUZZ)
            if wire.product is not None:
                values[k] = self._product(k, values, arguments)
            elif wire.norm is not None:
                values[k] = self._norm(k, values)
            elif wire.argument is None:
                values[k] = _widen((lower[k], upper[k]), fuzz.value)
            else:
                arguments[k] = _widen(self._form(wire.argument).of(values), fuzz.argument)
                if k in self.cells:
                    found = self.cells[k].values(*arguments[k])
                else:
                    low, high = arguments[k]
                    found = np.maximum(low, 0), np.maximum(high, 0)
                values[k] = self._known(k, _widen(found, fuzz.value))
        return self._backwards(output, values, arguments)

    def _known(self, k: int, found: Pair) -> Pair:
        """Both what was found on the part and what is known on the whole box."""
        if k not in self.ends:
            return found
        low, high = self.ends[k]
        return np.clip(found[0], low, high), np.clip(found[1], low, high)

    def _product(self, k: int, values: Mapping[int, Pair], arguments: Mapping[int, Pair]) -> Pair:
        product = self.circuit.wires[k].product
        assert product is not None
        off: Floats | float = 0.0
        for square, factor in product.squares:
            fuzz = self.fuzz.get(square, NO_FUZZ)
            steepest = _size(self.cells[square].slopes(*arguments[square]))
            off = off + _magnitude(factor) * (fuzz.value + steepest * fuzz.argument)
        left = self._form(product.left).of(values)
        if product.left is product.right:
            result = squared(left)
        else:
            result = times(left, self._form(product.right).of(values))
        return self._known(k, _widen(result, off * (1 + 1e-12)))

    def _norm(self, k: int, values: Mapping[int, Pair]) -> Pair:
        norm = self.circuit.wires[k].norm
        assert norm is not None
        left, right = self._form(norm.left).of(values), self._form(norm.right).of(values)
        off = self.fuzz.get(k, NO_FUZZ).value
        off += _unit_factor(norm) * sum(sum(self.fuzz.get(unit, NO_FUZZ)) for unit in norm.units)
        return self._known(k, _widen(length(left, right), off * (1 + 1e-12)))

    def _backwards(self, output: Linear, values: Mapping[int, Pair], arguments: Mapping[int, Pair]) -> Paths:
        paths = Paths()
        parts = len(next(iter(values.values()))[0])
        slopes: dict[int, Pair] = {}
        one = np.ones(parts), np.ones(parts)
        self._form(output).share(one, slopes)
        for k in reversed(range(len(self.circuit.wires))):
            if k not in slopes:
                continue
            wire, slope = self.circuit.wires[k], slopes[k]
            if wire.product is not None:
                left, right = self._form(wire.product.left), self._form(wire.product.right)
                left.share(times(slope, right.of(values)), slopes)
                right.share(times(slope, left.of(values)), slopes)
                for square, factor in wire.product.squares:
                    steepest = _size(self.cells[square].slopes(*arguments[square]))
                    amplitude = _size(slope) * _magnitude(factor)
                    paths.value[square] = paths.value.get(square, 0.0) + amplitude
                    paths.argument[square] = paths.argument.get(square, 0.0) + amplitude * steepest
                continue
            if wire.norm is not None:
                norm = wire.norm
                left, right = self._form(norm.left), self._form(norm.right)
                shares = direction(left.of(values), right.of(values))
                left.share(times(slope, shares[0]), slopes)
                right.share(times(slope, shares[1]), slopes)
                paths.value[k], paths.argument[k] = _size(slope), np.zeros(parts)
                amplitude = _size(slope) * _unit_factor(norm)
                for unit in norm.units:
                    paths.value[unit] = paths.value.get(unit, 0.0) + amplitude
                    paths.argument[unit] = paths.argument.get(unit, 0.0) + amplitude
                continue
            paths.value[k] = paths.value.get(k, 0.0) + _size(slope)
            paths.argument.setdefault(k, np.zeros(parts))
            if wire.argument is None:
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
            paths.argument[k] = paths.argument[k] + _size(slope) * _size(steps)
            self._form(wire.argument).share(times(slope, steps), slopes)
        return paths

    def _form(self, linear: Linear) -> Form:
        if id(linear) not in self._forms:
            self._forms[id(linear)] = Form(linear)
        return self._forms[id(linear)]


class Form:
    """A linear combination with coefficients as intervals."""

    def __init__(self, linear: Linear) -> None:
        self.linear = linear  # kept alive, since forms are remembered by identity
        self.terms = [(k, _ends(c)) for k, c in linear.terms]
        self.constant = _ends(linear.constant)

    def of(self, values: Mapping[int, Pair]) -> Pair:
        """Its range where the wires have theirs."""
        low, high = self.constant
        total: Pair = np.asarray(low), np.asarray(high)
        for k, c in self.terms:
            total = _plus(total, times(c, values[k]))
        return total

    def share(self, slope: Pair, slopes: dict[int, Pair]) -> None:
        """Add what flows back to each wire."""
        for k, c in self.terms:
            back = times(c, slope)
            slopes[k] = _plus(slopes[k], back) if k in slopes else back


def _ends(constant: Expr) -> Pair:
    ball = enclose(constant)
    return np.asarray(-round_up(-ball)), np.asarray(round_up(ball))


def _magnitude(factor: Fraction) -> float:
    return round_up(arb(to_fmpq(abs(factor))))


def _plus(a: Pair, b: Pair) -> Pair:
    return np.nextafter(a[0] + b[0], -math.inf), np.nextafter(a[1] + b[1], math.inf)


def times(a: Pair, b: Pair) -> Pair:
    """Products of intervals."""
    with np.errstate(invalid="ignore", over="ignore"):
        corners = [x * y for x in a for y in b]
    low = np.minimum(np.minimum(corners[0], corners[1]), np.minimum(corners[2], corners[3]))
    high = np.maximum(np.maximum(corners[0], corners[1]), np.maximum(corners[2], corners[3]))
    low, high = np.where(np.isnan(low), -math.inf, low), np.where(np.isnan(high), math.inf, high)
    return np.nextafter(low, -math.inf), np.nextafter(high, math.inf)


def squared(a: Pair) -> Pair:
    """Squares of intervals."""
    low, high = times(a, a)
    return np.maximum(low, 0.0), high


def length(a: Pair, b: Pair) -> Pair:
    """√(a² + b²) of intervals."""
    low, high = _plus(squared(a), squared(b))
    return np.nextafter(np.sqrt(np.maximum(low, 0.0)), 0.0), np.nextafter(np.sqrt(high), math.inf)


def direction(a: Pair, b: Pair) -> tuple[Pair, Pair]:
    """a/√(a² + b²) and b/√(a² + b²), which lie in [−1, 1] even where the length vanishes."""
    low, high = length(a, b)
    with np.errstate(divide="ignore"):
        inverse = np.nextafter(1 / high, 0.0), np.nextafter(1 / low, math.inf)
    shares = times(a, inverse), times(b, inverse)
    first, second = ((np.clip(s[0], -1.0, 1.0), np.clip(s[1], -1.0, 1.0)) for s in shares)
    return first, second


def _unit_factor(norm: Norm) -> float:
    """How strongly the errors of a ReLU count in the length it helps to measure."""
    return round_up(2 * abs(enclose(norm.factor)))


def _widen(a: Pair, by: Floats | float) -> Pair:
    return np.nextafter(a[0] - by, -math.inf), np.nextafter(a[1] + by, math.inf)


def _size(a: Pair) -> Floats:
    return np.maximum(np.abs(a[0]), np.abs(a[1]))


def worst_parts(
    bound: Callable[[Floats, Floats], Floats], lower: Floats, upper: Floats
) -> tuple[Floats, Floats]:
    """Cut the box where a bound is largest, until cutting no longer helps.

    Parameters
    ----------
    bound : from (inputs, parts) ends to a bound on each part.
    lower, upper : the box, shape (inputs,).

    Returns
    -------
    lower, upper : the parts, shape (inputs, parts); together they cover the box.
    """
    low, high = lower[:, None], upper[:, None]
    bounds = bound(low, high)
    history = [float(bounds.max())]
    for _ in range(_ROUNDS):
        worst = bounds >= _WORTH * bounds.max()
        if low.shape[1] + worst.sum() > _MAX_PARTS:
            break
        cut_low, cut_high = _halved(bound, low[:, worst], high[:, worst])
        kept = ~worst
        bounds = np.concatenate([bounds[kept], bound(cut_low, cut_high)])
        low = np.concatenate([low[:, kept], cut_low], axis=1)
        high = np.concatenate([high[:, kept], cut_high], axis=1)
        history.append(float(bounds.max()))
        if len(history) > len(lower) + 2 and history[-1] > _ENOUGH * history[-len(lower) - 3]:
            break
    return low, high


def _halved(bound: Callable[[Floats, Floats], Floats], low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Halve each part along the input whose spread costs most: with it at its middle, the bound is least."""
    middle = (low + high) / 2
    parts = low.shape[1]
    least, along = np.full(parts, math.inf), np.zeros(parts, dtype=int)
    for axis in range(len(low)):
        flat_low, flat_high = low.copy(), high.copy()
        flat_low[axis] = flat_high[axis] = middle[axis]
        here = bound(flat_low, flat_high)
        better = (here < least) & (low[axis] < high[axis])
        least, along = np.where(better, here, least), np.where(better, axis, along)
    at = along, np.arange(parts)
    left_high, right_low = high.copy(), low.copy()
    left_high[at] = right_low[at] = middle[at]
    return np.concatenate([low, right_low], axis=1), np.concatenate([left_high, high], axis=1)
