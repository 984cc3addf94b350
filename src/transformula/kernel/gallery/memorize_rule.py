"""The proofs for memorised finite maps: a claim about every sample, and about nothing else.

*One token for each sample.* At sample i its own token leads every other score by at least g in real arithmetic, and
by g − 2D in floats, where D bounds the rounding of a score. With n other tokens, values of size at most V, R = max −
min of them,

    |T(x_i) − v_i| <= n e^{−g} R.

In floats the largest score is the own one, so its weight is e^0 = 1, and the others add up to at most r = n (e^{2D −
g} (1 + a) + faint)/(1 − a), a = EXP_ULPS·2u, as faint exponentials may be raised (`formats`). A rounded sum of two
floats is never off by more than either of them, because the other one is a float. So, in any order, adding numbers of
total size r to one of size 1 is off by at most E = (1 + 2γ) r, and also by γ (1 + r): take the smaller. The sum of
the weights is off by E, the dot product with the values by E V, each term by a division, before or after, and a
product. (`overflow` looks at the sum of all values.) Thus

    |computed − v_i| <= (r R + E V + ((1 + u)² − 1)(1 + r) V + (1 + u)² E V)/(1 − E) + underflow.

*Words of bits.* At a sample, every number inside is followed with its exact value: what the computation gives in the
format is *equal* to it, or the folder is refused. Three facts carry that:

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from flint import arb, fmpq
from numpy.typing import NDArray

from transformula.kernel.enclosures.balls import round_up
from transformula.kernel.enclosures.taylor_models import Floats
from transformula.kernel.exceptions import ModelFileError, RefutedError
from transformula.kernel.folder.description import Proof
from transformula.kernel.folder.weights import Weights
from transformula.kernel.rounding.formats import EXP_ULPS, FORMATS, QUERY_FACTOR, FloatFormat, check_memory, check_size
from transformula.kernel.structures.network import ONE, HeadTable, NetworkWire, WireForm, read_network, wire_form

_CHUNK = 2_000_000
#: Samples times tokens.
MAX_SCORES = 250_000_000


class Memory(NamedTuple):
    """All tokens of the one head: score_j = slopes_j·x + Σ offsets_j, outputs Σ softmax_j values_j.

    Slopes (N, d), offsets (N, c), values (N, outputs).
    """

    slopes: Floats
    offsets: Floats
    values: Floats


def prove_memorize(weights: Weights, samples: Mapping[str, Any], form: FloatFormat | None = None) -> Proof:
    """Prove what the weights give at every sample; ``form`` as in `softmax_rule.NormReading`."""
    x, y = read_samples(weights, samples)
    memory = read_memory(weights)  # refuses what is too large
    check_memory(weights)
    return prove_memory(memory, form or FORMATS[weights.dtype], x, y)


def read_samples(weights: Weights, samples: Mapping[str, Any]) -> tuple[Floats, Floats]:
    """Inputs and outputs: (rows, d) and (rows, outputs)."""
    x, y = (_table(samples.get(name)) for name in ("x", "y"))
    if set(samples) != {"x", "y"} or len(x) != len(y):
        raise ModelFileError("model.json states samples that are not x and y with as many rows")
    if (x.shape[1], y.shape[1]) != (len(weights.inputs), weights.outputs):
        raise RefutedError("the samples have not the weights' numbers of inputs and outputs")
    check_size(FORMATS[weights.dtype], QUERY_FACTOR * arb(float(np.abs(x).max())))  # of inputs that nobody reads too
    return x, y


def _table(rows: object) -> Floats:
    if isinstance(rows, list) and rows and all(isinstance(r, list) and len(r) == len(rows[0]) for r in rows):
        numbers = all(type(v) is float or (type(v) is int and abs(v) < 2**53) for r in rows for v in r)
        if numbers and rows[0] and np.isfinite(table := np.array(rows, dtype=np.float64)).all():
            return table
    raise ModelFileError("model.json states samples that are not tables of finite numbers")


def read_memory(weights: Weights) -> Memory:
    """The tokens of a one-layer, one-head softmax model whose outputs are its table's columns as they are."""
    network = read_network(weights)
    inputs, wires = network.inputs, network.wires
    arguments = tuple(wire_form(k) for k in range(inputs))
    tables = [wire.table for wire in wires if wire.table is not None and wire.arguments == arguments]
    plain = (
        (network.blocks, network.positions) == (1, 1)
        and weights.blocks[0].feed_forward is None
        and len(weights.blocks[0].attention.heads) == 1
        and network.outputs == tuple(wire_form(inputs + k) for k in range(len(wires)))
    )
    if not plain or not tables or len(tables) != len(wires):
        raise RefutedError("a memorised model is one head over all inputs, read out as it is")
    return all_tokens(tables)


