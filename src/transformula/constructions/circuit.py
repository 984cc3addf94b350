"""Any formula in many variables: a multi-layer softmax Transformer, one table a nonlinearity.

`formulas.circuits` turns the formula into wires. Here each wire gets its range on the box (proven), each
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
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from flint import fmpq

from transformula.constructions.one_layer import GATE_MARGIN
from transformula.constructions.parts import midpoint
from transformula.constructions.tables.fitting import CannotFit, fit_table
from transformula.constructions.tables.threads import one_thread
from transformula.errors import NotProvenError
from transformula.formulas.boxes import Box
from transformula.formulas.circuits import SQUARE, Balance, Circuit, Linear, Wire, build_circuit, domain_ends
from transformula.formulas.enclosures import enclose
from transformula.formulas.expression import Expr
from transformula.formulas.formula import Formula
from transformula.formulas.numeric import evaluate_accurately
from transformula.formulas.positions import formula_of_a_position
from transformula.progress import report
from transformula.taylor.box_ranges import BoxRanges, function_range
from transformula.taylor.error_flow import ErrorFlow, Fuzz, worst_parts
from transformula.taylor.function_cells import Cells, FunctionCells, SquareCells
from transformula.taylor.modulus import lipschitz, modulus
from transformula.taylor.wire_ranges import WireRanges
from transformula.transformers.weights import Attention, Block, FeedForward, Head, Matrix, Weights


class Split(NamedTuple):
    """A way to spend the tolerance.

    ``tables`` is what all tables may use together, ``square`` a square's part against another table's (three
    digits cost it one token), ``singular`` what an argument's error may cost where f' is unbounded.
    """

    tables: float
    square: float
    singular: float


class Mode(NamedTuple):
    """A way to lower the formula.

    ``directions``: in how many to measure lengths that may vanish; 0 is a table of the root, which turns an
    error e under it into √e: too much for float32. ``logs``: read functions of products of at least so many
    factors at sums of logarithms; 0 for none.
    """

    directions: int
    logs: int


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
_CLOSE = 1e-4
#: Other tables round a little better or worse; beyond this factor only another circuit helps.
_HOPELESS = 20.0
#: Closer than this, relative to its size, no table can be evaluated: asking for more helps nobody.
_FLOOR = {"float64": 120 * 2.0**-53, "float32": 100 * 2.0**-24}
Interval = tuple[float, float]


class PlanningGuide:
    """Chooses splits and clamps from ranges, and writes the choices down."""

    def __init__(self, ranges: BoxRanges, mode: Mode) -> None:
        self.ranges, self.mode = ranges, mode
        self.norms: list[int] = []
        self.logs: list[bool] = []
        self.balances: list[list[str]] = []
        self.centres: list[str] = []
        self.clamps: list[list[bool]] = []
        self.exchanges: list[bool] = []

    def balance(self, left: Expr, right: Expr) -> Balance:
        """Centre both factors and weigh them alike: then the squares are as small as they can be."""
        (a, half_a), (b, half_b) = (_centre(self.ranges.of(e)) for e in (left, right))
        weight = Fraction(2) ** round(math.log2(half_a / half_b))
        choice = Balance(a, b, weight)
        self.balances.append([str(v) for v in choice])
        return choice

    def centre(self, argument: Expr) -> Fraction:
        """The middle of the argument's range."""
        middle, _ = _centre(self.ranges.of(argument))
        self.centres.append(str(middle))
        return middle

    def clamp(self, function: Expr, argument: Expr) -> tuple[bool, bool]:
        """Clamp where the range comes close to the end of the domain."""
        low, high = self.ranges.of(argument)
        slack = 0.01 * (high - low)
        ends = domain_ends(function)
        choice = (
            ends[0] is not None and low - slack < ends[0],
            ends[1] is not None and high + slack > ends[1],
        )
        self.clamps.append(list(choice))
        return choice

    def exchange(self, factors: Sequence[Expr], others: Sequence[Expr], last: Expr, inner: Expr) -> bool:
        """Exchange them where the others' sizes multiply to less than half: then less cancels."""
        ends = self.ranges.of(inner)
        size = _largest(function_range(last, *ends)) if math.isfinite(ends[1] - ends[0]) else math.inf
        after = math.prod(_largest(self.ranges.of(f)) for f in others) * size
        choice = after < 0.5 * math.prod(_largest(self.ranges.of(f)) for f in factors)
        self.exchanges.append(choice)
        return choice

    def directions(self, radicand: Expr) -> int:
        """The given number, where the length may come so close to zero that errors under the root grow."""
        low, high = self.ranges.of(radicand)
        self.norms.append(0 if low > _CLOSE * high else self.mode.directions)
        return self.norms[-1]

    def in_logs(self, bases: Sequence[Expr]) -> bool:
        """Where all are positive and there are enough of them."""
        wanted = 0 < self.mode.logs <= len(bases)
        self.logs.append(wanted and all(self.ranges.of(base)[0] > 0 for base in bases))
        return self.logs[-1]


