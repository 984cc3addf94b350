"""Ranges of polynomials on [-1, 1]**d by Bernstein coefficients on sub-intervals.

*Theorem.* A polynomial of degree n on an interval lies between the smallest and the largest of its
Bernstein coefficients there; the first and the last are values of the polynomial. The coefficients
are the polar form ("blossom") at the interval's ends, so the coefficients of t**k on any part of
[-1, 1] are averages of products of k numbers in [-1, 1]: at most 1 in absolute value.

Hence, if the matrix of `matrix` is applied to power coefficients p in floats, each result is wrong
by at most ``gamma * sum abs(p)``: every entry of the matrix is within u of the exact rational it
stands for, and a product of a d-fold tensor takes d sums of n + 1 terms. `ROUNDING` is that gamma
with room to spare (n <= 31, d <= 4: below 4 * 35 * u < 2**-45).
"""

from __future__ import annotations

from functools import lru_cache
from math import comb

import numpy as np

from transformula.taylor.results import Floats

ROUNDING = 2.0**-45
MAX_TERMS = 32


@lru_cache(maxsize=32)
def matrix(terms: int, parts: int) -> Floats:
    """Power coefficients on [-1, 1] to Bernstein coefficients on equal parts.

    Returns
    -------
    array, shape (parts, terms, terms)
        ``matrix[s] @ p`` are the coefficients on part s of the polynomial ``sum p[k] t**k``.

    Examples
    --------
    >>> matrix(3, 1)[0] @ np.array([0.0, 0.0, 1.0])  # t**2
    array([ 1., -1.,  1.])
    """
    if terms > MAX_TERMS:
        raise ValueError(f"{terms} terms; the rounding bound holds for at most {MAX_TERMS}")
    result = np.empty((parts, terms, terms))
    for s in range(parts):
        for i in range(terms):
            for k in range(terms):
                mean = _blossom(terms - 1, i, k, 2 * s - parts, 2 * s + 2 - parts)
                result[s, i, k] = mean / (comb(terms - 1, k) * parts**k)
    result.setflags(write=False)
    return result


def _blossom(n: int, i: int, k: int, low: int, high: int) -> int:
    """Sum of products over the k-subsets of (n - i) lows and i highs (Bernstein i of t**k)."""
    return sum(
        comb(i, m) * comb(n - i, k - m) * high**m * low ** (k - m)
        for m in range(max(0, k - n + i), min(i, k) + 1)
    )


def coefficients(powers: Floats, parts: int) -> Floats:
    """Bernstein coefficients of many tensor polynomials.

    Parameters
    ----------
    powers : array, shape (boxes, K, ..., K)
    parts : int
        Sub-intervals for each axis.

    Returns
    -------
    array, shape (boxes, parts * K, ..., parts * K)
    """
    terms = powers.shape[-1]
    flat = matrix(terms, parts).reshape(parts * terms, terms)
    result = powers
    for _ in range(powers.ndim - 1):
        result = np.tensordot(result, flat, axes=([1], [1]))
    return result
