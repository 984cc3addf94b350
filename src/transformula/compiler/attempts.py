"""Options of a compile, and its plan: which constructions to try, and the task of one.

A construction builds its attempts when their turn comes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from numbers import Real
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
    chosen,
)
from transformula.compiler.evidence.finder import Finder
from transformula.compiler.evidence.range_trees import find_tree
from transformula.compiler.prepare import Prepared, check_length
from transformula.compiler.refusal import unusable_interval
from transformula.errors import InputError, NotProvenError, Option, brief
from transformula.formula.evaluation import peak
from transformula.kernel.check import inverse_of, largest_inverse
from transformula.kernel.enclosures.balls import float_below, to_fmpq
from transformula.kernel.enclosures.intervals import UndefinedError, range_of
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.weights import DTYPES, Weights
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import MAX_VARIABLES, Box, Formula
from transformula.kernel.syntax.expression import Expr, short_text, substitute, walk

if TYPE_CHECKING:
    from transformula.compiler.circuit import Circuits
    from transformula.compiler.circuit_tables import MissedGoal
    from transformula.compiler.layout import TableTokens


#: Claims are this much above what was proven here, so that the last digits of another machine's
#: libraries cannot make an honest certificate fail.
CLAIM_MARGIN = 1.001


@dataclass(frozen=True)
class Options:
    """Options of a model beside formula and box."""

    eps: float | None = None  # None: none was asked for
    construction: Construction | None = None
    dtype: str = "float64"
    multi_head: bool = False
    layers: int | None = None
    shape: tuple[int, int] | None = None
    inverse: tuple[list[int], ...] = ()  # trees that bound 1/f, for a claim relative to |f|
    pointwise: float | None = None  # the tolerance relative to |f| that eps was derived from
    usual: float = policy.DEFAULT_EPS  # tolerance of an approximation where none was asked for

    def tolerance(self, exact: bool) -> float | None:
        """The tolerance that a model has to meet; None for an exact one, which may claim whatever it can prove."""
        return self.usual if self.eps is None and not exact else self.eps


def checked_options(
    ground: Prepared,
    eps: float | None,
    rel: float | None,
    construction: str,
    dtype: str,
    multi_head: bool,
    layers: int | None,
    shape: tuple[int, int] | None,
    pointwise: float | None = None,
) -> Options:
    """Options that can be used for the formula; a relative tolerance becomes an absolute one."""
    if sum(given is not None for given in (eps, rel, pointwise)) > 1:
        raise InputError("give one of eps, rel and pointwise, not several")
    inverse: tuple[list[int], ...] = ()
    if rel is not None:
        eps = absolute(rel, ground)
    elif pointwise is not None:
        eps, inverse = everywhere(pointwise, ground)
    tolerance = positive(eps, "eps")
    form = known_dtype(dtype)
    wanted = chosen(construction)
    if not (layers is None or (isinstance(layers, Real) and layers == 1)):
        raise InputError("layers must be left out or set to 1")
    if shape is not None:
        _check_shape(shape, ground.formula)
    usual = policy.DEFAULT_EPS if tolerance or ground.is_polynomial else _fitting(ground)
    relative = positive(pointwise, "pointwise")
    return Options(tolerance, wanted, form, multi_head, layers, shape, inverse, relative, usual)


def _fitting(ground: Prepared) -> float:
    """The usual tolerance, or that share of the formula's largest value where that is beyond 1000 or below 1/1000."""
    formula = ground.defined
    size = max(peak(expr, formula.box) for expr in formula.outputs)
    if not size or policy.PLAIN_SIZE[0] <= size <= policy.PLAIN_SIZE[1]:
        return policy.DEFAULT_EPS
    fitting = 10.0 ** math.floor(math.log10(policy.DEFAULT_EPS * size))
    return fitting if 0 < fitting < math.inf else policy.DEFAULT_EPS


def absolute(rel: Any, ground: Prepared) -> float:
    """A tolerance that is at most rel · sup|f| for every output f, once f is shown to be defined."""
    formula = ground.defined
    share = positive(rel, "rel")
    assert share is not None
    sizes = [peak(expr, formula.box) for expr in formula.outputs]
    if min(sizes) == 0:
        text = formula.texts[sizes.index(0)]
        raise InputError(f"rel needs a value of {text} on the box that is not 0, and found none: give eps")
    absolute = math.nextafter(share * min(sizes), 0)
    if not 0 < absolute < math.inf:
        raise InputError(f"rel = {share:g} of the largest value {min(sizes):g} is not a float above 0: give eps")
    return absolute


