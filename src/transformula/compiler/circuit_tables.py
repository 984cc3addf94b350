"""The tables of a circuit's wires: what each may be off by, and the fits.

S_w bounds how far an output moves for a unit error of the wire w (`circuit_analysis`). With N tables each may err by
eps/(N S_w); squares, which are cheap, and functions whose slope is unbounded take another part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from transformula.budget import one_thread, remembered
from transformula.compiler import policy
from transformula.compiler.attempts import Findings
from transformula.compiler.evidence.finder import SQUARE_ENDS
from transformula.compiler.evidence.range_search import Interval
from transformula.compiler.layout import TableTokens
from transformula.compiler.lower.rewrites import domain_ends, steep_places
from transformula.compiler.refusal import check_strain
from transformula.compiler.tables.expression_fits import fit_all, fit_expression
from transformula.compiler.tables.fit_task import Allowance, CannotFit
from transformula.compiler.tables.one_size import ready_square
from transformula.compiler.tables.softmax_table import FittedTable
from transformula.errors import NotProvenError, UnboundedError
from transformula.formula.evaluation import evaluate_accurately
from transformula.kernel.structures.stored_circuit import SQUARE, Wire
from transformula.kernel.syntax.expression import Expr


@dataclass
class Node:
    """The planner's facts about one wire."""

    wire: Wire
    time: int  # half-layers: odd for tables, even for ReLUs
    ends: Interval  # range of the argument
    size: float  # sup|meaning|
    slope: float  # sup|f'|, or a stand-in where that is infinite
    reads: list[tuple[int, float]] = field(default_factory=list)
    sensitivity: float = 0.0
    share: float = 0.0
    most: float = math.inf  # largest error that the wires which read it allow
    drift: float = 0.0  # estimated shift of the argument by errors
    singular: bool = False
    scale: Fraction = Fraction(1)  # the head reads scale · argument
    held: Fraction = Fraction(1)  # the wire holds held · meaning

    @property
    def is_table(self) -> bool:
        """Whether attention computes the wire."""
        return self.wire.function is not None


class ToleranceSplit(NamedTuple):
    """A way to spend the tolerance.

    ``tables`` is what all tables may use together, ``square`` a square's part against another table's (three
    digits cost it one token), ``singular`` what an argument's error may cost where f' is unbounded, ``floor`` how
    close a square comes at most, as a part of what a table usually can.
    """

    tables: float
    square: float
    singular: float
    floor: float


def share_out(nodes: dict[int, Node], split: ToleranceSplit) -> None:
    """Each table's share of what the tables may use."""
    parts = {
        k: split.square if n.wire.function == SQUARE else policy.SINGULAR_SHARE if n.singular else 1.0
        for k, n in nodes.items()
    }
    total = sum(part for k, part in parts.items() if nodes[k].is_table) or 1.0
    for k, node in nodes.items():
        node.share = parts[k] / total


def expect_errors(nodes: dict[int, Node], eps: float) -> None:
    """Estimate the drift of each argument by errors; its range is widened by twice that."""
    errors: dict[int, float] = {}
    for k in sorted(nodes):
        node = nodes[k]
        node.drift = sum(c * errors.get(i, 0.0) for i, c in node.reads)
        errors[k] = own_error(node, eps) + node.slope * node.drift


def own_error(node: Node, eps: float) -> float:
    """The error that a wire may add: of a table its share, but no more than a table of zeros would."""
    if not node.is_table:
        return 0.0
    return min(share_of(node, eps), node.size, node.most)


def share_of(node: Node, eps: float) -> float:
    """The error at a wire that uses up its share of the outputs' tolerance."""
    return node.share * eps / max(node.sensitivity, 1e-300)


class MissedGoal(NamedTuple):
    """A goal that was missed, the best table found, and its error."""

    goal: float
    table: TableTokens
    reached: float


def tables_of(nodes: dict[int, Node]) -> list[tuple[int, Node]]:
    """The wires that are looked up."""
    return [(k, node) for k, node in nodes.items() if node.is_table]


def goal_of(node: Node, eps: float, split: ToleranceSplit, dtype: str) -> float:
    """Target error of the wire's table, in the wire's own scale."""
    goal = max(
        own_error(node, split.tables * eps), policy.TABLE_FLOOR[dtype] * node.size, 1e-300
    )  # f may be zero throughout
    return (
        max(goal * float(node.held), split.floor * policy.TABLE_FLOOR[dtype]) if node.wire.function == SQUARE else goal
    )


def check_errors(nodes: dict[int, Node], errors: dict[int, float], eps: float, found: bool) -> None:
    """Refuse what tables with such errors cannot come to, before more is fitted or anything proven."""
    expected = sum(error / float(nodes[k].held) * nodes[k].sensitivity for k, error in errors.items())
    which = "the best tables found" if found else "tables as accurate as the format allows"
    check_strain(expected, eps, f"{which} leave", None if found else expected)


