"""Any formula in many variables: a multi-layer softmax Transformer, one table a nonlinearity.

`formulas.lowering` turns the formula into wires. Here each wire gets its range on the box (proven), each
table its share of the tolerance, and the weights are laid out:

* *Sensitivity.* S_w bounds how much the output moves for a unit error in wire w: Σ over readers of
  |coefficient| · sup|f'| · S. With N tables each may err by δ = eps/(N S).
* *Scales.* All squares share one table on [−1, 1]: the head reads s·u with s a power of two, the wire
  holds s²u², and readers divide by s². Equal functions on equal ranges share a table too.
* *Layers.* Block k looks up every table whose arguments are ready after block k − 1, then bends.

The plan (how products were split, what was clamped, the scales) is stored beside the weights as a hint;
the proof believes none of it.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from transformula.constructions.circuit_guide import Interval, Mode, PlanningGuide, largest
from transformula.constructions.circuit_layout import Layout, Node, NodeTable
from transformula.constructions.tables.fitting import CannotFit, fit_table
from transformula.constructions.tables.threads import one_thread
from transformula.errors import NotProvenError
from transformula.formulas.boxes import Box
from transformula.formulas.circuits import Circuit
from transformula.formulas.domains import domain_ends
from transformula.formulas.enclosures import enclose
from transformula.formulas.expression import Expr
from transformula.formulas.formula import Formula
from transformula.formulas.lowering import build_circuit
from transformula.formulas.numeric import evaluate_accurately
from transformula.formulas.positions import formula_of_a_position
from transformula.formulas.wires import SQUARE, Linear, Wire
from transformula.progress import report
from transformula.taylor.box_ranges import BoxRanges
from transformula.taylor.conjugates import without_cancelling_roots
from transformula.taylor.error_flow import ErrorFlow, Fuzz, worst_parts
from transformula.taylor.function_cells import Cells, FunctionCells, SquareCells
from transformula.taylor.modulus import lipschitz, modulus
from transformula.taylor.wire_ranges import WireRanges, inside_domain
from transformula.transformers.weights import Weights


class Split(NamedTuple):
    """A way to spend the tolerance.

    ``tables`` is what all tables may use together, ``square`` a square's part against another table's (three
    digits cost it one token), ``singular`` what an argument's error may cost where f' is unbounded.
    """

    tables: float
    square: float
    singular: float


#: Tried in turn until one is proven: cheap squares first, then accurate ones, then more of everything.
SPLITS = (Split(0.8, 0.05, 0.5), Split(0.85, 0.3, 0.8), Split(0.25, 0.05, 0.5), Split(0.06, 0.05, 0.5))
#: The square's table reaches a little beyond [−1, 1], so that ranges of a power of two fit with errors.
_MARGIN = 1e-3
#: A table's part of the tolerance where f' is unbounded: the closer it fits, the steeper it gets.
_SINGULAR_PART = 2.5
#: A table of a wire that needs more tokens than this is a wire that should not exist.
_MAX_TOKENS = 120
#: In the order tried: another mode is for what the one before could not prove.
_MODES = {
    "float64": (Mode(0, 3), Mode(0, 0), Mode(0, 2), Mode(256, 3)),
    "float32": (Mode(128, 3), Mode(128, 2), Mode(128, 0), Mode(0, 3)),
}
#: Other tables round a little better or worse; beyond this factor only another circuit helps.
_HOPELESS = 20.0
#: An argument moved by no more than this part of its range meets no other slopes to speak of.
_NEAR = 0.1
_HALVINGS = 60
#: Closer than this, relative to its size, no table can be evaluated: asking for more helps nobody.
_FLOOR = {"float64": 120 * 2.0**-53, "float32": 100 * 2.0**-24}


def construct_circuit(
    formula: Formula, eps: float, dtype: str, shape: tuple[int, int] | None = None
) -> Generator[tuple[Weights, dict[str, Any]], NotProvenError | None, None]:
    """Weights and their plan, with ever tighter tables; if rounding alone is too much, another circuit.

    A sequence whose positions all compute the same from their own inputs gets a circuit for one of them;
    otherwise every position carries all inputs.
    """
    whole = formula
    positions = 1 if shape is None else shape[0]
    formula = formula_of_a_position(whole, positions) or whole
    shortfall: NotProvenError | None = None
    failed: dict[object, _Failure] = {}
    for analysis in _promising_first(formula, eps, dtype):
        for split in SPLITS:
            nodes = analysis.planned(eps, split)
            try:
                tables = _fit_tables(nodes, eps, split, dtype, failed)
            except NotProvenError as error:
                shortfall = error.unless_closer(shortfall)
                continue
            plan = analysis.choices | {"scales": {str(k): [n.scale, n.held] for k, n in nodes.items()}}
            layout = Layout(analysis.circuit, nodes, tables, dtype, positions, whole.box.variables)
            weights = layout.weights()
            refused = yield weights, plan
            if refused is not None and (refused.rounding or 0.0) > _HOPELESS * eps:
                break
    if shortfall is not None:
        raise shortfall


def _promising_first(formula: Formula, eps: float, dtype: str) -> Iterator[_Analysis]:
    """The formula's circuits, those last in which tables as accurate as can be would not do."""
    ranges, written = BoxRanges(formula.box), without_cancelling_roots(formula)
    seen: list[tuple[list[int], list[bool]]] = []
    strained: list[tuple[float, _Analysis]] = []
    for mode in _MODES[dtype]:
        guide = PlanningGuide(ranges, mode)
        circuit = build_circuit(written.outputs, formula.box.variables, guide)
        if (guide.norms, guide.logs) in seen:
            continue
        seen.append((guide.norms, guide.logs))
        analysis = _Analysis.of(circuit, formula.box, ranges, guide.choices)
        strain = analysis.least_error(dtype) / eps
        if strain < 1:
            yield analysis
        else:
            strained.append((strain, analysis))
    yield from (analysis for _, analysis in sorted(strained, key=itemgetter(0)))


