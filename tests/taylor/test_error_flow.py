"""Errors put into wires never reach an output larger than the paths say, and come close to it at worst.

The circuits are evaluated twice in NumPy: as they are, and with every argument and value off by its fuzz.
"""

import math

import numpy as np
import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from support.circuit_models import linear_value, wire_values
from support.guides import RandomGuide
from support.prover import random_formula
from transformula.formulas import Formula
from transformula.formulas.enclosures import precision
from transformula.formulas.guides import PlainGuide
from transformula.formulas.lowering import build_circuit
from transformula.formulas.numeric import evaluate
from transformula.formulas.wires import SQUARE
from transformula.taylor.box_ranges import BoxRanges
from transformula.taylor.error_flow import ErrorFlow, Fuzz, direction, length, squared, times, worst_parts
from transformula.taylor.function_cells import FunctionCells, SquareCells
from transformula.taylor.wire_ranges import WireRanges

SLACK = 1e-10


class Disturbed:
    """A circuit on a box, and how far its wires may be off."""

    def __init__(self, text, box, guide=None, fuzz=1e-3, seed=0):
        formula = Formula.of([text], box)
        self.box = formula.box
        self.circuit = build_circuit(formula.outputs, self.box.variables, guide or PlainGuide())
        (self.output,) = self.circuit.outputs
        with precision(128):
            self.ranges = WireRanges(self.circuit, BoxRanges(self.box))
        rng = np.random.default_rng(seed)
        self.fuzz, self.cells, self.room = {}, {}, {}
        for k, wire in enumerate(self.circuit.wires):
            if wire.norm is not None:  # a length is only nearly the sum over its directions
                most = 1.1 * self.ranges.values[k][1] + 1
                self.fuzz[k] = Fuzz(0.0, float(wire.norm.error) * most)
            elif wire.product is None:
                argument = fuzz * rng.random() if wire.argument is not None else 0.0
                self.fuzz[k] = Fuzz(argument, fuzz * rng.random())
            if wire.is_table:
                low, high = self.ranges.arguments[k]
                room = 0.2 + 0.2 * (high - low)
                self.room[k] = low - room, high + room
                kind = SquareCells if wire.function == SQUARE else FunctionCells
                self.cells[k] = (
                    kind(*self.room[k]) if kind is SquareCells else kind(wire.function, *self.room[k])
                )
        self.flow = ErrorFlow(self.circuit, self.cells, self.fuzz)

    @property
    def ends(self):
        return np.array(self.box.floats()).T

    def disturbed(self, x, signs):
        """Wires at points with signs · fuzz added; ``signs``: a pair for a wire, argument and value."""
        values = []
        for k, wire in enumerate(self.circuit.wires):
            off = self.fuzz.get(k, Fuzz())
            first, second = signs.get(k, (0.0, 0.0))
            if wire.joined is not None:
                values.append(linear_value(wire.joined.sum, values))
                continue
            if wire.argument is None:
                values.append(x[:, k] + second * off.value)
                continue
            u = linear_value(wire.argument, values) + first * off.argument
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
        exact = wire_values(self.circuit, x)
        wrong = np.abs(linear_value(self.output, computed) - linear_value(self.output, exact))
        return wrong, {k: np.abs(a - b) for k, (a, b) in enumerate(zip(computed, exact, strict=True))}

    def adversary(self, point):
        """For each wire the signs that push the output up at a point, by one small push after the other."""
        base = linear_value(self.output, wire_values(self.circuit, point))[0]
        tiny = 1e-4
        signs = {}
        for k in self.fuzz:
            pushes = []
            for push in ((tiny, 0.0), (0.0, tiny)):
                values = self.disturbed(point, {k: push})
                pushes.append(np.sign(linear_value(self.output, values)[0] - base) if values else 0.0)
            signs[k] = tuple(pushes)
        return signs


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


