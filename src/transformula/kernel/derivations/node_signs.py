"""Signs of the nodes of an expression: from those of its arguments, and of normal forms where these do not tell.

A sign is 2 (> 0), 1 (>= 0), -1, -2 or 0 (unknown), at every point of the box at which the node is defined: a
divisor is not zero there, and what stands under a root is not negative. A sum of terms >= 0, one of them > 0, is
> 0; signs of factors multiply; equal factors are a power. Normal forms multiply everything out and lose such
signs, but know those that are proven, and all that follows from cancellation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from transformula.kernel.derivations.algebra import QuotientForm
from transformula.kernel.derivations.normal_forms import Algebra
from transformula.kernel.derivations.polynomial_signs import direction, product
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.functions.function_table import find
from transformula.kernel.syntax.expression import Expr, walk


class NodeSigns:
    """Signs of nodes under what an algebra knows; ``names`` gives the forms of further variables."""

    def __init__(self, algebra: Algebra, names: Mapping[str, QuotientForm] | None = None) -> None:
        self.algebra, self.names = algebra, names
        self.forms: dict[Expr, QuotientForm] = {}
        self.known: dict[Expr, int] = {}

    def of(self, expr: Expr) -> int:
        """The sign of an expression."""
        for node in walk(expr):
            if node not in self.known:
                sign = self._node(node, [self.known[a] for a in node.args])
                self.known[node] = sign if abs(sign) == 2 else max(sign, self._form(node), key=abs)
        return self.known[expr]

    def _form(self, node: Expr) -> int:
        try:
            return self.algebra.sign(self.algebra.of(node, self.names, done=self.forms))
        except RefutedError:  # too large
            return 0

    def _node(self, node: Expr, args: list[int]) -> int:
        op = node.op
        if node.number is not None:
            return 2 * direction(node.number) or 1
        if op == "add":
            return max(args, key=abs) if min(args) > 0 or max(args) < 0 else 0
        if op == "mul":
            return product([(self.known[factor], count) for factor, count in Counter(node.args).items()])
        if op == "div":
            return product([(args[0], 1), (2 * direction(args[1]), 1)])
        if op == "pow":
            by = node.args[1].number
            if by is None or by.denominator != 1:
                return 2 if args[0] == 2 or (by is not None and by < 0) else 1
            sign = product([(args[0], int(by))])
            return sign if by > 0 else 2 * direction(sign)
        if op in ("sqrt", "abs"):
            return max(abs(args[0]), 1)
        if op in ("min", "max"):
            return min(args) if op == "min" else max(args)
        function = find(op)
        if function is None:
            return 2 if op == "constant" else 0
        return args[0] if function.odd else function.sign
