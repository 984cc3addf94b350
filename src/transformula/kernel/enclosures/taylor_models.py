"""Taylor models of expressions in several variables, for thousands of boxes at once.

On a box x_i = c_i + r_i t_i, abs(t_i) <= 1, a model of f is a polynomial p of total degree below
K and a number ``rest`` with

    abs(f(x) - p(t)) <= rest   for every t in [-1, 1]**d at which f is defined   (Makino and Berz).

Coefficients are float64 arrays of shape (terms, boxes); ``rest`` has shape (boxes,). Everything
that is not kept exactly goes into ``rest``: with A_i, B_j the sums of abs(coefficients) of degree
i and j and A, B their totals,

- a sum or a multiple rounds each coefficient by at most u times its size (charged: 2u);
- a product drops sum_{i+j>=K} A_i B_j, rounds by at most (terms + 2) u A B in any order of summation
  (charged: terms + 4) and adds A rest_b + B rest_a + rest_a rest_b;
- g(u), u = p0 + v, abs(v) <= S, is sum_{k<K} g_k v**k plus at most sup abs(g^(K))/K! S**K, the
  supremum over [p0 - S, p0 + S] as `smooth_functions` bounds it;
- ``rest`` itself is a sum of non-negative terms: its own rounding is below the factor `UP`, and
  `TINY` covers underflow.

Transcendental values come from Arb; of NumPy only +, -, *, / are trusted (IEEE 754). A number that is
not finite makes ``rest`` infinite or nan; readers of a model take both as "nothing is known".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformula.kernel.exceptions import NotProvenError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: The unit roundoff of float64.
U = 2.0**-53
#: n <= 8000 roundings of a sum of non-negative terms cost a factor of at most 1 / (1 - n u) < 1 + 2**-40.
UP = 1 + 2.0**-40
#: An underflow costs at most 2**-1075; one result sees fewer than MAX_TERMS**2 < 2**24 of them.
TINY = 1e-290
#: A rest is a sum over at most this many monomials and a few factors more: below 8000 roundings.
MAX_TERMS = 4000
#: Factorials up to this order are far from overflow.
MAX_ORDER = 32


@dataclass(frozen=True)
class ExponentLayout:
    """The monomials of total degree below ``order`` in ``dimension`` variables, by degree.

    ``targets[i][j]`` is the place of monomial i times monomial j, for the j that stay; ``degrees``, shape (order,
    terms), is 1 where a monomial has that degree: sums over degrees are matrix products.
    """

    dimension: int
    order: int
    exponents: Ints
    targets: tuple[Ints, ...]
    degrees: Floats

    @property
    def terms(self) -> int:
        """Number of monomials."""
        return len(self.exponents)


@lru_cache(maxsize=64)
def layout(dimension: int, order: int) -> ExponentLayout:
    """The layout for a dimension and an order; too many monomials are refused."""
    if not 1 <= order <= MAX_ORDER or comb(dimension + order - 1, dimension) > MAX_TERMS:
        raise NotProvenError(f"Taylor models of order {order} in {dimension} variables are too large")
    chosen = (c for degree in range(order) for c in combinations_with_replacement(range(dimension), degree))
    rows = [tuple(c.count(axis) for axis in range(dimension)) for c in chosen]
    place = {row: k for k, row in enumerate(rows)}
    targets = []
    for row in rows:
        partners = rows[: comb(dimension + order - sum(row) - 1, dimension)]  # those of degree below order - sum(row)
        moved = [tuple(a + b for a, b in zip(row, other, strict=True)) for other in partners]
        targets.append(np.array([place[m] for m in moved], dtype=np.int64))
    exponents = np.array(rows, dtype=np.int64).reshape(len(rows), dimension)
    degrees = (exponents.sum(axis=1) == np.arange(order)[:, None]).astype(np.float64)
    return ExponentLayout(dimension, order, exponents, tuple(targets), degrees)


@dataclass(frozen=True)
class TaylorModel:
    """Taylor models of one function on many boxes."""

    layout: ExponentLayout
    terms: Floats
    rest: Floats

    @property
    def constant(self) -> Floats:
        """The value of the polynomial at the centres."""
        return np.asarray(self.terms[0])

    @cached_property
    def norms(self) -> Floats:
        """Sums of abs(coefficients) for each degree, shape (order, boxes)."""
        return np.asarray(self.layout.degrees @ np.abs(self.terms))

    @cached_property
    def active(self) -> list[int]:
        """Monomials that occur in some box."""
        return np.flatnonzero(self.terms.any(axis=1)).tolist()

    def spread(self) -> Floats:
        """Bound of abs(f - constant) on each box."""
        return np.asarray((np.abs(self.terms[1:]).sum(axis=0) + self.rest) * UP + TINY)

    def range(self) -> tuple[Floats, Floats]:
        """Ends of a range of f on each box, outward; infinite where the model is not finite."""
        centre = self.constant
        # centre -+ reach rounds by u (abs(centre) + reach): 4u covers the one, UP the other
        reach = self.spread() * UP + np.abs(centre) * (4 * U) + TINY
        known = np.isfinite(reach) & np.isfinite(self.terms).all(axis=0)
        return np.where(known, centre - reach, -np.inf), np.where(known, centre + reach, np.inf)

    def __add__(self, other: TaylorModel) -> TaylorModel:
        terms = self.terms + other.terms
        wrong = np.abs(terms).sum(axis=0) * (2 * U)
        return TaylorModel(self.layout, terms, (self.rest + other.rest + wrong) * UP + TINY)

    def __neg__(self) -> TaylorModel:
        return TaylorModel(self.layout, -self.terms, self.rest)

    def __sub__(self, other: TaylorModel) -> TaylorModel:
        return self + (-other)

    def plus_constant(self, value: Floats | float, wrong: Floats | float = 0.0) -> TaylorModel:
        """Add a number to each box's model; it is known up to ``wrong``."""
        terms = self.terms.copy()
        terms[0] += value
        rest = (self.rest + wrong + np.abs(terms[0]) * (2 * U)) * UP + TINY
        return TaylorModel(self.layout, terms, rest)

    def times_constant(self, value: Floats | float, wrong: Floats | float = 0.0) -> TaylorModel:
        """Multiply by a number for each box; it is known up to ``wrong``."""
        terms = self.terms * value
        size = np.abs(terms).sum(axis=0)
        own = np.abs(self.terms).sum(axis=0) + self.rest
        rest = self.rest * np.abs(value) + size * (2 * U) + own * wrong
        return TaylorModel(self.layout, terms, rest * UP + TINY)

    def __mul__(self, other: TaylorModel) -> TaylorModel:
        for one, more in ((self, other), (other, self)):
            if not one.terms[1:].any():  # a constant
                return more.times_constant(one.terms[0], one.rest)
        a, b = (self, other) if len(self.active) <= len(other.active) else (other, self)
        norms_a, norms_b = a.norms, b.norms
        total_a, total_b = norms_a.sum(axis=0), norms_b.sum(axis=0)
        rest = total_a * b.rest + total_b * a.rest + a.rest * b.rest
        # one total may be next to underflow and the other huge: U comes last
        rest = rest + total_a * total_b * ((a.layout.terms + 4) * U) + _dropped(norms_a, norms_b)
        return TaylorModel(a.layout, _product(a, b), rest * UP + TINY)


