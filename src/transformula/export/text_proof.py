"""The proof that a text model prints its formula.

*Theorem.* For every prompt of the grammar (`text_grammar`) whose numbers lie in the box, greedy decoding prints a
decimal number p with ``places`` decimals and |p − f| ≤ B + h + δ, where h is half a unit of the last place, B bounds
|y − f| for the computed y, and δ is what reading and choosing digits add. For every other prompt it prints ``nan``.

*Assumptions.* float64 with IEEE + − × ÷ and square roots rounded to nearest, sums in any order, fused multiply-adds
allowed; exp within `EXP_ULPS` units in the last place; the computed mean of n slots within n·u·max|slot| of their mean;
attention as one softmax, or in blocks of 64 keys or more that are rescaled; masked keys with weight 0 (where all are
masked, padding may average over all keys and hold 2^60 times as much, which is finite); logits rounded to float32 or
not; activation, eps and gain as in `text_weights`; a tokenizer that applies the regular expressions of tokenizer.json
as they are written. u is the unit roundoff, γ_n = nu/(1 − nu).

*Rows.* LayerNorm subtracts a mean m from every slot and divides by 1. All that is ever added to a stream has sum 0 up
to rounding, the balancing slot included, and no slot is above half of Z, the sum of the absolute values of all that was
added: for n slots, L blocks and sums of N ≥ n terms |m| ≤ μ = γ_{2N+2L+8} Z/n + γ_n Z/2. A row of weights w reads Σ w_i
z_i up to γ_{k+8} Σ|w_i z_i| + ν(w), k the number of its nonzero weights and ν(w) = 2 γ_{k+8} Σ|w| μ. A row of one
weight ±1 reads exactly 0 where its slot is 0: −m + m.

1. *Names.* The latest name scores at least 2·`NEARER` more than other names and far/2 more than other tokens. So
   ``latest`` is within 1/8 of 0 or 1, and ``other`` is exactly 0 for the name that holds and at least 0.99 for others.
2. *Numbers.* The anchor's score is 60 ln 2 up to D, that of the name's own tokens is 0 up to 4ν, which D includes; the
   value of the anchor, of memory tokens and of names is exactly 0. All values have one sign. The normaliser is 1 + τ,
   τ ≤ 2N·2^−60, with a rounding error of at most 2τ, as an addition errs by no more than its smaller operand. So x is
   read as x (1 + ρ), 1 + ρ = e^D (1 + θ)³ (1 + γ_{V+12}) / (1 − 4τ) with θ for exp and V digits, up to
   λ = e^(1 − 0.99·`MASK`) Σ|values| for masked tokens.
3. *The formula.* |y − f| ≤ B (`text_walk`).
4. *Invariant.* After the digits down to place k, p their value and s the sign,

       −(B + δ) ≤ s·f − s·p + h ≤ 10^k + (B + δ).

   The leading token is chosen by Y, the exact reading of the computed stream, |Y − f| ≤ B. Each ReLU errs by at most
   η₀, and edges are more than 2η₀ apart: the cell of Y has a computed distance of at most η₀, its logit is at least
   −(η₀ + ν), and so is that of the token that wins, but for a factor 1 + 2^−20: rounding to float32 keeps the order. A
   cell that Y is outside of by e has a distance of at least e − η₀. Hence e ≤ 3 (η₀ + ν). The first and the last cell
   reach beyond f's range. The next digit is chosen by t = 10^−k (s (y − p) + h), computed once, in the same way with
   η₁: it is d only if t ≥ d − 3 (η₁ + ν) or d = 0, and t ≤ d + 1 + 3 (η₁ + ν) or d = 9, where the invariant before it
   says the rest. So it holds with

       δ = max(3 (η₀ + ν), δ_p + γ_{n+24} (|b| + |p| + h) + 10^k (ν_t + 3 (η₁ + ν))),

   δ_p what reading p costs, b the bias of the readout, n slots. What reading y costs is in B: a weight of t is rounded
   twice, its product and up to five more terms once each, at most `_ANSWER` roundings more than an output has. With k
   the last place that is the theorem. ReLUs of other states are exactly 0, as gates are twice what they close.
5. *nan.* A number of the grammar is either inside its interval, and half a unit of its last decimal within the fence,
   or outside, and as much beyond. Reading is off by a quarter unit at most, so ``outside`` is exactly 0, or `ALARM` or
   more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flint import arb

from transformula.errors import NotProvenError
from transformula.export import text_layout as lay
from transformula.export.text_layout import TextLayer, TextLayout
from transformula.export.text_walk import COARSER, FORM, KERNEL_BLOCK, Surroundings, TextWalk
from transformula.export.text_weights import TextShape
from transformula.kernel.arithmetic import at_most, precision
from transformula.kernel.enclosures.balls import round_up
from transformula.kernel.folder.weights import FloatArray
from transformula.kernel.rounding.formats import EXP_ULPS
from transformula.model import Model

BITS = 128
#: Roundings that y meets in a row that prints digits, beyond those of an output (step 4).
_ANSWER = 12
#: Float sums and products of bounds are raised by this factor, which is more than they round.
_UP = 1.0001


@dataclass(frozen=True)
class TextClaim:
    """Proven: |printed − f| ≤ approximation + rounding + half a unit + reading."""

    approximation: float
    rounding: float
    half: float
    reading: float

    @property
    def bound(self) -> float:
        """The sum, rounded up."""
        parts = (self.approximation, self.rounding, self.half, self.reading)
        return round_up(sum(map(arb, parts), arb(0)))


class FenceError(NotProvenError):
    """The last decimal of a number is below what reading it costs."""


class DecimalsError(NotProvenError):
    """A unit of the answer's last decimal is below what the answer is off by."""


