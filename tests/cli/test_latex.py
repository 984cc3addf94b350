"""Formulas in LaTeX on the command line: how they were read is shown, and nothing is guessed."""

import json
import re

import transformula as tf


def test_compile_shows_how_the_formula_was_read(cli, tmp_path):
    made = cli(
        "compile",
        "--latex",
        r"\frac{\ln x}{x_{1}}",
        "--on",
        "x=1..2, x_1=1..2",
        "--eps",
        "1e-2",
        "--out",
        str(tmp_path / "m"),
    )
    assert made.code == 0 and re.search(r"^  read as +log\(x\)/x_1$", made.out, re.M)
    assert tf.verify(tmp_path / "m").verified
    facts = json.loads(cli("compile", "--latex", r"f(x) = \tfrac12 x^2", "x", "--on", "x=1..2", "--json").out)
    assert facts["read_as"] == ["1/2*x**2", "x"]
    assert json.loads(cli("compile", "x", "--on", "x=1..2", "--json").out)["read_as"] is None
    assert "read as" not in cli("compile", "x", "--on", "x=1..2").out


def test_compile_refuses_what_it_would_have_to_guess(cli):
    refused = cli("compile", "--latex", r"\ln x / x", "--on", "x=1..2", "--json")
    assert refused.code == 2 and r"\ln(x) / x or \ln(x / x)" in json.loads(refused.out)["error"]
    refused = cli("compile", "--latex", "x + y", "--on", "x=1..2")
    assert refused.code == 2 and refused.out == "" and "the box has no interval for y" in refused.err
    refused = cli("compile", "--latex", "2ab", "--on", "ab=1..2")
    assert refused.code == 2 and r"write \mathrm{ab} or a \cdot b" in refused.err and refused.err.count("\n") == 1


def test_names_are_shared_by_the_formulas_of_a_model(cli):
    refused = cli("compile", "--latex", r"x_{max}", r"x_{\mathrm{max}}", "--on", "x_max=0..1")
    assert refused.code == 2 and "would both become the variable x_max" in refused.err
    facts = json.loads(cli("compile", "--latex", r"x_{max}", r"x_{max}^2", "--on", "x_max=0..1", "--json").out)
    assert facts["formula"] == ["x_max", "x_max**2"]
