"""Functions of forms, and powers with any exponent.

Each identity holds at every point at which its left side is defined. Arguments t, p, b, v have no H in them; with
H they are split into cases (`powers`).

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

from flint import fmpq

from transformula.kernel.derivations.algebra import QuotientForm
from transformula.kernel.derivations.powers import PowerRing, leading, prime_powers
from transformula.kernel.functions.function_table import function_of

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
