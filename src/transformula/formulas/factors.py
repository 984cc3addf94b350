"""Products taken apart: a constant times powers of different bases."""

from __future__ import annotations

from fractions import Fraction

from transformula.formulas import expression as ex
from transformula.formulas.expression import Expr, variables_of


def factors_of(expr: Expr) -> tuple[Expr, dict[Expr, Fraction]]:
    """The expression as constant · Π base^exponent, equal bases merged."""
    constant = ex.number(1)
    powers: dict[Expr, Fraction] = {}
    stack = [(expr, Fraction(1))]
    while stack:
        node, exponent = stack.pop()
        if not variables_of(node):
            constant = ex.mul(constant, ex.power(node, ex.number(exponent)))
        elif node.op == "mul" and exponent.denominator == 1:
            stack.extend((a, exponent) for a in reversed(node.args))
        elif node.op == "div" and exponent.denominator == 1:
            stack += [(node.args[1], -exponent), (node.args[0], exponent)]
        elif node.op == "pow" and exponent.denominator == 1 and node.args[1].number is not None:
            stack.append((node.args[0], exponent * node.args[1].number))
        elif node.op == "sqrt" and exponent.denominator == 1:
            stack.append((node.args[0], exponent / 2))
        else:
            powers[node] = powers.get(node, Fraction(0)) + exponent
        if not stack:  # what stayed whole under a root may come apart once the roots are squared
            whole = [b for b, e in powers.items() if e and e.denominator == 1 and _comes_apart(b)]
            stack = [(b, powers.pop(b)) for b in whole]
    return constant, {base: e for base, e in powers.items() if e}


def _comes_apart(base: Expr) -> bool:
    return base.op in ("mul", "div", "sqrt") or (base.op == "pow" and base.args[1].number is not None)


def distributed(powers: dict[Expr, Fraction]) -> dict[Expr, Fraction]:
    """b^e S^e with b^{-k} in a term of the sum S becomes (bS)^e, multiplied out: nothing cancels then."""
    for total, exponent in powers.items():
        if total.op != "add":
            continue
        for base in (b for b, e in powers.items() if b is not total and e == exponent):
            if any(factors_of(term)[1].get(base, 0) < 0 for term in total.args):
                terms = [product_of(*factors_of(ex.mul(base, term))) for term in total.args]
                rest = {b: e for b, e in powers.items() if b not in (base, total)}
                merged = ex.add(*terms)
                rest[merged] = rest.get(merged, Fraction(0)) + exponent
                return distributed(rest)
    return powers


def product_of(constant: Expr, powers: dict[Expr, Fraction]) -> Expr:
    """constant · Π base^exponent as one expression."""
    return ex.mul(constant, *(ex.power(b, ex.number(e)) for b, e in powers.items()))
