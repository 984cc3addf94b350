"""A short pass of every fuzzer (benchmarks/fuzz): no violation, and every statement is checked."""

import json
import random
import subprocess
import sys
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch

from fuzz import rounded, run
from fuzz.cases import Case, fuzzer
from fuzz.circuits import FORMULAS, built
from fuzz.values import Unknown, Value, put
from support.fuzzing import PASSES, short_pass, sound_pass
from transformula.runtime import reference


def test_every_fuzzer_has_a_pass():
    assert set(PASSES) == set(run.TARGETS)


@pytest.mark.parametrize("name", PASSES)
def test_nothing_is_violated(name):
    found, (cases, checks) = sound_pass(name), PASSES[name]
    assert not found.violations
    assert found.cases == cases and min(found.checks.values()) >= checks, found.checks


def test_a_violation_is_found_again_by_its_seed():
    @fuzzer
    def even(case):
        case.given = str(case.rng.random())
        case.check("even", case.seed % 2 == 0, case.seed)

    first = even(0, 10)
    assert [v.seed for v in first.violations] == [1, 3, 5, 7, 9] and first.checks == {"even": 10}
    assert even(7, 1).violations == [first.violations[3]]


def test_an_exception_is_a_violation():
    @fuzzer
    def failing(case):
        case.given = "x"
        raise KeyError("y")

    (found,) = failing(5, 1).violations
    assert (found.seed, found.given) == (5, "x") and "KeyError" in found.what


@pytest.mark.parametrize(
    ("text", "x", "value"),
    [
        ("3*x - 1", Fraction(1, 3), 0),
        ("sqrt(3*x - 1)", Fraction(1, 3), 0),
        ("-x^2", Fraction(2), -4),
        ("x/x", Fraction(0), None),
        ("log(x)", Fraction(-1), None),
        ("x**(1/3)", Fraction(-1), None),
        ("where(x < 0, log(x), x + 1)", Fraction(1), 2),
        ("mod(x, 1/3)", Fraction(2, 3), 0),
        ("besselj(1/2, x)", Fraction(-1), None),
    ],
)
def test_the_evaluator(text, x, value):
    assert Value(text).at({"x": x}) == value


@pytest.mark.parametrize("text", ["exp(exp(exp(x)))", "(-2)**(0*x)"])
def test_the_evaluator_says_where_it_cannot_tell(text):
    with pytest.raises(Unknown):
        Value(text).at({"x": Fraction(2)})


def test_templates_are_filled_letter_by_letter():
    assert put("sqrt(f)*abs(f - a)", f="x", a="y + 1") == "sqrt((x))*abs((x) - (y + 1))"


@pytest.mark.parametrize(("formula", "box"), FORMULAS[:6])
def test_exact_blocks_are_those_of_the_definition(formula, box):
    weights = built(formula, box, 0.1).weights
    x = np.random.default_rng(0).random((20, len(weights.inputs)), dtype=np.float32)
    found = rounded.Blocks(weights).run(torch.from_numpy(x.astype(float)), rounded.Rounding(0.0, 24)).numpy()
    assert np.allclose(found, reference.run(weights, x), atol=1e-4)


def test_the_runner_writes_what_it_found(tmp_path):
    out = tmp_path / "out.json"
    arguments = ["--only", "texts", "--seed", "7", "--cases", "5", "--json", out]
    done = subprocess.run([sys.executable, run.__file__, *map(str, arguments)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and "texts" in done.stdout
    assert json.loads(out.read_text())["summary"]["cases"] == {"texts": 5}


def test_a_process_that_ends_is_a_violation(monkeypatch, tmp_path):
    script = tmp_path / "ends.py"
    script.write_text("import os\nos.abort()\n")
    monkeypatch.setattr(run, "__file__", str(script))
    found = run.run_apart("texts", 3, 1, 1.0)
    assert "ended with status -6" in found["violations"][0]["what"]


def test_cases_are_repeatable_and_leave_no_setting_behind():
    before = mpmath.mp.dps
    assert short_pass("texts").checks == short_pass("texts").checks
    assert mpmath.mp.dps == before and Case(3).rng.random() == random.Random(3).random()
