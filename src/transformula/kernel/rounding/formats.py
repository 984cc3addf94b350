"""The model of floating-point arithmetic that the rounding bounds rest on.

For +, −, × and ÷: fl(a ∘ b) = (a ∘ b)(1 + δ) + η with |δ| ≤ u and |η| ≤ the smallest subnormal (η only
where the result underflows), as IEEE 754 guarantees with rounding to nearest; a fused multiply-add
only drops errors. A sum or dot product of n terms, in any order, has relative error at most
γ_n = n·u / (1 − n·u) of the sum of absolute values (Higham, *Accuracy and Stability of Numerical
Algorithms*, section 3.1). exp is within `EXP_ULPS` units in the last place, or else the exact and the computed number
are both at most `faint`: executors flush what underflows, or raise it to a normal number, which is faster. Inputs may
be given in any precision: rounding them to the format once is part of the bound.

*Overflow.* For each number that an executor computes, a rule bounds the sum of the absolute values of all that is added
up for it, and refuses what is not below half of `largest`: no partial sum overflows, in any order. Exports to torch
multiply queries, and so scores, by at most `QUERY_FACTOR`, a power of two.

A float that stands for a rational is within u(1 + 2⁻²⁰) of it, relatively (`check_stored`): nearest rounding
gives u, and rounding to float64 before float32 adds 2⁻⁵³ = 2⁻²⁹u.

Nothing overflows where values are added up, or in the memory tokens' own streams.

*Values.* No exponential of a softmax is above 1 while the largest score is subtracted, so a head that divides last adds
up at most N·Y for N tokens with |values| ≤ Y, its own or not: a kernel that takes the tokens in blocks subtracts the
largest score of those it has seen, which may all be foreign ones. Computed sums are at most twice as large.

*Memory tokens* pass attention and ReLUs like data tokens. Their results are not read, but a dense product
multiplies it by zero, and zero times infinity is not a number. They carry no input and no 1; softmax weights
add up to one, so a head adds at most the largest value of any token. Real numbers are bounded here, and
computed ones are at most twice as large, or γ would not be small: that is what the factor 2 is for.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from flint import arb, fmpq

from transformula.kernel.exceptions import InputError, NotProvenError, RefutedError
from transformula.kernel.folder.weights import Matrix, Weights, named_matrices, to_rational

#: What every current libm, SLEEF, CUDA and MKL states for exp, with room to spare.
EXP_ULPS = 4
#: √D for heads of up to 4096 coordinates (`export.stock_torch`).
QUERY_FACTOR = 64
_EXACT = arb(0)


@dataclass(frozen=True)
class FloatFormat:
    """An IEEE format: bits of the significand (hidden one included) and the exponent's range."""

    name: str
    digits: int
    largest_exponent: int
    #: Whether sums of nonnegative slots are never read as negative; not so where a mean is subtracted first.
    keeps_signs: bool = True
    #: Absolute error of a score, and of a token's value, that is read through a norm (`export.norm_rounding`).
    score_slip: arb = _EXACT
    value_slip: arb = _EXACT

    @property
    def unit_roundoff(self) -> arb:
        """Largest relative error of one operation."""
        return arb(2) ** -self.digits

    @property
    def tiny(self) -> arb:
        """Largest absolute error of an operation that underflows."""
        return arb(2) ** (2 - self.largest_exponent - self.digits)

    @property
    def normal(self) -> arb:
        """The smallest normal number η: results below it may be flushed to zero."""
        return arb(2) ** (2 - self.largest_exponent)

    @property
    def lost(self) -> arb:
        """Error of an operation that underflows, or is flushed to zero: 2η."""
        return 2 * self.normal

    @property
    def faint(self) -> arb:
        """An exponential that is meant to be this small may come out as anything from 0 to it: 3η."""
        return 3 * self.normal

    @property
    def largest(self) -> arb:
        """Below this nothing overflows."""
        return arb(2) ** (self.largest_exponent - 1)

    def holds(self, value: fmpq) -> bool:
        """Whether a rational is a number of the format."""
        p, q = abs(int(value.p)), int(value.q)
        p >>= (p & -p).bit_length() - 1 if p else 0  # trailing zeros belong to the exponent
        short = q & (q - 1) == 0 and p.bit_length() <= self.digits
        return short and q.bit_length() <= self.largest_exponent + self.digits - 2 and arb(abs(value)) < self.largest

    def gamma(self, operations: int) -> arb:
        """γ_n."""
        total = self.unit_roundoff * operations
        if not total < 1:
            raise InputError(f"{self.name} cannot hold a sum of {operations} terms")
        return total / (1 - total)


