"""Boxes with exact ends, cut into leaves by trees of halvings (`coverings`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flint import fmpq

from transformula.kernel.enclosures.balls import float_above, float_below, from_float
from transformula.kernel.enclosures.coverings import halfway, leaves
from transformula.kernel.enclosures.intervals import Ends, range_of
from transformula.kernel.enclosures.taylor_models import Floats
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.syntax.boxes import Box

__all__ = ["MAX_NODES", "Region", "halfway"]

#: Nodes of a tree, and nodes times axes: what is held in memory at once.
MAX_NODES = 400_000
_MAX_NUMBERS = 20_000_000


@dataclass(frozen=True)
class Region:
    """A product of closed intervals; ends are exact where they are rational numbers, else rounded outward."""

    names: tuple[str, ...]
    lower: tuple[fmpq, ...]
    upper: tuple[fmpq, ...]

    @classmethod
    def of_box(cls, box: Box) -> Region:
        """The region of a box."""
        lower = tuple(range_of(end, {})[0] for end in box.lower)
        return cls(box.variables, lower, tuple(range_of(end, {})[1] for end in box.upper))

    @property
    def ends(self) -> dict[str, Ends]:
        """The exact interval of each variable."""
        return dict(zip(self.names, zip(self.lower, self.upper, strict=True), strict=True))

    @cached_property
    def floats(self) -> tuple[Floats, Floats]:
        """The ends as floats, rounded outward, shapes (d,)."""
        return np.array([*map(float_below, self.lower)]), np.array([*map(float_above, self.upper)])

    def leaves(self, tree: Sequence[int]) -> tuple[Floats, Floats]:
        """The leaves of a tree as float boxes, shape (d, leaves), that cover the region."""
        axes = len(self.names)
        if not isinstance(tree, list) or not 0 < len(tree) <= MAX_NODES:
            raise RefutedError(f"a tree of halvings has 1 to {MAX_NODES} nodes")
        if len(tree) * axes > _MAX_NUMBERS:
            raise RefutedError(f"a tree of {len(tree)} nodes over {axes} axes is too large")
        return leaves(self.floats[0][:, None], self.floats[1][:, None], [tree], MAX_NODES)[:2]

    def exact(self, lower: Sequence[float] | Floats, upper: Sequence[float] | Floats) -> dict[str, Ends]:
        """A leaf cut to the region: a leaf at the border gets the exact rational end.

        The float ends of the region are the nearest outward ones, so no leaf lies outside of it.
        """
        found: dict[str, Ends] = {}
        for k, name in enumerate(self.names):
            if not np.isfinite(lower[k]) or not np.isfinite(upper[k]):
                raise RefutedError(f"the interval of {name} is too large for floats")
            low = max(self.lower[k], from_float(float(lower[k])))
            high = min(self.upper[k], from_float(float(upper[k])))
            if not low <= high:
                raise RefutedError(f"a leaf lies outside the interval of {name}")
            found[name] = low, high
        return found
