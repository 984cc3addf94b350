"""Functions that the parser writes out: values against mpmath, names of variables, what is refused."""

from __future__ import annotations

import mpmath
import pytest
from flint import arb, fmpq

import transformula as tf
from transformula.formula.sample_target import shown
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.exceptions import FormulaError, NotProvenError
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.definitions import ALIASES, DEFINITIONS, JUMPING, JUMPS, POLYNOMIALS, known
from transformula.kernel.syntax.parsing import parse
from truth import PRECISE, Truth

#: Places at which a function of one argument is tried; of two, all pairs.
PLACES = [fmpq(n, 16) for n in (-37, -16, -9, -3, 1, 5, 12, 20, 51)]


def value_of(text, at):
    """By the kernel, and by mpmath from the text; None where there is none."""
    with precision(120):
        found = enclose(parse(text), {name: arb(x) for name, x in at.items()})
    wanted = Truth(text, list(at)).at([float(int(x.p) / int(x.q)) for x in at.values()])
    return found if found.is_finite() else None, wanted


@pytest.mark.parametrize("name", [*DEFINITIONS, *POLYNOMIALS])
def test_definitions_have_the_values_of_mpmath(name):
    two = name in ("pow", "hypot", "atan2", "beta")
    texts = (
        [f"{name}({n}, x)" for n in (0, 1, 2, 7)]
        if name in POLYNOMIALS
        else [f"{name}({'x, y' if two else 'x, -1, 2' if name == 'clip' else 'x'})"]
    )
    compared = 0
    for text in texts:
        for at in [{"x": x, "y": y} if two else {"x": x} for x in PLACES for y in (PLACES if two else PLACES[:1])]:
            found, wanted = value_of(text, at)
            if found is None or wanted is None:
                assert found is None, (text, at, "has a value, but not for mpmath")
                continue
            compared += 1
            with precision(120):
                slack = mpmath.nstr((1 + abs(wanted)) * mpmath.mpf(10) ** -25, 5)
                assert found.overlaps(arb(mpmath.nstr(wanted, 40), slack)), (text, at)
    assert compared >= 3


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_is_the_same(alias):
    args = {"pow": "x, y", "min": "x, y", "max": "x, y", "atan2": "x, y", "mod": "x, y", "clip": "x, 1, 2"}.get(
        ALIASES[alias]
    )
    args = args or ("2, x" if ALIASES[alias] in ("besselj", "bessely", "besseli", "besselk", "chebyshevt") else "x")
    assert parse(f"{alias}({args})", None, True) == parse(f"{ALIASES[alias]}({args})", None, True)


def test_everything_known_has_a_value_in_mpmath():
    assert set(known()) <= set(PRECISE)


def test_a_function_is_stored_and_shown_as_it_was_typed():
    formula = Formula.of("sigmoid(x) + j0(x)", "x=0..1")
    assert formula.typed == ("sigmoid(x) + j0(x)",)
    assert parse(str(formula), ["x"]) == formula.outputs[0]
    assert shown(formula) == ["sigmoid(x) + j0(x)"] and shown(Formula.of("0.5*x", "x=0..1")) == ["0.5*x"]
    assert shown(Formula(formula.outputs, formula.box)) == [str(formula)]


@pytest.mark.parametrize("name", [n for n in (*known(), *ALIASES, *JUMPS, *JUMPING) if n not in ex.RESERVED])
def test_names_of_functions_are_variables_unless_a_bracket_follows(name):
    assert Formula.of(f"2*{name} + 1", f"{name}=0..1").outputs[0].names == {name}
    if name in ex.FUNCTIONS:
        assert Formula.of(f"{name}*{name}({name})", f"{name}=1..2").outputs[0].args[1].op == name


@pytest.mark.parametrize("name", (*JUMPS, *JUMPING))
def test_what_jumps_is_refused_where_there_is_no_box(name):
    with pytest.raises(FormulaError, match=f"{name} jumps, and only continuous functions fit here"):
        parse(f"{name}(x)")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("besselj(x, 2)", "first argument of besselj is a whole number or a half from -50 to 50"),
        ("besselj(1/3, x)", "whole number or a half"),
        ("besselk(51, x)", "whole number or a half"),
        ("legendre(1/2, x)", "first argument of legendre is a whole number from 0 to 50"),
        ("hermite(-1, x)", "whole number from 0"),
        ("laguerre(10**9, x)", "whole number from 0"),
        ("hypot(x)", "hypot takes two arguments, not 1"),
        ("gelu(x, y)", "gelu takes one argument, not 2"),
        ("besselj(x)", "besselj takes two arguments, not 1"),
        ("gelu(" * 40 + "x" + ")" * 40, "too long once its functions are written out"),
        ("hermite(50, " * 6 + "x" + ")" * 6, "too long once|too large"),
    ],
)
def test_a_wrong_call_gets_one_sentence(text, said):
    with pytest.raises(FormulaError, match=said) as refused:
        parse(text)
    assert len(str(refused.value)) < 300 and "\n" not in str(refused.value)


def test_the_branch_cut_of_atan2_is_refused():
    for x, y in ((-1, 0), (0, 0)):
        assert not enclose(parse("atan2(y, x)"), {"x": arb(x), "y": arb(y)}).is_finite()
    with precision(100):
        assert enclose(parse("atan2(1, -1)")).overlaps(3 * arb.pi() / 4)


@pytest.mark.parametrize("text", ["x + legendre(0, log(x))", "x + hermite(0, 1/x)", "x*chebyshevu(0, sqrt(x))"])
def test_a_polynomial_of_degree_zero_keeps_the_domain_of_its_argument(text):
    with pytest.raises(NotProvenError, match="undefined"):
        tf.compile(text, on="x=-1..1", eps=1e-2)
