"""What every proof rule takes and returns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Limits:
    """When to stop.

    Attributes
    ----------
    boxes : int
        Pieces of the box that may be examined.
    seconds : float
        Wall-clock time for one proof.
    tightness : float
        Without a target, refine until bound <= tightness * (largest error seen).
    order : int or None
        Terms of the Taylor models; None lets the rule choose.
    progress : callable, optional
        Told (boxes done, boxes left for now) as the proof goes.
    """

    boxes: int = 400_000
    seconds: float = 120.0
    tightness: float = 1.25
    order: int | None = None
    progress: Callable[[int, int], None] | None = None


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Bound:
    """A proven bound of sup abs(T - f) over a box.

    Attributes
    ----------
    value : float
        The bound, rounded up; ``inf`` where nothing could be said.
    boxes : int
        Pieces examined.
    closed : bool
        Whether the target was met (without a target: whether the wanted tightness was).
    worst_place : tuple
        ``(lo, hi)`` of the piece that holds the bound: floats in one variable, tuples in several.
    seen : float
        An error that some point of the box comes close to: shows how tight the bound is.
        Only a guide, not part of the proof.
    """

    value: float
    boxes: int
    closed: bool
    worst_place: tuple[Any, Any]
    seen: float = 0.0

    @property
    def ratio(self) -> float:
        """Bound over the largest error seen: 1 is perfectly tight."""
        return self.value / self.seen if self.seen > 0 else math.inf
