"""How large the polynomials of one ring of forms may be: sizes are bounded before FLINT is called.

A compiler computes normal forms in its own process, and FLINT cannot be interrupted there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import comb, prod
from typing import Any

from flint import fmpq_mpoly, fmpz

from transformula.kernel.exceptions import RefutedError

MAX_TERMS, MAX_DEGREE, MAX_BITS = 20_000, 1_000, 40_000
#: Terms times bits of a polynomial: 12 MB. Terms times atoms: as tuples of exponents, some 400 MB.
MAX_SIZE, MAX_NUMBERS = 10**8, 8 * 10**6
#: Products of coefficients in all products, common divisors and factorisations of one ring together.
MAX_PRODUCTS = 2 * 10**7


@dataclass
class Effort:
    """Products of coefficients so far; ``gens`` are the places for atoms."""

    products: int = 0
    gens: tuple[Any, ...] = field(default=(), init=False)

    def checked(self, p: fmpq_mpoly) -> fmpq_mpoly:
        """The polynomial, unless it is too large."""
        bits = self.bits(p)
        if len(p) > MAX_TERMS or bits > MAX_BITS or len(p) * bits > MAX_SIZE or p.total_degree() > MAX_DEGREE:
            raise RefutedError(f"a normal form is too long: {len(p)} terms, {bits} bits")
        return p

    def bits(self, p: fmpq_mpoly) -> int:
        """The size of the largest coefficient as FLINT holds it, over one denominator; to look at each takes a gcd."""
        coefficients, common = p.coeffs(), fmpz(1)
        for c in coefficients:
            common = common.lcm(c.q)
            if common.bit_length() > MAX_BITS:
                break
        return int(common.bit_length()) - 1 + max((int(c.height_bits()) for c in coefficients), default=0)

    def count(self, products: int) -> None:
        """Count products of coefficients before they are computed."""
        self.products += products
        if self.products > MAX_PRODUCTS:
            raise RefutedError(f"a normal form is too long: it takes over {MAX_PRODUCTS} products")

    def count_product(self, a: fmpq_mpoly, b: fmpq_mpoly) -> None:
        """Count the product of two polynomials before it is computed."""
        if len(a) * len(b) > 20 * MAX_TERMS:
            raise RefutedError(f"a normal form is too long: a product of {len(a)} by {len(b)} terms")
        self.count(len(a) * len(b) * (1 + (self.bits(a) + self.bits(b) + len(self.gens)) // 64))

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
        return most <= 20 * MAX_TERMS

    def check_exponents(self, p: fmpq_mpoly) -> None:
        """Refuse to take a polynomial apart that has too many exponents: one for each term and each atom there is."""
        if len(p) * len(self.gens) > MAX_NUMBERS:
            raise RefutedError(f"a normal form is too long: {len(p)} terms beside {len(self.gens)} atoms")
