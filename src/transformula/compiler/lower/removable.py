"""Removable singularities: sin(u)/u where u may vanish is sinc(u), erf(u)/u is erf_rest1(u), and so on.

A factor g of a quotient that vanishes with w = c·Πb^e is w^m times something that does not: sin(u) = u·sinc(u), a
function of the registry with a zero is (u − a)^m times its rest (`taylor_rests`), and so is a sum such as exp(u) − 1 or
cos(u) − 1 + u²/2. If the quotient divides often enough by every b that may vanish in w (or multiplies by it, if g is in
the denominator), the second form is also defined where the first is not, and extends it continuously. Each replacement
of one quotient in the formula is a `Step`; the steps are applied one after the other, and the kernel checks each of
them.

Whole numbers up to ``policy.LAST_ZERO`` are looked at as places of zeros, and orders up to ``policy.MOST_ORDER``. Sums
are of powers and of functions of arguments that are multiples of each other, up to a constant and times such powers:
exp(u) − 1, (exp(u) − exp(−u))/2, sin(u) − u·cos(u).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from flint import arb

from transformula.compiler import policy
from transformula.compiler.lower.factors import factors_of, product_of, quotient_of, rewritten
from transformula.kernel.arithmetic import precision
from transformula.kernel.derivations.extensions import is_analytic, split_quotient, stem
from transformula.kernel.derivations.normal_forms import Algebra
from transformula.kernel.enclosures.balls import enclose, to_fmpq, to_fraction
from transformula.kernel.enclosures.intervals import try_range
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.exceptions import FormulaError, RefutedError
from transformula.kernel.functions.function_table import find
from transformula.kernel.functions.taylor_rests import first_terms, rest_named
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box
from transformula.kernel.syntax.expression import Expr, substitute, to_text, variables_of, walk
from transformula.kernel.syntax.parsing import parse

#: Bits of precision at a point.
_BITS = 128
#: Places inside an interval at which a quotient is looked at, as parts of its length.
_SHARES = (Fraction(1, 2), Fraction(5, 8), Fraction(3, 8), Fraction(3, 4), Fraction(1, 4), Fraction(9, 16))


@dataclass(frozen=True)
class Step:
    """``of`` in the formula becomes ``becomes``; ``at`` is a point of the box where ``of`` is defined."""

    of: Expr
    becomes: Expr
    at: tuple[tuple[str, Fraction], ...]

    def applied(self, expr: Expr) -> Expr:
        """The expression after the step."""
        return substitute(expr, {self.of: self.becomes})


def removable_steps(outputs: Sequence[Expr], box: Box) -> tuple[tuple[Expr, ...], list[Step]]:
    """The outputs without quotients such as sin(u)/u where u may vanish on the box, and the steps that lead there.

    Examples
    --------
    >>> (found,), steps = removable_steps([parse("exp(sin(2*x)/x)")], Box.of("x=-1..1"))
    >>> str(found), [(str(step.of), str(step.becomes)) for step in steps]
    ('exp(2*sinc(2*x))', [('sin(2*x)/x', '2*sinc(2*x)')])
    """
    current, steps = tuple(outputs), list[Step]()
    while len(steps) < policy.MOST_ROUNDS:
        step = next(_possible(current, box), None)
        if step is None:
            break
        current = tuple(step.applied(expr) for expr in current)
        steps.append(step)
    return current, steps


def without_removable(expr: Expr, box: Box) -> Expr:
    """The expression with sin(u)/u written as sinc(u) wherever u may vanish on the box.

    Examples
    --------
    >>> str(without_removable(parse("sin(x)**2/x**2 + sin(y)/y"), Box.of("x=-1..1, y=1..2")))
    'sinc(x)**2 + sin(y)/y'
    """
    (extended,), _ = removable_steps([expr], box)
    return extended


def _possible(outputs: Sequence[Expr], box: Box) -> Iterator[Step]:
    """Steps that can be taken next, the innermost quotients first."""
    ends = Region.of_box(box).ends
    for expr in outputs:
        for node in walk(expr):
            if (closed := _closed_log(node, box)) is not None:
                yield closed
            quotient = node.op in ("add", "mul", "div", "pow") and is_analytic(stem(split_quotient(node)[1]), ends)
            new = _without_zeros(node, box) if quotient else None
            at = None if new is None else defined_at(node, box)
            if new is None or at is None:
                continue
            try:
                becomes = parse(to_text(new), box.variables)
                same = parse(to_text(node), box.variables) == node
            except FormulaError:
                continue
            if same and becomes != node:
                yield Step(node, becomes, at)


def _without_zeros(node: Expr, box: Box) -> Expr | None:
    """The same quotient, or sum of quotients, without a division by something that may vanish, or a step towards it."""
    ends = Region.of_box(box).ends
    whole = ex.div(*split_quotient(node)) if node.op == "add" else node
    steep = any(n.op == "sqrt" and may_vanish(n.args[0], box) for n in walk(whole))  # its rest has no table
    first = rewritten(whole, ends) if steep else None
    found = first or _repaired(whole, box) or rewritten(whole, ends) or _exposed(whole, box)
    if found is None and may_vanish(split_quotient(whole)[1], box):
        from transformula.compiler.lower.rest_quotients import cancelled  # few formulas need it

        found = cancelled(whole, box)
    return None if found is None else by_its_rests(found)


def _repaired(expr: Expr, box: Box) -> Expr | None:
    """The same quotient without a division by something that may vanish, if another factor cancels it."""
    constant, powers = factors_of(expr)
    if not any(e < 0 and may_vanish(b, box) for b, e in powers.items()):
        return None
    changed = False
    for base, exponent in list(powers.items()):
        if exponent.denominator != 1:
            continue
        for w, order, left in zeros_of(base, lambda b: may_vanish(b, box)):
            scale, inside = factors_of(w)
            sign = 1 if exponent > 0 else -1
            divided = {b: -sign * powers.get(b, Fraction(0)) for b in inside if may_vanish(b, box)}
            if any(inside[b] <= 0 for b in divided):
                continue
            shares = [share / (order * inside[b]) for b, share in divided.items() if share > 0 or sign < 0]
            times = sign * Fraction(int(min(sign * exponent, *shares))) if shares and min(shares) > 0 else Fraction(0)
            if not times:
                continue
            powers[base] -= times
            for b, e in (*((b, order * e) for b, e in inside.items()), (left, Fraction(1))):
                powers[b] = powers.get(b, Fraction(0)) + times * e  # there may be some already
            constant = ex.mul(constant, ex.power(scale, ex.number(times * order)))
            changed = True
            break
    if any(e < 0 and may_vanish(b, box) for b, e in powers.items()):
        together = _together(expr, box)
        if together is not None:
            return together
    return quotient_of(constant, {b: e for b, e in powers.items() if e}) if changed else None


def _together(expr: Expr, box: Box) -> Expr | None:
    """The same quotient with all its factors that vanish where one of them does taken apart at once."""
    constant, powers = factors_of(expr)
    for base in powers:
        for w, *_ in zeros_of(base, lambda b: may_vanish(b, box)):
            left: list[tuple[Expr, Fraction]] = []
            for b, e in powers.items():
                zeros = zeros_of(b, lambda v: may_vanish(v, box)) if e.denominator == 1 else ()
                found = ((_ratio(v, w), order, rest) for v, order, rest in zeros)
                zero = next(((ratio**order, order, rest) for ratio, order, rest in found if ratio), None)
                if zero is None:
                    left.append((b, e))
                else:
                    left += [(ex.number(zero[0]), e), (w, zero[1] * e), (zero[2], e)]
            scale, parts = factors_of(ex.mul(*(ex.power(b, ex.number(e)) for b, e in left)))
            if not any(e < 0 and may_vanish(b, box) for b, e in parts.items()):
                return quotient_of(ex.mul(constant, scale), parts)
    return None


def _closed_log(node: Expr, box: Box) -> Step | None:
    """x·log(x) as xlogx(x), √x·log(x)² as 16·xlogx(x^(1/4))², x^x as exp(xlogx(x)), where x may vanish."""
    power = node.op == "pow" and node.args[1].number is None
    whole = ex.mul(node.args[1], ex.call("log", node.args[0])) if power else node
    constant, powers = factors_of(whole) if any(n.op == "log" for n in walk(whole)) else (whole, {})
    for log, times in powers.items():
        if log.op != "log" or times.denominator != 1 or times < 1 or not may_vanish(log.args[0], box):
            continue
        (u,) = log.args
        scale, inside = factors_of(u)
        zero = [b for b in inside if may_vanish(b, box)]
        share = min((powers.get(b, Fraction(0)) / inside[b] for b in zero), default=Fraction(0))
        if share <= 0 or any(inside[b] <= 0 for b in zero):
            continue
        share = min(share, times)
        closed = ex.call("xlogx", ex.power(u, ex.number(share / times)))
        found = ((b, powers.get(b, 0) - share * inside.get(b, 0)) for b in powers | inside if b != log)
        left = {b: e for b, e in found if e}
        constant = constant if scale == ex.number(1) else ex.div(constant, ex.power(scale, ex.number(share)))
        new = ex.mul(quotient_of(constant, left), ex.power(ex.mul(ex.number(times / share), closed), ex.number(times)))
        at = defined_at(node, box)
        if at is not None and not any(e < 0 and may_vanish(b, box) for b, e in left.items()):
            return Step(node, ex.call("exp", new) if power else new, at)
    return None


def _exposed(expr: Expr, box: Box) -> Expr | None:
    """The same quotient with a sum written by its zero, where a factor of that zero has zeros of its own.

    1 − exp(−n·log(1 + r)) becomes n·log(1 + r)·exp_rest1(−n·log(1 + r)): next, log(1 + r) may cancel r.
    """
    constant, powers = factors_of(expr)
    if not any(e < 0 and may_vanish(b, box) for b, e in powers.items()):
        return None
    for base, exponent in powers.items():
        for w, order, left in zeros_of(base, lambda b: may_vanish(b, box)) if base.op == "add" else ():
            inner = [b for b in factors_of(w)[1] if b.op != "variable" and may_vanish(b, box)]
            if any(True for b in inner for _ in zeros_of(b, lambda v: may_vanish(v, box))):
                scale, inside = factors_of(ex.mul(power_of(w, order), left))
                others = {b: e for b, e in powers.items() if b != base}
                for b, e in inside.items():
                    others[b] = others.get(b, Fraction(0)) + exponent * e
                return quotient_of(ex.mul(constant, ex.power(scale, ex.number(exponent))), others)
    return None


def defined_at(expr: Expr, box: Box) -> tuple[tuple[str, Fraction], ...] | None:
    """A point of the box, in short rationals, at which the expression is defined."""
    names = [name for name in box.variables if name in variables_of(expr)]
    for shift in range(len(_SHARES)):
        point = {
            name: _inside(box, box.variables.index(name), _SHARES[(shift + k) % len(_SHARES)])
            for k, name in enumerate(names)
        }
        with precision(_BITS):
            if enclose(expr, {name: arb(to_fmpq(x)) for name, x in point.items()}).is_finite():
                return tuple(point.items())
    return None


def _inside(box: Box, index: int, share: Fraction) -> Fraction:
    """A rational with few digits, about that fraction of the way from an interval's lower end to its upper one."""
    with precision(_BITS):
        low, high = enclose(box.lower[index]), enclose(box.upper[index])
        _, exponent = (high - low).mid().man_exp()
        bits = int((high - low).mid().man_exp()[0]).bit_length() + int(exponent)
        grain = Fraction(2) ** (bits - 6)  # at most a sixteenth of the interval
        place = low + arb(to_fmpq(share)) * (high - low)
        mantissa, exponent = (place.mid() / arb(to_fmpq(grain)) + arb("0.5")).floor().mid().man_exp()
        return Fraction(int(mantissa)) * Fraction(2) ** int(exponent) * grain