FORMATS = {
    "float64": FloatFormat("float64", 53, 1024),
    "float32": FloatFormat("float32", 24, 128),
}


def describe(dtype: str) -> dict[str, object]:
    """The assumptions, in words and numbers, for the certificate."""
    form = FORMATS[dtype]
    return {
        "dtype": dtype,
        "arithmetic": "IEEE 754 + - * / rounded to nearest, any summation order, FMA allowed",
        "unit_roundoff": f"2**-{form.digits}",
        "exp_ulps": EXP_ULPS,
        "inputs": "rounded once to the dtype",
    }


def check_size(form: FloatFormat, size: arb) -> None:
    """Refuse values that might overflow."""
    if not size < form.largest:
        raise NotProvenError(f"the values on this box reach {size.str(3)}, beyond {form.name}'s range")


def check_stored(weights: Weights, may_underflow: Collection[str] = ()) -> None:
    """Every float must be the number of the format that its rational rounds to, or next to it.

    A rational that the format holds must be stored as it is. The slack of the others is relative: a number
    that underflows may still be multiplied by a large one. Matrices that ``may_underflow`` multiply bounded
    numbers, and their rule counts what underflow costs.
    """
    form = FORMATS[weights.dtype]
    slack = fmpq(2**20 + 1, 2 ** (form.digits + 20))
    tiny = fmpq(1, 2 ** (form.largest_exponent + form.digits - 2))
    for name, matrix in named_matrices(weights):
        if matrix.values.dtype != weights.dtype:
            raise RefutedError(f"{name} is not stored in {weights.dtype}")
        if not np.isfinite(matrix.values).all():
            raise RefutedError(f"{name} has a number beyond {weights.dtype}'s range: use a smaller box")
        if matrix.exact is None:
            continue
        for stored, exact in zip(matrix.values.tolist(), matrix.exact, strict=True):
            gap = abs(to_rational(stored) - exact)
            allowed = slack * abs(exact) + (tiny if name in may_underflow else 0)
            if gap != 0 and (form.holds(exact) or not gap <= allowed):
                raise RefutedError(f"{name} has a float {stored!r} that is not its rational {_short(exact)}")


def _short(value: fmpq) -> str:
    return str(value) if value.height_bits() < 200 else f"of {value.height_bits()} bits"


def check_memory(weights: Weights) -> None:
    """Refuse weights whose memory tokens might overflow, or heads that add up their values."""
    form = FORMATS[weights.dtype]
    constants = np.abs(weights.memory.dense(np.float64))
    largest = [arb(float(v)) for v in constants.max(axis=0, initial=0.0)]
    held = [arb(float(v)) for v in constants[len(weights.data_tokens) :].max(axis=0, initial=0.0)]

    def product(matrix: Matrix, slots: list[arb], bias: Matrix | None = None) -> list[arb]:
        sums = [arb(0)] * matrix.shape[0]
        for row, column, value in matrix.entries():
            sums[row] += abs(arb(value)) * slots[column]
        for row, _, value in bias.entries() if bias is not None else ():
            sums[row] += abs(arb(value))
        for size in sums:
            check_size(form, 2 * size)
        return sums

    for block in weights.blocks:
        added = [arb(0)] * weights.width
        for head in block.attention.heads:
            asked, keys = product(head.query, held), product(head.key, largest)
            check_size(form, QUERY_FACTOR * arb(float(np.abs(head.query.values).max(initial=0.0))))
            check_size(form, 4 * sum((q * k for q, k in zip(asked, keys, strict=True)), arb(0)))
            for row, column, value in head.value.entries():
                added[row] += abs(arb(value)) * largest[column]
                check_size(form, 2 * weights.tokens * abs(arb(value)) * largest[column])
        held = [2 * a + 2 * b for a, b in zip(held, added, strict=True)]
        layer = block.feed_forward
        if layer is not None:
            hidden = product(layer.hidden, held, layer.hidden_bias)
            bent = product(layer.output, [2 * h for h in hidden], layer.output_bias)
            held = [2 * a + 2 * b for a, b in zip(held, bent, strict=True)]
        for size in held:
            check_size(form, size)
