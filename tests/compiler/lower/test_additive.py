"""How formulas fall apart: the pieces add up to the formula, exactly, and are as small as they can be."""

from fractions import Fraction

import pytest
from flint import arb

from support.prover import random_formula
from transformula.compiler.lower.additive import as_affine, decompose, primitive_form
from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose, to_fmpq
from transformula.kernel.syntax.parsing import parse


def _affine(piece, point):
    total = enclose(piece.constant)
    for coefficient, x in zip(piece.form, point, strict=True):
        total += arb(to_fmpq(coefficient)) * x
    return total


def _sum(pieces, point):
    total = _affine(pieces.affine, point)
    for kink in pieces.abs_terms:
        total += enclose(kink.coefficient) * abs(_affine(kink.inside, point))
    for part in pieces.parts:
        forms = [sum((arb(to_fmpq(c)) * x for c, x in zip(f, point, strict=True)), arb(0)) for f in part.forms]
        total += enclose(part.expr, {f"u{k + 1}": v for k, v in enumerate(forms)})
    return total


@pytest.mark.parametrize("seed", range(60))
def test_the_pieces_add_up_to_the_formula(seed):
    names = ("x", "y", "z")[: 1 + seed % 3]
    expr = random_formula(seed, names)
    pieces = decompose(expr, names)
    with precision(200):
        for k in range(4):
            point = [arb(Fraction(7 * k + 3 * i - 5, 6 + i).numerator) / (6 + i) for i in range(len(names))]
            wanted = enclose(expr, dict(zip(names, point, strict=True)))
            assert abs(_sum(pieces, point) - wanted) < 1e-40, str(expr)


@pytest.mark.parametrize(
    ("text", "affine", "kinks", "parts"),
    [
        ("sin(x) + sin(y)", (0, 0), 0, [1, 1]),
        ("sin(x + y) + sin(2*x + 2*y + 1)", (0, 0), 0, [1]),
        ("sin(x + y) + cos(x - y)", (0, 0), 0, [1, 1]),
        ("2*x - y/3 + pi", (2, Fraction(-1, 3)), 0, []),
        ("3*(x + sin(y)) - 3*x", (3, 0), 0, [1]),
        ("abs(x - y) + max(x, 2*y)", (Fraction(1, 2), 1), 2, []),
        ("pi*abs(x) + min(x, y)/2", (Fraction(1, 4), Fraction(1, 4)), 2, []),
        ("x*y", (0, 0), 0, [2]),
        ("x*y + exp(x)*y + y**2", (0, 0), 0, [2, 1]),
        ("abs(sin(x)) + y", (0, 1), 0, [1]),
        ("min(x, y, 1)", (0, 0), 0, [2]),
        ("sin(x)/pi + (x + y)/2", (Fraction(1, 2), Fraction(1, 2)), 0, [1]),
        ("x - x + cos(y - y)*(y + 1 - y) + sin(x)", (0, 0), 0, [1]),
        ("sin(0*x + y)", (0, 0), 0, [1]),
    ],
)
def test_parts_depend_on_few_forms(text, affine, kinks, parts):
    pieces = decompose(parse(text, ("x", "y")), ("x", "y"))
    assert sorted(len(p.forms) for p in pieces.parts) == sorted(parts)
    assert len(pieces.abs_terms) == kinks
    if text != "3*(x + sin(y)) - 3*x":
        assert pieces.affine.form == affine


def test_parts_remember_the_users_variables():
    (part,) = decompose(parse("exp(3*a + b)"), ("a", "b")).parts
    assert str(part.expr) == "exp(u1)" and str(part.original) == "exp(3*a + b)"


def test_what_is_affine_and_what_is_not():
    names = ("x", "y")
    assert as_affine(parse("2*(x - y/3) + 1/7"), names).form == (2, Fraction(-2, 3))
    assert as_affine(parse("sqrt(2) + pi", names), names).is_constant
    for text in ("x*y", "x**2", "abs(x)", "pi*x", "1/x"):
        assert as_affine(parse(text, names), names) is None


def test_forms_are_whole_numbers_without_a_common_factor():
    assert primitive_form((Fraction(-2, 3), Fraction(4, 9))) == ((3, -2), Fraction(-2, 9))
    assert primitive_form((Fraction(0), Fraction(5))) == ((0, 1), 5)
