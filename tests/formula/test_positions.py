"""One formula at every position of a sequence, and back again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.prover import random_formula
from transformula.compiler.attempts import at_every_position
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.syntax.boxes import Formula, formula_of_a_position


def _of_first(formula):
    """The formula in the names that its first copy gets."""
    names = formula.box.variables
    box = {
        f"{n}_1": ends for n, ends in zip(names, zip(formula.box.lower, formula.box.upper, strict=True), strict=True)
    }
    one = at_every_position(formula, 1)
    assert one.box.variables == tuple(box)
    return one


@given(seed=st.integers(0, 500), positions=st.integers(1, 5), outputs=st.integers(1, 3))
def test_there_and_back(seed, positions, outputs):
    names = ["a", "b", "c"][: 1 + seed % 3]
    texts = [str(random_formula(seed + k, names)) for k in range(outputs)]
    formula = Formula.of(texts, ", ".join(f"{n}=-1..{k + 1}" for k, n in enumerate(names)))
    many = at_every_position(formula, positions)
    assert len(many.outputs) == outputs * positions and many.box.dimension == len(names) * positions
    assert formula_of_a_position(many, positions) == _of_first(formula)


def test_copies_are_side_by_side():
    many = at_every_position(Formula.of(["x + 2*y", "sin(y)"], "x=0..1, y=-1..pi"), 2)
    assert many.box.variables == ("x_1", "y_1", "x_2", "y_2")
    assert str(many) == "x_1 + 2*y_1; sin(y_1); x_2 + 2*y_2; sin(y_2)"
    assert many.box.lower[:2] == many.box.lower[2:] and many.box.upper[:2] == many.box.upper[2:]


def test_names_that_look_like_copies():
    """x_1 and x together: the copies x_1_1 and x_1 must not meet."""
    many = at_every_position(Formula.of("x_1 - 3*x", "x_1=0..1, x=0..2"), 2)
    assert len(set(many.box.variables)) == 4
    assert str(many) == "x_1_1 - 3*x_1; x_1_2 - 3*x_2"
    assert str(formula_of_a_position(many, 2)) == "x_1_1 - 3*x_1"


@pytest.mark.parametrize(
    ("texts", "box", "positions"),
    [
        (["sin(a)", "cos(b)"], "a=0..1, b=0..1", 2),
        (["sin(a)", "sin(a)"], "a=0..1, b=0..1", 2),
        (["sin(b)", "sin(a)"], "a=0..1, b=0..1", 2),
        (["sin(a) + b", "sin(b) + b"], "a=0..1, b=0..1", 2),
        (["sin(a) + b", "sin(b) + a"], "a=0..1, b=0..1", 2),
        (["sin(a)", "sin(b)"], "a=0..1, b=0..2", 2),
        (["sin(a)", "sin(b)"], "a=-1..1, b=0..1", 2),
        (["sin(a)", "sin(b)", "sin(c)"], "a=0..1, b=0..1, c=0..1", 2),
        (["sin(a)", "sin(b)", "a*b"], "a=0..1, b=0..1", 2),
        (["a + b", "c + d"], "a=0..1, b=0..1, c=0..1, d=0..1", 4),
    ],
)
def test_positions_that_differ(texts, box, positions):
    known = box.split(", ")
    used = [b for b in known if any(b.split("=")[0] in t for t in texts)]
    with pytest.raises(RefutedError, match="the formulas differ"):
        formula_of_a_position(Formula.of(texts, ", ".join(used)), positions)


def test_one_position_is_the_formula_itself():
    formula = Formula.of(["sin(a)*b", "a"], "a=0..1, b=0..2")
    assert formula_of_a_position(formula, 1) == formula
