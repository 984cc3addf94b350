r"""The rounding of a model inside an architecture with norms that cannot be removed, only switched off.

A norm with the gain G = 2^50 and ε = G² divides by √(v + 2^100): if the mean square or variance v is below half a unit
in the last place of 2^100, that is exactly 2^50, and the gain undoes it. (Where numbers of LayerNorm in float64 are too
large for that, G = 2^100.) Two kinds of norms remain, both in front of every sublayer and of the readout. u is the unit
roundoff, η the smallest normal number, and the rest is the model of `kernel.rounding.formats`; 1/√G² is taken to be
exact, as an IEEE root and quotient are.

*RMSNorm* (T5, Llama) multiplies by 1/G and by G: the identity, except that a slot below G·η may underflow on its way.
It is then off by at most 2·G·η =: f.

*LayerNorm* (GPT-2, torch.nn) first subtracts the mean. The stream is given two more slots: *zero*, never written,
and *balance*, which holds minus the sum of all others, so that the mean is 0 up to rounding. Let the computed mean be
m̂, |m̂| ≤ M. Every slot i is read as (z_i − m̂)(1 + δ_i), and zero as −m̂ exactly. Whatever reads Σ w_i z_i reads
Σ w_i slot_i − s·zero, s = fl(Σ w_i), so that m̂ cancels:

    computed = Σ w_i z_i (1 + θ_{k+2}) + e,    |e| ≤ 2 γ_{k+6} M Σ |w_i|,

for k terms, since each meets δ_i, one more addition, and the roundings it met before, and s its own. So every term is
rounded twice more than without a norm, and the form is off by e: of second order, as M is of order u. A sum of
nonnegative slots may now come out below zero.

*M.* A sublayer writes n terms into a slot and their negated sum into balance, with errors of at most γ_{n+4} times the
sum of the absolute values; added up over all writes, the sum of the stream is off by at most γ_{n+4}·2S, where S adds
up bounds of all slots after every write (`_Sizes`). The computed mean is within γ_{E+8} max|slot| of the real mean of
the E slots, whether in one pass, two passes or by updates.

*Keys and values* are read the same way from memory tokens, so a score Σ query_r·key_r is off by Σ |query_r| e_r
(`score_slip`), and a value by its e (`value_slip`). Gates have slots of their own (`gate_slots`). Slopes and offsets
meet two more roundings: the kernel counts two for a slope and one for an offset, which are read with a query of exactly
1 (a bias). With a unit roundoff of 3u it counts six and three, and three for each of the n + 2 ≥ 3 roundings of a
value, where n + 4 are made. The kernel's own rule then proves the rounding again in that format, over the same
evidence.

*Attention in blocks.* A fused kernel takes `KEYS` keys or more at a time (torch's on a CPU takes 512) and subtracts the
largest score m_b so far. What it has is rescaled by the exponential of m_b − m_c when that grows, r times at most for
r + 1 blocks, weights and products alike. The differences add up to the one that a single softmax rounds, so that each
of the r factors adds its exponential's error and one product. With a unit roundoff of c·u the kernel's rule counts c
times θ = 2·`EXP_ULPS`·u and c·M roundings of a sum of M weights, where 1 + r exponentials and M + r roundings are made:
c ≥ 1 + r (θ + u)/θ is enough.

*Causal attention* hides data tokens of later positions from a position. They are foreign to every head, and the
kernel's bound for foreign tokens holds for any of them: approximation and rounding stay proven.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from flint import arb, fmpq

from transformula.compiler.evidence.range_search import inside_domain
from transformula.errors import ExportError, NotProvenError
from transformula.kernel.arithmetic import precision
from transformula.kernel.derivations.meanings import Meanings
from transformula.kernel.enclosures.balls import round_up
from transformula.kernel.folder.description import EVIDENCE_FILE, Description, Proof, parse_json
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.model_files import Packed, unpack
from transformula.kernel.folder.weights import FloatArray, Head, Matrix, Weights
from transformula.kernel.gallery.local_rule import prove_local
from transformula.kernel.gallery.memorize_rule import prove_memorize
from transformula.kernel.rounding.formats import EXP_ULPS, FORMATS, FloatFormat
from transformula.kernel.rules.rule_table import target
from transformula.kernel.rules.softmax_rule import NormReading, Walk, prove_softmax
from transformula.kernel.structures.network import ONE, Term, WireForm, read_network, wire_form
from transformula.kernel.structures.stored_circuit import CircuitReader, Place
from transformula.kernel.syntax.boxes import Box, formula_of_a_position

#: Possible gains of the norms, whose squares are the ε of the config; the larger one only in float64.
GAINS = (2.0**50, 2.0**100)
#: Constructions whose circuit is walked, and those with sharp cells in their last block.
CIRCUITS = ("lookup", "circuit", "partition", "attention-only")
SHARP = ("partition", "attention-only")
#: Slots that LayerNorm needs beside those of the weights: zero and balance.
CENTRE_SLOTS = 2
_Rows = dict[tuple[str, tuple[int, ...]], arb]
#: Roundings and unit roundoff of what is read through LayerNorm.
_READS, _UNITS = 2, 3
#: Fewest keys that a fused attention kernel takes at a time.
KEYS = 512
_BITS = 120


@dataclass(frozen=True, kw_only=True)
class NormFormat(FloatFormat):
    """A format with what a norm adds to it: its roundings an operation, and the error of a form that is read."""

    units: int
    read_slip: arb

    @property
    def unit_roundoff(self) -> arb:
        """Largest relative error of one operation."""
        return self.units * arb(2) ** -self.digits

    @property
    def tiny(self) -> arb:
        """Largest absolute error of an operation that underflows, or of a form that is read."""
        return (super().tiny + self.read_slip).upper()


class StretchedEvidence(Evidence):
    """The stored evidence, its outermost pieces widened: arguments that are rounded more reach a little further."""

    def pieces(self, wire: int, table: Any, function: Any, names: Any, ends: Any, meant: Any = None) -> Any:
        """Pieces up to the ends that are asked for, within the function's domain."""
        found = super().pieces(wire, table, function, names, ends, meant)
        if len(names) > 1:
            return found
        return _widened(found, *inside_domain(function, (float(ends[0][0]), float(ends[0][1]))))

    def cells(self, wire: int, function: Any, low: float, high: float) -> Any:
        """Cells up to the ends that are asked for."""
        return _widened(super().cells(wire, function, low, high), low, high)

    def slopes(self, wire: int, table: Any, function: Any, low: float, high: float, enough: float) -> Any:
        """Pieces of slopes up to the ends that are asked for."""
        return _widened(super().slopes(wire, table, function, low, high, enough), low, high)

    def softmax(self, wire: int, table: Any, ends: Any) -> Any:
        """Intervals up to the ends that are asked for, on every axis."""
        found = super().softmax(wire, table, ends)
        pairs = zip(found, ends, strict=True)
        return [_widened(axis, -round_up(-low), round_up(high)) for axis, (low, high) in pairs]


