"""Hints for the kernel's proof that a stored circuit equals the formula as it was typed.

Two kinds are stored beside the circuit. *Steps* ("extends") replace quotients with a removable singularity,
one after the other. *Signs* are expressions in the inputs whose sign the kernel proves on the box and then
uses in its normal form: a clamp ReLU(u − low) is u − low where that is not negative, √(ab) is √a·√b and
log(ab) is log a + log b where the factors are positive, and so on. Nothing here is trusted: a sign that
cannot be proven is left out, and a missing one only makes the proof fail.

Polynomials under roots are written so that they are visibly non-negative: an interval of x*x − 2*x*y + y*y reaches
below zero, one of (x − y)**2 does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from operator import mul
from typing import Any

from flint import Ordering, arb, fmpq, fmpq_mpoly, fmpq_mpoly_ctx

from transformula.compiler import policy
from transformula.compiler.lower.additive import decompose
from transformula.compiler.lower.factors import as_squares, factors_of
from transformula.compiler.lower.lowered_circuit import LoweredCircuit, has_slot
from transformula.compiler.lower.removable import may_vanish, removable_steps
from transformula.kernel.arithmetic import precision
from transformula.kernel.derivations.extensions import split_quotient
from transformula.kernel.enclosures.balls import enclose, to_fmpq, to_fraction
from transformula.kernel.exceptions import FormulaError
from transformula.kernel.functions.function_table import find
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box
from transformula.kernel.syntax.expression import Expr, to_text, variables_of, walk
from transformula.kernel.syntax.parsing import parse

#: Bits of precision at a point.
_BITS = 64


def extended_formula(formula: Any) -> tuple[Any, list[dict[str, Any]]]:
    """The formula with its removable singularities removed, and the steps as stored in model.json.

    Examples
    --------
    >>> from transformula.kernel.syntax.boxes import Formula
    >>> extended, steps = extended_formula(Formula.of("y*sin(x)/x", "x=-1..1, y=0..1"))
    >>> str(extended), steps
    ('y*sinc(x)', [{'of': 'y*sin(x)/x', 'is': 'y*sinc(x)', 'at': {'x': '1/4', 'y': '3/8'}}])
    """
    outputs, steps = removable_steps(formula.outputs, formula.box)
    if has_quotients(outputs, formula.box):
        from transformula.compiler.lower.corners import opened_steps  # few formulas need it

        outputs, more = opened_steps(outputs, formula.box)
        steps += more
    stored = [
        {
            "of": to_text(step.of),
            "is": to_text(step.becomes),
            "at": {name: str(value) for name, value in step.at},
        }
        for step in steps
    ]
    return replace(formula, outputs=outputs, typed=()), stored


def has_quotients(outputs: Sequence[Expr], box: Box) -> bool:
    """Whether some divisor may vanish."""
    nodes = dict.fromkeys(node for expr in outputs for node in walk(expr) if node.op in ("div", "pow"))
    return any(may_vanish(split_quotient(node)[1], box) for node in nodes)


def signs_of(
    outputs: Sequence[Expr], box: Box, lowered: LoweredCircuit | None = None, facts: Iterable[Expr] = ()
) -> list[Expr]:
    """Expressions whose signs the normal form may need, the smallest first.

    Parameters
    ----------
    outputs : sequence of Expr
        The extended formula, or the expressions that were lowered in its place.
    box : Box
        Candidates that take both signs at points of the box are left out.
    lowered : LoweredCircuit, optional
        The lowered formula: its clamps, roots and logarithms count too.
    facts : iterable of Expr
        What a rewriting relied on (`conjugates.conjugated`).

    Examples
    --------
    >>> box = Box.of("x=1..2, y=0..1")
    >>> [str(expr) for expr in signs_of([parse("sqrt(x*y) + log(3 - x)")], box)]
    ['x', 'y', 'x*y', '-x + 3']
    """
    candidates: dict[Expr, None] = dict.fromkeys(facts)
    seen: set[Expr] = set()
    facts_of_wires = lowered.facts if lowered else ()
    for expr in (*outputs, *(fact.meaning for fact in facts_of_wires)):
        for node in walk(expr):
            if node not in seen:
                seen.add(node)
                candidates.update(dict.fromkeys(_needed(node)))
    for wire, fact in zip(lowered.circuit.wires, facts_of_wires, strict=True) if lowered else ():
        if has_slot(wire) and wire.function is None and wire.inside is None:
            candidates[fact.arguments[0]] = None
    return list(_readable(_one_signed(candidates, box), box))


def selector_signs(
    variables: Sequence[str],
    outputs: Sequence[Expr],
    limit: Fraction | float,
    relu_limits: Sequence[Fraction | float] = (),
) -> list[Expr]:
    """For a one-layer sequence: the parts of the row selector stay within ±R, and a ReLU's argument below Z.

    Without these it is not known whether `store_circuit.store_one_layer`'s ReLUs pass or stop what they read.
    """
    bound = ex.number(Fraction(limit))
    found: dict[Expr, None] = {}
    splits = [decompose(expr, variables) for expr in outputs]
    for split in splits:
        terms = [_affine(split.affine.form, split.affine.constant, variables)]
        for absolute in split.abs_terms:  # the ReLUs themselves are added behind the selector
            inside = _affine(absolute.inside.form, absolute.inside.constant, variables)
            terms.append(ex.mul(ex.number(-1), absolute.coefficient, inside))
        value = ex.add(*terms, *(part.original for part in split.parts))
        found |= dict.fromkeys((ex.add(value, bound), ex.add(bound, ex.neg(value))))
    absolutes = [absolute for split in splits for absolute in split.abs_terms]
    for absolute, reach in zip(absolutes, relu_limits, strict=True):
        inside = _affine(absolute.inside.form, absolute.inside.constant, variables)
        found[ex.add(ex.number(Fraction(reach)), ex.neg(inside))] = None
    return [expr for expr in found if variables_of(expr)]


def _affine(form: Sequence[Fraction], constant: Expr, variables: Sequence[str]) -> Expr:
    terms = (ex.mul(ex.number(v), ex.variable(n)) for v, n in zip(form, variables, strict=True) if v)
    return ex.add(*terms, constant)


def _needed(node: Expr) -> Iterator[Expr]:
    """Expressions whose signs decide how a node can be taken apart, or whether it is defined."""
    exponent = node.args[1].number if node.op == "pow" else None
    if node.op == "div":
        for base, by in factors_of(node.args[1])[1].items():
            yield base
            if base.op == "add" and by > 1:  # multiplied out, a square of roots is no square
                yield ex.power(base, ex.number(by))
    elif exponent is not None and exponent < 0:
        yield from factors_of(node.args[0])[1]
    function, fractional = find(node.op), node.op == "pow" and (exponent is None or exponent.denominator > 1)
    low, high = (None, None) if function is None else (function.low, function.high)
    if low:
        yield ex.add(ex.number(-low), node.args[0])
    if high is not None:
        root = node.args[0].op == "sqrt" and high >= 0
        yield ex.add(ex.number(high**2 if root else high), ex.neg(node.args[0].args[0] if root else node.args[0]))
    if low == 0 or fractional:
        inside = node.args[0]
        yield from _factors(inside)
        yield as_nonnegative(inside) or _as_factors(inside)


def _factors(inside: Expr) -> Iterator[Expr]:
    """Factors of a product, and sums among them multiplied by the denominators of their terms."""
    constant, powers = factors_of(inside)
    yield from (constant, *powers)
    for base in powers:
        below: dict[Expr, None] = {}
        for node in walk(base) if base.op == "add" else ():
            if node.op == "div":
                below.update(dict.fromkeys(factors_of(node.args[1])[1]))
        if below:
            yield ex.mul(base, *below)


def _one_signed(candidates: Iterable[Expr], box: Box) -> list[Expr]:
    """Candidates with few nodes that are not numbers and do not take different signs at two points of the box."""
    with precision(_BITS):
        points = list(_points(box))
        kept = []
        for expr in candidates:
            nodes = sum(1 for _ in walk(expr))
            if expr.op in ("number", "constant") or nodes > policy.CLAIM_NODES:
                continue
            values = [enclose(expr, point) for point in (points if variables_of(expr) else points[:1])]
            if not (any(v > 0 for v in values) and any(v < 0 for v in values)):
                kept.append((nodes, expr))
    return [expr for _, expr in sorted(kept, key=lambda item: item[0])]


def _points(box: Box) -> Iterator[dict[str, arb]]:
    """Points inside the box, and every third one on its faces."""
    ends = [(enclose(a), enclose(b)) for a, b in zip(box.lower, box.upper, strict=True)]
    for k in range(1, policy.SIGN_POINTS + 1):
        shares = [(k * (axis + 1) * 0.6180339887498949) % 1 for axis in range(box.dimension)]
        if k % 3 == 0:
            shares = [float(share > 0.5) for share in shares]
        yield {
            name: low + arb(share) * (high - low)
            for name, share, (low, high) in zip(box.variables, shares, ends, strict=True)
        }


def _readable(candidates: Iterable[Expr], box: Box) -> Iterator[Expr]:
    """Candidates that the kernel parses back as intended: a variable may be called pi."""
    for expr in candidates:
        try:
            if parse(to_text(expr), box.variables) == expr:
                yield expr
        except FormulaError:
            continue


def as_nonnegative(expr: Expr) -> Expr | None:
    """The same expression written as a sum or product of squares, if that is found.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> str(as_nonnegative(parse("x*x - 2*x*y + y*y")))
    '(x - y)**2'
    >>> str(as_nonnegative(parse("x**2 + x*y + y**2")))
    '(x + 1/2*y)**2 + ((3/4)**(1/2)*y)**2'
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
    if not 0 < len(generators) <= policy.SQUARES_DEGREE:
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
        elif node.op == "pow" and args and args[0].total_degree() * int(_exponent(node)) <= policy.SQUARES_DEGREE:
            known[node] = args[0] ** int(_exponent(node))
        if node in known and (
            len(known[node]) > policy.CLAIM_NODES or known[node].total_degree() > policy.SQUARES_DEGREE
        ):
            return None
    return (known[expr], generators) if expr in known else None


def _exponent(node: Expr) -> Fraction:
    return node.args[1].number or Fraction(0)


def _is_opaque(node: Expr) -> bool:
    """Whether it is not a sum, product or integer power."""
    if node.op in ("number", "add", "mul"):
        return False
    whole = node.op == "pow" and node.args[1].number is not None and _exponent(node).denominator == 1
    return not (whole and 0 <= _exponent(node) <= policy.SQUARES_DEGREE)


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


def _as_factors(expr: Expr) -> Expr:
    """A polynomial by its factors, if one of them is squared: an interval of (x − 1)²(x + 2) ends at zero."""
    found = _polynomial(expr)
    constant, factors = found[0].factor() if found is not None else (fmpq(0), [])
    if found is None or all(power == 1 for _, power in factors):
        return expr
    powers = [ex.power(_expression(base, found[1]), ex.number(int(power))) for base, power in factors]
    return ex.mul(ex.number(to_fraction(constant)), *powers)


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
