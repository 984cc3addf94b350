"""The proof for one layer of linear attention against polynomials, from the stored weights alone.

Token j holds z_j = E_j x + m_j, and the outputs are read, affinely, from the tokens

    z_j + Σ_h O_h Σ_m ((Q_h z_j)·(K_h z_m)) V_h z_m.

*Identity.* Whatever the matrices are, that is a polynomial of degree 3 in the inputs. `_outputs` carries the layer out
on polynomials with rational coefficients, which are then compared with the formula's, one by one: the approximation
error is at most Σ |difference| sup|x^α|.

*Rounding.* `_outputs` carries the layer out on sizes, once without and once with rounding. For every number a that is
computed, as â, the first gives A >= |a|, and the second Â with |â − a| <= Â − A; so |â| <= Â. For products:

    |âb̂ − ab| <= |â − a| |b̂| + |a| |b̂ − b| <= (Â − A) B̂ + A (B̂ − B) = ÂB̂ − AB.

For a sum of m products, or of m numbers: the claim adds up, and rounding moves the sum by at most γ_m times Σ Â and m
times what an operation may lose that underflows (`formats`), which Â is raised by. An input moves by one rounding.
Adding zeros and products with zeros are exact, so m counts what is stored. All heads' products that go into one slot,
and what it held, count as one sum: N of them, of which m_h come from head h, for k heads. Summed head by head and
then together, a product passes through at most m_h + k <= N roundings. Nothing overflows, as every Â is looked at, of
tokens that no head reads too: infinity times 0 would be no number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from flint import Ordering, arb, fmpq, fmpq_mpoly, fmpq_mpoly_ctx

from transformula.kernel.arithmetic import precision
from transformula.kernel.derivations.polynomials import MAX_NUMBERS
from transformula.kernel.enclosures.balls import round_up
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.folder.description import Proof
from transformula.kernel.folder.weights import Head, Matrix, Weights, named_matrices
from transformula.kernel.rounding.formats import FORMATS, FloatFormat, check_size
from transformula.kernel.rules.polynomial_rule import identity_error
from transformula.kernel.syntax.boxes import Box, Formula

#: Rounding is a small difference of bounds.
BITS = 128
#: Products of terms in all polynomials of one layer.
MAX_PRODUCTS = 1_000_000
#: The inputs of a monomial, in order; and numbers by slot, those that are 0 left out.
Monomial = tuple[int, ...]
Slots = dict[int, Any]


def prove_linear_attention(weights: Weights, formula: Formula) -> Proof:
    """Prove how far a layer of linear attention is from polynomials, or raise `NotProvenError`."""
    one = len(weights.blocks) == 1 and weights.blocks[0].feed_forward is None
    attention = weights.blocks[0].attention if one else None
    if attention is None or attention.kind != "linear" or attention.scale != 1:
        raise RefutedError("the weights are not one layer of linear attention with scores as they are")
    for name, matrix in named_matrices(weights):
        if matrix.exact is not None:  # then floats and rationals are the same numbers
            raise RefutedError(f"{name} holds rationals beside its floats")
    pairs = zip(_polynomials(weights), formula.outputs, strict=True)
    approximation = max(identity_error(network, expr, formula.box) for network, expr in pairs)
    return Proof(approximation, _rounding(weights, formula.box))


class _PolynomialRing:
    """Polynomials as {inputs of a monomial, in order: coefficient}."""

    def __init__(self) -> None:
        self.products = 0

    def weight(self, value: fmpq) -> Mapping[Monomial, fmpq]:
        return {(): value}

    def times(self, left: Mapping[Monomial, fmpq], right: Mapping[Monomial, fmpq]) -> Mapping[Monomial, fmpq]:
        self.products += len(left) * len(right)
        if self.products > MAX_PRODUCTS:
            raise RefutedError(f"the polynomials that the heads compute take over {MAX_PRODUCTS} products")
        return _collected((tuple(sorted(a + b)), v * w) for a, v in left.items() for b, w in right.items())

    def total(self, terms: Sequence[Mapping[Monomial, fmpq]]) -> Mapping[Monomial, fmpq]:
        return _collected(item for term in terms for item in term.items())


def _collected(items: Iterable[tuple[Monomial, fmpq]]) -> Mapping[Monomial, fmpq]:
    made: dict[Monomial, fmpq] = defaultdict(fmpq)
    for monomial, value in items:
        made[monomial] += value
    return made


class _SizeRing:
    """Bounds of absolute values: of real numbers, or of computed ones with all that rounding adds."""

    def __init__(self, form: FloatFormat, computed: bool) -> None:
        self.form, self.computed = form, computed

    def weight(self, value: fmpq) -> arb:
        return abs(arb(value))

    def times(self, left: arb, right: arb) -> arb:
        return left * right

    def total(self, terms: Sequence[arb]) -> arb:
        size = sum(terms, arb(0))
        if self.computed:
            size = size * (1 + self.form.gamma(len(terms))) + 2 * len(terms) * self.form.lost
            check_size(self.form, size)
        return size


def _outputs(weights: Weights, inputs: Sequence[Any], ring: Any, asking: Iterable[int]) -> list[Any]:
    """The outputs of the layer in a ring; attention is computed for the tokens that are asking only."""
    width = weights.width
    stream: list[Slots] = [{} for _ in range(weights.tokens)]
    memory = [(token * width + slot, value) for token, slot, value in _entries(weights.memory, ring)]
    for row, value in _applied(_entries(weights.embedding, ring), dict(enumerate(inputs)), ring, memory).items():
        stream[row // width][row % width] = value
    gathered = {j: {slot: [value] for slot, value in stream[j].items()} for j in asking}
    for head in weights.blocks[0].attention.heads:
        _attend(head, stream, gathered, ring)
    for j, slots in gathered.items():
        stream[j] = {slot: ring.total(terms) for slot, terms in slots.items()}
    flat = {j * width + slot: value for j, token in enumerate(stream) for slot, value in token.items()}
    bias = [(output, value) for output, _, value in _entries(weights.bias, ring)]
    read = _applied(_entries(weights.readout, ring), flat, ring, bias)
    return [read.get(output, ring.total([])) for output in range(weights.outputs)]


def _attend(head: Head, stream: Sequence[Slots], gathered: Mapping[int, dict[int, list[Any]]], ring: Any) -> None:
    """Gather the products that a head adds to each slot of the tokens that ask."""
    if head.output is None:
        raise RefutedError("a head of linear attention has no output matrix")
    query, key, value, output = (_entries(m, ring) for m in (head.query, head.key, head.value, head.output))
    keys, values = ([_applied(matrix, token, ring) for token in stream] for matrix in (key, value))
    for j, slots in gathered.items():
        asks, mixed = _applied(query, stream[j], ring), defaultdict(list)
        for answers, offered in zip(keys, values, strict=True):
            score = ring.total([ring.times(a, answers[r]) for r, a in asks.items() if r in answers])
            for r, v in offered.items():
                mixed[r].append(ring.times(score, v))
        made = {r: ring.total(terms) for r, terms in mixed.items()}
        for slot, r, v in output:
            if r in made:
                slots.setdefault(slot, []).append(ring.times(v, made[r]))


def _entries(matrix: Matrix, ring: Any) -> list[tuple[int, int, Any]]:
    return [(row, column, ring.weight(value)) for row, column, value in matrix.entries()]


def _applied(
    entries: Sequence[tuple[int, int, Any]], slots: Slots, ring: Any, held: Iterable[tuple[int, Any]] = ()
) -> Slots:
    """A matrix times what slots hold, and what is held already."""
    terms: dict[int, list[Any]] = defaultdict(list)
    for row, column, v in entries:
        if column in slots:
            terms[row].append(ring.times(v, slots[column]))
    for row, v in held:
        terms[row].append(v)
    return {row: ring.total(some) for row, some in terms.items()}


def _polynomials(weights: Weights) -> Iterator[fmpq_mpoly]:
    """The polynomial of each output in exact arithmetic."""
    ring = _PolynomialRing()
    count = len(weights.inputs)
    asking = dict.fromkeys((weights.readout.cols // weights.width).tolist())
    context = fmpq_mpoly_ctx.get([f"x{k}" for k in range(count)], Ordering.degrevlex)
    for terms in _outputs(weights, [{(k,): fmpq(1)} for k in range(count)], ring, asking):
        if len(terms) * count > MAX_NUMBERS:
            raise RefutedError("the polynomial that the heads compute has too many terms")
        yield context.from_dict({tuple(a.count(k) for k in range(count)): v for a, v in terms.items()})


def _rounding(weights: Weights, box: Box) -> float:
    """Bound of |computed − real| at every output."""
    with precision(BITS):
        form, tokens = FORMATS[weights.dtype], range(weights.tokens)
        sizes = [box.magnitude(k) for k in range(box.dimension)]
        moved = [size * (1 + form.unit_roundoff) + form.lost for size in sizes]
        real = _outputs(weights, sizes, _SizeRing(form, computed=False), tokens)
        computed = _outputs(weights, moved, _SizeRing(form, computed=True), tokens)
        return max(round_up(c - r) for c, r in zip(computed, real, strict=True))
