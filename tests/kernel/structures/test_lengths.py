"""Lengths made of ReLUs: how far they are from lengths, what errors of the ReLUs do, and forged ones."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.nets import Layer, Net, forge, linear
from transformula.errors import RefutedError, TransformulaError
from transformula.kernel.circuit.error_flow import ErrorFlow, Fuzz
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.structures.stored_circuit import MAX_UNITS, CircuitReader, Measure
from transformula.kernel.syntax.boxes import Box

MEASURES = [Measure(n) for n in (4, 5, 8, 13)]


def numbers(measure):
    return [
        (float(enclose(r.left)), float(enclose(r.right)), *map(float, map(enclose, r.units))) for r in measure.rows()
    ]


def measured(rows, a, b, argument_errors=None, value_errors=None):
    """N, and the arguments of the ReLUs, at points; with every ReLU off as given."""
    held, arguments = [a, b], []
    zero = np.zeros(len(rows) - 1)
    first, second = (zero if e is None else e for e in (argument_errors, value_errors))
    for row, e, f in zip(rows[:-1], first, second, strict=True):
        arguments.append(sum(c * v for c, v in zip(row, held, strict=False)))
        held.append(np.maximum(arguments[-1] + e, 0) + f)
    return sum(c * v for c, v in zip(rows[-1], held, strict=True)), arguments


@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_lengths_are_as_close_as_it_says_and_no_closer(measure):
    angle = np.linspace(0, 2 * np.pi, 200_001)
    found, arguments = measured(numbers(measure), np.cos(angle), np.sin(angle))
    wrong, stated = np.abs(found - 1).max(), float(measure.error)
    assert stated * (1 - 1e-3) - 1e-12 <= wrong <= stated + 1e-12
    for k, argument in enumerate(arguments):
        assert np.abs(argument).max() <= measure.reach(k) + 1e-12
        assert np.abs(argument).max() >= measure.reach(k) * 0.999


@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_gradients_are_no_further_apart_than_it_says(measure):
    angle, step = np.linspace(0.01, 6.2, 30_011), 1e-6
    rows, x, y = numbers(measure), np.cos(angle), np.sin(angle)
    along = (measured(rows, x + step, y)[0] - measured(rows, x - step, y)[0]) / (2 * step)
    up = (measured(rows, x, y + step)[0] - measured(rows, x, y - step)[0]) / (2 * step)
    gap = np.hypot(along - x, up - y).max()
    assert 0.99 * float(measure.gradient_gap) - 1e-6 <= gap * 1.3 and gap <= float(measure.gradient_gap) + 1e-6


@given(st.sampled_from(MEASURES), st.integers(0, 10_000), st.floats(-3, 0))
def test_errors_of_the_units_count_no_more_than_it_says(measure, seed, size):
    """Where lengths are as small as the errors too."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(0, 1, (2, 200)) * 10.0 ** rng.uniform(-3, 1, 200)
    rows = numbers(measure)
    errors = 10.0**size * rng.uniform(-1, 1, (2, measure.units, 1)) * rng.integers(0, 2, (2, measure.units, 1))
    moved = np.abs(measured(rows, a, b, *errors)[0] - measured(rows, a, b)[0])
    shares = np.array([float(measure.share(k)) for k in range(measure.units)])
    allowed = measure.unit_factor * (shares * np.abs(errors[..., 0]).sum(axis=0)).sum()
    assert moved.max() <= allowed * (1 + 1e-9) + 1e-12


def test_one_unit_counts_as_much_as_it_says():
    """In its own numbers, and in what the flow makes of them."""
    measure = Measure(9)
    rows, angle, off = numbers(measure), np.linspace(0, 2 * np.pi, 20_001), 1e-6
    wire = {"norm": [linear((0, "1")), linear((1, "1"))], "folds": [[k, 0, 0] for k in range(measure.units)]}
    stored = {"wires": [wire], "outputs": [linear((2 + measure.units, "1"))]}
    read = CircuitReader(["x", "y"]).read(stored)
    exact = measured(rows, np.cos(angle), np.sin(angle))[0]
    for k in range(measure.units):
        errors = np.zeros((measure.units, 1))
        errors[k] = off
        found = [measured(rows, np.cos(angle), np.sin(angle), None, e)[0] for e in (errors, -errors)]
        most = max(np.abs(f - exact).max() for f in found)
        assert 0.49 <= most / (off * measure.unit_factor * float(measure.share(k))) <= 1 + 1e-6
        fuzz = {2 + k: Fuzz(off / 2, off / 2)}
        flow = ErrorFlow(read, {}, fuzz, {}, {}).on(-np.ones((2, 1)), np.ones((2, 1)), read.outputs[0])
        assert most * (1 - 1e-6) <= flow.carry(fuzz, {})[0] <= 2.1 * most


