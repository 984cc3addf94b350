"""A one-layer model inside an unmodified pre-norm Transformer layer: a proven bound of the error LayerNorm adds.

`export.stock_packing` lays the model out so that LayerNorm is almost the identity: the stream holds z,
its mirror image −z and ±K in a quarter of its E slots, gains are K/2, and whatever reads slot i reads
(slot i − mirror i)/2. Let u be the unit roundoff, c = `NORM_UNITS`·E·u and κ = 4/K².

*Model of LayerNorm.* The computed mean is within c·max|slot| of the mean, the computed 1/√(variance + ε)
within a relative c of the real one, and each slot then meets at most four roundings. (Two passes with sums
in any order satisfy this: E roundings for the mean, half of E and a few for the reciprocal root.) The rest
is that of `kernel.rounding`; softmax may be computed in blocks of 64 tokens or more that are rescaled, as fused
kernels do.

1. One factor for all slots of a token: K/2 / √(K²/4 + 2‖z‖²/E + ε) is in [1 − d, 1] with
   d = κ (2‖z‖²/E + ε)/2, so with the computed reciprocal the factor is within e = d + c + d·c of 1.
2. A computed slot is factor · (z_i − m + r_i), |m| ≤ μ = c·K, |r_i| ≤ γ_4 (|z_i| + μ): m is the same in
   all slots of a token and cancels in (slot − mirror)/2. So a form Σ w_i z_i is read as
   factor · (Σ w_i z_i + a), |a| ≤ γ_{2n+12} Σ |w_i| (|z_i| + μ), with two roundings for weights that stand
   for rationals, one for the input and the rest for the dot product of 2n terms, in any order.
3. A product of a query row Q and a key row k is then off by at most
   (1 + e)² (|Q| + a)(|k| + b)(1 + γ_{R+3}) − |Q||k|; the sum over the R rows is the score's error E.
4. Softmax, coarsely: own tokens' exponentials are within 1 + P, so the table moves by at most P/(1 − P)
   times the spread of its values; tokens behind the gate weigh at most e^(−gap); values are read with the
   error of step 2; sums over T tokens add γ_{2T+6}. Or finely, for tables of moderate size, by the theorem
   of `kernel.rounding.softmax`: the part of E that is relative to |slope·u| + |offset| becomes roundings of the
   score, the absolute part of the argument an argument error, and the rest an error of exp. That error may be
   more than `EXP_ULPS` units: then exp, and the difference it is applied to, are taken to be computed in a coarser
   format, of whose units it is no more.
5. Residual sums, feed-forward layer and readout: each slot of a data token has a bound S of its value and a
   bound E of its computed value's error. A dot product of m stored weights (each within 1.01u of its rational)
   with such slots errs by at most Σ |w| E + γ_{m+4} Σ |w| (S + E) + underflow, in any order of summation, and
   ReLU does not enlarge an error. The feed-forward layer reads its slots through the second LayerNorm (steps 1
   and 2 again, with the attended stream).

The result bounds |computed − T_w| for the exact real function T_w of the stored weights, so the model's
proven `approximation` is unchanged and this number replaces `rounding`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from flint import arb, fmpq

from transformula.compiler.evidence import grid_pieces as grids
from transformula.compiler.evidence import table_pieces as tables
from transformula.errors import ExportError, InputError, NotProvenError
from transformula.export.stock_packing import normed_width
from transformula.kernel.arithmetic import precision
from transformula.kernel.circuit.head_proofs import as_table
from transformula.kernel.enclosures.balls import enclose, round_up
from transformula.kernel.folder.weights import FloatArray, Matrix, Weights
from transformula.kernel.rounding.formats import EXP_ULPS, FORMATS, FloatFormat
from transformula.kernel.rounding.softmax import Arithmetic, rounding_bound
from transformula.kernel.structures.stored_circuit import argument_names
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box
from transformula.kernel.tables.table_error import SoftmaxTable, table_error
from transformula.runtime.table_reading import NotOneLayerError, TableHead, read_heads

#: Units of E·u that mean and deviation may err by.
NORM_UNITS = 1
#: torch.nn.LayerNorm's default epsilon.
NORM_EPS = 1e-5
#: The fewest keys a fused attention kernel takes at a time.
_KERNEL_BLOCK = 64
#: Bits of the proof's arithmetic.
_BITS = 120
#: Largest numbers of tokens and axes of a table with the fine bound.
_FINE_TOKENS = 1024
_FINE_AXES = 3

#: Bounds of |value| and of its error.
Slot = tuple[arb, arb]
Terms = list[tuple[fmpq, Slot]]


@dataclass(frozen=True)
class _Coarser(FloatFormat):
    """A format whose operations may err by ``units`` times as much."""

    units: int = 1

    @property
    def unit_roundoff(self) -> arb:
        """Largest relative error of one operation."""
        return self.units * arb(2) ** -self.digits


@dataclass(frozen=True)
class _Arithmetic(Arithmetic):
    """Arithmetic with the errors of exp in ``form``, from its unit roundoff, and those of sums in ``sums_in``."""

    sums_in: FloatFormat = FORMATS["float64"]

    def gamma(self, roundings: int) -> float:
        """gamma_n of the format of sums."""
        return Arithmetic(self.sums_in).gamma(roundings)


@dataclass(frozen=True)
class NormedLayer:
    """K, the layer's width, and the proven bound of |computed − T_w|."""

    pad: float
    width: int
    rounding: float


