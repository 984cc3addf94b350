"""Rational functions over Q in *atoms*: what normal forms are written in.

An atom is a real function on the box: an input, pi, exp(t), a root, H(p) = [p > 0], .. A form N/D holds two
polynomials in atoms over Q. It is *good* at a point P if D's atoms are defined at P, D(P) != 0, and the atoms
that are left in N once every H has got its value at P are defined; its value there is N(P)/D(P). A form
*stands* for an expression if it is good, with the right value, wherever the expression is defined. So if two
expressions have forms with N1 D2 - N2 D1 = 0, they are equal wherever both are defined. Kept by every step:

* sums and products; quotients, because a divisor is not zero where the quotient is defined. D never holds an
  H: a divisor with an H in it is split (`identities`).
* reducing by a relation a**q = g, g a polynomial in older atoms without H: true wherever a is defined, term
  by term, hence also after H has got its value. And H**k = H, as H is 0 or 1.
* cancelling a common factor g: D(P) = g(P) D'(P) is not zero, so neither is g(P); g has atoms of D only.
* multiplying N and D by a**(q - e) where a**e divides D, so that roots leave the denominator: a(P) != 0.

Nothing is assumed about the independence of atoms, and no step needs the ring modulo the relations to be free
of zero divisors: each holds point by point. What a size limit leaves out (a gcd, a factorisation) makes forms
longer, not wrong. FLINT's gcd is checked by dividing.

How large the polynomials of one ring of forms may be: sizes are bounded before FLINT is called.

A compiler computes normal forms in its own process, and FLINT cannot be interrupted there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import compress, product
from math import comb, prod
from typing import Any

from flint import Ordering, fmpq, fmpq_mpoly, fmpq_mpoly_ctx, fmpz

from transformula.kernel.exceptions import Reason, RefutedError

MAX_TERMS = 20_000
MAX_DEGREE = 1_000
MAX_BITS = 40_000
#: Terms times bits of a polynomial: 12 MB. Terms times atoms: as tuples of exponents, some 400 MB.
MAX_SIZE, MAX_NUMBERS = 10**8, 8 * 10**6
#: Products of coefficients in all products, common divisors and factorisations of one ring together.
MAX_PRODUCTS = 2 * 10**7


def _too_long(size: str) -> RefutedError:
    return RefutedError(f"a normal form is too long: {size}", reason=Reason.UNCOMPARED)


@dataclass
class Effort:
    """Products of coefficients so far; ``gens`` are the places for atoms."""

    products: int = 0
    gens: tuple[Any, ...] = field(default=(), init=False)

    def checked(self, p: fmpq_mpoly) -> fmpq_mpoly:
        """The polynomial, unless it is too large."""
        bits = self.bits(p)
        if len(p) > MAX_TERMS or bits > MAX_BITS or len(p) * bits > MAX_SIZE or p.total_degree() > MAX_DEGREE:
            raise _too_long(f"{len(p)} terms, {bits} bits")
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
            raise _too_long(f"it takes over {MAX_PRODUCTS} products")

    def count_product(self, a: fmpq_mpoly, b: fmpq_mpoly) -> None:
        """Count the product of two polynomials before it is computed."""
        if len(a) * len(b) > 20 * MAX_TERMS:
            raise _too_long(f"a product of {len(a)} by {len(b)} terms")
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
            raise _too_long(f"{len(p)} terms beside {len(self.gens)} atoms")


MAX_ATOMS = 4_000
#: Beyond this many products of terms, times variables, or this sum of degrees, only monomials are cancelled.
MAX_CANCELLED, MAX_DEGREES = 100_000, 100


class ZeroDivisorError(RefutedError):
    """A denominator is zero identically."""


class QuotientForm:
    """N/D without a common factor, D with leading coefficient 1. Equal keys mean equal forms."""

    __slots__ = ("_key", "den", "num", "ring")

    def __init__(self, ring: Ring, num: fmpq_mpoly, den: fmpq_mpoly | None = None) -> None:
        self.ring = ring
        self.num = num
        self.den = ring.one if den is None else den
        self._key = ""

    @property
    def key(self) -> str:
        """Its text; names of atoms never change, nor does their order."""
        self._key = self._key or f"({self.num})/({self.den})"
        return str(self._key)

    @property
    def whole(self) -> bool:
        """Whether it is a polynomial."""
        return bool(self.den.is_constant())

    def __add__(self, other: QuotientForm) -> QuotientForm:
        return self.ring.sum([self, other])

    def __sub__(self, other: QuotientForm) -> QuotientForm:
        return self.ring.sum([self, -other])

    def __neg__(self) -> QuotientForm:
        return QuotientForm(self.ring, -self.num, self.den)

    def __mul__(self, other: QuotientForm) -> QuotientForm:
        r = self.ring
        r.renew(self, other)
        num = r.times(self.num, other.num)
        return QuotientForm(r, num) if self.whole and other.whole else r.form(num, r.times(self.den, other.den))

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QuotientForm) and self.ring is other.ring and self.key == other.key


@dataclass
class Atom:
    """A function on the box, of ``args``; ``by`` is a root's degree. atom**power = equals where power > 0."""

    kind: str
    args: tuple[QuotientForm, ...]
    by: int
    power: int
    equals: Any
    sign: int = 0
    total: bool = False  # defined on the whole box


