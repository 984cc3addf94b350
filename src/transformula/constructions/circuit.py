"""Any formula in many variables: a multi-layer softmax Transformer, one table for each nonlinearity.

`rewriting.lowering` turns the formula into wires. Here each wire gets its range on the box, each table its share
of the tolerance, and the weights are laid out:

* *Sensitivity.* S_w bounds how much the output moves for a unit error in wire w: Σ over readers of
  |coefficient| · sup|f'| · S. With N tables each may err by δ = eps/(N S).
* *Scales.* All squares share one table on [−1, 1]: the head reads s·u with s a power of two, the wire
  holds s²u², and readers divide by s². Equal functions on equal ranges share a table too.
* *Layers.* Block k looks up every table whose arguments are ready after block k − 1, then bends.

What comes out is a candidate: the stored circuit and the weights are proven by the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from transformula.constructions.attempts import ASK, STRAINED, Attempt, Built
from transformula.constructions.circuit_guide import Interval, Mode, PlanningGuide, largest
from transformula.constructions.circuit_layout import Layout, Node, NodeTable
from transformula.constructions.registry import CIRCUIT
from transformula.constructions.tables.fitting import Allowance, CannotFit
from transformula.constructions.tables.kept import fit_expression
from transformula.constructions.tables.ready import ready_square
from transformula.constructions.tables.sharing import fit_all
from transformula.errors import NotProvenError, UnboundedError
from transformula.formulas.numeric import evaluate_accurately
from transformula.kernel import circuits as stored
from transformula.kernel.balls import enclose
from transformula.kernel.boxes import Box, Formula
from transformula.kernel.cells import Cells, SquareCells
from transformula.kernel.expression import Expr
from transformula.kernel.flow import ErrorFlow, Fuzz
from transformula.kernel.pairs import Floats
from transformula.limits import remembered
from transformula.rewriting.circuits import Circuit
from transformula.rewriting.derivation import signs_of
from transformula.rewriting.domains import domain_ends, parted, steep_places
from transformula.rewriting.lowering import build_circuit
from transformula.rewriting.storing import numbering, store_circuit
from transformula.rewriting.wires import SQUARE, Linear, Wire
from transformula.searching.box_ranges import BoxRanges, WireRanges, function_cells, inside_domain
from transformula.searching.finder import Finder
from transformula.searching.ground import Prepared, prepared, proven_signs
from transformula.searching.parts import cut_parts
from transformula.searching.wires import WireSearch
from transformula.threads import one_thread


class Split(NamedTuple):
    """A way to spend the tolerance.

    ``tables`` is what all tables may use together, ``square`` a square's part against another table's (three
    digits cost it one token), ``singular`` what an argument's error may cost where f' is unbounded, ``floor`` how
    close a square comes at most, as a part of what a table usually can.
    """

    tables: float
    square: float
    singular: float
    floor: float


#: Tried in turn until one is proven: cheap squares first, then accurate ones, then more of everything.
SPLITS = (
    Split(0.8, 0.05, 0.5, 1.0),
    Split(0.85, 0.3, 0.8, 0.7),
    Split(0.25, 0.05, 0.5, 0.7),
    Split(0.06, 0.05, 0.5, 0.7),
)
#: The square's table reaches a little beyond [−1, 1], so that ranges of a power of two fit with errors.
_MARGIN = 1e-3
SQUARE_ENDS = (-1.0 - _MARGIN, 1.0 + _MARGIN)
#: A table's part of the tolerance where f' is unbounded: the closer it fits, the steeper it gets.
_SINGULAR_PART = 2.5
#: A table of a wire that needs more tokens than this is a wire that should not exist.
_MAX_TOKENS = 120
#: In the order tried: another mode is for what the one before could not prove.
_MODES = {
    "float64": (Mode(0, 3), Mode(0, 0), Mode(0, 2), Mode(256, 3)),
    "float32": (Mode(128, 3), Mode(128, 2), Mode(128, 0), Mode(0, 3)),
}
#: An argument moved by no more than this part of its range meets no other slopes to speak of.
_NEAR = 0.1
_HALVINGS = 60
#: Squares are held scaled by powers of two up to twice this: well inside the format's range.
_MOST_SCALE = {"float64": 480, "float32": 56}
#: A tolerance this many times below what rounding does is out of reach; so many times above, it is not.
_HOPELESS, _ABOVE = 10.0, 2.0
#: Closer than this, relative to its size, no table can be evaluated: asking for more helps nobody.
_FLOOR = {"float64": 120 * 2.0**-53, "float32": 100 * 2.0**-24}


def circuit_attempts(
    formula: Formula,
    eps: float,
    dtype: str,
    positions: int,
    inputs: tuple[str, ...],
    known: dict[str, Any] | None = None,
) -> Iterator[Attempt]:
    """Circuits with ever tighter tables; if rounding alone is too much, another circuit.

    Parameters
    ----------
    formula : Formula
        What one position computes, as typed.
    positions, inputs
        Of the whole sequence. If every position has its own inputs, all do the same; otherwise each carries all.
    known
        What other attempts of the same search have left: circuits, and tables that missed their goals.
    """
    known = {} if known is None else known
    if "circuits" not in known:
        known["circuits"] = _Circuits(prepared(formula), dtype)
    for group, analysis in enumerate(known["circuits"].promising_first(eps)):
        for split in SPLITS:

            def build(analysis: _Analysis = analysis, split: Split = split) -> Built:
                aim = analysis.in_reach(eps, dtype)
                nodes = analysis.planned(aim, split, dtype)
                _check_strain(nodes, {k: _goal(n, aim, split, dtype) for k, n in _tables(nodes)}, aim, found=False)
                tables = _fit_tables(nodes, aim, split, dtype, known)
                layout = Layout(analysis.circuit, nodes, tables, dtype, positions, inputs)
                return analysis.built(layout, nodes)

            yield Attempt(CIRCUIT, build, group, split.tables)


class _Circuits:
    """The formula's circuits, each made when it is asked for."""

    def __init__(self, ground: Prepared, dtype: str) -> None:
        self.ground, self.dtype = ground, dtype
        self.ranges = BoxRanges(ground.extended.box, ground.known)
        self.found: list[tuple[Mode, _Analysis]] = []
        self.sized: dict[Mode, _Analysis] = {}
        self.seen: list[tuple[list[int], list[bool]]] = []
        self.modes = list(_MODES[dtype])

    @cached_property
    def written(self) -> list[Expr]:
        """The formula, its sums taken apart."""
        return [parted(expr, self.ranges.of) for expr in self.ground.written]

    def promising_first(self, eps: float) -> Iterator[_Analysis]:
        """All circuits, those last in which tables as accurate as can be would not do."""
        strained: list[tuple[float, _Analysis]] = []
        for mode, analysis in self.all():
            strain = analysis.least_error(self.dtype) / eps
            if strain >= 1 or analysis.singular:  # its tables have to be as accurate as they can be
                analysis = self.at_sizes(mode, analysis)
                strain = analysis.least_error(self.dtype) / eps
            if strain < 1:
                yield analysis
            else:
                strained.append((strain, analysis))
        yield from (analysis for _, analysis in sorted(strained, key=itemgetter(0)))

    def all(self) -> Iterator[tuple[Mode, _Analysis]]:
        """In the order of the modes."""
        yield from list(self.found)
        while self.modes:
            guide, circuit = self.guided(self.modes[0])
            if (guide.norms, guide.logs) not in self.seen:
                self.found.append((self.modes[0], _Analysis.of(circuit, self.ground, self.ranges)))
                self.seen.append((guide.norms, guide.logs))
                del self.modes[0]
                yield self.found[-1]
            else:
                del self.modes[0]

    def at_sizes(self, mode: Mode, plain: _Analysis) -> _Analysis:
        """The circuit that reads even functions at |u|; the plain one if there are none."""
        if mode not in self.sized:
            guide, circuit = self.guided(mode._replace(sizes=True))
            self.sized[mode] = _Analysis.of(circuit, self.ground, self.ranges) if any(guide.sizes) else plain
        return self.sized[mode]

    def guided(self, mode: Mode) -> tuple[PlanningGuide, Circuit]:
        """A circuit, and what was decided on the way to it."""
        guide = PlanningGuide(self.ranges, mode)
        return guide, build_circuit(self.written, self.ground.extended.box.variables, guide)


