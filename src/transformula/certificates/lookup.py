"""The proof for solved tables: Taylor models of table minus formula over the whole range.

For each group of summands on the same forms, sup|T + slopes·u + constant − expr| is bounded over the exact
range of the forms (`table_bounds` for one form, `grid_bounds` for several). Rounding of the softmax comes
from `softmax_rounding`, everything after attention from `one_layer_rounding`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb, fmpq

from transformula.certificates.axis_models import Axis
from transformula.certificates.bounding import Ends, bound_table, empty_table
from transformula.certificates.grid_models import Grid
from transformula.certificates.leaks import argument_size, head_leak, is_computed
from transformula.certificates.one_layer import Group, plan_outputs, read_one_layer
from transformula.certificates.one_layer_rounding import output_rounding
from transformula.certificates.proof import Proof, RefutedError
from transformula.certificates.rounding import EXP_ULPS, FORMATS
from transformula.certificates.softmax_rounding import Arithmetic, rounding_bound
from transformula.certificates.table_bounds import Table
from transformula.errors import NotProvenError
from transformula.formulas import expression as ex
from transformula.formulas.boxes import Box
from transformula.formulas.enclosures import enclose, precision, round_up, to_fmpq
from transformula.formulas.formula import Formula
from transformula.taylor.results import Bound, Limits
from transformula.transformers.one_layer import NotOneLayerError, TableHead, read_heads
from transformula.transformers.weights import Weights

_BITS = 128


def prove_lookup(weights: Weights, formula: Formula) -> Proof:
    """Prove a one-layer model with solved tables, or raise `RefutedError`."""
    try:
        heads = read_heads(weights)
    except NotOneLayerError as reason:
        raise RefutedError(f"the weights are not a one-layer table Transformer: {reason}") from None
    with precision(_BITS):
        facts = [_TableFacts.of(head, formula.box, weights) for head in heads]
        reach = [[fact.size for fact in columns] for columns in facts]
        network = read_one_layer(weights, formula.box, reach)
        approximations, pieces = [], 0
        for plan in plan_outputs(network, formula):
            total = plan.leftover
            for group in plan.groups:
                bound = _prove_group(group, network.heads, formula.box)
                total += bound.value
                pieces += bound.boxes
            for h, column in (t for g in plan.groups for t in g.tables):
                total += facts[h][column].leak
            approximations.append(total)
        tables = {
            (h, column): (fact.size, fact.rounding)
            for h, columns in enumerate(facts)
            for column, fact in enumerate(columns)
        }
        rounding = output_rounding(weights, heads, tables, formula.box)
        details: dict[str, object] = {"pieces": pieces, "tables": [head.tokens for head in heads]}
        return Proof(max(map(round_up, approximations)), max(map(round_up, rounding)), details)


@dataclass(frozen=True)
class _TableFacts:
    """sup|T|, the rounding of its evaluation, and what leaks in from other tokens."""

    size: arb
    rounding: arb
    leak: arb

    @classmethod
    def of(cls, head: TableHead, box: Box, weights: Weights) -> list[_TableFacts]:
        ends = [form_ends([(i, v) for i, v in form.items()], box) for form in head.forms]
        form = FORMATS[weights.dtype]
        # a form that is computed first errs by γ Σ|w||x|, its rational coefficients included
        argument_errors = tuple(
            round_up(form.gamma(len(f) + 3) * argument_size(f, box)) if is_computed(f) else 0.0
            for f in head.forms
        )
        arithmetic = Arithmetic.of(
            weights.dtype,
            exp_ulps=EXP_ULPS,
            score_roundings=2 * head.axes + 2,
            sum_roundings=head.tokens + 2,  # behind the gate everything is zero in floats
            argument_errors=argument_errors,
        )
        facts = []
        for column in range(len(head.slots)):
            table = as_table(head, column)
            leak = head_leak(head, [a.union(b) for a, b in ends], column, form, box)
            rounding = max(
                rounding_bound(table, ends, arithmetic),
                rounding_bound(table, ends, arithmetic.evaluated_by_axes()),
            )
            names = [f"u{k + 1}" for k in range(head.axes)]
            size = bound_table(ex.number(0), names, ends, table, Limits(tightness=1.5))
            if not np.isfinite(rounding):
                raise NotProvenError(f"the scores of a table are too large for {weights.dtype}")
            facts.append(cls(arb(size.value) + leak, arb(rounding) + leak, leak))
        return facts


def as_table(
    head: TableHead, column: int, slopes: Sequence[float] = (), constant: float = 0.0
) -> Table | Grid:
    """One column of a head's table, with an affine part beside it."""
    if head.grid is None:
        raise RefutedError("a table's tokens do not form a grid")
    grid = head.grid
    values = grid.values[..., column].astype(float)
    if head.axes == 1:
        slope = slopes[0] if slopes else 0.0
        columns = (grid.slopes[0].astype(float), grid.offsets[0].astype(float), values)
        return Table(*columns, slope, constant)
    axes = tuple(
        Axis(a.astype(float), b.astype(float)) for a, b in zip(grid.slopes, grid.offsets, strict=True)
    )
    return Grid(axes, values, tuple(slopes), constant)


def _prove_group(group: Group, heads: Sequence[TableHead], box: Box) -> Bound:
    """sup|Σ tables + affine − expr| over the range of the group's forms."""
    if len(group.tables) > 1:
        raise RefutedError("two tables share one argument")
    ends = [form_ends([(i, to_fmpq(v)) for i, v in enumerate(f) if v], box) for f in group.forms]
    slopes = [_exact_float(v) for v in group.slopes]
    constant = _exact_float(group.constant)
    if group.tables:
        ((h, column),) = group.tables
        table = as_table(heads[h], column, slopes, constant)
    else:
        table = empty_table(slopes, constant)
    names = [f"u{k + 1}" for k in range(len(ends))]
    return bound_table(group.expr, names, ends, table)


def _exact_float(value: fmpq) -> float:
    nearest = int(value.p) / int(value.q)
    if fmpq(*nearest.as_integer_ratio()) != value:
        raise RefutedError(f"the slope {value} beside a table is not a float")
    return nearest


def form_ends(form: Sequence[tuple[int, fmpq]], box: Box) -> Ends:
    """The exact ends of a linear form on the box, as balls."""
    low = high = arb(0)
    for i, value in form:
        ends = enclose(box.lower[i]) * arb(value), enclose(box.upper[i]) * arb(value)
        low, high = low + ends[value < 0], high + ends[value > 0]
    return low, high