@settings(max_examples=30)
@given(seed=st.integers(0, 4000), wild=st.booleans(), fuzz=st.sampled_from([1e-5, 1e-3, 2e-2]))
def test_random_circuits_with_random_errors(seed, wild, fuzz):
    names = ("a", "b", "c")[: 2 + seed % 2]
    expr = random_formula(seed, names, smooth=seed % 3 > 0)
    guide = RandomGuide(seed) if wild else PlainGuide()
    _attack(Disturbed(str(expr), dict.fromkeys(names, (-0.75, 1)), guide, fuzz, seed), seed)


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
    guide = RandomGuide(seed) if seed else PlainGuide()
    assert _attack(Disturbed(text, box, guide, 1e-2 if seed < 2 else 1e-4, seed), seed) > 10


@pytest.mark.parametrize(
    ("text", "box"), [e for e in EXAMPLES if not any(w in e[0] for w in ("max", "min", "sqrt(x**2"))]
)
def test_an_adversary_comes_close_at_a_point(text, box):
    """With small errors and no spread the bound is attained: signs are free, slopes are exact."""
    disturbed = Disturbed(text, box, PlainGuide(), 1e-6)
    point = disturbed.ends.mean(axis=0)[None] * 0.9 + disturbed.ends[1] * 0.1
    wrong, _ = disturbed.moved(point, disturbed.adversary(point))
    bound = disturbed.flow.on(point.T, point.T, disturbed.output).carry(disturbed.fuzz, {})
    assert wrong[0] <= bound[0] + 1e-15 and bound[0] <= 1.15 * wrong[0] + 1e-12


def test_errors_of_one_factor_do_not_count_twice():
    """x·y is two squares, but an error of x reaches it times |y|; along each square alone it is more."""
    disturbed = Disturbed("x*y", "x=0..1, y=5..6")
    fuzz = {0: Fuzz(0.0, 1e-3)}
    flow = ErrorFlow(disturbed.circuit, disturbed.cells, fuzz)
    lower, upper = disturbed.ends
    bound = flow.on(lower[:, None], upper[:, None], disturbed.output).carry(fuzz, {})
    assert 6e-3 <= bound[0] <= 6.01e-3
    (product,) = [w.product for w in disturbed.circuit.wires if w.product]
    assert sum(abs(f) * disturbed.cells[k].steepest * 1e-3 for k, f in product.squares) > 6.3e-3


def test_errors_of_both_factors_count_once_each():
    disturbed = Disturbed("x*y", "x=0..1, y=5..6")
    fuzz = {0: Fuzz(0.0, 1e-3), 1: Fuzz(0.0, 1e-3)}
    flow = ErrorFlow(disturbed.circuit, disturbed.cells, fuzz)
    lower, upper = disturbed.ends
    bound = flow.on(lower[:, None], upper[:, None], disturbed.output).carry(fuzz, {})
    assert 7e-3 <= bound[0] <= 7.02e-3


def test_a_path_is_cut_where_the_slope_is_unbounded():
    disturbed = Disturbed("sqrt(x*y)", "x=0..1, y=1..2")
    (k,) = [k for k, w in enumerate(disturbed.circuit.wires) if w.is_table and w.function != SQUARE]
    cells = disturbed.cells | {k: FunctionCells(disturbed.circuit.wires[k].function, 0.0, 2.0)}
    flow = ErrorFlow(disturbed.circuit, cells, {})
    fuzz = {0: Fuzz(0.0, 1e-3)}
    low, high = np.array([[0.0, 0.5], [1.0, 1.0]]), np.array([[0.1, 1.0], [2.0, 2.0]])
    paths = flow.on(low, high, disturbed.output)
    assert paths.cut[k].tolist() == [True, False]
    bound = paths.carry(fuzz, {k: 0.25})
    assert bound[0] == pytest.approx(0.25, rel=1e-6)  # what is said of the wire, and nothing before it
    assert 1e-3 < bound[1] < 3e-3


