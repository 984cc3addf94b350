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
from transformula.kernel.folder.certificate import Proof
from transformula.kernel.folder.description import STATES
from transformula.kernel.rules.rule_table import RULES, target
from transformula.kernel.structures.ridge_blocks import read_ridge


def _ends(formula) -> tuple[fmpq, fmpq]:
    return range_of(formula.outputs[0], Region.of_box(formula.box).ends)


def constant_attempts(task: BuildTask) -> Iterator[Attempt]:
    """One model: the middle of the formula's range."""
    low, high = _ends(task.ground.defined)
    zero = (0,) * task.formula.box.dimension
    for weights in weights_from_terms([{zero: (low + high) / 2}], task.formula.box, task.options.dtype, False):
        yield Attempt(CONSTANT, partial(Built, weights))


CONSTANT = Construction(
    "constant", "a constant", RIDGE_FAMILY, "The formula's range was enclosed.", attempts=constant_attempts
)


def prove_constant(weights, stated, evidence) -> Proof:
    """The kernel's rule: no direction counts, and the range of the formula lies around the bias."""
    ridge = read_ridge(weights)
    if any(ridge.terms.values()):
        raise RefutedError("the weights are not those of a constant")
    low, high = _ends(target(stated))
    return Proof(float_above(max(high - ridge.bias[0], ridge.bias[0] - low)), 0.0)


@pytest.fixture
def constant(monkeypatch):
    """The three places that a construction needs, in this process."""
    monkeypatch.setitem(STATES, "constant", STATES["polynomial"])
    monkeypatch.setitem(RULES, "constant", prove_constant)
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


def test_it_is_gone_again() -> None:
    with pytest.raises(InputError, match="unknown construction"):
        tf.compile("sin(x)", "x=0..1", construction="constant")
