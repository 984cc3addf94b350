"""Is it a polynomial? Then its terms, exactly.

A variable-free sub-expression that is not rational (pi, sqrt(2), exp(1)) becomes a generator of its
own, so the polynomial stays exact; only `coefficients` replaces it by a ball.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

from flint import Ordering, arb, fmpq, fmpq_mpoly, fmpq_mpoly_ctx

from transformula.errors import FormulaError
from transformula.formulas import expression as ex
from transformula.formulas.enclosures import enclose, integer_power, to_fmpq
from transformula.formulas.expression import Expr, walk

MAX_DEGREE = 100
#: For a base like x - x + 9, whose degree says nothing about the size of its powers.
MAX_CONSTANT_POWER = 1_000
#: Term products an expansion may need: a few seconds of work.
MAX_EXPANSION = 20_000_000

Exponents = tuple[int, ...]


class NotPolynomialError(FormulaError):
    """The expression is not a polynomial; ``part`` is the smallest sub-expression to blame."""

    def __init__(self, part: Expr, why: str) -> None:
        super().__init__(f"{part} is not a polynomial: {why}")
        self.part = part


@dataclass(frozen=True)
class Polynomial:
    """A polynomial whose coefficients may contain irrational constants.

    Attributes
    ----------
    variables : tuple of str
        The generators that are inputs.
    irrationals : tuple of Expr
        The further generators: constants that are not rational numbers.
    exact : fmpq_mpoly
        The polynomial over the rationals in both kinds of generator.
    """

    variables: tuple[str, ...]
    irrationals: tuple[Expr, ...]
    exact: fmpq_mpoly

    @property
    def is_rational(self) -> bool:
        """Whether every coefficient is a rational number."""
        return not self.irrationals

    @property
    def degree(self) -> int:
        """Total degree in the inputs; 0 for a constant."""
        return max((sum(e) for e in self.rational_or_ball_terms()), default=0)

    def rational_or_ball_terms(self) -> dict[Exponents, fmpq | arb]:
        """Exponents to coefficient: a rational where it is one, else a ball that contains it."""
        width = len(self.variables)
        if self.is_rational:
            return dict(self.exact.to_dict())
        constants = [_finite(e) for e in self.irrationals]
        terms: dict[Exponents, fmpq | arb] = {}
        for exponents, coefficient in self.exact.to_dict().items():
            value: fmpq | arb = coefficient
            for constant, power in zip(constants, exponents[width:], strict=True):
                value = integer_power(constant, power) * value if power else value
            key = exponents[:width]
            terms[key] = terms[key] + value if key in terms else value
        return terms


def _finite(constant: Expr) -> arb:
    ball = enclose(constant)
    if not ball.is_finite():
        raise FormulaError(f"the constant {constant} in the formula is not a finite real number")
    return ball


def as_polynomial(expr: Expr, variables: tuple[str, ...]) -> Polynomial:
    """Expand an expression to a polynomial in the given variables.

    Raises
    ------
    NotPolynomialError
        Naming the sub-expression that is not one.

    Examples
    --------
    >>> from transformula.formulas import parse
    >>> p = as_polynomial(parse("(x + y)**2 / 2"), ("x", "y"))
    >>> sorted(p.rational_or_ball_terms().items())
    [((0, 2), 1/2), ((1, 1), 1), ((2, 0), 1/2)]
    """
    constant: dict[Expr, bool] = {}
    for node in walk(expr):
        constant[node] = node.op != "variable" and all(constant[a] for a in node.args)
    irrationals = _irrationals(expr, constant)
    names = [f"x{k}" for k in range(len(variables))] + [f"c{k}" for k in range(len(irrationals))]
    context = fmpq_mpoly_ctx.get(names, Ordering.degrevlex)
    leaves = [ex.variable(name) for name in variables] + list(irrationals)
    known: dict[Expr, fmpq_mpoly] = dict(zip(leaves, context.gens(), strict=True))
    for node in walk(expr):
        if node.number is not None:
            known[node] = context.constant(to_fmpq(node.number))
        elif node not in known and not constant[node]:
            known[node] = _combine(node, known, constant)
    return Polynomial(variables, irrationals, known[expr])


def _irrationals(expr: Expr, constant: dict[Expr, bool]) -> tuple[Expr, ...]:
    """The largest sub-expressions that are constant but not rational; a divisor as its inverse."""
    found: dict[Expr, None] = {}
    stack = [expr]
    while stack:
        node = stack.pop()
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


def _combine(node: Expr, known: dict[Expr, fmpq_mpoly], constant: dict[Expr, bool]) -> fmpq_mpoly:
    if node.op == "add":
        return sum((known[a] for a in node.args[1:]), known[node.args[0]])
    if node.op == "mul":
        return reduce(_product, (known[a] for a in node.args))
    if node.op == "pow":
        return _power(node, known)
    if node.op == "div":
        if not constant[node.args[1]]:
            raise NotPolynomialError(node, f"it divides by {node.args[1]}")
        return _product(known[node.args[0]], known[_inverse(node.args[1])])
    raise NotPolynomialError(node, f"{node.op} is not a polynomial operation")


def _product(left: fmpq_mpoly, right: fmpq_mpoly) -> fmpq_mpoly:
    _check_size(_degree(left) + _degree(right), len(left) * len(right))
    return left * right


def _power(node: Expr, known: dict[Expr, fmpq_mpoly]) -> fmpq_mpoly:
    by = node.args[1].number
    if by is None or by.denominator != 1 or by < 0:
        raise NotPolynomialError(node, "the exponent is not a whole number >= 0")
    base = known[node.args[0]]
    if _degree(base) == 0 and by > MAX_CONSTANT_POWER:
        raise FormulaError(f"the power {by} in the formula is too large to write down")
    power = min(int(by), MAX_DEGREE)
    _check_size(_degree(base) * by, math.comb(len(base) + power - 1, power) if len(base) else 0)
    return base ** int(by)


def _degree(polynomial: fmpq_mpoly) -> int:
    return max(int(polynomial.total_degree()), 0)


def _check_size(degree: int | Fraction, terms: int) -> None:
    if degree > MAX_DEGREE:
        raise FormulaError(
            f"the polynomial has degree {degree}: the polynomial construction takes at most {MAX_DEGREE}"
        )
    if terms > MAX_EXPANSION:
        raise FormulaError(
            f"expanding the polynomial takes {terms} products; at most {MAX_EXPANSION} are allowed"
        )