@dataclass(frozen=True)
class _Analysis:
    """What is known of a circuit's wires before the tolerance is split."""

    circuit: Circuit
    box: Box
    choices: dict[str, Any]
    nodes: dict[int, Node]
    cells: dict[int, Cells]

    @classmethod
    def of(cls, circuit: Circuit, box: Box, ranges: BoxRanges, choices: dict[str, Any]) -> _Analysis:
        """Ranges forwards, sensitivities backwards."""
        nodes: dict[int, Node] = {}
        reach = WireRanges(circuit, ranges)
        for index, wire in enumerate(circuit.wires):
            if wire.argument is None:
                continue
            low, high = reach.arguments[index]
            if not (math.isfinite(low) and math.isfinite(high)):
                raise NotProvenError(
                    f"the range of {wire.argument.meaning} could not be bounded on the box: narrow the box",
                    place=str(wire.argument.meaning),
                )
            nodes[index] = _node(wire, (low, high), reach.values[index], circuit.in_slots(wire.argument))
        cells: dict[int, Cells] = {
            k: SquareCells(*n.ends) if n.wire.function == SQUARE else FunctionCells(n.wire.function, *n.ends)
            for k, n in nodes.items()
            if n.wire.function is not None
        }
        _measure(circuit, box, nodes, cells)
        return cls(circuit, box, choices, nodes, cells)

    def least_error(self, dtype: str) -> float:
        """About what the outputs are off by if every table is as accurate as the format allows."""
        tables = (node for node in self.nodes.values() if node.wire.is_table)
        return _FLOOR[dtype] * sum(node.size * node.sensitivity for node in tables)

    def planned(self, eps: float, split: Split) -> dict[int, Node]:
        """The wires with their shares of the tolerance; where f' is unbounded, with a slope that serves."""
        nodes, cells = {k: replace(node) for k, node in self.nodes.items()}, dict(self.cells)
        allowed = split.singular * split.tables * eps
        for k in sorted((k for k, n in nodes.items() if not math.isfinite(n.slope)), reverse=True):
            node = nodes[k]
            node.singular = True
            node.slope = _effective_slope(node, allowed / max(node.sensitivity, 1e-300))
            cells[k] = _Blunted(cells[k], node.slope)
            _measure(self.circuit, self.box, nodes, cells)
        _share_out(nodes, split)
        _expect_errors(nodes, split.tables * eps)
        self._restrain(nodes, split.tables * eps)
        for node in nodes.values():
            if node.wire.function == SQUARE:
                node.scale, node.held = _square_scales(node)
        return nodes

    def _restrain(self, nodes: dict[int, Node], eps: float) -> None:
        """Ask more of wires whose errors would carry an argument to where its function has other slopes."""
        for k in sorted(nodes):
            node = nodes[k]
            assert node.wire.argument is not None
            room = _room(node, _share(node, eps))
            readable = [nodes[i] for i in self.circuit.needed(node.wire.argument) if i in nodes]
            for _ in range(_HALVINGS):
                if node.drift <= room:
                    break
                for other in readable:
                    other.most = _own_error(other, eps) * min(room / node.drift, 0.5)
                _expect_errors(nodes, eps)


