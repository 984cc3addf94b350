"""An expression as a function of few sub-expressions: those it repeats, and the rest."""

from __future__ import annotations

from collections import Counter

from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.expression import Expr, rebuild, substitute, variables_of, walk

#: Larger expressions are not searched for what they repeat.
_MAX_NODES = 150


def in_parts(expr: Expr) -> tuple[Expr, dict[str, Expr]] | None:
    """(the expression in new variables, what each of them stands for), or None if nothing is repeated.

    The new names cannot occur in a formula.

    Examples
    --------
    >>> from transformula.kernel.syntax.parsing import parse
    >>> found, parts = in_parts(parse("sqrt((x - y*z)**2 + a*b) - x + y*z"))
    >>> str(found), {name: str(part) for name, part in parts.items()}
    ('-#0 + sqrt(#0**2 + #1)', {'#0': 'x - y*z', '#1': 'a*b'})
    """
    nodes = list(walk(expr))
    if len(nodes) > _MAX_NODES:
        return None
    parts: dict[str, Expr] = {}
    found = expr
    for node in reversed(nodes):  # the largest first
        if node is expr or not node.args or not variables_of(node):
            continue
        name = ex.variable(f"#{len(parts)}")
        swapped = _with_sum(found, node, name) if node.op == "add" else substitute(found, {node: name})
        if _occurrences(swapped, name) > 1:
            found, parts[str(name.value)] = swapped, node
    if not parts:
        return None
    swap = {node: ex.variable(f"#{len(parts) + k}") for k, node in enumerate(_untouched(found))}
    return substitute(found, swap), parts | {str(name.value): node for node, name in swap.items()}


def _with_sum(expr: Expr, total: Expr, name: Expr) -> Expr:
    """Replace a sum by a variable, also where its terms or their negatives are among a longer sum's."""
    signed = [(sign, Counter(ex.mul(ex.number(sign), t) for t in total.args)) for sign in (1, -1)]
    done: dict[Expr, Expr] = {}
    for node in walk(expr):
        if node == total:
            done[node] = name
            continue
        own = Counter(node.args if node.op == "add" else ())
        match = [(s, t) for s, t in signed if t <= own]  # a term that stands there twice counts twice
        if match:
            sign, terms = match[0]
            rest = [done[a] for a in (own - terms).elements()]
            done[node] = ex.add(ex.mul(ex.number(sign), name), *rest)
        else:
            done[node] = rebuild(node.op, [done[a] for a in node.args]) if node.args else node
    return done[expr]


def _occurrences(expr: Expr, name: Expr) -> int:
    total, stack = 0, [expr]
    while stack:
        node = stack.pop()
        total += node == name
        stack.extend(node.args)
    return total


def _untouched(expr: Expr) -> list[Expr]:
    """The largest sub-expressions in the formula's own variables only."""
    found: list[Expr] = []
    stack = [expr]
    while stack:
        node = stack.pop()
        names = variables_of(node)
        if not names or node in found:
            continue
        if any(name.startswith("#") for name in names):
            stack.extend(node.args)
        else:
            found.append(node)
    return found
