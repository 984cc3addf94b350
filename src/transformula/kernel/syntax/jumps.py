"""floor and sign in a formula that is continuous all the same; a jump is refused with its place and size.

*Lemma.* Let v lie between lo and hi on the box, and let the part G(v, p) of a formula have floors and signs of c v + d
only, c and d rational. T_1 < .. < T_n are all numbers from lo to hi where one of them jumps, G_k is G with their values
between two neighbours, and G'_k with those at T_k itself. If G'_k(T_k, p) is that of the pieces on either side of T_k
(on its one side, if T_k is lo or hi) for all p, then with T_1, .. strictly between lo and hi

    G(v, p) = G_0(min(v, T_1), p) + sum of G_k(min(max(v, T_k), T_(k+1)), p) - G_k(T_k, p),

as for v between T_j and T_(j+1) all other differences are 0 or G_(k-1)(T_k, p) - G_k(T_k, p) = 0. What stands on the
right is proven to be defined on the whole box like any formula, with 0 G'_k(T_k, p) added where that may be undefined
and is neither neighbour; so both sides of each equality are. The equalities are identities (`check_meeting`),
and v is defined on the box because it has a range there.

p are the other quantities of G. One term of v = a + rest is written as t - rest in G, whose t then stands for v: a
variable x if a is x times a constant, else a wherever it stands. A term that stays in G, or in the rest, counts as
another quantity, for which the identities hold whatever it is. The smallest part that is continuous is replaced.

where(condition, a, b) as one continuous expression; a jump is refused.

*Lemma.* Let the condition be x >= s, with s free of the variable x, and let a = b wherever x = s. Then

    where(x >= s, a, b) = a(max(x, s)) + b(min(x, s)) - a(s),

a(t) being a with t for x: for x >= s the last two cancel, as b(s) = a(s), and for x <= s the first and the last do; so
do the last two everywhere if b is free of x (they are left out if b is defined for all numbers), likewise the others.
What stands on the right is proven to be defined on the whole box like any formula, so a and b need only be defined on
their own sides, and both on the seam. That a = b there is an identity: their normal forms are equal.

A condition on one variable x whose difference is a polynomial with zeros r_1 < .. < r_n holds on intervals between some
of them: the pieces are joined at one zero after the other, where its sign changes. Where it does not change, and the
condition holds at the zero only or everywhere but there, a = b is checked there, and the zero is no seam.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cache
from itertools import pairwise

from flint import arb

from transformula.kernel.arithmetic import precision
from transformula.kernel.derivations.normal_forms import Algebra
from transformula.kernel.derivations.polynomials import as_polynomial
from transformula.kernel.enclosures.balls import enclose, to_fraction
from transformula.kernel.enclosures.intervals import try_range
from transformula.kernel.exceptions import FormulaError, Reason, RefutedError
from transformula.kernel.functions.elementary_functions import Ends
from transformula.kernel.functions.function_table import is_open
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.definitions import JUMPS
from transformula.kernel.syntax.expression import Expr, short_text, walk


def where(left: Expr, sign: str, right: Expr, a: Expr, b: Expr) -> Expr:
    """The expression that is a where left > right (or <, <=, >=), and b elsewhere."""
    larger, smaller = (left, right) if sign[0] == ">" else (right, left)
    difference = ex.add(larger, *map(ex.neg, smaller.args if smaller.op == "add" else (smaller,)))
    try:
        name, seam, above = _seam(difference)
    except FormulaError:
        found = _seams(difference)
        if found is None:
            raise
    else:
        return _joined_at(name, seam, *((a, b) if above else (b, a)))
    name, positive, seams = found
    holds = positive  # from the right: the pieces between two seams, and whether the condition holds there
    pieces = [a if holds else b]
    for seam, odd in reversed(seams):
        if not odd and holds != ("=" in sign):  # the condition is other at this one place
            there = (ex.substitute(part, {ex.variable(name): seam}) for part in (a, b))
            check_meeting(f"{name} = {short_text(seam)}", *there)
        holds = holds != odd
        pieces.append(a if holds else b)
    whole, *rest = reversed(pieces)
    for (seam, odd), piece in zip(seams, rest, strict=True):
        whole = _joined_at(name, seam, piece, whole) if odd else whole
    return whole


def _joined_at(name: str, seam: Expr, a: Expr, b: Expr) -> Expr:
    """The expression that is a where x >= s, and b elsewhere."""
    x = ex.variable(name)
    on_seam = [ex.substitute(part, {x: seam}) for part in (a, b)]
    check_meeting(f"{name} = {short_text(seam)}", *on_seam)
    if name not in a.names | b.names:
        other = ex.add(seam, b) if a != b and any(map(is_open, ex.walk(b))) else seam
        return ex.add(a, ex.mul(ex.number(0), other))  # the condition and the other piece must still be defined
    above_seam, below = (ex.substitute(p, {x: ex.call(op, x, seam)}) for p, op in ((a, "max"), (b, "min")))
    for part, rest in ((b, above_seam), (a, below)):
        if name not in part.names and not any(map(is_open, ex.walk(part))):
            return rest
    return ex.add(above_seam, below, ex.neg(min(on_seam, key=size_of)))


def size_of(expr: Expr) -> int:
    """Number of nodes, each as often as it stands there."""
    return ex.fold(expr, lambda _, sizes: 1 + sum(sizes))


def _seam(difference: Expr) -> tuple[str, Expr, bool]:
    """A variable x, s without x, and whether difference >= 0 means x >= s (or else x <= s)."""
    terms = difference.args if difference.op == "add" else (difference,)
    for name in sorted(difference.names):
        own = [term for term in terms if name in term.names]
        scale, x = own[0].args if own[0].op == "mul" and len(own[0].args) == 2 else (ex.number(1), own[0])
        if len(own) == 1 and x == ex.variable(name) and scale.number:
            rest = ex.add(*(term for term in terms if term is not own[0]))
            return name, ex.mul(ex.number(-1 / scale.number), rest), scale.number > 0
    said = "a condition must be linear in one of its variables, as in where(x > 2*y, .., ..), or a polynomial of one"
    raise FormulaError(said, Reason.CONDITION)


def _seams(difference: Expr) -> tuple[str, bool, list[tuple[Expr, bool]]] | None:
    """A variable x, whether the difference is > 0 for large x, its zeros in order, and whether its sign changes there.

    It is a polynomial of x with factors up to degree two, or c abs(u) - d, c a number and d/c > 0, whose sign
    is that of c (u**2 - (d/c)**2).
    """
    (name, *others), terms = sorted(difference.names) or [""], difference.args if difference.op == "add" else ()
    if len(terms) == 2 and terms[1].number:
        product = terms[0].op == "mul" and len(terms[0].args) == 2
        scale, size = terms[0].args if product else (ex.number(1), terms[0])
        if size.op == "abs" and scale.number:
            end = -terms[1].number / scale.number
            squares = ex.add(ex.power(size.args[0], ex.number(2)), ex.number(-(end**2)))
            difference = ex.mul(scale, squares) if end > 0 else difference
    if others or not name:
        return None
    try:
        polynomial = as_polynomial(difference, (name,))
    except FormulaError:
        return None
    degree = int(polynomial.exact.total_degree())
    if not polynomial.is_rational or not 0 < degree <= MAX_CONDITION:
        return None
    lead, found = Fraction(1), list[tuple[Expr, bool]]()
    scale_of, factors = polynomial.exact.factor()
    for factor, times in factors:
        c = {int(k): to_fraction(v) for (k,), v in factor.to_dict().items()}
        high = max(c)
        lead *= (1 if c[high] > 0 else -1) ** int(times)
        if high > 2:
            return None
        if high == 1:
            found.append((ex.number(-c.get(0, Fraction(0)) / c[1]), bool(times % 2)))
            continue
        middle = -c.get(1, Fraction(0)) / (2 * c[2])
        inside = middle**2 - c.get(0, Fraction(0)) / c[2]
        root = ex.power(ex.number(inside), ex.number(Fraction(1, 2)))
        ends = [ex.add(ex.number(middle), ex.mul(ex.number(way), root)) for way in (-1, 1)] if inside > 0 else []
        found += [(end, bool(times % 2)) for end in ends]
    with precision(_BITS):
        found.sort(key=lambda item: enclose(item[0]).mid())
        places = [enclose(seam) for seam, _ in found]
        ordered = all(one < other for one, other in pairwise(places))
    return (name, bool((lead > 0) == (scale_of > 0)), found) if ordered else None


def check_meeting(place: str, a: Expr, b: Expr) -> None:
    """Refuse two values at a place that are not seen to be equal."""
    jump = ex.add(a, ex.neg(b))
    algebra = Algebra(sorted(a.names | b.names))
    size = arb.nan()
    try:
        size = size if jump.names else enclose(jump)
        apart = size.is_finite() and not size.contains(0)
        if size.is_zero() or (not apart and algebra.same(algebra.of(a), algebra.of(b))):  # just zero, or an identity
            return
    except RefutedError:  # too large, or divided by zero
        pass
    if not size.is_finite() or size.contains(0):
        said = f"the pieces are not seen to meet at {place}: they differ by {short_text(jump)} there"
        raise FormulaError(said, Reason.JUMP, place=place)
    shown = f"{abs(float(size.mid())):.6g}"
    said = f"the formula jumps by {shown} at {place}, and only continuous formulas can be compiled"
    raise FormulaError(said, Reason.JUMP, place=place)


MAX_JUMPS, MAX_SIZE = 200, 100_000
#: The largest degree of a condition, and bits of precision at its zeros.
MAX_CONDITION, _BITS = 8, 256
#: No box has a variable of this name.
_T = ex.variable("#t")


def continuous(expr: Expr, box: Mapping[str, Ends]) -> Expr:
    """The same function on the box without floors and signs, or a `FormulaError`."""
    if (count := sum(node.op in JUMPS for node in walk(expr))) > MAX_JUMPS:
        raise FormulaError(f"the formula has {count} functions that jump: at most {MAX_JUMPS}")
    while (jump := next((node for node in walk(expr) if node.op in JUMPS), None)) is not None:
        expr = _without(expr, jump, box)
    return expr


def _without(expr: Expr, jump: Expr, box: Mapping[str, Ends]) -> Expr:
    """The smallest part that holds the jump and is continuous written without it."""
    above: dict[Expr, bool] = {}
    for node in walk(expr):
        above[node] = node == jump or any(above[a] for a in node.args)
    refusal = FormulaError("")
    for node, others in ((n, k) for n, holds in above.items() if holds for k in _left_out(n, above)):
        try:
            joined = _joined(ex.rebuild(node.op, [a for a in node.args if a not in others]), jump, box)
        except FormulaError as error:
            refusal = error
            continue
        if joined is not None:
            return ex.substitute(expr, {node: ex.rebuild(node.op, [joined, *others]) if others else joined})
    raise refusal


def _left_out(node: Expr, above: Mapping[Expr, bool]) -> Iterator[list[Expr]]:
    """Terms or factors that the jump is not in: a sum is tried without them, a product without and with them."""
    others = [a for a in node.args if not above[a]] if node.op in ("add", "mul") else []
    if len(node.args) - len(others) > 1 or not others:
        yield others
    if others and node.op == "mul":
        yield []


def _joined(part: Expr, jump: Expr, box: Mapping[str, Ends]) -> Expr | None:
    """The part without the jump, or None if there are others in the way."""
    v, *_ = _affine(jump.args[0])
    ends = try_range(v, box)
    if ends is None:
        raise FormulaError(f"{short_text(jump)} is not seen to be defined on the box")
    low, high = (to_fraction(end) for end in ends)
    found = {node: _affine(node.args[0]) for node in walk(part) if node.op in JUMPS}
    group = {node: (c, d) for node, (other, c, d) in found.items() if other == v}
    places, size = sorted(set(_places(group, low, high))), size_of(part)
    if places and len(group) < len(found):
        return None
    if size * (len(places) + 1) > MAX_SIZE:
        raise FormulaError(f"the formula is too long with {len(places)} jumps of {short_text(jump)} written out")

    rest, inverse = v.args if v.op == "add" else (), _solved(v)

    def at_values(at: Fraction) -> dict[Expr, Expr]:
        return {node: ex.rebuild(node.op, [ex.number(c * at + d)]) for node, (c, d) in group.items()}

    @cache
    def piece(at: Fraction) -> Expr:
        """G, with the floors and signs at a number."""
        return _shorter(ex.substitute(part, at_values(at) | inverse), rest)

    cuts = [low, *(at for at in places if low < at < high), high]
    spans = [(a, b, (a + b) / 2) for a, b in pairwise(cuts)]
    terms = []
    for at in places:
        here = _at(piece(at), ex.number(at))
        sides = [_at(piece(middle), ex.number(at)) for a, b, middle in spans if a < b and at in (a, b)]
        for side in sides:
            check_meeting(f"{short_text(v)} = {at}", side, here)
        if here not in sides and _opens(here):
            terms.append(ex.mul(ex.number(0), here))
    if len(spans) == 1:
        return ex.add(ex.substitute(part, at_values(spans[0][2])), *terms)
    for k, (a, b, middle) in enumerate(spans):
        p = piece(middle)
        if ((p.op == "mul" and p.args[0].number == 0) or (k and "#t" not in p.names)) and not _opens(p):
            continue  # it is zero, or cancels
        clamped = ex.call("max", v, ex.number(a)) if k else v
        clamped = ex.call("min", clamped, ex.number(b)) if k < len(spans) - 1 else clamped
        terms += [_at(p, clamped)] + ([ex.neg(_at(p, ex.number(a)))] if k else [])
    return ex.add(*terms)


def _at(piece: Expr, t: Expr) -> Expr:
    return ex.substitute(piece, {_T: t})


def _shorter(expr: Expr, rest: tuple[Expr, ...]) -> Expr:
    """Without r - r in sums, for terms r of v, which are defined."""

    def shorter(node: Expr, args: list[Expr]) -> Expr:
        for r in rest if node.op == "add" else ():
            while r != ex.neg(r) and r in args and ex.neg(r) in args:  # 0*r is its own negative
                args.remove(r)
                args.remove(ex.neg(r))
        return ex.rebuild(node.op, args) if args else ex.number(0) if node.op == "add" else node

    return ex.fold(expr, shorter) if rest else expr


def _opens(expr: Expr) -> bool:
    return any(map(is_open, walk(expr)))


def _places(group: Mapping[Expr, tuple[Fraction, Fraction]], low: Fraction, high: Fraction) -> Iterator[Fraction]:
    """Places where floors and signs of c v + d jump, for v from low to high; counted before they are made."""
    for node, (c, d) in group.items():
        first, last = sorted((c * low + d, c * high + d))
        least, most = -(-first // 1), last // 1
        if node.op == "sign":
            least, most = max(least, 0), min(most, 0)
        if most - least >= MAX_JUMPS:
            raise FormulaError(
                f"{short_text(node)} jumps {most - least + 1} times on the box: at most {MAX_JUMPS} times"
            )
        yield from ((k - d) / c for k in range(int(least), int(most) + 1))


def _affine(u: Expr) -> tuple[Expr, Fraction, Fraction]:
    """v, c != 0 and d with u = c v + d; v has every part of u in it, so it is defined where u is."""
    terms: dict[Expr, Fraction] = {}
    constant, stack = Fraction(0), [(u, Fraction(1))]
    while stack:
        node, by = stack.pop()
        if node.op == "add":
            stack.extend((a, by) for a in node.args)
        elif node.op == "mul" and node.args[0].number:
            stack.append((ex.mul(*node.args[1:]), by * node.args[0].number))
        elif node.number is not None:
            constant = _fitting(constant + by * node.number)
        else:
            terms[node] = _fitting(terms.get(node, Fraction(0)) + by)
    if not terms or not all(terms.values()):
        return u, Fraction(1), Fraction(0)
    ordered = sorted(terms.items(), key=lambda item: str(item[0]))
    lead = ordered[0][1]
    return ex.add(*(ex.mul(ex.number(c / lead), term) for term, c in ordered)), lead, constant


def _fitting(value: Fraction) -> Fraction:
    return ex.number(value).number or Fraction(0)  # refuses numbers that are too long


def _solved(v: Expr) -> dict[Expr, Expr]:
    """One term of v, or the variable in it, written in t and the rest: a variable if there is one."""
    terms = v.args if v.op == "add" else (v,)
    found = []
    for k, term in enumerate(terms):
        value = ex.add(_T, *(ex.neg(other) for j, other in enumerate(terms) if j != k))
        scale = term.args[0] if term.op == "mul" and term.args[0].number else ex.number(1)
        alone = ex.mul(*term.args[1:]) if scale != ex.number(1) else term
        found.append(_variable(alone, ex.div(value, scale)))
    return next((f for f in found if next(iter(f)).op == "variable"), found[0])


def _variable(term: Expr, value: Expr) -> dict[Expr, Expr]:
    """The variable of a term, solved for the term's value, if the term is the variable times a constant."""
    if term.op == "div" and term.args[1].is_constant:
        return _variable(term.args[0], ex.mul(value, term.args[1]))
    factors = [a for a in term.args if not a.is_constant] if term.op == "mul" else []
    if len(factors) == 1:
        by = ex.mul(*(a for a in term.args if a.is_constant))
        if enclose(by) != 0:
            return _variable(factors[0], ex.div(value, by))
    return {term: value}
