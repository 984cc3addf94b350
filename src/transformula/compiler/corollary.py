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
from functools import partial, reduce

import numpy as np
from flint import Ordering, fmpq, fmpq_mpoly, fmpq_mpoly_ctx
from numpy.typing import NDArray

from transformula.budget import SECOND, checkpoint, counted, one_thread, spend
from transformula.compiler import policy
from transformula.compiler.attempts import Attempt, BuildTask, Built
from transformula.compiler.constructions import COROLLARY
from transformula.compiler.evidence.finder import Finder
from transformula.compiler.polynomial import construct_polynomial, weights_from_terms
from transformula.compiler.prepare import is_polynomial
from transformula.compiler.refusal import no_polynomial, undefined_on_box
from transformula.compiler.ridge_directions import compositions
from transformula.compiler.tables.softmax_table import least_squares, multiply_axes
from transformula.errors import InputError
from transformula.formula.evaluation import evaluate
from transformula.kernel.derivations.polynomials import Exponents
from transformula.kernel.enclosures.balls import to_fmpq
from transformula.kernel.folder.weights import Weights, to_rational
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.expression import Expr

Floats = NDArray[np.float64]


def corollary_attempts(task: BuildTask) -> Iterator[Attempt]:
    """Models of the polynomial that the formula has been extended to, or of polynomials that approximate it."""
    extended = task.ground.defined
    dtype, multi_head = task.options.dtype, task.options.multi_head
    if is_polynomial(extended):
        found = construct_polynomial(extended, dtype, multi_head)
    else:
        found = construct_approximation(extended, task.eps, dtype, multi_head)
    for weights in found:
        finder = Finder(trees=task.ground.signs, target=task.options.eps)
        yield Attempt(COROLLARY, partial(Built, weights, task.ground.derivation, finder))


def construct_approximation(formula: Formula, eps: float, dtype: str, multi_head: bool) -> Iterator[Weights]:
    """Polynomial Transformers whose measured error meets the tolerance, lowest degree first."""
    box, used = _used(formula)
    most = max(policy.MAX_DEGREE)
    if box.dimension > most:
        raise InputError(f"approximation by a polynomial takes at most {most} variables, not {box.dimension}")
    tried: set[tuple[int, ...]] = set()
    searches = [_Degrees(expr, box) for expr in formula.outputs]
    for share in policy.MEASURED_SHARES:
        with one_thread():
            fits = [search.lowest(share * eps) for search in searches]
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


class _Degrees:
    """Polynomials of ever higher degree for one function, as far as they are worth a fit.

    A polynomial of degree q leaves the Chebyshev coefficients c_α of f with |α| > q as they are, and none is more than
    2^d times the largest error: what is out of reach is seen before anything is fitted.
    """

    def __init__(self, expr: Expr, box: Box) -> None:
        self.expr = expr
        self.dimension = box.dimension
        self.first = 0
        count = policy.CHEBYSHEV_POINTS[box.dimension]
        self.fine, self.coarse = _samples(expr, box, 2 * count + 1), _samples(expr, box, count)
        self.coefficients = _chebyshev_coefficients(self.coarse)
        self.degrees = sum(np.meshgrid(*[np.arange(count)] * self.dimension, indexing="ij", sparse=True))
        self.end = counted() + policy.ALL_DEGREES * SECOND

    def least_error(self, degree: int) -> float:
        """A lower bound on the error of every polynomial of a degree, on the samples."""
        beyond = np.abs(self.coefficients[self.degrees > degree])
        return float(beyond.max(initial=0.0)) / float(2**self.dimension)

    def lowest(self, goal: float) -> _Fit:
        """The first degree whose best polynomial, as far as a grid can tell, meets a goal below those before."""
        best = self.least_error(policy.MAX_DEGREE[self.dimension]), policy.MAX_DEGREE[self.dimension]
        for degree in range(self.first, policy.MAX_DEGREE[self.dimension] + 1) if best[0] <= goal else ():
            if self.least_error(degree) <= goal:
                fit = _fit(self.coarse, self.fine, degree, goal)
                if fit.error <= goal:
                    self.first = degree
                    return fit
                best = max(best[0], fit.error), degree
                if counted() > self.end:
                    break
        raise no_polynomial(self.expr, best[1], goal, best[0])


def _chebyshev_coefficients(samples: _Samples) -> Floats:
    """Coefficients of the polynomial through the values at the Chebyshev points of all axes."""
    count, found = len(samples.points), samples.values
    halved = np.ones(count)
    halved[[0, -1]] = 0.5
    cosines = np.cos(np.pi * np.outer(np.arange(count), np.arange(count)) / (count - 1))
    transform = 2 / (count - 1) * halved[:, None] * cosines * halved
    return multiply_axes(found, [transform] * found.ndim)


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
        raise undefined_on_box(expr)
    return _Samples(points, values)


def _fit(coarse: _Samples, fine: _Samples, degree: int, goal: float) -> _Fit:
    """Least squares, then Lawson's reweighting while the goal is near."""
    dimension = coarse.values.ndim
    exponents = [e for s in range(degree + 1) for e in compositions(s, dimension)]
    matrix = _design(coarse.points, exponents, dimension)
    target = coarse.values.ravel()
    weight = np.full(len(target), 1.0 / len(target))
    best: tuple[float, Floats] = (np.inf, np.zeros(len(exponents)))
    start = counted()
    for _ in range(policy.LAWSON_ROUNDS):
        checkpoint()
        spend(matrix.size * (0.02 + len(exponents) / 8000) + 0.02 * fine.values.size)
        root = np.sqrt(weight)
        found = least_squares(matrix * root[:, None], target * root)
        found[np.abs(found) < 1e-17 * np.abs(found).max()] = 0.0
        error = float(np.abs(_values(fine.points, exponents, found, dimension) - fine.values).max())
        best = min(best, (error, found), key=lambda pair: pair[0])
        if error <= goal or error > policy.WITHIN_REACH * goal or counted() - start > policy.ALL_DEGREES / 2 * SECOND:
            break
        residual = np.abs(matrix @ found - target)
        weight = weight * residual
        weight = weight / weight.sum()
    return _Fit(degree, exponents, best[1], best[0])


def _design(points: Floats, exponents: Sequence[Exponents], dimension: int) -> Floats:
    """T_α at every point of a grid: a column for each α."""
    one_axis = np.polynomial.chebyshev.chebvander(points, max(max(e) for e in exponents)).T
    rows = np.empty((len(exponents), len(points) ** dimension))
    for row, alpha in zip(rows, exponents, strict=True):
        row[:] = reduce(np.multiply.outer, [one_axis[e] for e in alpha]).ravel()
    return rows.T


def _values(points: Floats, exponents: Sequence[Exponents], coefficients: Floats, dimension: int) -> Floats:
    """Σ coefficients · T_α on a grid, one axis after the other."""
    highest = max(max(e) for e in exponents)
    found = np.zeros((highest + 1,) * dimension)
    found[tuple(np.array(exponents).T)] = coefficients
    one_axis = np.asarray(np.polynomial.chebyshev.chebvander(points, highest), dtype=np.float64)
    return multiply_axes(found, [one_axis] * dimension)