#: What vanishes, how often, and what is left: g = vanishing**order * left.
Zero = tuple[Expr, int, Expr]


def zeros_of(g: Expr, may_vanish: Callable[[Expr], bool]) -> Iterator[Zero]:
    """Ways to write an expression as a power times something else, those of the highest order first.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> [(str(w), m, str(left)) for w, m, left in zeros_of(parse("cos(x) - 1"), lambda e: True)]
    [('x', 2, 'cos_rest2(x)'), ('x', 1, 'cos_rest1(x)')]
    """
    if g.op == "sin":
        yield g.args[0], 1, ex.call("sinc", g.args[0])
    elif g.op == "add" and len(g.args) <= policy.ZERO_TERMS:
        yield from _of_sum(g, may_vanish)
    elif len(g.args) == 1:
        for at in range(policy.LAST_ZERO + 1):
            w = less(g.args[0], at)
            for order in reversed(range(1, policy.MOST_ORDER + 1)):
                terms = terms_before(g, at, order) if may_vanish(w) else None
                if terms is not None and not any(terms):
                    yield w, order, rest_call(g, at, order)


def by_its_rests(expr: Expr) -> Expr:
    """The same with f(u) and its rests at u all written by the last of these: so is what it is compared with.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> str(by_its_rests(parse("exp(x)*exp(y)/exp_rest1(x)")))
    '(x*exp_rest1(x) + 1)*exp(y)/exp_rest1(x)'
    >>> str(by_its_rests(parse("sinh_rest3(x)/sinh_rest1(x)")))
    'sinh_rest3(x)/(x**2*sinh_rest3(x) + 1)'
    """
    last: dict[tuple[Expr, int], int] = {}
    for node in walk(expr):
        if (rest := rest_named(node.op)) is not None:
            key = ex.call(rest.base, *node.args), rest.at
            last[key] = max(rest.order, last.get(key, 0))
    swap: dict[Expr, Expr] = {}
    for (call, at), order in last.items():
        swap |= {rest_call(call, at, k) if k else call: _expanded(call, at, k, order) for k in range(order)}
        if call.op == "sin" and not at and order > 1:
            swap[ex.call("sinc", *call.args)] = _expanded(call, at, 1, order)
    return substitute(expr, swap)


