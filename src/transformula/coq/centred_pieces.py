"""A table's range in pieces, each with the line that its scores are measured from and the degrees of Taylor models.

On a piece the scores are measured from σ·u + τ, where σ is their mean slope under the softmax and τ makes the weights
w_k(u) = exp((a_k − σ)u + b_k − τ) add up to about 1. Then |Σ w_k (v_k − f)| <= error·d and d <= Σ w_k bound the table's
distance to f without a quotient, and no two large numbers cancel that need not: native floats are enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

#: Points of a piece at which its sums are sampled.
POINTS = 16
#: Seconds that `coqc` takes for a lemma, and for a token's Taylor model per cubed degree.
LEMMA_COST, TOKEN_COST = 0.7, 4.3e-5
MAX_DEGREE, MAX_DEPTH = 20, 14
#: Share of the allowed excess that the models' remainders may take, and of the mass that its bound gives away.
REMAINDER, GIVEN_AWAY = 0.1, 0.02

Tokens = tuple[Sequence[float], Sequence[float], Sequence[float]]


class TableSample(NamedTuple):
    """A point, the function there and the table's error."""

    at: float
    meant: float
    error: float


class CentredPiece(NamedTuple):
    """A part of a table's range: σ and τ, a lower bound of Σ w_k, and the degrees and bits that Interval needs."""

    low: Fraction
    high: Fraction
    slope: Fraction
    offset: Fraction
    mass: Fraction
    mass_degree: int
    degree: int
    cancels: float
    cost: float


def pieces(
    tokens: Tokens, samples: Sequence[TableSample], low: Fraction, high: Fraction, error: float
) -> list[CentredPiece]:
    """The cheapest pieces found by halving."""
    return _halved(tokens, samples, (low, high), error, MAX_DEPTH)


def _halved(
    tokens: Tokens, samples: Sequence[TableSample], ends: tuple[Fraction, Fraction], error: float, depth: int
) -> list[CentredPiece]:
    low, high = ends
    whole = _piece(tokens, [s for s in samples if low <= s.at <= high], low, high, error)
    if depth == 0 or (whole.degree <= MAX_DEGREE and whole.cost <= 2 * LEMMA_COST):
        return [whole]
    middle = (low + high) / 2
    parts = [p for e in ((low, middle), (middle, high)) for p in _halved(tokens, samples, e, error, depth - 1)]
    return parts if sum(p.cost for p in parts) < whole.cost else [whole]


def _piece(tokens: Tokens, samples: Sequence[TableSample], low: Fraction, high: Fraction, error: float) -> CentredPiece:
    middle, half = float(low + high) / 2, float(high - low) / 2
    scores = [a * middle + b for a, b in zip(tokens[0], tokens[1], strict=True)]
    top = max(scores)
    weights = [math.exp(s - top) for s in scores]
    total = sum(weights)
    mean = sum(a * w for a, w in zip(tokens[0], weights, strict=True)) / total
    slope = Fraction(mean).limit_denominator(1000)
    offset = Fraction(top + math.log(total) - float(slope) * middle).limit_denominator(1000)
    reaches = [abs(a - slope) * half for a in tokens[0]]
    inside = [low + (high - low) * j / POINTS for j in range(POINTS + 1)]
    masses = [_mass(tokens, slope, offset, float(u)) for u in inside]
    mass = Fraction(min(masses) * (1 - GIVEN_AWAY)).limit_denominator(1000)
    meant = sum(s.meant for s in samples) / max(len(samples), 1)
    sizes = [w / total * abs(v - meant) for w, v in zip(weights, tokens[2], strict=True)]
    worst = max((abs(s.error) * _mass(tokens, slope, offset, s.at) for s in samples), default=0.0)
    room = min(REMAINDER * error, error - worst / float(mass)) * float(mass) if mass > 0 else 0.0
    degree = _degree(sizes, reaches, room)
    mass_degree = _degree([w / total for w in weights], reaches, min(masses) * GIVEN_AWAY / 4)
    cost = LEMMA_COST + TOKEN_COST * len(scores) * (degree**3 + mass_degree**3) if degree <= MAX_DEGREE else math.inf
    return CentredPiece(low, high, slope, offset, mass, mass_degree, degree, sum(sizes), cost)


def _mass(tokens: Tokens, slope: Fraction, offset: Fraction, u: float) -> float:
    shifts = (float(a - slope) * u + float(b - offset) for a, b in zip(tokens[0], tokens[1], strict=True))
    return sum(math.exp(min(s, 300.0)) for s in shifts)


def _degree(sizes: Sequence[float], reaches: Sequence[float], room: float) -> int:
    """The degree at which the remainders of Σ size·exp, on the reach of each exponent, fit in the room."""
    left = [size * math.exp(min(r, 300.0)) for size, r in zip(sizes, reaches, strict=True)]
    for degree in range(MAX_DEGREE):
        left = [x * float(r) / (degree + 1) for x, r in zip(left, reaches, strict=True)]
        if degree >= 2 and sum(left) <= room:
            return degree
    return 2 * MAX_DEGREE
