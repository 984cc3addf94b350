r"""A table: one softmax head over constant memory tokens, as a function of its scalar query.

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
proof's bound (``kernel.softmax``), not a proof.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Function = Callable[[Array], Array]

UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24}

EXP_ROUNDOFF = 8.0  # relative error of an exponential, in units of u


@dataclass(frozen=True)
class Table:
    """Weights of a one-dimensional softmax table, exactly representable in ``dtype``.

    Attributes
    ----------
    slopes, offsets, values : float64 arrays of shape (M,)
        The scores are ``slopes * x + offsets``; the looked-up values are ``values``.
    linear : float
        Coefficient of x carried past the head by the residual connection (0 when unused).
    error_estimate : float
        Largest measured ``|T - f|`` on a dense sample, for these (already rounded) weights.
    rounding_estimate : float
        Modelled evaluation error in ``dtype`` (see the module's formula).
    dtype : str
        "float64" or "float32".
    """

    slopes: Array
    offsets: Array
    values: Array
    linear: float
    error_estimate: float
    rounding_estimate: float
    dtype: str = "float64"

    @property
    def size(self) -> int:
        """Number of memory tokens M."""
        return len(self.slopes)

    @property
    def total_error(self) -> float:
        """Measured approximation error plus modelled rounding."""
        return self.error_estimate + self.rounding_estimate

    def __call__(self, x: Array) -> Array:
        """Evaluate T in float64 at every entry of the vector ``x``."""
        x = np.asarray(x, dtype=np.float64)
        return softmax_weights(x, self.slopes, self.offsets) @ self.values + self.linear * x


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


def rounding_profile(x: Array, slopes: Array, offsets: Array, values: Array, linear: float, unit: float) -> Array:
    """Modelled rounding error of T at every point of ``x`` (the module's formula)."""
    weights = softmax_weights(x, slopes, offsets)
    looked_up = weights @ values
    per_weight = score_roundoff(x, slopes, offsets) + EXP_ROUNDOFF
    moved = np.einsum("ij,ij,ij->i", weights, np.abs(values - looked_up[:, None]), per_weight)
    summed = (len(slopes) + 2) * (weights @ np.abs(values)) + len(slopes) * np.abs(looked_up)
    carried = np.abs(linear * x)
    return np.asarray(unit * (moved + summed + 2 * (carried + np.abs(looked_up + linear * x))))


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
    """Round to ``dtype`` and return as float64."""
    return np.asarray(array, dtype=dtype).astype(np.float64)
