"""The plan: which constructions to try for a formula, and the attempts each builds when their turn comes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from transformula.compiler import policy
from transformula.compiler.constructions import (
    CIRCUIT,
    CONSTRUCTIONS,
    LOOKUP,
    PARTITION,
    POLYNOMIAL,
    RIDGE_FAMILY,
    Construction,
)
from transformula.compiler.evidence.finder import Finder
from transformula.compiler.options import Options
from transformula.compiler.prepare import Prepared, check_length
from transformula.compiler.refusal import unusable_interval
from transformula.errors import InputError
from transformula.kernel.enclosures.intervals import UndefinedError, range_of
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.folder.weights import Weights
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.expression import Expr, short_text, walk

if TYPE_CHECKING:
    from transformula.compiler.circuit import Circuits
    from transformula.compiler.circuit_tables import MissedGoal
    from transformula.compiler.layout import TableTokens


#: Characters of an end of an interval in a message.
MOST_DIGITS = 30


@dataclass
class Findings:
    """Results that attempts leave for later attempts of the same search."""

    #: The formula's circuits, each lowered once.
    circuits: Circuits | None = None
    #: For one layer: the best table of a part that missed its goal, and its error.
    missed: dict[object, tuple[TableTokens, float]] = field(default_factory=dict)
    #: For circuits: tables that missed their goals, and tables that met them, with the goals.
    failed: dict[object, MissedGoal] = field(default_factory=dict)
    fitted: dict[object, tuple[float, TableTokens]] = field(default_factory=dict)
    #: Whether any bound will do: then a table that is better than needed is used again.
    coarse: bool = False


@dataclass(frozen=True, eq=False)
class BuildTask:
    """A request to a construction: the prepared formula, the options, and the findings so far.

    ``most`` is the number of memory tokens above which a model is rejected, because a smaller one is proven.
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
        return self.options.eps or self.options.usual


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


#: Constructions that compete by size; a later round is for when none of the earlier ones was proven.
Round = tuple[Construction, ...]


def rounds(ground: Prepared, options: Options) -> list[Round]:
    """The rounds of a search."""
    if options.construction is not None:
        return [(options.construction,)]
    if options.layers == 1:
        return [(LOOKUP,), (PARTITION,)]
    if options.shape is None and ground.is_polynomial:
        # without eps the claim is that of an exact polynomial: nothing else will do
        return [(POLYNOMIAL,), *([] if options.eps is None else _approximations(ground))]
    return _approximations(ground)


def _approximations(ground: Prepared) -> list[Round]:
    forms = max((len(part.forms) for split in ground.splits for part in split.parts), default=0)
    # a grid would be far larger, or not accurate where ReLUs are exact or a root is steep
    if forms > policy.MAX_GRID_FORMS or _needs_relus(ground) or _steep_inside(ground):
        return [(CIRCUIT,), (LOOKUP,), (PARTITION,)]
    if forms > 1:
        return [(CIRCUIT, LOOKUP), (PARTITION,)]  # the circuit's size limits the grids that are worth trying
    return [(LOOKUP,), (CIRCUIT,), (PARTITION,)]  # functions of one form fit in one layer


def _needs_relus(ground: Prepared) -> bool:
    """Whether a summand has an abs, min or max in it that is not just one of an affine expression."""
    nodes = (node for split in ground.splits for part in split.parts for node in walk(part.expr))
    return any(node.op in ("abs", "min", "max") for node in nodes)


def _steep_inside(ground: Prepared) -> bool:
    """Whether an argument of a cube root may change its sign: no single table is accurate on both sides of 0."""
    ends = Region.of_box(ground.formula.box).ends
    inside = [node.args[0] for expr in ground.formula.outputs for node in walk(expr) if node.op == "cbrt"]
    try:
        return any(low < 0 < high for low, high in (range_of(expr, ends) for expr in inside))
    except UndefinedError:
        return False


def attempts(construction: Construction, task: BuildTask) -> Iterator[Attempt]:
    """Models of one construction to try, cheapest first, once nothing rules it out."""
    assert construction.attempts is not None, f"{construction.name} is not made from formulas"
    check_options(construction, task.options)
    if construction.family is not RIDGE_FAMILY:  # its tables are fitted in floats, and its circuit is compared
        _check_floats(task.formula.box, task.options.dtype)
        check_length(task.ground)
    yield from construction.attempts(task)


def check_options(construction: Construction, options: Options) -> None:
    """Refuse options that the construction does not take."""
    name, takes = construction.name, construction.options
    if options.multi_head and "multi_head" not in takes:
        raise InputError("multi_head only applies to the polynomial construction")
    if options.layers == 1 and "layers" not in takes:
        raise InputError(f"a single layer needs the construction {_taking('layers')}: {name} has several layers")
    if options.shape is not None and "shape" not in takes:
        raise InputError(
            f"sequences need the construction {_taking('shape')}: {name} is for functions, not for sequences"
        )


def _taking(option: str) -> str:
    """The constructions that take an option, as text."""
    *first, last = (name for name, made in CONSTRUCTIONS.items() if option in made.options)
    return f"{', '.join(first)} or {last}"


def _end(end: Expr) -> str:
    """An end of an interval for a message: a number of many digits is rounded, not cut."""
    text, number = short_text(end), end.number
    if len(text) <= MOST_DIGITS or number is None:
        return text[:MOST_DIGITS]
    return f"{Decimal(number.numerator) / Decimal(number.denominator):.6g}"


def _check_floats(box: Box, dtype: str) -> None:
    """Refuse intervals that leave the format's range, or are so narrow that hardly a float lies in them."""
    for name, ends, low, high in zip(box.variables, box.floats(), box.lower, box.upper, strict=True):
        size, text = max(map(abs, ends)), f"{name}={_end(low)}..{_end(high)}"
        beyond = not size < float(np.finfo(dtype).max)
        if beyond or not ends[1] - ends[0] > policy.FEWEST_FLOATS * float(np.spacing(np.array(size, dtype))):
            raise unusable_interval(name, text, dtype, beyond)
