"""A new construction: its own functions, an entry in the registry, and a rule of the kernel. Nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from flint import fmpq

import transformula as tf
from transformula.compiler.attempts import Attempt, BuildTask, Built
from transformula.compiler.constructions import CONSTRUCTIONS, RIDGE_FAMILY, Construction, register
from transformula.compiler.polynomial import weights_from_terms
from transformula.errors import InputError, NotProvenError
from transformula.kernel.check import verify_folder
from transformula.kernel.enclosures.balls import float_above
from transformula.kernel.enclosures.intervals import range_of
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.exceptions import RefutedError
from transformula.kernel.folder.description import STATES, Proof
from transformula.kernel.rules.polynomial_rule import checked_ridge, ridge_rounding
from transformula.kernel.rules.rule_table import RULES, checked_target


def _ranges(formula) -> list[tuple[fmpq, fmpq]]:
    ends = Region.of_box(formula.box).ends
    return [range_of(expr, ends) for expr in formula.outputs]


def constant_attempts(task: BuildTask) -> Iterator[Attempt]:
    """One model: the middle of each output's range."""
    zero = (0,) * task.formula.box.dimension
    terms = [{zero: (low + high) / 2} for low, high in _ranges(task.ground.defined)]
    for weights in weights_from_terms(terms, task.formula.box, task.options.dtype, multi_head=False):
        yield Attempt(CONSTANT, partial(Built, weights))


CONSTANT = Construction(
    "constant", "a constant", RIDGE_FAMILY, "The formula's range was enclosed.", attempts=constant_attempts
)


def prove_constant(weights, formula) -> Proof:
    """The kernel's rule: every output is a constant, and the range of its formula lies around that."""
    ridge = checked_ridge(weights)
    if any(ridge.terms.values()):
        raise RefutedError("the weights are not those of a constant")
    pairs = zip(_ranges(formula), ridge.bias, strict=True)
    error = max(max(high - c, c - low) for (low, high), c in pairs)
    return Proof(float_above(error), ridge_rounding(ridge, formula.box))


@pytest.fixture
def constant(monkeypatch):
    """The three places that a construction needs, in this process."""
    monkeypatch.setitem(STATES, "constant", STATES["polynomial"])
    monkeypatch.setitem(
        RULES, "constant", lambda weights, stated, _: prove_constant(weights, checked_target(weights, stated))
    )
    register(CONSTANT)
    yield CONSTANT
    del CONSTRUCTIONS["constant"]


def test_a_construction_is_added(constant, tmp_path) -> None:
    model = tf.compile("sin(x)", "x=0..1", eps=0.5, construction="constant")
    assert model.construction == "constant" and model.made_by is constant
    assert 0.42 < model.certificate.bound <= 0.5
    assert abs(model([0.3]) - 0.42) < 0.01
    folder = model.save(tmp_path / "model")
    assert tf.load(folder).status == "proven" and verify_folder(folder).verified
    with pytest.raises(NotProvenError, match=r"eps = 0\.1 is not proven: the best bound is 0\.42"):
        tf.compile("sin(x)", "x=0..1", eps=0.1, construction="constant")
    with pytest.raises(InputError, match="sequences need the construction"):
        tf.compile(["sin(x)"], "x=0..1", eps=0.5, construction="constant", shape=(1, 1))


def test_its_rule_counts_rounding_and_every_output(constant) -> None:
    """A third is no float, and a second output is not nearly constant."""
    with pytest.raises(NotProvenError, match="is not proven: the best bound is"):
        tf.compile("1/3 + 0*x", "x=0..1", eps=1e-30, construction="constant")
    with pytest.raises(NotProvenError, match="the best bound is 50"):
        tf.compile(["1/3 + 0*x", "100*x"], "x=0..1", eps=1e-3, construction="constant")


def test_it_is_gone_again() -> None:
    with pytest.raises(InputError, match="unknown construction"):
        tf.compile("sin(x)", "x=0..1", construction="constant")
