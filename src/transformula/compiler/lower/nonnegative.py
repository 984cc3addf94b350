"""Polynomials rewritten so that they are visibly non-negative: powers of squares, and completed squares.

An interval of x*x − 2*x*y + y*y reaches below zero, one of (x − y)**2 does not. Whatever is found equals the
given expression as a polynomial in the variables and in the functions that occur, so the kernel can see that
the two are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from operator import mul

from flint import Ordering, fmpq, fmpq_mpoly, fmpq_mpoly_ctx

from transformula.compiler.lower.squares import as_squares
from transformula.kernel.enclosures.balls import to_fmpq, to_fraction
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, walk

_MAX_GENERATORS = 12
_MAX_DEGREE = 12
_MAX_TERMS = 400


def as_nonnegative(expr: Expr) -> Expr | None:
    """The same expression written as a sum or product of squares, if that is found.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> str(as_nonnegative(parse("x*x - 2*x*y + y*y")))
    '(x - y)**2'
    >>> str(as_nonnegative(parse("x**2 + x*y + y**2")))
    '(x + 1/2*y)**2 + 3/4*y**2'
    >>> str(as_nonnegative(parse("p**2 + q**2 - 2*p*q*cos(t)")))
    '(p - q*cos(t))**2 + (q*sin(t))**2'
    """
    squares = as_squares(expr)
    if squares is not None:
        return ex.add(*(ex.power(square, ex.number(2)) for square in squares))
    found = _polynomial(expr)
    if found is None:
        return None
    polynomial, generators = found
    return _even_factors(polynomial, generators) or _completed(polynomial, generators)


def _polynomial(expr: Expr) -> tuple[fmpq_mpoly, list[Expr]] | None:
    """The expression as a polynomial in variables, constants and functions; None if it is too large."""
    generators = sorted((node for node in walk(expr) if _is_opaque(node)), key=str)
    if not 0 < len(generators) <= _MAX_GENERATORS:
        return None
    context = fmpq_mpoly_ctx.get(tuple(f"g{k}" for k in range(len(generators))), Ordering.lex)
    known = dict(zip(generators, context.gens(), strict=True))
    for node in walk(expr):
        if node in known:
            continue
        args = [known[a] for a in node.args if a in known]
        if node.number is not None:
            known[node] = context.constant(to_fmpq(node.number))
        elif node.op == "add" and len(args) == len(node.args):
            known[node] = sum(args[1:], args[0])
        elif node.op == "mul" and len(args) == len(node.args):
            known[node] = reduce(mul, args)
        elif node.op == "pow" and args and args[0].total_degree() * int(_exponent(node)) <= _MAX_DEGREE:
            known[node] = args[0] ** int(_exponent(node))
        if node in known and (len(known[node]) > _MAX_TERMS or known[node].total_degree() > _MAX_DEGREE):
            return None
    return (known[expr], generators) if expr in known else None


def _exponent(node: Expr) -> Fraction:
    return node.args[1].number or Fraction(0)


def _is_opaque(node: Expr) -> bool:
    """Whether it is not a sum, product or integer power."""
    if node.op in ("number", "add", "mul"):
        return False
    whole = node.op == "pow" and node.args[1].number is not None and _exponent(node).denominator == 1
    return not (whole and 0 <= _exponent(node) <= _MAX_DEGREE)


def _even_factors(polynomial: fmpq_mpoly, generators: Sequence[Expr]) -> Expr | None:
    constant, factors = polynomial.factor()
    if not constant > 0 or any(int(power) % 2 for _, power in factors):
        return None
    powers = [ex.power(_expression(base, generators), ex.number(int(power))) for base, power in factors]
    return ex.mul(ex.number(to_fraction(constant)), *powers)


def _expression(polynomial: fmpq_mpoly, generators: Sequence[Expr]) -> Expr:
    terms = []
    for exponents, coefficient in polynomial.to_dict().items():
        powers = [ex.power(g, ex.number(e)) for g, e in zip(generators, map(int, exponents), strict=True) if e]
        terms.append(ex.mul(ex.number(to_fraction(coefficient)), *powers))
    return ex.add(*terms)


def _completed(polynomial: fmpq_mpoly, generators: Sequence[Expr]) -> Expr | None:
    """A quadratic as Σ d (linear)² with d > 0, one variable after the other."""
    if polynomial.total_degree() != 2:
        return None
    size = len(generators) + 1  # the last stands for 1
    form = [[fmpq(0)] * size for _ in range(size)]
    for exponents, coefficient in polynomial.to_dict().items():
        places = [k for k, e in enumerate(map(int, exponents)) for _ in range(e)]
        i, j = (places + [size - 1] * 2)[:2]
        form[i][j] += coefficient / 2
        form[j][i] += coefficient / 2
    basis = [*generators, ex.number(1)]
    squares: list[Expr] = []
    for i in range(size):
        pivot = form[i][i]
        if pivot < 0 or (pivot == 0 and any(v != 0 for v in form[i])):
            return None
        if pivot == 0:
            continue
        row = [v / pivot for v in form[i]]
        linear = ex.add(*(_times(v, b) for v, b in zip(row, basis, strict=True) if v != 0))
        squares.append(ex.mul(ex.number(to_fraction(pivot)), ex.power(linear, ex.number(2))))
        for j in range(size):
            for k in range(size):
                form[j][k] -= pivot * row[j] * row[k]
    return ex.add(*squares)


def _times(value: fmpq, expr: Expr) -> Expr:
    return ex.mul(ex.number(to_fraction(value)), expr)
