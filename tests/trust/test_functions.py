"""A slice of the sweep over all functions (benchmarks/functions.py), and a new function that is added in one place."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from flint import arb, arb_series

import transformula as tf
import truth
from functions import BOXES, attacked, tried
from transformula.errors import InputError, NotProvenError
from transformula.kernel.check import verify_folder
from transformula.kernel.functions.function_table import FUNCTIONS
from transformula.kernel.functions.smooth_functions import from_taylor, of_series
from transformula.kernel.syntax.definitions import known
from transformula.show.typeset import typeset


def test_every_function_has_boxes_for_the_sweep():
    assert set(BOXES) == set(known()) <= set(truth.PRECISE)


@pytest.mark.parametrize(
    ("name", "dtype", "eps"),
    [("lgamma", "float64", 1e-6), ("ellipe", "float32", 1e-3), ("j0", "float32", 1e-3), ("gelu", "float64", 1e-6)],
)  # fmt: skip
def test_a_function_is_compiled_verified_and_holds(name, dtype, eps):
    found = tried(name, BOXES[name][1], dtype, eps, points=300)
    assert found["verified"] and found["error"] <= found["bound"] <= eps, found
    assert found["tokens"] <= 20


def test_a_function_is_added_in_one_place(monkeypatch, tmp_path):
    """The hyperbolic sine integral: read, compiled, verified, evaluated and drawn because of one entry."""
    with pytest.raises(InputError, match="unknown function 'Shi'"):
        tf.compile("Shi(x)", on="x=-1..2")
    monkeypatch.setitem(
        FUNCTIONS, "Shi", from_taylor("Shi", arb.shi, of_series(arb_series.shi), analytic=True, odd=True)
    )
    model = tf.compile("2*Shi(x*y) + 1", on="x=1..2, y=0..1", eps=1e-4)
    assert verify_folder(model.save(tmp_path / "model")).verified  # here: another process has not the new entry
    x = np.random.default_rng(0).uniform([1, 0], [2, 1], (50, 2))
    wanted = [float(2 * mpmath.shi(a * b) + 1) for a, b in x.tolist()]
    assert np.abs(np.asarray(model(x)).ravel() - wanted).max() <= model.certificate.bound <= 1e-4
    assert "Shi" in typeset(model.formula.outputs[0])


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("gamma(x)", "x=0..1"),
        ("lgamma(x)", "x=-1..1"),
        ("atanh(x)", "x=0..1"),
        ("acosh(x)", "x=1/2..2"),
        ("zeta(x)", "x=1..2"),
        ("Ei(x)", "x=-1..1"),
        ("li(x)", "x=1/2..2"),
        ("y0(x)", "x=0..1"),
        ("besselj(1/2, x)", "x=-1..1"),
        ("lambertw(x)", "x=-1..1"),
        ("ellipk(x)", "x=0..1"),
        ("sec(x)", "x=0..2"),
        ("log2(x)", "x=0..1"),
    ],
)
def test_a_box_that_meets_a_singular_place_is_refused(text, box):
    with pytest.raises((NotProvenError, InputError), match=r"undefined|unbounded|zero"):
        tf.compile(text, on=box, eps=1e-2)


@pytest.mark.parametrize("text", ["Si(x)/x", "log1p(x*y)/x", "x/tanh(x)"])
def test_extended_quotients_are_proven_and_hold(text, tmp_path):
    box = "x=-1/2..1/2, y=-1..1" if "y" in text else "x=-1/2..1/2"
    model = tf.compile(text, on=box, eps=1e-6)
    assert tf.verify(model.save(tmp_path / "model")).verified
    assert attacked(model, text, box, 200) <= model.certificate.bound <= 1e-6
