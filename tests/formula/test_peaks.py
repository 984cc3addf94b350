"""The largest |f|: never above the truth, and close to it."""

import math

import numpy as np
import pytest
from flint import arb

from support.prover import numpy_function, random_formula
from transformula.formula.evaluation import peak
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.syntax.boxes import Box
from transformula.kernel.syntax.parsing import parse

KNOWN = {
    "sin(x)": ("x=0..2*pi", "1"),
    "x*y": ("x=-1/3..2, y=-7..pi", "14"),
    "exp(-x**2/2)": ("x=-3..5", "1"),
    "1 - 1/3*x": ("x=1..2", "2/3"),
    "sqrt(2)*x1*x2*x3*x4*x5*x6": ("x1..x6=-1..1", "2**(1/2)"),
    "log(x)": ("x=1..E", "1"),
}


@pytest.mark.parametrize("text", KNOWN)
def test_known_peaks(text):
    box, truth = KNOWN[text]
    found = peak(parse(text), Box.of(box))
    with precision(200):
        exact = enclose(parse(truth))
        assert not arb(found) > exact.upper()
        assert found > 0.9999 * float(exact.mid())


def test_nothing_found_is_zero():
    assert peak(parse("x - x"), Box.of("x=0..1")) == 0
    assert peak(parse("log(x)"), Box.of("x=-2..-1")) == 0


def test_close_to_dense_sampling_of_random_formulas():
    for seed in range(40):
        names = ["x", "y", "z"][: 1 + seed % 3]
        expr, box = random_formula(seed, names), Box.of(", ".join(f"{n}=-1..3/2" for n in names))
        x = np.random.default_rng(seed).uniform(-1, 1.5, (20_000, len(names)))
        seen = np.abs(numpy_function(expr, names)(*x.T)).max()
        assert math.isclose(peak(expr, box), seen, rel_tol=0.2) or peak(expr, box) > seen
        assert peak(expr, box) > 0.98 * seen
