"""Any formula in many variables: a multi-layer softmax Transformer, one table for each nonlinearity.

`rewriting.lowering` turns the formula into wires. Each wire gets its range on the box and a sensitivity
(`circuit_analysis`), each table its share of the tolerance (`circuit_tables`), and the weights are laid out
(`circuit_layout`):

* *Scales.* All squares share one table on [−1, 1]: the head reads s·u with s a power of two, the wire
  holds s²u², and readers divide by s². Equal functions on equal ranges share a table too.
* *Layers.* Block k looks up every table whose arguments are ready after block k − 1, then bends.

What comes out is a candidate: the stored circuit and the weights are proven by the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property

from transformula.compiler import policy
from transformula.compiler.attempts import Attempt, BuildTask, Built, Findings
from transformula.compiler.circuit_analysis import Analysis
from transformula.compiler.circuit_guide import Mode, PlanningGuide
from transformula.compiler.circuit_layout import Layout
from transformula.compiler.circuit_tables import ToleranceSplit, check_errors, fit_tables, goal_of, tables_of
from transformula.compiler.constructions import CIRCUIT
from transformula.compiler.evidence.planned_ranges import BoxRanges
from transformula.compiler.lower.domains import parted, rooted
from transformula.compiler.lower.lowered_circuit import LoweredCircuit
from transformula.compiler.lower.lowering import build_circuit
from transformula.compiler.prepare import Prepared
from transformula.errors import RefutedError
from transformula.kernel.structures.fold_lengths import MIN_UNITS, Measure
from transformula.kernel.syntax.boxes import formula_of_a_position
from transformula.kernel.syntax.expression import Expr

#: Tried in turn until one is proven: cheap squares first, then accurate ones.
SPLITS = (
    ToleranceSplit(0.8, 0.05, 0.5, 1.0),
    ToleranceSplit(0.85, 0.3, 0.8, 0.7),
)
#: Folds with which the effect of a length on the outputs is found.
_ROUGH = Measure(policy.ROUGH_FOLDS)
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
                layout = Layout(analysis.lowered, nodes, tables, dtype, positions, inputs)
                return analysis.built(layout, nodes)

            yield Attempt(CIRCUIT, build, group)


class Circuits:
    """The formula's circuits, each made when it is asked for."""

    def __init__(self, ground: Prepared, dtype: str) -> None:
        self.ground, self.dtype = ground, dtype
        self.ranges = BoxRanges(ground.extended.box, ground.facts.known)
        self.found: list[tuple[Mode, Analysis]] = []
        self.folded: dict[Mode, Analysis] = {}
        self.seen: list[tuple[list[Measure | None], list[bool], list[bool]]] = []
        self.modes = list(_MODES)

    @cached_property
    def written(self) -> list[Expr]:
        """The formula, its sums taken apart."""
        return [parted(expr, self.ranges.of) for expr in self.ground.written]

    def all(self, eps: float) -> Iterator[Analysis]:
        """All circuits, with the folds that the tolerance asks for."""
        for mode, rough in self._rough():
            yield from self._by_folds(mode, rough, eps)

    def _rough(self) -> Iterator[tuple[Mode, Analysis]]:
        """Different circuits in the order of the modes, lengths measured roughly."""
        yield from list(self.found)
        while self.modes:
            guide, circuit = self.guided(self.modes[0])
            key = guide.norms, guide.logs, guide.divisions
            if key not in self.seen:
                self.found.append((self.modes[0], Analysis.of(circuit, self.ground, self.ranges)))
                self.seen.append(key)
                del self.modes[0]
                yield self.found[-1]
            else:
                del self.modes[0]

    def _by_folds(self, mode: Mode, rough: Analysis, eps: float) -> Iterator[Analysis]:
        """The circuit with as few folds as the tolerance allows, and the one with the most."""
        if mode.measure is None or not rough.lengths:
            yield rough
            return
        most = Measure(policy.MOST_FOLDS[self.dtype])
        allowed = float(mode.measure.error) * policy.FOLDS_SHARE * eps / rough.lengths
        fewer = (Measure(units) for units in range(MIN_UNITS, most.units))
        fewest = next((measure for measure in fewer if float(measure.error) <= allowed), most)
        for measure in dict.fromkeys((fewest, most)):
            one = mode._replace(measure=measure)
            if one not in self.folded:
                _, circuit = self.guided(one)
                self.folded[one] = Analysis.of(circuit, self.ground, self.ranges)
            yield self.folded[one]

    def guided(self, mode: Mode) -> tuple[PlanningGuide, LoweredCircuit]:
        """A circuit, and what was decided on the way to it."""
        guide = PlanningGuide(self.ranges, mode)
        written = [rooted(expr, self.ranges.of) for expr in self.written] if mode.careful else self.written
        if written != self.written:
            guide.divisions.append(True)
        return guide, build_circuit(written, self.ground.extended.box.variables, guide)
