"""The proof for Fang's polynomial Transformer, from the stored weights alone (Theorem 3.5).

1. *Structure.* `read_ridge` finds every block to be that of Lemma 3.1 (or refuses).
2. *Gaps.* At each product head C > 2 sup|left| sup|right| over the box, with rounding counted, so
   hardmax picks the diagonal at every point of the box, in real arithmetic and in floats.
3. *Identity.* Then the network is Σ β_{k,s} (ξ_k·x)^s + b, a polynomial with rational coefficients. It is
   expanded and compared with the formula's polynomial, coefficient by coefficient: equal means
   approximation 0; irrational constants (pi) leave Σ |difference| sup|x^α|.
4. *Rounding.* Errors are carried from the inputs through the blocks, and separately through the
   sweep of the fast path; the larger of the two is claimed. The bound includes rounding the rational
   embedding and readout to the stored floats: by at most 2u, relatively (`formats.check_stored`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
from flint import Ordering, arb, fmpq, fmpq_mpoly, fmpq_mpoly_ctx

from transformula.kernel.arithmetic import precision
from transformula.kernel.derivations.polynomials import MAX_NUMBERS, Exponents, as_polynomial
from transformula.kernel.enclosures.balls import enclose, round_up
from transformula.kernel.exceptions import InputError, RefutedError
from transformula.kernel.folder.description import Proof
from transformula.kernel.folder.weights import Weights
from transformula.kernel.rounding.formats import FORMATS, FloatFormat
from transformula.kernel.structures.ridge_blocks import NotRidgeError, Ridge, read_ridge
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.expression import Expr

#: Irrational constants are stored to 320 bits; look at them more closely than that.
IDENTITY_BITS = 400
BOUND_BITS = 96
#: Products of terms that the powers of all directions may take together: some ten seconds.
MAX_PRODUCTS = 400_000_000


def prove_polynomial(weights: Weights, formula: Formula) -> Proof:
    """Prove the claim of Theorem 3.5 for these weights, or raise `RefutedError`."""
    ridge = checked_ridge(weights)
    box = formula.box
    networks = (ridge_polynomial(ridge, o, box.dimension) for o in range(ridge.outputs))
    errors = [identity_error(p, expr, box) for p, expr in zip(networks, formula.outputs, strict=True)]
    return Proof(float(np.max(errors)), ridge_rounding(ridge, box))


def checked_ridge(weights: Weights) -> Ridge:
    """The ridge polynomial in the weights, not too large to be expanded."""
    try:
        ridge = read_ridge(weights)
    except NotRidgeError as reason:
        raise RefutedError(f"the blocks are not those of Theorem 3.5: {reason}") from None
    products = 0
    for (_, token), powers in ridge.terms.items():
        direction, degree = ridge.directions[token], max(powers)
        bits = degree * max((v.height_bits() for v in direction.values()), default=0)
        bits += max(v.height_bits() for v in powers.values())
        terms = math.comb(len(direction) + degree, degree)
        products += terms * (1 + len(direction)) * (1 + bits // 64)
        if products > MAX_PRODUCTS or terms * len(weights.inputs) > MAX_NUMBERS:
            raise RefutedError("the powers of the directions are too large to be expanded")
    return ridge


def ridge_polynomial(ridge: Ridge, output: int, dimension: int) -> fmpq_mpoly:
    """The polynomial of one output, expanded by Horner's rule."""
    context = fmpq_mpoly_ctx.get([f"x{k}" for k in range(dimension)], Ordering.degrevlex)
    generators = context.gens()
    network = context.constant(ridge.bias[output])
    for token, powers in ridge.by_output[output].items():
        form = sum((v * generators[i] for i, v in ridge.directions[token].items()), context.constant(0))
        total = context.constant(0)
        for s in range(max(powers), 0, -1):
            total = (total + powers.get(s, fmpq(0))) * form
        network += total
        if len(network) * dimension > MAX_NUMBERS:
            raise RefutedError("the network's polynomial has too many terms")
    return network