def _room(node: Node, share: float) -> float:
    """How far errors may move the argument, at most ``drift``, before f moves more than was planned for."""
    function, (low, high), room = node.wire.function, node.ends, node.drift
    if function is None:  # a ReLU that is on or off was planned to stay so
        return max(low / 2, -high / 2, share) if low > 0 or high < 0 else room
    if function == SQUARE or room <= _NEAR * (high - low):
        return room
    allowed = max(share, 2 * node.slope * room)
    for _ in range(_HALVINGS):
        if lipschitz(function, "u", *inside_domain(function, (low - room, high + room))) * room <= allowed:
            break
        room /= 2
    return room


def _node(wire: Wire, ends: Interval, values: Interval, argument: Linear) -> Node:
    low, high = ends
    assert wire.argument is not None
    reads = [(k, abs(float(enclose(c)))) for k, c in argument.terms]
    if wire.function is None:
        return Node(wire, ends, max(high, 0.0), 1.0, reads)
    size = largest(values)
    if not math.isfinite(size):
        raise NotProvenError(
            f"{wire.meaning} could not be bounded: {wire.argument.meaning} may reach {low:.4g}..{high:.4g}",
            place=str(wire.meaning),
        )
    return Node(wire, ends, size, lipschitz(wire.function, "u", low, high), reads)


def _square_scales(node: Node) -> tuple[int, int]:
    """Powers of two by which a square's argument and value fit the one table of u² on about −1..1."""
    reach = max(largest(node.ends), 1e-300) / (1 + _MARGIN / 2)
    if 2 * node.drift > _MARGIN / 2 * reach:  # errors are not small beside the range
        reach += 2 * node.drift
    scale = -math.ceil(math.log2(reach))
    return scale, 2 * scale


def _measure(circuit: Circuit, box: Box, nodes: dict[int, Node], cells: dict[int, Cells]) -> None:
    """How far the outputs move for a unit error of each wire, on the worst part of the box."""
    flow = ErrorFlow(circuit, cells)
    unit = {k: Fuzz(0.0, node.size) for k, node in nodes.items()}
    none = dict.fromkeys(nodes, 0.0)
    lower, upper = np.array(box.floats()).T
    for node in nodes.values():
        node.sensitivity = 0.0
    for output in circuit.outputs:
        if not output.terms:
            continue

        def carried(a: Any, b: Any, output: Linear = output) -> Any:
            return flow.on(a, b, output).carry(unit, none)

        paths = flow.on(*worst_parts(carried, lower, upper), output)
        for k, amplitude in paths.value.items():
            if k in nodes:
                nodes[k].sensitivity = max(nodes[k].sensitivity, float(np.max(amplitude)))


class _Blunted:
    """A function whose slopes are cut off: what an error can do where they are unbounded."""

    def __init__(self, cells: Cells, steepest: float) -> None:
        self.cells, self.steepest = cells, steepest

    def values(self, low: Any, high: Any) -> Any:
        """As they are."""
        return self.cells.values(low, high)

    def slopes(self, low: Any, high: Any) -> Any:
        """At most the given steepness."""
        return tuple(np.clip(s, -self.steepest, self.steepest) for s in self.cells.slopes(low, high))


def _effective_slope(node: Node, allowed: float) -> float:
    """Where f' is unbounded: allowed change over the argument error that causes it."""
    assert node.wire.function is not None
    shift = node.ends[1] - node.ends[0]
    while shift > 1e-300 and modulus(node.wire.function, "u", *node.ends, shift) > allowed:
        shift /= 1.5
    return allowed / shift


