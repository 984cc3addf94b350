"""Expressions as plain trees, exactly as written, and as text that our own parser reads back.

The tree is our own, not sympy's: sympy rewrites while it builds (and evaluates ``9**9**9`` while it
does so), whereas a proof has to judge the formula the user wrote. Equal sub-expressions may be shared,
so nothing here recurses: trees that substitution made deep, or wide by sharing, cost their distinct nodes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor
from typing import TypeVar

from flint import fmpq

from transformula.kernel.exceptions import FormulaError
from transformula.kernel.functions.function_table import FUNCTIONS, RESERVED

__all__ = ["FUNCTIONS", "RESERVED"]  # from here, too
#: Names of functions of two arguments or more.
VARIADIC = ("min", "max")
CONSTANTS = ("pi", "E")

#: Numbers wider than this are a typing mistake or an attack (9**9**9), not mathematics. Python refuses
#: to read or write whole numbers of more than 4,300 digits (14,284 bits); stay below that.
MAX_NUMBER_BITS = 14_000
#: A power takes as many products as its exponent has bits, at every point at which it is evaluated.
MAX_EXPONENT_BITS = 256
_NO_NAMES: frozenset[str] = frozenset()
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Expr:
    """A node: ``op`` is number, constant, variable, add, mul, div, pow or a function's name.

    ``names`` are the variables that occur.
    """

    op: str
    args: tuple[Expr, ...] = ()
    value: Fraction | str | None = None
    names: frozenset[str] = field(init=False)
    _hash: int = field(init=False)

    def __post_init__(self) -> None:
        names = frozenset((str(self.value),)) if self.op == "variable" else _NO_NAMES
        names = max((a.names for a in self.args), key=len, default=names)
        if not all(a.names <= names for a in self.args):  # else one set serves many nodes
            names = names.union(*(a.names for a in self.args))
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "_hash", hash((self.op, self.args, self.value)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Expr) and self._hash == other._hash and _same(self, other)

    @property
    def number(self) -> Fraction | None:
        """The exact rational value of a number node, else None."""
        return self.value if isinstance(self.value, Fraction) else None

    @property
    def is_constant(self) -> bool:
        """Whether no variable occurs below this node."""
        return not self.names

    def __str__(self) -> str:

        return to_text(self)

    __repr__ = __str__

    def __reduce__(self) -> tuple[type[Expr], tuple[object, ...]]:
        return (Expr, (self.op, self.args, self.value))  # hashes of strings differ by process


def _same(one: Expr, other: Expr) -> bool:
    """Whether two trees are equal, comparing each pair of nodes once."""
    seen: set[tuple[int, int]] = set()
    stack = [(one, other)]
    while stack:
        a, b = stack.pop()
        if a is b or (id(a), id(b)) in seen:
            continue
        if (a._hash, a.op, a.value, len(a.args)) != (b._hash, b.op, b.value, len(b.args)):
            return False
        seen.add((id(a), id(b)))
        stack.extend(zip(a.args, b.args, strict=True))
    return True


def walk(expr: Expr) -> Iterator[Expr]:
    """Every node once for each distinct sub-expression, children first."""
    seen: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(expr, False)]
    while stack:
        node, expanded = stack.pop()
        if node in seen:
            continue
        if expanded:
            seen.add(node)
            yield node
        else:
            stack.append((node, True))
            stack.extend((child, False) for child in node.args)


def fold(expr: Expr, value: Callable[[Expr, list[T]], T]) -> T:
    """The value of an expression: that of each node is made from those of its arguments."""
    known: dict[Expr, T] = {}
    for node in walk(expr):
        known[node] = value(node, [known[a] for a in node.args])
    return known[expr]


def variables_of(expr: Expr) -> frozenset[str]:
    """Names of the variables that occur in an expression."""
    return expr.names


def number(value: Fraction | int) -> Expr:
    """A number node."""
    value = value if isinstance(value, Fraction) else Fraction(value)
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_NUMBER_BITS:
        raise FormulaError(f"a number in the formula has over {MAX_NUMBER_BITS} bits: too large")
    return Expr("number", (), value)


def variable(name: str) -> Expr:
    """A variable node."""
    return Expr("variable", (), name)


def constant(name: str) -> Expr:
    """The constant pi or E."""
    return Expr("constant", (), name)


def add(*terms: Expr) -> Expr:
    """A flat sum; numbers are folded exactly."""
    total, rest = _folded("add", terms, Fraction(0), operator.add)
    rest = (*rest, number(total)) if total or not rest else rest
    return rest[0] if len(rest) == 1 else Expr("add", rest)


def mul(*factors: Expr) -> Expr:
    """A flat product; numbers are folded exactly. Zero is not propagated: 0*log(x) keeps log's domain."""
    scale, rest = _folded("mul", factors, Fraction(1), operator.mul)
    rest = (number(scale), *rest) if scale != 1 or not rest else rest
    return rest[0] if len(rest) == 1 else Expr("mul", rest)


