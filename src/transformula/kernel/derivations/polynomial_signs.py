"""Factors and signs of polynomials in atoms.

A sign is 2 (> 0), 1 (>= 0), -1, -2 or 0 (unknown), at every point of the box at which the polynomial is
defined. It is learned (proven elsewhere, for all of the box), or follows:

* every case of H has that sign;
* every term has it, the sign of a product of powers of atoms: a sum of terms >= 0, one of them > 0, is > 0;
* the factors' signs multiply to it; an even power is >= 0, and > 0 if its base has a strict sign.

From a learned sign of a product follow signs of its factors: if it is strict, no factor vanishes, and a factor
f**e with e odd that is the only one of unknown sign (but for even powers) has the sign that is missing. If it
is not strict, that holds if the rest is known never to vanish.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from math import isqrt, prod

from flint import Ordering, fmpq, fmpq_mpoly, fmpq_mpoly_ctx

from transformula.kernel.derivations.algebra import Atom, QuotientForm, Ring
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.functions.function_table import find

#: Longer polynomials are neither factored nor looked at term by term; the sum of the degrees is bounded, too, and
#: terms * degrees * variables * words of coefficients (of 256 bits: FLINT takes seconds where they are long). FLINT
#: also takes seconds for few terms of high degrees in two variables: the product of the two highest degrees is bounded.
MAX_FACTORED, MAX_DEGREES, MAX_DIFFICULTY, MAX_AREA = 400, 200, 8_000, 400
#: An argument with more H than this is not split into cases.
MAX_SPLIT = 4
#: Atoms that are no functions of the registry and are defined everywhere.
_TOTAL = ("variable", "pi", "step")


@dataclass
class SignedRing(Ring):
    """A ring of forms that knows signs."""

    _signs: dict[str, int] = field(default_factory=dict)

    def factors(self, p: fmpq_mpoly) -> tuple[fmpq, list[tuple[fmpq_mpoly, int]]]:
        """c and (f, e) with p = c * product of f**e, each f primitive with a positive leading coefficient."""
        p = self.lift(p)
        monomial = p.term_content()
        degrees, rest = monomial.degrees(), p / monomial
        self.check_exponents(p)
        found = [(self.gens[k], int(degrees[k])) for k in self.used(monomial)]
        c, used = primitive(rest), self.used(rest)
        top = sorted(map(int, rest.degrees()), reverse=True)
        high, area, words = sum(top), sum(top[:1]) * sum(top[1:2]), 1 + self.bits(rest) // 256
        difficulty = len(rest) * len(used) * high * words
        difficult = len(rest) > MAX_FACTORED or high > MAX_DEGREES or area > MAX_AREA or difficulty > MAX_DIFFICULTY
        if rest.is_constant() or difficult:
            return c, found if rest.is_constant() else [*found, (rest / c, 1)]
        self.count_product(rest, rest)
        self.count(high**4 // 200 + 10 * area**2 + 60 * high**2 * (words * isqrt(words) - 1))
        small = fmpq_mpoly_ctx.get([f"b{k}" for k in range(len(used))], Ordering.lex)  # faster with few
        c, parts = small.from_dict({tuple(m[k] for k in used): v for m, v in rest.to_dict().items()}).factor()
        for part, e in parts:
            terms = {}
            for m, v in part.to_dict().items():
                row = [0] * len(self.gens)
                for k, d in zip(used, m, strict=True):
                    row[k] = int(d)
                terms[tuple(row)] = v
            f = self.ctx.from_dict(terms)
            scale = primitive(f)
            c, found = c * scale ** int(e), [*found, (f / scale, int(e))]
        if prod((f**e for f, e in found), start=c * self.one) != p:
            raise RefutedError("a factorisation does not multiply out")
        return c, found

    def sign(self, form: QuotientForm) -> int:
        """The sign of a form; a denominator is not zero where the form is good."""
        return self.sign_of(form.num) * direction(self.sign_of(form.den))

    def sign_of(self, p: fmpq_mpoly, factored: bool = False) -> int:
        """The sign of a polynomial, which may be known to be irreducible."""
        p = self.lift(p)
        if p.is_constant():
            return 1 if p.is_zero() else 2 * direction(p.leading_coefficient())
        lead = primitive(p)
        known = self._signs.get(str(p / lead), 0) * direction(lead)
        steps = [k for k in self.used(p) if self.atoms[k].kind == "step"]
        if known or len(p) > MAX_FACTORED or len(steps) > MAX_SPLIT:
            return known
        if steps:
            cases = [self.sign_of(q) for _, q in self.branches(p, steps) if not q.is_zero()]
            least = min(*map(abs, cases), 2 if len(cases) == 2 ** len(steps) else 1)
            return least if min(cases) > 0 else -least if max(cases) < 0 else 0
        self.check_exponents(p)
        terms = [product([(self._atom_sign(k), int(e)) for k, e in enumerate(m) if e], c)
                 for m, c in p.to_dict().items()]  # fmt: skip
        if min(terms) > 0 or max(terms) < 0:
            return max(terms, key=abs)
        if factored:
            return 0
        c, found = self.factors(p)
        return product([(self.sign_of(f, True), e) for f, e in found], c)

    def _atom_sign(self, k: int) -> int:
        return max(self.atoms[k].sign, self._signs.get(f"a{k}", 0), key=abs)

    def learn(self, form: QuotientForm, sign: int) -> None:
        """Record a sign proven on the whole box: 2 (> 0), 1 (>= 0), -1, -2."""
        if sign not in (-2, -1, 1, 2):
            raise RefutedError(f"a sign is one of -2, -1, 1, 2, not {sign}")
        below = self.sign_of(form.den)
        whole = self.lift(form.num) if below else self.times(form.num, form.den)
        sign = -sign if below < 0 else sign
        if not whole.is_constant():
            self._record(whole, sign)
            if not self.steps(form):
                self._conclude(*self.factors(whole), sign)
            for a in self.atoms:
                self.judge(a)

    def _conclude(self, c: fmpq, found: list[tuple[fmpq_mpoly, int]], sign: int) -> None:
        """Signs of factors from the sign of c * product of f**e."""
        strict, rest, missing = abs(sign) == 2, [], []
        for f, e in found:
            known = self.sign_of(f)
            if strict and known:
                self._record(f, 2 * direction(known))
            if not known and e % 2:
                missing.append(f)
            else:
                rest.append((2 * (direction(known) or 1) if strict else known, e))
        others = product(rest, c)
        if len(missing) == 1 and abs(others) == 2:
            self._record(missing[0], sign * direction(others))

    def _record(self, p: fmpq_mpoly, sign: int) -> None:
        lead = primitive(p)
        key = str(p / lead)
        self._signs[key] = max(self._signs.get(key, 0), sign * direction(lead), key=abs)

    def everywhere(self, p: fmpq_mpoly) -> bool:
        """Whether all atoms of a polynomial are defined on the whole box."""
        return all(self.atoms[k].total for k in self.used(p))

    def never_zero(self, p: fmpq_mpoly) -> bool:
        """Whether a polynomial is defined and not zero on the whole box."""
        return self.everywhere(p) and abs(self.sign_of(p)) == 2

    def judge(self, atom: Atom) -> None:
        """An atom's own sign, and whether it is defined on the whole box."""
        kind = atom.kind.partition(":")[0]
        inside = self.sign(atom.args[0]) if kind in ("root", "log") else 0
        atom.sign = {"exp": 2, "pi": 2, "step": 1, "root": 2 if inside == 2 else 1}.get(kind, 0)
        function = find(atom.kind)
        total = kind in _TOTAL or (function is not None and function.analytic)
        good = {"root": inside >= 1, "log": inside == 2}.get(kind, total)
        atom.total = good and all(self.everywhere(f.num) and self.never_zero(f.den) for f in atom.args)


def direction(value: fmpq | Fraction | int) -> int:
    """1, 0 or -1, as a number or a sign is above, equal to or below zero."""
    return 1 if value > 0 else -1 if value < 0 else 0


def product(signs: Iterable[tuple[int, int]], c: fmpq | int = 1) -> int:
    """The sign of c times powers, from the signs of their bases, which are not zero below a negative exponent."""
    result = 2 * direction(c)
    for s, e in signs:
        s = s if e % 2 else max(abs(s), 1)
        result = min(abs(result), abs(s)) * direction(result) * direction(s)
    return result


def primitive(p: fmpq_mpoly) -> fmpq:
    """The content, with the sign of the leading coefficient: p divided by it is primitive over the integers."""
    top, bottom = fmpq(0).p, fmpq(1).q
    for c in p.coeffs():
        top, bottom = top.gcd(c.p), bottom.lcm(c.q)
    return fmpq(top, bottom) * direction(p.leading_coefficient())
