"""Estimated work of the kernel's steps, in microseconds of an ordinary machine, from the sizes of their arguments.

The kernel does not count: a check runs under the limits of its process. But a search that runs the kernel's rules must
end at the same place on every machine, so it counts these estimates (`transformula.budget`).
"""

from __future__ import annotations

from functools import lru_cache
from math import comb
from typing import Any

from transformula.kernel.enclosures.expression_ranges import order_for
from transformula.kernel.structures.stored_circuit import Circuit
from transformula.kernel.syntax.expression import Expr, walk
from transformula.kernel.tables.grid_error import ORDERS
from transformula.kernel.tables.table_error import SoftmaxTable

#: Nodes that Bessel functions and elliptic integrals, the slowest of Arb's functions, count for.
_SLOW = 30
#: Work for each node of an expression whose normal form is computed and factored, in microseconds.
_SIGN = 60.0
#: Tokens that contribute to a table on one of its pieces, at most.
_NEAR = 12


#: Work of the range of a function whose extrema are found by cuts, in microseconds.
_EXTREMA = {"gamma": 2000.0, "bessely": 2000.0, "fresnels": 1000.0, "fresnelc": 1000.0, "xlogx": 700.0}


@lru_cache(maxsize=4096)
def extrema(expr: Expr) -> float:
    """Extrema of functions in an expression that are found by cuts, on one part of a box."""
    return sum(_EXTREMA.get(node.op.partition(":")[0], 0.0) for node in walk(expr))


@lru_cache(maxsize=4096)
def size(expr: Expr) -> int:
    """Number of distinct nodes; those that are slow to evaluate count more than once."""
    return sum(_SLOW if node.op.startswith(("bessel", "ellip")) else 1 for node in walk(expr))


def interval(expr: Expr) -> float:
    """Interval arithmetic on one part of a box."""
    return 12.0 * size(expr) + extrema(expr)


def defined(expr: Expr, cells: int) -> float:
    """Exact intervals on cells, where singular functions are also looked at in the corners."""
    return 30.0 * size(expr) * cells


@lru_cache(maxsize=4096)
def products(expr: Expr) -> int:
    """Its size, with the products of each whole power."""
    powers = (node.args[1].number for node in walk(expr) if node.op == "pow")
    whole = (abs(int(n)) for n in powers if n is not None and n.denominator == 1 and n)
    return size(expr) + sum(n.bit_length() + n.bit_count() - 2 for n in whole)


def models(expr: Expr, parts: int, order: int | None = None) -> float:
    """Taylor models on parts of a box."""
    d = len(expr.names)
    terms = comb(d + (order or order_for(d)) - 1, d)
    return products(expr) * (150 + 0.07 * parts * terms) + 0.15 * parts * extrema(expr)


def table_piece(table: SoftmaxTable, function: Expr) -> float:
    """The error of a table of one axis on one piece."""
    return 60 + 3 * min(table.values.size, _NEAR) + 60 * products(function)


def slope_piece(table: SoftmaxTable, function: Expr | None) -> float:
    """The slope of a table on one piece."""
    return 40 + 10 * table.values.size + (0 if function is None else 40 * size(function))


def slope(function: Expr) -> float:
    """The slope of a function on one cell."""
    return 10.0 * size(function)


def cell(function: Expr) -> float:
    """Values and slopes of a function on one cell."""
    return 25.0 * size(function)


def grid(table: SoftmaxTable, function: Expr, boxes: int, intervals: int = 0) -> float:
    """The error of a table of several axes on boxes, made of so many different intervals of its axes."""
    d = len(table.slopes)
    order = ORDERS[d]
    own = 0.03 * (2.0 * order) ** d + 0.01 * order * float(table.values.size)
    weights = 40.0 + 20.0 * min(max(map(len, table.slopes)), _NEAR)
    return boxes * own + intervals * weights + models(function, boxes, order)


def sharp_cells(table: SoftmaxTable) -> float:
    """The ends of sharp cells, token by token on each axis."""
    return 90.0 * sum(len(slopes) for slopes in table.slopes)


def claim(expr: Expr, tree: Any) -> float:
    """The range of an expression on the leaves of a tree."""
    parts = tree.count(-1) if isinstance(tree, list) else 1
    return interval(expr) + (parts * 12.0 * size(expr) + models(expr, parts) if parts > 1 else 0.0)


def sign(expr: Expr, tree: Any) -> float:
    """The sign of an expression on the leaves of a tree, and what follows for other signs."""
    return _SIGN * size(expr) + claim(expr, tree)


def softmax(table: SoftmaxTable, edges: list[list[float]]) -> float:
    """The rounding of softmax on intervals of each axis."""
    return sum(len(some) * (100 + 30 * min(len(axis), _NEAR)) for some, axis in zip(edges, table.slopes, strict=True))


def flow(terms: int, parts: int) -> float:
    """Errors followed through a circuit of ``terms`` terms on ``parts`` parts of the box."""
    return terms * (20 + 0.1 * parts)


def terms_of(circuit: Circuit) -> int:
    """The terms that all wires of a circuit read."""
    return sum(1 + sum(2 + len(a.terms) for a in wire.arguments) for wire in circuit.wires)
