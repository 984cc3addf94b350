"""Quotients in lowest terms, once their functions are written as first terms and rests.

Where u may vanish, exp(u) is 1 + u·exp_rest1(u), and so on: the quotient is then a rational function of variables,
rests and other functions, and what vanishes in numerator and denominator cancels. So (1 − exp(v))/(1 − c·exp(v)) with
v = −n(1 − c) has no 1 − c in it any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from transformula.compiler import policy
from transformula.compiler.lower.factors import lowest_terms
from transformula.compiler.lower.removable import less, may_vanish, power_of, rest_call, terms_before
from transformula.kernel.derivations.extensions import split_quotient
from transformula.kernel.enclosures.intervals import Ends, try_range
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.functions.function_table import find
from transformula.kernel.functions.taylor_rests import rest_named
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box
from transformula.kernel.syntax.expression import Expr, fold, substitute, walk


def cancelled(quotient: Expr, box: Box) -> Expr | None:
    """The quotient in lowest terms, its functions f(u) written as first terms and rests where u may be near a zero.

    Those of one argument u, if that is enough.
    """
    parts = split_quotient(quotient)
    inner = list(dict.fromkeys(n.args[0] for n in walk(quotient) if n.names and len(n.args) == 1 and find(n.op)))
    for chosen in (*([u] for u in inner), inner) if 1 < len(inner) <= policy.MOST_ORDER else (inner,):
        for order in range(1, policy.MOST_ORDER + 1):
            symbols: dict[Expr, Expr] = {}
            written = ex.div(*(_in_symbols(part, order, box, chosen, symbols) for part in parts))
            if not any(rest_named(call.op) for call in symbols.values()):
                break
            reduced = lowest_terms(written)
            found = None if reduced is None else ex.div(*(substitute(part, symbols) for part in reduced))
            if found is not None and _stays_away(split_quotient(found)[1], box):
                return found
    return None


def _stays_away(expr: Expr, box: Box) -> bool:
    """Whether an expression is seen not to vanish on the box, on parts of it if need be."""
    box_ends = Region.of_box(box).ends
    parts, names = [dict(box_ends)], sorted(expr.names)
    for _ in range(policy.MOST_PIECES):
        if not parts:
            return True
        part = parts.pop()
        if _reaches_zero(expr, part):
            middle = {name: (low + high) / 2 for name, (low, high) in part.items()}
            if _reaches_zero(expr, {name: (at, at) for name, at in middle.items()}):
                return False
            shares = {n: (part[n][1] - part[n][0]) / (box_ends[n][1] - box_ends[n][0]) for n in names}
            axis = max(names, key=shares.__getitem__)
            low, high = part[axis]
            parts += [part | {axis: half} for half in ((low, middle[axis]), (middle[axis], high))]
    return False


def _in_symbols(expr: Expr, order: int, box: Box, chosen: Sequence[Expr], symbols: dict[Expr, Expr]) -> Expr:
    """A rational function of variables and of symbols for functions or, of the chosen arguments, for their rests."""

    def symbol(call: Expr) -> Expr:
        found = next((name for name, meant in symbols.items() if meant == call), ex.variable(f"#{len(symbols)}"))
        symbols[found] = call
        return found

    def value(node: Expr, args: list[Expr]) -> Expr:
        whole = node.op == "pow" and node.args[1].number is not None and node.args[1].number.denominator == 1
        if node.op in ("number", "variable", "add", "mul", "div") or whole:
            return ex.rebuild(node.op, args) if args else node
        known = len(args) == 1 and node.args[0] in chosen and not rest_named(node.op)
        for at in range(policy.LAST_ZERO + 1) if known else ():
            terms = terms_before(node, at, order) if may_vanish(less(node.args[0], at), box) else None
            if terms is not None:
                w = ex.add(args[0], ex.number(-at))
                first = [ex.mul(ex.number(c), power_of(w, j)) for j, c in enumerate(terms) if c]
                return ex.add(*first, ex.mul(power_of(w, order), symbol(rest_call(node, at, order))))
        return symbol(node)

    return fold(expr, value)


def _reaches_zero(expr: Expr, ends: Mapping[str, Ends]) -> bool:
    found = try_range(expr, ends)
    return found is None or bool(found[0] <= 0 <= found[1])