def _expanded(call: Expr, at: int, first: int, order: int) -> Expr:
    """The rest of a function after its first terms, as the terms up to an order and the rest after those."""
    w, terms = ex.add(call.args[0], ex.number(-at)), terms_before(call, at, order) or []
    known = [ex.mul(ex.number(c), power_of(w, j)) for j, c in enumerate(terms[first:]) if c]
    return ex.add(*known, ex.mul(power_of(w, order - first), rest_call(call, at, order)))


def _of_sum(g: Expr, may_vanish: Callable[[Expr], bool]) -> Iterator[Zero]:
    parts = [_scaled(term) for whole in g.args for term in _distributed(whole)]
    calls = [call for _, call in parts if call is not None]
    for at in range(policy.LAST_ZERO + 1) if calls and len(parts) <= policy.ZERO_TERMS else ():
        if not may_vanish(ex.add(calls[0].args[0], ex.number(-at))):
            continue
        for order in reversed(range(1, policy.MOST_ORDER + 1)):
            yield from _checked(g, parts, calls, at, order)


def _distributed(term: Expr) -> Sequence[Expr]:
    """The terms of a product with one sum in it."""
    factors = term.args if term.op == "mul" else (term,)
    sums = [a for a in factors if a.op == "add"]
    if len(sums) != 1:
        return (term,)
    return [ex.mul(part, *(a for a in factors if a is not sums[0])) for part in sums[0].args]


