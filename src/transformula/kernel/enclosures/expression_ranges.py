"""Proven ranges and signs of expressions: Taylor models on many boxes at once, on the leaves of a given tree.

On each leaf an expression lies in its interval range (exact ends, `intervals`) and in the range of its
Taylor model (`enclose_ranges`). Taylor models take roots and arcsines as defined; that they are is what the
interval range proves, on the whole region or else on every leaf.

Where the argument of a root or an arcsine may leave the domain, the models hold at the points where it does
not: that the expression is defined at all is for others to prove (`intervals.range_of`). The range of a model
is that of its Bernstein coefficients (of few variables, else constant +- sum of abs(coefficients)), widened by
its rest, so that its excess shrinks with the square of the box.

*Theorem.* A polynomial of degree n on an interval lies between the smallest and the largest of its
Bernstein coefficients there; the first and the last are values of the polynomial. The coefficients
are the polar form ("blossom") at the interval's ends, so the coefficients of t**k on any part of
[-1, 1] are averages of products of k numbers in [-1, 1]: at most 1 in absolute value.

Hence, if the matrix of `bernstein_matrix` is applied to power coefficients p in floats, each result is wrong
by at most `BERNSTEIN_ROUNDING` times sum abs(p), underflow apart: an entry of the matrix is within u of its exact
rational, and each of the d sums has at most 32 terms, so a result errs by (1 + u)**(34 d) - 1 < 240 u
(d <= 7). The other 16 u are for callers who round p to floats first (2u).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import comb

import numpy as np
from flint import arb
from numpy.typing import NDArray

from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import Operations, enclose, float_above, float_below, from_float, round_up
from transformula.kernel.enclosures.intervals import Ends, UndefinedError, corner_range, range_of, try_range
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.enclosures.taylor_models import (
    TINY,
    UP,
    Floats,
    TaylorModel,
    U,
    absolute,
    boxes_of,
    compose,
    constant_model,
    layout,
    variable_model,
    whole_power,
)
from transformula.kernel.exceptions import NotProvenError, RefutedError
from transformula.kernel.functions.function_table import FUNCTIONS, is_open, root_model
from transformula.kernel.syntax.expression import Expr, fold, short_text, walk

#: 256 u.
BERNSTEIN_ROUNDING = 2.0**-45
_MAX_TERMS, _MAX_AXES = 32, 7


@lru_cache(maxsize=32)
def bernstein_matrix(terms: int, parts: int) -> Floats:
    """Power coefficients on [-1, 1] to Bernstein coefficients on equal parts, shape (parts, terms, terms)."""
    if terms > _MAX_TERMS:
        raise NotProvenError(f"{terms} terms: the rounding bound of Bernstein coefficients does not hold")
    result = np.empty((parts, terms, terms))
    for s, i, k in np.ndindex(result.shape):
        mean = _blossom(terms - 1, i, k, 2 * s - parts, 2 * s + 2 - parts)
        result[s, i, k] = mean / (comb(terms - 1, k) * parts**k)  # integers: rounded once
    result.setflags(write=False)
    return result


def _blossom(n: int, i: int, k: int, low: int, high: int) -> int:
    """Sum of products over the k-subsets of (n - i) lows and i highs (Bernstein i of t**k)."""
    most = range(max(0, k - n + i), min(i, k) + 1)
    return sum(comb(i, m) * comb(n - i, k - m) * high**m * low ** (k - m) for m in most)


def bernstein_coefficients(powers: Floats, parts: int) -> Floats:
    """Bernstein coefficients (boxes, parts * K, ..) of many tensor polynomials (boxes, K, ..)."""
    if powers.ndim - 1 > _MAX_AXES:
        raise NotProvenError(f"{powers.ndim - 1} axes: the rounding bound of Bernstein coefficients does not hold")
    terms = powers.shape[-1]
    flat = bernstein_matrix(terms, parts).reshape(parts * terms, terms)
    for _ in range(powers.ndim - 1):
        powers = np.tensordot(powers, flat, axes=([1], [1]))
    return powers


def bernstein_of_series(series: list[arb], rest: arb, parts: int) -> tuple[Floats, float]:
    """Bernstein coefficients (parts, K) of a series and a rest, and what each may be wrong by, the rest included.

    Midpoints become floats: 2u of `BERNSTEIN_ROUNDING`'s reserve; 1e-300 covers 40 underflows of 2**-1074. Where
    something overflows nothing is known: an infinite coefficient must not count as a lower bound.
    """
    floats = np.array([float(c.mid()) for c in series])
    size = sum((abs(c) for c in series), arb(0))
    wrong = round_up(sum((c.rad() for c in series), rest) + size * BERNSTEIN_ROUNDING + 1e-300)
    with np.errstate(invalid="ignore", over="ignore"):
        found = bernstein_coefficients(floats[None], parts).reshape(parts, -1)
    return found, wrong if np.isfinite(found).all() else np.inf


#: Boxes at a time, and coefficients (of all nodes together) held at a time.
_MOST_BOXES, _MOST_COEFFICIENTS = 4096, 30_000_000
_MAX_TENSOR = 700


def _inverse(u: TaylorModel) -> TaylorModel:
    """1/u, unbounded where u may reach zero; abs(g^(K)) / K! is at most min abs(u)**-(K+1).

    The coefficients (-1)**k / p0**(k+1) are rounded 2 k + 1 times, each charged twice.
    """
    order, (low, high) = u.layout.order, u.range()
    ok = (low > 0) | (high < 0)
    step, last = 1 / np.where(ok, u.constant, 1.0), 1 / np.where(ok, np.minimum(np.abs(low), np.abs(high)), 1.0)
    series = [step]
    for _ in range(order - 1):
        series.append(-series[-1] * step)
    rest = whole_power(last, order + 1) * UP + TINY
    wrong = [np.abs(c) * ((4 * k + 2) * U) + TINY for k, c in enumerate(series)]
    return compose(u, series, wrong, np.where(ok, rest, np.inf))


def _power(base: TaylorModel, exponent: TaylorModel, by: Fraction | None) -> TaylorModel:
    if by is None:
        return FUNCTIONS["exp"].model(exponent * FUNCTIONS["log"].model(base))
    if by < 0:
        return _inverse(_power(base, exponent, -by))
    if not by:
        return constant_model(base.layout, np.ones(len(base.rest)), 0 * base.rest)  # nan where u is unbounded
    return whole_power(base, int(by)) if by.denominator == 1 else root_model(by)(base)  # type: ignore[no-any-return]


_MODELS: Operations[TaylorModel] = Operations(
    "model",
    lambda a, b: a * _inverse(b),
    _power,
    lambda a, b: (a + b + absolute(a - b)).times_constant(0.5),
)


def model_of(expr: Expr, variables: Sequence[str], centre: Floats, radius: Floats, order: int) -> TaylorModel:
    """Models on boxes (d, boxes); ``rest`` is infinite where the expression may be unbounded."""
    shape = layout(len(variables), order)
    axes = {n: k for k, n in enumerate(variables)}
    boxes = centre.shape[1]

    def model(node: Expr, args: list[TaylorModel]) -> TaylorModel:
        if node.op == "variable":
            axis = axes.get(str(node.value))
            if axis is None:
                raise RefutedError(f"{node.value} is not a variable here")
            return variable_model(shape, axis, centre[axis], radius[axis])
        if node.names:
            return _cleaned(_MODELS.apply(node, args))
        with precision(80):
            ball = enclose(node)
            value = float(ball.mid())
            wrong = round_up(abs(ball - value))
        return _cleaned(constant_model(shape, np.full(boxes, value), np.full(boxes, wrong)))

    with np.errstate(all="ignore"):
        return fold(expr, model)


def _cleaned(model: TaylorModel) -> TaylorModel:
    """Nothing is known where a number is not finite: zero, with an infinite rest."""
    good = np.isfinite(model.rest) & np.isfinite(model.terms).all(axis=0)
    if good.all():
        return model
    return TaylorModel(model.layout, np.where(good, model.terms, 0.0), np.where(good, model.rest, np.inf))


def to_tensor(model: TaylorModel) -> Floats:
    """Coefficients as a full tensor, shape (boxes, K, ..., K); the caller sees that K**d is moderate."""
    shape = model.layout
    size = (shape.order,) * shape.dimension
    flat = np.zeros((model.terms.shape[1], shape.order**shape.dimension))
    flat[:, np.ravel_multi_index(tuple(shape.exponents.T), size)] = model.terms.T
    return flat.reshape(-1, *size)


def models_on(
    expr: Expr, variables: Sequence[str], lower: Floats, upper: Floats, order: int
) -> Iterator[tuple[slice, TaylorModel]]:
    """The Taylor models on many boxes (d, boxes), a few at a time."""
    step = _MOST_COEFFICIENTS // (sum(1 for _ in walk(expr)) * layout(len(variables), order).terms)
    step = min(max(step, 1), _MOST_BOXES)
    for start in range(0, lower.shape[1], step):
        part = slice(start, start + step)
        yield part, model_of(expr, variables, *boxes_of(lower[:, part], upper[:, part]), order)


def model_range(model: TaylorModel, parts: int = 1) -> tuple[Floats, Floats]:
    """The ranges of a model on its boxes, rounded outward; infinite where it is not finite.

    More ``parts`` of each side make them tighter.
    """
    shape = model.layout
    if shape.order**shape.dimension > _MAX_TENSOR:
        return model.range()
    with np.errstate(all="ignore"):
        values = bernstein_coefficients(to_tensor(model), parts).reshape(model.terms.shape[1], -1)
        size = np.abs(model.terms).sum(axis=0)
        wrong = (model.rest + size * BERNSTEIN_ROUNDING) * UP + TINY
        low, high = values.min(axis=1) - wrong, values.max(axis=1) + wrong
        wider = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)  # the last two roundings
    known = np.isfinite(low) & np.isfinite(high)
    return np.where(known, wider[0], -np.inf), np.where(known, wider[1], np.inf)


def enclose_ranges(
    expr: Expr, variables: Sequence[str], lower: Floats, upper: Floats, order: int = 4
) -> tuple[Floats, Floats]:
    """Proven ranges on many boxes (d, boxes), at the points where it is defined; infinite if it may be unbounded."""
    ranges = [model_range(model) for _, model in models_on(expr, variables, lower, upper, order)]
    return np.concatenate([low for low, _ in ranges]), np.concatenate([high for _, high in ranges])


#: Variables that a message names.
_SHOWN = 12


def order_for(dimension: int) -> int:
    """The affordable order of Taylor models, by number of variables."""
    return 4 if dimension <= 6 else 3 if dimension <= 60 else 2


def range_on(expr: Expr, region: Region, tree: Sequence[int], defined: Container[Expr] = ()) -> tuple[float, float]:
    """Floats between which the expression lies on a region; nodes in ``defined`` are known to be so on all of it."""
    whole = try_range(expr, region.ends, defined)
    bottom, top = (-math.inf, math.inf) if whole is None else (float_below(whole[0]), float_above(whole[1]))
    if whole is None or not each_once(expr):
        lower, upper = region.leaves(tree)
        low, high = _taylor(expr, region, lower, upper)
        needed = np.ones(len(low), bool) if whole is None else ~(np.isfinite(low) & np.isfinite(high))
        for k in np.flatnonzero(needed).tolist():
            a, b = leaf_range(expr, region, lower[:, k], upper[:, k], defined)
            low[k], high[k] = max(low[k], float_below(a)), min(high[k], float_above(b))
        bottom, top = max(bottom, float(np.min(low))), min(top, float(np.max(high)))
    if not (math.isfinite(bottom) and math.isfinite(top) and bottom <= top):
        raise NotProvenError(f"no range of {short_text(expr)} is found on the given parts of the box")
    return bottom, top


def sign_on(expr: Expr, region: Region, tree: Sequence[int], defined: Container[Expr] = ()) -> int:
    """The sign of an expression on a region: 2 (> 0), 1 (>= 0), -1 (<= 0) or -2 (< 0)."""
    whole = try_range(expr, region.ends, defined)
    parts = [] if whole is None else [whole]
    if whole is None or whole[0] < 0 < whole[1]:
        lower, upper = region.leaves(tree)
        low, high = _taylor(expr, region, lower, upper)
        needed = undecided(low, high) if whole is not None else np.ones(len(low), bool)
        parts = [(from_float(a), from_float(b)) for a, b in zip(low[~needed], high[~needed], strict=True)]
        for k in np.flatnonzero(needed).tolist():
            a, b = leaf_range(expr, region, lower[:, k], upper[:, k], defined, corner_range)
            a, b = max(a, from_float(low[k])) if math.isfinite(low[k]) else a, b
            parts.append((a, min(b, from_float(high[k])) if math.isfinite(high[k]) else b))
    least, most = min(a for a, _ in parts), max(b for _, b in parts)
    if least < 0 < most:
        raise NotProvenError(f"the sign of {short_text(expr)} is not seen on the given parts of the box")
    return (2 if least > 0 else 1) if least >= 0 else (-2 if most < 0 else -1)


def check_defined(expr: Expr, region: Region, tree: Sequence[int], defined: Container[Expr] = ()) -> None:
    """Refuse an expression of which some node may be undefined on some leaf, naming both."""
    for node in open_nodes(expr, defined):
        if try_range(node, region.ends, defined) is None:
            for low, high in zip(*(ends.T for ends in region.leaves(tree)), strict=True):
                leaf_range(node, region, low, high, defined)


def open_nodes(expr: Expr, defined: Container[Expr] = ()) -> list[Expr]:
    """The outermost nodes of which it is not known that they are defined wherever their arguments are."""
    found = []
    stack = [expr]
    seen = set[Expr]()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node not in defined and is_open(node):
            found.append(node)
        else:
            stack += node.args
    return found


def leaf_range(
    expr: Expr,
    region: Region,
    lower: Floats,
    upper: Floats,
    defined: Container[Expr],
    of: Callable[[Expr, Mapping[str, Ends], Container[Expr]], Ends] = range_of,
) -> Ends:
    """The interval range on one leaf; a refusal names the place."""
    values = region.exact(lower, upper)
    try:
        return of(expr, values, defined)
    except UndefinedError as error:
        place = place_text(values)
        raise NotProvenError(f"{error} near {place}", place=place) from None


def place_text(values: Mapping[str, Ends]) -> str:
    """A part of the box, for a message."""
    shown = [(n, *(f"{float_below(end):.9g}" for end in ends)) for n, ends in [*values.items()][:_SHOWN]]
    more = [".."] if len(values) > _SHOWN else []
    return ", ".join([f"{n} = {a}" + ("" if a == b else f"..{b}") for n, a, b in shown] + more)


def each_once(expr: Expr) -> bool:
    """Whether no variable occurs twice: then the interval range is exact but for rounding."""
    seen: set[Expr] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if node.names and node in seen:
            return False
        if node.names:
            seen.add(node)
            stack.extend(node.args)
    return True


def undecided(low: Floats, high: Floats) -> NDArray[np.bool_]:
    """A mask of the ranges that do not show a strict sign."""
    return ~(((low > 0) | (high < 0)) & np.isfinite(low) & np.isfinite(high))


def _taylor(expr: Expr, region: Region, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    used = [k for k, name in enumerate(region.names) if name in expr.names]
    if not used:
        return np.full(lower.shape[1], -np.inf), np.full(lower.shape[1], np.inf)
    return enclose_ranges(expr, [region.names[k] for k in used], lower[used], upper[used], order_for(len(used)))
