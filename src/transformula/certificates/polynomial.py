"""The proof for Fang's polynomial Transformer, from the stored weights alone.

1. *Structure.* `read_ridge` finds every block to be that of Lemma 3.1 (or refuses).
2. *Gaps.* At each product head C > 2 sup|left| sup|right| over the box, with rounding counted, so
   hardmax picks the diagonal at every point of the box, in real arithmetic and in floats.
3. *Identity.* Then the network is Σ β_{k,s} (ξ_k·x)^s + b, a polynomial with rational coefficients. It is
   expanded and compared with the formula's polynomial, coefficient by coefficient: equal means
   approximation 0; irrational constants (pi) leave Σ |difference| sup|x^α|.
4. *Rounding.* Errors are carried from the inputs through the blocks, and separately through the
   sweep of the fast path; the larger of the two is claimed. The bound includes rounding the rational
   readout weights to the stored floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flint import Ordering, arb, fmpq, fmpq_mpoly, fmpq_mpoly_ctx

from transformula.certificates.bounding import MAX_AXES, bound_table, empty_table
from transformula.certificates.proof import Proof, RefutedError
from transformula.certificates.rounding import FORMATS, FloatFormat
from transformula.errors import InputError, NotProvenError
from transformula.formulas import expression as ex
from transformula.formulas.boxes import Box
from transformula.formulas.enclosures import enclose, precision, round_up, to_fraction
from transformula.formulas.expression import Expr
from transformula.formulas.formula import Formula
from transformula.formulas.polynomials import NotPolynomialError, as_polynomial
from transformula.transformers.ridge import NotRidgeError, Ridge, read_ridge
from transformula.transformers.weights import Weights

#: Irrational constants are stored to 320 bits; look at them more closely than that.
IDENTITY_BITS = 400
BOUND_BITS = 96


def prove_polynomial(weights: Weights, formula: Formula) -> Proof:
    """Prove the claim of Theorem 3.5 for these weights, or raise `RefutedError`."""
    try:
        ridge = read_ridge(weights)
    except NotRidgeError as reason:
        raise RefutedError(f"the blocks are not those of Theorem 3.5: {reason}") from None
    with precision(IDENTITY_BITS):
        approximation = _identity(ridge, formula)
    with precision(BOUND_BITS):
        tokens = [_Token.of(ridge, k, formula.box, FORMATS[weights.dtype]) for k in range(weights.tokens)]
        blocks = _BlockRounding(ridge, tokens)
        rounding = max(
            max(round_up(blocks.output_error(o)), round_up(_fast_error(ridge, tokens, o)))
            for o in range(weights.outputs)
        )
        details: dict[str, object] = {"identity": approximation == 0, "gap": _round_down(blocks.gap)}
    return Proof(approximation, rounding, details)


def _round_down(value: arb) -> float:
    return -round_up(-value)


def _identity(ridge: Ridge, formula: Formula) -> float:
    """sup over the box of |network − formula|, both as expanded polynomials."""
    box = formula.box
    context = fmpq_mpoly_ctx.get([f"x{k}" for k in range(box.dimension)], Ordering.degrevlex)
    generators = context.gens()
    forms = [
        sum((v * generators[i] for i, v in direction.items()), context.constant(0))
        for direction in ridge.directions
    ]
    worst = 0.0
    for output, expr in enumerate(formula.outputs):
        network = context.constant(ridge.bias[output])
        for (of, token), powers in ridge.terms.items():
            if of == output:
                network += _ridge_polynomial(context, forms[token], powers)
        try:
            target = as_polynomial(expr, box.variables).rational_or_ball_terms()
            worst = max(worst, _difference(network.to_dict(), target, box))
        except NotPolynomialError:
            worst = max(worst, _remainder(network.to_dict(), expr, box))
    return worst


def _remainder(network: Mapping[tuple[int, ...], fmpq], expr: Expr, box: Box) -> float:
    """Corollary 3.7: sup|polynomial − formula| by Taylor models, for a formula that is no polynomial."""
    if box.dimension > MAX_AXES:
        raise NotProvenError(f"a remainder in more than {MAX_AXES} variables can not be proven here")
    terms = [ex.neg(expr)]
    for exponents, value in network.items():
        powers = [
            ex.power(ex.variable(name), ex.number(int(e)))
            for name, e in zip(box.variables, exponents, strict=True)
            if e
        ]
        terms.append(ex.mul(ex.number(to_fraction(value)), *powers))
    ends = [(enclose(a), enclose(b)) for a, b in zip(box.lower, box.upper, strict=True)]
    table = empty_table([0.0] * box.dimension)
    return bound_table(ex.add(*terms), box.variables, ends, table).value


def _ridge_polynomial(context: fmpq_mpoly_ctx, form: fmpq_mpoly, powers: Mapping[int, fmpq]) -> fmpq_mpoly:
    total = context.constant(0)
    for s in range(max(powers), 0, -1):
        total = (total + powers.get(s, fmpq(0))) * form
    return total


def _difference(network: dict, target: dict, box: Box) -> float:  # type: ignore[type-arg]
    total = arb(0)
    for exponents in network.keys() | target.keys():
        gap = network.get(exponents, fmpq(0)) - target.get(exponents, fmpq(0))
        if isinstance(gap, fmpq) and gap == 0:
            continue
        size = abs(arb(gap))
        for k, e in enumerate(exponents):
            size *= box.magnitude(k) ** fmpq(e)
        total += size
    return round_up(total)


@dataclass(frozen=True)
class _Token:
    """One direction: sup|t| over the box, and the rounding error of the computed t."""

    reach: arb
    error: arb

    @classmethod
    def of(cls, ridge: Ridge, token: int, box: Box, form: FloatFormat) -> _Token:
        direction = ridge.directions[token]
        low = high = absolute = arb(0)
        for i, value in direction.items():
            ends = enclose(box.lower[i]) * arb(value), enclose(box.upper[i]) * arb(value)
            low, high = low + ends[0].min(ends[1]), high + ends[0].max(ends[1])
            absolute += ends[0].union(ends[1]).abs_upper()
        largest = max((abs(v) for v in direction.values()), default=fmpq(0))
        # one rounding of the input, one of the product, one of each addition; two of a rational weight
        stored = 0 if ridge.weights.embedding.exact is None else 2
        error = form.gamma(len(direction) + 1 + stored) * absolute
        error += form.tiny * len(direction) * (2 + arb(largest))
        return cls(low.union(high).abs_upper(), error.upper())


class _BlockRounding:
    """Bounds and errors of every slot of every token, block by block."""

    def __init__(self, ridge: Ridge, tokens: list[_Token]) -> None:
        self.ridge, self.form = ridge, FORMATS[ridge.weights.dtype]
        self.u, self.tiny = self.form.unit_roundoff, self.form.tiny
        self.gap = arb(2) ** 60
        #: power of t → for each token (sup of the slot's value, error of its computed value)
        self.slots: dict[int, list[tuple[arb, arb]]] = {
            0: [(arb(1), arb(0))] * len(tokens),
            1: [(t.reach, t.error) for t in tokens],
        }
        for block in ridge.heads:
            before = dict(self.slots)
            for head in block:
                if abs(head.left.coefficient) != 1 or abs(head.right.coefficient) != 1:
                    raise RefutedError("a slot holds a multiple of a power other than ±1")
                offset = arb(head.offset)
                pairs = before[head.left.power], before[head.right.power]
                self._check_gap(*pairs, offset)
                self._store(
                    head.left.power + head.right.power,
                    [self._multiply(a, b, offset) for a, b in zip(*pairs, strict=True)],
                )

    def _store(self, power: int, slots: list[tuple[arb, arb]]) -> None:
        """Two slots may hold one power (t and p_1): keep the bounds that hold for both."""
        before = self.slots.get(power, slots)
        self.slots[power] = [
            (v.max(w).upper(), e.max(f).upper()) for (v, e), (w, f) in zip(slots, before, strict=True)
        ]

    def _check_gap(self, left: list, right: list, offset: arb) -> None:  # type: ignore[type-arg]
        largest = [_upper_max([v + e for v, e in side]) for side in (left, right)]
        other = largest[0] * largest[1] * (1 + self.u) + self.tiny
        gap = (offset - other) * (1 - self.u) - other
        if not gap > 0:
            raise RefutedError(
                f"hardmax may pick the wrong token: the offset {offset.str(5)} must exceed twice "
                f"the largest product {other.str(5)} on the box"
            )
        self.gap = self.gap.min(gap.lower())

    def _multiply(self, left: tuple[arb, arb], right: tuple[arb, arb], c: arb) -> tuple[arb, arb]:
        """Value bound and error of the slot that ends as −left·right (see Lemma 3.1's steps)."""
        (p, e), (q, f) = left, right
        exact = (p + e) * (q + f)
        product = exact * (1 + self.u) + self.tiny
        score = (product + c) * (1 + self.u)
        error = e * (q + f) + p * f + exact * self.u + self.tiny + (product + c) * self.u
        partial = (2 * score + c) * self.u  # v − 2v + C, whichever two are added first
        error += partial + (p * q + error + partial) * self.u
        return p * q, error.upper()

    def output_error(self, output: int) -> arb:
        """|computed − real| at the readout: a dot product of stored weights and slots, plus b."""
        size = abs(arb(self.ridge.bias[output])) * (1 + 2 * self.u)
        spread, count = size * 2 * self.u, 1
        for (of, token), powers in self.ridge.terms.items():
            for power, exact in powers.items() if of == output else ():
                value, error = self.slots[power][token]
                stored = abs(arb(exact)) * (1 + 2 * self.u) + self.tiny
                size += stored * (value + error)
                spread += stored * (error + 2 * self.u * value) + self.tiny * value
                count += 1
        _check_overflow(size, self.form)
        return self.form.gamma(count + 1) * size + spread + count * self.tiny


def _fast_error(ridge: Ridge, tokens: list[_Token], output: int) -> arb:
    """|computed − real| of the fast path: at most 2q + 1 roundings a coefficient, then n sums.

    By Horner's rule (torch) that is q products and q sums; by powers (NumPy) q products with the
    coefficient's own, and q sums to join the powers.
    """
    form = FORMATS[ridge.weights.dtype]
    u, tiny = form.unit_roundoff, form.tiny
    size = abs(arb(ridge.bias[output])) * (1 + 2 * u)
    spread, steps = size * 2 * u, 1
    for (of, token), powers in ridge.terms.items():
        if of != output:
            continue
        t = tokens[token]
        reach = t.reach + t.error
        largest = arb(1)
        for s, exact in powers.items():
            stored = abs(arb(exact)) * (1 + 2 * u) + tiny
            largest += stored
            size += stored * reach ** fmpq(s)
            spread += stored * (s * t.error * reach ** fmpq(s - 1) + 2 * u * reach ** fmpq(s))
        # an underflow in the sweep is multiplied by at most reach^q and a coefficient later on
        spread += 2 * tiny * (max(powers) + 1) * (1 + reach) ** fmpq(max(powers)) * largest
        steps += 1
    _check_overflow(size, form)
    return form.gamma(2 * ridge.degree + steps + 2) * size + spread


def _check_overflow(size: arb, form: FloatFormat) -> None:
    if not size < form.largest:
        raise InputError(f"the values on this box reach {size.str(3)}, beyond {form.name}'s range")


def _upper_max(values: list[arb]) -> arb:
    top = values[0]
    for value in values[1:]:
        top = top.max(value)
    return top.upper()
