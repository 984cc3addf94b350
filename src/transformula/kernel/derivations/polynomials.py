"""Exact terms of expressions that are polynomials; sizes are bounded before anything is expanded.

A variable-free sub-expression that is not rational (pi, sqrt(2), exp(1)) becomes a generator of its
own, so the polynomial stays exact; only `Polynomial.terms` replaces it by a ball. Such a constant must be
proven to be defined (`intervals`), whether or not it cancels: then the polynomial is defined everywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from flint import Ordering, arb, fmpq, fmpq_mpoly, fmpq_mpoly_ctx, fmpz

from transformula.kernel.enclosures.balls import enclose, integer_power, to_fmpq
from transformula.kernel.enclosures.intervals import UndefinedError, range_of
from transformula.kernel.exceptions import FormulaError
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, walk
from transformula.kernel.syntax.printing import short_text

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