def _product(a: TaylorModel, b: TaylorModel) -> Floats:
    result = np.zeros_like(b.terms)
    for row in a.active:
        targets = a.layout.targets[row]
        result[targets] += a.terms[row] * b.terms[: len(targets)]
    return result


def _dropped(norms_a: Floats, norms_b: Floats) -> Floats:
    """Sum of A_i B_j over i + j >= K."""
    tails = np.cumsum(norms_b[::-1], axis=0)  # tails[m - 1] = the m highest degrees
    total = np.zeros(norms_a.shape[1])
    for i in range(1, len(norms_a)):
        total = total + norms_a[i] * tails[i - 1]
    return total


def constant_model(shape: ExponentLayout, value: Floats, wrong: Floats) -> TaylorModel:
    """A number for each box, known up to ``wrong``."""
    terms = np.zeros((shape.terms, len(value)))
    terms[0] = value
    return TaylorModel(shape, terms, np.asarray(wrong, dtype=np.float64))


def variable_model(shape: ExponentLayout, axis: int, centre: Floats, radius: Floats) -> TaylorModel:
    """x_axis = centre + radius t_axis, exactly."""
    terms = np.zeros((shape.terms, len(centre)))
    terms[0] = centre
    if shape.order == 1:
        return TaylorModel(shape, terms, np.asarray(radius, dtype=np.float64))
    terms[1 + axis] = radius
    return TaylorModel(shape, terms, np.zeros(len(centre)))


def compose(model: TaylorModel, series: Sequence[Floats], wrong: Sequence[Floats], rest: Floats) -> TaylorModel:
    """g(f) from K coefficients of g at its constant terms and their errors; rest bounds abs(g^(K)) / K! there."""
    terms = model.terms.copy()
    terms[0] = 0.0
    shift = TaylorModel(model.layout, terms, model.rest)
    spread = shift.spread()
    result = constant_model(model.layout, series[-1], wrong[-1])
    for coefficient, slack in zip(reversed(series[:-1]), reversed(wrong[:-1]), strict=True):
        result = (shift * result).plus_constant(coefficient, slack)
    last = rest
    for _ in range(model.layout.order):  # from rest on, so that a small spread**K does not underflow first
        last = last * spread
    return TaylorModel(model.layout, result.terms, (result.rest + last * UP) * UP + TINY)


def absolute(u: TaylorModel) -> TaylorModel:
    """abs u: u or -u where the sign is certain, else a constant."""
    low, high = u.range()
    half = np.maximum(-low, high) / 2
    flat = constant_model(u.layout, half, half * UP + TINY)
    return choose((low >= 0) | (high <= 0), u.times_constant(np.where(low >= 0, 1.0, -1.0)), flat)


def whole_power(base: Any, by: int) -> Any:
    """base ** by for by >= 1, by repeated squaring."""
    result = None
    for bit in f"{by:b}":  # the highest first
        result = base if result is None else result * result if bit == "0" else result * result * base
    return result


def choose(mask: NDArray[np.bool_], first: TaylorModel, second: TaylorModel) -> TaylorModel:
    """Box by box: the first model where the mask holds, else the second."""
    terms = np.where(mask, first.terms, second.terms)
    return TaylorModel(first.layout, terms, np.where(mask, first.rest, second.rest))


def boxes_of(lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    """Float centres and radii of boxes that cover [lower, upper], elementwise."""
    centre = lower + (upper - lower) / 2
    radius = np.maximum(upper - centre, centre - lower)
    return centre, np.nextafter(radius, np.inf)
