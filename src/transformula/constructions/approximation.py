"""Corollary 3.7: a polynomial close to any continuous function, then Theorem 3.5 on it.

The polynomial is sought in Chebyshev products T_α on the box with |α| ≤ q, by least squares on a grid of
Chebyshev points, reweighted a few times towards the minimax solution (Lawson). The degree q is the
smallest whose measured error leaves room for the proof, so the model has as few blocks as the best
polynomial allows. Coefficients are floats, hence rationals; the change to monomials is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import Ordering, fmpq, fmpq_mpoly, fmpq_mpoly_ctx
from numpy.typing import NDArray

from transformula.constructions.lattice import compositions
from transformula.constructions.polynomial import weights_from_terms
from transformula.errors import InputError, NotProvenError
from transformula.formulas.numeric import evaluate
from transformula.kernel.balls import to_fmpq
from transformula.kernel.boxes import Box, Formula
from transformula.kernel.expression import Expr
from transformula.kernel.weights import Weights, to_rational
from transformula.threads import one_thread

Floats = NDArray[np.float64]
Exponents = tuple[int, ...]

MAX_VARIABLES = 4
#: Highest degree tried, by dimension: beyond it the tokens are too many or the terms too large.
MAX_DEGREE = {1: 60, 2: 30, 3: 18, 4: 12}
#: What part of the tolerance the measured error may take; the rest is for proof and rounding.
_SHARES = (0.97, 0.8, 0.5, 0.2)
_GRID = {1: 2000, 2: 90, 3: 26, 4: 14}
_LAWSON = 40


def construct_approximation(formula: Formula, eps: float, dtype: str, multi_head: bool) -> Iterator[Weights]:
    """Polynomial Transformers whose measured error meets the tolerance, lowest degree first."""
    box, used = _used(formula)
    if box.dimension > MAX_VARIABLES:
        raise InputError(f"approximation by a polynomial takes at most {MAX_VARIABLES} variables, not {box.dimension}")
    tried: set[tuple[int, ...]] = set()
    for share in _SHARES:
        with one_thread():
            fits = [_lowest_degree(expr, box, share * eps) for expr in formula.outputs]
        degrees = tuple(fit.degree for fit in fits)
        if degrees not in tried:
            tried.add(degrees)
            terms = [_spread(fit.monomials(box), used, formula.box.dimension) for fit in fits]
            yield from weights_from_terms(terms, formula.box, dtype, multi_head)


def _used(formula: Formula) -> tuple[Box, list[int]]:
    """The box of the variables that are used (one of them if none is), and where they stand."""
    names = frozenset().union(*(expr.names for expr in formula.outputs))
    box = formula.box
    places = [k for k, name in enumerate(box.variables) if name in names] or [0]
    lower, upper = (tuple(ends[k] for k in places) for ends in (box.lower, box.upper))
    return Box(tuple(box.variables[k] for k in places), lower, upper), places


def _spread(terms: dict[Exponents, fmpq], places: Sequence[int], dimension: int) -> dict[Exponents, fmpq]:
    """The same polynomial in all variables."""
    where = {place: k for k, place in enumerate(places)}
    return {tuple(e[where[k]] if k in where else 0 for k in range(dimension)): c for e, c in terms.items()}


@dataclass(frozen=True, eq=False)
class _Fit:
    """Σ coefficients · T_α on the box."""

    degree: int
    exponents: Sequence[Exponents]
    coefficients: Floats
    error: float

    def monomials(self, box: Box) -> dict[Exponents, fmpq]:
        """The same polynomial in powers of the variables, exactly."""
        context = fmpq_mpoly_ctx.get([f"x{k}" for k in range(box.dimension)], Ordering.degrevlex)
        chebyshev = []
        for generator, (low, high) in zip(context.gens(), box.floats(), strict=True):
            a, b = Fraction(low), Fraction(high)
            scale, shift = 2 / (b - a), -(a + b) / (b - a)
            t = generator * to_fmpq(scale) + context.constant(to_fmpq(shift))
            chebyshev.append(_chebyshev_polynomials(t, context, self.degree))
        total = context.constant(0)
        for alpha, value in zip(self.exponents, self.coefficients.tolist(), strict=True):
            if value:
                term = context.constant(to_rational(value))
                for k, e in enumerate(alpha):
                    term = term * chebyshev[k][e] if e else term
                total += term
        return dict(total.to_dict())


def _chebyshev_polynomials(t: fmpq_mpoly, context: fmpq_mpoly_ctx, degree: int) -> list[fmpq_mpoly]:
    found = [context.constant(1), t]
    while len(found) <= degree:
        found.append(2 * t * found[-1] - found[-2])
    return found


def _lowest_degree(expr: Expr, box: Box, goal: float) -> _Fit:
    """The first degree whose best polynomial, as far as a grid can tell, meets the goal."""
    dimension = box.dimension
    fine, coarse = _samples(expr, box, 2 * _GRID[dimension] + 1), _samples(expr, box, _GRID[dimension])
    best: _Fit | None = None
    for degree in range(MAX_DEGREE[dimension] + 1):
        fit = _fit(coarse, fine, degree, goal)
        if fit.error <= goal:
            return fit
        best = fit if best is None or fit.error < best.error else best
    assert best is not None
    raise NotProvenError(
        f"no polynomial of degree up to {MAX_DEGREE[dimension]} comes within {goal:.2g} of {expr}: the best "
        f"measured error is {best.error:.2g} at degree {best.degree}; use the lookup construction",
        measured=best.error,
    )


@dataclass(frozen=True, eq=False)
class _Samples:
    """Chebyshev points in [−1, 1] for each axis, and the function's values on their grid."""

    points: Floats
    values: Floats


