"""Expressions as plain trees, exactly as written.

The tree is our own, not sympy's: sympy rewrites while it builds (and evaluates ``9**9**9`` while it
does so), whereas a proof has to judge the formula the user wrote. `Expr.sympy` in `printing`
converts when a page wants typesetting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from transformula.errors import FormulaError

#: One-argument functions the parser knows.
FUNCTIONS = [
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "exp",
    "log",
    "sqrt",
    "abs",
    "sinc",
]
#: Functions of two or more arguments.
VARIADIC = ("min", "max")
CONSTANTS = ("pi", "E")

#: Numbers wider than this are a typing mistake or an attack (9**9**9), not mathematics. Python refuses
#: to read or write whole numbers of more than 4,300 digits (14,284 bits); stay below that.
MAX_NUMBER_BITS = 14_000
MAX_NUMBER_DIGITS = 4_000


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """A node: ``op`` is number, constant, variable, add, mul, div, pow or a function's name."""

    op: str
    args: tuple[Expr, ...] = ()
    value: Fraction | str | None = None
    _hash: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.op, self.args, self.value)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Expr)
            and self._hash == other._hash
            and (self.op, self.value, self.args) == (other.op, other.value, other.args)
        )

    @property
    def number(self) -> Fraction | None:
        """The exact rational value of a number node, else None."""
        return self.value if isinstance(self.value, Fraction) else None

    @property
    def is_constant(self) -> bool:
        """Whether no variable occurs below this node."""
        return not variables_of(self)

    def __str__(self) -> str:
        from transformula.formulas.printing import to_text

        return to_text(self)

    def __reduce__(self) -> tuple[type[Expr], tuple[object, ...]]:
        return (Expr, (self.op, self.args, self.value))  # hashes of strings differ by process


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


def variables_of(expr: Expr) -> frozenset[str]:
    """Names of the variables that occur in an expression."""
    return frozenset(str(node.value) for node in walk(expr) if node.op == "variable")


def number(value: Fraction | int) -> Expr:
    """A number node."""
    value = Fraction(value)
    bits = max(abs(value.numerator).bit_length(), value.denominator.bit_length())
    if bits > MAX_NUMBER_BITS:
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
    flat = [t for term in terms for t in (term.args if term.op == "add" else (term,))]
    total = sum((t.number for t in flat if t.number is not None), Fraction(0))
    rest = tuple(t for t in flat if t.number is None)
    if total or not rest:
        rest = (*rest, number(total))
    return rest[0] if len(rest) == 1 else Expr("add", rest)


def mul(*factors: Expr) -> Expr:
    """A flat product; numbers are folded exactly. Zero is not propagated: 0*log(x) keeps log's domain."""
    flat = [f for factor in factors for f in (factor.args if factor.op == "mul" else (factor,))]
    scale = Fraction(1)
    for f in flat:
        scale *= f.number if f.number is not None else 1
    rest = tuple(f for f in flat if f.number is None)
    if scale != 1 or not rest:
        rest = (number(scale), *rest)
    return rest[0] if len(rest) == 1 else Expr("mul", rest)


def neg(expr: Expr) -> Expr:
    """Minus an expression."""
    return mul(number(-1), expr)


def div(numerator: Expr, denominator: Expr) -> Expr:
    """A quotient; by a number it becomes a product."""
    if denominator.number is not None:
        if not denominator.number:
            raise FormulaError("the formula divides by zero")
        return mul(numerator, number(1 / denominator.number))
    return Expr("div", (numerator, denominator))


def power(base: Expr, exponent: Expr) -> Expr:
    """A power; rational ** integer is folded exactly within the size limit."""
    exact, by = base.number, exponent.number
    if by == 1:
        return base
    if exact is None or by is None or by.denominator != 1:
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