def _largest(ends: Interval) -> float:
    return max(abs(ends[0]), abs(ends[1]))


def _centre(ends: Interval) -> tuple[Fraction, float]:
    """A short binary number near the middle, and the half-width around it."""
    low, high = ends
    half = max((high - low) / 2, 1e-9 * max(abs(low), abs(high)), 1e-300)
    if not math.isfinite(half):
        raise NotProvenError("the range of a factor could not be bounded on the box: narrow the box")
    grain = Fraction(2) ** (math.floor(math.log2(half)) - 4)
    middle = round(Fraction((low + high) / 2) / grain) * grain
    return middle, half


@dataclass
class _Node:
    """What the planner knows about one wire."""

    wire: Wire
    ends: Interval  # range of the argument
    size: float  # sup|meaning|
    slope: float  # sup|f'|, or a stand-in where that is infinite
    reads: list[tuple[int, float]] = field(default_factory=list)
    sensitivity: float = 0.0
    share: float = 0.0
    singular: bool = False
    scale: int = 0  # the head reads 2^scale · argument
    held: int = 0  # the wire holds 2^held · meaning


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
    ranges = BoxRanges(formula.box)
    shortfall: NotProvenError | None = None
    tried: list[tuple[list[int], list[bool]]] = []
    for mode in _MODES[dtype]:
        guide = PlanningGuide(ranges, mode)
        circuit = build_circuit(formula.outputs, formula.box.variables, guide)
        if (guide.norms, guide.logs) in tried:
            continue
        tried.append((guide.norms, guide.logs))
        for split in SPLITS:
            nodes = _analyse(circuit, formula.box, ranges, eps, split)
            try:
                tables = _fit_tables(nodes, eps, split, dtype)
            except NotProvenError as error:
                shortfall = error.unless_closer(shortfall)
                continue
            plan = {
                "balances": guide.balances,
                "centres": guide.centres,
                "clamps": guide.clamps,
                "exchanges": guide.exchanges,
                "norms": guide.norms,
                "logs": guide.logs,
                "scales": {str(k): [n.scale, n.held] for k, n in nodes.items()},
            }
            weights = _Layout(circuit, nodes, tables, dtype, positions, whole.box.variables).weights()
            refused = yield weights, plan
            if refused is not None and (refused.rounding or 0.0) > _HOPELESS * eps:
                break
    if shortfall is not None:
        raise shortfall


def _analyse(circuit: Circuit, box: Box, ranges: BoxRanges, eps: float, split: Split) -> dict[int, _Node]:
    """Ranges forwards, sensitivities backwards."""
    nodes: dict[int, _Node] = {}
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
    _sensitivities(circuit, box, nodes, split.singular * split.tables * eps)
    _share_out(nodes, split)
    return nodes


