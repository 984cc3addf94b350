"""What a construction hands to the driver: attempts, built when their turn comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from transformula.compiler.constructions import Construction
from transformula.compiler.evidence.finder import Finder
from transformula.errors import NotProvenError
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.weights import Weights

#: Errors of tables that come to more than so many times the tolerance are not worth a proof: what is proven may be
#: less than their sum, but not by that much.
STRAINED = 4.0
#: What is said of them.
ASK = ": ask for a larger eps"


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
    is for all. ``tables`` is the part of the tolerance that they may use, if that is all they differ in.
    """

    construction: Construction
    build: Callable[[], Built]
    group: int = 0
    tables: float | None = None


def check_strain(expected: float, eps: float, said: str, rounding: float | None = None) -> None:
    """Refuse tables whose errors are expected to come to so much that a proof is not worth it."""
    if expected > STRAINED * eps:
        raise NotProvenError(f"{said} an error of about {expected:.2g}{ASK}", measured=expected, rounding=rounding)


__all__ = ["ASK", "Attempt", "Built", "Evidence", "check_strain"]
