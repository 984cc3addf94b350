"""Ranges of polynomials on [-1, 1]**d by Bernstein coefficients on sub-intervals.

*Theorem.* A polynomial of degree n on an interval lies between the smallest and the largest of its
Bernstein coefficients there; the first and the last are values of the polynomial. The coefficients
are the polar form ("blossom") at the interval's ends, so the coefficients of t**k on any part of
[-1, 1] are averages of products of k numbers in [-1, 1]: at most 1 in absolute value.

Hence, if the matrix of `matrix` is applied to power coefficients p in floats, each result is wrong
by at most `ROUNDING` times sum abs(p), underflow apart: an entry of the matrix is within u of its exact
rational, and each of the d sums has at most 32 terms, so a result errs by (1 + u)**(34 d) - 1 < 240 u
(d <= 7). The other 16 u are for callers who round p to floats first (2u).
"""

from __future__ import annotations

from functools import lru_cache
from math import comb

import numpy as np
from flint import arb

from transformula.kernel.enclosures.balls import round_up
from transformula.kernel.enclosures.taylor_models import Floats
from transformula.kernel.exceptions import NotProvenError

#: 256 u.
ROUNDING = 2.0**-45
MAX_TERMS, MAX_AXES = 32, 7


@lru_cache(maxsize=32)
def matrix(terms: int, parts: int) -> Floats:
    """Power coefficients on [-1, 1] to Bernstein coefficients on equal parts, shape (parts, terms, terms)."""
    if terms > MAX_TERMS:
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


def coefficients(powers: Floats, parts: int) -> Floats:
    """Bernstein coefficients (boxes, parts * K, ..) of many tensor polynomials (boxes, K, ..)."""
    if powers.ndim - 1 > MAX_AXES:
        raise NotProvenError(f"{powers.ndim - 1} axes: the rounding bound of Bernstein coefficients does not hold")
    terms = powers.shape[-1]
    flat = matrix(terms, parts).reshape(parts * terms, terms)
    for _ in range(powers.ndim - 1):
        powers = np.tensordot(powers, flat, axes=([1], [1]))
    return powers


def of_series(series: list[arb], rest: arb, parts: int) -> tuple[Floats, float]:
    """Bernstein coefficients (parts, K) of a series and a rest, and what each may be wrong by, the rest included.

    Midpoints become floats: 2u of `ROUNDING`'s reserve; 1e-300 covers 40 underflows of 2**-1074. Where something
    overflows nothing is known: an infinite coefficient must not count as a lower bound.
    """
    floats = np.array([float(c.mid()) for c in series])
    size = sum((abs(c) for c in series), arb(0))
    wrong = round_up(sum((c.rad() for c in series), rest) + size * ROUNDING + 1e-300)
    with np.errstate(invalid="ignore", over="ignore"):
        found = coefficients(floats[None], parts).reshape(parts, -1)
    return found, wrong if np.isfinite(found).all() else np.inf