def identity_error(network: fmpq_mpoly, expr: Expr, box: Box) -> float:
    """sup over the box of |network − formula|, both as expanded polynomials."""
    with precision(IDENTITY_BITS):
        target = as_polynomial(expr, box.variables)
        gaps: dict[Exponents, fmpq | arb]
        if target.is_rational:
            gaps = dict((network - target.exact).to_dict())
        else:
            wanted, have = target.terms(), network.to_dict()
            gaps = {e: have.get(e, fmpq(0)) - wanted.get(e, fmpq(0)) for e in have.keys() | wanted.keys()}
        sizes = [box.magnitude(k) for k in range(box.dimension)] if gaps else []
        total = arb(0)
        for exponents, gap in gaps.items():
            term = abs(arb(gap))
            for size, e in zip(sizes, exponents, strict=True):
                term = term * size ** int(e) if e else term
            total += term
        return round_up(total)


def ridge_rounding(ridge: Ridge, box: Box) -> float:
    """Bound of |computed − real| for the blocks and the fast path; refused where hardmax may pick the wrong token."""
    with precision(BOUND_BITS):
        form = FORMATS[ridge.weights.dtype]
        ends = [(enclose(a), enclose(b)) for a, b in zip(box.lower, box.upper, strict=True)]
        stored = 0 if ridge.weights.embedding.exact is None else 2
        tokens = [_token(direction, ends, stored, form) for direction in ridge.directions]
        blocks = _Blocks(ridge, tokens, form)
        errors = []
        for o in range(ridge.outputs):
            errors += [round_up(blocks.output_error(o)), round_up(_fast_error(ridge, tokens, o, form))]
        return float(np.max(errors))


def _check_overflow(size: arb, form: FloatFormat) -> None:
    if not size < form.largest:
        raise InputError(f"the values on this box reach {size.str(3)}, beyond {form.name}'s range")


@dataclass(frozen=True)
class _Slot:
    """A token's value in a slot: a bound of the real value, and of the computed value's error."""

    size: arb
    error: arb

    @property
    def reach(self) -> arb:
        """Bound of the computed value."""
        return self.size + self.error


def _token(direction: Mapping[int, fmpq], ends: list[tuple[arb, arb]], stored: int, form: FloatFormat) -> _Slot:
    """t = direction·x: one rounding of the input, one of the product, one of each addition, two if stored."""
    low = high = absolute = largest = arb(0)
    for i, value in direction.items():
        a, b = ends[i][0] * arb(value), ends[i][1] * arb(value)
        low, high = low + a.min(b), high + a.max(b)
        absolute += a.union(b).abs_upper()
        largest = largest.max(abs(arb(value)))
    gamma = form.gamma(len(direction) + 1 + stored)
    # an input and its product may both underflow; what is lost then passes through the other roundings
    error = gamma * absolute + form.tiny * len(direction) * (1 + largest) * (1 + gamma)
    _check_overflow(2 * (absolute + error) + largest, form)
    return _Slot(low.union(high).abs_upper(), error.upper())


