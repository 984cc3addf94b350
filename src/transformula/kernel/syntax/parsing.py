"""Text to expressions, safely: a tokenizer, a precedence grammar, a whitelist. Nothing is executed.

Python's own ``ast`` would do for short formulas, but it nests a sum of n terms n levels deep and
overflows at about 3,000 of them; the grammar below keeps sums and products flat. ::

    sum     = product (("+" | "-") product)*
    product = unary (("*" | "/") unary)*
    unary   = ("+" | "-") unary | power
    power   = atom [("**" | "^") unary]      right associative, -x**2 is -(x**2)
    atom    = number | name | name "(" sum ("," sum)* ")" | "(" sum ")" | pieces
    pieces  = "where(" test "," sum "," sum ")" | "Piecewise(" ("(" sum "," test ")" ",")+ "(" sum ", True))"
    test    = sum ("<" | "<=" | ">" | ">=") sum

Decimals are exact: 0.1 is 1/10. Names such as ``#w12`` stand for quantities of a circuit in evidence. They
are read only where they are declared, and no box can declare them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from fractions import Fraction
from functools import lru_cache

from transformula.kernel.exceptions import FormulaError
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.definitions import ALIASES, JUMPING, JUMPS, PIECEWISE, is_known, written_out
from transformula.kernel.syntax.expression import Expr, fold
from transformula.kernel.syntax.jumps import where

MAX_LENGTH = 1_000_000
MAX_DEPTH = 100
MAX_DIGITS = 4_000
#: Decimal exponents beyond this are outside every float format anyway.
MAX_DECIMAL_EXPONENT = 5_000

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_]\w*|#[a-z]\d+)|(?P<symbol>\*\*|[<>]=?|[-+*/^(),]))",
    re.ASCII,
)


def parse(text: str, variables: Collection[str] | None = None, jumps: bool = False) -> Expr:
    """One formula. Declared variables win over pi, E and e; other names are refused, or with None are variables.

    With ``jumps`` floors and signs are left in it, for `jumps.continuous` to take out.
    """
    if not isinstance(text, str):
        raise FormulaError(f"a formula must be text, not {type(text).__name__}")
    parser = _Parser(text, variables, jumps)
    expr = parser.parse()
    if parser.longer and fold(expr, lambda _, sizes: 1 + sum(sizes)) > MAX_LENGTH:
        raise FormulaError("the formula is too long once its functions are written out")
    return expr


@lru_cache(maxsize=256)
def _definition(text: str) -> Expr:
    return parse(text, ("u", "v", "w"), True)


class _Parser:
    def __init__(self, text: str, variables: Collection[str] | None, jumps: bool) -> None:
        if len(text) > MAX_LENGTH:
            raise FormulaError(f"the formula has {len(text)} characters; at most {MAX_LENGTH}")
        self.text = text
        self.variables = variables
        self.jumps = jumps
        self.index = self.depth = 0
        self.longer = False  # definitions repeat their arguments
        self.tokens: list[tuple[str, str, int]] = []
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                rest = text[position:].lstrip()
                raise self._error(f"unexpected {rest[0]!r}", len(text) - len(rest))
            kind = str(match.lastgroup)
            self.tokens.append((kind, match[kind], match.start(kind)))
            position = match.end()

    def _error(self, message: str, position: int | None = None, reason: object = None) -> FormulaError:
        if position is None:
            position = self.tokens[self.index][2] if self.index < len(self.tokens) else -1
        place = "at the end" if position < 0 else f"at character {position + 1}"
        shown = self.text if len(self.text) <= 60 else self.text[:57] + "..."
        at = len(self.text.rstrip()) if position < 0 else position
        return FormulaError(f"cannot read the formula {shown!r}: {message} {place}", reason, at)

    def _accept(self, *symbols: str) -> str | None:
        if self.index >= len(self.tokens) or self.tokens[self.index][0] != "symbol":
            return None
        symbol = self.tokens[self.index][1]
        self.index += symbol in symbols
        return symbol if symbol in symbols else None

    def _nested(self, read: Callable[[], Expr]) -> Expr:
        """Counts depth, so that hostile nesting ends in a sentence and not in a stack overflow."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise FormulaError(f"the formula is nested more than {MAX_DEPTH} levels deep")
        inner = read()
        self.depth -= 1
        return inner

    def parse(self) -> Expr:
        if not self.tokens:
            raise FormulaError("the formula is empty")
        expr = self._sum()
        if self.index < len(self.tokens):
            token = self.tokens[self.index][1]
            raise self._error("unbalanced ')'" if token == ")" else f"unexpected {token[:40]!r}")
        return expr

    def _sum(self) -> Expr:
        terms = [self._product()]
        while sign := self._accept("+", "-"):
            term = self._product()
            terms.append(ex.neg(term) if sign == "-" else term)
        return ex.add(*terms) if len(terms) > 1 else terms[0]

    def _product(self) -> Expr:
        above = [self._unary()]
        below: list[Expr] = []
        while sign := self._accept("*", "/"):
            (above if sign == "*" else below).append(self._unary())
        numerator = ex.mul(*above) if len(above) > 1 else above[0]
        if not below:
            return numerator
        return ex.div(numerator, ex.mul(*below) if len(below) > 1 else below[0])

    def _unary(self) -> Expr:
        sign = self._accept("+", "-")
        if sign is None:
            return self._power()
        inner = self._nested(self._unary)
        return ex.neg(inner) if sign == "-" else inner

    def _power(self) -> Expr:
        base = self._atom()
        return ex.power(base, self._nested(self._unary)) if self._accept("**", "^") else base

    def _atom(self) -> Expr:
        if self.index >= len(self.tokens):
            raise self._error("something is missing")
        kind, token, position = self.tokens[self.index]
        if kind == "symbol" and token != "(":
            raise self._error(f"unexpected {token[:40]!r}")
        self.index += 1
        if kind == "number":
            return ex.number(self._exact(token, position))
        if kind == "name":
            return self._call(token, position) if self._accept("(") else self._name(token)
        return self._closed(self._nested(self._sum))

    def _closed(self, inner: Expr) -> Expr:
        self._expect(")")
        return inner

    def _exact(self, token: str, position: int) -> Fraction:
        exponent = token.lower().partition("e")[2]
        if exponent and (len(exponent) > 6 or abs(int(exponent)) > MAX_DECIMAL_EXPONENT):
            raise self._error(f"the number {token[:20]} is out of range", position)
        if len(token) > MAX_DIGITS:
            raise self._error(f"a number of {len(token)} digits is too long", position)
        return Fraction(token)

    def _call(self, name: str, position: int) -> Expr:
        name = ALIASES.get(name, name)
        if name in (*JUMPS, *JUMPING) and not self.jumps:
            raise self._error(f"{name} jumps, and only continuous functions fit here; it stands", position)
        if name in PIECEWISE:
            self.longer = True
            return self._where() if name == "where" else self._piecewise()
        if not is_known(name):
            raise self._error(f"unknown function {name[:40]!r}", position)
        args = [self._nested(self._sum)]
        while self._accept(","):
            args.append(self._nested(self._sum))
        self._closed(args[-1])
        self.longer |= name not in ex.FUNCTIONS and name not in ex.VARIADIC
        try:
            return written_out(name, args, _definition)
        except FormulaError as error:
            raise self._error(str(error), position, error.reason) from None

    def _where(self) -> Expr:
        test = self._test()
        a, b = self._after(","), self._after(",")
        return where(*test, a, self._closed(b))

    def _piecewise(self) -> Expr:
        """A piecewise formula as where(first piece, rest)."""
        pieces = []
        while True:
            value = self._after("(")
            self._expect(",")
            if self.tokens[self.index : self.index + 1] and self.tokens[self.index][1] == "True":
                self.index += 1
                break
            pieces.append((self._test(), self._closed(value)))
            self._expect(",")
        self._closed(self._closed(value))
        for test, piece in reversed(pieces):
            value = where(*test, piece, value)
        return value

    def _test(self) -> tuple[Expr, str, Expr]:
        left, sign = self._nested(self._sum), self._accept("<", "<=", ">", ">=")
        if sign is None:
            raise self._error("a comparison such as x < 1 is missing")
        return left, sign, self._nested(self._sum)

    def _expect(self, symbol: str) -> None:
        if not self._accept(symbol):
            raise self._error(f"a {symbol!r} is missing")

    def _after(self, symbol: str) -> Expr:
        self._expect(symbol)
        return self._nested(self._sum)

    def _name(self, name: str) -> Expr:
        if self.variables is not None and name in self.variables:
            return ex.variable(name)
        if name in ex.CONSTANTS:
            return ex.constant(name)
        if self.variables is None and name[0] != "#":
            return ex.variable(name)
        if name == "e":
            return ex.constant("E")
        shown = name[:40]
        if not self.variables:
            raise FormulaError(f"{shown!r} is not a number: only numbers, pi, E and functions of them fit here")
        known = ", ".join(list(self.variables)[:20]) + (", .." if len(self.variables) > 20 else "")
        raise FormulaError(f"unknown name {shown!r} in the formula (the variables are {known})")
