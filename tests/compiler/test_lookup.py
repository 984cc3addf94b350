"""Solved tables: sizes that may not get worse, what is exact, and what is refused."""

import numpy as np
import pytest
from flint import fmpq

import transformula as tf
from support.one_layer_models import model_named
from transformula.budget import listening
from transformula.compiler.evidence.finder import Finder
from transformula.compiler.layout import HeadSpec, OneLayerSpec, TableTokens, assemble
from transformula.compiler.table_reading import read_heads
from transformula.errors import InputError, NotProvenError, TransformulaError

FRANKE = (
    "0.75*exp(-((9*x-2)**2 + (9*y-2)**2)/4) + 0.75*exp(-(9*x+1)**2/49 - (9*y+1)/10)"
    " + 0.5*exp(-((9*x-7)**2 + (9*y-3)**2)/4) - 0.2*exp(-(9*x-4)**2 - (9*y-7)**2)"
)
SINES = "sin(x1) + sin(x2)"

#: formula, box, eps, memory tokens reached, the most that issue 3 allows
PINNED = [
    (SINES, "x1..x2=0..2*pi", 1e-6, 10, 40),
    ("exp(x)", "x=-1..1", 1e-8, 2, 16),
    ("1/(1 + 25*x**2)", "x=-1..1", 1e-6, 7, 64),
    ("tanh(50*x)", "x=-1..1", 1e-9, 2, 4),
    ("sin(6*pi*x)", "x=0..1", 1e-6, 10, 64),
    ("sqrt(x)", "x=0..1", 1e-4, 10, 24),
    ("log(x)", "x=0.01..1", 1e-6, 9, 24),
    ("abs(x)**(1/3)", "x=-1..1", 1e-2, 10, 32),
    ("abs(x - 1/3)", "x=-1..1", 1e-9, 0, 0),
    (FRANKE, "x=0..1, y=0..1", 1e-4, 110, 400),
    ("exp(-x1*x2)*sin(3*x1 + x2)", "x1..x2=0..2", 1e-5, 70, 400),
    ("exp(-(x**2 + y**2 + z**2)/2)*cos(x + y*z)", "x=-1..1, y=-1..1, z=-1..1", 1e-3, 125, 8000),
]


@pytest.mark.parametrize(("formula", "box", "eps", "reached", "limit"), PINNED)
def test_sizes_do_not_get_worse(formula, box, eps, reached, limit):
    """A little slack: other BLAS libraries may round the search onto a neighbouring table."""
    model = tf.compile(formula, on=box, eps=eps, layers=1)
    slack = max(2, int(0.15 * reached)) if reached else 0
    assert model.memory_tokens <= min(reached + slack, limit)
    assert model.construction == "lookup" and model.layers == 1
    assert model.certificate.bound <= eps and model.certificate.rounding < 0.1 * eps
    assert tf.verify(model).verified


@pytest.mark.parametrize(("box", "reaches"), [("x=0..1", 0.0), ("x=-1/3..1", -1 / 3 - 1e-15)])
def test_rounding_keeps_the_sign_of_an_input(monkeypatch, box, reaches):
    """A table that is steep at 0 is not charged for arguments below it, where no input comes to lie."""
    asked = []
    pieces = Finder.pieces
    monkeypatch.setattr(Finder, "pieces", lambda self, *args: asked.append(args[4][0]) or pieces(self, *args))
    assert tf.verify(tf.compile("exp(x)", on=box, eps=1e-3, layers=1)).verified
    low, high = (float(end) for end in asked[0])
    assert reaches <= low <= min(float(reaches + 1e-15), 0.0) and 1 < high < 1 + 1e-14


def test_bends_need_no_table_and_no_approximation():
    for formula in ("abs(x - 1/3)", "max(x, 1/7) - 2*min(x, -x/3)", "3*abs(2*x + 1) - abs(x)/7 + x", "x"):
        model = tf.compile(formula, on="x=-1..1", eps=1e-9, construction="lookup")
        assert model.memory_tokens == model.heads == 0 and model.layers == 1, formula
        assert model.certificate.approximation == 0 and model.certificate.rounding < 1e-13
        x = np.linspace(-1, 1, 41)
        wanted = [eval(formula, {"abs": abs, "min": min, "max": max, "x": v}) for v in x]
        np.testing.assert_allclose(model(x), wanted, rtol=0, atol=1e-14)