def _scaled(term: Expr) -> tuple[Expr, Expr | None]:
    """A factor, and the one function of a single argument in a term, if there is just one."""
    factors = term.args if term.op == "mul" else (term,)
    calls = [a for a in factors if not a.is_constant and len(a.args) == 1 and find(a.op)]
    return (ex.mul(*(a for a in factors if a is not calls[0])), calls[0]) if len(calls) == 1 else (term, None)


def _checked(g: Expr, parts: list[tuple[Expr, Expr | None]], calls: list[Expr], at: int, order: int) -> Iterator[Zero]:
    """The sum as the rests of its functions, if the terms before these cancel."""
    first = ex.add(calls[0].args[0], ex.number(-at))
    needed = {call: order - min(_times(first, scale) for scale, c in parts if c is call) for call in calls}
    left: list[Expr] = []
    for scale, call in parts:
        times = min(_times(first, scale), order)
        cut = product_of(*factors_of(ex.mul(scale, power_of(first, -times))))
        own = 0 if call is None else max(needed[call], 0)
        ratio = Fraction(1) if call is None else _ratio(ex.add(call.args[0], ex.number(-at)), first)
        terms = terms_before(call, at, own) if call is not None and own else []
        if ratio is None or terms is None:
            return
        terms = [Fraction(1)] if call is None else terms
        for j, c in enumerate(terms):  # those of a lower order have to cancel
            if c and times + j >= order:
                left.append(ex.mul(ex.number(c * ratio**j), cut, power_of(first, times + j - order)))
        if call is not None:
            rest = rest_call(call, at, own) if own else call
            left.append(ex.mul(ex.number(ratio**own), cut, power_of(first, times + own - order), rest))
    found = ex.add(*left)
    algebra = Algebra(sorted(g.names))
    try:
        swap = {call: _expanded(call, at, 0, own) for call, own in needed.items() if own > 0}
        if algebra.same(algebra.of(substitute(g, swap)), algebra.of(ex.mul(power_of(first, order), found))):
            yield first, order, found
    except RefutedError:
        return