@dataclass(frozen=True)
class _Analysis:
    """What is known of a circuit's wires before the tolerance is split."""

    circuit: Circuit
    ground: Prepared
    search: WireSearch
    flow: _Flow
    nodes: dict[int, Node]
    cells: dict[int, Cells]

    @classmethod
    def of(cls, circuit: Circuit, ground: Prepared, ranges: BoxRanges) -> _Analysis:
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
            k: _cells(n.wire.function, *n.ends) for k, n in nodes.items() if n.wire.function is not None
        }
        flow = _Flow(circuit, ground.extended.box)
        flow.measure(nodes, cells)
        return cls(circuit, ground, ranges.search, flow, nodes, cells)

    @property
    def singular(self) -> bool:
        """Whether a function is read where its slope is unbounded."""
        return any(not math.isfinite(node.slope) for node in self.nodes.values())

    @cached_property
    def signs(self) -> dict[str, list[int]]:
        """Trees of the signs that the proof may use."""
        formula = self.ground.extended
        candidates = signs_of(formula.outputs, formula.box, self.circuit)
        return proven_signs(candidates, self.ground)

    def built(self, layout: Layout, nodes: dict[int, Node]) -> Built:
        """The weights, the circuit they stand for, and a search for the evidence."""
        weights = layout.weights()
        scales = {k: (n.scale, n.held) for k, n in nodes.items()}
        data = store_circuit(self.circuit, layout.places, scales)
        signs = self.signs
        data |= {"extends": self.ground.steps, "signs": list(signs)}
        number = numbering(self.circuit)
        meanings: dict[int, tuple[Expr, Fraction]] = {}
        units = {u for wire in self.circuit.wires if wire.norm is not None for u in wire.norm.units}
        for k, wire in enumerate(self.circuit.wires):
            if wire.argument is not None and k not in units:
                meanings[number[k]] = wire.argument.meaning, Fraction(2) ** scales.get(k, (0, 0))[0]
            elif wire.joined is not None:
                meanings[number[k]] = wire.meaning, Fraction(1)
        functions = {number[k]: n.wire.function for k, n in nodes.items() if n.wire.function not in (None, SQUARE)}
        singular = frozenset(number[k] for k in nodes if not math.isfinite(self.nodes[k].slope))
        return Built(weights, data, Finder(WireSearch(meanings, functions, self.search), singular, trees=signs))

    def least_error(self, dtype: str) -> float:
        """About what the outputs are off by if every table is as accurate as the format allows."""
        tables = (node for node in self.nodes.values() if node.wire.is_table)
        return _FLOOR[dtype] * sum(node.size * node.sensitivity for node in tables)

    def in_reach(self, eps: float, dtype: str) -> float:
        """The tolerance to plan for: far below what rounding does to a root, the closest bound is what a refusal needs.

        Rounding by e under a root that may vanish moves it by √e.
        """
        errors: dict[int, float] = {}
        worst = 0.0
        for k, node in sorted(self.nodes.items()):
            moved = sum(c * errors.get(i, 0.0) for i, c in node.reads)
            own = _FLOOR[dtype] * node.size if node.wire.is_table else 0.0
            if math.isfinite(node.slope):
                errors[k] = own + node.slope * moved
            else:
                errors[k] = own + self.cells[k].modulus(*node.ends, moved)
                worst = max(worst, errors[k])
        return worst * _ABOVE if eps < worst / _HOPELESS else eps

    def planned(self, eps: float, split: Split, dtype: str) -> dict[int, Node]:
        """The wires with their shares of the tolerance; where f' is unbounded, with a slope that serves."""
        nodes, cells = {k: replace(node) for k, node in self.nodes.items()}, dict(self.cells)
        allowed = split.singular * split.tables * eps
        for k in sorted((k for k, n in nodes.items() if not math.isfinite(n.slope)), reverse=True):
            node = nodes[k]
            node.singular = True
            node.slope = _effective_slope(node, allowed / max(node.sensitivity, 1e-300))
            cells[k] = _Blunted(cells[k], node.slope)
            self.flow.measure(nodes, cells)
        _share_out(nodes, split)
        _expect_errors(nodes, split.tables * eps)
        self._restrain(nodes, split.tables * eps)
        for node in nodes.values():
            if node.wire.function == SQUARE:
                node.scale, node.held = _square_scales(node, dtype)
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
        if _cells(function, *inside_domain(function, (low - room, high + room))).steepest * room <= allowed:
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
    return Node(wire, ends, size, _cells(wire.function, low, high).steepest, reads)