def test_irrational_bends_are_nearly_exact():
    model = tf.compile("pi*abs(x - sqrt(2)/2) + E", on="x=-1..1", eps=1e-9, construction="lookup")
    assert model.memory_tokens == 0 and 0 <= model.certificate.approximation < 1e-30


def test_every_additive_part_has_a_head_of_its_own():
    model = tf.compile("sin(a) + exp(b) + cos(c) + a*b", on="a=0..1, b=0..1, c=0..1", eps=1e-3, construction="lookup")
    axes = sorted(head.axes for head in read_heads(model.weights))
    assert axes == [1, 1, 1, 2] and model.heads == 4


def test_a_function_of_one_form_is_one_table_in_any_number_of_variables():
    model = tf.compile(
        "sin(a + 2*b - c + d/3 + e - f)",
        on="a=-1/4..1/4, b=-1/4..1/4, c=-1/4..1/4, d=-1/4..1/4, e=-1/4..1/4, f=-1/4..1/4",
        eps=1e-5,
        construction="lookup",
    )
    (head,) = read_heads(model.weights)
    assert head.axes == 1 and head.tokens <= 12


def test_four_variables_fit():
    model = tf.compile("a*b*cos(c*d)", on="a=0..1, b=0..1, c=0..1, d=0..1", eps=0.02, construction="lookup")
    (head,) = read_heads(model.weights)
    assert head.axes == 4 and head.grid is not None and tf.verify(model).verified


def test_equal_parts_are_solved_once(monkeypatch):
    from transformula.compiler import lookup

    calls = []
    real = lookup.fit_expression
    monkeypatch.setattr(lookup, "fit_expression", lambda *a, **k: calls.append(1) or real(*a, **k))
    tf.compile(["sin(x) + y", "sin(x) - y"], on="x=0..1, y=0..1", eps=1e-3, construction="lookup")
    assert len(calls) == 1


def test_float32_keeps_its_rounding_small():
    model = model_named("two heads", "float32")
    assert model.certificate.rounding < model.certificate.eps / 5
    assert model.weights.memory.values.dtype == np.float32


def test_auto_prefers_exactness_and_layers_one_insists():
    assert tf.compile("x**2 - x/3", on="x=0..1").construction == "polynomial"
    one = tf.compile("x**2 - x/3", on="x=0..1", eps=1e-4, layers=1)
    assert one.construction == "lookup" and one.layers == 1
    assert tf.compile("sin(x)", on="x=0..1", eps=1e-4).construction == "lookup"
    with pytest.raises(InputError, match="a single layer needs"):
        tf.compile("x**3", on="x=0..1", construction="polynomial", layers=1)


@pytest.mark.parametrize(
    ("formula", "box", "part"),
    [
        ("1/x", "x=-1..1", "1/x"),
        ("2 + log(x)", "x=0..1", "log(x)"),
        ("tan(x) + y", "x=0..2, y=0..1", "tan(x)"),
        ("sqrt(y)", "y=-1..1", "sqrt(y)"),
        ("x + asin(2*y)", "x=0..1, y=0..1", "asin(2*y)"),
        ("acos(x)", "x=0..1.0001", "acos(x)"),
        ("a**(-1/2)", "a=0..1", "a**(-1/2)"),
        ("cos(t)/t", "t=-1..1", "cos(t)/t"),
        ("exp(x)/(x - y)", "x=0..1, y=0..1", "exp(x)/(x - y)"),
        ("1/x - 2/x", "x=-1..1", "2/x"),
        ("0*log(x)", "x=-1..1", "log(x)"),
        ("(x - 2)**(1/2)", "x=0..1", "(x - 2)**(1/2)"),
    ],
)
@pytest.mark.parametrize("construction", ["lookup", "partition"])
def test_undefined_formulas_are_refused_in_the_users_own_words(formula, box, part, construction):
    with pytest.raises(NotProvenError, match="undefined or unbounded") as error:
        tf.compile(formula, on=box, eps=1e-3, construction=construction)
    assert part in str(error.value) and "u1" not in str(error.value)


def test_polynomial_approximation_refuses_them_too():
    with pytest.raises(NotProvenError, match=r"1/x.*undefined or unbounded"):
        tf.compile("1/x", on="x=-1..1", eps=1e-3, construction="polynomial")


