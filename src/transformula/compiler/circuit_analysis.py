"""A circuit's wires on the box: how far each reaches, and how far the outputs move for an error of it.

*Sensitivity.* S_w bounds how much the output moves for a unit error in wire w: Σ over readers of |coefficient| ·
sup|f'| · S.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from transformula.compiler import policy
from transformula.compiler.attempts import Built
from transformula.compiler.circuit_tables import (
    Node,
    ToleranceSplit,
    expect_errors,
    own_error,
    share_of,
    share_out,
)
from transformula.compiler.evidence import costs
from transformula.compiler.evidence.finder import SQUARE_MARGIN, Finder
from transformula.compiler.evidence.range_search import (
    BoxRanges,
    Interval,
    PlannedRanges,
    WireSearch,
    function_cells,
    inside_domain,
    largest,
)
from transformula.compiler.evidence.range_trees import cut_parts
from transformula.compiler.layout import Design, HeadSpec, TableTokens, Unit, assembled, midpoint, places
from transformula.compiler.lower.derivation_hints import signs_of
from transformula.compiler.lower.lowered_circuit import LoweredCircuit, WireFacts, has_slot
from transformula.compiler.lower.store_circuit import store_circuit
from transformula.compiler.prepare import Prepared, proven_signs
from transformula.compiler.refusal import unbounded_on_box
from transformula.errors import NotProvenError
from transformula.kernel.circuit.error_flow import ErrorFlow, Fuzz
from transformula.kernel.enclosures.balls import enclose, to_fmpq
from transformula.kernel.enclosures.taylor_models import Floats
from transformula.kernel.structures.stored_circuit import SQUARE, Circuit, LinearForm, Wire
from transformula.kernel.syntax.boxes import Box
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.tables.table_slopes import Cells, SquareCells

#: Factors between two powers of two by which squares are scaled: errors count less where the table is used to its ends.
_STEPS = tuple(Fraction(k, 8) for k in range(9, 16))


@dataclass(frozen=True)
class Analysis:
    """Facts about a circuit's wires before the tolerance is split."""

    lowered: LoweredCircuit
    ground: Prepared
    search: WireSearch
    flow: _Flow
    nodes: dict[int, Node]
    cells: dict[int, Cells]

    @classmethod
    def of(cls, lowered: LoweredCircuit, ground: Prepared, ranges: BoxRanges) -> Analysis:
        """Ranges forwards, sensitivities backwards."""
        circuit, nodes = lowered.circuit, dict[int, Node]()
        reach = PlannedRanges(lowered, ranges)
        for index, (low, high) in reach.arguments.items():
            wire, facts = circuit.wires[index], lowered.facts[index]
            if not (math.isfinite(low) and math.isfinite(high)):
                (meaning,) = facts.arguments
                raise unbounded_on_box(meaning, str(meaning))
            argument, _ = circuit.written_out(wire.arguments[0])
            nodes[index] = _node(wire, facts, (low, high), reach.values[index], argument)
        cells: dict[int, Cells] = {
            k: _cells(n.wire.function, *n.ends) for k, n in nodes.items() if n.wire.function is not None
        }
        flow = _Flow(circuit, ground.extended.box)
        flow.measure(nodes, cells)
        return cls(lowered, ground, ranges.search, flow, nodes, cells)

    @cached_property
    def signs(self) -> dict[str, list[int]]:
        """Trees of the signs that the proof may use."""
        formula = self.ground.extended
        candidates = signs_of(formula.outputs, formula.box, self.lowered)
        return proven_signs(candidates, self.ground)

    def built(
        self, nodes: dict[int, Node], tables: FittedTables, dtype: str, positions: int, inputs: tuple[str, ...]
    ) -> Built:
        """The weights, the circuit they stand for, and a search for the evidence."""
        circuit, signs = self.lowered.circuit, self.signs
        weights = assembled(circuit_design(circuit, nodes, tables, positions, inputs), dtype)
        scales = {k: (n.scale, n.held) for k, n in nodes.items()}
        data = store_circuit(circuit, circuit_places(nodes), scales)
        data |= self.ground.stored(signs)
        meanings: dict[int, tuple[Expr, Fraction]] = {}
        for k, (wire, facts) in enumerate(zip(circuit.wires, self.lowered.facts, strict=True)):
            if has_slot(wire) and wire.inside is None:
                meanings[k] = facts.arguments[0], nodes[k].scale
            elif wire.total is not None:
                meanings[k] = facts.meaning, Fraction(1)
        functions = {k: n.wire.function for k, n in nodes.items() if n.wire.function not in (None, SQUARE)}
        singular = frozenset(k for k, node in self.nodes.items() if not math.isfinite(node.slope))
        wires = WireSearch(meanings, functions, self.search)
        return Built(weights, data, Finder(wires, singular, trees=signs | self.ground.parts, terms=self.flow.terms))

    @cached_property
    def lengths(self) -> float:
        """Estimated error of the outputs that the small number of folds causes."""
        return sum(self._measured(wire) for wire in self.lowered.circuit.wires if wire.is_norm)

    def _measured(self, norm: Wire) -> float:
        """Estimated effect of a length's own error on the outputs; none of its ReLUs is larger than the length."""
        assert norm.measure is not None
        units = [self.nodes[k] for k, _ in norm.parts]
        sensitivity = units[0].sensitivity / norm.measure.unit_factor
        return float(norm.measure.error) * max(largest(unit.ends) for unit in units) * sensitivity

    def in_reach(self, eps: float, dtype: str) -> float:
        """The tolerance to plan for: far below what rounding does to a root, the closest bound is what a refusal needs.

        Rounding by e under a root that may vanish moves it by √e.
        """
        errors: dict[int, float] = {}
        worst = 0.0
        for k, node in sorted(self.nodes.items()):
            moved = sum(c * errors.get(i, 0.0) for i, c in node.reads)
            own = policy.TABLE_FLOOR[dtype] * node.size if node.is_table else 0.0
            if math.isfinite(node.slope):
                errors[k] = own + node.slope * moved
            else:
                errors[k] = own + self.cells[k].modulus(*node.ends, moved)
                worst = max(worst, errors[k])
        return worst if eps < worst / policy.OUT_OF_REACH else eps

    def planned(self, eps: float, split: ToleranceSplit, dtype: str) -> dict[int, Node]:
        """The wires with their shares of the tolerance; where f' is unbounded, with a slope that serves."""
        nodes, cells = {k: replace(node) for k, node in self.nodes.items()}, dict(self.cells)
        allowed = split.singular * split.tables * eps
        for k in sorted((k for k, n in nodes.items() if not math.isfinite(n.slope)), reverse=True):
            node = nodes[k]
            node.singular = True
            node.slope = _effective_slope(node, allowed / max(node.sensitivity, 1e-300))
            cells[k] = _Blunted(cells[k], node.slope)
            self.flow.measure(nodes, cells)
        share_out(nodes, split)
        expect_errors(nodes, split.tables * eps)
        self._restrain(nodes, split.tables * eps)
        for node in nodes.values():
            if node.wire.function == SQUARE:
                node.scale, node.held = _square_scales(node, dtype)
        return nodes

    def _restrain(self, nodes: dict[int, Node], eps: float) -> None:
        """Lower the errors of wires that would carry an argument to where its function is steeper."""
        for k in sorted(nodes):
            node = nodes[k]
            room = _room(node, share_of(node, eps))
            readable = [nodes[i] for i in self.lowered.circuit.needed(node.wire.arguments[0]) if i in nodes]
            for _ in range(policy.MOST_ROUNDS):
                if node.drift <= room:
                    break
                for other in readable:
                    other.most = own_error(other, eps) * min(room / node.drift, 0.5)
                expect_errors(nodes, eps)


