"""Products taken apart, a constant times powers of different bases; sums of squares, of which lengths are the roots.

*Quotients whose denominator may vanish, rewritten so that a common factor can be seen and cancelled.*

* A quotient of polynomials is reduced to lowest terms: (x³ − y³)/(x − y) = x² + xy + y².
* In a sum, u^v with u > 0 becomes exp(v·log u), whose zeros are known: 1 − (1 + r)^(−n).
* A difference of roots is multiplied by its conjugate: (√x − √y)/(x − y) = 1/(√x + √y).
* exp(a) − exp(b) becomes exp(b)·(exp(a − b) − 1), log(a) − log(b) becomes log(a/b), and sin(a) − sin(b) becomes
  2 cos((a + b)/2) sin((a − b)/2).

Each rewriting is a step that the kernel checks like the others (`extensions`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, combinations_with_replacement

from transformula.kernel.derivations.algebra import QuotientForm
from transformula.kernel.derivations.extensions import split_quotient
from transformula.kernel.derivations.normal_forms import Algebra
from transformula.kernel.enclosures.balls import to_fraction
from transformula.kernel.enclosures.intervals import Ends, try_range
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, variables_of, walk


def factors_of(expr: Expr) -> tuple[Expr, dict[Expr, Fraction]]:
    """The expression as constant · Π base^exponent, equal bases merged.

    Roots of different degrees stay apart: x^(1/2)·x^(1/3) has the bases x and x^(1/3), as the normal form
    has an atom for each root, and no x^(1/6) that both are powers of.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> [(str(b), str(e)) for b, e in factors_of(parse("3*x*sqrt(x)*y/x**2"))[1].items()]
    [('x', '-1/2'), ('y', '1')]
    """
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
            base, by = _own_base(powers, node, exponent)
            powers[base] = powers.get(base, Fraction(0)) + by
        if not stack:  # what stayed whole under a root may come apart once the roots are squared
            whole = [b for b, e in powers.items() if e and e.denominator == 1 and _comes_apart(b, powers)]
            stack = [(b, powers.pop(b)) for b in whole]
    return constant, {base: e for base, e in powers.items() if e}


def _own_base(powers: dict[Expr, Fraction], base: Expr, exponent: Fraction) -> tuple[Expr, Fraction]:
    """The base and exponent under which a power is to be collected."""
    root = exponent.denominator
    if root > 1 and not _merges(powers.get(base, Fraction(0)).denominator, root):
        return ex.power(base, ex.number(Fraction(1, root))), Fraction(exponent.numerator)
    return base, exponent


def _merges(one: int, other: int) -> bool:
    """Whether roots of these degrees are powers of one of them, however the kernel takes them."""
    if 1 in (one, other) or one == other:
        return True
    least = next(p for p in range(2, one + 1) if one % p == 0)
    return all(_is_power(degree, least) for degree in (one, other))


def _is_power(number: int, prime: int) -> bool:
    while number % prime == 0:
        number //= prime
    return number == 1


def _comes_apart(base: Expr, powers: dict[Expr, Fraction]) -> bool:
    if base.op == "pow" and base.args[1].number is not None:
        root = base.args[1].number.denominator
        return _merges(powers.get(base.args[0], Fraction(0)).denominator, root)
    return base.op in ("mul", "div", "sqrt")


def distributed(
    powers: dict[Expr, Fraction], divides: Callable[[Expr], bool] = lambda _: False, always: bool = False
) -> dict[Expr, Fraction]:
    """b^e S^e with b^{-k} in a term of the sum S becomes (bS)^e, multiplied out, so that nothing cancels.

    So does b^{-e} S^e with b^k in a term, if that leaves no more to be multiplied, and less to be looked up or raised
    (or ``always``), and b is not zero: where e > 0 it cannot be, else ``divides`` tells.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> [str(b) for b in distributed(factors_of(parse("(x**2 + y**2*z)/y"))[1])]
    ['y**(-1)*x**2 + y*z']
    >>> sorted(str(b) for b in distributed(factors_of(parse("(x + y)/y"))[1]))
    ['x + y', 'y']
    >>> sorted(str(b) for b in distributed(factors_of(parse("x*y/(1 + x**2)"))[1]))
    ['x', 'x**2 + 1', 'y']
    >>> sorted(str(b) for b in distributed(factors_of(parse("x*y/(1 + x**2)"))[1], divides=lambda b: True))
    ['x + x**(-1)', 'y']
    """
    for total, exponent in powers.items():
        if total.op != "add":
            continue
        for base, by in powers.items():
            if base is total or abs(by) != abs(exponent):
                continue
            sign = 1 if by == exponent else -1
            if not any(sign * factors_of(term)[1].get(base, 0) < 0 for term in total.args):
                continue
            if sign < 0 < by and not divides(base):
                continue
            factor = ex.power(base, ex.number(sign))
            merged = ex.add(*(product_of(*factors_of(ex.mul(factor, term))) for term in total.args))
            rest = {b: e for b, e in powers.items() if b not in (base, total)}
            rest[merged] = rest.get(merged, Fraction(0)) + exponent
            if sign > 0 or always or _is_less(rest, powers):
                return distributed(rest, divides, always)
    return powers


def complemented(
    constant: Expr, powers: dict[Expr, Fraction], wanted: Callable[[Expr, Expr], bool]
) -> tuple[Expr, dict[Expr, Fraction]]:
    """A product with p/(cp + r) in it written with 1 - r/(cp + r) instead, if that is wanted of p and r.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> found = complemented(*factors_of(parse("v*s/(k + 2*s)")), lambda p, r: True)
    >>> str(found[0]), [str(base) for base in found[1]]
    ('1/2', ['v', '-(k/(k + 2*s)) + 1'])
    """
    for total, exponent in powers.items():
        for term in total.args if total.op == "add" and exponent == -1 else ():
            scale, inside = factors_of(term)
            left = {b: e - inside.get(b, 0) for b, e in powers.items() if b is not total}
            if not inside or scale.number is None or any(not 0 < e <= powers.get(b, 0) for b, e in inside.items()):
                continue
            rest = ex.add(*(other for other in total.args if other is not term))
            if wanted(product_of(ex.number(1), inside), rest):
                small = ex.add(ex.number(1), ex.neg(ex.div(rest, total)))
                return ex.div(constant, scale), {**{b: e for b, e in left.items() if e}, small: Fraction(1)}
    return constant, powers


def _is_less(some: dict[Expr, Fraction], others: dict[Expr, Fraction]) -> bool:
    """Whether a product of powers of sums takes no more multiplications than another, and fewer powers."""
    (products, tables), (most, before) = _costs(some), _costs(others)
    return products <= most and products + tables < most + before


def _costs(powers: dict[Expr, Fraction]) -> tuple[int, int]:
    """Numbers of products and of different powers to compute, in a product and in the sums in it."""
    parts = [powers, *(factors_of(term)[1] for base in powers if base.op == "add" for term in base.args)]
    raised = {(base, e) for part in parts for base, e in part.items() if e != 1}
    return sum(max(len(part) - 1, 0) for part in parts), len(raised)


def product_of(constant: Expr, powers: dict[Expr, Fraction]) -> Expr:
    """constant · Π base^exponent as one expression."""
    return ex.mul(constant, *(ex.power(b, ex.number(e)) for b, e in powers.items()))


def quotient_of(constant: Expr, powers: dict[Expr, Fraction]) -> Expr:
    """The same as one quotient: negative powers go below.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> str(quotient_of(*factors_of(parse("3*x*y**(-2)*(2*z)**(-1)"))))
    '(3/2*x)/(y**2*z)'
    """
    above = product_of(constant, {b: e for b, e in powers.items() if e > 0})
    below = [ex.power(b, ex.number(-e)) for b, e in powers.items() if e < 0]
    return ex.div(above, ex.mul(*below)) if below else above


def radicand(expr: Expr) -> Expr | None:
    """u, if the expression is √u."""
    if expr.op == "sqrt":
        return expr.args[0]
    half = expr.op == "pow" and expr.args[1].number == Fraction(1, 2)
    return expr.args[0] if half else None


def as_squares(expr: Expr) -> list[Expr] | None:
    """Expressions whose squares add up to the given one, if it is written as a sum of several.

    The law of cosines, p² + q² − 2pq cos t = (p − q cos t)² + (q sin t)², and positive quadratic forms count as such.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> [str(e) for e in as_squares(parse("(x - y)**2 + 4*z**2"))]
    ['x - y', '2*z']
    >>> [str(e) for e in as_squares(parse("(x**2 + y**2 - 2*x*y*cos(t))/9"))]
    ['1/3*x - 1/3*y*cos(t)', '1/3*y*sin(t)']
    """
    terms = summands(expr)
    squares = [root for root in map(root_of, terms) if root is not None]
    mixed = [term for term in terms if root_of(term) is None]
    found = squares if all(_complete(term, squares) for term in mixed) else _completed(terms)
    return found if len(found) > 1 else None


def _completed(terms: Sequence[Expr]) -> list[Expr]:
    """A quadratic form as a sum of squares, one quantity after the other, or nothing."""
    form: dict[frozenset[Expr], Fraction] = defaultdict(Fraction)
    for constant, powers in map(factors_of, terms):
        if constant.number is None or sum(powers.values()) != 2 or not {*powers.values()} <= {1, 2}:
            return []
        form[frozenset(powers)] += constant.number
    left, squares = list(dict.fromkeys(p for pair in form for p in sorted(pair, key=str))), list[Expr]()
    while left:
        p, *left = left
        own = form[frozenset([p])]
        if own <= 0:
            return []
        shares = {q: form[frozenset([p, q])] / (2 * own) for q in left}
        squares.append(ex.mul(_root(own), ex.add(p, *(ex.mul(ex.number(b), q) for q, b in shares.items() if b))))
        for q, r in combinations_with_replacement(left, 2):
            form[frozenset([q, r])] -= own * shares[q] * shares[r] * (1 if q == r else 2)
    return squares


def summands(expr: Expr) -> list[Expr]:
    """The terms of a sum, or of a constant times a sum."""
    factor, powers = factors_of(expr)
    inner = next(iter(powers), None)
    if inner is None or inner.op != "add" or powers != {inner: 1}:
        return [expr]
    return [ex.mul(factor, term) for term in inner.args]


def root_of(term: Expr) -> Expr | None:
    """p with p² = term, if that can be seen."""
    constant, powers = factors_of(term)
    value = constant.number
    if value is None or value <= 0 or any(e % 2 for e in powers.values()):
        return None
    return product_of(_root(value), {b: e / 2 for b, e in powers.items()})


def _root(value: Fraction) -> Expr:
    exact = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
    return ex.number(exact) if exact * exact == value else ex.power(ex.number(value), ex.number(Fraction(1, 2)))


def _complete(term: Expr, squares: list[Expr]) -> bool:
    """Replace p and q among the squares by p ± q cos t and q sin t, if the term is ±2pq cos t."""
    constant, powers = factors_of(term)
    for cosine in (b for b, e in powers.items() if b.op == "cos" and e == 1):
        rest = product_of(constant, {b: e for b, e in powers.items() if b != cosine})
        for i, j in combinations(range(len(squares)), 2):  # by place: equal squares may stand there twice
            p, q = squares[i], squares[j]
            for sign in (1, -1):
                twice = ex.mul(ex.number(2 * sign), p, q)
                if factors_of(twice) == factors_of(rest):
                    turned = ex.mul(ex.number(sign), q, cosine)
                    squares[i] = ex.add(p, turned)
                    squares[j] = ex.mul(q, ex.call("sin", cosine.args[0]))
                    return True
    return False


def rewritten(expr: Expr, ends: Mapping[str, Ends]) -> Expr | None:
    """The quotient in a form whose zeros can be cancelled, or None.

    Examples
    --------
    >>> from flint import fmpq
    >>> from transformula.kernel.syntax.parsing import parse
    >>> box = {"x": (fmpq(0), fmpq(1)), "y": (fmpq(0), fmpq(1))}
    >>> str(rewritten(parse("(x**2 - y**2)/(x - y)"), box)), str(rewritten(parse("(exp(x) - exp(y))/(x - y)"), box))
    ('x + y', 'exp(y)*(exp(x - y) - 1)/(x - y)')
    """
    above, below = split_quotient(expr)
    if not _may_vanish(below, ends):
        return None
    reduced = _reduced(expr, ends) or _conjugated(above, below, ends)
    if reduced is not None:
        return reduced
    numerator, denominator = (_with_known_zeros(part, ends) for part in (above, below))
    if (numerator, denominator) == (above, below):
        return None
    return ex.div(numerator, denominator)


def _may_vanish(expr: Expr, ends: Mapping[str, Ends]) -> bool:
    found = try_range(expr, ends)
    return found is None or bool(found[0] <= 0 <= found[1])


def lowest_terms(expr: Expr) -> tuple[Expr, Expr] | None:
    """Numerator and denominator of a quotient of polynomials, without common factors."""
    names = sorted(expr.names)
    algebra = Algebra(names)
    try:
        form = algebra.of(expr)
    except RefutedError:
        return None
    return _polynomials(form, algebra, names)


def _reduced(expr: Expr, ends: Mapping[str, Ends]) -> Expr | None:
    """A quotient of polynomials in lowest terms, if its denominator does not vanish any more."""
    found = lowest_terms(expr)
    return None if found is None or _may_vanish(found[1], ends) else ex.div(*found)


def _conjugated(above: Expr, below: Expr, ends: Mapping[str, Ends]) -> Expr | None:
    """A difference of two roots over what its square contains."""
    if above.op != "add" or len(above.args) != 2 or not any(_is_root(node) for node in walk(above)):
        return None
    first, second = above.args
    conjugate = ex.add(first, ex.neg(second))
    squares = ex.add(ex.power(first, ex.number(2)), ex.neg(ex.power(second, ex.number(2))))
    reduced = _reduced(ex.div(squares, below), ends)
    return None if reduced is None or _may_vanish(conjugate, ends) else ex.div(reduced, conjugate)


def _is_root(node: Expr) -> bool:
    by = node.args[1].number if node.op == "pow" else None
    return node.op == "sqrt" or (by is not None and by.denominator == 2)


def _polynomials(form: QuotientForm, algebra: Algebra, names: list[str]) -> tuple[Expr, Expr] | None:
    """Numerator and denominator of a form as expressions, if both are polynomials in the variables."""
    places = {}
    for name in names:
        (monomial,) = algebra.lift(algebra.named[name].num).to_dict()
        places[monomial.index(1)] = ex.variable(name)
    parts = []
    for polynomial in (form.num, form.den):
        terms = []
        for monomial, c in algebra.lift(polynomial).to_dict().items():
            powers = [(places.get(k), e) for k, e in enumerate(monomial) if e]
            if any(variable is None for variable, _ in powers):
                return None
            factors = [ex.power(v, ex.number(int(e))) for v, e in powers if v is not None]
            terms.append(ex.mul(ex.number(to_fraction(c)), *factors))
        parts.append(ex.add(*terms))
    return parts[0], parts[1]


def _with_known_zeros(expr: Expr, ends: Mapping[str, Ends]) -> Expr:
    """The same product with its sums rewritten."""
    factors = expr.args if expr.op == "mul" else (expr,)
    return ex.mul(*(_sum_with_known_zeros(f, ends) if f.op == "add" else f for f in factors))


def _sum_with_known_zeros(total: Expr, ends: Mapping[str, Ends]) -> Expr:
    powers = {
        node: ex.call("exp", ex.mul(node.args[1], ex.call("log", node.args[0])))
        for term in total.args
        for node in walk(term)
        if node.op == "pow" and node.args[1].number is None and not _may_vanish(node.args[0], ends)
    }
    if powers:
        return ex.substitute(total, powers)
    return _difference(total) or total


def _difference(total: Expr) -> Expr | None:
    """c·f(a) − c·f(b) for f = exp, sin or cos as a product, c·log(a) − c·log(b) as one logarithm."""
    if len(total.args) != 2:
        return None
    (scale, first), (other, second) = (factors_of(term) for term in total.args)
    names = ("exp", "log", "sin", "cos")
    one, two = (next((b for b, e in p.items() if b.op in names and e == 1), None) for p in (first, second))
    if one is None or two is None or one.op != two.op or scale.number is None or other.number != -scale.number:
        return None
    if {b: e for b, e in first.items() if b != one} != {b: e for b, e in second.items() if b != two}:
        return None
    rest = product_of(scale, {b: e for b, e in first.items() if b != one})
    if one.op == "log":
        return ex.mul(rest, ex.call("log", ex.div(one.args[0], two.args[0])))
    half = ex.number(Fraction(1, 2))
    mean, gap = (ex.mul(half, ex.add(one.args[0], b)) for b in (two.args[0], ex.neg(two.args[0])))
    if one.op in ("sin", "cos"):
        sign, beside = (2, "cos") if one.op == "sin" else (-2, "sin")
        return ex.mul(ex.number(sign), rest, ex.call(beside, mean), ex.call("sin", gap))
    apart = ex.call("exp", ex.add(one.args[0], ex.neg(two.args[0])))
    return ex.mul(rest, two, ex.add(apart, ex.number(-1)))
