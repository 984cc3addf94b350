"""Sharp cells: bounds against the real table and runs in the dtype, and against the theorem's assumptions."""

from __future__ import annotations

import numpy as np
import pytest
from flint import arb

from support.kernel_tables import ends_of, exact_error
from support.prover import numpy_function
from transformula.compiler.evidence.grid_pieces import find_partition_cells
from transformula.kernel.exceptions import NotProvenError, RefutedError
from transformula.kernel.rounding.formats import FORMATS
from transformula.kernel.syntax.parsing import parse
from transformula.kernel.tables.cell_error import cell_error, far_of, partition_bound, sum_error, used_cells
from transformula.kernel.tables.table_error import SoftmaxTable

BITS = {"float64": 40, "float32": 16}
NAMES = ["x", "y"]
CASES = [
    ("sin(x)", [(-3.0, 3.0)], 40),
    ("sqrt(x)", [(0.0, 1.0)], 25),
    ("sin(x*y)", [(0.0, 1.0)] * 2, 12),
    ("abs(x - y)", [(-1.0, 1.0)] * 2, 15),
]


def sharp(text, box, cells, dtype, widening=0.05):
    """Equal cells with the value at their middles."""
    names = NAMES[: len(box)]
    slopes, offsets, middles = [], [], []
    for low, high in box:
        edges = np.linspace(low, high, cells + 1)
        gap = float(far_of(cells ** len(box), BITS[dtype] + 1)) / (widening * (edges[1] - edges[0]))
        a = (gap * (np.arange(cells) - cells // 2)).astype(dtype)
        b = np.concatenate([[0.0], -np.cumsum(np.diff(a.astype(float)) * edges[1:-1])])
        slopes.append(a.astype(float))
        offsets.append((b - b[cells // 2]).astype(dtype).astype(float))
        middles.append((edges[1:] + edges[:-1]) / 2)
    expr = parse(text, names)
    values = numpy_function(expr, names)(*np.meshgrid(*middles, indexing="ij")).astype(dtype).astype(float)
    return expr, names, SoftmaxTable(tuple(slopes), tuple(offsets), values)


def score_error(table, box, form):
    sizes = [
        np.abs(a).max() * max(map(abs, ends)) + np.abs(b).max()
        for a, b, ends in zip(table.slopes, table.offsets, box, strict=True)
    ]
    return form.gamma(2 * len(box) + 2) * arb(float(sum(sizes)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_the_bounds_hold_and_are_tight(case, dtype):
    text, box, cells = CASES[case]
    expr, names, table = sharp(text, box, cells, dtype)
    form, rng = FORMATS[dtype], np.random.default_rng(case)
    trees = find_partition_cells(table, expr, names, ends_of(box), BITS[dtype])
    error, rounding = partition_bound(
        table, expr, names, ends_of(box), BITS[dtype], trees, score_error(table, box, form), form
    )
    points = [rng.uniform(*np.array(box).T, (60, len(box)))]
    points.append(np.array([[ends[k] for ends in box] for k in (0, 1)]))
    worst = 0.0
    for x in np.concatenate(points):
        real = exact_error(None, names, table, x)
        worst = max(worst, float(abs(exact_error(expr, names, table, x)).lower()))
        joint = np.zeros((1,) * len(box), dtype)
        for k, (a, b) in enumerate(zip(table.slopes, table.offsets, strict=True)):
            scores = a.astype(dtype) * np.dtype(dtype).type(x[k]) + b.astype(dtype)
            joint = joint + scores.reshape([-1 if i == k else 1 for i in range(len(box))])
        powers = np.exp(joint - joint.max()).ravel()
        computed = (powers / powers.sum(dtype=dtype) * table.values.astype(dtype).ravel()).sum(dtype=dtype)
        assert abs(arb(float(computed)) - real) <= rounding
    assert worst <= float(error) <= 2 * worst
    if dtype == "float64":
        assert float(rounding) < 1e-6


def test_arguments_that_are_off_widen_the_cells():
    """Whatever is read instead of x, as long as it is within the shifts."""
    text, box, cells = CASES[2]
    expr, names, table = sharp(text, box, cells, "float64")
    form, rng, ends, shifts = FORMATS["float64"], np.random.default_rng(9), ends_of(box), (0.03, 0.01)
    trees = find_partition_cells(table, expr, names, ends, 40, shifts)
    scores = score_error(table, [(-0.1, 1.1)] * 2, form)
    bound, _ = partition_bound(table, expr, names, ends, 40, trees, scores, form, shifts=shifts)
    unmoved, _ = partition_bound(table, expr, names, ends, 40, None, scores, form)
    worst, function = 0.0, numpy_function(expr, names)
    for x in rng.random((200, 2)):
        read = x + shifts * rng.choice((-1.0, 1.0), 2)
        worst = max(worst, abs(float(exact_error(None, names, table, read)) - float(function(*x))))
    assert float(unmoved) < worst <= float(bound) <= 2 * worst


def test_few_cells_on_several_axes_count_every_quotient():
    """Axis by axis even one cell takes a quotient and a product for each axis."""
    form = FORMATS["float64"]
    for axes in (1, 2, 3, 4):
        assert sum_error(form, 1, arb(1), axes) >= form.gamma(2 * axes)


def test_cutting_makes_the_bound_smaller():
    text, box, cells = CASES[2]
    expr, names, table = sharp(text, box, cells, "float64")
    far, ends = far_of(cells**2, 40), ends_of(box)
    trees = find_partition_cells(table, expr, names, ends, 40)
    whole = cell_error(table, expr, names, ends, far, None)[0]
    assert trees is not None and cell_error(table, expr, names, ends, far, trees)[0] < whole


def test_a_wrong_value_anywhere_is_seen():
    text, box, cells = CASES[0]
    expr, names, table = sharp(text, box, cells, "float64")
    for token in (0, 17, cells - 1):
        values = table.values.copy()
        values[token] += 1.0
        wrong = SoftmaxTable(table.slopes, table.offsets, values)
        near, _ = cell_error(wrong, expr, names, ends_of(box), far_of(cells, 40), None)
        assert near >= 0.9


def test_every_token_within_the_cut_is_in_its_cell():
    """Random slopes and offsets: a token whose score is less than L below the largest has x in its cell."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        slopes, offsets = np.sort(rng.normal(size=12) * 50), rng.normal(size=12) * 5
        order = rng.permutation(12)
        table = SoftmaxTable((slopes[order],), (offsets[order],), np.arange(12.0))
        far = far_of(12, 4)
        lower, upper, values = used_cells(table, ends_of([(-1.0, 1.0)]), far)
        for x in rng.uniform(-1, 1, 60):
            scores = table.slopes[0] * x + table.offsets[0]
            close = np.flatnonzero(scores > scores.max() - float(far) + 1e-9)
            for token in close:
                k = np.flatnonzero(values == token)
                assert len(k) == 1 and lower[0, k[0]] <= x <= upper[0, k[0]]


def test_equal_slopes_blurred_scores_and_undefined_functions_are_refused():
    box = ends_of([(-1.0, 1.0)])
    same = SoftmaxTable((np.array([1.0, 1.0]),), (np.array([0.0, 1.0]),), np.zeros(2))
    with pytest.raises(RefutedError, match="same slope"):
        cell_error(same, parse("x"), ["x"], box, far_of(2, 40), None)
    expr, names, table = sharp("sin(x)", [(-1.0, 1.0)], 8, "float64")
    form = FORMATS["float64"]
    with pytest.raises(NotProvenError, match="blur"):
        partition_bound(table, expr, names, box, 40, None, arb(1), form)
    for text in ("sqrt(x)", "log(x + 1)", "1/x"):
        with pytest.raises(NotProvenError):
            partition_bound(table, parse(text), names, box, 40, None, arb(0), form)
        with pytest.raises(NotProvenError):
            find_partition_cells(table, parse(text), names, box, 40)


@pytest.mark.parametrize("trees", [[], [[-1]], 3, "x", [[-1]] * 7 + [[0, -1]], [[-1]] * 7 + [None], [[1]] * 8])
def test_malformed_trees_are_refused(trees):
    expr, names, table = sharp("sin(x)", [(-1.0, 1.0)], 8, "float64")
    with pytest.raises(RefutedError):
        cell_error(table, expr, names, ends_of([(-1.0, 1.0)]), far_of(8, 40), trees)


@pytest.mark.parametrize("bits", [0, -3, 10**9])
def test_bits_that_make_no_sense(bits):
    with pytest.raises(RefutedError):
        far_of(8, bits)
