"""Singularities that are none: sin(u)/u where u may vanish is sinc(u), which is 1 there.

sin(a)^k / Π b^e with a = c·Πb^m becomes (c·sinc(a))^k times what is left of the quotient, if what may vanish
in a is divided by often enough. The two are equal wherever the first is defined, so a claim about the second
is one about the first.
"""

from __future__ import annotations

from fractions import Fraction

from flint import arb

from transformula.formulas import expression as ex
from transformula.formulas.additive import rebuild
from transformula.formulas.boxes import Box
from transformula.formulas.enclosures import enclose
from transformula.formulas.expression import Expr, walk
from transformula.formulas.factors import factors_of, product_of


def without_removable(expr: Expr, box: Box) -> Expr:
    """The expression with sin(u)/u written as sinc(u) wherever u may vanish on the box.

    Examples
    --------
    >>> from transformula.formulas import parse
    >>> str(without_removable(parse("sin(x)**2/x**2 + sin(y)/y"), Box.of("x=-1..1, y=1..2")))
    'sinc(x)**2 + sin(y)/y'
    """
    if not any(node.op == "sin" for node in walk(expr)):
        return expr
    done: dict[Expr, Expr] = {}
    for node in walk(expr):
        new = rebuild(node.op, [done[a] for a in node.args]) if node.args else node
        done[node] = _repaired(new, box) if new.op in ("mul", "div", "pow") else new
    return done[expr]


def _repaired(expr: Expr, box: Box) -> Expr:
    constant, powers = factors_of(expr)
    changed = False
    for base, exponent in list(powers.items()):
        if base.op != "sin" or exponent <= 0 or exponent.denominator != 1:
            continue
        scale, inside = factors_of(base.args[0])
        values = {n: box.interval(k) for k, n in enumerate(box.variables)}
        vanishing = [b for b in inside if not _away_from_zero(enclose(b, values))]
        if not vanishing or any(inside[b] <= 0 or powers.get(b, Fraction(0)) >= 0 for b in vanishing):
            continue
        whole = Fraction(int(min(exponent, *(-powers[b] / inside[b] for b in vanishing))))
        if not whole:
            continue
        powers[base] -= whole
        for b, m in inside.items():
            powers[b] = powers.get(b, Fraction(0)) + whole * m
        powers[ex.call("sinc", base.args[0])] = whole
        constant = ex.mul(constant, ex.power(scale, ex.number(whole)))
        changed = True
    return product_of(constant, {b: e for b, e in powers.items() if e}) if changed else expr


def _away_from_zero(ball: arb) -> bool:
    return bool(ball > 0 or ball < 0)
