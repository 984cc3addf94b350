"""Any formula in many variables: a multi-layer softmax Transformer, one table for each nonlinearity.

`lower.lowering` turns the formula into wires. Each wire gets its range on the box and a sensitivity
(`circuit_analysis`), each table its share of the tolerance (`circuit_tables`), and the weights are laid out
(`layout`):

* *Scales.* All squares share one table on [−1, 1]: the head reads s·u with s a power of two, the wire
  holds s²u², and readers divide by s². Equal functions on equal ranges share a table too.
* *Layers.* Block k looks up every table whose arguments are ready after block k − 1, then computes ReLUs.

The result is a candidate: the kernel proves the stored circuit and the weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from transformula.compiler import policy
from transformula.compiler.attempts import Attempt, BuildTask, Built, Findings
from transformula.compiler.circuit_analysis import Analysis
from transformula.compiler.circuit_tables import ToleranceSplit, check_errors, fit_tables, goal_of, tables_of
from transformula.compiler.constructions import CIRCUIT
from transformula.compiler.evidence.range_search import BoxRanges, Interval, function_range, largest
from transformula.compiler.lower.lowered_circuit import Balance, Guide, LoweredCircuit
from transformula.compiler.lower.lowering import build_circuit
from transformula.compiler.lower.rewrites import domain_ends, parted, rooted
from transformula.compiler.prepare import Prepared
from transformula.compiler.refusal import unbounded_on_box
from transformula.errors import RefutedError
from transformula.kernel.structures.stored_circuit import MIN_UNITS, Measure
from transformula.kernel.syntax.boxes import formula_of_a_position
from transformula.kernel.syntax.expression import Expr


class Mode(NamedTuple):
    """A way to lower the formula.

    ``measure``: how to measure lengths that may vanish; None is a table of the root, which turns an error e under
    it into √e: too much for float32. ``careful``: for the least rounding and, more often than not, more tokens, read
    functions of products of two factors, too, at sums of logarithms, take a factor that is not zero into the sum below
    it, x/(1 + xy) = 1/(1/x + y), multiply positive factors by adding their logarithms, and write p/(p + r) as
    1 - r/(p + r) where r is small.
    """

    measure: Measure | None
    careful: bool = False


class PlanningGuide(Guide):
    """Choices from proven ranges."""

    def __init__(self, ranges: BoxRanges, mode: Mode) -> None:
        self.ranges, self.mode = ranges, mode

    def balance(self, left: Expr, right: Expr) -> Balance:
        """Centre both factors and weigh them alike: then the squares are as small as they can be."""
        ends = [self.ranges.of(e) for e in (left, right)]
        (a, half_a), (b, half_b) = map(_centre, ends)
        # a factor that hardly varies is still rounded relative to its size
        half_a = max(half_a, policy.LEAST_VARIATION * largest(ends[0]))
        half_b = max(half_b, policy.LEAST_VARIATION * largest(ends[1]))
        return Balance(a, b, Fraction(2) ** round(math.log2(half_a) - math.log2(half_b)))

    def centre(self, argument: Expr) -> Fraction:
        """The middle of the argument's range."""
        middle, _ = _centre(self.ranges.of(argument))
        return middle

    def offset(self, function: Expr, argument: Expr) -> Fraction:
        """The middle of the values, where they vary less than that."""
        low, high = function_range(function, *self.ranges.of(argument))
        middle = Fraction(0)
        if min(abs(low), abs(high)) > high - low and low * high > 0:
            middle, _ = _centre((low, high))
        return middle

    def clamp(self, function: Expr, argument: Expr) -> tuple[bool, bool]:
        """Clamp where the range comes close to the end of the domain."""
        low, high = self.ranges.of(argument)
        slack = policy.CLAMP_SLACK * (high - low)
        ends = domain_ends(function)
        return ends[0] is not None and low - slack < ends[0], ends[1] is not None and high + slack > ends[1]

    def exchange(self, factors: Sequence[Expr], others: Sequence[Expr], last: Expr, inner: Expr) -> bool:
        """Exchange them where the others' sizes multiply to less: then less cancels."""
        ends = self.ranges.of(inner)
        size = largest(function_range(last, *ends)) if math.isfinite(ends[1] - ends[0]) else math.inf
        after = math.prod(largest(self.ranges.of(f)) for f in others) * size
        return after < math.prod(largest(self.ranges.of(f)) for f in factors)

    def measure(self, radicand: Expr) -> Measure | None:
        """The mode's measure if the length may come so close to zero that errors under the root grow."""
        low, high = self.ranges.of(radicand)
        return None if low > policy.SHORT_LENGTH * high else self.mode.measure

    def in_logs(self, bases: Sequence[Expr], alone: bool) -> bool:
        """Whether all are positive and there are enough of them: a logarithm takes no table more for them."""
        wanted = alone or len(bases) >= (2 if self.mode.careful else policy.PLAIN_LOGS)
        return wanted and all(self.ranges.of(base)[0] > 0 for base in bases)

    def by_logs(self, bases: Sequence[Expr]) -> list[Expr]:
        """The bases with positive ranges, in a careful circuit and if there are enough of them."""
        positive = [base for base in bases if self.ranges.of(base)[0] > 0] if self.mode.careful else []
        return positive if len(positive) > 1 else []

    def divides(self, base: Expr) -> bool:
        """Whether the range excludes zero, in a careful circuit."""
        low, high = self.ranges.of(base) if self.mode.careful else (0.0, 0.0)
        return low > 0 or high < 0

    def divides_always(self) -> bool:
        """Whether the circuit is careful."""
        return self.mode.careful

    def complements(self, part: Expr, rest: Expr) -> bool:
        """Whether the rest is smaller, in a careful circuit."""
        if not self.mode.careful:
            return False
        return largest(self.ranges.of(rest)) < largest(self.ranges.of(part))