def _samples(expr: Expr, box: Box, count: int) -> _Samples:
    points = np.cos(np.pi * np.arange(count) / (count - 1))
    axes = [(low + high) / 2 + (high - low) / 2 * points for low, high in box.floats()]
    values = evaluate(expr, box.variables, np.meshgrid(*axes, indexing="ij"))
    if not np.all(np.isfinite(values)):
        raise NotProvenError(f"{expr} is undefined or unbounded on the box: narrow the box")
    return _Samples(points, values)


def _fit(coarse: _Samples, fine: _Samples, degree: int, goal: float) -> _Fit:
    """Least squares, then Lawson's reweighting while the goal is near."""
    dimension = coarse.values.ndim
    exponents = [e for s in range(degree + 1) for e in compositions(s, dimension)]
    matrix = _design(coarse.points, exponents, dimension)
    target = coarse.values.ravel()
    check = _design(fine.points, exponents, dimension)
    truth = fine.values.ravel()
    weight = np.full(len(target), 1.0 / len(target))
    best: tuple[float, Floats] = (np.inf, np.zeros(len(exponents)))
    for _ in range(_LAWSON):
        root = np.sqrt(weight)
        found = np.linalg.lstsq(matrix * root[:, None], target * root, rcond=None)[0]
        found[np.abs(found) < 1e-17 * np.abs(found).max()] = 0.0
        error = float(np.abs(check @ found - truth).max())
        best = min(best, (error, found), key=lambda pair: pair[0])
        if error <= goal or error > 4 * goal:  # Lawson gains a small factor, no more
            break
        residual = np.abs(matrix @ found - target)
        weight = weight * residual
        weight = weight / weight.sum()
    return _Fit(degree, exponents, best[1], best[0])


def _design(points: Floats, exponents: Sequence[Exponents], dimension: int) -> Floats:
    highest = max(max(e) for e in exponents)
    one_axis = np.polynomial.chebyshev.chebvander(points, highest)
    columns = []
    for alpha in exponents:
        column = one_axis[:, alpha[0]]
        for e in alpha[1:]:
            column = np.multiply.outer(column, one_axis[:, e])
        columns.append(column.ravel())
    return np.stack(columns, axis=1)