@dataclass
class Ring(Effort):
    """Atoms, and the arithmetic of forms in them."""

    atoms: list[Atom] = field(default_factory=list)
    _known: dict[tuple[object, ...], int] = field(default_factory=dict)
    _bound: list[int] = field(default_factory=list)  # atoms with a relation

    def extend(self, size: int) -> None:
        """A context with room for a number of atoms; polynomials of smaller contexts are lifted where they are used."""
        self.ctx = fmpq_mpoly_ctx.get([f"a{k}" for k in range(size)], Ordering.lex)
        self.gens, self.one = self.ctx.gens(), self.ctx.constant(1)

    def checked(self, p: fmpq_mpoly) -> fmpq_mpoly:
        """The polynomial, unless it is too large; a term takes a byte or two for each atom there is."""
        self.check_exponents(p)
        self.count(len(p) * len(self.gens) // 64)
        return super().checked(p)

    def judge(self, atom: Atom) -> None:
        """Set an atom's sign, and whether it is defined on the whole box."""
        raise NotImplementedError

    def atom(self, kind: str, args: tuple[QuotientForm, ...] = (), by: int = 1, power: int = 0,
             equals: Any = None) -> QuotientForm:  # fmt: skip
        """The atom, made if it is new: equal kinds of equal forms are equal functions."""
        key = (kind, by, *(a.key for a in args))
        if key not in self._known:
            if len(self.atoms) >= MAX_ATOMS:
                raise RefutedError(f"a normal form needs over {MAX_ATOMS} atoms", reason=Reason.UNCOMPARED)
            self.atoms.append(Atom(kind, args, by, power, equals))  # first: no other atom may take its number
            if power or kind == "step":
                self._bound.append(len(self.atoms) - 1)
            self._known[key] = len(self.atoms) - 1
            if len(self.atoms) > len(self.gens):
                self.extend(2 * len(self.gens))
            self.judge(self.atoms[-1])
        return QuotientForm(self, self.gens[self._known[key]])

    def lift(self, p: fmpq_mpoly) -> fmpq_mpoly:
        """The polynomial in today's context, which may have more atoms than the one it was made in."""
        if p.context() is self.ctx:
            return p
        self.check_exponents(p)
        pad = (0,) * (len(self.gens) - p.context().nvars())
        return self.ctx.from_dict({(*m, *pad): c for m, c in p.to_dict().items()})

    def renew(self, *forms: QuotientForm) -> None:
        """Lift forms once and for all."""
        for f in forms:
            f.num, f.den = self.lift(f.num), self.lift(f.den)

    def constant(self, value: fmpq | int) -> QuotientForm:
        """An exact number."""
        return QuotientForm(self, self.checked(self.ctx.constant(value)))

    def times(self, a: fmpq_mpoly, b: fmpq_mpoly) -> fmpq_mpoly:
        """The product, reduced."""
        a, b = self.lift(a), self.lift(b)
        self.count_product(a, b)
        return self.reduced(self.checked(a * b))

    def reduced(self, p: fmpq_mpoly) -> fmpq_mpoly:
        """Every power a**q of an atom with a**q = g replaced, the newest atom first: g has older ones only."""
        degrees = p.degrees() if self._bound else ()
        for k in reversed(self._bound):
            if degrees[k] < 2 or degrees[k] < self.atoms[k].power:
                continue
            power, g = self.atoms[k].power, self.atoms[k].equals
            self.check_exponents(p)
            parts: dict[int, dict[tuple[int, ...], fmpq]] = {}
            for m, c in p.to_dict().items():
                times, left = divmod(int(m[k]), power) if power else (0, min(int(m[k]), 1))  # H**k = H
                part, key = parts.setdefault(times, {}), (*m[:k], left, *m[k + 1 :])
                part[key] = part.get(key, 0) + c
            p = 0 * self.one
            have = 0
            now = self.one
            for times, part in sorted(parts.items()):
                while have < times:
                    g = self.lift(g)
                    self.count_product(now, g)
                    now, have = self.checked(now * g), have + 1
                piece = self.ctx.from_dict(part)
                self.count_product(piece, now)
                p = self.checked(p + piece * now)
            degrees = p.degrees()
        return p

    def form(self, num: fmpq_mpoly, den: fmpq_mpoly) -> QuotientForm:
        """The canonical form of a quotient of reduced polynomials."""
        num, den = self.lift(num), self.lift(den)
        for k in reversed(self.used(den)):
            if self.atoms[k].kind == "step":
                raise RefutedError("a denominator depends on a case")  # never: divisors are split before
            power, least = self.atoms[k].power, int(den.term_content().degrees()[k])
            if power and least:
                by = self.gens[k] ** (power - least)
                num, den = self.times(num, by), self.times(den, by)
        if den.is_zero():
            raise ZeroDivisorError("a denominator is zero identically")
        if not den.is_constant():
            high = sum(max(int(a), int(b)) for a, b in zip(num.degrees(), den.degrees(), strict=True))
            variables = len({*self.used(num), *self.used(den)})
            short = len(num) * len(den) * variables <= MAX_CANCELLED and high <= MAX_DEGREES
            self.count_product(num, den)
            if short:
                words = (self.bits(num) + self.bits(den)) // 64
                self.count(high**3 // 8 + (len(num) + len(den)) * words**2 // 40)
                short = self.may_divide(num, den) and self.may_divide(den, num)
            common = num.gcd(den) if short or num.is_zero() else num.term_content().gcd(den.term_content())
            num, den = num / common, den / common  # FLINT raises an error if that is not exact
        lead = den.leading_coefficient()
        return QuotientForm(self, num / lead, den / lead)

    def sum(self, forms: list[QuotientForm]) -> QuotientForm:
        """The sum; polynomials are added at once."""
        self.renew(*forms)
        parts = [f.num for f in forms if f.whole] or [0 * self.one]
        while len(parts) > 1:
            parts = [sum(parts[k : k + 2], 0 * self.one) for k in range(0, len(parts), 2)]
        result = QuotientForm(self, self.checked(parts[0]))
        for f in (f for f in forms if not f.whole):
            if f.den == result.den:
                result = self.form(self.checked(f.num + result.num), f.den)
            else:
                num = self.times(f.num, result.den) + self.times(result.num, f.den)
                result = self.form(self.checked(num), self.times(f.den, result.den))
        return result

    def used(self, p: fmpq_mpoly) -> list[int]:
        """Indices of the atoms in a polynomial, oldest first."""
        return [] if p.is_constant() else list(compress(range(len(self.gens)), p.degrees()))

    def steps(self, form: QuotientForm) -> list[int]:
        """The H in a form."""
        return [k for k in self.used(form.num) if self.atoms[k].kind == "step"]

    def branches(self, p: fmpq_mpoly, steps: list[int]) -> list[tuple[tuple[int, ...], fmpq_mpoly]]:
        """The polynomial with every choice of 0 and 1 for the given H."""
        p = self.lift(p)
        return [(bits, p.subs({f"a{k}": b for k, b in zip(steps, bits, strict=True)}))
                for bits in product((0, 1), repeat=len(steps))]  # fmt: skip