class _Blocks:
    """Bounds and errors of every slot of every token, block by block."""

    def __init__(self, ridge: Ridge, tokens: list[_Slot], form: FloatFormat) -> None:
        self.ridge, self.form = ridge, form
        self.u, self.tiny = form.unit_roundoff, form.tiny
        #: power of t → each token's slot
        self.slots = {0: [_Slot(arb(1), arb(0))] * len(tokens), 1: tokens}
        for block in ridge.heads:
            before = dict(self.slots)
            for head in block:
                pairs = before[head.left.power], before[head.right.power]
                offset = arb(head.offset)
                self._check_gap(*pairs, offset)
                made = [self._multiply(a, b, offset) for a, b in zip(*pairs, strict=True)]
                power = head.left.power + head.right.power
                # two slots may hold one power (t and p_1): keep the bounds that hold for both
                others = self.slots.get(power, made)
                self.slots[power] = [
                    _Slot(a.size.max(b.size).upper(), a.error.max(b.error).upper())
                    for a, b in zip(made, others, strict=True)
                ]

    def _check_gap(self, left: list[_Slot], right: list[_Slot], offset: arb) -> None:
        other = _largest(left) * _largest(right) * (1 + self.u) + self.tiny
        gap = (offset - other) * (1 - self.u) - other
        if not gap > 0:
            raise RefutedError(
                f"hardmax may pick the wrong token: the offset {offset.str(5)} must exceed twice "
                f"the largest product {other.str(5)} on the box"
            )
        _check_overflow(4 * (offset + other), self.form)

    def _multiply(self, left: _Slot, right: _Slot, c: arb) -> _Slot:
        """The slot that ends as −left·right: the score left·right + C, then C minus it (Lemma 3.1)."""
        exact = left.reach * right.reach
        product = exact * (1 + self.u) + self.tiny
        score = (product + c) * (1 + self.u)
        error = left.error * right.reach + left.size * right.error
        error += exact * self.u + self.tiny + (product + c) * self.u
        partial = (2 * score + c) * self.u  # v − 2v + C, whichever two are added first
        size = left.size * right.size
        error += partial + (size + error + partial) * self.u
        return _Slot(size.upper(), error.upper())

    def output_error(self, output: int) -> arb:
        """|computed − real| at the readout: a dot product of stored weights and slots, plus b."""
        u, tiny = self.u, self.tiny
        bias = abs(arb(self.ridge.bias[output]))
        size = bias * (1 + 2 * u) + tiny
        spread = 2 * u * bias + tiny
        count = 1
        for token, powers in self.ridge.by_output[output].items():
            for power, exact in powers.items():
                slot = self.slots[power][token]
                stored = abs(arb(exact)) * (1 + 2 * u) + tiny
                size += stored * slot.reach
                spread += stored * (slot.error + 2 * u * slot.size) + tiny * slot.size
                count += 1
        _check_overflow(2 * size, self.form)
        gamma = self.form.gamma(count + 1)
        return gamma * size + spread + count * tiny * (1 + gamma)


def _fast_error(ridge: Ridge, tokens: list[_Slot], output: int, form: FloatFormat) -> arb:
    """|computed − real| of the fast path: at most 2q + 1 roundings a coefficient, then n sums.

    By Horner's rule (on CUDA) that is q products and q sums; by powers (elsewhere) q products with the
    coefficient's own, and q sums to join the powers. Neither holds more than Σ |β_s| max(1, |t|)^s.
    """
    u, tiny = form.unit_roundoff, form.tiny
    bias = abs(arb(ridge.bias[output]))
    held = size = bias * (1 + 2 * u) + tiny
    spread, steps = 2 * u * bias + tiny, 1
    for token, powers in ridge.by_output[output].items():
        t, reach = tokens[token], tokens[token].reach
        _check_overflow(2 * (1 + reach) ** ridge.degree, form)  # powers are taken before coefficients
        largest = arb(1)
        for s, exact in powers.items():
            stored = abs(arb(exact)) * (1 + 2 * u) + tiny
            largest += stored
            size += stored * reach**s
            held += stored * reach.max(arb(1)) ** s
            spread += stored * (s * t.error * reach ** (s - 1) + 2 * u * reach**s)
        # an underflow in the sweep is multiplied by at most reach^q and a coefficient later on
        spread += 2 * tiny * (max(powers) + 1) * (1 + reach) ** max(powers) * largest
        steps += 1
    _check_overflow(2 * held, form)
    return form.gamma(2 * ridge.degree + steps + 2) * size + spread


def _largest(slots: list[_Slot]) -> arb:
    return reduce(arb.max, (slot.reach for slot in slots)).upper()
