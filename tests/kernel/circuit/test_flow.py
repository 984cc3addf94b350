"""Errors put into wires never reach an output larger than the paths say, and come close to it at worst.

The stored circuits are evaluated twice in NumPy: as they are, and with every argument and value off by its fuzz.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.circuit_models import linear_value, wire_values
from support.guides import RandomGuide
from support.prover import random_formula
from transformula.compiler.evidence.range_search import BoxRanges, PlannedRanges
from transformula.compiler.evidence.range_trees import cut_parts
from transformula.compiler.evidence.table_pieces import find_function_cells
from transformula.compiler.lower.lowered_circuit import Guide
from transformula.compiler.lower.lowering import build_circuit
from transformula.compiler.lower.store_circuit import store_circuit
from transformula.formula.evaluation import evaluate
from transformula.kernel.arithmetic import precision
from transformula.kernel.circuit.error_flow import NO_FUZZ, ErrorFlow, Fuzz
from transformula.kernel.structures.stored_circuit import SQUARE, CircuitReader
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.tables.table_slopes import FunctionCells, SquareCells

SLACK = 1e-10


class Disturbed:
    """A stored circuit on a box, and how far its wires may be off."""

    def __init__(self, text, box, guide=None, fuzz=1e-3, seed=0):
        formula = Formula.of([text], box)
        self.box = formula.box
        lowered = build_circuit(formula.outputs, self.box.variables, guide or Guide())
        places = {k: [0, k, 0] for k in range(len(lowered.facts))}
        self.circuit = CircuitReader(self.box.variables).read(store_circuit(lowered.circuit, places))
        (self.output,) = self.circuit.outputs
        with precision(128):
            ranges = PlannedRanges(lowered, BoxRanges(self.box))
        values, arguments = ranges.values, ranges.arguments
        rng = np.random.default_rng(seed)
        self.fuzz, self.cells, self.room = {}, {}, {}
        for k, wire in enumerate(self.circuit.wires):
            if wire.is_norm:  # a length is only nearly the sum of its ReLUs
                self.fuzz[k] = Fuzz(0.0, float(wire.measure.error) * (1.1 * values[k][1] + 1))
            elif wire.total is None:
                argument = fuzz * rng.random() if wire.arguments else 0.0
                self.fuzz[k] = Fuzz(argument, fuzz * rng.random())
            if wire.function is not None:
                low, high = arguments[k]
                room = 0.2 + 0.2 * (high - low)
                self.room[k] = low - room, high + room
                self.cells[k] = cells_of(wire.function, *self.room[k])
        self.flow = self.flow_of(self.fuzz)

    def flow_of(self, fuzz, cells=None):
        return ErrorFlow(self.circuit, self.cells if cells is None else cells, fuzz, {}, self.room)

    @property
    def ends(self):
        return np.array(self.box.floats()).T

    def disturbed(self, x, signs):
        """Wires at points with signs · fuzz added; ``signs``: a pair for a wire, argument and value."""
        values = []
        for k, wire in enumerate(self.circuit.wires):
            off = self.fuzz.get(k, NO_FUZZ)
            first, second = signs.get(k, (0.0, 0.0))
            if wire.total is not None:
                values.append(linear_value(wire.total, values))
                continue
            if not wire.arguments:
                values.append(x[:, k] + second * off.value)
                continue
            u = linear_value(wire.arguments[0], values) + first * off.argument
            if k in self.room and not ((self.room[k][0] <= u) & (u <= self.room[k][1])).all():
                return None  # beyond what the cells were made for
            f = np.maximum(u, 0) if wire.function is None else evaluate(wire.function, ["u"], [u])
            values.append(f + second * off.value)
        return values

    def moved(self, x, signs):
        """(error of the output, error of each wire), or None."""
        computed = self.disturbed(x, signs)
        if computed is None:
            return None
        exact = wire_values(self.circuit, x, multiplied=True)
        wrong = np.abs(linear_value(self.output, computed) - linear_value(self.output, exact))
        return wrong, {k: np.abs(a - b) for k, (a, b) in enumerate(zip(computed, exact, strict=True))}

    def adversary(self, point):
        """For each wire the signs that push the output up at a point, by one small push after the other."""
        base = linear_value(self.output, wire_values(self.circuit, point, multiplied=True))[0]
        tiny = 1e-4
        signs = {}
        for k in self.fuzz:
            pushes = []
            for push in ((tiny, 0.0), (0.0, tiny)):
                values = self.disturbed(point, {k: push})
                pushes.append(np.sign(linear_value(self.output, values)[0] - base) if values else 0.0)
            signs[k] = tuple(pushes)
        return signs


def cells_of(function, low, high):
    return SquareCells() if function == SQUARE else FunctionCells(function, find_function_cells(function, low, high))


def _random_signs(disturbed, rng, shape):
    kind = rng.integers(3)
    draw = {
        0: lambda: rng.choice([-1.0, 1.0]),
        1: lambda: rng.uniform(-1, 1, shape),
        2: lambda: rng.choice([-1.0, 1.0], shape),
    }[kind]
    return {k: (draw(), draw()) for k in disturbed.fuzz}


def _random_parts(lower, upper, rng, count=6):
    """Boxes inside the box, from points to all of it."""
    size = rng.choice([0.0, 1e-3, 0.1, 0.5, 1.0], (1, count))
    start = rng.random((len(lower), count)) * (1 - size)
    low = lower[:, None] + start * (upper - lower)[:, None]
    return low, np.minimum(low + size * (upper - lower)[:, None], upper[:, None])


def _attack(disturbed, seed, rounds=6):
    """Disturb points of many parts and compare with what the paths carry there; returns how often."""
    rng = np.random.default_rng(seed)
    low, high = _random_parts(*disturbed.ends, rng)
    paths = disturbed.flow.on(low, high, disturbed.output)
    tried = 0
    for part in range(low.shape[1]):
        x = low[:, part] + (high - low)[:, part] * rng.random((60, len(low)))
        choices = [_random_signs(disturbed, rng, len(x)) for _ in range(rounds)]
        choices.append(disturbed.adversary(x[:1]))
        results = [r for r in (disturbed.moved(x, signs) for signs in choices) if r is not None]
        whole = {
            k: max((float(np.nanmax(r[1][k])) for r in results), default=0.0)
            for k in range(len(disturbed.circuit.wires))
        }
        bound = paths.carry(disturbed.fuzz, whole)
        bound = np.broadcast_to(bound, low.shape[1])[part]
        for wrong, _ in results:
            worst = np.nanmax(wrong, initial=0.0)  # beyond the domain of a root nothing is said
            assert worst <= bound + SLACK * (1 + worst)
            tried += 1
    return tried


@settings(max_examples=12)
@given(seed=st.integers(0, 4000), wild=st.booleans(), fuzz=st.sampled_from([1e-5, 1e-3, 2e-2]))
def test_random_circuits_with_random_errors(seed, wild, fuzz):
    names = ("a", "b", "c")[: 2 + seed % 2]
    expr = random_formula(seed, names, smooth=seed % 3 > 0)
    guide = RandomGuide(seed) if wild else Guide()
    _attack(Disturbed(str(expr), ", ".join(f"{n}=-3/4..1" for n in names), guide, fuzz, seed), seed)


EXAMPLES = [
    ("x*y", "x=-1..2, y=0..3"),
    ("x*y*z - sin(x*z)", "x=-1..1, y=0..1, z=1..2"),
    ("x/y + x**2*y", "x=0..1, y=1..2"),
    ("exp(x*y)*max(x, y)", "x=-1..1, y=-1..1"),
    ("sqrt(x*y + 1/4)", "x=0..1, y=0..1"),
    ("(x + y)**2*(x - y)", "x=0..1, y=0..1"),
    ("x/(exp(x/y) - 1)", "x=1/2..1, y=1..2"),
    ("sqrt(x**2 + y**2)", "x=-1..1, y=-1..1"),
    ("abs(x*y) - min(x, y)", "x=-1..1, y=-1..1"),
    ("tanh(20*x*y)", "x=-1..1, y=-1..1"),
    ("x*y - 10000*x + y", "x=1..2, y=10000..10001"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "box"), EXAMPLES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_named_circuits_with_random_errors(text, box, seed):
    guide = RandomGuide(seed) if seed else Guide()
    assert _attack(Disturbed(text, box, guide, 1e-2 if seed < 2 else 1e-4, seed), seed) > 10


@pytest.mark.parametrize(
    ("text", "box"), [e for e in EXAMPLES if not any(w in e[0] for w in ("max", "min", "sqrt(x**2"))]
)
def test_an_adversary_comes_close_at_a_point(text, box):
    """With small errors and no spread the bound is attained: signs are free, slopes are exact."""
    disturbed = Disturbed(text, box, Guide(), 1e-6)
    point = disturbed.ends.mean(axis=0)[None] * 0.9 + disturbed.ends[1] * 0.1
    wrong, _ = disturbed.moved(point, disturbed.adversary(point))
    bound = disturbed.flow.on(point.T, point.T, disturbed.output).carry(disturbed.fuzz, {})
    assert wrong[0] <= bound[0] + 1e-15 and bound[0] <= 1.15 * wrong[0] + 1e-12


def _whole(disturbed, fuzz, whole=None):
    """What the paths carry on the whole box."""
    lower, upper = disturbed.ends
    return disturbed.flow_of(fuzz).on(lower[:, None], upper[:, None], disturbed.output).carry(fuzz, whole or {})


def test_errors_of_one_factor_do_not_count_twice():
    """x·y is two squares, but an error of x reaches it times |y|; along each square alone it is more."""
    disturbed = Disturbed("x*y", "x=0..1, y=5..6")
    bound = _whole(disturbed, {0: Fuzz(0.0, 1e-3)})
    assert 6e-3 <= bound[0] <= 6.01e-3
    (product,) = [w for w in disturbed.circuit.wires if w.total is not None and not w.is_norm]
    steepest = {
        k: np.abs(disturbed.cells[k].slopes(*np.array(disturbed.room[k])[:, None])).max() for k, _ in product.parts
    }
    assert sum(abs(f) * steepest[k] * 1e-3 for k, f in product.parts) > 6.3e-3


def test_errors_of_both_factors_count_once_each():
    disturbed = Disturbed("x*y", "x=0..1, y=5..6")
    bound = _whole(disturbed, {0: Fuzz(0.0, 1e-3), 1: Fuzz(0.0, 1e-3)})
    assert 7e-3 <= bound[0] <= 7.02e-3


def test_a_path_is_cut_where_the_slope_is_unbounded():
    disturbed = Disturbed("sqrt(x*y)", "x=0..1, y=1..2")
    (k,) = [k for k, w in enumerate(disturbed.circuit.wires) if w.function not in (None, SQUARE)]
    cells = disturbed.cells | {k: cells_of(disturbed.circuit.wires[k].function, 0.0, 2.0)}
    disturbed.room[k] = 0.0, 2.0
    fuzz = {0: Fuzz(0.0, 1e-3)}
    low, high = np.array([[0.0, 0.5], [1.0, 1.0]]), np.array([[0.1, 1.0], [2.0, 2.0]])
    paths = disturbed.flow_of({}, cells).on(low, high, disturbed.output)
    assert paths.cut[k].tolist() == [True, False]
    bound = paths.carry(fuzz, {k: 0.25})
    assert bound[0] == pytest.approx(0.25, rel=1e-6)  # what is said of the wire, and nothing before it
    assert 1e-3 < bound[1] < 3e-3


def test_a_rectifier_that_is_off_passes_nothing():
    disturbed = Disturbed("max(x, 0) + y*x", "x=-1..1, y=1..2")
    fuzz = {k: Fuzz(0.0, 1e-3) for k in range(2)}
    (k,) = [k for k, w in enumerate(disturbed.circuit.wires) if w.arguments and w.function is w.total is None]
    low, high = np.array([[-1.0, 0.1, -1.0], [1.0] * 3]), np.array([[-0.1, 1.0, 1.0], [2.0] * 3])
    paths = disturbed.flow_of({}).on(low, high, disturbed.output)
    assert paths.argument[k] == pytest.approx([0.0, 1.0, 1.0])
    assert np.all(np.isfinite(paths.carry(fuzz, {})))


def test_what_is_not_known_is_infinite():
    """Outside the cells, and where an infinite slope meets no error: never a finite number."""
    disturbed = Disturbed("exp(x)*y", "x=0..1, y=1..2")
    (k,) = [k for k, w in enumerate(disturbed.circuit.wires) if w.function not in (None, SQUARE)]
    narrow = disturbed.cells | {k: cells_of(disturbed.circuit.wires[k].function, 0.0, 0.5)}
    disturbed.room.clear()
    flow, (lower, upper) = disturbed.flow_of({}, narrow), disturbed.ends
    bound = flow.on(lower[:, None], upper[:, None], disturbed.output).carry({0: Fuzz(0.0, 1e-3)}, {k: np.inf})
    assert bound[0] == np.inf
    with pytest.raises(KeyError):  # a cut path needs the wire's whole error
        flow.on(lower[:, None], upper[:, None], disturbed.output).carry({0: Fuzz(0.0, 1e-3)}, {})


def test_cutting_helps_where_a_bound_is_worst_at_one_corner():
    disturbed = Disturbed("exp(3*x*y)*x", "x=0..1, y=0..1")
    fuzz = {k: Fuzz(0.0, 1e-3) for k in range(2)}
    flow, (lower, upper) = disturbed.flow_of(fuzz), disturbed.ends

    def bound(a, b):
        return flow.on(a, b, disturbed.output).carry(fuzz, {})

    whole = bound(lower[:, None], upper[:, None]).max()
    parts = bound(*cut_parts(bound, lower, upper)).max()
    true = 1e-3 * np.exp(3) * (4 + 3)  # d/dx + d/dy at (1, 1)
    assert true <= parts <= min(1.3 * true, whole)
