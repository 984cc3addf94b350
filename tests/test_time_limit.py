"""A search that has to end says what it has found by then."""

import time

import numpy as np
import pytest

from transformula import api as compiling
from transformula.budget import OutOfTime, checkpoint, limited
from transformula.compiler import driver, policy
from transformula.compiler.evidence.definedness import find_defined
from transformula.compiler.evidence.range_trees import find_parts, find_sign_tree, find_tree
from transformula.compiler.tables.grid_fit import fit_grid
from transformula.compiler.tables.smallest_table import fit_table
from transformula.errors import InputError, NotProvenError
from transformula.formula import parse
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.syntax.boxes import Box

REGION = Region.of_box(Box.of("x=0..1, y=0..1"))
SEARCHES = {
    "a table": lambda: fit_table(np.exp, 0.0, 1.0, 1e-6),
    "a grid": lambda: fit_grid(lambda x, y: np.exp(-x * y), (0.0, 0.0), (1.0, 1.0), 1e-3, max_tokens=2000),
    "parts of the box": lambda: find_parts(lambda a, b: (b - a).sum(axis=0), np.zeros(2), np.ones(2)),
    "a range": lambda: find_tree(parse("x*y - x**2*y**2"), REGION),
    "a sign": lambda: find_sign_tree(parse("x*y - x**2*y**2 + 1/100"), REGION),
    "definedness": lambda: find_defined(parse("1/(1 + x*y)"), REGION),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_ends_in_time(name):
    SEARCHES[name]()
    with pytest.raises(OutOfTime), limited(1e9, time_limit=1e-9):
        SEARCHES[name]()
    SEARCHES[name]()


def _ends_with(monkeypatch, *ends):
    """Let the attempts end in these ways, one after the other."""
    coming, package = iter(ends), driver.package

    def packaged(*arguments):
        end = next(coming)
        if end is not None:
            raise end
        return package(*arguments)

    monkeypatch.setattr(driver, "package", packaged)


def test_a_part_of_the_time_is_kept_for_a_bound(monkeypatch):
    """Whatever takes long is stopped before the time is up, and a coarse model is proven with the rest."""

    def endless(*_arguments):
        while True:
            checkpoint()
            time.sleep(0.01)

    monkeypatch.setattr(driver.Search, "compete", endless)
    monkeypatch.setattr(policy, "IN_TIME", 0.02)
    with pytest.raises(
        NotProvenError, match="the search was ended after 20 s: the best bound proven so far is"
    ) as error:
        compiling.compile("x/y", "x=1..2, y=1..2", 1e-9, "circuit", "float32", time_limit=20)
    assert 1e-9 < error.value.best_bound < 1e-2


def test_a_coarse_model_that_happens_to_be_close_is_the_answer(monkeypatch):
    monkeypatch.setattr(driver.Search, "compete", lambda search, *_: search.note(CLOSE))
    model = compiling.compile("sin(x*y)", on="x=0..1, y=0..1", eps=1e-2)
    assert model.certificate.eps == 1e-2 >= model.certificate.bound and model.status == "proven"


CLOSE = NotProvenError("close", best_bound=0.25, place="x = 1/2", rounding=1e-9)
CLOSER = NotProvenError("closer", best_bound=0.125, place="x = 1/4", rounding=1e-9)


def test_when_the_time_is_up_the_best_bound_is_said(monkeypatch):
    _ends_with(monkeypatch, CLOSE, CLOSER, *[OutOfTime()] * 9)
    with pytest.raises(NotProvenError) as error:
        compiling.compile("sin(x)", on="x=0..1", eps=1e-2, time_limit=60)
    assert error.value.best_bound == 0.125 and error.value.place == "x = 1/4"
    said = "the search was ended after 60 s: the best bound proven so far is 0.125 (x = 1/4); "
    assert said in str(error.value) and "allow more time than time_limit=60" in str(error.value)


def test_a_model_that_is_proven_by_then_is_the_answer(monkeypatch):
    _ends_with(monkeypatch, None, OutOfTime())
    model = compiling.compile("sin(x*y)", on="x=0..1, y=0..1", eps=1e-2, time_limit=60)
    assert model.construction == "circuit" and model.certificate.bound <= 1e-2


def test_a_limit_that_nothing_meets():
    with pytest.raises(NotProvenError, match="no model is proven so far, and the formula itself stays within") as error:
        compiling.compile("sin(x*y)", on="x=0..1, y=0..1", eps=1e-2, time_limit=1e-9)
    assert 0.42 <= error.value.best_bound <= 0.51 and "allow more time than time_limit=1e-09" in str(error.value)
    assert compiling.compile("x*y", on="x=0..1, y=0..1", time_limit=600).construction == "polynomial"


@pytest.mark.parametrize("limit", [0, -1, float("nan"), float("inf"), "3"])
def test_a_limit_is_a_number_above_zero(limit):
    with pytest.raises(InputError, match="time_limit must be a number above 0"):
        compiling.compile("x", on="x=0..1", time_limit=limit)


def test_an_interrupt_carries_the_best_bound(monkeypatch):
    _ends_with(monkeypatch, CLOSE, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt, match=r"interrupted: the best bound proven so far is 0\.25"):
        compiling.compile("sin(x)", on="x=0..1", eps=1e-2)
