"""Scores of tables that were found once and for all (benchmarks/library.py): common functions on common ranges.

Nothing here depends on a function's name. Scores span a space of functions, Σ y_j w_j, whatever the values y. What is
stored is judged by the distance of the function that is to be fitted from these spaces, on a few points, and the
closest are where the search for a table starts. If the function is much like the one that they were found for, it is
met within a few steps, and about as closely: that tells how many tokens to begin with. What comes of it is fitted,
measured and proven like any other table.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformula.compiler.tables.softmax_table import Array

PATH = Path(__file__).with_name("library.json")
KIN = 60.0  # a function that stored scores miss by so many times the error of their own is like it
BETTER = 4.0  # and one that they meet so many times closer is not: steps and exponentials are in many spaces
ALIKE, LESS_ALIKE = 1.2, 1.5  # goals that the error of a stored function may be, where it is the same, and where not
NODES = -np.cos(np.pi * (np.arange(64) + 0.5) / 64)


class Spans(NamedTuple):
    """Scores of one size on −1..1, of shape (stored, tokens), and a basis of what they span at the nodes.

    ``errors`` are those of the functions they were found for, relative to their ranges.
    """

    slopes: Array
    offsets: Array
    errors: Array
    basis: Array


class Neighbours(NamedTuple):
    """The closest stored scores, how close the first of them comes, and how close its own function was met."""

    scores: list[tuple[Array, Array]]
    distance: float
    likely: float

    @property
    def kin(self) -> bool:
        """Whether the function is so much like a stored one that it will be met about as closely."""
        return self.likely / BETTER <= self.distance <= KIN * self.likely

    def promises(self, goal: float) -> bool:
        """Whether these scores are likely to lead to an error of no more than ``goal``."""
        far = math.log(max(self.distance / self.likely, 1.0))
        return self.kin and self.likely <= goal * (ALIKE + LESS_ALIKE * far)


@cache
def sizes() -> tuple[int, ...]:
    """Numbers of tokens of which there is something, smallest first."""
    return tuple(sorted(_stored()))


@cache
def spans(size: int) -> Spans:
    """All that is stored of a size, and its mirror images."""
    parts = [np.array(part) for part in zip(*_stored()[size], strict=True)]
    slopes, offsets, errors = parts
    slopes, offsets = np.concatenate([slopes, -slopes]), np.concatenate([offsets, offsets])
    scores = slopes[:, None] * NODES[:, None] + offsets[:, None]
    scores -= scores.max(axis=2, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=2, keepdims=True)
    return Spans(slopes, offsets, np.concatenate([errors, errors]), np.linalg.qr(scores)[0])


@cache
def _stored() -> dict[int, list[tuple[list[float], list[float], float]]]:
    return {int(size): rows for size, rows in json.loads(PATH.read_text()).items()}


def closest(values: Array, size: int, count: int) -> Neighbours:
    """The stored scores of ``size`` tokens that come closest to the values at the nodes."""
    stored = spans(size)
    parts = np.einsum("knm,n->km", stored.basis, values)
    distances = np.abs(values - np.einsum("knm,km->kn", stored.basis, parts)).max(axis=1)
    order = np.argsort(distances, kind="stable")[:count]
    likely = stored.errors[order[0]] * np.ptp(values)
    scores = [(stored.slopes[k], stored.offsets[k]) for k in order]
    return Neighbours(scores, float(distances[order[0]]), max(float(likely), math.ulp(0.0)))
