"""What a construction hands to the driver: attempts, built when their turn comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from transformula.constructions.registry import Construction
from transformula.kernel.evidence import Evidence
from transformula.kernel.weights import Weights
from transformula.searching.finder import Finder


@dataclass(frozen=True, eq=False)
class Built:
    """Weights, the circuit they stand for (softmax models), and the search for their evidence."""

    weights: Weights
    circuit: dict[str, Any] | None = None
    evidence: Finder = field(default_factory=Finder)


@dataclass(frozen=True)
class Attempt:
    """One try: its construction, and how to build it.

    Attempts of one ``group`` differ in their tables only: if rounding alone is far too much for one of them, it
    is for all.
    """

    construction: Construction
    build: Callable[[], Built]
    group: int = 0


__all__ = ["Attempt", "Built", "Evidence"]