def _square_scales(node: Node, dtype: str) -> tuple[int, int]:
    """Powers of two by which a square's argument and value fit the one table of u² on about −1..1.

    Arguments so small that their squares leave the format are not scaled up all the way: then they are next to 0.
    """
    reach = max(largest(node.ends), 1e-300) / (1 + _MARGIN / 2)
    if 2 * node.drift > _MARGIN / 2 * reach:  # errors are not small beside the range
        reach += 2 * node.drift
    scale = min(-math.ceil(math.log2(reach)), _MOST_SCALE[dtype])
    return scale, 2 * scale


def _cells(function: Expr, low: float, high: float) -> Cells:
    return SquareCells(low, high) if function == SQUARE else function_cells(function, low, high)


class _Flow:
    """How errors flow through a circuit; the kernel's flow, with this circuit's numbers."""

    def __init__(self, circuit: Circuit, box: Box) -> None:
        places = {k: [0, k, 0] for k in range(len(circuit.wires))}
        self.circuit = stored.CircuitReader(circuit.variables).read(store_circuit(circuit, places))
        self.number = numbering(circuit)
        self.lower, self.upper = np.array(box.floats()).T

    def measure(self, nodes: dict[int, Node], cells: dict[int, Cells]) -> None:
        """How far the outputs move for a unit error of each wire, on the worst part of the box."""
        reach = {self.number[k]: nodes[k].ends for k in cells}
        flow = ErrorFlow(self.circuit, {self.number[k]: c for k, c in cells.items()}, {}, {}, reach)
        unit = {self.number[k]: Fuzz(0.0, node.size) for k, node in nodes.items()}
        none = dict.fromkeys(unit, 0.0)
        for node in nodes.values():
            node.sensitivity = 0.0
        for output in self.circuit.outputs:
            if not output.terms:
                continue

            def carried(a: Floats, b: Floats, output: stored.Linear = output) -> Floats:
                return flow.on(a, b, output).carry(unit, none)

            paths = flow.on(*cut_parts(carried, self.lower, self.upper), output)
            for k, node in nodes.items():
                if self.number[k] in paths.value:
                    amplitude = float(np.max(paths.value[self.number[k]]))
                    node.sensitivity = max(node.sensitivity, amplitude)


