"""Formulas in other languages mean what the text means: run by Python and SQLite, read back from LaTeX, followed by hand."""

import math
import re
import sqlite3

import pytest

import transformula as tf
from transformula.errors import InputError
from transformula.formula.languages import STYLES, formula_in
from transformula.kernel.syntax.boxes import Formula
from transformula.learn import PolynomialTransformerRegressor, TableModel, fit_table

BOX = "x=1/2..2, y_1=1..3"
POINT = {"x": 0.75, "y_1": 2.5}
TEXTS = [
    "5 - 0.5*x + 2e-9*x**2*y_1 - y_1",
    "-x**2",
    "-(x + y_1)**2*3 - (-x)**3",
    "(2*x - 3*y_1)**3/(x - 4) - x/(3*y_1)",
    "2**x**y_1 - (2**x)**y_1 + x**-2",
    "exp(-x)*sin(pi*y_1) + sqrt(x)/log(y_1) - abs(x - 1)",
    "1/3*x - 7",
    "x*(y_1 - (x - (y_1 - 1)))",
]


def _wanted(text):
    return eval(text, {**POINT, **{n: getattr(math, n) for n in ("exp", "sin", "pi", "sqrt", "log")}, "abs": abs})


@pytest.mark.parametrize("text", TEXTS)
def test_python_and_sql_compute_the_same(text):
    formula = Formula.of(text, BOX)
    assert eval(formula_in(formula, "python"), {"math": math, **POINT}) == pytest.approx(_wanted(text), rel=1e-12)
    base = sqlite3.connect(":memory:")
    for name in ("power", "exp", "sin", "sqrt"):
        base.create_function(name, -1, pow if name == "power" else getattr(math, name))
    base.create_function("ln", 1, math.log)
    base.create_function("pi", 0, lambda: math.pi)
    sql = formula_in(formula, "sql", {"y_1": 'the "y"'})
    base.execute('CREATE TABLE t (x REAL, "the ""y""" REAL)')
    base.execute("INSERT INTO t VALUES (?, ?)", tuple(POINT.values()))
    assert base.execute(f"SELECT {sql} FROM t").fetchone()[0] == pytest.approx(_wanted(text), rel=1e-12)


@pytest.mark.parametrize("text", TEXTS)
def test_a_spreadsheet_computes_the_same(text):
    """Its minus sign before a name binds more than ^: every ^ has a name, a number or brackets before it, no sign."""
    cell = formula_in(Formula.of(text, BOX), "excel")
    assert not re.search(r"(^|[-+*/^(])\s*-[A-Za-z_0-9.]+\^", cell)
    python = re.sub(r"\b(EXP|SIN|SQRT|ABS)\b", lambda m: m[0].lower(), cell).replace("^", "**").replace("LN", "log")
    known = {**POINT, "PI": lambda: math.pi, "abs": abs, **{n: getattr(math, n) for n in ("exp", "sin", "sqrt", "log")}}
    assert eval(python, known) == pytest.approx(_wanted(text), rel=1e-12)


def test_latex():
    formula = Formula.of("-(x + y_1)**2/2 + 3e-7*exp(x) - y_1**3", BOX)
    assert formula_in(formula, "latex") == (
        r"-0.5 \, (\mathrm{x} + \mathrm{y\_1})^{2} + 3 \cdot 10^{-7} \, \exp\left(\mathrm{x}\right)"
        r" - \mathrm{y\_1}^{3}"
    )


def test_one_way_for_every_model(tmp_path):
    """A compiled model, one that was loaded, a fitted table and an estimator have the same method."""
    table = {"sq ft": [float(k) for k in range(40)], "age": [float(k * k % 7) for k in range(40)]}
    table["price"] = [2 * a - a * b + 1 for a, b in zip(*table.values(), strict=True)]
    fitted = fit_table(table, "price", degree=2, folder=tmp_path / "home")
    loaded = TableModel.load(tmp_path / "home")
    assert loaded.to_formula("sql") == fitted.to_formula("sql") == '2*"sq ft" - "sq ft"*"age" + 1'
    assert tf.load(tmp_path / "home").to_formula("excel") == "2*sq_ft - 1*sq_ft*age + 1"
    assert tf.load(tmp_path / "home").to_formula() == fitted.to_formula() == "1 + 2*sq_ft - sq_ft*age"
    X = list(zip(table["sq ft"], table["age"], strict=True))
    estimator = PolynomialTransformerRegressor(2).fit(X, table["price"])
    assert estimator.to_formula(style="python") == "2*x1 - x1*x2 + 1"
    assert tf.compile(["x**2", "x"], on="x=0..1").to_formula("excel") == ["x^2", "x"]


def test_what_a_language_cannot_say_is_refused():
    formula = Formula.of("gamma(x)", BOX)
    with pytest.raises(InputError, match="gamma has no name in excel"):
        formula_in(formula, "excel")
    with pytest.raises(InputError, match="unknown style 'cobol': choose text, python"):
        formula_in(formula, "cobol")
    assert all(formula_in(Formula.of("x", BOX), style) for style in STYLES)