def prove_normed(weights: Weights, box: Box) -> NormedLayer:
    """Choose K and bound the error of LayerNorm and rounding; models of other constructions are refused."""
    try:
        heads = read_heads(weights)
    except NotOneLayerError as error:
        raise ExportError(f"only one-layer table models fit into a layer with LayerNorm: {error}") from None
    if not heads:
        raise ExportError("a model without tables has nothing to attend to: export it without LayerNorm")
    with precision(_BITS):
        proof = _Proof(weights, box, heads)
        try:
            rounding = max(proof.outputs())
        except InputError:  # a bound is infinite
            raise ExportError(f"{weights.dtype} is too coarse for this model and LayerNorm") from None
        return NormedLayer(proof.pad, proof.width, round_up(rounding))


def _largest(values: FloatArray) -> arb:
    return arb(float(np.abs(values).max(initial=0.0)))


class _Proof:
    def __init__(self, weights: Weights, box: Box, heads: Sequence[TableHead]) -> None:
        self.weights = weights
        self.box = box
        self.heads = heads
        self.form: FloatFormat = FORMATS[weights.dtype]
        self.width = normed_width(weights)
        self.slip = self.form.unit_roundoff * (NORM_UNITS * self.width)
        squared = self._size()
        wanted = (4 * squared / (self.width * self.slip) + 1).sqrt()  # then d is about c in step 1
        if not 4 * wanted**2 * self.width < self.form.largest:
            raise ExportError(f"the numbers of this model are too large for LayerNorm in {self.form.name}")
        self.pad = 2.0 ** int(np.ceil(np.log2(round_up(wanted))))
        self.mean = self.slip * self.pad
        self.factor = self._factor(squared)

    def _size(self) -> arb:
        """An upper bound of ‖z‖² over all tokens before the layer."""
        with np.errstate(over="ignore"):  # infinity is refused
            constants = (self.weights.memory.dense().astype(np.float64) ** 2).sum(axis=1)
        inputs = sum((self.box.magnitude(k) ** 2 for k in range(self.box.dimension)), arb(0))
        return arb(float(constants.max(initial=0.0))) * (1 + arb(2) ** -30) + inputs * (1 + arb(2) ** -20)

    def _factor(self, squared: arb) -> arb:
        """Step 1: how far a token's common factor is from 1."""
        away = (2 * squared / self.width + arb(NORM_EPS)) * 2 / arb(self.pad) ** 2
        return (away + self.slip + away * self.slip).upper()

    def read(self, weight: arb, size: arb, terms: int) -> arb:
        """Step 2: the error a of a form with Σ|w| = weight of slots up to size."""
        lost = 4 * self.form.tiny * (arb(self.pad) + terms)  # underflow
        return (weight * (self.form.gamma(2 * terms + 12) * (size + self.mean) + lost) + lost).upper()

    def tables(self) -> dict[tuple[int, int], Slot]:
        """(sup |T|, error) for every head and every slot it writes."""
        found = {}
        for h, head in enumerate(self.heads):
            read = _HeadRead(self, head, self.weights.blocks[0].attention.heads[h].key)
            for column in range(head.values.shape[1]):
                found[h, column] = self._table(head, column, read)
        return found

    def _table(self, head: TableHead, column: int, read: _HeadRead) -> Slot:
        """Step 4."""
        form, tokens = self.form, self.weights.tokens
        own, other = head.columns[column].values, _largest(head.columns[column].foreign_values)
        size = _largest(own)
        value = (1 + self.factor) * (size + self.read(arb(1), size, 1)) - size
        foreign = (1 + self.factor) * (other + self.read(arb(1), other, 1))
        through = 4 * read.leak * (size + value + foreign)  # real and computed, numerator and denominator
        least = 4 * form.tiny * arb(2) ** form.digits  # exponentials may be flushed to zero
        flushed = tokens * least * (1 + 2 * (size + value + foreign))
        spread = arb(float(own.max())) - arb(float(own.min()))
        coarse = arb("inf")
        if read.wrong < 0.5:
            moved = read.wrong / (1 - read.wrong) * (spread + through)
            coarse = moved + value + form.gamma(2 * tokens + 6) * (size + value + through)
        if head.grid is None or head.tokens > _FINE_TOKENS or head.axes > _FINE_AXES:
            return (size + through).upper(), (coarse + through + flushed).upper()
        table, ends = as_table(head.columns[column]), [_form_ends(axis, self.box) for axis in head.forms]
        relative = self.factor + (1 + self.factor) * form.gamma(16)  # of a value as it is read
        sums = 2 * tokens + 8 + int(round_up(relative / form.unit_roundoff))
        bound = rounding_bound(table, ends, grids.find_softmax(table, ends), read.arithmetic(sums))
        fine = bound + (1 + self.factor) * self.read(arb(1), arb(0), 1)
        if form.gamma(10) * size > fine:  # values far larger than the table's results: worth a look
            with suppress(NotProvenError):
                size = size.min(_table_size(table, ends))
        return (size + through).upper(), (fine.min(coarse) + through + flushed).upper()

    def outputs(self) -> list[arb]:
        """Bounds of |computed − real|, one for each output."""
        weights, tables = self.weights, self.tables()
        streams = {}
        for token in weights.data_tokens.tolist():
            slots = self._attended(token, tables)
            streams[token] = self._fed_forward(slots)
        readout: dict[int, Terms] = {o: [] for o in range(weights.outputs)}
        for output, column, value in weights.readout.entries():
            token, slot = divmod(column, weights.width)
            readout[output].append((value, streams[token][slot]))
        bias = _entries(weights.bias)
        return [_dot(terms, bias.get(o, fmpq(0)), self.form)[1] for o, terms in readout.items()]

    def _attended(self, token: int, tables: Mapping[tuple[int, int], Slot]) -> list[Slot]:
        """Step 5: the slots of a data token after attention."""
        weights, form = self.weights, self.form
        slots = [(arb(0), arb(0))] * weights.width
        for row, column, _ in weights.embedding.entries():
            if row // weights.width == token:
                size = self.box.magnitude(column)
                slots[row % weights.width] = (size, size * form.unit_roundoff + form.tiny)
        for row, slot, value in weights.memory.entries():
            if row == token:
                slots[slot] = (abs(arb(value)), arb(0))
        terms: dict[int, Terms] = {}
        for h, head in enumerate(self.heads):
            for column, slot in enumerate(head.slots):
                terms.setdefault(slot, []).append((fmpq(1), tables[h, column]))
        for slot, written in terms.items():
            slots[slot] = _dot([(fmpq(1), slots[slot]), *written], fmpq(0), form)
        return slots

    def _fed_forward(self, slots: list[Slot]) -> list[Slot]:
        """Step 5: the slots after the feed-forward layer."""
        layer = self.weights.blocks[0].feed_forward
        if layer is None:
            return slots
        seen, result = self._normed(slots), list(slots)
        hidden_bias, output_bias = _entries(layer.hidden_bias), _entries(layer.output_bias)
        units = [
            _dot([(v, seen[c]) for c, v in row], hidden_bias.get(unit, fmpq(0)), self.form)
            for unit, row in enumerate(_rows(layer.hidden))
        ]
        for slot, row in enumerate(_rows(layer.output)):
            if row or slot in output_bias:
                terms = [(fmpq(1), slots[slot]), *((v, units[c]) for c, v in row)]
                result[slot] = _dot(terms, output_bias.get(slot, fmpq(0)), self.form)
        return result

    def _normed(self, slots: list[Slot]) -> list[Slot]:
        """Step 5: a token's slots as the feed-forward layer reads them."""
        squared = sum(((size + error) ** 2 for size, error in slots), arb(0))
        uneven = max((error for _, error in slots), default=arb(0))  # the mirror may differ by rounding
        factor = self._factor(squared) + 8 * uneven**2 / arb(self.pad) ** 2
        terms = 2 * len(slots) + 16
        lost = 4 * self.form.tiny * (arb(self.pad) + terms)
        result = []
        for size, error in slots:
            whole = size + error
            rounded = self.form.gamma(terms) * (whole + self.mean + uneven) + lost
            result.append((size, (error + factor * whole + (1 + factor) * rounded).upper()))
        return result


