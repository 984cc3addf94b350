"""From expression to wires: identities only, shared, fused and shallow."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import transformula as tf
from support.circuit_models import CASES, linear_value, wire_values
from support.guides import PositiveGuide, RandomGuide
from support.prover import numpy_function, random_formula
from transformula.compiler.lower.additive import without_cancelled
from transformula.compiler.lower.lowered_circuit import Guide, has_slot
from transformula.compiler.lower.lowering import build_circuit
from transformula.compiler.lower.rewrites import domain_ends
from transformula.formula.evaluation import evaluate
from transformula.kernel.structures.stored_circuit import SQUARE
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.parsing import parse


def _circuit(text, names, guide=None):
    texts = [text] if isinstance(text, str) else text
    return build_circuit([parse(t, names) for t in texts], names, guide or Guide())


def _tables(lowered):
    return sorted(str(w.function) for w in lowered.circuit.wires if w.function is not None)


def _bends(lowered):
    return sum(w.function is None and has_slot(w) for w in lowered.circuit.wires)


def test_one_linear_form_is_one_table():
    assert len(_tables(_circuit("exp(-(x - 2*y)**2/2)*cos(x - 2*y)", ["x", "y"]))) == 1
    assert _tables(_circuit("exp(-x**2/2) + y", ["x", "y"])) == ["exp(-1/2*u**2)"]
    assert len(_tables(_circuit("1/(1 + 25*x**2) + 3*y", ["x", "y"]))) == 1


def test_what_depends_on_one_inner_value_is_one_table():
    lowered = _circuit("exp(-sin(x*y)**2)/(1 + sin(x*y))", ["x", "y"])
    assert lowered.layers <= 4
    assert len(_tables(_circuit("tanh(sqrt(1 + (x*y)**2))", ["x", "y"]))) == 3  # two squares and one more


def test_common_sub_expressions_are_shared():
    names = ["x", "y"]
    twice = _circuit(["x*y", "x*y + sin(x*y)", "3 - sin(x*y)"], names)
    assert _tables(twice) == ["sin(u)", "u**2", "u**2"] and twice.layers == 2
    assert len(_circuit("exp(x)*y + exp(x)", names).circuit.wires) == len(_circuit("exp(x)*y", names).circuit.wires)


def test_equal_bases_merge_into_one_power():
    names = ["q", "r"]
    assert len(_tables(_circuit("q*r/r**3", names))) == len(_tables(_circuit("q*r**(-2)", names))) == 3
    assert _tables(_circuit("r**2*r/(r**3)*q", names)) == []


def test_a_common_denominator_is_distributed():
    """b S with 1/b inside S becomes one sum: log(r/rw)*(1 + T/log(r/rw)) has nothing left to divide."""
    names = ["a", "b", "c"]
    lowered = _circuit("a/(b*(1 + c/b))", names)
    x = np.random.default_rng(0).uniform(1, 2, (50, 3))
    values = wire_values(lowered.circuit, x)
    np.testing.assert_allclose(
        linear_value(lowered.circuit.outputs[0], values), x[:, 0] / (x[:, 1] + x[:, 2]), rtol=1e-12
    )
    assert lowered.layers == 2 and len(_tables(lowered)) == 3  # a * 1/(b + c)


def test_what_cancels_in_a_sum_is_not_divided_out_of_it():
    """(p² + m²q)/m is p²/m + mq: the sum, which m makes larger, is not made small again by a table of 1/m."""
    names = ["m", "p", "q"]
    lowered = _circuit("(p**2 + m**2*q)/m", names)
    x = np.random.default_rng(0).uniform(1, 2, (50, 3))
    values = wire_values(lowered.circuit, x)
    m, p, q = x.T
    np.testing.assert_allclose(linear_value(lowered.circuit.outputs[0], values), (p**2 + m**2 * q) / m, rtol=1e-12)
    assert len(_tables(lowered)) == 6  # p², 1/m, and two squares for each product
    assert len(_tables(_circuit("m/(m + p)", names))) == 3  # 1/(m + p) and a product: 1/(1 + p/m) takes one more


def test_a_logarithm_of_a_product_is_a_sum():
    lowered = _circuit("log(m/p)", ["m", "p"], Logarithms())
    assert [str(w.function) for w in lowered.circuit.wires if w.function is not None] == ["log(u)", "log(u)"]
    assert lowered.layers == 1


class Logarithms(Guide):
    """Everything is positive."""

    def in_logs(self, bases, alone):
        return alone


def test_kinks_are_relus_and_not_tables():
    lowered = _circuit("max(x, y, min(x - y, abs(y)))", ["x", "y"])
    assert _tables(lowered) == [] and _bends(lowered) >= 4


@pytest.mark.parametrize("text", ["tanh(exp(x*u) + u)", "exp(x*u)*u", "sin(u*x)/(2 + u)", "cos(u1*x) + u*u1"])
def test_a_variable_may_have_the_name_of_an_argument(text):
    """Tables are functions of u: that must never be the u of the formula."""
    names = ["x", "u", "u1"]
    lowered = _circuit(text, names)
    x = np.random.default_rng(0).uniform(0.2, 1, (40, 3))
    expected = evaluate(parse(text, names), names, list(x.T))
    found = linear_value(lowered.circuit.outputs[0], wire_values(lowered.circuit, x))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "tanh(x*y/z)",
        "exp(-x*y*z) + exp(x*y*z/3)",
        "x/(exp(x*y/z) - 1)",
        "asin(x*y/9)*z",
        "sqrt(x*y*z)/(1 + x*y*z)",
    ],
)
def test_logarithms_of_products_keep_the_meaning(text):
    names = ["x", "y", "z"]
    x = np.random.default_rng(1).uniform(0.3, 2, (60, 3))
    expected = evaluate(parse(text, names), names, list(x.T))
    for seed in range(8):
        lowered = _circuit(text, names, PositiveGuide(seed))
        found = linear_value(lowered.circuit.outputs[0], wire_values(lowered.circuit, x))
        np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_a_function_of_a_product_takes_two_layers():
    """Logarithms are added, whatever the number of factors."""
    formula, box = "1/(exp(h*w/(k*t)) - 1)", "h=1..5, w=1..5, k=1..5, t=1..5"
    for dtype, rel in (("float64", 1e-6), ("float32", 1e-3)):
        model = tf.compile(formula, on=box, rel=rel, dtype=dtype, construction="circuit")
        assert model.layers == 2 and model.memory_tokens <= 14


def test_sums_are_free():
    assert _circuit("x + y/3 - pi*x + 2", ["x", "y"]).layers == 0
    assert len(_circuit("x + y/3 - pi*x + 2", ["x", "y"]).circuit.wires) == 2


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("sqrt(x*y)*sqrt(x*y)", "x*y"), ("z*(x*y)**(1/2)*sqrt(x*y)", "z*x*y"), ("sqrt(x/y)**4*y**2", "x**2"),
        ("sqrt(x*y)*sqrt(z)/sqrt(x*y)", "sqrt(z)"), ("sqrt(x**2)*y", "abs(x)*y"),
        ("(y**4)**(1/2)*x", "y**2*x"),
    ],
)  # fmt: skip
def test_roots_that_are_squared_come_apart(text, same):
    names, box = ["x", "y", "z"], [(0.5, 2)] * 3
    lowered, *_ = _check([parse(text, names)], names, box, Guide())
    other, *_ = _check([parse(same, names)], names, box, Guide())
    assert len(lowered.circuit.wires) <= len(other.circuit.wires) + 2


def test_kinks_are_no_part_of_a_table():
    lowered = _circuit("sqrt(abs(x)) + exp(-abs(sin(y)))", ["x", "y"])
    assert _tables(lowered) == ["exp(-u)", "sin(u)", "sqrt(u)"] and _bends(lowered) == 4


def test_the_largest_of_many_is_found_in_a_tournament():
    names = [f"x{k}" for k in range(100)]
    for op in ("min", "max"):
        assert _circuit(f"{op}({', '.join(names)})", names).layers == 7


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 9])
def test_the_tournament_is_balanced_and_in_the_order_written(op, count):
    """The first half against the second, recursively: the kernel's normal form reads it like that."""
    names = [f"x{k}" for k in range(count)]

    def written(part):
        if len(part) == 1:
            return part[0]
        half = len(part) // 2
        return f"{op}({written(part[:half])}, {written(part[half:])})"

    expr = parse(f"{op}({', '.join(names)})", names)
    lowered, nested = _circuit(str(expr), names), _circuit(written(names), names)
    assert lowered.circuit.wires == nested.circuit.wires
    _check([expr], names, [(-1, 1)] * count, Guide())