class _Blunted(SquareCells):
    """A function whose slopes are cut off: what an error can do where they are unbounded."""

    def __init__(self, cells: Cells, steepest: float) -> None:
        self.cells, self.steepest = cells, steepest

    def values(self, low: Any, high: Any) -> Any:
        """As they are."""
        return self.cells.values(low, high)

    def slopes(self, low: Any, high: Any) -> Any:
        """At most the given steepness."""
        return tuple(np.clip(s, -self.steepest, self.steepest) for s in self.cells.slopes(low, high))

    def modulus(self, low: float, high: float, shift: float) -> float:
        """As it is."""
        return self.cells.modulus(low, high, shift)


def _effective_slope(node: Node, allowed: float) -> float:
    """Where f' is unbounded: allowed change over the argument error that causes it."""
    assert node.wire.function is not None
    shift = node.ends[1] - node.ends[0]
    cells = _cells(node.wire.function, *node.ends)
    while shift > 1e-300 and cells.modulus(*node.ends, shift) > allowed:
        shift /= 1.5
    return allowed / max(shift, 1e-300)


class _Failure(NamedTuple):
    """A goal that was missed, the best table found, and its error."""

    goal: float
    table: NodeTable
    reached: float


def _tables(nodes: dict[int, Node]) -> list[tuple[int, Node]]:
    return [(k, node) for k, node in nodes.items() if node.wire.is_table]


def _goal(node: Node, eps: float, split: Split, dtype: str) -> float:
    """The error that a wire's table is to have, as the wire holds it."""
    goal = max(_own_error(node, split.tables * eps), _FLOOR[dtype] * node.size, 1e-300)  # f may be zero throughout
    return max(goal * 2.0**node.held, split.floor * _FLOOR[dtype]) if node.wire.function == SQUARE else goal


def _check_strain(nodes: dict[int, Node], errors: dict[int, float], eps: float, found: bool) -> None:
    """Refuse what tables with such errors cannot come to, before more is fitted or anything proven."""
    expected = sum(error * 2.0 ** -nodes[k].held * nodes[k].sensitivity for k, error in errors.items())
    if expected > STRAINED * eps:
        which = "the best tables that were found" if found else "tables as accurate as the format allows"
        raise NotProvenError(
            f"{which} leave an error of about {expected:.2g}{ASK}",
            measured=expected,
            rounding=None if found else expected,
        )