def all_tokens(tables: Sequence[HeadTable]) -> Memory:
    """The tokens of one head, its own first; ``tables`` are its columns, which share everything but the values."""
    first = tables[0]
    gates = np.concatenate([np.zeros(len(first.slopes)), first.gates])
    return Memory(
        np.concatenate([first.slopes, first.foreign_slopes]),
        np.column_stack([np.concatenate([first.offsets, first.foreign_offsets]), gates]),
        np.column_stack([np.concatenate([t.values, t.foreign_values]) for t in tables]),
    )


def prove_memory(memory: Memory, form: FloatFormat, x: Floats, y: Floats) -> Proof:
    """The bounds of the theorem, at all samples (rows, d) → (rows, outputs)."""
    gap, wrong, owner = smallest_gap(memory, x, form)
    if not gap > 2 * wrong:
        raise RefutedError("two samples are too close to be told apart by the scores")
    u, others = form.unit_roundoff, len(memory.slopes) - 1
    gamma, ulps = form.gamma(others + 1), 2 * EXP_ULPS * u
    share = others * (-gap).exp()
    computed = others * ((2 * wrong - gap).exp() * (1 + ulps) + form.faint) / (1 - ulps)
    off = (gamma * (1 + computed)).min((1 + 2 * gamma) * computed)
    if not off < 1:
        raise RefutedError("the other tokens of a sample weigh too much")
    twice = (1 + u) ** 2
    exact = 1 + arb(2) ** -52  # a float64 difference is within 2^-53 of the real one, relatively
    approximation = rounding = arb(0)
    for column in range(y.shape[1]):
        values = memory.values[:, column]
        missed = arb(float(np.abs(values[owner] - y[:, column]).max())) * exact
        spread = arb(float(np.ptp(values))) * exact
        size = arb(float(np.abs(values).max()))
        sums = off * size * (1 + twice) + (twice - 1) * (1 + computed) * size
        lost = 2 * (others + 1) * form.tiny * (1 + size) * (1 + gamma)  # underflow of divisions and products
        lost += form.value_slip
        approximation = approximation.max(missed + share * spread)
        rounding = rounding.max((computed * spread + sums) / (1 - off) + lost + share * spread)
    return Proof(round_up(approximation), round_up(rounding))


def smallest_gap(memory: Memory, x: Floats, form: FloatFormat) -> tuple[arb, arb, NDArray[np.intp]]:
    """Smallest lead of each sample's own token, the largest rounding of a score in the format, the owners."""
    slopes, (tokens, axes) = memory.slopes, memory.slopes.shape
    offsets, sizes = memory.offsets.sum(axis=1), np.abs(memory.offsets).sum(axis=1)
    smallest, size = np.inf, 0.0
    owner = np.empty(len(x), dtype=np.intp)
    if len(x) * tokens > MAX_SCORES:
        raise RefutedError(f"the samples have over {MAX_SCORES} scores: they are too many")
    step = max(1, _CHUNK // tokens)
    for start in range(0, len(x), step):
        part = x[start : start + step]
        scores = part @ slopes.T + offsets
        size = float(np.max([size, (np.abs(part) @ np.abs(slopes.T) + sizes).max()]))
        owner[start : start + step] = scores.argmax(axis=1)
        if tokens > 1:
            best = np.partition(scores, -2, axis=1)
            smallest = float(np.min([smallest, (best[:, -1] - best[:, -2]).min()]))
    if np.isnan(smallest) or not 4 * QUERY_FACTOR * arb(size) < form.largest:
        raise RefutedError(f"the scores at the samples are beyond {form.name}'s range")
    count, double = axes + memory.offsets.shape[1], FORMATS["float64"]
    # the float64 sums here: |computed − real| <= γ S + d·tiny for a score of terms of total size S, and S itself
    real = (arb(size) + count * double.tiny) / (1 - double.gamma(count))
    slack = 2 * (double.gamma(count + 1) * real + count * double.tiny)
    gap = arb(smallest) * (1 - double.unit_roundoff) - slack if tokens > 1 else form.largest
    # in the format: an input, a product, the sums, and the difference to the largest score, which is 2u S
    lost = 2 * form.tiny * (count + axes * arb(float(np.abs(slopes).max())))
    return gap.lower(), (form.gamma(count + 4) * real + lost + form.score_slip).upper(), owner


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
        self.form = form
        self.wires = inputs
        self.count = count
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