@pytest.mark.parametrize(
    ("formula", "box", "options", "said"),
    [
        ("sin(x)", "x=0..1", {"eps": 0}, "eps must be"),
        ("sin(x)", "x=0..1", {"eps": -1e-3}, "eps must be"),
        ("sin(x)", "x=0..1", {"eps": float("nan")}, "eps must be"),
        ("sin(a*b*c*d*e)", "a=0..1, b=0..1, c=0..1, d=0..1, e=0..1", {"eps": 0.1}, "at most 4"),
        ("sin(x)", "x=0..1", {"eps": 1e-20}, "eps"),
        ("sin(1/(x**2 + 10**-9))", "x=-1..1", {"eps": 1e-3}, "the formula itself stays within 1 of a constant"),
        ("x/abs(x)", "x=-1..1", {"eps": 1e-3}, "x/abs(x) is undefined"),
        ("x", "x=0..1", {"eps": 1e-3, "multi_head": True}, "multi_head only applies to"),
        ("sin(x)", "x=0..1", {"eps": 1e-3, "shape": (2, 2)}, "needs 4 variables"),
        ("sin(x)", "x=0..1", {"eps": 1e-3, "shape": (0, 1)}, "shape must be"),
        ("sin(x)", "x=0..1", {"eps": 1e-3, "shape": (1,)}, "shape must be"),
        ("sin(x)", "x=0..1", {"eps": 1e-3, "layers": 2}, "layers"),
        ("sin(10**40*x + y)", "x=0..1, y=0..1", {"eps": 1e-3}, "orders of magnitude"),
    ],
)
def test_what_can_not_be_done_is_said(formula, box, options, said):
    with pytest.raises(TransformulaError) as error:
        tf.compile(formula, on=box, construction="lookup", **options)
    assert said in str(error.value) and error.value.exit_code in (1, 2)


def test_five_variables_at_once_are_named():
    with pytest.raises(InputError, match=r"a, b, c, d, e"):
        tf.compile("sin(a*b*c*d*e)", on="a=0..1, b=0..1, c=0..1, d=0..1, e=0..1", eps=0.1, construction="lookup")


def test_a_tolerance_out_of_reach_comes_with_the_best_bound():
    with pytest.raises(NotProvenError) as error:
        tf.compile("tanh(x)", on="x=-1..1", eps=1e-9, construction="lookup", dtype="float32")
    assert error.value.best_bound is not None and 1e-9 < error.value.best_bound < 1e-3
    assert "float64" in str(error.value)


def test_the_listener_hears_of_solving_and_proving():
    heard = []
    with listening(lambda *report: heard.append(report)):
        tf.compile("sqrt(x) + exp(-x*y)", on="x=0..1, y=0..1", eps=1e-2, construction="lookup")
    stages = {stage for stage, _, _ in heard}
    assert {"solving", "proving"} <= stages
    left = [(done, boxes) for stage, done, boxes in heard if stage == "proving"]
    assert all(isinstance(b, int) and b >= 0 and d > 0 for d, b in left) and left[-1][1] == 0


@pytest.mark.parametrize("stage", ["solving", "proving"])
def test_an_interrupt_ends_the_work_and_the_next_one_is_unharmed(stage):
    def interrupt(now, done, left):
        if now == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), listening(interrupt):
        tf.compile("exp(-x*y)", on="x=0..1, y=0..1", eps=1e-2, construction="lookup")
    assert tf.verify(tf.compile("exp(x)", on="x=0..1", eps=1e-3, construction="lookup")).verified


def test_a_gate_is_a_number_of_the_format():
    """No matter how steep a table is: a whole number beyond 2^24 may not be one of float32's."""
    slopes, offsets = np.array([[-(2.0**27)], [2.0**27]]), np.full((2, 1), 0.5)
    table, head = TableTokens(slopes, offsets, np.ones((2, 1))), HeadSpec(0, 0, ({"x.x": 1},), (1.0,), ("y1",))
    (block,) = assemble(OneLayerSpec(("x",), [((fmpq(0),), fmpq(0))], [table], [head], dtype="float32")).blocks
    (head,) = block.attention.heads
    assert head.key.exact is None and head.key.values.min() <= -(2.0**28) - 801
