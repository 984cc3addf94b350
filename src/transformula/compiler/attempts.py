"""Attempts: candidates that a construction builds when their turn comes, and the task they are built for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transformula.compiler import policy
from transformula.compiler.constructions import Construction
from transformula.compiler.evidence.finder import Finder
from transformula.compiler.options import Options
from transformula.compiler.prepare import Prepared
from transformula.kernel.folder.weights import Weights
from transformula.kernel.syntax.boxes import Formula

if TYPE_CHECKING:
    from transformula.compiler.circuit import Circuits
    from transformula.compiler.circuit_layout import NodeTable
    from transformula.compiler.circuit_tables import MissedGoal
    from transformula.compiler.one_layer_parts import FittedPart


@dataclass
class Findings:
    """Results that attempts leave for later attempts of the same search.

    Attributes
    ----------
    circuits : Circuits or None
        The formula's circuits, each lowered once.
    missed : dict
        For one layer: the best table of a part that missed its goal, and its error.
    failed, fitted : dict
        For circuits: tables that missed their goals, and tables that met them, with the goals.
    coarse : bool
        Whether any bound will do: then a table that is better than needed is used again.
    """

    circuits: Circuits | None = None
    missed: dict[object, tuple[FittedPart, float]] = field(default_factory=dict)
    failed: dict[object, MissedGoal] = field(default_factory=dict)
    fitted: dict[object, tuple[float, NodeTable]] = field(default_factory=dict)
    coarse: bool = False


@dataclass(frozen=True, eq=False)
class BuildTask:
    """A request to a construction: the prepared formula, the options, and the findings so far.

    ``most`` is the number of memory tokens above which a model is of no use, because a smaller one is proven.
    """

    ground: Prepared
    options: Options
    findings: Findings = field(default_factory=Findings)
    most: float = math.inf

    @property
    def formula(self) -> Formula:
        """The formula as typed."""
        return self.ground.formula

    @property
    def eps(self) -> float:
        """The tolerance to aim at."""
        return self.options.eps or policy.DEFAULT_EPS


@dataclass(frozen=True, eq=False)
class Built:
    """Weights, the circuit they stand for (softmax models), and the search for their evidence."""

    weights: Weights
    circuit: dict[str, Any] | None = None
    evidence: Finder = field(default_factory=Finder)


@dataclass(frozen=True)
class Attempt:
    """One candidate: its construction, and how to build it.

    Attempts of one ``group`` differ in their tables only: a failure that no table can mend rules out the group.
    """

    construction: Construction
    build: Callable[[], Built]
    group: int = 0
