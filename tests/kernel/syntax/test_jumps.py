"""floor, sign and what is made of them: values on every piece, jumps that are refused, and nothing in between."""

from __future__ import annotations

import numpy as np
import pytest
import sympy

import transformula as tf
from functions import attacked
from transformula.formula.evaluation import evaluate
from transformula.formula.notations import as_texts
from transformula.kernel.exceptions import FormulaError
from transformula.kernel.syntax.boxes import Formula


def _mod(x, c=1.0):
    return x - c * np.floor(x / c)


#: Text, and what it means in NumPy, on x = -3..3, y = -1..2.
MEANT = {
    "abs(x - floor(x + 1/2))": lambda x, y: np.abs(x - np.floor(x + 0.5)),
    "mod(x, 1)*(1 - mod(x, 1))": lambda x, y: _mod(x) * (1 - _mod(x)),
    "y + mod(-2*x, 3)*(3 - mod(-2*x, 3))*exp(y)": lambda x, y: y + _mod(-2 * x, 3) * (3 - _mod(-2 * x, 3)) * np.exp(y),
    "sin(pi*mod(x, 1)) - y": lambda x, y: np.sin(np.pi * _mod(x)) - y,
    "x*sign(x) + y*heaviside(y)": lambda x, y: np.abs(x) + np.maximum(y, 0),
    "sign(0*exp(x) + x)*(0*exp(x) + x)": lambda x, y: np.abs(x),
    "sign(sin(x))*sin(x)": lambda x, y: np.abs(np.sin(x)),
    "abs(x*y - round(x*y))": lambda x, y: np.abs(x * y - np.floor(x * y + 0.5)),
    "abs(x - 2*y - floor(1/2 + x - 2*y))": lambda x, y: np.abs(x - 2 * y - np.floor(x - 2 * y + 0.5)),
    "mod(x/pi, 1)*(1 - mod(x/pi, 1))": lambda x, y: _mod(x / np.pi) * (1 - _mod(x / np.pi)),
    "abs(fmod(x, 2))*(2 - abs(fmod(x, 2)))": lambda x, y: np.abs(np.fmod(x, 2)) * (2 - np.abs(np.fmod(x, 2))),
    "(ceil(x) - x)*(x - floor(x))": lambda x, y: (np.ceil(x) - x) * (x - np.floor(x)),
    "(floor(2*x) - 2*floor(x) - 1)*(x - floor(x))*(1 - 2*mod(x, 1))": lambda x, y: (
        (np.floor(2 * x) - 2 * np.floor(x) - 1) * _mod(x) * (1 - 2 * _mod(x))
    ),
    "where(x > 1, mod(x, 1)*(1 - mod(x, 1)), y*0)": lambda x, y: np.where(x > 1, _mod(x) * (1 - _mod(x)), 0),
    "floor((y + 2)/5) + floor(pi) + trunc(y/3)": lambda x, y: 3 + 0 * x,
    "mod(x, 1)*(1 - mod(x, 1))*mod(y, 1)*(1 - mod(y, 1))": lambda x, y: (
        _mod(x) * (1 - _mod(x)) * _mod(y) * (1 - _mod(y))
    ),
    "sin(pi*floor(x)) + cos(2*pi*floor(y))": lambda x, y: 1 + 0 * x,
}