def _centre(ends: Interval) -> tuple[Fraction, float]:
    """A short binary number near the middle, and the half-width around it."""
    low, high = ends
    half = max((high - low) / 2, 1e-9 * max(abs(low), abs(high)), 1e-300)
    if not math.isfinite(half):
        raise unbounded_on_box("a factor")
    grain = Fraction(2) ** (math.floor(math.log2(half)) - 4)
    middle = round(Fraction((low + high) / 2) / grain) * grain
    return middle, half


#: Tried in turn until one is proven: cheap squares first, then accurate ones.
SPLITS = (
    ToleranceSplit(0.8, 0.05, 0.5, 1.0),
    ToleranceSplit(0.85, 0.3, 0.8, 0.7),
)
#: Few folds, with which the effect of a length on the outputs is found.
_ROUGH = Measure(MIN_UNITS)
#: In the order tried: the careful one is for what rounds too much, or has products that are too long to be compared.
_MODES = (Mode(_ROUGH), Mode(_ROUGH, careful=True))


def circuit_attempts(task: BuildTask) -> Iterator[Attempt]:
    """Circuits of the formula, or of the formula of one position of a sequence."""
    ground, positions = task.ground, task.options.shape[0] if task.options.shape else 1
    if positions > 1:
        with suppress(RefutedError):  # if the positions differ, each carries all inputs
            ground = Prepared(formula_of_a_position(task.formula, positions))
    inputs = task.formula.box.variables
    return circuits_of(ground, task.eps, task.options.dtype, task.findings, positions, inputs)


def circuits_of(
    ground: Prepared,
    eps: float,
    dtype: str,
    findings: Findings,
    positions: int,
    inputs: tuple[str, ...],
    enough: float | None = None,
) -> Iterator[Attempt]:
    """Circuits with ever tighter tables; if rounding alone is too much, another circuit.

    Parameters
    ----------
    ground : Prepared
        The formula of one position.
    findings
        Circuits and tables of earlier attempts of the same search.
    positions, inputs
        Of the whole sequence. If every position has its own inputs, all do the same; otherwise each carries all.
    enough
        A larger tolerance that is enough, where ``eps`` is only aimed at.
    """
    if findings.circuits is None:
        findings.circuits = Circuits(ground, dtype)
    for group, analysis in enumerate(findings.circuits.all(eps)):
        for split in SPLITS:

            def build(analysis: Analysis = analysis, split: ToleranceSplit = split) -> Built:
                aim = analysis.in_reach(eps, dtype)
                nodes = analysis.planned(aim, split, dtype)
                wanted = max(eps, enough or 0.0)  # if more is aimed at, a bound is all that may come of it
                most = max(aim, wanted)
                check_errors(nodes, {k: goal_of(n, aim, split, dtype) for k, n in tables_of(nodes)}, most, found=False)
                tables = fit_tables(nodes, aim, split, dtype, findings, most, loose=aim > wanted)
                return analysis.built(nodes, tables, dtype, positions, inputs)

            yield Attempt(CIRCUIT, build, group)


class Circuits:
    """The formula's circuits, each made when it is asked for."""

    def __init__(self, ground: Prepared, dtype: str) -> None:
        self.ground, self.dtype = ground, dtype
        self.ranges = BoxRanges(ground.extended.box, ground.facts.known)
        self.lowered: dict[Mode, LoweredCircuit] = {}
        self.analysed: dict[Mode, Analysis] = {}

    @cached_property
    def written(self) -> list[Expr]:
        """The formula, its sums taken apart."""
        return [parted(expr, self.ranges.of) for expr in self.ground.written]

    def all(self, eps: float) -> Iterator[Analysis]:
        """Different circuits in the order of the modes, with the folds that the tolerance asks for."""
        for number, mode in enumerate(_MODES):
            circuit = self.circuit(mode)
            if all(circuit != self.circuit(other) for other in _MODES[:number]):
                for one in self._by_folds(mode, self.analysis(mode), eps):
                    yield self.analysis(one)

    def _by_folds(self, mode: Mode, rough: Analysis, eps: float) -> list[Mode]:
        """The mode with as few folds as the tolerance allows, and with the most."""
        if mode.measure is None or not rough.lengths:
            return [mode]
        most = Measure(policy.MOST_FOLDS[self.dtype])
        allowed = float(mode.measure.error) * policy.APART * eps / rough.lengths
        fewer = (Measure(units) for units in range(MIN_UNITS, most.units))
        fewest = next((measure for measure in fewer if float(measure.error) <= allowed), most)
        return [mode._replace(measure=measure) for measure in dict.fromkeys((fewest, most))]

    def analysis(self, mode: Mode) -> Analysis:
        """Ranges and sensitivities of a circuit."""
        if mode not in self.analysed:
            self.analysed[mode] = Analysis.of(self.circuit(mode), self.ground, self.ranges)
        return self.analysed[mode]

    def circuit(self, mode: Mode) -> LoweredCircuit:
        """The formula lowered in one way."""
        if mode not in self.lowered:
            written = [rooted(expr, self.ranges.of) for expr in self.written] if mode.careful else self.written
            variables = self.ground.extended.box.variables
            self.lowered[mode] = build_circuit(written, variables, PlanningGuide(self.ranges, mode))
        return self.lowered[mode]