def _require(condition: object, what: str, error: type[NotProvenError] = NotProvenError) -> None:
    if not bool(condition):
        raise error(f"the text model is not proven: {what}; narrow the box")


class TextProof:
    """The theorem's steps for one layout, in order."""

    def __init__(self, model: Model, layout: TextLayout, ends: Sequence[tuple[arb, arb]]) -> None:
        self.model, self.layout, self.grammar, self.ends = model, layout, layout.grammar, ends
        self.shape = TextShape(layout)
        self.u = FORM.unit_roundoff
        self.blocks = layout.blocks
        #: The compiled blocks end before the block whose feed-forward layer prints digits, or with its heads.
        self.last = len(self.blocks) - 2

    def run(self) -> TextClaim:
        """All steps; `NotProvenError` says which one fails."""
        with precision(BITS):
            self._check_names()
            self._check_fences()
            return self._digits()

    # rows and streams

    @cached_property
    def _embedded(self) -> FloatArray:
        """Bounds of the slots of any token."""
        held: FloatArray = np.abs(self.layout.embedding).max(axis=0)
        held[self.layout.names.index("text.pos")] = self.layout.positions
        return held

    @cached_property
    def _streams(self) -> list[FloatArray]:
        """Bounds of what any token's slots hold before each block, with all that is added counted; and after the last.

        A number that is read, in part or whole, is at most the sum of all values (step 2).
        """
        held, streams = self._embedded, []
        for b, block in enumerate(self.blocks):
            streams.append(held)
            held = held + np.zeros_like(held)
            if b == 1:
                held[[*self.layout.input_slots, self._slot("printed")]] += float(self._values) * _UP
            else:
                for _, _, value, output in block.heads:
                    held += np.abs(output) @ (np.abs(value) @ streams[-1]) * _UP
            if block.layer is not None:
                held = held + _added(block.layer, held) * _UP
        _require(np.all(np.isfinite(held)) and 2 * held.sum() < 2.0**172, "its numbers are too large for LayerNorm")
        return [*streams, held]

    def _slot(self, name: str) -> int:
        return self.layout.names.index(f"text.{name}")

    @property
    def _values(self) -> arb:
        """Bound of the sum of all values in a prompt and its answer."""
        g = self.grammar
        return arb(len(g.inputs) * 10**g.integers + 10 ** max(g.lengths)) * (1 + arb(2) ** -20)

    def mean(self, held: FloatArray) -> arb:
        """μ for streams within these bounds; 2**-700 is more than what scaling by 2**-200 loses."""
        total, width = 2 * arb(float(held.sum())) * arb(_UP), self.shape.width
        uneven = FORM.gamma(2 * max(width, self.shape.units) + 2 * len(self.blocks) + 8) / width
        return (uneven + FORM.gamma(width) / 2) * total + arb(2) ** -700

    def noise(self, row: FloatArray, held: FloatArray) -> arb:
        """ν(w)."""
        size = arb(float(np.abs(row).sum())) * arb(_UP)
        return 2 * FORM.gamma(int(np.count_nonzero(row)) + 8) * size * self.mean(held)

    @cached_property
    def theta(self) -> arb:
        """Relative error of an exponential, rescaled with every block of keys."""
        blocks = 2 + -(-self.layout.positions // KERNEL_BLOCK)
        return ((2 * EXP_ULPS + 2) * self.u * blocks).exp() - 1

    # step 1

    def _check_names(self) -> None:
        layout, held = self.layout, self._streams[0]
        key = self.blocks[0].heads[0][1][0]
        far, count = arb(layout.far), layout.positions
        size = far + lay.NEARER * count
        wrong = 2 * (FORM.gamma(24) * size + self.noise(key, held) * 4 + self.u * size)
        others = len(self.grammar.inputs) * (wrong - 2 * lay.NEARER).exp() + count * (wrong - far / 2).exp()
        leak = others * (1 + self.theta) ** 2 + FORM.gamma(count + 16) + self.theta
        _require(leak < arb(1) / 8, "names are not told apart")
        layer = self.blocks[0].layer
        assert layer is not None
        _require(self.noise(layer.hidden[0], held + 1) + FORM.gamma(16) < arb(1) / 1000, "names are not kept apart")

    # step 2

    @cached_property
    def relative(self) -> arb:
        """ρ, the relative error of a number that is read."""
        held, count = self._streams[1], self.layout.positions
        key = self.blocks[1].heads[0][1][0]
        noise = 4 * self.noise(key, held)
        exact = arb(lay.ANCHOR_BITS) * arb(2).log()
        score = arb(lay.ANCHOR_SCORE)
        off = abs(score - exact) + FORM.gamma(12) * score + noise + self.u * (score + 1)
        tau = 2 * count * arb(2) ** -lay.ANCHOR_BITS
        whole = off.exp() * (1 + self.theta) ** 3 * (1 + FORM.gamma(self.grammar.digits + 12)) / (1 - 4 * tau)
        _require(off < arb(2) ** -30, "the anchor's weight is too uncertain")
        return (whole - 1).upper()

    @property
    def masked(self) -> arb:
        """λ for all heads that write one slot."""
        return len(self.layout.groups) * (1 - arb(lay.MASK) * 99 / 100).exp() * self._values

    # step 5

    def _check_fences(self) -> None:
        layout, held = self.layout, self._before_digits
        largest = arb(10**self.grammar.integers)
        wrong = self.relative * largest + self.masked + FORM.gamma(16) * 2 * largest
        wrong += self.noise(layout.fence_row(0, 1.0), held)
        if not wrong <= arb(1) / (4 * 10**self.grammar.decimals):
            raise FenceError("a number of the grammar cannot be told from the ends of its interval")
        widest = layout.head[int(np.abs(layout.head).sum(axis=1).argmax())]
        wrong = self.noise(widest, self._streams[-1]) + FORM.gamma(24) * 4 * lay.ALARM
        apart = min(lay.APART, lay.ALARM + lay.CALM, -lay.CALM)
        _require(apart > 1 and wrong < arb(1) / 4, "the logits of nan and of digits are not told apart")

    @cached_property
    def _before_digits(self) -> FloatArray:
        """Bounds of what the layer that prints digits reads."""
        held = self._streams[self.last]
        parts = [np.abs(o) @ (np.abs(v) @ held) * _UP for _, _, v, o in self.blocks[self.last].heads]
        return held + sum(parts, np.zeros_like(held))

    # step 3

    def _walk(self) -> TextWalk:
        box, held = self.model.box, self._before_digits
        errors = tuple(self.relative * box.magnitude(k) + self.masked for k in range(box.dimension))
        heads = [head for block in self.blocks[2 : self.last + 1] for head in block.heads]
        rows = [row for query, _, _, _ in heads for row in query]
        rows += [row for block in self.blocks[2 : self.last] if block.layer for row in block.layer.hidden]
        rows += [self.layout.answer(o)[0] for o in range(len(self.grammar.outputs))]
        widest = arb(max(float(np.abs(row).sum()) for row in rows)) * arb(_UP)
        most = max(int(np.count_nonzero(row)) for row in rows)
        gates = [self.noise(key[-1], held) for _, key, _, _ in heads]
        gate = max(gates, key=round_up, default=arb(0))
        around = Surroundings(self.mean(held), widest, most, gate, errors, self.layout.positions, answer=_ANSWER)
        for bits in COARSER:
            walk = TextWalk(self.model, around, bits)
            if walk.covered:
                return walk
        raise NotProvenError(
            "the text model is not proven: LayerNorm rounds too much beside its tables; narrow the box"
        )

    # step 4

    def _digits(self) -> TextClaim:
        walk, layout = self._walk(), self.layout
        outputs = range(len(self.grammar.outputs))
        found = [walk.output(o) for o in outputs]
        error, rounding = (float(np.max([pair[side] for pair in found])) for side in (0, 1))
        bound, half, size = (
            arb(error) + arb(rounding),
            arb(layout.half.numerator) / layout.half.denominator,
            arb(layout.size),
        )
        self._check_ends(bound, half)
        biases = max(abs(layout.answer(o)[1]) for o in outputs)
        sums = max(round_up(walk.form_size(walk.network.outputs[o])) for o in outputs) + 2 * layout.size + biases
        nu, eta = self._choices()
        cells = max((self.noise(layout.cell_row(o, 1.0), self._before_digits) for o in outputs), key=round_up)
        every = FORM.gamma(self.shape.width + 24)
        lead = every * arb(sums) + cells
        read = self.relative * size + self.masked + every * (size + arb(biases) + half)
        deltas = [3 * (lead + nu)]
        for state in self.grammar.states:
            noise = max((self.noise(layout.place_row(o, state), self._before_digits) for o in outputs), key=round_up)
            _require(noise < arb(1) / 2, "what LayerNorm rounds reaches the digits", DecimalsError)
            deltas.append(read + arb(10) ** state.place * (noise + 3 * (eta + nu)))
        delta = max(map(round_up, deltas))
        _require(max(nu, eta, lead, key=round_up) < arb(1) / 16, "its digits are not told apart")
        if not bound + arb(delta) <= 2 * half:
            raise self._too_many(error, round_up(bound + delta))
        return TextClaim(error, rounding, round_up(half), delta)

    def _too_many(self, approximation: float, off: float) -> DecimalsError:
        """The refusal of decimals that are not proven; all errors but the approximation shrink with the numbers."""
        size, unit = max(round_up(abs(end)) for pair in self.ends for end in pair), 10.0**-self.grammar.places
        advice = (
            f"the formula's values reach {size:.2g}: narrow the box until they are below {size * unit / off / 2:.1g}"
        )
        if approximation > off / 2:
            advice = "compile with a smaller --eps"
        text = f"--decimals {self.grammar.places} is too many: an answer may be off by {at_most(off)}"
        return DecimalsError(f"{text}, over a unit of the last; {advice}")

    def _check_ends(self, bound: arb, half: arb) -> None:
        """The first and last cells reach beyond all answers, and gates close what they have to."""
        above, below = self.grammar.lengths
        for low, high in self.ends:
            _require(high + half <= 10**above, "an answer has more digits than the text model prints")
            _require(-low + half <= 10**below if below else low >= -half, "an answer is below all that it prints")
            _require(
                abs(low).max(abs(high)) + bound + 3 <= arb(self.layout.size), "an answer is too large for its gates"
            )
        _require(10 ** max(above, below) <= self.layout.size, "a leading digit is too large for its gates")

    def _choices(self) -> tuple[arb, arb]:
        """ν of a logit and η₁ of a digit, for a prompt in its box.

        There t is at most 10 + 2 units and what is read wrong, 13 in all; no number is outside, and at most one of a
        state's ReLUs is open.
        """
        layout, largest = self.layout, 13.0
        held = np.array(self._before_digits)
        held[self._slot("next")] += largest
        missed = 2 * self.layout.size * len(layout.edges) * _UP
        held[[self._slot(lay.missed_slot(cell)) for cell in self.grammar.cells]] += missed
        eta = FORM.gamma(16) * (largest + 9) + self.noise(layout.row({"next": 1.0}), held)
        held[[self._slot(lay.wrong_slot(d)) for d in range(10)]] += 9 * (largest + 10)
        return 2 * self.noise(layout.row({"next": 1.0 + lay.APART}), held), eta


def _added(layer: TextLayer, held: FloatArray) -> FloatArray:
    """Bounds of what a feed-forward layer adds to slots within bounds; twice, for rounding."""
    inside = np.abs(layer.hidden) @ held + np.abs(layer.hidden_bias)
    return 2 * (np.abs(layer.output) @ inside + np.abs(layer.output_bias))