#: For every table wire: the key of its table, which equal tables share, and the table.
FittedTables = dict[int, tuple[object, TableTokens]]


def circuit_design(
    circuit: Circuit, nodes: dict[int, Node], tables: FittedTables, positions: int, inputs: tuple[str, ...]
) -> Design:
    """Heads and hidden units of a circuit; the wire k is held in the slot wk."""
    shared: dict[object, TableTokens] = dict(tables.values())
    numbers = {key: number for number, key in enumerate(shared)}
    heads: list[HeadSpec] = []
    units: list[tuple[int, Unit]] = []
    for k, node in nodes.items():
        block = (node.time - 1) // 2
        reads = _reads(node.wire.arguments[0], circuit, nodes, node.scale)
        if node.is_table:
            reach = 2 * (largest(node.ends) + 2 * node.drift) * float(node.scale)
            heads.append(HeadSpec(block, numbers[tables[k][0]], (reads,), (reach,), (f"w{k}",)))
        else:
            units.append((block, (reads, 0, {f"w{k}": 1})))
    readout = []
    for output in circuit.outputs:
        form = _reads(output, circuit, nodes)
        constant = form.pop("one")
        readout.append((form, constant))
    repeated = len(circuit.variables) < len(inputs)
    readout = readout * positions if repeated else readout
    return Design(inputs, list(shared.values()), heads, readout, units, positions, variables=circuit.variables)


