"""Sines, cosines and tangents of sums, written in those of shares of their terms.

Let their arguments be sums of n (t/m), n a whole number and m one whole number for each term t. Then exp(iu) is the
product of all (cos(t/m) + i sin(t/m))**n (addition, de Moivre); cos u and sin u are its two parts, tan u is their
quotient. The new expressions are defined wherever the old ones are, and equal to them there. So is sin(u)/u for
sinc(u), but where u = 0; it is written for sums u of variables and numbers only, which are zero on a plane or nowhere,
and what is continuous and equal on both sides of a plane is equal on it.
"""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from math import comb, lcm

from transformula.kernel.derivations.identities import MAX_ANGLE, MAX_RATIO
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, walk

_OF_ANGLES = ("sin", "cos", "tan", "sinc")


def in_shares(*exprs: Expr) -> list[Expr]:
    """The expressions with the same shares in all of them; what is too long stays as it is.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> [str(e) for e in in_shares(parse("sin(a - 2*b)"), parse("cos(a)"))]
    ['sin(a)*(cos(b)**2 - sin(b)**2) - 2*cos(a)*cos(b)*sin(b)', 'cos(a)']
    """
    nodes = {node: terms_of(node.args[0]) for expr in exprs for node in walk(expr) if node.op in _OF_ANGLES}
    shares: dict[Expr, int] = {}
    for terms in nodes.values():
        for term, count in terms.items():
            shares[term] = lcm(shares.get(term, 1), count.denominator)
    return [ex.substitute(expr, {node: _written(node, nodes[node], shares) for node in nodes}) for expr in exprs]


def terms_of(angle: Expr) -> dict[Expr, Fraction]:
    """The terms of a sum and how often each counts; a rational number is a multiple of 1."""
    found: dict[Expr, Fraction] = {}
    stack = [(angle, Fraction(1))]
    while stack:
        node, times = stack.pop()
        if node.op == "add":
            stack.extend((a, times) for a in node.args)
        elif node.op == "div" and node.args[1].number:
            stack.append((node.args[0], times / node.args[1].number))
        else:
            number = node.number if node.number is not None else node.args[0].number if node.op == "mul" else None
            rest = ex.number(1) if node.number is not None else node if number is None else ex.mul(*node.args[1:])
            if rest != node and rest.op in ("add", "mul", "div"):
                stack.append((rest, times * (number or 0)))
            else:
                found[rest] = found.get(rest, Fraction(0)) + times * (1 if number is None else number)
    return found


def _written(node: Expr, terms: dict[Expr, Fraction], shares: dict[Expr, int]) -> Expr:
    counts = {term: int(times * shares[term]) for term, times in terms.items() if times}
    plain = counts and all(term.op in ("variable", "constant", "number") for term in terms)
    if len(terms) > MAX_ANGLE or sum(map(abs, counts.values())) > MAX_RATIO or (node.op == "sinc" and not plain):
        return node
    turned = [_turned(ex.div(term, ex.number(shares[term])), n) for term, n in counts.items()]
    cos, sin = reduce(_product, turned) if turned else (ex.number(1), ex.number(0))
    if node.op in ("sin", "cos"):
        return sin if node.op == "sin" else cos
    return ex.div(sin, cos if node.op == "tan" else node.args[0])


def _turned(share: Expr, n: int) -> tuple[Expr, Expr]:
    """Cosine and sine of n shares."""
    cos, sin = (ex.call(name, share) for name in ("cos", "sin"))
    parts: tuple[list[Expr], list[Expr]] = [], []
    for j in range(abs(n) + 1):
        sign = (-1) ** (j // 2) * (-1 if n < 0 and j % 2 else 1)
        powers = (ex.power(base, ex.number(by)) for base, by in ((cos, abs(n) - j), (sin, j)) if by)
        parts[j % 2].append(ex.mul(ex.number(sign * comb(abs(n), j)), *powers))
    return ex.add(*parts[0]), ex.add(*parts[1])


def _product(one: tuple[Expr, Expr], other: tuple[Expr, Expr]) -> tuple[Expr, Expr]:
    """Cosine and sine of a sum."""
    (a, b), (c, d) = one, other
    return ex.add(ex.mul(a, c), ex.neg(ex.mul(b, d))), ex.add(ex.mul(b, c), ex.mul(a, d))
