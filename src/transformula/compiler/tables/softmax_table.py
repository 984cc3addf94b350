r"""A fitted table: one softmax head over constant memory tokens, as a function of its scalar query.

.. math::  T(x) = \sum_j y_j w_j(x) + \alpha x, \qquad
           w_j(x) = \frac{e^{a_j x + b_j}}{\sum_k e^{a_k x + b_k}}

Adding one affine function of x to *every* score changes nothing (the gauge); :func:`anchor` uses
that freedom to keep scores small where their token matters, which is what rounding sees.

Rounding model (first order in the unit roundoff u, any order of summation, M tokens):

.. math::  |\hat T - T| \lesssim u \sum_j w_j |y_j - T_0|
           \bigl(2|a_j x| + |b_j| + |s_j - s_{\max}| + 8\bigr)
           + u (M + 2) \sum_j w_j |y_j| + u M |T_0| + 2u(|\alpha x| + |T|)

with T_0 = T - alpha x: the scores' own errors perturb the weights multiplicatively, and what they have
in common cancels; numerator and denominator sums cost at most M u each.  It is an estimate of the
proof's bound (``kernel.rounding.softmax``), not a proof.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transformula.kernel.tables.table_error import SoftmaxTable

Array = NDArray[np.float64]
Function = Callable[[Array], Array]

UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24}

EXP_ROUNDOFF = 8.0  # relative error of an exponential, in units of u


@dataclass(frozen=True, eq=False)
class FittedTable(SoftmaxTable):
    """A softmax table of one or more axes whose weights are exactly representable in ``dtype``, and its estimates."""

    #: Coefficient of x carried past the head by the residual connection (0 when unused, and for several axes).
    linear: float = 0.0
    #: Largest measured ``|T - f|`` on a dense sample, for these (already rounded) weights.
    error_estimate: float = 0.0
    #: Modelled evaluation error in ``dtype`` (see the module's formula).
    rounding_estimate: float = 0.0
    dtype: str = "float64"

    @property
    def size(self) -> int:
        """Number of memory tokens."""
        return int(self.values.size)

    @property
    def total_error(self) -> float:
        """Measured approximation error plus modelled rounding."""
        return self.error_estimate + self.rounding_estimate

    def on_mesh(self, axes: Sequence[Array]) -> Array:
        """Evaluate T in float64 on the tensor product of the given coordinates."""
        factors = [softmax_weights(x, a, b) for x, a, b in zip(axes, self.slopes, self.offsets, strict=True)]
        looked_up = multiply_axes(self.values, factors)
        return looked_up + self.linear * axes[0] if self.linear else looked_up


def least_squares(matrix: Array, right: Array, cutoff: float | None = None) -> Array:
    """The solution of smallest norm; `OverflowError` for numbers that are not finite, about which LAPACK only complains
    on standard error. Singular values below ``cutoff``, as a fraction of the largest, count as zero.

    Examples
    --------
    >>> least_squares(np.array([[1.0], [1.0]]), np.array([1.0, 3.0])).round(12)
    array([2.])
    """
    if not (np.isfinite(matrix).all() and np.isfinite(right).all()):
        raise OverflowError("the numbers of a fit are beyond floats")
    return np.asarray(np.linalg.lstsq(matrix, right, rcond=cutoff)[0], dtype=np.float64)


def multiply_axes(tensor: Array, factors: Sequence[Array]) -> Array:
    """Apply the k-th matrix along the k-th axis."""
    for k, matrix in enumerate(factors):
        tensor = np.moveaxis(np.tensordot(matrix, tensor, axes=(1, k)), 0, k)
    return tensor


def softmax_weights(x: Array, slopes: Array, offsets: Array) -> Array:
    """Weights of shape (len(x), M): the row-wise softmax of ``slopes * x + offsets``.

    Examples
    --------
    >>> softmax_weights(np.array([0.0]), np.array([1.0, -1.0]), np.zeros(2))
    array([[0.5, 0.5]])
    """
    scores = np.multiply.outer(slopes, x) + offsets[:, None]  # long rows are quick
    scores -= scores.max(axis=0)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=0)
    return scores.T


def score_roundoff(x: Array, slopes: Array, offsets: Array) -> Array:
    """Relative error of each unnormalised weight in units of u, shape (len(x), M)."""
    products = np.multiply.outer(x, slopes)
    scores = products + offsets
    top = scores.max(axis=1, keepdims=True)
    return np.asarray(2 * np.abs(products) + np.abs(offsets) + (top - scores))


def rounding_profile(x: Array, table: FittedTable) -> Array:
    """Modelled rounding error of a table of one axis at every point of ``x`` (the module's formula)."""
    slopes, offsets, values = table.slopes[0], table.offsets[0], table.values
    weights = softmax_weights(x, slopes, offsets)
    looked_up = weights @ values
    per_weight = score_roundoff(x, slopes, offsets) + EXP_ROUNDOFF
    moved = np.einsum("ij,ij,ij->i", weights, np.abs(values - looked_up[:, None]), per_weight)
    summed = (len(slopes) + 2) * (weights @ np.abs(values)) + len(slopes) * np.abs(looked_up)
    carried = table.linear * x
    return np.asarray(
        UNIT_ROUNDOFF[table.dtype] * (moved + summed + 2 * (np.abs(carried) + np.abs(looked_up + carried)))
    )


def anchor(x: Array, slopes: Array, offsets: Array, values: Array) -> tuple[Array, Array]:
    """Fix the gauge: subtract the score of the token that makes modelled rounding smallest."""
    weights = softmax_weights(x, slopes, offsets)
    spread = weights * np.abs(values - (weights @ values)[:, None])
    best: tuple[float, Array, Array] | None = None
    for a, b in zip(slopes, offsets, strict=True):
        roundoff = score_roundoff(x, slopes - a, offsets - b)
        worst = float(np.einsum("ij,ij->i", spread, roundoff).max())
        if best is None or worst < best[0]:
            best = worst, slopes - a, offsets - b
    assert best is not None
    return best[1], best[2]


def to_dtype(array: Array, dtype: str) -> Array:
    """Round to ``dtype``, within its range, and return as float64."""
    most = float(np.finfo(dtype).max)
    return np.clip(np.nan_to_num(array), -most, most).astype(dtype).astype(np.float64)
