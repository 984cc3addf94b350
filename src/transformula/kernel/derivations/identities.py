"""Functions of forms, and powers with any exponent: the identities behind normal forms.

*Cases, absolute values, quotients, powers and roots of forms.*

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

Each identity holds at every point at which its left side is defined. Arguments t, p, b, v have no H in them; with
H they are split into cases (`identities`).

* exp(sum of c_i t_i) = product of exp(t_i/k)**p, c_i = p/k. exp(c log b) = b**c, as b > 0 where log b is defined.
* log v: v = c f_1**e_1 .. is positive, so no factor vanishes, and those of known sign, made positive, come out
  as e_i log f_i; the product of the others, with the sign that is left, is positive. If that is one s f**e
  with e odd, s f is. log exp(t/k) = t/k, log r = log(b)/q for r = b**(1/q).
* u**v = exp(v log u) if u > 0 is known.
* With p = n/d: the atom s = sinc(p)/d, even in p, gives sinc(p) = d s and sin(p) = n s; cos(p) is even, with
  cos(p)**2 = 1 - n**2 s**2; sin(k pi/2) and cos(k pi/2) are 0, 1 or -1; tan = sin/cos. tan(pi/4 + z/2) =
  (1 + sin z)/cos z = sqrt(1 + t**2) + t for z = atan t, and so for -z, -t. sinh, cosh, tanh are quotients of exp;
  acos = pi/2 - asin.
* Anything else is an atom of its name and its arguments' forms; of minus the argument if it is odd.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from flint import fmpq, fmpq_mpoly, fmpz

from transformula.kernel.derivations.algebra import QuotientForm, ZeroDivisorError
from transformula.kernel.derivations.polynomials import MAX_SPLIT, SignedRing, primitive
from transformula.kernel.functions.function_table import function_of

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


#: exp(c t) is a power of exp(t/k) for c = p/k up to this; beyond, c stays inside.
MAX_RATIO = 64
#: Terms of an angle whose cosine's square is expanded.
MAX_ANGLE = 30


class Identities(PowerRing):
    """Functions of forms."""

    def call(self, name: str, form: QuotientForm) -> QuotientForm:
        """A function of a form."""
        return self.magnitude(form) if name == "abs" else self._split(name, form, _RULES.get(name) or _opaque(name))

    def raised(self, base: QuotientForm, exponent: QuotientForm) -> QuotientForm:
        """base**exponent."""
        if exponent.num.is_constant() and exponent.whole:
            return self.power(base, leading(exponent))
        if self.sign(base) == 2:
            return self.call("exp", exponent * self.call("log", base))
        return self.atom("opaque:pow", (base, exponent))

    def exp(self, form: QuotientForm) -> QuotientForm:
        """exp of a form without H."""
        out = self.unit
        terms = [(self.ctx.from_dict({m: 1}), c) for m, c in self.lift(form.num).to_dict().items()]
        for m, c in terms:
            t = self.form(m, form.den)
            inner = self.sole(t, "log")
            if inner is not None:
                out = out * self.power(self.atoms[inner].args[0], c)
            elif max(abs(int(c.p)), int(c.q)) <= MAX_RATIO:
                out = out * self.power(self.exp_atom(t, int(c.q)), fmpq(c.p))
            else:
                out = out * self.power(self.exp_atom(t * self.constant(abs(c)), 1), fmpq(1 if c > 0 else -1))
        return out

    def log(self, form: QuotientForm) -> QuotientForm:
        """Log of a form without H."""
        if form.num.is_zero():
            return self.atom("opaque:log", (form,))
        c, found = self.factored(form)
        sign, rest = 1 if c > 0 else -1, []
        parts = [self.constant(e) * self.atom("log", (self.constant(p),)) for p, e in prime_powers(abs(c))]
        for f, e in found:
            known = self.sign_of(f)
            if known < 0:
                f, sign = -f, -sign if e % 2 else sign
            if known:
                parts.append(self.constant(e) * self._log_atom(QuotientForm(self, f)))
            else:
                rest.append((f, e))
        if len(rest) == 1 and rest[0][1] % 2:
            parts.append(self.constant(rest[0][1]) * self._log_atom(QuotientForm(self, sign * rest[0][0])))
        elif rest:
            whole = self.constant(sign)
            for f, e in rest:
                whole = whole * self.power(QuotientForm(self, f), fmpq(e))
            parts.append(self.atom("log", (whole,)))
        elif sign < 0:
            return self.atom("opaque:log", (form,))  # defined nowhere
        return self.sum(parts)

    def _log_atom(self, form: QuotientForm) -> QuotientForm:
        for kind in ("exp", "root"):
            inner = self.sole(form, kind)
            if inner is not None:
                a = self.atoms[inner]
                return (a.args[0] if kind == "exp" else self.log(a.args[0])) * self.constant(fmpq(1, a.by))
        return self.atom("log", (form,))

    def _angle(self, form: QuotientForm) -> tuple[int, QuotientForm, QuotientForm]:
        """A sign, the argument with a positive leading coefficient, and the atom sinc(p)/d."""
        sign = -1 if leading(form) < 0 else 1
        form = form if sign > 0 else -form
        k = self._right_angles(form)
        if k:
            return sign, form, self.constant((0, 1, 0, -1)[k % 4]) * self.inverse(QuotientForm(self, form.num))
        return sign, form, self.unit if k == 0 else self.atom("sinc", (form,))

    def _right_angles(self, form: QuotientForm) -> int | None:
        """k, if the form is k pi/2."""
        k = 2 * leading(form)
        return int(k.p) if k.q == 1 and form == self.pi * self.constant(k / 2) else None

    def sin(self, form: QuotientForm) -> QuotientForm:
        """Sine of a form without H."""
        sign, p, s = self._angle(form)
        return QuotientForm(self, sign * p.num) * s

    def sinc(self, form: QuotientForm) -> QuotientForm:
        """sin(p)/p of a form without H."""
        _, p, s = self._angle(form)
        return QuotientForm(self, p.den) * s

    def cos(self, form: QuotientForm) -> QuotientForm:
        """Cosine of a form without H."""
        if (k := self._right_angles(form)) is not None:
            return self.constant((1, 0, -1, 0)[k % 4])
        _, p, s = self._angle(form)
        if len(p.num) > MAX_ANGLE:
            return self.atom("cos", (p,))
        sine = QuotientForm(self, p.num) * s
        return self.atom("cos", (p,), 1, 2, (self.unit - sine * sine).num)

    def tan(self, form: QuotientForm) -> QuotientForm:
        """Tangent of a form without H."""
        twice = (form - self.pi * self.constant(fmpq(1, 4))) * self.two
        for sign in (self.unit, -self.unit):
            inner = self.sole(twice * sign, "atan")
            if inner is not None:
                t = self.atoms[inner].args[0]
                return self.root(self.unit + t * t) + t * sign
        return self.sin(form) * self.inverse(self.cos(form))

    def odd(self, name: str, form: QuotientForm) -> QuotientForm:
        """An odd function that vanishes at zero."""
        sign = leading(form)
        if sign == 0:
            return form
        return self.atom(name, (form,)) if sign > 0 else -self.atom(name, (-form,))

    def hyperbolic(self, form: QuotientForm, sign: int, tangent: bool) -> QuotientForm:
        """(e**2 + sign)/2e, or over e**2 + 1, with e = exp(p)."""
        e = self.exp(form)
        below = e * e + self.unit if tangent else e * self.two
        return (e * e + self.constant(sign)) * self.inverse(below)


def _opaque(name: str) -> Callable[[Identities, QuotientForm], QuotientForm]:
    odd = function_of(name).odd
    return lambda a, p: a.odd(name, p) if odd else a.atom(name, (p,))


_RULES: dict[str, Callable[[Identities, QuotientForm], QuotientForm]] = {
    "exp": Identities.exp,
    "log": Identities.log,
    "sqrt": Identities.root,
    "abs": Identities.magnitude,
    "sin": Identities.sin,
    "cos": Identities.cos,
    "tan": Identities.tan,
    "sinc": Identities.sinc,
    "sinh": lambda a, p: a.hyperbolic(p, -1, False),
    "cosh": lambda a, p: a.hyperbolic(p, 1, False),
    "tanh": lambda a, p: a.hyperbolic(p, -1, True),
    "acos": lambda a, p: a.pi * a.constant(fmpq(1, 2)) - a.odd("asin", p),
}