class _Failure(NamedTuple):
    """A goal that was missed, and the best table found."""

    goal: float
    table: NodeTable


def _fit_tables(
    nodes: dict[int, Node], eps: float, split: Split, dtype: str, failed: dict[object, _Failure]
) -> dict[int, tuple[object, NodeTable]]:
    """A table for every table wire: (key of the table, table); equal keys share.

    Where a goal was missed before, a smaller one is not tried again: ``failed`` remembers.
    """
    wanted: dict[object, tuple[Expr, Interval, float, float]] = {}
    keys: dict[int, object] = {}
    tables = [k for k, n in nodes.items() if n.wire.is_table]
    eps = split.tables * eps
    for k in tables:
        node = nodes[k]
        assert node.wire.function is not None
        goal = _own_error(node, eps)
        ends, function = node.ends, node.wire.function
        goal = max(goal, _FLOOR[dtype] * node.size)
        if function == SQUARE:
            goal, ends = goal * 2.0**node.held, (-1.0 - _MARGIN, 1.0 + _MARGIN)
            goal = max(goal, _FLOOR[dtype])
        keys[k] = (function, ends)
        _, _, before, shift = wanted.get(keys[k], (function, ends, math.inf, 0.0))
        wanted[keys[k]] = (function, ends, min(before, goal), max(shift, node.drift))
    fitted = {}
    for done, (key, (function, ends, tightest, shift)) in enumerate(wanted.items()):
        report("solving", done, len(wanted) - done)
        missed = failed.get(key)
        if missed is not None and tightest <= missed.goal:
            fitted[key] = missed.table
            continue
        fitted[key], reached = _fit(function, ends, tightest, shift, dtype)
        if not reached:
            failed[key] = _Failure(tightest, fitted[key])
    return {k: (keys[k], fitted[keys[k]]) for k in tables}


def _share_out(nodes: dict[int, Node], split: Split) -> None:
    """Each table's share of what the tables may use."""
    parts = {
        k: split.square if n.wire.function == SQUARE else _SINGULAR_PART if n.singular else 1.0
        for k, n in nodes.items()
    }
    total = sum(part for k, part in parts.items() if nodes[k].wire.is_table) or 1.0
    for k, node in nodes.items():
        node.share = parts[k] / total


def _expect_errors(nodes: dict[int, Node], eps: float) -> None:
    """About how far errors will move each argument: its range is widened by twice that."""
    errors: dict[int, float] = {}
    for k in sorted(nodes):
        node = nodes[k]
        node.drift = sum(c * errors.get(i, 0.0) for i, c in node.reads)
        errors[k] = _own_error(node, eps) + node.slope * node.drift


def _own_error(node: Node, eps: float) -> float:
    """What a wire may add: a table its share, but no more than a table of zeros would."""
    if not node.wire.is_table:
        return 0.0
    return min(_share(node, eps), node.size, node.most)


def _share(node: Node, eps: float) -> float:
    """The error at a wire that uses up its share of the outputs' tolerance."""
    return node.share * eps / max(node.sensitivity, 1e-300)


@lru_cache(maxsize=64)
def _fit(function: Expr, ends: Interval, goal: float, shift: float, dtype: str) -> tuple[NodeTable, bool]:
    """A table, and whether it meets the goal."""
    low, high = ends
    if function != SQUARE:  # the square's table has its margin already
        least, most = domain_ends(function)
        room = max(2 * shift, 1e-7 * (high - low))
        low = low if least is not None and low - room < least else low - room
        high = high if most is not None and high + room > most else high + room
    try:
        with one_thread():
            table = fit_table(
                lambda u: evaluate_accurately(function, ["u"], [u]),
                low,
                high,
                goal,
                dtype,
                linear=False,
                max_tokens=_MAX_TOKENS,
            )
    except CannotFit as failure:
        if failure.best is not None:
            return NodeTable(failure.best.slopes, failure.best.offsets, failure.best.values), False
        raise NotProvenError(
            f"no table for {function} on u = {low:.4g}..{high:.4g} within {goal:.2g} was found in {dtype}: "
            f"the best has a measured error of {failure.best_error:.2g}; ask for a larger eps",
            measured=failure.best_error,
        ) from None
    return NodeTable(table.slopes, table.offsets, table.values), True