def _node(wire: Wire, ends: Interval, values: Interval, argument: Linear) -> _Node:
    low, high = ends
    assert wire.argument is not None
    reads = [(k, abs(float(enclose(c)))) for k, c in argument.terms]
    if wire.function is None:
        return _Node(wire, ends, max(high, 0.0), 1.0, reads)
    size = _largest(values)
    if not math.isfinite(size):
        raise NotProvenError(
            f"{wire.meaning} could not be bounded: {wire.argument.meaning} may reach {low:.4g}..{high:.4g}",
            place=str(wire.meaning),
        )
    node = _Node(wire, ends, size, lipschitz(wire.function, "u", low, high), reads)
    if wire.function == SQUARE:
        node.scale = -math.ceil(math.log2(max(abs(low), abs(high), 1e-300) / (1 + _MARGIN / 2)))
        node.held = 2 * node.scale
    return node


def _sensitivities(circuit: Circuit, box: Box, nodes: dict[int, _Node], allowed: float) -> None:
    """How far the outputs move for a unit error of each wire, on the worst part of the box."""
    cells: dict[int, Cells] = {
        k: SquareCells(*n.ends) if n.wire.function == SQUARE else FunctionCells(n.wire.function, *n.ends)
        for k, n in nodes.items()
        if n.wire.function is not None
    }
    _measure(circuit, box, nodes, cells)
    steep = [k for k, n in nodes.items() if not math.isfinite(n.slope)]
    if not steep:
        return
    for k in sorted(steep, reverse=True):
        node = nodes[k]
        node.singular = True
        node.slope = _effective_slope(node, allowed / max(node.sensitivity, 1e-300))
        cells[k] = _Blunted(cells[k], node.slope)
        _measure(circuit, box, nodes, cells)


def _measure(circuit: Circuit, box: Box, nodes: dict[int, _Node], cells: dict[int, Cells]) -> None:
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


def _effective_slope(node: _Node, allowed: float) -> float:
    """Where f' is unbounded: allowed change over the argument error that causes it."""
    assert node.wire.function is not None
    shift = node.ends[1] - node.ends[0]
    while shift > 1e-300 and modulus(node.wire.function, "u", *node.ends, shift) > allowed:
        shift /= 1.5
    return allowed / shift


@dataclass(frozen=True, eq=False)
class _Table:
    slopes: Any
    offsets: Any
    values: Any


def _fit_tables(
    nodes: dict[int, _Node], eps: float, split: Split, dtype: str
) -> dict[int, tuple[object, _Table]]:
    """A table for every table wire: (key of the table, table); equal keys share."""
    wanted: dict[object, tuple[Expr, Interval, float, float]] = {}
    keys: dict[int, object] = {}
    tables = [k for k, n in nodes.items() if n.wire.is_table]
    eps = split.tables * eps
    moved = _expected_errors(nodes, eps)
    for k in tables:
        node = nodes[k]
        assert node.wire.function is not None
        goal = node.share * eps / max(node.sensitivity, 1e-300)
        ends, function = node.ends, node.wire.function
        goal = max(goal, _FLOOR[dtype] * node.size)
        if function == SQUARE:
            goal, ends = goal * 2.0**node.held, (-1.0 - _MARGIN, 1.0 + _MARGIN)
            goal = max(goal, _FLOOR[dtype])
        keys[k] = (function, ends)
        _, _, before, shift = wanted.get(keys[k], (function, ends, math.inf, 0.0))
        wanted[keys[k]] = (function, ends, min(before, goal), max(shift, moved[k]))
    fitted = {}
    for done, (key, (function, ends, tightest, shift)) in enumerate(wanted.items()):
        report("solving", done, len(wanted) - done)
        fitted[key] = _fit(function, ends, tightest, shift, dtype)
    return {k: (keys[k], fitted[keys[k]]) for k in tables}


