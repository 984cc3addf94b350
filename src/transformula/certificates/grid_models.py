"""A softmax table on a tensor grid, and its polynomial on many boxes.

On a tensor grid the softmax factorises, T(x) = sum_{j,k,..} Y_{jk..} u_j(x_1) v_k(x_2) .. On a box,
`axes` gives u_j = P_j + e_j, abs(e_j) <= rho_j, and likewise for the other axes, so T's polynomial
has the coefficients sum Y P_j Q_k .. (small matrix products), and replacing one factor at a time,

    abs(T - polynomial) <= sum_axes sum_j rho_j abs(sum_{k..} Y_{jk..} Q_k ..) + products of rests,

where abs of a polynomial is the sum of abs(coefficients): large Y of alternating sign still
cancel. Matrix products are rounded: at most gamma sum abs(P) abs(Y) abs(Q), any summation order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from transformula.certificates.axis_models import Axis, AxisModels, axis_models
from transformula.taylor.models import TINY, UP, U, boxes_of
from transformula.taylor.results import Floats, Ints


@dataclass(frozen=True)
class Grid:
    """A tensor-product table: one `Axis` for each variable, values of shape (M_1, .., M_d)."""

    axes: tuple[Axis, ...]
    values: Floats
    slopes: tuple[float, ...] = ()
    constant: float = 0.0

    def __post_init__(self) -> None:
        if np.shape(self.values) != tuple(len(axis) for axis in self.axes):
            raise ValueError(
                f"values of shape {np.shape(self.values)} do not fit axes of lengths "
                f"{tuple(len(axis) for axis in self.axes)}"
            )


class Sheets:
    """T's polynomials on many boxes; those that share intervals share the work.

    Parameters
    ----------
    lower, upper : arrays, shape (d, boxes)
    """

    def __init__(self, grid: Grid, lower: Floats, upper: Floats, order: int, cut: float = 80.0) -> None:
        self.values = np.asarray(grid.values, dtype=np.float64)
        self.models: list[AxisModels] = []
        self.index: list[Ints] = []
        for axis, low, high in zip(grid.axes, lower, upper, strict=True):
            intervals, index = np.unique(low + 1j * high, return_inverse=True)
            centre, radius = boxes_of(intervals.real, intervals.imag)
            self.models.append(axis_models(axis, centre, radius, order, cut))
            self.index.append(index)
        sizes = [len(axis) for axis in grid.axes]
        #: A d-fold contraction: each of the d products sums over one axis.
        self.gamma = (sum(sizes) + 8 * len(sizes)) * U * UP

    def table(self, part: slice) -> tuple[Floats, Floats, Floats]:
        """Coefficients, shape (boxes, K, .., K), bounds of what they leave out, and of rounding."""
        index = [index[part] for index in self.index]
        terms = [m.terms for m in self.models]
        # sums of abs(coefficients): a bound of each weight's polynomial on the box
        norms = [np.abs(t).sum(axis=1, keepdims=True) * UP for t in terms]
        rests = [m.rest[:, None, :] for m in self.models]
        with np.errstate(invalid="ignore", over="ignore"):  # a model without a bound has rest inf
            values = _contract(self.values, terms, index)
            total = _scalar(_contract(np.abs(self.values), norms, index))
            rest = np.zeros_like(total)
            for axis in range(len(terms)):
                rest = rest + self._replaced(axis, terms, norms, rests, index)
        rest[np.isnan(rest)] = np.inf  # inf · 0
        return values, rest * UP + TINY, self.gamma * total * UP

    def _replaced(
        self,
        axis: int,
        terms: list[Floats],
        norms: list[Floats],
        rests: list[Floats],
        index: list[Ints],
    ) -> Floats:
        """What the rest of one axis can change: earlier axes exact, later ones polynomial.

        sum_j rho_j abs(sum Y_{..j..} prod_{earlier} u prod_{later} P); a true u is P plus its rest.
        """
        rho = rests[axis][index[axis]][:, 0, :]
        if len(terms) == 1:
            return np.asarray((rho * np.abs(self.values)).sum(axis=1) * UP)
        others = [k for k in range(len(terms)) if k != axis]
        moved = np.moveaxis(self.values, axis, -1)
        main = _contract(moved, [terms[k] for k in others], [index[k] for k in others])
        boxes = rho.shape[0]
        inner = np.abs(main).reshape(boxes, -1, rho.shape[1]).sum(axis=1)
        size = np.abs(moved)
        full = [norms[k] + rests[k] for k in others]
        where = [index[k] for k in others]
        slack = _contract(size, full, where).reshape(boxes, -1) * self.gamma
        # the rests of the earlier axes, against abs(Y): second order, so crude is fine
        for k in range(axis):
            mixed = [rests[m] if m == k else norms[m] + rests[m] for m in others]
            slack = slack + _contract(size, mixed, where).reshape(boxes, -1)
        return np.asarray((rho * (inner + slack)).sum(axis=1) * UP)


def _contract(values: Floats, factors: list[Floats], index: list[Ints]) -> Floats:
    """Sum over j, k, .. of values[j, k, .., *] f0[i0, p, j] f1[i1, q, k] .., box by box.

    Returns shape (boxes, p, q, .., *).
    The first factor is applied once for each of its intervals, not once a box; so is the second
    for each pair of intervals that occurs.
    """
    first = np.tensordot(factors[0], values, axes=([2], [0]))  # (intervals, p, k, ..)
    keys, back = index[0], None
    current = first
    for number, factor in enumerate(factors[1:], start=1):
        pairs = keys * len(factor) + index[number]
        unique, back = np.unique(pairs, return_inverse=True)
        left, right = unique // len(factor), unique % len(factor)
        current = _apply(current[left], factor[right], number)
        keys = back
    return np.asarray(current[keys])


def _apply(current: Floats, factor: Floats, number: int) -> Floats:
    """Contract axis number + 1 of (n, p.., k, rest..) with (n, q, k): (n, p.., q, rest..)."""
    n = current.shape[0]
    before = current.shape[1 : number + 1]
    after = current.shape[number + 2 :]
    k = current.shape[number + 1]
    flat = current.reshape(n, math.prod(before), k, math.prod(after))
    result = np.matmul(factor[:, None], flat)  # (n, before, q, after)
    return np.asarray(result.reshape(n, *before, factor.shape[1], *after))


def _scalar(values: Floats) -> Floats:
    return values.reshape(values.shape[0])
