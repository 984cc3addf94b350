r"""The rounding of a model inside an architecture with norms that cannot be removed, only switched off.

A norm with the gain G = 2^50 and ε = G² divides by √(v + 2^100): if the mean square or variance v is below half a unit
in the last place of 2^100, that is exactly 2^50, and the gain undoes it. (Where numbers of LayerNorm in float64 are too
large for that, G = 2^100.) Two kinds of norms remain, both in front of every sublayer and of the readout. u is the unit
roundoff, η the smallest normal number, and the rest is the model of `kernel.rounding.formats`; 1/√G² is taken to be
exact, as an IEEE root and quotient are.

*RMSNorm* (T5, Llama) multiplies by 1/G and by G: the identity, except that a slot below G·η may underflow on its way.
It is then off by at most 2·G·η =: f.

*LayerNorm* (GPT-2, torch.nn) first subtracts the mean. The stream is written as `norm_sizes` says, slot i holding
d_i·z_i, and has a slot *zero*, never written, and *balance*, which holds minus the sum of all others, so that the mean
is 0 up to rounding. Let the computed mean be m̂, |m̂| ≤ M. Every slot i is read as (d_i z_i − m̂)(1 + δ_i), and zero as
−m̂ exactly. Whatever reads Σ w_i z_i reads Σ (w_i/d_i) slot_i − s·zero, s = fl(Σ w_i/d_i), so that m̂ cancels:

    computed = Σ w_i z_i (1 + θ_{k+2}) + e,    |e| ≤ 2 γ_{k+6} M Σ |w_i|/d_i,

for k terms, since each meets δ_i, one more addition, and the roundings it met before, and s its own. So every term is
rounded twice more than without a norm, and the form is off by e: of second order, as M is of order u where all slots
are of order 1. A sum of nonnegative slots may now come out below zero.

*M.* A sublayer writes n terms into a slot and their negated sum into balance, with errors of at most γ_{n+4} times the
sum of the absolute values; added up over all writes, the sum of the stream is off by at most γ_{n+4}·2S, where S adds
up bounds of all slots after every write (`Sizes`). The computed mean is within γ_{E+8} max|slot| of the real mean of
the E slots, whether in one pass, two passes or by updates.

*Keys and values* are read the same way from memory tokens, so a score Σ query_r·key_r is off by Σ |query_r| e_r
(`score_slip`, the largest), and a value by its e, and so is what its head writes, a mean of such values
(`SlippedWalk`). A gate that is 0 is read as 0. Any other meets at most four more roundings than without a norm, as
M ≤ 1/8: 2d + 5 for d axes, where the kernel counts 2d + 3 of the whole score, which is 6d + 9 with a unit roundoff of
3u. Slopes and offsets meet two more roundings: the kernel counts two for a slope and one for an offset, which are read
with a query of exactly 1 (a bias). With a unit roundoff of 3u it counts six and three, and three for each of the
n + 2 ≥ 3 roundings of a value, where n + 4 are made. The kernel's own rule then proves the rounding again in that
format, over the same evidence.

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
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from flint import arb, fmpq

from transformula.compiler.evidence.range_search import inside_domain
from transformula.errors import NotProvenError
from transformula.export.norm_sizes import Sizes, banded, stream_scales, times, with_sink
from transformula.kernel.arithmetic import precision
from transformula.kernel.circuit.carried_errors import Value
from transformula.kernel.circuit.error_flow import Fuzz
from transformula.kernel.derivations.meanings import Meanings
from transformula.kernel.enclosures.balls import round_up
from transformula.kernel.folder.description import EVIDENCE_FILE, Description, Proof, add_up, parse_json
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.model_files import Packed, unpack
from transformula.kernel.folder.weights import FloatArray, Matrix, Weights
from transformula.kernel.gallery.local_rule import prove_local
from transformula.kernel.gallery.memorize_rule import prove_memorize
from transformula.kernel.rounding.formats import EXP_ULPS, FORMATS, FloatFormat, check_memory
from transformula.kernel.rules.rule_table import target
from transformula.kernel.rules.softmax_rule import NormReading, Walk
from transformula.kernel.structures.network import ONE, NetworkWire, Term, WireForm, read_network, wire_form
from transformula.kernel.structures.stored_circuit import CircuitReader, Place, Wire
from transformula.kernel.syntax.boxes import Box, formula_of_a_position

#: Constructions whose circuit is walked, and those with sharp cells in their last block.
CIRCUITS = ("lookup", "circuit", "partition", "attention-only")
SHARP = ("partition", "attention-only")
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


@dataclass(frozen=True, eq=False)
class Norms:
    """How the norms of a model are switched off: the gain, and for LayerNorm the stream as `norm_sizes` writes it.

    ``weights`` are the model's, with a sink and bands; ``scales`` has d_i for every slot, None where no mean is
    subtracted; ``sink`` is c. ``tables`` bounds what the tables of a ``circuit`` hold at data tokens, by place.
    """

    weights: Weights
    gain: float
    sink: int
    scales: FloatArray | None
    circuit: bool
    tables: Mapping[Place, float]


@lru_cache(maxsize=2)
def norms_off(packed: Packed, box: Box, centred: bool) -> Norms:
    """The norms of a model, LayerNorm if ``centred``."""
    weights, stated = unpack(packed)
    circuit = stated.construction in CIRCUITS
    weights = banded(with_sink(weights)) if centred else weights
    with precision(_BITS):
        tables = _held(_walk(weights, stated, packed)) if circuit else {}
        scales = stream_scales(weights, box, tables) if centred else None
        sizes = Sizes(weights, box, tables, scales)
        return Norms(weights, sizes.gain(), sizes.sink, scales, circuit, tables)


def prove_normed(packed: Packed, box: Box, norms: Norms, width: int | None = None) -> Proof:
    """The kernel's proof of a softmax model read through norms: LayerNorm over ``width`` slots, or RMSNorm."""
    stated = unpack(packed)[1]
    with precision(_BITS):
        norm, slips = norm_reading(norms, box, width)
        if norms.circuit:
            return _walked(_walk(norms.weights, stated, packed, norm, slips), norms)
        form = replace(norm.form, value_slip=_largest(list(slips.values())))
    if stated.construction == "memorize":
        return prove_memorize(norms.weights, stated.samples or {}, form)
    return prove_local(norms.weights, target(stated), stated.circuit, _evidence(packed), norm._replace(form=form))