def _share_out(nodes: dict[int, _Node], split: Split) -> None:
    """Each table's share of what the tables may use."""
    parts = {
        k: split.square if n.wire.function == SQUARE else _SINGULAR_PART if n.singular else 1.0
        for k, n in nodes.items()
    }
    total = sum(part for k, part in parts.items() if nodes[k].wire.is_table) or 1.0
    for k, node in nodes.items():
        node.share = parts[k] / total


def _expected_errors(nodes: dict[int, _Node], eps: float) -> dict[int, float]:
    """About how far errors will move each argument: its range is widened by twice that."""
    errors: dict[int, float] = {}
    moved: dict[int, float] = {}
    for k in sorted(nodes):
        node = nodes[k]
        moved[k] = sum(c * errors.get(i, 0.0) for i, c in node.reads)
        own = node.share * eps / max(node.sensitivity, 1e-300) if node.wire.is_table else 0.0
        errors[k] = own + node.slope * moved[k]
    return moved


@lru_cache(maxsize=64)
def _fit(function: Expr, ends: Interval, goal: float, shift: float, dtype: str) -> _Table:
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
            return _Table(failure.best.slopes, failure.best.offsets, failure.best.values)
        raise NotProvenError(
            f"no table for {function} on u = {low:.4g}..{high:.4g} within {goal:.2g} was found in {dtype}: "
            f"the best has a measured error of {failure.best_error:.2g}; ask for a larger eps",
            measured=failure.best_error,
        ) from None
    return _Table(table.slopes, table.offsets, table.values)


