"""Proof rule for a softmax table on a tensor grid of 2 to 4 axes, on boxes that are given.

*The table.* On a grid the softmax factorises, T(x) = sum_{j,k,..} Y_{jk..} u_j(x_1) v_k(x_2) .. On a box,
`table_error` gives u_j = P_j + e_j, abs(e_j) <= rho_j, and likewise for the other axes, so T's polynomial has the
coefficients sum Y P_j Q_k .. (small matrix products), and replacing one factor at a time,

    abs(T - polynomial) <= sum_axes sum_j rho_j abs(sum_{k..} Y_{jk..} Q_k ..) + products of rests,

where abs of a polynomial is the sum of abs(coefficients): large Y of alternating sign still cancel. Matrix
products are rounded: at most gamma sum abs(P) abs(Y) abs(Q), any summation order.

*The error.* With f's Taylor model from `expression_ranges`, the polynomial of T - f is bounded by its tensor
Bernstein coefficients on parts of the box, and the rests are added. Every leaf of the given trees gets a
bound of its own; the leaves cover the box of arguments; f must be defined on each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.expression_ranges import (
    BERNSTEIN_ROUNDING,
    bernstein_coefficients,
    model_of,
    to_tensor,
)
from transformula.kernel.enclosures.regions import BallEnds, check_defined, checked_edges, edge_boxes, leaves
from transformula.kernel.enclosures.taylor_models import TINY, UP, Floats, TaylorModel, U, boxes_of
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.tables.table_error import SoftmaxTable, TableAxis, axis_models

Ints = NDArray[np.intp]

BITS = 96
ORDERS = {2: 10, 3: 9, 4: 7}
_PARTS = {2: 2, 3: 2, 4: 1}
MAX_LEAVES = 400_000
#: Numbers held at once: models of the weights, and what is formed for one chunk of boxes.
_MOST_HELD, _CHUNK = 2**24, 2**20


class Bounds(NamedTuple):
    """Proven bounds for each box, and for the search only: shares of them, and errors that occur."""

    error: Floats
    rounding: Floats
    rest: Floats
    reached: Floats


def grid_error(
    table: SoftmaxTable, function: Expr, names: Sequence[str], ends: Sequence[BallEnds], pieces: Any
) -> float:
    """Bound sup abs(T - function) over the box of arguments; infinite where a leaf has no bound."""
    if not isinstance(pieces, Mapping) or set(pieces) != {"edges", "trees"} or len(names) not in ORDERS:
        raise RefutedError("the pieces of a grid are not edges and trees, or it has not 2 to 4 axes")
    with precision(BITS):
        edges = checked_edges(pieces["edges"], ends, MAX_LEAVES)
        low, high, _ = leaves(*edge_boxes(edges), pieces["trees"], MAX_LEAVES)
        check_defined(function, names, ends, low, high)
        worst = float(np.max(bounds_on(table, function, names, low, high).error))
    return worst if math.isfinite(worst) else math.inf


def bounds_on(table: SoftmaxTable, function: Expr, names: Sequence[str], lower: Floats, upper: Floats) -> Bounds:
    """Bounds of abs(T - function) on boxes, shape (d, boxes), wherever the function is defined."""
    order, parts = ORDERS[len(names)], _PARTS[len(names)]
    sheets = Sheets(table, lower, upper, order)
    chunks = []
    for part in sheets.chunks(parts):
        model = model_of(function, names, *boxes_of(lower[:, part], upper[:, part]), order)
        chunks.append(_bounds(model, *sheets.table(part), parts))
    return Bounds(*np.concatenate(chunks, axis=1))


def _bounds(model: TaylorModel, terms: Floats, rest: Floats, rounding: Floats, parts: int) -> Floats:
    """The rows of `Bounds` on some boxes, from models of the function and of the table."""
    goal = to_tensor(model)
    with np.errstate(all="ignore"):
        difference = np.ascontiguousarray(terms - goal)
        boxes = len(difference)
        norm = (np.abs(terms) + np.abs(goal)).reshape(boxes, -1).sum(axis=1)
        # once for the Bernstein coefficients, once for the subtraction: a unit roundoff is far less
        rounding = (rounding + norm * UP * BERNSTEIN_ROUNDING * 2) * UP
        wrong = (model.rest + rest + rounding) * UP + TINY
        sizes = np.abs(bernstein_coefficients(difference, parts)).reshape(boxes, -1)
        error = (sizes.max(axis=1) + wrong) * UP
        reached = np.maximum(sizes[:, 0], np.abs(difference.reshape(boxes, -1)[:, 0])) - wrong
    error[~np.isfinite(error)] = math.inf
    return np.stack([error, rounding, model.rest, np.where(np.isfinite(reached), reached, 0.0)])


class Sheets:
    """T's polynomials on many boxes; those that share intervals share the work."""

    def __init__(self, table: SoftmaxTable, lower: Floats, upper: Floats, order: int, cut: float = 80.0) -> None:
        self.values, self.order = table.values, order
        shape, held = self.values.shape, 0
        self.terms: list[Floats] = []
        self.rests: list[Floats] = []
        #: Sums of abs(coefficients): bounds of each weight's polynomial on an interval.
        self.norms: list[Floats] = []
        self.index: list[Ints] = []
        for a, b, low, high in zip(table.slopes, table.offsets, lower, upper, strict=True):
            intervals, index = np.unique(low + 1j * high, return_inverse=True)
            held += len(intervals) * order * len(a)
            if held > _MOST_HELD:
                raise RefutedError(f"{len(intervals)} intervals of an axis of {len(a)} tokens are too many")
            terms, rest = axis_models(TableAxis(a, b), *boxes_of(intervals.real, intervals.imag), order, cut)
            self.terms.append(terms)
            self.rests.append(rest[:, None, :])
            with np.errstate(all="ignore"):  # a model without a bound has rest inf
                self.norms.append(np.abs(terms).sum(axis=1, keepdims=True) * UP)
            self.index.append(index)
        #: d products, each of which sums over one axis; 8 d makes up for gamma_n > n u and for sums of sizes
        self.gamma = (sum(shape) + 8 * len(shape)) * U * UP
        self.up = UP * (1 + 2 * self.gamma)

    def chunks(self, parts: int = 1) -> list[slice]:
        """Parts of the boxes that fit into memory at once."""
        d = self.values.ndim
        shape = self.values.shape
        boxes = len(self.index[0])
        inner = self.order * self.values.size // min(shape) + self.order ** (d - 1) * max(shape)
        step = max(1, min(4096, _CHUNK // max(inner, (parts * self.order) ** d)))
        return [slice(k, k + step) for k in range(0, boxes, step)]

    def table(self, part: slice) -> tuple[Floats, Floats, Floats]:
        """Coefficients, shape (boxes, K, .., K), bounds of what they leave out, and of rounding."""
        index = [index[part] for index in self.index]
        with np.errstate(all="ignore"):
            values = _contract(self.values, self.terms, index)
            total = _contract(np.abs(self.values), self.norms, index).reshape(len(values))
            rest = sum((self._replaced(k, index) for k in range(len(index))), np.zeros(len(values)))
            # products that underflow: fewer than 2**100 of 2**-1074 < TINY / 2**100, times other factors
            reach = [1 + n[i].max(axis=(1, 2)) for n, i in zip(self.norms, index, strict=True)]
            tiny = np.prod(reach, axis=0) * TINY
        rest[np.isnan(rest)] = np.inf  # inf · 0
        return values, rest * UP + tiny, self.gamma * total * UP

    def _replaced(self, axis: int, index: list[Ints]) -> Floats:
        """Bound of the change by the rest of one axis: earlier axes exact, later ones polynomial.

        sum_j rho_j abs(sum Y_{..j..} prod_{earlier} u prod_{later} P); a true u is P plus its rest.
        """
        rho = self.rests[axis][index[axis]][:, 0, :]
        others = [k for k in range(len(index)) if k != axis]
        if not others:
            return np.asarray((rho * np.abs(self.values)).sum(axis=1) * self.up)
        moved = np.moveaxis(self.values, axis, -1)
        where = [index[k] for k in others]
        boxes = len(rho)
        main = _contract(moved, [self.terms[k] for k in others], where)
        inner = np.abs(main).reshape(boxes, -1, rho.shape[1]).sum(axis=1)
        size, full = np.abs(moved), {k: self.norms[k] + self.rests[k] for k in others}
        slack = _contract(size, list(full.values()), where).reshape(boxes, -1) * self.gamma
        # the rests of the earlier axes, against abs(Y): second order, so crude is fine
        for k in range(axis):
            mixed = [self.rests[m] if m == k else full[m] for m in others]
            slack = slack + _contract(size, mixed, where).reshape(boxes, -1)
        return np.asarray((rho * (inner + slack)).sum(axis=1) * self.up)


def _contract(values: Floats, factors: Sequence[Floats], index: Sequence[Ints]) -> Floats:
    """Sum over j, k, .. of values[j, k, .., *] f0[i0, p, j] f1[i1, q, k] ..: shape (boxes, p, q, .., *).

    Each factor is applied once for each combination of intervals so far, not once a box.
    """
    chosen, keys = np.unique(index[0], return_inverse=True)
    current = np.tensordot(factors[0][chosen], values, axes=([2], [0]))  # (intervals, p, k, ..)
    for number, factor in enumerate(factors[1:], start=1):
        pairs, keys = np.unique(keys * len(factor) + index[number], return_inverse=True)
        left, right = np.divmod(pairs, len(factor))
        before, after = current.shape[1 : number + 1], current.shape[number + 2 :]
        flat = current[left].reshape(len(pairs), math.prod(before), factor.shape[2], math.prod(after))
        result = np.matmul(factor[right][:, None], flat)  # (pairs, before, q, after)
        current = result.reshape(len(pairs), *before, factor.shape[1], *after)
    return np.asarray(current[keys])
