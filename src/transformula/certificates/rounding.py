"""The model of floating-point arithmetic that the rounding bounds rest on.

For +, −, × and ÷: fl(a ∘ b) = (a ∘ b)(1 + δ) + η with |δ| ≤ u and |η| ≤ the smallest subnormal (η only
where the result underflows), as IEEE 754 guarantees with rounding to nearest; a fused multiply-add
only drops errors. A sum or dot product of n terms, in any order, has relative error at most
γ_n = n·u / (1 − n·u) of the sum of absolute values (Higham, *Accuracy and Stability of Numerical
Algorithms*, section 3.1). exp is within `EXP_ULPS` units in the last place. Inputs may be given in
any precision: rounding them to the format once is part of the bound.
"""

from __future__ import annotations

from dataclasses import dataclass

from flint import arb

from transformula.errors import InputError

#: What every current libm, SLEEF, CUDA and MKL states for exp, with room to spare.
EXP_ULPS = 4


@dataclass(frozen=True)
class FloatFormat:
    """An IEEE format: bits of the significand (hidden one included) and the exponent's range."""

    name: str
    digits: int
    largest_exponent: int

    @property
    def unit_roundoff(self) -> arb:
        """Largest relative error of one operation."""
        return arb(2) ** -self.digits

    @property
    def tiny(self) -> arb:
        """Largest absolute error of an operation that underflows."""
        return arb(2) ** (2 - self.largest_exponent - self.digits)

    @property
    def largest(self) -> arb:
        """Below this nothing overflows."""
        return arb(2) ** (self.largest_exponent - 1)

    def gamma(self, operations: int) -> arb:
        """γ_n."""
        total = self.unit_roundoff * operations
        if not total < 1:
            raise InputError(f"{self.name} can not hold a sum of {operations} terms")
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
