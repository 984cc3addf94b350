"""Mistakes of a user: each is refused in one sentence of ours that says what to do, or has a clear meaning and works.

Functions are in `formulas/test_notations`, points in `transformers/test_named`, folders in `transformers/test_files`.
"""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import sympy
import torch
from flint import fmpq, fmpz
from scipy.sparse import csr_matrix

import transformula as tf
from transformula.errors import TransformulaError

X, XY = "x=0..1", "x=0..1, y=0..1"
PAIR = {"pairs": 2, "features": 1}

REFUSED = {
    # boxes
    "box None": (lambda: tf.compile("x", None), "a box is text or a mapping"),
    "box list": (lambda: tf.compile("x", [("x", (0, 1))]), "a box is text or a mapping"),
    "box frame": (lambda: tf.compile("x", pd.DataFrame({"x": [0, 1]})), "a box is text or a mapping"),
    "box series": (lambda: tf.compile("x", pd.Series({"x": (0, 1)})), "a box is text or a mapping"),
    "box empty": (lambda: tf.compile("x", {}), "the box has no variables"),
    "three ends": (lambda: tf.compile("x", {"x": (0, 1, 2)}), r"must be a pair \(low, high\)"),
    "one end": (lambda: tf.compile("x", {"x": 1}), "nothing varies on the box: give an interval for x"),
    "arrays as ends": (lambda: tf.compile("x", {"x": (np.array([0]), np.array([1]))}), r"x is given as array\(\[0\]\)"),
    "rows as ends": (lambda: tf.compile("x", {"x": np.eye(2)}), "a number or text is needed"),
    "lists as ends": (lambda: tf.compile("x", {"x": ([0], [1])}), "a number or text is needed"),
    "tensors as ends": (lambda: tf.compile("x", {"x": (torch.zeros(2), 1)}), "a number or text is needed"),
    "complex end": (lambda: tf.compile("x", {"x": (0, 1j)}), "a number or text is needed"),
    "NumPy's complex end": (lambda: tf.compile("x", {"x": (0, np.complex128(1))}), "a number or text is needed"),
    "signalling end": (lambda: tf.compile("x", {"x": (0, Decimal("snan"))}), "a number or text is needed"),
    "NaN end": (lambda: tf.compile("x", {"x": (0, math.nan)}), "only finite numbers"),
    "symbol as end": (lambda: tf.compile("x", {"x": (0, sympy.Symbol("y"))}), "'y' is not a number"),
    "I as end": (lambda: tf.compile("x", {"x": (0, sympy.I)}), "ImaginaryUnit"),
    "oo as end": (lambda: tf.compile("x", {"x": (0, sympy.oo)}), "Infinity"),
    "huge end": (lambda: tf.compile("x", {"x": (0, 10**5000)}), "14000 bits"),
    "name is None": (lambda: tf.compile("x", {None: (0, 1)}), "is not a variable name"),
    "name is a pair": (lambda: tf.compile("x", {("x", "y"): (0, 1)}), "is not a variable name"),
    "Box of numbers": (lambda: tf.Box(("x",), (0,), (1,)), "make the box from text"),
    # tolerances and other numbers
    "eps text": (lambda: tf.compile("x", X, eps="1e-3"), "eps must be a number above 0, not '1e-3'"),
    "eps huge": (lambda: tf.compile("x", X, eps=10**400), "eps must be a number above 0"),
    "eps tiny": (lambda: tf.compile("x", X, eps=Fraction(1, 10**400)), "eps must be a number above 0"),
    "eps True": (lambda: tf.compile("x", X, eps=True), "eps must be a number above 0, not True"),
    "eps array": (lambda: tf.compile("x", X, eps=np.array([1e-3])), "eps must be a number above 0"),
    "eps NaN": (lambda: tf.compile("x", X, eps=Decimal("snan")), "eps must be a number above 0"),
    "rel huge": (lambda: tf.compile("x", X, rel=10**400), "rel must be a number above 0"),
    "rel and eps": (lambda: tf.compile("x", X, rel=1e-3, eps=1), "one of eps, rel and pointwise"),
    "time text": (lambda: tf.compile("x", X, time_limit="3"), "time_limit must be a number above 0"),
    "time huge": (lambda: tf.compile("x", X, time_limit=10**400), "time_limit must be a number above 0"),
    "layers array": (lambda: tf.compile("x", X, layers=np.array([1, 2])), "layers must be left out or set to 1"),
    "construction None": (lambda: tf.compile("x", X, construction=None), "unknown construction None"),
    "constructions": (lambda: tf.compile("x", X, construction=np.array(["a", "b"])), "unknown construction array"),
    "dtype of torch": (lambda: tf.compile("x", X, dtype=torch.float32), "unknown dtype torch.float32"),
    "dtype None": (lambda: tf.compile("x", X, dtype=None), "unknown dtype None"),
    # shapes
    "shape number": (lambda: tf.compile(["x", "y"], XY, shape=5), r"shape must be \(positions, features\), not 5"),
    "shape floats": (lambda: tf.compile(["x", "y"], XY, shape=(2.0, 1)), "shape must be"),
    "shape booleans": (lambda: tf.compile(["x", "y"], XY, shape=(True, 2)), "shape must be"),
    "shape text": (lambda: tf.compile(["x", "y"], XY, shape="ab"), "shape must be"),
    "shape None": (lambda: tf.compile(["x", "y"], XY, shape=(None, 1)), "shape must be"),
    # memorised tables
    "memorize None": (lambda: tf.memorize(None, None), "X must be a table of numbers"),
    "memorize huge": (lambda: tf.memorize([[10**400]], [0]), "X must be a table of numbers"),
    "memorize wholes": (lambda: tf.memorize([[2**53], [2**53 + 1]], [0, 1]), "X has a whole number that no float"),
    "memorize int64": (lambda: tf.memorize([[0], [1]], np.array([2**60 + 1, 0])), "Y has a whole number that no float"),
    "memorize long": (lambda: tf.memorize([[2**80 + 1]], [0]), "X has a whole number that no float"),
    "memorize dates": (lambda: tf.memorize(np.array([["2020-01-01"]], dtype="M8[D]"), [0]), "got an array of datetime"),
    "memorize masked": (lambda: tf.memorize(np.ma.array([[1.0]], mask=True), [0]), "masked"),
    "memorize dict": (lambda: tf.memorize({"a": [1]}, [0]), "X must be a table of numbers"),
    "memorize complex": (lambda: tf.memorize([[1j]], [0]), "got an array of complex128"),
    "memorize ragged": (lambda: tf.memorize([[0], [1, 2]], [0, 1]), "rows of different lengths"),
    "memorize wide": (lambda: tf.memorize(np.zeros((2, 1001)), [0, 0]), "X has 1001 columns; at most 1000"),
    "memorize eps": (lambda: tf.memorize([[0], [1]], [0, 1], eps=10**400), "eps must be a number above 0"),
    "memorize far": (lambda: tf.memorize([[1e308], [-1e308]], [0, 1]), "rescale the variables"),
    # in-context models
    "algorithm None": (lambda: tf.in_context(None), "unknown algorithm None"),
    "algorithms": (lambda: tf.in_context(np.array(["ridge", "lasso"])), "unknown algorithm array"),
    "penalty array": (lambda: tf.in_context("ridge", **PAIR, penalty=np.array([1, 2])), "penalty is given as array"),
    "penalty list": (lambda: tf.in_context("ridge", **PAIR, penalty=[1]), "penalty is given as"),
    "pairs float": (lambda: tf.in_context("ridge", pairs=2.0, features=1), "pairs must be a whole number"),
    "prompt eps": (lambda: tf.in_context("ridge", **PAIR, eps=10**400), "eps must be a number above 0"),
    "prompt dtype": (lambda: tf.in_context("ridge", **PAIR, dtype=["float32"]), "unknown dtype"),
    # estimators
    "ridge text": (lambda: _fit(ridge="a"), "'ridge' parameter"),
    "ridge negative": (lambda: _fit(ridge=-1), "'ridge' parameter"),
    "rate text": (lambda: _fit(learning_rate="a"), "'learning_rate' parameter"),
    "decay None": (lambda: _fit(weight_decay=None), "'weight_decay' parameter"),
    "fraction": (lambda: _fit(validation_fraction=2), "'validation_fraction' parameter"),
    "rank text": (lambda: _fit(rank="2"), "'rank' parameter"),
    "seed text": (lambda: _fit(random_state="a"), "'random_state' parameter"),
    "device": (lambda: _fit(solver="sgd", device="abacus"), "torch has no device 'abacus' here"),
    "tolerance text": (lambda: _fit().to_formula(tolerance="a"), "tolerance must be a number above 0, not 'a'"),
    "tolerance None": (lambda: _fit().to_transformer(tolerance=None), "tolerance must be a number above 0, not None"),
    "fit dtype": (lambda: _fit().to_transformer(dtype="f2"), "unknown dtype 'f2'"),
    "positions text": (lambda: tf.LinearAttentionRegressor("a").fit(ROWS, TARGET), "'positions' parameter"),
    # parts of models
    "degree": (lambda: _sine().degree, "lookup does not have a degree"),
    "circuit": (lambda: tf.compile("x", X).circuit, "polynomial does not have a circuit"),
    "wires": (lambda: tf.memorize([[0.0]], [1.0]).wires, "memorize does not have a circuit"),
    "formula": (lambda: tf.memorize([[0.0]], [1.0]).position_formula, "memorize does not have a formula"),
    "program": (lambda: tf.in_context("recurrence", steps=1).program, "in-context does not have a program"),
    # traces
    "slot": (lambda: _seen().residual("zz"), "there is no slot 'zz': the slots are x.x"),
    "slots": (lambda: _seen().residual(["one"]), "there is no slot"),
    "state": (lambda: _seen().residual("y1", block=99), "there is no block 99: they are numbered 0 to 0"),
    "state text": (lambda: _seen().residual("y1", block="a"), "there is no block 'a'"),
    "token": (lambda: _seen().residual("y1", token=-99), "there is no token -99"),
    "token float": (lambda: _seen().residual("y1", token=0.5), "there is no token 0.5"),
    "block": (lambda: _seen().pattern(block=3), "there is no block 3: they are numbered 0 to 0"),
    "head": (lambda: _seen().pattern(head=9), "there is no head 9: they are numbered 0 to 0"),
    "head below": (lambda: _seen().attended(head=-2), "there is no head -2"),
    "head text": (lambda: _seen().attended(head="a"), "there is no head 'a'"),
    "sample": (lambda: _seen().attended(sample=1), "there is no sample 1"),
    "sample slice": (lambda: _seen().attended(sample=slice(1)), "there is no sample slice"),
    "most": (lambda: _seen().attended(most=-1), "most must be a whole number"),
    "most text": (lambda: _seen().attended(most="a"), "most must be a whole number"),
    "trace text": (lambda: _sine().trace("a"), "expected real numbers, got 'a'"),
    "trace wide": (lambda: _sine().trace([[1, 2]]), "expected rows of 1 numbers"),
}  # fmt: skip