def _widened(edges: list[float], low: float, high: float) -> list[float]:
    return [min(edges[0], low), *edges[1:-1], max(edges[-1], high)]


def prove_normed(packed: Packed, box: Box, width: int | None = None) -> Proof:
    """The kernel's proof of a softmax model read through norms: LayerNorm over ``width`` slots, or RMSNorm."""
    weights, stated = unpack(packed)
    evidence = StretchedEvidence(parse_json(packed.evidence, EVIDENCE_FILE))
    with precision(_BITS):
        tables = _tables(weights, stated, evidence) if stated.construction in CIRCUITS else {}
        norm = norm_reading(weights, box, width, tables)
        found = _tables(weights, stated, evidence, norm) if tables else {}
    if any(not size <= 1.5 * tables[place] for place, size in found.items()):  # by induction M holds block by block
        raise NotProvenError("a table read through a norm may hold far more than without one")
    if stated.construction == "memorize":
        return prove_memorize(weights, stated.samples or {}, norm.form)
    if stated.construction == "local-polynomials":
        return prove_local(weights, target(stated), stated.circuit, evidence, norm)
    return prove_softmax(weights, target(stated), stated.circuit, evidence, stated.construction in SHARP, norm)


def _tables(
    weights: Weights, stated: Description, evidence: Evidence, norm: NormReading | None = None
) -> Mapping[Place, float]:
    """Proven bounds of what the tables hold at data tokens, by place; values alone may be far larger."""
    form = FORMATS[weights.dtype] if norm is None else norm.form
    network = read_network(weights) if norm is None else read_network(weights, norm.reading)
    formula = target(stated)
    formula = formula_of_a_position(formula, network.positions) if network.repeated else formula
    circuit = CircuitReader(formula.box.variables).read(stated.circuit)
    meanings = Meanings(formula, circuit, stated.circuit, evidence, floors=True)
    walk = Walk(form, network, circuit, meanings, evidence, stated.construction in SHARP)
    walk.run()
    wires = ((wire, walk.values[k]) for k, wire in enumerate(circuit.wires) if wire.function is not None)
    return {wire.place: round_up(v.size + v.error + v.rounding) for wire, v in wires if wire.place is not None}


