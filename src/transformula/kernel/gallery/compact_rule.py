"""The proof for a map that is memorised in words of bits: a claim about every sample, and about nothing else.

At a sample, every number inside is followed with its exact value: what the computation gives in the format is
*equal* to it, or the folder is refused. Three facts carry that:

* *Sharp tables.* Let one token lead all n others by g in computed scores, with w = e^{−g}(1 + a) + faint the most that
  another one weighs (`formats`), and 2 n w < u. Then the weights add up to 1 in any order, since 1 + δ is rounded to 1
  for δ < u, and dividing by 1 changes nothing, before or after. The value v of the leading token is added to numbers of
  total size r <= n (w V + underflow), and v + δ is rounded to v for |δ| <= 2 r < u|v|/2. So v comes out.
* *Whole numbers.* If inputs, weights and biases of a sum are whole numbers, so is every partial sum, in any order;
  and if the sizes of the terms add up to at most 2^digits, all of them are numbers of the format: nothing is rounded.
* *ReLU* of a whole number is one.

The real function of the weights differs from these values by the tables' other tokens only: n e^{−g} times the spread
of the values, carried through sums by the sizes of their coefficients and through ReLU unchanged.

A table's argument may be any linear form; its rounding lowers the lead. Outputs may be rounded too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from flint import arb, fmpq

from transformula.kernel.enclosures.balls import round_up
from transformula.kernel.enclosures.taylor_models import Floats
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.folder.certificate import Proof
from transformula.kernel.folder.weights import Weights
from transformula.kernel.gallery.memorize_rule import all_tokens, read_samples, smallest_gap
from transformula.kernel.rounding.formats import EXP_ULPS, FORMATS, QUERY_FACTOR, FloatFormat, check_size
from transformula.kernel.structures.memory_overflow import check_memory
from transformula.kernel.structures.network import read_network
from transformula.kernel.structures.network_wires import ONE, NetworkWire, WireForm

#: Numbers that are held at once, of all wires at all samples: 160 MB.
MAX_NUMBERS = 20_000_000


@dataclass(frozen=True, eq=False)
class SampleValues:
    """A number at every sample: computed exactly as ``values``; the real one differs by at most ``real``."""

    values: Floats
    real: arb
    whole: bool = False


@dataclass(frozen=True, eq=False)
class SampleBalls:
    """A form at every sample: real and computed numbers are within these bounds of ``values``."""

    values: Floats
    real: arb
    computed: arb


def prove_compact(weights: Weights, samples: Mapping[str, Any]) -> Proof:
    """Prove what the weights give at every sample."""
    x, y = read_samples(weights, samples)
    form = FORMATS[weights.dtype]
    if not np.array_equal(x.astype(weights.dtype).astype(np.float64), x):
        raise RefutedError(f"a sample is not a number of {weights.dtype}")
    network = read_network(weights)
    check_memory(weights)
    layers = [block.feed_forward for block in weights.blocks if block.feed_forward is not None]
    constants = weights.memory.values[weights.memory.rows == 0]
    whole = [constants, *(m.values for layer in layers for m in vars(layer).values() if m.exact is None)]
    if network.positions != 1 or len(whole) != 1 + 4 * len(layers) or not all(map(_whole, whole)):
        raise RefutedError("a compact model has one data token, and whole numbers in it and its feed-forward layers")
    axes = max((len(wire.arguments) for wire in network.wires), default=0)
    if len(x) * (x.shape[1] + len(network.wires) + 2 * axes) > MAX_NUMBERS:
        raise RefutedError("the samples are too many for so many wires")
    points = _Points(form, [SampleValues(column, arb(0)) for column in x.T], len(x))
    for place, wires in groupby(network.wires, lambda wire: None if wire.table is None else wire.place[:2]):
        if place is None:
            for wire in wires:
                inside = points.exact(wire.arguments[0])
                points.wires.append(SampleValues(np.maximum(inside.values, 0.0), inside.real, True))
        else:
            points.wires += points.looked_up(list(wires))
    for held in network.held:
        check_size(form, 2 * points.size(held))
    readable = all(m.exact is None and _whole(m.values) for m in (weights.readout, weights.bias))
    approximation = rounding = arb(0)
    for output, wanted in zip(network.outputs, y.T, strict=True):
        found: SampleValues | SampleBalls = points.exact(output) if readable else points.near(output)
        lost = found.computed if isinstance(found, SampleBalls) else arb(0)
        missed = arb(float(np.abs(found.values - wanted).max())) * (1 + arb(2) ** -52)  # of a float64 difference
        approximation = approximation.max(missed + found.real)
        rounding = rounding.max(lost + found.real)
    return Proof(round_up(approximation), round_up(rounding))


def _whole(values: Any) -> bool:
    return bool(np.all(values == np.rint(values)))


class _Points:
    """The wires at all samples, as far as they are known."""

    def __init__(self, form: FloatFormat, inputs: list[SampleValues], count: int) -> None:
        self.form, self.wires, self.count = form, inputs, count
        self.one = SampleValues(np.ones(count), arb(0), True)

    def _of(self, wire: int) -> SampleValues:
        return self.one if wire == ONE else self.wires[wire]

    def size(self, form: WireForm) -> arb:
        """The sizes of a form's terms at the sample where they add up to most, or more."""
        total = arb(0)
        for wire, term in form.terms.items():
            total += arb(term.size) * arb(float(np.abs(self._of(wire).values).max()))
        return total

    def _real(self, form: WireForm) -> arb:
        return sum((arb(term.size) * self._of(wire).real for wire, term in form.terms.items()), arb(0))

    def _sum(self, form: WireForm) -> Floats:
        total = np.zeros(self.count)
        for wire, term in form.terms.items():
            total += int(term.coefficient.p) / int(term.coefficient.q) * self._of(wire).values
        return total

    def exact(self, form: WireForm) -> SampleValues:
        """A sum of whole numbers."""
        whole = all(self._of(wire).whole and term.size.q == 1 for wire, term in form.terms.items())
        if not whole or not self.size(form) <= arb(2) ** min(self.form.digits, 53):
            raise RefutedError(f"a sum is not one of whole numbers that {self.form.name} holds")
        return SampleValues(self._sum(form), self._real(form), True)

    def near(self, form: WireForm) -> SampleBalls:
        """Any form, with its rounding: in the format, and in the float64 sum here."""
        size, double = self.size(form), FORMATS["float64"]
        check_size(self.form, 2 * QUERY_FACTOR * size)
        roundings = max((term.roundings for term in form.terms.values()), default=0)
        sizes = (arb(float(np.abs(self._of(wire).values).max())) for wire in form.terms)
        # here a coefficient may underflow, and so may its product
        here = double.gamma(len(form.terms) + 2) * size + sum(sizes, arb(len(form.terms))) * double.tiny
        lost = self.form.gamma(roundings) * size + arb(fmpq(form.underflow)) * self.form.tiny
        return SampleBalls(self._sum(form), self._real(form) + here, lost + here)

    def looked_up(self, columns: list[NetworkWire]) -> list[SampleValues]:
        """The columns of one head whose leading token is all that counts; they have the same arguments and scores."""
        arguments = [self.near(one) for one in columns[0].arguments]
        memory = all_tokens([wire.table for wire in columns if wire.table is not None])
        gap, wrong, owner = smallest_gap(memory, np.column_stack([one.values for one in arguments]), self.form)
        steepest = [arb(float(np.abs(column).max())) for column in memory.slopes.T]
        apart, moved = (
            sum((2 * s * error for s, error in zip(steepest, errors, strict=True)), arb(0))
            for errors in ([one.real for one in arguments], [one.computed for one in arguments])
        )
        others, form = len(memory.slopes) - 1, self.form
        lead = gap - 2 * wrong - moved * (1 + form.gamma(memory.slopes.shape[1] + memory.offsets.shape[1] + 4))
        weight = (-lead).exp() * (1 + 2 * EXP_ULPS * form.unit_roundoff) + form.faint
        result = []
        for values in memory.values.T:
            size, found = arb(float(np.abs(values).max())), values[owner]
            mixed, least = others * (weight * size + form.tiny), arb(float(np.abs(found).min()))
            if not (2 * others * weight < form.unit_roundoff and 4 * mixed < form.unit_roundoff * least):
                raise RefutedError("a sample is too close to the edge of what a token answers for")
            spread = arb(float(np.ptp(values))) * (1 + arb(2) ** -52)
            result.append(SampleValues(found, others * (apart - gap).exp() * spread, _whole(found)))
        return result
