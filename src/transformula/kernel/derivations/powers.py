"""Cases, absolute values, quotients, powers and roots of forms.

Each identity holds at every point at which its left side is defined. "Known" signs hold on the whole box.

* H(p) is 1 where p > 0 and else 0. `step` gives S with values 0 and 1 and p S = max(p, 0): where p is not zero,
  2S - 1 is the product of the signs of its factors f_i with odd e_i (of the denominator, too), each known or
  2 H(f_i) - 1; where p is zero any S will do. abs(p) = p (2S - 1), and abs(p)**k = p**k (2S - 1)**k, for
  negative k, too, since (2S - 1)**2 = 1.
* Cases: f(A), A with H_1 .. H_k, is the sum over b in {0,1}^k of f(A at H = b) times the product of H_i (b_i = 1)
  and 1 - H_i (b_i = 0). At a point one summand has factor 1 and is f(A); the others' numerators have factor 0, and
  their denominators must be defined and not zero on the whole box (`never_zero`). Otherwise, and for k > 4, f(A)
  is an atom of its own. 1/(f g) = 1/f * 1/g, so that only factors with H are split.
* b**(p/q) = (b**(1/q))**p, and b**(1/q) is a tower of roots of prime degrees. Its argument, without H, is
  v = c f_1**e_1 .. >= 0, so v**(1/q) is the q-th root of the product of all abs(f_i)**e_i. A factor f > 0 comes
  out as (f**(1/q))**e; what is left over is nonnegative still. If one s f**e with e odd is left, s f >= 0. If
  all that is left has known signs, or exponents that are multiples of m, it comes out as well, and each root is
  defined (q = 2: m = 2, abs(f)**(e/2); else m = 2q, f**(e/q)). Else what may vanish stays in one root (taken
  out, it might leave a negative radicand where v = 0). Factors with negative exponents do not vanish: they come
  out, or their exponents are raised by multiples of m. A root r has r**q = radicand and r >= 0.
* The atom exp(t/k) has (exp(t/k))**q = exp(t/(k/q)) for the least prime q of k; its q-th root is exp(t/(kq)).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from flint import fmpq, fmpq_mpoly, fmpz

from transformula.kernel.derivations.algebra import QuotientForm, ZeroDivisorError
from transformula.kernel.derivations.polynomial_signs import MAX_SPLIT, SignedRing, primitive

#: Larger exponents and degrees of roots make an atom. Primes below this are taken out of numbers.
MAX_POWER, MAX_ROOT, MAX_PRIME = 200, 100, 1_000
_PRIMES = [p for p in range(2, MAX_PRIME) if all(p % q for q in range(2, int(p**0.5) + 1))]


class PowerRing(SignedRing):
    """Quotients, powers and roots of forms."""

    def start(self, places: int) -> None:
        """Make the first context, and what every form needs."""
        self.extend(places)
        self.unit, self.two = self.constant(1), self.constant(2)
        self.pi = self.atom("pi")

    def _split(self, name: str, form: QuotientForm, rule: Callable[[Any, QuotientForm], QuotientForm]) -> QuotientForm:
        steps = self.steps(form)
        if not steps:
            return rule(self, form)
        total = []
        for bits, num in self.branches(form.num, steps) if len(steps) <= MAX_SPLIT else ():
            try:
                value = rule(self, self.form(num, form.den))
            except ZeroDivisorError:
                break
            if not self.never_zero(value.den):
                break
            for k, b in zip(steps, bits, strict=True):
                h = QuotientForm(self, self.gens[k])
                value = value * (h if b else self.unit - h)
            total.append(value)
        whole = len(total) == 2 ** len(steps)
        return self.sum(total) if whole else self.atom(f"opaque:{name}", (form,))

    # H, absolute values, quotients

    def step(self, form: QuotientForm) -> QuotientForm:
        """S with values 0 and 1 and p*S = max(p, 0)."""
        known, steps = self.sign(form), self.steps(form)
        if known:
            return self.constant(1 if known > 0 else 0)
        if 0 < len(steps) <= MAX_SPLIT:
            return self._split("step", form, PowerRing.step)
        if steps:  # too many cases: H of the whole
            lead = primitive(form.num)
            h = self.atom("step", (form * self.constant(1 / lead),))
            return h if lead > 0 else self.unit - h
        c, found = self.factored(form)
        sign, unknown = self.constant(1 if c > 0 else -1), []
        for f, _ in ((f, e) for f, e in found if e % 2):
            known = self.sign_of(f)
            sign = -sign if known < 0 else sign
            unknown += [] if known else [f]
        for f in unknown if len(unknown) < MAX_SPLIT else [reduce(self.times, unknown)]:
            sign = sign * (self.two * self.atom("step", (QuotientForm(self, f),)) - self.unit)
        return (sign + self.unit) * self.constant(fmpq(1, 2))

    def magnitude(self, form: QuotientForm) -> QuotientForm:
        """abs(p)."""
        return form * (self.two * self.step(form) - self.unit)

    def inverse(self, form: QuotientForm) -> QuotientForm:
        """1/p."""
        if not self.steps(form):
            return self.form(form.den, form.num)
        c, found = self.factors(form.num)
        result, rest = self.form(form.den / c, self.one), self.unit
        for f, e in found:
            part = self.power(QuotientForm(self, f), fmpq(e))
            if self.steps(part):
                rest = rest * part
            else:
                result = result * self.inverse(part)
        return result * self._split("inverse", rest, PowerRing.inverse)

    def factored(self, form: QuotientForm) -> tuple[fmpq, list[tuple[fmpq_mpoly, int]]]:
        """c and (f, e) with N/D = c * product of f**e; negative e are D's."""
        above, below = self.factors(form.num), self.factors(form.den)
        return above[0] / below[0], [*above[1], *((f, -e) for f, e in below[1])]

    # powers and roots

    def power(self, base: QuotientForm, by: fmpq) -> QuotientForm:
        """base**(p/q); with q > 1 only where base >= 0."""
        p, q = int(by.p), int(by.q)
        if abs(p) > MAX_POWER or q > MAX_ROOT:
            return self.atom("opaque:pow", (base, self.constant(by)))
        base = self.root(base, q) if q > 1 else base
        base, result = self.inverse(base) if p < 0 else base, self.unit
        for bit in f"{abs(p):b}":
            result = result * result
            result = result * base if bit == "1" else result
        return result

    def root(self, form: QuotientForm, q: int = 2) -> QuotientForm:
        """The q-th root of a form, where it is not negative."""
        for prime in _PRIMES:
            while q % prime == 0:
                form, q = self._split(f"root{prime}", form, _ROOTS[prime]), q // prime
        return form

    def prime_root(self, form: QuotientForm, q: int) -> QuotientForm:
        """The q-th root for prime q, of a form without H."""
        if form.num.is_zero():
            return form
        c, found = self.factored(form)
        out = self._number_root(abs(c), q)
        sign = 1 if c > 0 else -1
        period = 2 if q == 2 else 2 * q
        left: list[tuple[fmpq_mpoly, int, int]] = []
        for f, e in found:
            known = self.sign_of(f)
            if known < 0:
                f, sign = -f, -sign if e % 2 else sign
            if abs(known) == 2 or (known and e < 0):
                out = out * self.power(self._root_atom(f, q), fmpq(e))
            else:
                left.append((f, e, known))
        if len(left) == 1 and left[0][1] % 2:
            left, sign = [(sign * left[0][0], left[0][1], 1)], 1
        whole = all(known or e % period == 0 for _, e, known in left)
        if whole and sign < 0:
            return self.atom("opaque:root", (form,), q)  # defined at most where it is zero
        radicand = self.constant(sign)
        for f, e, known in left:
            if whole and known:
                out = out * self.power(self._root_atom(f, q), fmpq(e))
                continue
            times = e // period if whole or e < 0 else 0
            radicand = radicand * self.power(QuotientForm(self, f), fmpq(e - times * period))
            out = out * self.power(QuotientForm(self, f), fmpq(times * period // q))
            if q == 2 and times % 2:
                out = out * (self.two * self.step(QuotientForm(self, f)) - self.unit)
        return out if whole else out * self._root_atom(radicand.num, q)

    def _root_atom(self, g: fmpq_mpoly, q: int) -> QuotientForm:
        inner = self.sole(QuotientForm(self, g), "exp")
        if inner is not None:
            return self.exp_atom(self.atoms[inner].args[0], self.atoms[inner].by * q)
        return self.atom("root", (QuotientForm(self, g),), q, q, g)

    def sole(self, form: QuotientForm, kind: str) -> int | None:
        """The atom of that kind, if the form is just one."""
        used = self.used(form.num)
        found = len(used) == 1 and form.whole and self.lift(form.num) == self.gens[used[0]]
        return used[0] if found and self.atoms[used[0]].kind == kind else None

    def _number_root(self, c: fmpq, q: int) -> QuotientForm:
        out = self.unit
        for p, e in prime_powers(c):
            exact = int(fmpz(p).root(q))
            base = self.constant(exact) if exact**q == p else self._root_atom(p * self.one, q)
            out = out * self.power(base, fmpq(e))
        return out

    def exp_atom(self, t: QuotientForm, k: int) -> QuotientForm:
        """exp(t/k)."""
        prime = next((p for p in _PRIMES if k % p == 0), 0)
        return self.atom("exp", (t,), k, prime, self.exp_atom(t, k // prime).num if prime else None)


def leading(form: QuotientForm) -> fmpq:
    """The leading coefficient, 0 for zero."""
    return form.num.leading_coefficient() if len(form.num) else fmpq(0)


def prime_powers(c: fmpq) -> list[tuple[int, int]]:
    """A positive rational as a product of powers; what has no small prime factor stays whole."""
    found = []
    for number, sign in ((int(c.p), 1), (int(c.q), -1)):
        for p in _PRIMES:
            e = 0
            while number % p == 0:
                number, e = number // p, e + sign
            found.append((p, e))
        found.append((number, sign))
    return [(p, e) for p, e in found if e and p > 1]


def _prime_root(q: int) -> Callable[[PowerRing, QuotientForm], QuotientForm]:
    return lambda algebra, form: algebra.prime_root(form, q)


_ROOTS = {q: _prime_root(q) for q in _PRIMES}
