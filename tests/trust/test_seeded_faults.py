"""The kernel refuses every wrong model: deliberate faults of the untrusted code, each applied in turn.

While a fault is active, formulas that exercise it are compiled. A fallback to another attempt might hide a fault, so
every attempt is proven on its own, whatever the bound, and what is proven must be true: an evaluator that shares
nothing with the package (benchmarks/truth.py: Python's parser, mpmath) compares the formula, from its text, with what
the weights compute. And every fault must be live: the files that come out differ, byte for byte, or a refusal does.
"""

from dataclasses import replace
from functools import lru_cache

import mpmath
import numpy as np
import pytest

import transformula as tf
from support.faults import CASES, CONSTRUCTIONS, FAULTS, REWRITING, SEARCHING, active, forget
from transformula.compiler import circuit, policy
from transformula.compiler import driver as attempting
from transformula.compiler.circuit import Mode
from transformula.errors import NotProvenError, TransformulaError
from transformula.kernel.structures.stored_circuit import Measure
from transformula.runtime import reference
from truth import Domain, Truth

POINTS = 80
#: A tolerance that any proof meets: what is proven is the claim, however large.
ANY = 1e300


@lru_cache
def wanted(case):
    """Points of a case's box, and what its formulas are there; None where one is undefined."""
    texts, box, *_ = CASES[case]
    domain = Domain(box)
    points = domain.points(np.random.default_rng(len(case)), POINTS)
    truths = [Truth(text, domain.names) for text in ([texts] if isinstance(texts, str) else texts)]
    return points, [[truth.at(p) for truth in truths] for p in points]


def worst_error(model, case):
    """The largest |computed − formula| at the points: by the blocks as they are defined, and by the fast way."""
    points, values = wanted(case)
    if any(value is None for row in values for value in row):
        return float("inf")  # nothing is true of a formula that is undefined
    ways = [reference.run(model.weights, points), np.asarray(model(points)).reshape(len(points), -1)]
    with mpmath.workdps(60):
        return max(
            float(abs(mpmath.mpf(found) - exact)) if np.isfinite(found) else float("inf")
            for way in ways
            for row, truths in zip(way.tolist(), values, strict=True)
            for found, exact in zip(row, truths, strict=True)
        )


def compiled(case):
    """What was said of each attempt: a refusal, or the hashes of files whose claim was found to be true.

    And whether a model within the tolerance came out.
    """
    texts, box, construction, eps, more = CASES[case]
    package, said = attempting.package, []

    def packaged(kind, built, formula, options):
        try:
            model = package(kind, built, formula, replace(options, eps=ANY))
        except TransformulaError as error:
            said.append(f"{type(error).__name__}: {error}")
            raise
        said.append(str(model.packed.hashes))
        assert worst_error(model, case) <= model.certificate.bound, f"a false certificate for {case}"
        assert tf.verify(model).verified
        if not model.certificate.bound <= options.eps:
            raise NotProvenError("not close enough", best_bound=model.certificate.bound)
        return model

    attempting.package = packaged
    try:
        tf.compile(texts, on=box, construction=construction, eps=eps, **more)
    except TransformulaError as error:
        return (*said, f"{type(error).__name__}: {error}"), False
    finally:
        attempting.package = package
    return tuple(said), True


@lru_cache
def sound(case):
    """What is said without any fault."""
    forget(deep=True)
    return compiled(case)


@pytest.fixture(autouse=True)
def few(monkeypatch, no_advice):
    """Fewer attempts and folds of a length than usual, and less work after a failure: refusals take about a second."""
    monkeypatch.setattr(circuit, "SPLITS", circuit.SPLITS[:1])
    monkeypatch.setattr(circuit, "_MODES", (Mode(Measure(9)),))
    monkeypatch.setattr(policy, "MOST_FOLDS", {"float64": 9, "float32": 9})
    monkeypatch.setattr(policy, "FINER_CELLS", policy.FINER_CELLS[:2])
    monkeypatch.setattr(policy, "FINER_LOCAL_CELLS", policy.FINER_LOCAL_CELLS[:1])
    monkeypatch.setattr(policy, "LOOKUP_SHARES", policy.LOOKUP_SHARES[:1])
    monkeypatch.setattr(policy, "AFTER_FAILURE", 1.0)
    monkeypatch.setattr(policy, "REFUSED", 1.0)


def test_there_are_enough_faults():
    assert len(FAULTS) >= 45 and min(map(len, (REWRITING, SEARCHING, CONSTRUCTIONS))) >= 15
    assert sum(not fault.harmless for fault in FAULTS) >= 100
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert {case for fault in FAULTS for case in fault.cases.split()} <= set(CASES)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_kernel_refuses_every_wrong_model(fault):
    for case in fault.cases.split():
        before, _ = sound(case)
        with active(fault):
            after, came_out = compiled(case)
        assert after != before, f"the fault changes nothing in {case}: {before}"
        # every model that came out was checked where it was made: its claim is true, whatever the fault
        assert fault.harmless or not came_out, f"a model of {case} within the tolerance came out"