MEANT = {
    "end of FLINT": (lambda: str(tf.compile("x", {"x": (fmpz(0), fmpq(1, 3))}).box), "x=0..1/3"),
    "end of sympy": (lambda: str(tf.compile("x", {"x": (0, 2 * sympy.pi)}).box), "x=0..2*pi"),
    "fraction of sympy": (lambda: str(tf.compile("x", {"x": (0, sympy.Rational(1, 3))}).box), "x=0..1/3"),
    "name of sympy": (lambda: str(tf.compile("x", {sympy.Symbol("x"): (0, 1)}).box), "x=0..1"),
    "array without axes": (lambda: str(tf.compile("x", {"x": (np.array(0), np.array(1))}).box), "x=0..1"),
    "eps as a fraction": (lambda: _sine(eps=Fraction(1, 8)).certificate.eps, 0.125),
    "eps as a decimal": (lambda: _sine(eps=Decimal("1e-3")).certificate.eps, 1e-3),
    "eps of NumPy": (lambda: _sine(eps=np.float32(0.125)).certificate.eps, 0.125),
    "eps of sympy": (lambda: _sine(eps=sympy.Rational(1, 8)).certificate.eps, 0.125),
    "eps left out": (lambda: tf.memorize([[0], [1]], [0, 1], eps=None).certificate.eps, 1e-6),
    "large eps": (lambda: tf.verify(tf.compile("x", X, eps=2**53 + 1)).verified, True),
    "dtype of NumPy": (lambda: _sine(dtype=np.float32).weights.dtype, "float32"),
    "dtype by object": (lambda: _sine(dtype=np.dtype("float32")).weights.dtype, "float32"),
    "shape of NumPy": (lambda: tf.compile(["x", "y"], XY, shape=np.array([2, 1])).sequence, (2, 1)),
    "shape of integers": (lambda: tf.compile(["x", "y"], XY, shape=[np.int64(2), 1]).sequence, (2, 1)),
    "tensor to memorise": (lambda: tf.memorize(torch.zeros(1, 2, requires_grad=True), [1.0]).formula.x.tolist(),
                           [[0.0, 0.0]]),
    "sparse to memorise": (lambda: tf.memorize(csr_matrix([[1, 0]]), [1.0]).formula.x.tolist(), [[1.0, 0.0]]),
    "text to memorise": (lambda: tf.memorize([["0.5"]], [1.0]).formula.x.tolist(), [[0.5]]),
    "large whole": (lambda: tf.memorize([[2**60]], [1.0]).formula.x.tolist(), [[2.0**60]]),
    "no points": (lambda: _sine().trace([]).outputs.shape, (0, 1)),
    "the last head": (lambda: _seen().attended(block=-1, head=np.int64(-1), most=1)[0][0][:5], "table"),
}  # fmt: skip

ROWS = np.random.default_rng(0).uniform(0, 1, (30, 2))
TARGET = ROWS[:, 0] * ROWS[:, 1]


def _fit(**options):
    return tf.PolynomialTransformerRegressor(**({"degree": 2, "solver": "exact"} | options)).fit(ROWS, TARGET)


def _sine(**options):
    return tf.compile("sin(x)", X, **({"eps": 1e-2} | options))


def _seen():
    return _sine().trace([[0.5]])


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_in_one_sentence(name):
    mistake, said = REFUSED[name]
    with pytest.raises(TransformulaError, match=said) as caught:
        mistake()
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize("name", MEANT)
def test_has_a_clear_meaning_and_works(name):
    asked, found = MEANT[name]
    assert asked() == found
