"""Normal forms: expressions with equal forms are equal wherever both are defined.

`algebra` says what forms are and why that holds, `signs` what is known of them, `identities` how functions
become forms. All three are total: what they cannot simplify stays as it is, what is too large is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

from flint.utils.flint_exceptions import FlintError

from transformula.kernel.derivations.algebra import QuotientForm
from transformula.kernel.derivations.identities import Identities
from transformula.kernel.enclosures.balls import to_fmpq
from transformula.kernel.exceptions import Reason, RefutedError
from transformula.kernel.syntax.expression import Expr, walk

_Result = TypeVar("_Result")


def _guarded(action: Callable[[], _Result]) -> _Result:
    """Hostile nesting or sizes end in a refusal; out of memory, nothing is known of the ring, and the check ends."""
    try:
        return action()
    except (RecursionError, ArithmeticError, ValueError, FlintError) as error:
        said = f"a normal form could not be computed ({type(error).__name__})"
        raise RefutedError(said, reason=Reason.UNCOMPARED) from None


class Algebra(Identities):
    """Normal forms of expressions in the given variables.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> algebra = Algebra(["x", "y"])
    >>> a, b = (algebra.of(parse(t)) for t in ("((x + y)**2 - (x - y)**2)/4", "x*y"))
    >>> algebra.same(a, b)
    True
    >>> algebra.same(algebra.of(parse("max(x, -x)*exp(2*x)")), algebra.of(parse("abs(x*exp(x)**2)")))
    True
    """

    def __init__(self, variables: Sequence[str]) -> None:
        super().__init__()
        self.start(max(16, 2 * len(variables)))
        self.named = {name: self.atom(f"variable:{name}") for name in variables}

    def of(
        self, expr: Expr, names: Mapping[str, QuotientForm] | None = None, done: dict[Expr, QuotientForm] | None = None
    ) -> QuotientForm:
        """The form of an expression; ``names`` gives the forms of further variables.

        ``done`` keeps the forms of nodes for the next call with the same names and signs.
        """
        known = {**self.named, **(names or {})}
        forms = {} if done is None else done

        def action() -> QuotientForm:
            for node in walk(expr):
                if node not in forms:
                    forms[node] = self._node(node, [forms[a] for a in node.args], known)
            return forms[expr]

        return _guarded(action)

    def _node(self, node: Expr, args: list[QuotientForm], known: Mapping[str, QuotientForm]) -> QuotientForm:
        op = node.op
        if op == "number":
            return self.constant(to_fmpq(node.number or Fraction(0)))
        if op == "constant":
            return self.pi if node.value == "pi" else self.exp(self.unit)
        if op == "variable":
            if str(node.value) not in known:
                raise RefutedError(f"the name {str(node.value)[:40]} means nothing here")
            return known[str(node.value)]
        if op == "add":
            return self.sum(args)
        if op == "mul":
            result = args[0]
            for a in args[1:]:
                result = result * a
            return result
        if op == "div":
            return args[0] * self.inverse(args[1])
        if op == "pow":
            return self.raised(args[0], args[1])
        return self._extreme(op, args) if op in ("min", "max") else self.call(op, args[0])

    def _extreme(self, op: str, args: list[QuotientForm]) -> QuotientForm:
        """The extreme of several forms, by a balanced tree in the order written."""
        if len(args) == 1:
            return args[0]
        a, b = (self._extreme(op, half) for half in (args[: len(args) // 2], args[len(args) // 2 :]))
        bent = (a - b) * self.step(a - b)
        return b + bent if op == "max" else a - bent

    def relu(self, form: QuotientForm) -> QuotientForm:
        """max(p, 0)."""
        return _guarded(lambda: form * self.step(form))

    def root(self, form: QuotientForm, q: int = 2) -> QuotientForm:
        """The q-th root of a form, where it is not negative."""
        return _guarded(lambda: super(Algebra, self).root(form, q))

    def learn(self, form: QuotientForm, sign: int) -> None:
        """Record a sign proven on the whole box: 2 (> 0), 1 (>= 0), -1, -2."""
        _guarded(lambda: super(Algebra, self).learn(form, sign))

    def same(self, a: QuotientForm, b: QuotientForm) -> bool:
        """Whether the forms are seen to be equal; then so are the functions, wherever both are defined."""
        if a.key == b.key:
            return True
        return _guarded(lambda: bool((self.times(a.num, b.den) - self.times(b.num, a.den)).is_zero()))
