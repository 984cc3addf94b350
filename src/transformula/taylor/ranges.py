"""Ranges of expressions by interval arithmetic with exact ends, and where they are undefined.

A range is a pair of exact Arb numbers. Unlike a ball it keeps an end that is exactly 0 or 1, and
monotone functions cost nothing in sharpness: sqrt, log, asin, powers map their ends.

*Reading of a domain.* ``sqrt(u)``, ``u**(p/q)``, ``asin(u)`` and ``acos(u)`` intersect the range of
``u`` with the domain of the function. That is sound for every claim of the form "at each point of
the box where f is defined". `check_defined` refuses a box in which f is found undefined or is not
bounded. What it can not decide is whether a u whose infimum is *exactly* 0, like sin(x) on
[0, pi], dips below it on a part smaller than 2**-36 of the box; it then gives way, and the claim
is the one above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce

from flint import arb

from transformula.errors import NotProvenError
from transformula.formulas.enclosures import to_fmpq
from transformula.formulas.expression import Expr, walk

Range = tuple[arb, arb]

#: A piece this small (relative to the box) on which f is still unbounded makes us refuse.
_SMALLEST = 2.0**-36
#: Pieces looked at before giving the benefit of the doubt to the proof proper.
_MAX_PIECES = 3_000


class UndefinedError(Exception):
    """An expression has no finite range; ``part`` is the sub-expression to blame.

    ``certain`` says that it is undefined at every point considered, not just perhaps somewhere.
    """

    def __init__(self, part: Expr, certain: bool) -> None:
        super().__init__(str(part))
        self.part = part
        self.certain = certain


class UndefinedOnBoxError(NotProvenError):
    """A formula is undefined or unbounded in its box: which part of it, and near which point."""

    def __init__(self, message: str, part: Expr, point: Mapping[str, float], place: str) -> None:
        super().__init__(message, place=place)
        self.part, self.point = part, point


def enclose_ends(expr: Expr, values: Mapping[str, Range], strict: bool = False) -> Range:
    """A range that contains the expression's value at every point of the given ranges.

    Parameters
    ----------
    expr : Expr
    values : mapping of names to ranges
    strict : bool
        Refuse a range that leaves the domain of sqrt, asin, .. instead of cutting it.

    Raises
    ------
    UndefinedError
        If a sub-expression may be undefined or unbounded there.
    """
    known: dict[Expr, Range] = {}
    for node in walk(expr):
        args = [known[a] for a in node.args]
        if strict:
            _check_inside(node, args)
        known[node] = low, high = range_of_node(node, args, values)
        if not (low.is_finite() and high.is_finite()):
            raise UndefinedError(node, certain=False)
    return known[expr]


def hull(ball: arb) -> Range:
    """The ends of a ball."""
    return ball.lower(), ball.upper()


def to_ball(ends: Range) -> arb:
    """The smallest ball around a range."""
    return ends[0].union(ends[1])


def range_of_node(node: Expr, args: list[Range], values: Mapping[str, Range]) -> Range:
    """The range of a node from those of its arguments."""
    op = node.op
    if op == "number":
        return hull(arb(to_fmpq(node.number or Fraction(0))))
    if op == "constant":
        return hull(arb.pi() if node.value == "pi" else arb.const_e())
    if op == "variable":
        return values[str(node.value)]
    if op == "add":
        return reduce(_add, args)
    if op == "mul":
        return reduce(_mul, args)
    if op == "div":
        return _mul(args[0], _inverse(node, args[1]))
    if op == "pow":
        return _power(node, args[0], args[1], node.args[1].number)
    if op in ("min", "max"):
        return reduce(_minimum if op == "min" else _maximum, args)
    return _call(node, args[0])


def _add(a: Range, b: Range) -> Range:
    return (a[0] + b[0]).lower(), (a[1] + b[1]).upper()


def _mul(a: Range, b: Range) -> Range:
    products = [x * y for x in a for y in b]
    return (
        reduce(arb.min, [p.lower() for p in products]),
        reduce(arb.max, [p.upper() for p in products]),
    )


def _minimum(a: Range, b: Range) -> Range:
    return a[0].min(b[0]).lower(), a[1].min(b[1]).upper()


def _maximum(a: Range, b: Range) -> Range:
    return a[0].max(b[0]).lower(), a[1].max(b[1]).upper()


def _inverse(node: Expr, a: Range) -> Range:
    if a[0] <= 0 <= a[1]:
        raise UndefinedError(node, certain=bool(a[0] == 0 and a[1] == 0))
    return (1 / a[1]).lower(), (1 / a[0]).upper()


def _absolute(a: Range) -> Range:
    if a[0] >= 0:
        return a
    if a[1] <= 0:
        return -a[1], -a[0]
    return arb(0), (-a[0]).max(a[1]).upper()


def _power(node: Expr, base: Range, exponent: Range, by: Fraction | None) -> Range:
    if by is None:  # x ** y = exp(y * log x)
        if exponent[0] > 0:
            base = _within(node, base, arb(0), None)
            top = _mul(exponent, hull(base[1].log()))[1].exp() if base[1] > 0 else arb(0)
            if not base[0] > 0:
                return arb(0), top.upper()
        _need_positive(node, base)
        logs = base[0].log().lower(), base[1].log().upper()
        low, high = _mul(exponent, logs)
        return low.exp().lower(), high.exp().upper()
    if by < 0:
        return _inverse(node, _power(node, base, exponent, -by))
    if by.denominator == 1:
        if by.numerator % 2 == 0:
            base = _absolute(base)
        return (base[0] ** int(by)).lower(), (base[1] ** int(by)).upper()
    low, high = _within(node, base, arb(0), None)
    return _fractional(low, by).lower(), _fractional(high, by).upper()


def _fractional(x: arb, by: Fraction) -> arb:
    return arb(0) if x == 0 else x ** arb(to_fmpq(by))


def _need_positive(node: Expr, a: Range) -> None:
    if not a[0] > 0:
        raise UndefinedError(node, certain=bool(a[1] <= 0))


def _within(node: Expr, a: Range, least: arb, most: arb | None) -> Range:
    """The part of a range inside the domain [least, most]."""
    if a[1] < least or (most is not None and a[0] > most):
        raise UndefinedError(node, certain=True)
    return a[0].max(least).lower(), (a[1] if most is None else a[1].min(most).upper())


def _check_inside(node: Expr, args: list[Range]) -> None:
    """Refuse an argument range that is not inside a closed domain."""
    by = node.args[1].number if node.op == "pow" else None
    fractional = node.op == "pow" and (by is None or by.denominator != 1)
    outside = (node.op == "sqrt" or fractional) and not args[0][0] >= 0
    if node.op in ("asin", "acos"):
        outside = not (args[0][0] >= -1 and args[0][1] <= 1)
    if outside:
        range_of_node(node, args, {})  # a certain failure is reported as such
        raise UndefinedError(node, certain=False)


def _call(node: Expr, a: Range) -> Range:
    op = node.op
    if op == "abs":
        return _absolute(a)
    if op == "sqrt":
        a = _within(node, a, arb(0), None)
        return a[0].sqrt().lower(), a[1].sqrt().upper()
    if op == "log":
        _need_positive(node, a)
    if op in ("asin", "acos"):
        a = _within(node, a, arb(-1), arb(1))
    if op == "acos":
        return a[1].acos().lower(), a[0].acos().upper()
    if op in _INCREASING:
        function = _INCREASING[op]
        return function(a[0]).lower(), function(a[1]).upper()
    if op == "tan":
        ball = to_ball(a).tan()
        if not ball.is_finite():
            raise UndefinedError(node, certain=False)
        return a[0].tan().lower(), a[1].tan().upper()
    if op == "sinc":  # never below its least value, at the root of tan u = u near 4.4934
        low, high = hull(to_ball(a).sinc())
        return low.max(arb("-0.21723362822")).lower(), high.min(arb(1)).upper()
    ball = getattr(to_ball(a), op)()
    if op == "cosh":
        inner = _absolute(a)
        return inner[0].cosh().lower(), inner[1].cosh().upper()
    return hull(ball)


_INCREASING: dict[str, Callable[[arb], arb]] = {
    "asin": arb.asin,
    "atan": arb.atan,
    "sinh": arb.sinh,
    "tanh": arb.tanh,
    "exp": arb.exp,
    "log": arb.log,
}


def check_defined(expr: Expr, box: Mapping[str, Range]) -> None:
    """Refuse an expression that is undefined or unbounded in the box, naming part and place.

    Splits the box, depth first, wherever a sub-expression may be undefined; a tiny piece that is
    still not bounded, or any piece that is proven undefined, ends in a refusal. A pole costs a few
    dozen evaluations. If very many pieces are needed the question is left to the proof proper,
    which can not close on an unbounded function.

    Raises
    ------
    UndefinedOnBoxError
        Naming the sub-expression and where it fails.
    """
    names = list(box)
    widths = {n: max(float(box[n][1] - box[n][0]), 1e-300) for n in names}
    stack = [dict(box)]
    for _ in range(_MAX_PIECES):
        if not stack:
            return
        piece = stack.pop()
        error = _failure(expr, piece, strict=True)
        if error is None:
            continue
        middle = {n: ((a + b) / 2).mid() for n, (a, b) in piece.items()}
        at_middle = {n: (x, x) for n, x in middle.items()}
        blame = _failure(expr, at_middle, strict=False)
        if blame is not None:
            raise _refusal(blame.part, at_middle)
        width, name = max((float(piece[n][1] - piece[n][0]) / widths[n], n) for n in names)
        if width < _SMALLEST:
            error = _failure(expr, piece, strict=False)
            if error is None:
                continue  # touches the end of a domain, as sqrt(sin(x)) does at pi
        if error.certain or width < _SMALLEST:
            raise _refusal(error.part, piece)
        low, high = piece[name]
        stack.append({**piece, name: (low, middle[name])})
        stack.append({**piece, name: (middle[name], high)})


def _failure(expr: Expr, piece: Mapping[str, Range], strict: bool) -> UndefinedError | None:
    try:
        enclose_ends(expr, piece, strict)
    except UndefinedError as error:
        return error
    return None


def _refusal(part: Expr, piece: Mapping[str, Range]) -> UndefinedOnBoxError:
    place = ", ".join(
        f"{n} = {float(a):.9g}" + ("" if float(a) == float(b) else f"..{float(b):.9g}")
        for n, (a, b) in piece.items()
    )
    return UndefinedOnBoxError(
        f"{part} is undefined or unbounded near {place}: narrow the box to keep away from there",
        part,
        {n: float((a + b) / 2) for n, (a, b) in piece.items()},
        place,
    )