def fit_tables(
    nodes: dict[int, Node],
    eps: float,
    split: ToleranceSplit,
    dtype: str,
    findings: Findings,
    enough: float,
    loose: bool = False,
) -> dict[int, tuple[object, TableTokens]]:
    """A table for every table wire: (key of the table, table); equal keys share.

    Where a goal was missed before, a smaller one is not tried again. Nor is one fitted for nothing: what the tables
    found so far come to is checked against ``enough`` after each that falls short. Where any bound will do, tables that
    are better than need be serve, and those of a ``loose`` circuit need not be small either.
    """
    failed, fitted = findings.failed, findings.fitted
    wanted: dict[object, tuple[Expr, Interval, float, float]] = {}
    keys: dict[int, object] = {}
    goals = {k: goal_of(node, eps, split, dtype) for k, node in tables_of(nodes)}
    for k, node in tables_of(nodes):
        assert node.wire.function is not None
        ends, function = SQUARE_ENDS if node.wire.function == SQUARE else node.ends, node.wire.function
        keys[k] = (function, ends)
        _, _, before, shift = wanted.get(keys[k], (function, ends, math.inf, 0.0))
        wanted[keys[k]] = (function, ends, min(before, goals[k]), max(shift, node.drift))
    known: dict[object, TableTokens] = {}
    for key, (_, _, goal, _) in wanted.items():
        if key in failed and not failed[key].goal < goal < failed[key].reached:
            known[key] = failed[key].table
        elif findings.coarse and key in fitted and fitted[key][0] <= goal:
            known[key] = fitted[key][1]
    for function, ends, _, shift in wanted.values():
        if function != SQUARE:
            _with_room(function, ends, shift)  # refuses what cannot be fitted before anything is
    reached = {key: goal for key, (_, _, goal, _) in wanted.items()}
    reached |= {key: max(reached[key], failed[key].reached) for key in known if key in failed}
    check_errors(nodes, {k: reached[keys[k]] for k in goals}, enough, found=True)
    todo = {key: (*want, dtype) for key, want in wanted.items() if key not in known}
    found = fit_all(_fit, list(todo.values()), lambda: bool(failed), _fit_once, loose or findings.coarse)
    for (key, want), (table, error) in zip(todo.items(), found, strict=True):
        known[key] = table
        if error > want[2]:
            failed[key] = MissedGoal(want[2], table, error)
            reached[key] = error
            check_errors(nodes, {k: reached[keys[k]] for k in goals}, enough, found=True)
        else:
            fitted[key] = want[2], table
    return {k: (keys[k], known[keys[k]]) for k in goals}


def _with_room(function: Expr, ends: Interval, shift: float) -> Interval:
    """The range of a table: with room for errors where the function's domain goes on."""
    (low, high), (first, last) = ends, domain_ends(function)
    least = 1e-7 * (high - low)
    room = max(2 * shift, least)
    low = low if low in steep_places(function) or (first is not None and low - room < first) else low - room
    high = high if last is not None and high + room > last else high + room
    if not np.isfinite(evaluate_accurately(function, ["u"], [np.array([low, high])])).all():
        kind = UnboundedError if room == least else NotProvenError  # with less to spare it is no better
        raise kind(
            f"{function} is not defined on u = {low:.4g}..{high:.6g}, room for errors included", place=str(function)
        )
    return low, high


def _fit(
    function: Expr, ends: Interval, goal: float, shift: float, dtype: str, most: Allowance
) -> tuple[TableTokens, float]:
    """A table, and its error if that is above the goal."""
    if function == SQUARE:  # all have one range, margins included
        return _tokens(ready_square(goal, dtype)), 0.0
    low, high = _with_room(function, ends, shift)
    if not low < high:
        raise NotProvenError(f"a table of {function} would serve one argument only, {low:.6g}", place=str(function))
    try:
        with one_thread():
            table = fit_expression(
                function, "u", low, high, goal, dtype, linear=False, max_tokens=policy.MOST_WIRE_TOKENS, most=most
            )
    except CannotFit as failure:
        if failure.best is not None:
            return _tokens(failure.best), failure.best_error
        raise UnboundedError(  # not one of so few tokens, whatever they are to reach
            f"no table for {function} on u = {low:.4g}..{high:.4g} with up to {policy.MOST_WIRE_TOKENS} tokens "
            "was found; take a smaller box",
            place=str(function),
        ) from None
    return _tokens(table), 0.0


def _tokens(table: FittedTable) -> TableTokens:
    return TableTokens(table.slopes[0][:, None], table.offsets[0][:, None], table.values[:, None])


_fit_once = remembered(64)(_fit)