@pytest.mark.parametrize("units", [0, 1, 3, MAX_UNITS + 1])
def test_lengths_of_too_few_or_too_many_folds(units):
    wire = {"norm": [linear((0, "1")), linear((1, "1"))], "folds": [[k, 0, 0] for k in range(units)]}
    with pytest.raises(RefutedError, match=f"made of {units} ReLUs; 4 to {MAX_UNITS}"):
        CircuitReader(["x", "y"]).read({"wires": [wire], "outputs": []})


# -- nets laid out number by number ---------------------------------------------------------------------------

MEASURE = Measure(7)
BOX = "x=-1..1, y=-1..1"


def folding(change=lambda rows: rows, scale=1.0, biases=None):
    """√(x² + y²) by folds, one layer each; ``change`` is what is wrong with its numbers."""
    rows = change([list(row) for row in numbers(MEASURE)])
    names = ["x.x", "x.y", *(f"u{k}" for k in range(MEASURE.units))]
    forms = [{n: c for n, c in zip(names, row, strict=False) if c} for row in rows]
    units = [(form, (biases or {}).get(k, 0), {f"u{k}": scale}) for k, form in enumerate(forms[:-1])]
    layers = [Layer([], units[:4]), *(Layer([], [unit]) for unit in units[4:])]
    return Net(["x", "y"], names[2:], [], layers, [{(0, n): c for n, c in forms[-1].items()}])


def circuit(sides=((0, "1"), (1, "1"))):
    places = [[0, k, 0] for k in range(4)] + [[k - 3, 0, 0] for k in range(4, MEASURE.units)]
    wire = {"norm": [linear(side) for side in sides], "folds": places}
    return {"wires": [wire], "outputs": [linear((2 + MEASURE.units, "1"))]}


def judged(net, stored=None, box=BOX):
    """The bound that is proven, None if nothing is; what is proven is true."""
    try:
        found = forge(net.weights(), ["sqrt(x**2 + y**2)"], box, stored or circuit())
    except TransformulaError:
        return None
    if not found.verification:
        return None
    low, high = np.array(Box.of(box).floats()).T
    points = np.random.default_rng(0).uniform(low, high, (4_000, 2)) * np.repeat([1, 1e-3], 2_000)[:, None]
    points = np.clip(points, low, high)
    wrong = np.abs(found.run(points)[:, 0] - np.hypot(*points.T)).max()
    assert wrong <= found.bound, f"off by {wrong} where {found.bound} is claimed"
    return found.bound


def test_a_folded_length_is_proven():
    least = float(MEASURE.error) * math.sqrt(2)
    assert least < judged(folding()) < least * (1 + 1e-6)


def changed(row, unit, factor):
    def change(rows):
        rows[row][2 + unit] *= factor
        return rows

    return change


@pytest.mark.parametrize("row", [4, 5, 6, 7])
@pytest.mark.parametrize("factor", [1 + 1e-6, 0.9, 0.0, -1.0])
def test_other_numbers_are_counted(row, factor):
    """A turn that is a little off, or wrong, or missing: what is proven has to be more."""
    honest = judged(folding())
    for unit in range(len(numbers(MEASURE)[row]) - 2):
        bound = judged(folding(changed(row, unit, factor)))
        assert bound is None or bound > honest + 1e-9


def test_coarse_numbers_are_counted():
    bound = judged(folding(lambda rows: [[round(c, 3) for c in row] for row in rows]))
    assert bound is None or bound > 1e-3


@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (4, 5), (6, 7)])
def test_folds_in_another_order(pair):
    def change(rows):
        (i, j), width = pair, min(map(len, (rows[pair[0]], rows[pair[1]])))
        rows[i][:width], rows[j][:width] = rows[j][:width], rows[i][:width]
        return rows

    bound = judged(folding(change))
    assert bound is None or bound > 1e-2


def test_another_circuit_for_the_same_numbers():
    bound = judged(folding(), circuit(sides=((0, "1"), (0, "1"))))
    assert bound is None or bound > 1


def test_units_that_write_twice_what_they_hold():
    bound = judged(folding(scale=2.0))
    assert bound is None or bound > 0.5


def test_a_fold_is_read_by_its_length_only():
    stored = circuit()
    stored["outputs"] = [linear((2 + MEASURE.units, "1"), (3, "1/1000000"))]
    with pytest.raises(TransformulaError, match="outside the length"):
        forge(folding().weights(), ["sqrt(x**2 + y**2)"], BOX, stored)


def test_a_unit_that_is_always_off_is_no_exception():
    """Im z_2 = (|y| − |x|)/√2 is negative here. Were x and y off, it might not be: what the unit really reads counts."""
    box = "x=2..3, y=0..1"
    assert judged(folding(), box=box) < 1e-2
    bound = judged(folding(biases={4: -1}), box=box)
    assert bound is None or bound > 0.1
