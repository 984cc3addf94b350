"""Small examples of the kernel's functions, as a reader would try them."""

import math

import numpy as np
from flint import arb, fmpq

from transformula.kernel.enclosures.balls import SeriesOf, enclose
from transformula.kernel.enclosures.expression_ranges import bernstein_matrix, enclose_ranges
from transformula.kernel.enclosures.intervals import range_of
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.syntax.boxes import Box, Formula
from transformula.kernel.syntax.parsing import parse
from transformula.kernel.tables.table_slopes import FunctionCells


def test_texts_are_read_and_written():
    assert str(parse("x*(1 + 0.5)", ["x"])) == "3/2*x"
    assert str(parse("2*x**2 - sin(y)/3", ["x", "y"])) == "2*x**2 - 1/3*sin(y)"
    box = Box.of("x=0..2*pi, y1..y2=-1/3..1")
    assert box.variables == ("x", "y1", "y2") and str(box) == "x=0..2*pi, y1=-1/3..1, y2=-1/3..1"
    assert str(Formula.of(["x + y", "x*y"], "x=0..1, y=0..1")) == "x + y; x*y"


def test_values_are_enclosed():
    assert enclose(parse("sqrt(2)**2"), {}).overlaps(2)
    assert range_of(parse("sqrt(x - 1/10)"), {"x": (fmpq(1, 10), fmpq(7, 20))}) == (0, fmpq(1, 2))
    low, high = enclose_ranges(parse("x*x"), ["x"], np.array([[-1.0, 2]]), np.array([[1.0, 3]]))
    assert low[0] <= 0 and high[0] >= 1 and 3.99 < low[1] <= 4 and 9 <= high[1] < 9.01


def test_series_and_cells():
    coefficients, remainder = SeriesOf(parse("exp(x)"), "x").expand(arb(0), arb(1), 3)
    assert [float(c) for c in coefficients] == [1.0, 1.0, 0.5] and 0.45 < float(remainder) < 0.46  # e / 3!
    cells = FunctionCells(parse("exp(u)"), [0.0, 0.25, 0.5, 1.0, 2.0])
    low, high = cells.slopes(np.array([0.5]), np.array([1.0]))
    assert 1.2 < low[0] <= math.exp(0.5) and math.e <= high[0] < 3
    assert (bernstein_matrix(3, 1)[0] @ np.array([0.0, 0.0, 1.0])).tolist() == [1.0, -1.0, 1.0]  # t**2


def test_leaves_of_a_region():
    region = Region.of_box(Box.of("x=0.1..1, y=0..2"))
    lower, upper = region.leaves([1, -1, -1])
    assert upper[1].tolist() == [1.0, 2.0]
    assert region.exact(lower[:, 0], upper[:, 0]) == {"x": (fmpq(1, 10), 1), "y": (0, 1)}
