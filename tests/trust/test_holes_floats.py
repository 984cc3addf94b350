"""Bounds that are computed in floats next to underflow and overflow: each of these once was below the truth."""

import math
from fractions import Fraction

import numpy as np
from flint import arb, fmpq

from support.nets import Layer, Net, linear, refused
from transformula.kernel.enclosures.expression_ranges import enclose_ranges
from transformula.kernel.gallery.memorize_rule import SampleValues, _Points
from transformula.kernel.rounding.formats import FORMATS
from transformula.kernel.structures.network import Term, WireForm
from transformula.kernel.syntax.parsing import parse
from transformula.kernel.tables.table_error import SoftmaxTable, TablePieces

#: Next to underflow times 2^203, where the products of the middles are rounded down by half a unit each.
COUNT, LARGE = 8909731215473, 8829405603571008
ENDS = {
    "x": (Fraction(COUNT, 2**1074), Fraction(COUNT + 2, 2**1074)),
    "y": (Fraction(2**150 * (LARGE - 1)), Fraction(2**150 * (LARGE + 1))),
    "z": (Fraction(-(2**150) * (LARGE + 2)), Fraction(-(2**150) * LARGE)),
    "s": (Fraction(-61 * 2**144), Fraction(-60 * 2**144)),
}
SUM = "x*y + x*z + x*s"


def test_products_of_the_tiny_and_the_huge_are_rounded():
    """U times a total next to underflow was 0, however large the other total."""
    lower, upper = (np.array([[float(ends[side])] for ends in ENDS.values()]) for side in (0, 1))
    _, high = enclose_ranges(parse(SUM, ENDS), list(ENDS), lower, upper)
    most = [ends[1] for ends in ENDS.values()]
    assert 0 < most[0] * sum(most[1:]) <= Fraction(float(high[0]))


def test_a_sign_of_products_of_the_tiny_and_the_huge():
    """The formula reaches 33,000, and a model of 0 was verified with a bound of 0."""
    box = ", ".join(f"{name}={low.numerator}/{low.denominator}..{high.numerator}/{high.denominator}"
                    for name, (low, high) in ENDS.items())  # fmt: skip
    net = Net(list(ENDS), ["r"], [], [Layer([], [({"x.x": 1}, 0, {"r": 1})])], [{}], [0])
    circuit = {"wires": [{"relu": linear((0, "1")), "from": [0, 0, 0]}], "outputs": [linear()], "signs": [SUM]}
    assert refused(net.weights(), [f"2^900*max({SUM}, 0)"], box, circuit)


def _error(slope, offset, values):
    """Of a table of two tokens against 0; floats do not see the offset beside the slope."""
    table = SoftmaxTable((np.array([slope, slope]),), (np.array([0.0, offset]),), np.array(values))
    return TablePieces(table, parse("0*u", ["u"]), "u", fmpq(1), fmpq(2)).on(1.0, 1 + 2.0**-50).error


def test_a_divisor_that_overflows_bounds_nothing():
    """The table is 1/2; the numbers it is divided by were infinite as floats, and the bound 0."""
    assert _error(2.0**63, 710.0, [0.0, 0.5]) >= 0.5


def test_a_quotient_that_underflows_is_not_nothing():
    """The table is 5e-324 e^-127, and may be multiplied by anything later on."""
    assert _error(2.0**60, 127.0, [5e-324, 0.0]) > 0


def test_a_coefficient_that_underflows_counts_beside_large_numbers():
    """1e-330 times 1e300."""
    coefficient = fmpq(1, 10**330)
    points = _Points(FORMATS["float64"], [SampleValues(np.array([1e300]), arb(0))], 1)
    found = points.near(WireForm({0: Term(coefficient, coefficient, 2)}))
    assert abs(arb(float(found.values[0])) - arb(fmpq(1, 10**30))) <= found.real
    assert math.isfinite(float(found.real))
