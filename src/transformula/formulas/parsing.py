"""Text to expressions, safely: a tokenizer, a precedence grammar, a whitelist. Nothing is executed.

Python's own ``ast`` would do for short formulas, but it nests a sum of n terms n levels deep and
overflows at about 3,000 of them; the grammar below keeps sums and products flat. ::

    sum     = product (("+" | "-") product)*
    product = unary (("*" | "/") unary)*
    unary   = ("+" | "-") unary | power
    power   = atom ["**" unary]              right associative, -x**2 is -(x**2)
    atom    = number | name | name "(" sum ("," sum)* ")" | "(" sum ")"
"""

from __future__ import annotations

import re
from collections.abc import Collection
from fractions import Fraction

from transformula.errors import FormulaError
from transformula.formulas import expression as ex
from transformula.formulas.expression import Expr

MAX_LENGTH = 1_000_000
MAX_DEPTH = 100
#: Decimal exponents beyond this are outside every float format anyway.
MAX_DECIMAL_EXPONENT = 5_000

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<symbol>\*\*|[-+*/(),]))",
    re.ASCII,
)


def parse(text: str, variables: Collection[str] | None = None) -> Expr:
    """Parse one formula.

    Parameters
    ----------
    text : str
        The formula, e.g. ``"0.1*x**2 + sin(y)"``. Decimals are exact: 0.1 is 1/10.
    variables : collection of str, optional
        The declared names. They win over the constants pi and E; any other name is refused.
        None accepts every name as a variable.

    Examples
    --------
    >>> str(parse("x*(1 + 0.5)", ["x"]))
    '3/2*x'
    """
    if not isinstance(text, str):
        raise FormulaError(f"a formula must be text, not {type(text).__name__}")
    return _Parser(text, variables).parse()


def parse_constant(text: str) -> Expr:
    """Parse an expression without variables, such as an interval's end."""
    expr = parse(text, ())
    return expr


class _Parser:
    def __init__(self, text: str, variables: Collection[str] | None) -> None:
        if len(text) > MAX_LENGTH:
            raise FormulaError(f"the formula has {len(text)} characters; at most {MAX_LENGTH}")
        self.text, self.variables = text, variables
        self.tokens = self._tokenize()
        self.index = self.depth = 0

    def _tokenize(self) -> list[tuple[str, str, int]]:
        tokens, position = [], 0
        end = len(self.text.rstrip())
        while position < end:
            match = _TOKEN.match(self.text, position)
            if match is None:
                rest = self.text[position:].lstrip()
                hint = ": write ** for a power" if rest[0] == "^" else ""
                at = len(self.text) - len(rest)
                raise self._error(f"unexpected {rest[0]!r}{hint}", at)
            kind = str(match.lastgroup)
            tokens.append((kind, match[kind], match.start(kind)))
            position = match.end()
        return tokens

    def _error(self, message: str, position: int | None = None) -> FormulaError:
        if position is None:
            position = self.tokens[self.index][2] if self.index < len(self.tokens) else -1
        place = "at the end" if position < 0 else f"at character {position + 1}"
        shown = self.text if len(self.text) <= 60 else self.text[:57] + "..."
        return FormulaError(f"can not read the formula {shown!r}: {message} {place}")

    def _peek(self) -> str | None:
        if self.index < len(self.tokens) and self.tokens[self.index][0] == "symbol":
            return self.tokens[self.index][1]
        return None

    def _accept(self, *symbols: str) -> str | None:
        symbol = self._peek()
        if symbol not in symbols:
            return None
        self.index += 1
        return symbol

    def parse(self) -> Expr:
        if not self.tokens:
            raise FormulaError("the formula is empty")
        expr = self._sum()
        if self.index < len(self.tokens):
            token = self.tokens[self.index][1]
            raise self._error("unbalanced ')'" if token == ")" else f"unexpected {token!r}")
        return expr

    def _sum(self) -> Expr:
        terms = [self._product()]
        while sign := self._accept("+", "-"):
            term = self._product()
            terms.append(ex.neg(term) if sign == "-" else term)
        return ex.add(*terms) if len(terms) > 1 else terms[0]

    def _product(self) -> Expr:
        above: list[Expr] = [self._unary()]
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
        with self._nested():
            inner = self._unary()
        return ex.neg(inner) if sign == "-" else inner

    def _power(self) -> Expr:
        base = self._atom()
        if not self._accept("**"):
            return base
        with self._nested():
            exponent = self._unary()
        return ex.power(base, exponent)

    def _atom(self) -> Expr:
        if self.index >= len(self.tokens):
            raise self._error("something is missing")
        kind, token, position = self.tokens[self.index]
        if kind == "number":
            self.index += 1
            return ex.number(self._exact(token, position))
        if kind == "name":
            self.index += 1
            return self._call(token, position) if self._peek() == "(" else self._name(token)
        if self._accept("("):
            with self._nested():
                inner = self._sum()
            self._close()
            return inner
        raise self._error(f"unexpected {token!r}")

    def _close(self) -> None:
        if not self._accept(")"):
            raise self._error("a ')' is missing")

    def _exact(self, token: str, position: int) -> Fraction:
        exponent = token.lower().partition("e")[2]
        if exponent and (len(exponent) > 6 or abs(int(exponent)) > MAX_DECIMAL_EXPONENT):
            raise self._error(f"the number {token[:20]} is out of range", position)
        if len(token) > ex.MAX_NUMBER_DIGITS:
            raise self._error(f"a number of {len(token)} digits is too long", position)
        return Fraction(token)

    def _call(self, name: str, position: int) -> Expr:
        known = name in ex.FUNCTIONS or name in ex.VARIADIC
        if not known:
            names = " ".join((*ex.FUNCTIONS, *ex.VARIADIC))
            raise self._error(f"unknown function {name!r} (known: {names})", position)
        self._accept("(")
        with self._nested():
            args = [self._sum()]
            while self._accept(","):
                args.append(self._sum())
        self._close()
        if name in ex.FUNCTIONS and len(args) != 1:
            raise self._error(f"{name} takes one argument, not {len(args)}", position)
        if name in ex.VARIADIC and len(args) < 2:
            raise self._error(f"{name} takes two arguments or more", position)
        return ex.call(name, *args)

    def _name(self, name: str) -> Expr:
        if self.variables is not None and name in self.variables:
            return ex.variable(name)
        if name in ex.CONSTANTS:
            return ex.constant(name)
        if self.variables is None:
            return ex.variable(name)
        known = ", ".join(self.variables) if self.variables else "none here"
        raise FormulaError(
            f"unknown name {name!r} in the formula; the variables are: {known}. "
            f"Add {name}=low..high to the box"
            if self.variables
            else f"{name!r} is not a number: only numbers, pi, E and functions of them fit here"
        )

    def _nested(self) -> _Nesting:
        return _Nesting(self)


class _Nesting:
    """Counts depth, so that hostile nesting ends in a sentence and not in a stack overflow."""

    def __init__(self, parser: _Parser) -> None:
        self.parser = parser

    def __enter__(self) -> None:
        self.parser.depth += 1
        if self.parser.depth > MAX_DEPTH:
            raise FormulaError(f"the formula is nested more than {MAX_DEPTH} levels deep")

    def __exit__(self, *_: object) -> None:
        self.parser.depth -= 1
