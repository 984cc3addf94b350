"""where(condition, a, b) as one continuous expression; a jump is refused.

*Lemma.* Let the condition be x >= s, with s free of the variable x, and let a = b wherever x = s. Then

    where(x >= s, a, b) = a(max(x, s)) + b(min(x, s)) - a(s),

a(t) being a with t for x: for x >= s the last two cancel, as b(s) = a(s), and for x <= s the first and the last do; so
do the last two everywhere if b is free of x (they are left out if b is defined for all numbers), likewise the others.
What stands on the right is proven to be defined on the whole box like any formula, so a and b need only be defined on
their own sides, and both on the seam. That a = b there is an identity: their normal forms are equal.
"""

from __future__ import annotations

from flint import arb

from transformula.kernel.derivations.normal_forms import Algebra
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.exceptions import FormulaError, Reason, RefutedError
from transformula.kernel.functions.function_table import is_open
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.syntax.printing import short_text


def where(left: Expr, sign: str, right: Expr, a: Expr, b: Expr) -> Expr:
    """The expression that is a where left > right (or <, <=, >=), and b elsewhere."""
    larger, smaller = (left, right) if sign[0] == ">" else (right, left)
    name, seam, above = _solved(ex.add(larger, ex.neg(smaller)))
    x, (a, b) = ex.variable(name), (a, b) if above else (b, a)
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
    """How many nodes it has, each as often as it stands there."""
    return ex.fold(expr, lambda _, sizes: 1 + sum(sizes))


def _solved(difference: Expr) -> tuple[str, Expr, bool]:
    """A variable x, s without x, and whether difference >= 0 means x >= s (or else x <= s)."""
    terms = difference.args if difference.op == "add" else (difference,)
    for name in sorted(difference.names):
        own = [term for term in terms if name in term.names]
        scale, x = own[0].args if own[0].op == "mul" and len(own[0].args) == 2 else (ex.number(1), own[0])
        if len(own) == 1 and x == ex.variable(name) and scale.number:
            rest = ex.add(*(term for term in terms if term is not own[0]))
            return name, ex.mul(ex.number(-1 / scale.number), rest), scale.number > 0
    said = "a condition must be linear in one of its variables, as in where(x > 2*y, .., ..)"
    raise FormulaError(said, Reason.CONDITION)


def check_meeting(place: str, a: Expr, b: Expr) -> None:
    """Refuse two values at a place that are not seen to be equal."""
    jump, algebra, size = ex.add(a, ex.neg(b)), Algebra(sorted(a.names | b.names)), arb.nan()
    try:
        size = size if jump.names else enclose(jump)
        apart = size.is_finite() and not size.contains(0)
        if size.is_zero() or (not apart and algebra.same(algebra.of(a), algebra.of(b))):  # just zero, or an identity
            return
    except RefutedError:  # too large, or divided by zero
        pass
    if not size.is_finite() or size.contains(0):
        said = f"the pieces are not seen to meet at {place}: they differ by {short_text(jump)} there"
        raise FormulaError(said, Reason.JUMP)
    shown = f"{abs(float(size.mid())):.6g}"
    said = f"the formula jumps by {shown} at {place}, and only continuous formulas can be compiled"
    raise FormulaError(said, Reason.JUMP)
