"""How much one ring of forms may do: polynomials are weighed before they are made, taken apart or written down."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import comb, prod
from typing import Any

from flint import fmpq_mpoly, fmpz

from transformula.kernel.exceptions import Reason, RefutedError
from transformula.kernel.work import spend

MAX_TERMS, MAX_DEGREE, MAX_BITS = 20_000, 1_000, 40_000
#: Terms times bits of a polynomial: 12 MB. Terms times atoms: as tuples of exponents, some 400 MB.
MAX_SIZE, MAX_NUMBERS = 10**8, 8 * 10**6
#: All that one ring does: products of terms, times words of coefficients; what else takes as long counts as much.
MAX_WORK = 2 * 10**7


@dataclass
class Effort:
    """What was done so far; ``gens`` are the places for atoms."""

    work: int = 0
    gens: tuple[Any, ...] = field(default=(), init=False)

    def checked(self, p: fmpq_mpoly) -> fmpq_mpoly:
        """The polynomial, unless it is too large."""
        self.charge(len(p) // 4)
        bits = self.bits(p)
        if len(p) > MAX_TERMS or bits > MAX_BITS or len(p) * bits > MAX_SIZE or p.total_degree() > MAX_DEGREE:
            raise RefutedError(f"a normal form is too long: {len(p)} terms, {bits} bits", reason=Reason.UNCOMPARED)
        return p

    def bits(self, p: fmpq_mpoly) -> int:
        """The size of the largest coefficient as FLINT holds it, over one denominator; to look at each takes a gcd."""
        coefficients, common = p.coeffs(), fmpz(1)
        for c in coefficients:
            common = common.lcm(c.q)
            if common.bit_length() > MAX_BITS:
                break
        found = int(common.bit_length()) - 1 + max((int(c.height_bits()) for c in coefficients), default=0)
        self.charge(len(p) * (found // 64) ** 2 // 64)
        return found

    def charge(self, work: int) -> None:
        """Count work: nothing that a folder asks for goes on for minutes."""
        self.work += work
        spend(0.2 * work)
        if self.work > MAX_WORK:
            raise RefutedError("a normal form is too long: it takes too much work", reason=Reason.UNCOMPARED)

    def spend(self, a: fmpq_mpoly, b: fmpq_mpoly) -> None:
        """Count the work of a product before it is done."""
        if len(a) * len(b) > 20 * MAX_TERMS:
            said = f"a normal form is too long: a product of {len(a)} by {len(b)} terms"
            raise RefutedError(said, reason=Reason.UNCOMPARED)
        self.charge(len(a) * len(b) * (1 + (self.bits(a) + self.bits(b) + len(self.gens)) // 64))

    def may_divide(self, p: fmpq_mpoly, other: fmpq_mpoly) -> bool:
        """Whether p without what it has in common with another polynomial is short: (x**9 - 1)/(x - 1) is not.

        A quotient of degrees d_k has at most Π (1 + d_k) terms, and in n atoms with total degree t at most C(n + t, n).
        If the divisor has atoms V only, those terms of p that are alike in all others are divided on their own: each
        such part has at most Π_V (1 + d_k) terms, and there are no more parts than terms. A single term adds none.
        """
        if len(other) < 2 or len(p) < 2:
            return True
        degrees = [int(d) for d in p.degrees()]
        shared = (d for d, e in zip(degrees, other.degrees(), strict=True) if e)
        atoms, total = sum(d > 0 for d in degrees), int(p.total_degree())
        parts = len(p) * prod(1 + d for d in shared)
        most = min(prod(1 + d for d in degrees), comb(atoms + total, atoms), parts)
        self.charge(4 * most if most <= 20 * MAX_TERMS else 0)
        return most <= 20 * MAX_TERMS

    def convert(self, p: fmpq_mpoly) -> None:
        """Count the work of taking a polynomial apart: an exponent for each term and each atom there is."""
        if len(p) * len(self.gens) > MAX_NUMBERS:
            said = f"a normal form is too long: {len(p)} terms beside {len(self.gens)} atoms"
            raise RefutedError(said, reason=Reason.UNCOMPARED)
        self.charge(len(p) * len(self.gens) // 16)

    def written(self, p: fmpq_mpoly) -> str:
        """The text of a polynomial, which is kept."""
        text = str(p)
        self.charge(len(text) // 8)
        return text
