"""What a proof rule hands back, and how it says no."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from transformula.errors import NotProvenError


@dataclass(frozen=True)
class Proof:
    """Proven bounds, rounded up: sup|T_w − f| and sup|computed − T_w| over the box."""

    approximation: float
    rounding: float
    details: dict[str, object] = field(default_factory=dict)

    @property
    def bound(self) -> float:
        """Proven bound of |computed − f|: the sum, rounded up."""
        return add_up(self.approximation, self.rounding)


def add_up(left: float, right: float) -> float:
    """A float that is at least the sum."""
    if left == 0 or right == 0:
        return left + right
    return math.nextafter(left + right, math.inf)


class RefutedError(NotProvenError):
    """The weights are not what the claim says they are; the message gives the reason."""
