"""where and Piecewise: values on either side, seams that meet, jumps that are refused."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from flint import arb

import transformula as tf
from support.faults import active, fault
from transformula.errors import NotProvenError, TransformulaError
from transformula.formula.evaluation import evaluate
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.exceptions import FormulaError
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.expression import walk
from transformula.kernel.syntax.parsing import parse


def clipped(x):
    return np.clip(x, -1, 2)


#: Text, and what it means in NumPy.
MEANT = {
    "where(x > 0, x, x/10)": lambda x, y: np.where(x > 0, x, x / 10),
    "where(x <= 0, x/10, x)": lambda x, y: np.where(x > 0, x, x / 10),
    "where(0 < x, x, exp(x) - 1)": lambda x, y: np.where(x > 0, x, np.exp(x) - 1),
    "where(1 - 2*x >= y, x + y/2, 1/2)": lambda x, y: np.where(1 - 2 * x >= y, x + y / 2, 0.5),
    "where(x < y**2, sin(x), sin(y**2))": lambda x, y: np.where(x < y**2, np.sin(x), np.sin(y**2)),
    "where(x >= 1, log(x), 0)*y + 3": lambda x, y: np.where(x >= 1, np.log(np.maximum(x, 1)), 0) * y + 3,
    "Piecewise((-1, x < -1), (x, x < 2), (2, True))": lambda x, y: clipped(x),
    "Piecewise((2, x > 2), (-1, x <= -1), (x, True))": lambda x, y: clipped(x),
    "Piecewise((x, True))": lambda x, y: x,
    "where(x > 0, where(y > 0, x*y, 0), 0)": lambda x, y: np.maximum(x, 0) * np.maximum(y, 0),
}


@pytest.mark.parametrize("text", MEANT)
def test_pieces_mean_what_they_say(text):
    x, y = np.random.default_rng(0).uniform(-4, 4, (2, 2000))
    x[:50] = np.linspace(-2, 2, 50).round(1)
    np.testing.assert_allclose(evaluate(parse(text), ["x", "y"], [x, y]), MEANT[text](x, y), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("where(x > 1, x, 0)", r"jumps by 1 at x = 1, and only continuous"),
        ("where(x >= 1/2, sin(pi*x), 3/4)", r"jumps by 0.25 at x = 1/2"),
        ("where(x < y, x, 2*y)", r"not seen to meet at x = y: they differ by .*y.* there"),
        ("Piecewise((0, x < -1), (x, x < 2), (2, True))", r"jumps by 1 at x = -1"),
        ("where(x > 1, x, x + 10**-30)", r"jumps by 1e-30 at x = 1"),
        ("where(x**5 + x > 1, x, 1)", "linear in one of its variables"),
        ("where(x > x, x, 1)", "linear in one of its variables"),
        ("where(x*abs(x) > 1, x**2, 1)", "linear in one of its variables"),  # not where abs(x) > 1
        ("where(pi*abs(x) > 1, x**2, 1)", "linear in one of its variables"),
        ("where(0*abs(x) > 1, x**2, 1)", "linear in one of its variables"),
        ("where(abs(x)*abs(x) > 4, x**2 - 15, 1)", "linear in one of its variables"),
        ("where(1 > 2, x, 1)", "linear in one of its variables"),
        ("where(x > 0, 1/x, 0)", "divides by zero"),
        ("where(x, 1, 2)", "a comparison such as x < 1 is missing"),
        ("where(x > 0, 1)", "a ',' is missing"),
        ("where(x > 0, 1, 2, 3)", r"a '\)' is missing"),
        ("Piecewise((x, x > 0))", "a ',' is missing"),
        ("Piecewise(x, x > 0)", r"a '\(' is missing"),
        ("Piecewise((x, True)", r"a '\)' is missing"),
        ("x < 1", "unexpected '<'"),
        ("sin(x > 1)", r"a '\)' is missing"),
    ],
)
def test_what_jumps_or_cannot_be_read_is_refused(text, said):
    with pytest.raises(FormulaError, match=said) as refused:
        parse(text)
    assert "\n" not in str(refused.value)


def test_values_of_functions_on_the_seam_count_if_they_are_exact():
    assert parse("where(x > 0, x, erf(x) + gamma(3) - 2)").names == {"x"}
    with pytest.raises(FormulaError, match=r"not seen to meet at x = 1: they differ by erf\(1\) .* there"):
        parse("where(x > 1, x*erf(1), 1 - erfc(x))")


def test_a_piece_is_defined_on_its_own_side_only():
    expr = parse("where(x >= 1, log(x), 0)")
    assert str(expr) == "log(max(x, 1))"
    other = parse("where(x > 0, x*y, 0*log(y))")  # what is undefined for y < 0 stays so
    assert "log(y)" in str(other) and not enclose(other, {"x": arb(-1), "y": arb(-1)}).is_finite()
    assert enclose(expr, {"x": arb(-5)}).contains(0) and not enclose(parse("log(x)"), {"x": arb(-5)}).is_finite()


def test_many_pieces_stay_short_and_deep_ones_end():
    text = f"Piecewise({', '.join(f'({k}*x - {k * (k - 1) // 2}, x < {k})' for k in range(1, 30))}, (30*x - 435, True))"
    assert len(str(parse(text))) < 20_000
    with pytest.raises(FormulaError, match=r"nested more than|too long"):
        parse("where(x > 0, " * 200 + "x" + ", x)" * 200)


@pytest.mark.parametrize("text", ["where(x > 0, x, exp(x) - 1)", "where(y < x, x - y, y/2 - x/2)"])
def test_pieces_are_compiled_and_verified(text, tmp_path):
    box = "x=-1..1, y=-1..1" if "y" in text else "x=-2..2"
    model = tf.compile(text, on=box, eps=1e-3)
    assert model.formula.typed == (text,) and tf.verify(model.save(tmp_path / "model")).verified
    low, high = np.array(model.box.floats()).T
    x = np.random.default_rng(1).uniform(low, high, (500, len(low)))
    column = x.T
    wanted = np.where(column[0] > 0, column[0], np.exp(column[0]) - 1) if len(low) == 1 else np.where(
        column[1] < column[0], column[0] - column[1], (column[1] - column[0]) / 2
    )  # fmt: skip
    assert np.abs(np.asarray(model(x)).ravel() - wanted).max() <= model.certificate.bound


def test_where_is_a_variable_without_a_bracket():
    assert Formula.of("where + 1", "where=0..1").outputs[0].names == {"where"}
    with pytest.raises(NotProvenError, match="undefined"):
        tf.compile("where(x > 0, x, log(x + 1))", on="x=-2..1", eps=1e-2)


def test_a_condition_that_decides_nothing_must_still_be_defined():
    with pytest.raises(NotProvenError, match="undefined"):
        tf.compile("x + where(x > log(y), y, y)", on="x=0..1, y=-1..1", eps=1e-2)


def test_a_piece_that_looks_like_the_other_must_still_be_defined():
    """Both were taken for y, and at x <= 0 the formula has no value where log(y) has none."""
    for other in ("y*log(y)/log(y)", "y*log(-1)/log(-1)"):
        with pytest.raises(TransformulaError, match="undefined"):
            tf.compile(f"x + where(x > 0, y, {other})", on="x=-1..1, y=-1..1", eps=1e-2)
    assert str(parse("where(x > 0, y, 2*y - y)")) == "y"


#: Conditions that factor, and pieces in the difference d that meet wherever it is zero; the last two jump, and are refused.
CONDITIONS = ("x*x - x", "x**2 - 2", "4 - x**2", "abs(2*x - 1) - 1", "1/2 - abs(x)", "1 - 2*abs(x)", "x**3 - x", "x**2 + x + 1",
              "(x - 1)**2", "-(x + 1)**2", "(x - 1)**2*(x + 1/2)", "x*(x - 1)*(x + 1)*(x - 1/3)", "3*x**2 - x - 1")  # fmt: skip
MEETING = (("d", "0"), ("d + x", "x"), ("sin(d)", "d"), ("exp(d)", "1"), ("d**2", "-d"), ("x", "x*cos(d)"))


def differences(condition, pieces, signs=("<", "<=", ">", ">=")):
    """How far where(..) is from what its text says, at random points and at the zeros."""
    rng = np.random.default_rng(4)
    x = np.concatenate([rng.uniform(-2, 2, 200), [-1, -0.5, 0, 0.5, 1, 1 / 3]])
    names = {"x": x, "abs": np.abs, "sin": np.sin, "cos": np.cos, "exp": np.exp}
    d = eval(condition, names)
    a, b = (part.replace("d", f"({condition})") for part in pieces)
    for sign in signs:
        (output,) = Formula.of(f"where({condition} {sign} 0, {a}, {b})", "x=-2..2").outputs
        assert not any(node.op == "where" for node in walk(output))
        wanted = np.where(eval(f"d {sign} 0", {"d": d}), *(eval(part, names) + 0 * x for part in (a, b)))
        yield float(np.max(np.abs(evaluate(output, ["x"], [x]) - wanted)))


@pytest.mark.parametrize("pieces", MEETING, ids=str)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_that_factor(condition, pieces):
    assert max(differences(condition, pieces)) < 1e-12


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("where(x*x - x >= 0, x, 0)", "jumps by 1 at x = 1"),
        ("where((x - 1)**2 > 0, x, 2)", "jumps by 1 at x = 1"),
        ("where((x - 1)**2 <= 0, x, 2)", "jumps by 1 at x = 1"),
        ("where(abs(x) < 1, 1, 0)", "jumps by 1 at x = "),
        ("where(x**2 < 2, x, 0)", "jumps by 1.41421"),
    ],
)
def test_pieces_that_jump_at_a_zero_are_refused(text, said):
    with pytest.raises(FormulaError, match=said):
        Formula.of(text, "x=-2..2")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("where", "holds = holds != odd", "holds = not holds"),
        ("where", "if not odd and holds != (", "if False and holds != ("),
        ("_seams", "(lead > 0) == (scale_of > 0)", "lead > 0"),
        ("_seams", "for way in (-1, 1)", "for way in (1,)"),
        ("_seams", "if end > 0 else difference", ""),
    ],
)
def test_faults_of_conditions_are_seen(name, old, new):
    with active(fault("", f"kernel.syntax.jumps:{name}", old, new, "")):
        seen = 0
        for condition in (*CONDITIONS, "abs(x) + 1"):
            for pieces in (*MEETING, ("x**2", "1")):
                with contextlib.suppress(FormulaError):
                    seen += max(differences(condition, pieces)) > 1e-9
        jumping = ["where((x - 1)**2 > 0, x, 2)"]
        with contextlib.suppress(FormulaError):
            seen += sum(bool(Formula.of(text, "x=-2..2")) for text in jumping)
        assert seen