def test_a_rectifier_that_is_off_passes_nothing():
    disturbed = Disturbed("max(x, 0) + y*x", "x=-1..1, y=1..2")
    fuzz = {k: Fuzz(0.0, 1e-3) for k in range(2)}
    flow = ErrorFlow(disturbed.circuit, disturbed.cells, {})
    (k,) = [k for k, w in enumerate(disturbed.circuit.wires) if w.argument is not None and w.function is None]
    paths = flow.on(np.array([[-1.0, 0.1, -1.0]] * 1 + [[1.0] * 3]), np.array([[-0.1, 1.0, 1.0], [2.0] * 3]),
                    disturbed.output)  # fmt: skip
    assert paths.argument[k] == pytest.approx([0.0, 1.0, 1.0])
    assert np.all(np.isfinite(paths.carry(fuzz, {})))


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), dimension=st.integers(1, 4), flat=st.booleans())
def test_parts_cover_the_box(seed, dimension, flat):
    rng = np.random.default_rng(seed)
    lower = rng.normal(size=dimension)
    upper = lower + (rng.random(dimension) + 0.1) * (np.arange(dimension) > 0 if flat else 1)
    at, sharp = rng.normal(size=(dimension, 1)), rng.choice([0.1, 3.0, 30.0])

    def bound(low, high):
        near = np.clip(at, low, high) - at
        return np.exp(-sharp * np.sqrt((near**2).sum(axis=0))) + ((high - low) ** 2).sum(axis=0)

    low, high = worst_parts(bound, lower, upper)
    assert (low <= high).all() and (low >= lower[:, None]).all() and (high <= upper[:, None]).all()
    x = lower + (upper - lower) * rng.random((300, dimension))
    inside = ((x[:, :, None] >= low) & (x[:, :, None] <= high)).all(axis=1)
    assert inside.any(axis=1).all()
    corners = np.stack(np.meshgrid(*zip(lower, upper, strict=True)), axis=-1).reshape(-1, dimension)
    assert ((corners[:, :, None] >= low) & (corners[:, :, None] <= high)).all(axis=1).any(axis=1).all()
    if not flat:
        volume = (high - low).prod(axis=0).sum()
        assert volume == pytest.approx((upper - lower).prod(), rel=1e-9)
    assert bound(low, high).max() <= bound(lower[:, None], upper[:, None]).max()


def test_cutting_helps_where_a_bound_is_worst_at_one_corner():
    disturbed = Disturbed("exp(3*x*y)*x", "x=0..1, y=0..1")
    fuzz = {k: Fuzz(0.0, 1e-3) for k in range(2)}
    flow = ErrorFlow(disturbed.circuit, disturbed.cells, fuzz)
    lower, upper = disturbed.ends

    def bound(a, b):
        return flow.on(a, b, disturbed.output).carry(fuzz, {})

    whole = bound(lower[:, None], upper[:, None]).max()
    parts = bound(*worst_parts(bound, lower, upper)).max()
    true = 1e-3 * math.exp(3) * (4 + 3)  # d/dx + d/dy at (1, 1)
    assert true <= parts <= min(1.3 * true, whole)


@given(
    ends=st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=4),
    shares=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_interval_operations(ends, shares):
    a, b = sorted(ends[:2]), sorted(ends[2:])
    x, y = (min(max(p + t * (q - p), p), q) for (p, q), t in zip((a, b), shares, strict=True))
    first, second = ((np.array([p]), np.array([q])) for p, q in (a, b))

    def inside(value, pair):
        return not value < arb(float(pair[0][0])) and not value > arb(float(pair[1][0]))

    with precision(300):
        assert inside(arb(x) * arb(y), times(first, second))
        assert inside(arb(x) ** 2, squared(first))
        size = (arb(x) ** 2 + arb(y) ** 2).sqrt()
        assert inside(size, length(first, second))
        if size > 0:
            shares_of = direction(first, second)
            assert inside(arb(x) / size, shares_of[0]) and inside(arb(y) / size, shares_of[1])


def test_infinite_ends_do_not_vanish():
    none, all_of_it = (np.zeros(1), np.zeros(1)), (np.array([-math.inf]), np.array([math.inf]))
    assert not np.isnan(times(none, all_of_it)).any()
    assert times((np.array([-1.0]), np.array([1.0])), all_of_it)[1][0] == math.inf