def circuit_places(nodes: dict[int, Node]) -> dict[int, list[int]]:
    """[block, head, column] of every table, [block, unit, position] of every ReLU."""
    found: dict[int, list[int]] = {}
    for tables in (True, False):
        wires = [k for k, node in nodes.items() if node.is_table == tables]
        at = places([(nodes[k].time - 1) // 2 for k in wires])
        found |= {k: [*place, 0] for k, place in zip(wires, at, strict=True)}
    return found


def _reads(
    linear: LinearForm, circuit: Circuit, nodes: dict[int, Node], scale: Fraction = Fraction(1)
) -> dict[str, Any]:
    """scale · linear as coefficients of slots, which may hold multiples of their meanings; the constant last."""
    factor = to_fmpq(scale)
    entries: dict[str, Any] = {}
    linear, _ = circuit.written_out(linear)
    for k, coefficient in linear.terms:
        held = to_fmpq(1 / nodes[k].held) if k in nodes else 1
        if not enclose(coefficient).contains(0):  # else it cancels, though not to the last digit
            slot = f"w{k}" if k in nodes else f"x.{circuit.variables[k]}"
            entries[slot] = midpoint(coefficient) * factor * held
    return entries | {"one": midpoint(linear.constant) * factor}


def _room(node: Node, share: float) -> float:
    """Shift of the argument by errors, at most ``drift``, up to which f moves no more than was planned for."""
    low, high = node.ends
    function, room = node.wire.function, node.drift
    if function is None:  # a ReLU that is on or off was planned to stay so
        return max(low / 2, -high / 2, share) if low > 0 or high < 0 else room
    if function == SQUARE or room <= policy.NEAR * (high - low):
        return room
    allowed = max(share, 2 * node.slope * room)
    for _ in range(policy.MOST_ROUNDS):
        if _steepest(function, *inside_domain(function, (low - room, high + room))) * room <= allowed:
            break
        room /= 2
    return room


def _node(wire: Wire, facts: WireFacts, ends: Interval, values: Interval, argument: LinearForm) -> Node:
    low, high = ends
    reads = [(k, abs(float(enclose(c)))) for k, c in argument.terms]
    if wire.function is None:
        return Node(wire, facts.time, ends, max(high, 0.0), 1.0, reads)
    size = largest(values)
    if not math.isfinite(size):
        raise NotProvenError(
            f"{facts.meaning} could not be bounded: {facts.arguments[0]} may reach {low:.4g}..{high:.4g}",
            place=str(facts.meaning),
        )
    return Node(wire, facts.time, ends, size, _steepest(wire.function, low, high), reads)


def _square_scales(node: Node, dtype: str) -> tuple[Fraction, Fraction]:
    """Numbers of few bits by which a square's argument and value fit the one table of u² on about −1..1.

    Arguments so small that squares of their scale leave the format are not scaled up all the way: these are next to 0.
    """
    reach = max(largest(node.ends), 1e-300) / (1 + SQUARE_MARGIN / 2)
    if 2 * node.drift > SQUARE_MARGIN / 2 * reach:  # errors are not small beside the range
        reach += 2 * node.drift
    power = min(-math.ceil(math.log2(reach)), np.finfo(dtype).maxexp * 7 // 16)
    step = max((step for step in _STEPS if step * reach * 2.0**power <= 1), default=Fraction(1))
    scale = step * Fraction(2) ** power
    return scale, scale**2


def _cells(function: Expr, low: float, high: float) -> Cells:
    return SquareCells() if function == SQUARE else function_cells(function, low, high)


def _steepest(function: Expr, low: float, high: float) -> float:
    """sup|f'| on an interval, infinite if it may be."""
    return float(np.max(np.abs(_cells(function, low, high).slopes(np.array([low]), np.array([high])))))


class _Flow:
    """The kernel's flow of errors through a circuit, with this circuit's numbers."""

    def __init__(self, circuit: Circuit, box: Box) -> None:
        self.circuit = circuit
        self.terms = costs.terms_of(circuit)
        self.lower, self.upper = np.array(box.floats()).T

    def measure(self, nodes: dict[int, Node], cells: dict[int, Cells]) -> None:
        """Sensitivities: the largest move of an output for a unit error of each wire, over parts of the box."""
        flow = ErrorFlow(self.circuit, cells, {}, {}, {k: nodes[k].ends for k in cells})
        unit = {k: Fuzz(0.0, node.size) for k, node in nodes.items()}
        none = dict.fromkeys(unit, 0.0)
        for node in nodes.values():
            node.sensitivity = 0.0
        for output in self.circuit.outputs:
            if not output.terms:
                continue

            def carried(a: Floats, b: Floats, output: LinearForm = output) -> Floats:
                return flow.on(a, b, output).carry(unit, none)

            paths = flow.on(*cut_parts(carried, self.lower, self.upper, self.terms), output)
            for k, node in nodes.items():
                if k in paths.value:
                    node.sensitivity = max(node.sensitivity, float(np.max(paths.value[k])))


class _Blunted(SquareCells):
    """A function whose slopes are cut off: what an error can do where they are unbounded."""

    def __init__(self, cells: Cells, steepest: float) -> None:
        self.cells, self.steepest = cells, steepest

    def values(self, low: Any, high: Any) -> Any:
        """The values unchanged."""
        return self.cells.values(low, high)

    def slopes(self, low: Any, high: Any) -> Any:
        """The slopes, cut off at the given steepness."""
        return tuple(np.clip(s, -self.steepest, self.steepest) for s in self.cells.slopes(low, high))

    def modulus(self, low: float, high: float, shift: float) -> float:
        """The modulus unchanged."""
        return self.cells.modulus(low, high, shift)


def _effective_slope(node: Node, allowed: float) -> float:
    """The slope to plan with where f' is unbounded: allowed change over the argument error that causes it."""
    assert node.wire.function is not None
    shift = node.ends[1] - node.ends[0]
    cells = _cells(node.wire.function, *node.ends)
    while shift > 1e-300 and cells.modulus(*node.ends, shift) > allowed:
        shift /= 1.5
    return allowed / max(shift, 1e-300)
