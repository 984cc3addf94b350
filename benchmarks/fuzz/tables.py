"""Softmax tables: the error on a piece, and the ranges and slopes of the function there, hold at every point tried."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import mpmath
import numpy as np

from fuzz.cases import Case, fuzzer
from fuzz.values import Unknown, Value, between, formula, real
from transformula.kernel.enclosures.balls import from_float
from transformula.kernel.exceptions import TransformulaError
from transformula.kernel.functions.function_table import FUNCTIONS
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.syntax.parsing import parse
from transformula.kernel.tables.table_error import SoftmaxTable, TablePieces
from transformula.kernel.tables.table_slopes import FunctionCells, SlopePieces

LEAVES = ("u", "u", "u", "(u-1/3)", "(2*u+1)", "(1-u)", "u*u", "(u/7)", "(3-u)")
#: Slopes by differences: the step, the digits they take, and what is left of them.
STEP, DIGITS, SLOPE_SLACK = Fraction(1, 2**100), 120, mpmath.mpf(10) ** -12


def _table(rng: random.Random) -> SoftmaxTable:
    tokens, size = rng.randint(1, 5), rng.choice((1, 10, 100))

    def column(most: float) -> Any:
        return np.array([rng.uniform(-most, most) for _ in range(tokens)])

    return SoftmaxTable((column(size),), (column(size),), column(2))


def _interval(rng: random.Random) -> tuple[float, float]:
    low = rng.choice((0.0, 1.0, -1.0, rng.uniform(-3, 3), rng.uniform(0, 20), 0.5, 2.0))
    high = low + rng.choice((1e-12, 1e-6, 1e-3, 0.01, 0.1, 1.0, 3.0, 10.0))
    return (low, high) if rng.random() < 0.7 else (-high, -low)


class Bounds(NamedTuple):
    """What is claimed on a piece: |T - f|, the ends of f and of f', and |T' - f'|."""

    error: float
    values: tuple[float, float]
    slopes: tuple[float, float]
    gap: float


def _bounds(table: SoftmaxTable, f: Expr, low: float, high: float) -> Bounds:
    error = TablePieces(table, f, "u", from_float(low), from_float(high)).on(low, high).error
    cells = FunctionCells(f, [low, high])
    ends = np.array([low]), np.array([high])
    values, slopes = ((float(a[0]), float(b[0])) for a, b in (cells.values(*ends), cells.slopes(*ends)))
    return Bounds(error, values, slopes, SlopePieces(table, f).on(low, high)[0])


def _read(table: SoftmaxTable, u: Fraction) -> Any:
    """T(u), token by token."""
    scores = [
        real(Fraction(a) * u + Fraction(b))
        for a, b in zip(table.slopes[0].tolist(), table.offsets[0].tolist(), strict=True)
    ]
    weights = [mpmath.exp(score - max(scores)) for score in scores]
    return mpmath.fdot(zip(weights, table.values.tolist(), strict=True)) / sum(weights)


def _points(rng: random.Random, low: float, high: float) -> Iterator[Fraction]:
    for part in (0.0, 1.0, *(rng.random() ** rng.choice((1, 4, 0.25)) for _ in range(8))):
        yield Fraction(low) + (Fraction(high) - Fraction(low)) * Fraction(part)


@fuzzer
def tables(case: Case) -> None:
    """Bound one table and one function on one piece."""
    rng = case.rng
    text, table = formula(rng, rng.randint(1, 3), LEAVES, tuple(FUNCTIONS)), _table(rng)
    low, high = _interval(rng)
    case.given = f"{text} on {low!r}..{high!r} by {table}"
    try:
        bounds = _bounds(table, parse(text, ("u",)), low, high)
    except TransformulaError:
        return
    value = Value(text)
    for u in _points(rng, low, high):
        with mpmath.workdps(DIGITS):
            _check_point(case, table, value, u, bounds, interior=low < u < high)


def _check_point(case: Case, table: SoftmaxTable, value: Value, u: Fraction, bounds: Bounds, interior: bool) -> None:
    try:
        before, here, after = (value.at({"u": u + step}, DIGITS) for step in (-STEP, 0, STEP))
    except Unknown:
        return
    held, place = _read(table, u), f"at {float(u)!r}"
    if math.isfinite(bounds.error):
        holds = here is not None and between(here - bounds.error, held, here + bounds.error)
        case.check("a table is as close to its function as is said", holds, f"{held} for {here} {place}, {bounds}")
    if all(map(math.isfinite, bounds.values)):
        holds = here is not None and between(bounds.values[0], here, bounds.values[1])
        case.check("a function stays between its ends", holds, f"{here} {place}, {bounds}")
    if not interior or before is None or after is None:
        return
    slope = (after - before) / (2 * real(STEP))
    if all(map(math.isfinite, bounds.slopes)):
        holds = between(bounds.slopes[0], slope, bounds.slopes[1], SLOPE_SLACK)
        case.check("a slope stays between its ends", holds, f"{slope} {place}, {bounds}")
    if math.isfinite(bounds.gap):
        gap = (_read(table, u + STEP) - _read(table, u - STEP)) / (2 * real(STEP)) - slope
        holds = between(-bounds.gap, gap, bounds.gap, SLOPE_SLACK)
        case.check("slopes of table and function are as close as is said", holds, f"{gap} {place}, {bounds}")