def test_a_root_of_a_fourth_power_bends_nothing():
    assert _bends(_circuit("sqrt(x**4*y**8)", ["x", "y"])) == 0
    assert _bends(_circuit("sqrt(x**2*y**2)", ["x", "y"])) == 2


DEPTHS = {
    "I.6.2b": 4, "I.12.2": 3, "I.14.3": 2, "I.18.4": 2, "I.27.6": 3, "I.32.17": 4, "I.50.26": 4,
    "II.35.21": 5, "III.4.33": 5, "III.19.51": 4, "test_5": 3, "test_17": 5, "I.9.18": 3, "I.29.16": 3,
    "borehole": 6, "otl_circuit": 4, "friedman1": 2, "abs": 1, "sqrt": 1, "runge": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", DEPTHS)
def test_depth_is_the_nonlinear_depth(name):
    formula = Formula.of(CASES[name]["formula"], CASES[name]["on"])
    assert build_circuit(formula.outputs, formula.box.variables, Guide()).layers <= DEPTHS[name]


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("sqrt(u)", (0, None)), ("log(3 - u)", (None, 3)), ("acos(2*u)", (Fraction(-1, 2), Fraction(1, 2))),
        ("u**(-1/2) + asin(u)", (0, 1)), ("u**3 + exp(u)", (None, None)), ("sqrt(u**2 + 1)", (None, None)),
        ("log(u) + sqrt(1 - u/2)", (0, 2)), ("abs(u)**(1/2)", (None, None)), ("sqrt(pi - u)", (None, None)),
    ],
)  # fmt: skip
def test_domain_ends(text, ends):
    assert domain_ends(parse(text, ["u"])) == ends