def _times(w: Expr, expr: Expr) -> int:
    """Multiplicity of a factor in an expression, as far as it is visible."""
    (_, inside), (_, powers) = factors_of(w), factors_of(expr)
    return max(min((int(powers.get(b, Fraction(0)) / e) for b, e in inside.items()), default=0), 0)


def _ratio(one: Expr, other: Expr) -> Fraction | None:
    (a, powers), (b, others) = factors_of(one), factors_of(other)
    return a.number / b.number if powers == others and a.number and b.number else None


def may_vanish(expr: Expr, box: Box) -> bool:
    """Whether an expression is not seen to be other than zero everywhere."""
    low, high = try_range(expr, Region.of_box(box).ends) or (0, 0)
    return bool(low <= 0 <= high)


def less(u: Expr, at: int) -> Expr:
    """u − at, as one quotient if u is one."""
    if u.op == "div" and at:
        return ex.div(ex.add(u.args[0], ex.mul(ex.number(-at), u.args[1])), u.args[1])
    return ex.add(u, ex.number(-at))


def power_of(w: Expr, by: int) -> Expr:
    """w**by, 1 for 0."""
    return ex.power(w, ex.number(by)) if by else ex.number(1)


def terms_before(call: Expr, at: int, order: int) -> list[Fraction] | None:
    """The Taylor coefficients of a function below an order, if they are exact."""
    base = find(call.op)
    found = None if base is None else first_terms(base, at, order)
    return None if found is None else [to_fraction(c) for c in found]


def rest_call(call: Expr, at: int, order: int) -> Expr:
    """The rest of a function after its first terms."""
    name, *index = call.op.partition(":")
    return ex.call(f"{name}_rest{order}{f'_at{at}' if at else ''}{''.join(index)}", *call.args)