def _walked(walk: SlippedWalk, norms: Norms) -> Proof:
    """The bounds that a walk through norms proves, as `softmax_rule.prove_softmax` concludes them."""
    # by induction M holds block by block
    if any(not size <= 1.5 * norms.tables[place] for place, size in _held(walk).items()):
        raise NotProvenError("a table read through a norm may hold far more than without one")
    check_memory(norms.weights)
    results = [walk.output(o) for o in range(len(walk.circuit.outputs))]
    errors, rounding = (float(np.max([one[side] for one in results])) for side in (0, 1))
    return Proof(add_up(errors, walk.meanings.facts.apart), rounding)


class SlippedWalk(Walk):
    """A walk over tables whose values are read with an error of their own, by place."""

    slips: Mapping[Place, arb] = MappingProxyType({})

    def _value(self, k: int, wire: Wire, found: NetworkWire) -> Value:
        value = super()._value(k, wire, found)
        if wire.function is None or found.place not in self.slips:
            return value
        lost = self.slips[found.place] * (1 + arb(2) ** -20)  # a mean of the values' errors, and what rounds beside it
        rounded = Fuzz(value.rounded.argument, round_up(arb(value.rounded.value) + lost))
        return replace(value, rounding=(value.rounding + lost).upper(), rounded=rounded)