@pytest.mark.parametrize("text", MEANT)
def test_continuous_formulas_mean_what_they_say(text):
    x, y = np.random.default_rng(0).uniform([[-3], [-1]], [[3], [2]], (2, 2000))
    x[:60], y[:30] = np.linspace(-3, 3, 60).round(1), np.linspace(-1, 2, 30).round(1)
    (expr,) = Formula.of(text, "x=-3..3, y=-1..2").outputs
    np.testing.assert_allclose(evaluate(expr, ["x", "y"], [x, y]), MEANT[text](x, y) + 0 * x, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("text", "box", "said"),
    [
        ("floor(x)", "x=0..2", "jumps by 1 at x = 1, and only continuous"),
        ("mod(x, 1)", "x=0..1", "jumps by 1 at x = 1"),
        ("exp(2*floor(x))", "x=0..3/2", "jumps by 6.38906 at x = 1"),
        ("sign(x)", "x=0..1", "jumps by 1 at x = 0"),
        ("sign(x)**2", "x=-1..1", "jumps by 1 at x = 0"),  # 1 on both sides, and 0 at zero itself
        ("(2*heaviside(x) - 1)**4 + x", "x=-1..1", "jumps by 1 at x = 0"),
        ("x/sign(x)", "x=-1..1", "divides by zero"),
        ("y*floor(x)", "x=0..1, y=0..1", "not seen to meet at x = 1: they differ by"),
        ("mod(x, y)", "x=0..2, y=1..2", "not seen to meet at x/y = 1"),
        ("x + floor(x + floor(y))", "x=0..1/2, y=0..1", "jumps by 1 at y = 1"),
        ("abs(x - floor(x + 1/2 + 10**-9))", "x=0..1", "jumps by 2e-09 at x = 499999999/1000000000"),
        ("floor(log(x))", "x=-1..1", r"floor\(log\(x\)\) is not seen to be defined on the box"),
        ("x + 0*floor(log(y) - log(y))", "x=0..1, y=-1..1", "not seen to be defined"),
        ("floor(10**9*x)*0", "x=0..1", "jumps 1000000001 times on the box: at most 200"),
        ("mod(x, 0)", "x=0..1", "divides by zero"),
        ("mod(x)", "x=0..1", "mod takes two arguments, not 1"),
        ("floor(x, 1)", "x=0..1", "floor takes one argument, not 2"),
        ("x % 1", "x=0..1", r"write mod\(x, 1\)"),
    ],
)
def test_a_jump_is_refused_in_one_sentence(text, box, said):
    with pytest.raises(FormulaError, match=said) as refused:
        tf.compile(text, on=box)
    assert "\n" not in str(refused.value)


def test_pieces_that_would_be_too_many_are_counted_first():
    long = " + ".join(f"sin({k}*mod(x, 1))**2" for k in range(1, 100))
    with pytest.raises(FormulaError, match=r"too long with 1\d\d jumps"):
        Formula.of(f"exp({long})*mod(x, 1)*(1 - mod(x, 1))", "x=0..150")


def test_very_many_jumping_functions_are_refused_at_once():
    with pytest.raises(FormulaError, match="has 5000 functions that jump: at most 200"):
        Formula.of(" + ".join(f"sin(x)*floor(x/{k})" for k in range(3, 5003)), "x=0..2")


def test_a_value_that_is_undefined_on_the_seam_alone_stays_so():
    """log(sign(x)**2) is 0 on either side of zero, and undefined there."""
    with pytest.raises((FormulaError, tf.errors.NotProvenError), match=r"undefined|not seen|finite"):
        tf.compile("x + y*log(sign(x)**2 + 0*y)", on="x=-1..1, y=1..2", eps=1e-2)


@pytest.mark.parametrize(
    ("text", "box", "tokens"),
    [("abs(x - floor(x + 1/2))", "x=0..8", 0), ("mod(x, 1)*(1 - mod(x, 1))", "x=-1..2", 9)],
)
def test_waves_are_compiled_verified_and_hold(text, box, tokens, tmp_path):
    model = tf.compile(text, on=box, eps=1e-6)
    assert model.formula.typed == (text,) and model.memory_tokens <= tokens
    assert tf.verify(model.save(tmp_path / "model")).verified
    assert attacked(model, text, box, 500) <= model.certificate.bound <= 1e-6


def test_sympy_writes_them_too():
    x = sympy.Symbol("x", real=True)
    texts = as_texts([sympy.Mod(x, 2), x * sympy.Heaviside(x), sympy.ceiling(x) * sympy.sign(x)], ["x"])
    assert [str(Formula.of(t, "x=1/2..1").outputs[0]) for t in texts] == ["x", "x", "1"]