def everywhere(pointwise: Any, ground: Prepared) -> tuple[float, tuple[list[int], ...]]:
    """A tolerance that is at most pointwise · |f| at every point, and trees of the box that show it."""
    formula, share = ground.formula, positive(pointwise, "pointwise")
    assert share is not None
    region, trees = Region.of_box(ground.defined.box), []
    for expr in formula.outputs:
        try:
            trees.append(find_tree(inverse_of(expr), region))
        except NotProvenError:
            said = (
                f"{short_text(expr)} is not seen to stay away from 0 on the box, where a relative error has no meaning"
            )
            raise NotProvenError(f"{said}: give eps, or narrow the box") from None
    largest = largest_inverse(formula, Evidence({"inverse": trees}))
    found = float_below(to_fmpq(Fraction(share) / (largest * Fraction(CLAIM_MARGIN) ** 2)))
    if not found > 0:
        raise InputError(f"pointwise = {share:g} of the smallest |formula| is not a float above 0: give eps")
    return found, tuple(trees)


def positive(value: Any, name: str) -> float | None:
    """A number above 0 of any kind, as a float; None stays None.

    Examples
    --------
    >>> from fractions import Fraction
    >>> positive(Fraction(1, 8), "eps"), positive(None, "eps")
    (0.125, None)
    """
    if value is None:
        return None
    try:
        known = isinstance(value, (Real, Decimal)) and not isinstance(value, bool)
        found = float(value) if known else math.nan
    except (OverflowError, ValueError):  # beyond the range of floats
        found = math.nan
    if not 0 < found < math.inf:
        raise InputError(f"{name} must be a number above 0, not {brief(value)}", Option(name))
    return found


def known_dtype(dtype: Any) -> str:
    """The name of a format; NumPy's own types are read as well."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", getattr(dtype, "__name__", None))
    if name not in DTYPES:
        raise InputError(f"unknown dtype {brief(dtype)}: choose {' or '.join(DTYPES)}")
    return str(name)


def known_shape(shape: Any) -> tuple[int, int] | None:
    """A sequence's positions and features; None stays None."""
    if shape is None:
        return None
    try:
        n, d = (operator.index(value) for value in shape if not isinstance(value, bool))
    except (TypeError, ValueError):
        n = d = 0
    if not (n > 0 and d > 0):
        raise InputError(f"shape must be (positions, features), not {brief(shape)}")
    return n, d


def at_every_position(formula: Formula, positions: int) -> Formula:
    """Copies of a formula, side by side: x and y become x_1, y_1, x_2, y_2 and so on.

    Examples
    --------
    >>> str(at_every_position(Formula.of("sin(x)", "x=0..1"), 2))
    'sin(x_1); sin(x_2)'
    """
    box, names = formula.box, formula.box.variables
    copies = [{n: f"{n}_{p}" for n in names} for p in range(1, positions + 1)]
    swaps = [{ex.variable(a): ex.variable(b) for a, b in renamed.items()} for renamed in copies]
    return Formula(
        tuple(substitute(e, swap) for swap in swaps for e in formula.outputs),
        Box(
            tuple(b for renamed in copies for b in renamed.values()),
            box.lower * positions,
            box.upper * positions,
        ),
    )


def at_positions(formula: Formula, shape: tuple[int, int] | None) -> Formula:
    """The formula of one position, repeated for all, where it has one position's variables only."""
    n, d = shape or (1, 0)
    if formula.box.dimension == d == len(formula.outputs) and 1 < n <= MAX_VARIABLES:
        return at_every_position(formula, n)
    return formula


def _check_shape(shape: tuple[int, int], formula: Formula) -> None:
    n, d = shape
    if n * d != formula.box.dimension or n * d != len(formula.outputs):
        raise InputError(
            f"a sequence of shape {n} x {d} needs {n * d} variables and {n * d} formulas "
            f"(or {d} of each, the same for every position), "
            f"not {formula.box.dimension} and {len(formula.outputs)}"
        )


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