def _walk(
    weights: Weights,
    stated: Description,
    packed: Packed,
    norm: NormReading | None = None,
    slips: Mapping[Place, arb] | None = None,
) -> SlippedWalk:
    """The kernel's walk over all wires, read through norms or not."""
    network = read_network(weights) if norm is None else read_network(weights, norm.reading)
    formula = target(stated)
    formula = formula_of_a_position(formula, network.positions) if network.repeated else formula
    circuit, evidence = CircuitReader(formula.box.variables).read(stated.circuit), _evidence(packed)
    meanings = Meanings(formula, circuit, stated.circuit, evidence, floors=True)
    form = FORMATS[weights.dtype] if norm is None else norm.form
    walk = SlippedWalk(form, network, circuit, meanings, evidence, stated.construction in SHARP)
    walk.slips = slips or walk.slips
    walk.run()
    return walk


def _held(walk: Walk) -> dict[Place, float]:
    """Proven bounds of what the tables hold at data tokens, by place; values alone may be far larger."""
    wires = ((wire, walk.values[k]) for k, wire in enumerate(walk.circuit.wires) if wire.function is not None)
    return {wire.place: round_up(v.size + v.error + v.rounding) for wire, v in wires if wire.place is not None}


def _evidence(packed: Packed) -> StretchedEvidence:
    return StretchedEvidence(parse_json(packed.evidence, EVIDENCE_FILE))


def norm_reading(norms: Norms, box: Box, width: int | None) -> tuple[NormReading, dict[Place, arb]]:
    """The format and the network of weights read through norms, and what the values of each table are off by."""
    weights, centred = norms.weights, norms.scales is not None
    form, sizes = FORMATS[weights.dtype], Sizes(weights, box, norms.tables, norms.scales)
    flush, inverse = 2 * arb(norms.gain) * form.normal, 1 / sizes.scales
    means = [arb(0), arb(0)] if width is None else [sizes.mean(kind, width) for kind in (0, 1)]
    if any(not mean <= 0.125 for mean in means):
        raise NotProvenError("the numbers of this model are too far apart for a norm that subtracts their mean")

    def off(matrix: Matrix, mean: arb, bias: Matrix | None = None) -> list[arb]:
        """e of the theorem, for every row of a matrix that reads the stream, its bias a slot's too."""
        totals = times(matrix, np.tile(inverse, matrix.shape[1] // len(inverse)))  # a readout reads all tokens
        terms = np.bincount(matrix.rows, minlength=matrix.shape[0]) + (bias is not None)
        if bias is not None:
            totals = totals + np.abs(bias.dense(np.float64)[:, 0])
        unit = {k: 2 * form.gamma(k + 6) * mean + flush for k in set(terms.tolist())}
        return [arb(float(t)) * unit[int(k)] for t, k in zip(totals, terms, strict=True)]

    rows: _Rows = {("output", (o,)): e for o, e in enumerate(off(weights.readout, means[0], weights.bias))}
    scores, slips = [arb(0)], dict[Place, arb]()
    either = max(means, key=round_up)  # data tokens answer too, as foreign ones
    asked = iter(sizes.asked)
    for b, block in enumerate(weights.blocks):
        for h, head in enumerate(block.attention.heads):
            rows |= {("query", (b, h, k)): e for k, e in enumerate(off(head.query, means[0]))}
            read = off(head.key, either)
            if centred:
                read[-1] = arb(0)  # a gate that is 0
            scores.append(sum((arb(float(q)) * e for q, e in zip(next(asked), read, strict=True)), arb(0)))
            written = off(head.value, either)
            slips |= {(b, h, column): written[slot] for column, slot in enumerate(head.value.rows.tolist())}
        if (layer := block.feed_forward) is not None:
            units = off(layer.hidden, means[0], layer.hidden_bias)
            rows |= {("hidden", (b, unit)): e for unit, e in enumerate(units)}
    unit = flush if norms.circuit else _largest([*rows.values()])
    normed = NormFormat(
        form.name, form.digits, form.largest_exponent, not centred, _largest(scores),
        units=max(_UNITS if centred else 1, _block_units(weights.tokens)), read_slip=unit,
    )  # fmt: skip
    inputs = int((weights.embedding.rows < weights.width).sum())
    return NormReading(normed, _Lost(unit, centred, inputs, rows).reading), slips


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


def _largest(values: list[arb]) -> arb:
    return arb(max(map(round_up, values), default=0.0))
