"""Exact terms of polynomials, bounded in size before they are expanded; factors and signs of polynomials in atoms.

A variable-free sub-expression that is not rational (pi, sqrt(2), exp(1)) becomes a generator of its
own, so the polynomial stays exact; only `Polynomial.terms` replaces it by a ball. Such a constant must be
proven to be defined (`intervals`), whether or not it cancels: then the polynomial is defined everywhere.

*Signs.* A sign is 2 (> 0), 1 (>= 0), -1, -2 or 0 (unknown), at every point of the box at which the polynomial is
defined. It is learned (proven elsewhere, for all of the box), or follows:

* every case of H has that sign;
* every term has it, the sign of a product of powers of atoms: a sum of terms >= 0, one of them > 0, is > 0;
* the factors' signs multiply to it; an even power is >= 0, and > 0 if its base has a strict sign.

From a learned sign of a product follow signs of its factors: if it is strict, no factor vanishes, and a factor
f**e with e odd that is the only one of unknown sign (but for even powers) has the sign that is missing. If it
is not strict, that holds if the rest is known never to vanish.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from math import isqrt, prod

from flint import Ordering, arb, fmpq, fmpq_mpoly, fmpq_mpoly_ctx, fmpz

from transformula.kernel.derivations.algebra import Atom, QuotientForm, Ring
from transformula.kernel.enclosures.balls import enclose, integer_power, to_fmpq
from transformula.kernel.enclosures.intervals import UndefinedError, range_of
from transformula.kernel.exceptions import FormulaError, RefutedError
from transformula.kernel.functions.function_table import find
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, short_text, walk

MAX_DEGREE = 100
MAX_CONSTANTS = 1_000
#: Limits of the whole expansion: products of terms, times words of their coefficients; numbers held (terms
#: times generators); bits of a coefficient, and of all. Some seconds and some hundred megabytes.
MAX_PRODUCTS, MAX_NUMBERS, MAX_HEIGHT, MAX_BITS = 20_000_000, 20_000_000, 200_000, 10**9

Exponents = tuple[int, ...]


class NotPolynomialError(FormulaError):
    """The expression is not a polynomial; ``part`` is the smallest sub-expression to blame."""

    def __init__(self, part: Expr, why: str) -> None:
        super().__init__(f"{short_text(part)} is not a polynomial: {why}")
        self.part = part


@dataclass(frozen=True)
class Polynomial:
    """A polynomial over the rationals whose generators are the inputs, and then the irrational constants."""

    variables: tuple[str, ...]
    irrationals: tuple[Expr, ...]
    exact: fmpq_mpoly

    @property
    def is_rational(self) -> bool:
        """Whether every coefficient is a rational number."""
        return not self.irrationals

    def terms(self) -> dict[Exponents, fmpq | arb]:
        """Exponents to coefficient: a rational where all are, else balls, at the working precision."""
        if self.is_rational:
            return dict(self.exact.to_dict())
        width = len(self.variables)
        constants = [enclose(e) for e in self.irrationals]
        terms: dict[Exponents, fmpq | arb] = {}
        for exponents, coefficient in self.exact.to_dict().items():
            value: fmpq | arb = coefficient
            for constant, power in zip(constants, exponents[width:], strict=True):
                value = integer_power(constant, int(power)) * value if power else value
            key = exponents[:width]
            terms[key] = terms[key] + value if key in terms else value
        return terms


def as_polynomial(expr: Expr, variables: tuple[str, ...]) -> Polynomial:
    """Expand an expression to a polynomial in the given variables.

    Raises `NotPolynomialError` naming the sub-expression that is not one, and `FormulaError` if it is too
    large to be expanded or a constant in it is not proven to be a real number.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> p = as_polynomial(parse("(x + y)**2 / 2"), ("x", "y"))
    >>> sorted(p.terms().items())
    [((0, 2), 1/2), ((1, 1), 1), ((2, 0), 1/2)]
    """
    constant: dict[Expr, bool] = {}
    for node in walk(expr):
        constant[node] = node.op != "variable" and all(constant[a] for a in node.args)
    irrationals = _irrationals(expr, constant)
    if len(irrationals) > MAX_CONSTANTS:
        raise FormulaError(f"a polynomial with {len(irrationals)} irrational constants is too large")
    for part in irrationals:
        try:
            range_of(part, {})
        except UndefinedError as error:
            raise FormulaError(f"a constant in the formula is not a finite real number: {error}") from None
    names = [f"x{k}" for k in range(len(variables))] + [f"c{k}" for k in range(len(irrationals))]
    work = _PolynomialExpansion(fmpq_mpoly_ctx.get(names, Ordering.degrevlex))
    leaves = [ex.variable(name) for name in variables] + list(irrationals)
    known: dict[Expr, fmpq_mpoly] = dict(zip(leaves, work.context.gens(), strict=True))
    for node in walk(expr):
        if node.number is not None:
            known[node] = work.context.constant(to_fmpq(node.number))
        elif node not in known and not constant[node]:
            known[node] = work.combine(node, known, constant)
    return Polynomial(variables, irrationals, known[expr])


def _irrationals(expr: Expr, constant: dict[Expr, bool]) -> tuple[Expr, ...]:
    """The largest sub-expressions that are constant but not rational; a divisor as its inverse."""
    found: dict[Expr, None] = {}
    stack, seen = [expr], set[Expr]()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if constant[node]:
            if node.number is None:
                found[node] = None
        elif node.op == "div" and constant[node.args[1]]:
            found[_inverse(node.args[1])] = None
            stack.append(node.args[0])
        else:
            stack.extend(node.args)
    return tuple(found)


def _inverse(divisor: Expr) -> Expr:
    return ex.div(ex.number(1), divisor)


class _PolynomialExpansion:
    """Sums, products and powers, each bounded in size before it is computed."""

    def __init__(self, context: fmpq_mpoly_ctx) -> None:
        self.context = context
        self.products = self.numbers = self.bits = 0

    def combine(self, node: Expr, known: dict[Expr, fmpq_mpoly], constant: dict[Expr, bool]) -> fmpq_mpoly:
        """A node from its arguments."""
        if node.op == "add":
            return self.sum([known[a] for a in node.args])
        if node.op == "mul":
            result = known[node.args[0]]
            for factor in node.args[1:]:
                result = self.product(result, known[factor])
            return result
        if node.op == "pow":
            by = node.args[1].number
            if by is None or by.denominator != 1 or by < 0:
                raise NotPolynomialError(node, "the exponent is not a whole number >= 0")
            return self.power(known[node.args[0]], int(by))
        if node.op == "div":
            if not constant[node.args[1]]:
                raise NotPolynomialError(node, f"it divides by {short_text(node.args[1])}")
            return self.product(known[node.args[0]], known[_inverse(node.args[1])])
        raise NotPolynomialError(node, f"{node.op} is not a polynomial operation")

    def sum(self, parts: list[fmpq_mpoly]) -> fmpq_mpoly:
        """The sum; its terms have the common denominator of all, in FLINT's form."""
        count = sum(map(len, parts))
        self._count(0, count, count, _bits([c for part in parts for c in part.coeffs()]) + len(parts).bit_length())
        terms: dict[Exponents, fmpq] = {}
        for part in parts:
            for exponents, value in part.to_dict().items():
                terms[exponents] = terms.get(exponents, fmpq(0)) + value
        return self.context.from_dict(terms)

    def product(self, left: fmpq_mpoly, right: fmpq_mpoly) -> fmpq_mpoly:
        """left * right."""
        count = len(left) * len(right)
        bits = _bits(left.coeffs()) + _bits(right.coeffs()) + min(len(left), len(right)).bit_length()
        self._count(_degree(left) + _degree(right), count, count, bits)
        return left * right

    def power(self, base: fmpq_mpoly, by: int) -> fmpq_mpoly:
        """base ** by; of n terms it has at most comb(n + by - 1, by), and each takes n products."""
        if len(base) and by > MAX_DEGREE * (MAX_DEGREE if _degree(base) == 0 else 1):
            raise FormulaError(f"the power {str(by)[:20]} in the formula is too large to write down")
        count = math.comb(len(base) + by - 1, by) if len(base) else 1
        bits = by * (_bits(base.coeffs()) + len(base).bit_length())
        self._count(_degree(base) * by, count * max(len(base), 1), count, bits)
        return base**by

    def _count(self, degree: int, products: int, terms: int, bits: int) -> None:
        if degree > MAX_DEGREE:
            raise FormulaError(f"the polynomial has degree {degree}: at most {MAX_DEGREE} can be expanded")
        self.products += products * (1 + bits // 64)
        self.numbers += terms * self.context.nvars()
        self.bits += terms * bits
        small = self.products <= MAX_PRODUCTS and self.numbers <= MAX_NUMBERS
        if not small or bits > MAX_HEIGHT or self.bits > MAX_BITS:
            raise FormulaError(f"expanding the polynomial takes over {MAX_PRODUCTS} products or too much memory")


def _degree(polynomial: fmpq_mpoly) -> int:
    return max(int(polynomial.total_degree()), 0)


def _bits(coefficients: list[fmpq]) -> int:
    """Bits of the longest coefficient, as FLINT holds it: a whole number over the common denominator."""
    common = fmpz(1)
    for q in {c.q for c in coefficients}:
        common = common.lcm(q)
        if common.bit_length() > MAX_HEIGHT:
            break
    return max((int(c.height_bits()) for c in coefficients), default=0) + int(common.bit_length())


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
        high = sum(top)
        area = sum(top[:1]) * sum(top[1:2])
        words = 1 + self.bits(rest) // 256
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
        strict = abs(sign) == 2
        rest = []
        missing = []
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
