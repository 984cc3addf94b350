"""Trigonometric polynomials written as sums of squares, so that the kernel sees that they are not negative.

The haversine of an angle on the sphere, and one minus it, are not: they are differences of products. As Fourier
polynomials P + Q cos(u), where P and Q do not depend on u, they are (P + Q) cos²(u/2) + (P − Q) sin²(u/2), which is not
negative if P + Q and P − Q are not; and c + Σ a_k cos(u_k) + Σ b_k sin(u_k) with c ≥ Σ |a_k| + Σ |b_k| is a number and
squares: 1 + cos u = 2 cos²(u/2), 1 − cos u = 2 sin²(u/2), 1 ± sin u = (cos(u/2) ± sin(u/2))².
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm

from flint import Ordering, fmpq_mpoly, fmpq_mpoly_ctx

from transformula.compiler import policy
from transformula.kernel.derivations.extensions import terms_of
from transformula.kernel.enclosures.balls import to_fmpq, to_fraction
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, walk

#: Whole multiples of the angles -> real and imaginary part of the coefficient of exp(i angle).
Waves = dict[tuple[int, ...], tuple[fmpq_mpoly, fmpq_mpoly]]


def as_angle_squares(expr: Expr, plain: Callable[[Expr], Expr | None]) -> Expr | None:
    """The same expression as a sum of squares, if that is found; ``plain`` writes polynomials without angles so.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> str(as_angle_squares(parse("1 - sin(a)*sin(b) - cos(a)*cos(b)"), lambda e: None))
    '2*sin(1/2*(b - a))**2'
    """
    nodes = list(_outside(expr))
    angles = [(node, terms_of(node.args[0])) for node in nodes if node.op in ("sin", "cos")]
    if not angles:
        return None
    shares: dict[Expr, int] = {}
    for _, terms in angles:
        for term, count in terms.items():
            shares[term] = lcm(shares.get(term, 1), count.denominator)
    others = sorted({node for node in nodes if not _is_inner(node) and node.number is None and node.op not in
                     ("sin", "cos")}, key=str)  # fmt: skip
    context = fmpq_mpoly_ctx.get(tuple(f"g{k}" for k in range(len(others))) or ("g0",), Ordering.lex)
    work = _Fourier(tuple(shares), context)
    multiples = {node: tuple(int(terms.get(t, 0) * shares[t]) for t in shares) for node, terms in angles}
    waves = work.of(expr, multiples, dict(zip(others, context.gens(), strict=False)))
    if waves is None:
        return None
    places = [ex.div(term, ex.number(share)) for term, share in shares.items()]
    return _Squares(places, others, plain).of(*_merged(waves, places))


def _is_inner(node: Expr) -> bool:
    whole = node.op == "pow" and node.args[1].number is not None and node.args[1].number.denominator == 1
    return node.op in ("add", "mul") or (whole and 0 <= (node.args[1].number or 0) <= policy.SQUARES_DEGREE)


def _outside(expr: Expr) -> list[Expr]:
    """The nodes that are no more than sums, products and powers away."""
    found: dict[Expr, None] = {}
    stack = [expr]
    while stack:
        node = stack.pop()
        if node not in found:
            found[node] = None
            stack += node.args[:1] if node.op == "pow" and _is_inner(node) else node.args if _is_inner(node) else ()
    return list(found)


@dataclass(frozen=True)
class _Fourier:
    """Arithmetic of Fourier polynomials."""

    angles: tuple[Expr, ...]
    context: fmpq_mpoly_ctx

    def constant(self, value: fmpq_mpoly) -> Waves:
        """A coefficient alone."""
        return {(0,) * len(self.angles): (value, self.context.constant(0))}

    def of(self, expr: Expr, multiples: dict[Expr, tuple[int, ...]], gens: dict[Expr, fmpq_mpoly]) -> Waves | None:
        """The expression, or None if it is too long."""
        known: dict[Expr, Waves] = {}
        half, none = self.context.constant(to_fmpq(Fraction(1, 2))), self.context.constant(0)
        for node in walk(expr):
            if node.number is not None:
                known[node] = self.constant(self.context.constant(to_fmpq(node.number)))
            elif node in multiples:
                k = multiples[node]
                back, cosine = tuple(-n for n in k), node.op == "cos"
                pair = (
                    ((k, (half, none)), (back, (half, none))) if cosine else ((k, (none, -half)), (back, (none, half)))
                )
                known[node] = _sum([{key: value} for key, value in pair])
            elif node in gens:
                known[node] = self.constant(gens[node])
            elif _is_inner(node) and all(a in known for a in node.args):
                args = [known[a] for a in node.args]
                if node.op == "add":
                    known[node] = _sum(args)
                else:
                    by = int(node.args[1].number or 0) if node.op == "pow" else 1
                    factors = args[:1] * by if node.op == "pow" else args
                    whole = self.constant(self.context.constant(1))
                    for factor in factors:
                        if len(whole) * len(factor) > policy.CLAIM_NODES**2:
                            return None
                        whole = _times(whole, factor)
                    known[node] = whole
        return known.get(expr)


def _sum(parts: Sequence[Waves]) -> Waves:
    total: Waves = {}
    for part in parts:
        for k, (re, im) in part.items():
            a, b = total.get(k, (0 * re, 0 * im))
            total[k] = a + re, b + im
    return {k: v for k, v in total.items() if not (v[0].is_zero() and v[1].is_zero())}


def _times(one: Waves, other: Waves) -> Waves:
    parts: list[Waves] = [
        {tuple(m + n for m, n in zip(j, k, strict=True)): (a * c - b * d, a * d + b * c)}
        for j, (a, b) in one.items()
        for k, (c, d) in other.items()
    ]
    return _sum(parts)


def _merged(waves: Waves, places: list[Expr]) -> tuple[Waves, list[Expr]]:
    """Angles that occur in one ratio only as one angle: d − c for the longitudes c and d."""
    i = 0
    while i < len(places):
        j = next((j for j in range(i + 1, len(places)) if _ratio(waves, i, j)), None)
        if j is None:
            i += 1
            continue
        p, q = _ratio(waves, i, j) or (1, 1)
        joined = ex.add(ex.mul(ex.number(p), places[i]), ex.mul(ex.number(q), places[j]))
        waves = {(*k[:i], k[i] // p, *k[i + 1 : j], *k[j + 1 :]): v for k, v in waves.items()}
        places = [*places[:i], joined, *places[i + 1 : j], *places[j + 1 :]]
    return waves, places


def _ratio(waves: Waves, i: int, j: int) -> tuple[int, int] | None:
    """p > 0 and q with multiples k_i = n p and k_j = n q of two angles throughout."""
    p, q = next(((k[i], k[j]) for k in waves if k[i]), (0, 0))
    if not p or not q:
        return None
    d = gcd(p, q) * (1 if p > 0 else -1)
    p, q = p // d, q // d
    return (p, q) if all(k[i] * q == k[j] * p for k in waves) else None


@dataclass(frozen=True)
class _Squares:
    places: list[Expr]
    others: list[Expr]
    plain: Callable[[Expr], Expr | None]

    def of(self, waves: Waves, places: list[Expr]) -> Expr | None:
        """Fourier polynomials as sums of squares."""
        if all(re.is_constant() and im.is_constant() for re, im in waves.values()):
            found = _dominated(waves, places)
            if found is not None:
                return found
        if not any(any(k) for k in waves):
            return self.plain(self._written(next(iter(waves.values()))[0])) if waves else ex.number(0)
        for i in range(len(places)):
            found = self._split(waves, places, i)
            if found is not None:
                return found
        return None

    def _split(self, waves: Waves, places: list[Expr], i: int) -> Expr | None:
        """P + Q cos(u) by P + Q and P − Q."""
        sizes = {abs(k[i]) for k in waves if k[i]}
        if len(sizes) != 1:
            return None
        (size,) = sizes
        still = {k: v for k, v in waves.items() if not k[i]}
        there, back = ({(*k[:i], 0, *k[i + 1 :]): v for k, v in waves.items() if k[i] == way} for way in (size, -size))
        if there.keys() != back.keys() or any(there[k] != back[k] for k in there):
            return None
        parts = []
        for sign, name in ((2, "cos"), (-2, "sin")):
            part = self.of(_sum([still, {k: (sign * re, sign * im) for k, (re, im) in there.items()}]), places)
            if part is None:
                return None
            parts.append(ex.mul(part, _square(ex.call(name, _half(ex.mul(ex.number(size), places[i]))))))
        return ex.add(*(part for part in parts if part.op != "mul" or part.args[0].number != 0))

    def _written(self, polynomial: fmpq_mpoly) -> Expr:
        terms = []
        for exponents, coefficient in polynomial.to_dict().items():
            powers = [ex.power(g, ex.number(int(e))) for g, e in zip(self.others, exponents, strict=False) if e]
            terms.append(ex.mul(ex.number(to_fraction(coefficient)), *powers))
        return ex.add(*terms)


def _dominated(waves: Waves, places: list[Expr]) -> Expr | None:
    """Squares, if the constant is as large as all other coefficients together."""
    rest, squares = Fraction(0), list[Expr]()
    for k, values in waves.items():
        re, im = (Fraction(0) if v.is_zero() else to_fraction(v.leading_coefficient()) for v in values)
        if not any(k):
            rest += re
        elif k > tuple(-n for n in k):  # each wave once: 2 re cos(u) − 2 im sin(u)
            half = _half(ex.add(*(ex.mul(ex.number(n), u) for n, u in zip(k, places, strict=True) if n)))
            cos, sin = ex.call("cos", half), ex.call("sin", half)
            rest -= 2 * (abs(re) + abs(im))
            squares += [ex.mul(ex.number(4 * abs(re)), _square(cos if re > 0 else sin))] if re else []
            turned = ex.add(cos, sin if im < 0 else ex.neg(sin))
            squares += [ex.mul(ex.number(2 * abs(im)), _square(turned))] if im else []
    return ex.add(*squares, *([ex.number(rest)] if rest else [])) if rest >= 0 else None


def _half(angle: Expr) -> Expr:
    return ex.mul(ex.number(Fraction(1, 2)), angle)


def _square(expr: Expr) -> Expr:
    return ex.power(expr, ex.number(2))