def _form_ends(form: Mapping[int, fmpq], box: Box) -> tuple[arb, arb]:
    """The exact ends of a linear form on the box, as balls."""
    low = high = arb(0)
    for i, value in form.items():
        ends = enclose(box.lower[i]) * arb(value), enclose(box.upper[i]) * arb(value)
        low, high = low + ends[value < 0], high + ends[value > 0]
    return low, high


def _table_size(table: SoftmaxTable, ends: Sequence[tuple[arb, arb]]) -> arb:
    """A bound of |T| on the box of its arguments."""
    zero, names = ex.number(0), argument_names(len(ends))
    if len(ends) == 1:
        return arb(table_error(table, zero, names, ends, tables.find_pieces(table, zero, ends[0])))
    return arb(table_error(table, zero, names, ends, grids.find_pieces(table, zero, names, ends)))


class _HeadRead:
    """Step 3 for one head: the error of its scores.

    Attributes
    ----------
    wrong : arb
        P of the coarse bound.
    leak : arb
        The total weight of the tokens behind the gate.
    """

    def __init__(self, proof: _Proof, head: TableHead, key: Matrix) -> None:
        self.proof = proof
        self.head = head
        self.form = proof.form
        self.gates = int((key.rows == key.shape[0] - 1).sum())
        self.others = head.columns[0]  # but for their values the same for all columns
        self.gate = _largest(self.others.gates)
        box = proof.box
        self.sizes, self.reads = [], []
        for axis in head.forms:
            total = sum((abs(arb(c)) for c in axis.values()), arb(0))
            reach = max((box.magnitude(k) for k in axis), default=arb(0))
            self.sizes += [sum((abs(arb(c)) * box.magnitude(k) for k, c in axis.items()), arb(0)), arb(1)]
            self.reads += [proof.read(total, reach, len(axis)), proof.read(arb(1), arb(1), 1)]
        self.sizes.append(arb(1))
        self.reads.append(proof.read(arb(1), arb(1), 1))
        u, blocks = self.form.unit_roundoff, 1 + -(-proof.weights.tokens // _KERNEL_BLOCK)
        theta = blocks * (2 * u * EXP_ULPS + 4 * u)
        self.theta = theta * (1 + theta)  # (1 + t)^n - 1 <= n t (1 + n t) while n t <= 1
        own, own_error = self._scores(head.slopes, head.offsets, arb(0))
        other, _ = self._scores(self.others.foreign_slopes, self.others.foreign_offsets, arb(0))
        _, far_error = self._scores(self.others.foreign_slopes, self.others.foreign_offsets, self.gate)
        moved = own_error + u * (2 * own + 2 * own_error + far_error)
        self.wrong = (moved.exp() * (1 + self.theta) - 1).upper()
        self.leak = arb(0)
        if len(self.others.gates):
            gap = arb(-float(self.others.gates.max())) - own - other
            if not gap > 0:
                raise ExportError("a gate is too weak to prove that tables keep apart")
            far = own_error + far_error + u * (gap + 2 * own + 2 * own_error + 2 * far_error)
            if not far < gap / 2:
                raise ExportError(f"{self.form.name} is too coarse for the scores of this model")
            self.leak = (4 * len(self.others.gates) * (1 + self.theta) * (far - gap).exp()).upper()

    def _scores(self, slopes: FloatArray, offsets: FloatArray, behind: arb) -> tuple[arb, arb]:
        """(sup |score|, its error) over tokens with these keys."""
        proof, form = self.proof, self.form
        keys = [_largest(part[:, k]) for k in range(self.head.axes) for part in (slopes, offsets)]
        wrong = [proof.read(arb(1), k, 1) for k in keys]
        keys.append(behind)
        wrong.append(proof.read(self.gate * self.gates, arb(1) if behind > 0 else arb(0), self.gates))
        size = sum((q * k for q, k in zip(self.sizes, keys, strict=True)), arb(0))
        error = arb(0)
        for q, a, k, b in zip(self.sizes, self.reads, keys, wrong, strict=True):
            most = (1 + proof.factor) ** 2 * (q + a) * (k + b) * (1 + form.gamma(len(keys) + 3))
            error += most - q * k + 4 * form.tiny
        return size.upper(), error.upper()

    def arithmetic(self, sums: int) -> Arithmetic:
        """The same errors in the terms of `kernel.rounding.softmax`.

        An own token's score is Σ (1 + e)² (q + a)(k + b)(1 + γ) over rows, where b = γ_14 |k| + β. What is
        proportional to |k| and to q = u or 1 counts as roundings of the products; the error a of u is an
        argument's error; β and the gate row, the same bound for all tokens, act on exp.
        """
        proof, form = self.proof, self.form
        u = form.unit_roundoff
        one, beta = self.reads[-1], proof.read(arb(1), arb(0), 1)
        outer = (1 + proof.factor) ** 2 * (1 + form.gamma(len(self.sizes) + 3))
        relative = outer * (1 + form.gamma(16)) * (1 + one) - 1
        gate_row = proof.read(self.gate * self.gates, arb(0), self.gates)
        extra = outer * beta * sum((q + a for q, a in zip(self.sizes, self.reads, strict=True)), arb(0))
        extra += outer * (1 + one) * gate_row + 8 * len(self.sizes) * form.tiny
        roundings = int(round_up(relative / u)) + 2
        theta = (1 + self.theta) * (2 * extra).exp() - 1
        needed = round_up(theta / (2 * EXP_ULPS * u))
        units = 1 + int(needed) if needed < 2.0**form.digits else 2**form.digits  # beyond that nothing is proven
        return _Arithmetic(
            _Coarser(form.name, form.digits, form.largest_exponent, units),
            sums_in=form,
            score_roundings=roundings,
            sum_roundings=sums,
            argument_errors=tuple(round_up(outer * (1 + form.gamma(16)) * a) for a in self.reads[:-1:2]),
        )


def _entries(column: Matrix) -> dict[int, fmpq]:
    return {row: value for row, _, value in column.entries()}


def _rows(matrix: Matrix) -> list[list[tuple[int, fmpq]]]:
    rows: list[list[tuple[int, fmpq]]] = [[] for _ in range(matrix.shape[0])]
    for row, column, value in matrix.entries():
        rows[row].append((column, value))
    return rows


def _dot(terms: Terms, bias: fmpq, form: FloatFormat) -> Slot:
    """(sup, error) of Σ weight·slot + bias."""
    size = total = abs(arb(bias))
    error = arb(0)
    count = 1
    for weight, (value, wrong) in terms:
        w = abs(arb(weight))
        size += w * value
        error += w * wrong
        total += w * (value + wrong)
        count += 1
    if not total < form.largest:
        raise InputError(f"the values on this box reach {total.str(3)}, beyond {form.name}'s range")
    return size.upper(), (error + form.gamma(count + 4) * total + 2 * count * form.tiny).upper()