def gate_slots(weights: Weights) -> list[FloatArray]:
    """The gates of all heads, each as one number a token; with LayerNorm each has a slot.

    The weights add up several marks of a token, at most one of which is not 0, times large numbers: m̂ would be
    multiplied by each of these.
    """
    constants, found = weights.memory.dense(np.float64), dict[bytes, FloatArray]()
    for head in _heads(weights):
        counts = np.bincount(head.key.rows, minlength=head.key.shape[0])
        dense = head.key.dense(np.float64)[counts > 1]
        found |= {gate.tobytes(): gate for gate in dense @ constants.T + 0.0}
    return list(found.values())


def norm_gain(weights: Weights, box: Box, centred: bool) -> float:
    """The gain that switches off the norms of a model, LayerNorm if ``centred``; its square is their ε."""
    with precision(_BITS):
        return _Sizes(weights, box, {}, centred).gain(FORMATS[weights.dtype], centred)


def norm_reading(
    weights: Weights, box: Box, width: int | None = None, tables: Mapping[Place, float] | None = None
) -> NormReading:
    """The format and the network of weights whose slots are read through norms; ``tables`` bounds their results."""
    form, centred = FORMATS[weights.dtype], width is not None
    sizes = _Sizes(weights, box, tables or {}, centred)
    flush = 2 * arb(norm_gain(weights, box, centred)) * form.normal
    means = [arb(0), arb(0)] if width is None else [sizes.mean(kind, width, form) for kind in (0, 1)]

    def off(matrix: Matrix, mean: arb, bias: Matrix | None = None, answer: bool = False) -> list[arb]:
        """e of the theorem, for every row of a matrix that reads the stream, its bias a slot's too."""
        totals = _times(matrix, np.ones(matrix.shape[1]))
        terms = np.bincount(matrix.rows, minlength=matrix.shape[0]) + (bias is not None)
        if answer:  # a gate has a slot of its own
            totals, terms = np.where(terms > 1, 1.0, totals), np.minimum(terms, 1)
        if bias is not None:
            totals = totals + np.abs(bias.dense(np.float64)[:, 0])
        unit = {k: 2 * form.gamma(k + 6) * mean + flush for k in set(terms.tolist())}
        return [arb(float(t)) * unit[int(k)] for t, k in zip(totals, terms, strict=True)]

    rows: _Rows = {("output", (o,)): e for o, e in enumerate(off(weights.readout, means[0], weights.bias))}
    for b, block in enumerate(weights.blocks):
        for h, head in enumerate(block.attention.heads):
            rows |= {("query", (b, h, k)): e for k, e in enumerate(off(head.query, means[0]))}
        if (layer := block.feed_forward) is not None:
            units = off(layer.hidden, means[0], layer.hidden_bias)
            rows |= {("hidden", (b, unit)): e for unit, e in enumerate(units)}
    either = max(means, key=round_up)  # data tokens answer too, as foreign ones
    scores = [arb(0)]
    values = [arb(0)]
    for asked, head in zip(sizes.asked, _heads(weights), strict=True):
        scores.append(
            sum((arb(float(q)) * e for q, e in zip(asked, off(head.key, either, answer=centred), strict=True)), arb(0))
        )
        values += off(head.value, either)
    unit = flush if tables else _largest([*rows.values()])
    normed = NormFormat(
        form.name, form.digits, form.largest_exponent, not centred, _largest(scores), _largest(values),
        units=max(_UNITS if centred else 1, _block_units(weights.tokens)), read_slip=unit,
    )  # fmt: skip
    inputs = int((weights.embedding.rows < weights.width).sum())
    return NormReading(normed, _Lost(unit, centred, inputs, rows).reading)