def _folded(
    op: str, parts: Sequence[Expr], start: Fraction, join: Callable[[fmpq, fmpq], fmpq]
) -> tuple[Fraction, tuple[Expr, ...]]:
    """The numbers among the parts joined (refused as soon as that is too large), and the other parts."""
    flat = [p for part in parts for p in (part.args if part.op == op else (part,))]
    numbers = [p.number for p in flat if p.number is not None]
    rest = tuple(p for p in flat if p.number is None)
    if len(numbers) < 2:
        return (numbers[0] if numbers else start), rest
    result = fmpq(start.numerator, start.denominator)
    for value in numbers:
        result = join(result, fmpq(value.numerator, value.denominator))
        if result.height_bits() > MAX_NUMBER_BITS:
            raise FormulaError(f"a number in the formula has over {MAX_NUMBER_BITS} bits: too large")
    return Fraction(int(result.p), int(result.q)), rest


def neg(expr: Expr) -> Expr:
    """Minus an expression."""
    return mul(number(-1), expr)


def div(numerator: Expr, denominator: Expr) -> Expr:
    """A quotient; by a number it becomes a product."""
    if denominator.number is None:
        return Expr("div", (numerator, denominator))
    if not denominator.number:
        raise FormulaError("the formula divides by zero")
    return mul(numerator, number(1 / denominator.number))


def power(base: Expr, exponent: Expr) -> Expr:
    """A power; rational ** integer is folded exactly within the size limit."""
    exact, by = base.number, exponent.number
    if by == 1:
        return base
    if exact is None or by is None or by.denominator != 1:
        if by is not None and max(by.numerator.bit_length(), by.denominator.bit_length()) > MAX_EXPONENT_BITS:
            raise FormulaError(f"an exponent in the formula has over {MAX_EXPONENT_BITS} bits: too large")
        return Expr("pow", (base, exponent))
    if exact == 0 and by < 0:
        raise FormulaError("the formula divides by zero (0 to a negative power)")
    width = max(abs(exact.numerator).bit_length(), exact.denominator.bit_length())
    if width * abs(by) > MAX_NUMBER_BITS and abs(exact) not in (0, 1):
        raise FormulaError("a power of numbers in the formula is too large to write down")
    return number(exact ** int(by % 2 if exact == -1 else by))


def call(name: str, *args: Expr) -> Expr:
    """A function applied to its arguments."""
    return Expr(name, args)


def substitute(expr: Expr, swap: Mapping[Expr, Expr]) -> Expr:
    """Replace sub-expressions, folding numbers on the way up."""
    return fold(expr, lambda node, args: swap[node] if node in swap else rebuild(node.op, args) if args else node)


def rebuild(op: str, args: Sequence[Expr]) -> Expr:
    """A node of the same kind over new arguments."""
    return _BUILDERS[op](*args) if op in _BUILDERS else call(op, *args)


def _stepped(op: str, value: Callable[[Fraction], int]) -> Callable[[Expr], Expr]:
    return lambda u: call(op, u) if u.number is None else number(value(u.number))


_BUILDERS: dict[str, Callable[..., Expr]] = {"add": add, "mul": mul, "div": div, "pow": power}
_BUILDERS |= {"floor": _stepped("floor", floor), "sign": _stepped("sign", lambda u: (u > 0) - (u < 0))}


#: How strongly a text holds together; a quotient is read as one with what stands around it.
_SUM, _QUOTIENT, _PRODUCT, _UNARY, _POWER, _ATOM = range(6)
_Text = tuple[str, int]
#: How much of an expression a message shows.
_SHORT = 300


def to_text(expr: Expr) -> str:
    """Text that parses back to the same tree."""
    return fold(expr, _render)[0]


def short_text(expr: Expr) -> str:
    """Text for a message: long expressions are cut, in time linear in the distinct nodes."""

    def cut(node: Expr, args: list[_Text]) -> _Text:
        text, strength = _render(node, args)
        return (text if len(text) <= _SHORT else text[: _SHORT - 3] + "..."), strength

    return fold(expr, cut)[0]


def _wrap(inner: _Text, least: int) -> str:
    return inner[0] if inner[1] >= least else f"({inner[0]})"


def _render(expr: Expr, args: list[_Text]) -> _Text:
    op = expr.op
    if op == "number":
        return _number_text(expr.number or Fraction(0))
    if op in ("constant", "variable"):
        return str(expr.value), _ATOM
    if op == "add":
        first, *more = (_wrap(term, _QUOTIENT) for term in args)
        kept = (f"({p})" if p[0] == "-" and a.op == "div" else p for p, a in zip(more, expr.args[1:], strict=True))
        return first + "".join(f" - {p[1:]}" if p[0] == "-" else f" + {p}" for p in kept), _SUM
    if op == "mul":
        rest, scale = "*".join(_wrap(a, _POWER) for a in args[1:]), expr.args[0].number
        if scale == -1:
            return "-" + rest, _UNARY
        if scale is None:
            return f"{_wrap(args[0], _POWER)}*{rest}", _PRODUCT
        return f"{args[0][0]}*{rest}", min(args[0][1], _PRODUCT)
    if op == "div":
        return f"{_wrap(args[0], _PRODUCT)}/{_wrap(args[1], _POWER)}", _QUOTIENT
    if op == "pow":
        return f"{_wrap(args[0], _ATOM)}**{_wrap(args[1], _POWER)}", _POWER
    name, _, order = op.partition(":")
    return f"{name}({', '.join([order] * bool(order) + [text for text, _ in args])})", _ATOM


def _number_text(value: Fraction) -> _Text:
    return str(value), _QUOTIENT if value.denominator != 1 else _UNARY if value < 0 else _ATOM