class _Layout:
    """Tokens, slots and matrices of the circuit."""

    def __init__(
        self,
        circuit: Circuit,
        nodes: dict[int, _Node],
        tables: dict[int, tuple[object, _Table]],
        dtype: str,
        positions: int,
        inputs: tuple[str, ...],
    ) -> None:
        self.circuit, self.nodes, self.tables, self.dtype = circuit, nodes, tables, dtype
        self.positions, self.inputs = positions, inputs
        self.repeated = len(circuit.variables) < len(inputs)
        self.shared: dict[object, tuple[int, _Table]] = {}
        for key, table in tables.values():
            self.shared.setdefault(key, (len(self.shared) + 1, table))
        names = [f"x.{name}" for name in circuit.variables] + ["one"]
        names += [f"w{k}" for k in nodes] + ["slope", "offset", "value"]
        names += [f"gate{g}" for g in range(len(self.shared) + 1)]
        self.slots = tuple(names)
        self.index = {name: k for k, name in enumerate(names)}
        self.tokens = positions + sum(len(t.slopes) for _, t in self.shared.values())

    def weights(self) -> Weights:
        """Everything as plain data."""
        circuit, width = self.circuit, len(self.slots)
        forms = [self._form(output, 0) for output in circuit.outputs]
        forms = forms * self.positions if self.repeated else forms
        outputs, step = len(forms), len(circuit.variables) if self.repeated else 0
        embedding = [
            (p * width + self.index[f"x.{n}"], p * step + k, 1)
            for p in range(self.positions)
            for k, n in enumerate(circuit.variables)
        ]
        one, own = self.index["one"], outputs // self.positions
        readout = [
            (o, o // own * width + slot, v) for o, form in enumerate(forms) for slot, v in form if slot != one
        ]
        bias = [(o, 0, v) for o, form in enumerate(forms) for slot, v in form if slot == one]
        return Weights(
            inputs=self.inputs,
            slots=self.slots,
            tokens=self.tokens,
            embedding=self._matrix((self.tokens * width, len(self.inputs)), embedding),
            memory=Matrix.from_dense(self._checked(self._memory()), self.dtype),
            blocks=tuple(self._block(k) for k in range(1, circuit.layers + 1)),
            readout=self._matrix((outputs, self.tokens * width), readout),
            bias=self._matrix((outputs, 1), bias),
            dtype=self.dtype,
        )

    def _checked(self, numbers: Any) -> Any:
        """Numbers that are finite in the format."""
        if not np.abs(numbers).max() < float(np.finfo(self.dtype).max) / 2:
            raise NotProvenError(f"the values of a table are beyond {self.dtype}'s range: use a smaller box")
        return numbers

    def _matrix(self, shape: tuple[int, int], entries: list[tuple[int, int, Any]]) -> Matrix:
        return Matrix.of(shape, entries, self.dtype)

    def _form(self, linear: Linear, scale: int) -> list[tuple[int, fmpq]]:
        """2^scale · linear as coefficients of slots, which may hold multiples of their meanings."""
        factor = fmpq(2) ** scale
        entries = []
        linear = self.circuit.in_slots(linear)
        for k, coefficient in linear.terms:
            name = f"w{k}" if k in self.nodes else f"x.{self.circuit.variables[k]}"
            held = fmpq(2) ** (-self.nodes[k].held) if k in self.nodes else fmpq(1)
            if not enclose(coefficient).contains(0):  # else it cancels, though not to the last digit
                entries.append((self.index[name], midpoint(coefficient) * factor * held))
        return [*entries, (self.index["one"], midpoint(linear.constant) * factor)]

    def _memory(self) -> Any:
        memory = np.zeros((self.tokens, len(self.slots)))
        memory[: self.positions, [self.index["one"], self.index["gate0"]]] = 1
        start = self.positions
        for mark, table in self.shared.values():
            rows = slice(start, start + len(table.slopes))
            for name in ("slope", "offset", "value"):
                memory[rows, self.index[name]] = getattr(table, name + "s")
            memory[rows, self.index[f"gate{mark}"]] = 1
            start = rows.stop
        return memory

    def _block(self, number: int) -> Block:
        heads = [self._head(k) for k, n in self.nodes.items() if n.wire.time == 2 * number - 1]
        bends = [k for k, n in self.nodes.items() if n.wire.time == 2 * number]
        return Block(Attention(tuple(heads)), self._feed_forward(bends) if bends else None)

    def _head(self, k: int) -> Head:
        node, width, one = self.nodes[k], len(self.slots), self.index["one"]
        assert node.wire.argument is not None
        own, _ = self.shared[self.tables[k][0]]
        query: list[tuple[int, int, Any]] = [(1, one, 1), (2, one, 1)]
        query += [(0, slot, v) for slot, v in self._form(node.wire.argument, node.scale)]
        key: list[tuple[int, int, Any]] = [(0, self.index["slope"], 1), (1, self.index["offset"], 1)]
        key += [(2, self.index[f"gate{g}"], self._gate()) for g in range(len(self.shared) + 1) if g != own]
        value = [(self.index[f"w{k}"], self.index["value"], 1)]
        return Head(
            self._matrix((3, width), query),
            self._matrix((3, width), key),
            self._matrix((width, width), value),
        )

    def _gate(self) -> float:
        """Low enough that no token of another table scores within `GATE_MARGIN` of a head's own."""
        far = max(max(map(abs, n.ends)) * 2.0**n.scale for n in self.nodes.values())
        tables = [t for _, t in self.shared.values()]
        reach = max(float((np.abs(t.offsets) + 2 * far * np.abs(t.slopes)).max()) for t in tables)
        return -(2.0 ** math.ceil(math.log2(2 * reach + GATE_MARGIN)))  # a power of two: exact in any format

    def _feed_forward(self, bends: list[int]) -> FeedForward:
        width = len(self.slots)
        hidden = []
        for unit, k in enumerate(bends):
            argument = self.nodes[k].wire.argument
            assert argument is not None
            hidden += [(unit, slot, v) for slot, v in self._form(argument, 0)]
        output = [(self.index[f"w{k}"], unit, 1) for unit, k in enumerate(bends)]
        return FeedForward(
            self._matrix((len(bends), width), hidden),
            self._matrix((len(bends), 1), []),
            self._matrix((width, len(bends)), output),
            self._matrix((width, 1), []),
        )