def _fit_tables(
    nodes: dict[int, Node], eps: float, split: Split, dtype: str, left_behind: dict[str, Any]
) -> dict[int, tuple[object, NodeTable]]:
    """A table for every table wire: (key of the table, table); equal keys share.

    Where a goal was missed before, a smaller one is not tried again. Nor is one fitted for nothing: what the tables
    found so far come to is checked after each that falls short. Where any bound will do, tables that are better than
    need be serve.
    """
    failed: dict[object, _Failure] = left_behind.setdefault("failed", {})
    fitted: dict[object, tuple[float, NodeTable]] = left_behind.setdefault("fitted", {})
    wanted: dict[object, tuple[Expr, Interval, float, float]] = {}
    keys: dict[int, object] = {}
    goals = {k: _goal(node, eps, split, dtype) for k, node in _tables(nodes)}
    for k, node in _tables(nodes):
        assert node.wire.function is not None
        ends, function = SQUARE_ENDS if node.wire.function == SQUARE else node.ends, node.wire.function
        keys[k] = (function, ends)
        _, _, before, shift = wanted.get(keys[k], (function, ends, math.inf, 0.0))
        wanted[keys[k]] = (function, ends, min(before, goals[k]), max(shift, node.drift))
    known: dict[object, NodeTable] = {}
    for key, (_, _, goal, _) in wanted.items():
        if key in failed and not failed[key].goal < goal < failed[key].reached:
            known[key] = failed[key].table
        elif "coarse" in left_behind and key in fitted and fitted[key][0] <= goal:
            known[key] = fitted[key][1]
    for function, ends, _, shift in wanted.values():
        if function != SQUARE:
            _with_room(function, ends, shift)  # refuses what cannot be fitted before anything is
    reached = {key: goal for key, (_, _, goal, _) in wanted.items()}
    reached |= {key: max(reached[key], failed[key].reached) for key in known if key in failed}
    _check_strain(nodes, {k: reached[keys[k]] for k in goals}, eps, found=True)
    todo = {key: (*want, dtype) for key, want in wanted.items() if key not in known}
    found = fit_all(_fit, list(todo.values()), lambda: bool(failed), _fit_once, "coarse" in left_behind)
    for (key, want), (table, error) in zip(todo.items(), found, strict=True):
        known[key] = table
        if error > want[2]:
            failed[key] = _Failure(want[2], table, error)
            reached[key] = error
            _check_strain(nodes, {k: reached[keys[k]] for k in goals}, eps, found=True)
        else:
            fitted[key] = want[2], table
    return {k: (keys[k], known[keys[k]]) for k in goals}


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


def _with_room(function: Expr, ends: Interval, shift: float) -> Interval:
    """The range of a table: with room for errors where the function's domain goes on."""
    (low, high), (first, last) = ends, domain_ends(function)
    least = 1e-7 * (high - low)
    room = max(2 * shift, least)
    low = low if low in steep_places(function) or (first is not None and low - room < first) else low - room
    high = high if last is not None and high + room > last else high + room
    if not np.isfinite(evaluate_accurately(function, ["u"], [np.array([low, high])])).all():
        kind = UnboundedError if room == least else NotProvenError  # with less to spare it is no better
        raise kind(f"{function} is not defined with room for errors, on u = {low:.4g}..{high:.6g}", place=str(function))
    return low, high


def _fit(
    function: Expr, ends: Interval, goal: float, shift: float, dtype: str, most: Allowance
) -> tuple[NodeTable, float]:
    """A table, and its error if that is above the goal."""
    if function == SQUARE:  # all have one range, margins included
        ready = ready_square(goal, dtype)
        return NodeTable(ready.slopes, ready.offsets, ready.values), 0.0
    low, high = _with_room(function, ends, shift)
    if not low < high:
        raise NotProvenError(f"a table of {function} would serve one argument only, {low:.6g}", place=str(function))
    try:
        with one_thread():
            table = fit_expression(
                function, "u", low, high, goal, dtype, linear=False, max_tokens=_MAX_TOKENS, most=most
            )
    except CannotFit as failure:
        if failure.best is not None:
            return NodeTable(failure.best.slopes, failure.best.offsets, failure.best.values), failure.best_error
        raise UnboundedError(  # not one of so few tokens, whatever they are to reach
            f"no table for {function} on u = {low:.4g}..{high:.4g} with up to {_MAX_TOKENS} tokens was found; "
            "take a smaller box",
            place=str(function),
        ) from None
    return NodeTable(table.slopes, table.offsets, table.values), 0.0


_fit_once = remembered(64)(_fit)