def _check(exprs, names, box, guide, samples=60, seed=0):
    """Outputs equal the formulas, every wire equals its meaning, and times respect who reads whom."""
    lowered = build_circuit(exprs, names, guide)
    low, high = np.array(box, dtype=float).T
    x = np.random.default_rng(seed).uniform(low, high, (samples, len(names)))
    values = wire_values(lowered.circuit, x)
    for expr, linear in zip(exprs, lowered.circuit.outputs, strict=True):
        wanted = numpy_function(expr, names)(*x.T)
        fine = np.isfinite(wanted)
        # cancellation in the products' squares is all that may differ
        scale = 1 + max(np.abs(v[np.isfinite(v)]).max(initial=0) for v in values)
        np.testing.assert_allclose(linear_value(linear, values)[fine], wanted[fine], rtol=1e-7, atol=1e-9 * scale)
    times = [fact.time for fact in lowered.facts]
    for wire, time in list(zip(lowered.circuit.wires, times, strict=True))[len(names) :]:
        if wire.total is not None:  # no slot of its own: there as soon as its parts are
            assert time == max(times[k] for k, _ in wire.parts)
        else:
            readers = [times[k] for k, _ in wire.arguments[0].terms]
            assert time % 2 == (1 if wire.function is not None else 0) and all(t < time for t in readers)
    return lowered, x, values


@given(seed=st.integers(0, 10_000), count=st.integers(1, 4))
def test_random_formulas_keep_their_meaning(seed, count):
    names = ["x", "y", "z", "w"][:count]
    _check([without_cancelled(random_formula(seed, names), names)], names, [(-1.2, 1.7)] * count, Guide())


@given(seed=st.integers(0, 10_000))
def test_no_choice_of_splits_changes_the_meaning(seed):
    names = ["x", "y", "z"]
    expr = without_cancelled(random_formula(seed, names), names)
    _check([expr], names, [(-1.2, 1.7)] * 3, RandomGuide(seed), seed=seed)


@pytest.mark.parametrize("text", ["exp(x - x)*y", "sin(x)*(y - y + 1)", "max(y*sin(x), x - x)", "(x - x)**2 + y*x"])
def test_variables_that_cancel(text):
    _check([parse(text, ["x", "y"])], ["x", "y"], [(0.5, 2)] * 2, Guide())


@pytest.mark.parametrize(
    "text",
    [
        "x**y", "(x*y)**z", "x**(y/2)*x**2", "(x + y)**(-1/2)/z", "max(x*y, min(z, abs(x - y*z)), sin(z))",
        "abs(abs(x - y) - abs(y*z - 2))", "min(x**y, z**x)", "sqrt(x*y)*log(z)*exp(-x)",
        "x/(y*(1/y + z/y**2))",
        "acos((x - y)/(x + y))", "x**pi + pi**x", "((x*y)**2*z)**(3/2)", "-x**2/-y",
    ],
)  # fmt: skip
@pytest.mark.parametrize("wild", [False, True])
def test_named_formulas_keep_their_meaning(text, wild):
    names = ["x", "y", "z"]
    expr = parse(text, names)
    lowered, x, values = _check([expr], names, [(0.3, 2)] * 3, RandomGuide(1) if wild else Guide())
    for fact, found in zip(lowered.facts, values, strict=True):
        meant = evaluate(fact.meaning, names, list(x.T))
        np.testing.assert_allclose(found, meant, rtol=1e-7, atol=1e-7)


def test_squares_are_the_only_products():
    lowered = _circuit("a*b*c*d*sin(e)", ["a", "b", "c", "d", "e"])
    assert {w.function for w in lowered.circuit.wires if w.function is not None} == {SQUARE, parse("sin(u)", ["u"])}
    assert lowered.layers == 3  # pairs, pairs of pairs, and one more