def _block_units(tokens: int) -> int:
    """c of the theorem for attention in blocks of keys."""
    rescaled = -(-tokens // KEYS) - 1
    return 1 + -(-rescaled * (2 * EXP_ULPS + 1) // (2 * EXP_ULPS))


class _Lost(NamedTuple):
    """e of the theorem in units of the format's smallest number, by what reads; ``reading`` adds it to a form.

    With RMSNorm (not ``centred``) the first ``inputs`` wires are read as they are, and their own rounding to the format
    counts what underflows; what is 0 stays 0.
    """

    unit: arb
    centred: bool
    inputs: int
    rows: _Rows

    def reading(self, form: WireForm, kind: str, place: tuple[int, ...]) -> WireForm:
        """A form as it is read: each term rounded twice more by LayerNorm, and all off by e."""
        if not self.centred and (not form.terms or any(form == wire_form(k) for k in range(self.inputs))):
            return form
        more = _READS if self.centred else 0
        terms = {k: Term(t.coefficient, t.size, t.roundings + more) for k, t in form.terms.items()}
        units = round_up(self.rows[kind, place] / self.unit)
        if not units < math.inf:
            raise NotProvenError("the slots of this model are too large to be read through a norm")
        return WireForm(terms or {ONE: Term(fmpq(0), fmpq(0), 0)}, form.underflow + fmpq(math.ceil(units)))


class _Sizes:
    """Bounds of |slot|, in floats too, of data tokens (0) and memory tokens (1), from the weights alone.

    ``slots`` are the largest slots, ``sums`` the sums over all slots, both at the end, when they are largest;
    ``written`` adds up these sums over all sublayers. ``asked`` are the sizes of each head's queries. What reading
    through LayerNorm adds to queries and hidden units is counted as it arises (`_slip`): large weights on small slots
    make it far larger than what is meant.
    """

    def __init__(self, weights: Weights, box: Box, tables: Mapping[Place, float], centred: bool) -> None:
        constants = np.abs(weights.memory.dense(np.float64))
        data = len(weights.data_tokens)
        held = np.stack([constants[:data].max(axis=0), constants[data:].max(axis=0, initial=0.0)])
        held[0, weights.slot("one")] += 1  # the constant 1 may have another slot, for biases
        for row, column in zip(weights.embedding.rows.tolist(), weights.embedding.cols.tolist(), strict=True):
            slot = row % weights.width
            held[0, slot] = max(held[0, slot], round_up(box.magnitude(column)))
        answers = constants.max(axis=0, initial=0.0)
        self.asked = list[FloatArray]()
        self.terms = len(weights.inputs)
        self.form, self.centred, self.widest = FORMATS[weights.dtype], centred, _widest(weights)
        for block in weights.blocks:
            units = 0 if block.feed_forward is None else block.feed_forward.hidden.shape[0]
            self.terms = max(self.terms, units, sum(head.value.nonzeros for head in block.attention.heads))
        gates = sum(float(np.abs(gate).max()) for gate in gate_slots(weights))  # the same at all times
        self.written = held.sum(axis=1) + (2 * len(weights.blocks) + 1) * gates
        for b, block in enumerate(weights.blocks):
            heads = block.attention.heads
            self.asked += [2 * (_times(head.query, held[0]) + self._slip(head.query, held, gates)[0]) for head in heads]
            for h, head in enumerate(heads):
                added = np.stack([_times(head.value, answers)] * 2)
                for column, slot in enumerate(head.value.rows.tolist()):
                    added[0, slot] = tables.get((b, h, column), added[0, slot])
                held = held + added
            self.written = self.written + held.sum(axis=1)
            if (layer := block.feed_forward) is not None:
                bias, added = (np.abs(m.dense(np.float64)[:, 0]) for m in (layer.hidden_bias, layer.output_bias))
                slips = self._slip(layer.hidden, held, gates, bias)
                hidden = [_times(layer.hidden, one) + bias + slip for one, slip in zip(held, slips, strict=True)]
                held = held + np.stack([_times(layer.output, one) + added for one in hidden])
                self.written = self.written + held.sum(axis=1)
        self.slots, self.sums = (
            2 * held.max(axis=1, initial=0.0),
            2 * (held.sum(axis=1) + gates),
        )  # computed: at most twice

    def _slip(self, matrix: Matrix, held: FloatArray, gates: float, bias: FloatArray | float = 0.0) -> list[FloatArray]:
        """e of the theorem for every row of a matrix, on data and on memory tokens, before the width is known."""
        if not self.centred:
            return [np.zeros(matrix.shape[0])] * 2
        totals, gamma = _times(matrix, np.ones(matrix.shape[1])) + bias, self.form.gamma
        flush, reading = 2 * arb(GAINS[-1 if self.form.digits > 24 else 0]) * self.form.normal, gamma(self.widest + 8)
        means = [4 * gamma(self.terms + 4) * arb(float(w)) for w in self.written]
        means = [m + 2 * reading * arb(float(one.sum() + gates)) for m, one in zip(means, held, strict=True)]
        return [totals * round_up(2 * reading * mean + flush) * (1 + 2.0**-20) for mean in means]

    def gain(self, form: FloatFormat, centred: bool) -> float:
        """The smallest gain that no stream of this size disturbs."""
        most = float(self.sums.max() if centred else self.slots.max())
        digits = form.digits if centred else FORMATS["float32"].digits  # in which the mean square is computed
        gains = GAINS if digits == FORMATS["float64"].digits else GAINS[:1]
        fitting = [gain for gain in gains if 16 * arb(most) ** 2 < arb(gain) ** 2 * arb(2) ** -digits]
        if not fitting:
            raise ExportError(f"the residual stream of this model may reach {most:.2g}, too large to switch off a norm")
        return fitting[0]

    def mean(self, kind: int, width: int, form: FloatFormat) -> arb:
        """M of the theorem."""
        unbalanced = form.gamma(self.terms + 4) * 4 * arb(float(self.written[kind])) / width
        return (unbalanced + form.gamma(width + 8) * arb(float(self.sums[kind]))).upper()


def _widest(weights: Weights) -> int:
    """No layer is wider: heads have at most 16 times as many coordinates as queries have rows (`stock_packing`)."""
    rows = max((head.query.shape[0] for head in _heads(weights)), default=1)
    pieces = max((sum(h.value.nonzeros for h in block.attention.heads) for block in weights.blocks), default=0)
    return weights.width + CENTRE_SLOTS + len(gate_slots(weights)) + 1 + 16 * rows * (1 + pieces)


def _times(matrix: Matrix, sizes: FloatArray) -> FloatArray:
    """|matrix|·sizes, a little above what it is: rounding, and floats that stand for rationals."""
    products = np.abs(matrix.values.astype(np.float64)) * sizes[matrix.cols]
    sums: FloatArray = np.bincount(matrix.rows, products, matrix.shape[0]) * (1 + 2.0**-20)
    return sums


def _heads(weights: Weights) -> Iterator[Head]:
    for block in weights.blocks:
        yield from block.attention.heads


def _largest(values: list[arb]) -> arb:
    return arb(max(map(round_up, values), default=0.0))
