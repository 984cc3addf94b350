"""One count of work ends a search, at the same place on every machine and whatever was asked before."""

import math

import pytest

import transformula as tf
from transformula import compiling, limits
from transformula.errors import NotProvenError
from transformula.kernel import work
from transformula.limits import OutOfWork, checkpoint, left, limited, part_of_the_rest, remembered


def test_work_ends_at_a_checkpoint() -> None:
    with limited(3.0):
        work.spend(2.0e6)
        checkpoint()
        assert left() == pytest.approx(1e6)
        work.spend(1.5e6)
        assert left() == 0.0
        with pytest.raises(OutOfWork):
            checkpoint()
    checkpoint()
    assert left() == math.inf


def test_a_part_is_a_part_of_what_is_left() -> None:
    with limited(4.0):
        work.spend(2e6)
        with part_of_the_rest(0.5):
            assert left() == pytest.approx(1e6)
            with part_of_the_rest(0.5):
                work.spend(0.6e6)
                with pytest.raises(OutOfWork):
                    checkpoint()
            checkpoint()
        assert left() == pytest.approx(1.4e6)
    with part_of_the_rest(0.5):
        assert left() == math.inf


def test_the_work_of_proofs_counts_for_the_search() -> None:
    with limited(5.0):
        with work.limited(1e6):
            work.spend(0.75e6)
            assert left() == pytest.approx(4.25e6)
        assert left() == pytest.approx(4.25e6)


def test_what_is_refused_is_not_done_and_does_not_count() -> None:
    with limited(5.0):
        with work.limited(1e6), pytest.raises(tf.errors.RefutedError, match="too much work"):
            work.spend(1e12)
        assert left() == pytest.approx(5e6)


def test_what_is_remembered_counts_as_when_it_was_done() -> None:
    calls = []

    @remembered(2)
    def found(x: int) -> int:
        calls.append(x)
        work.spend(1e6 * x)
        return 10 * x

    for _ in range(3):
        with limited(9.0):
            assert [found(1), found(2), found(1)] == [10, 20, 10]
            assert left() == pytest.approx(5e6)
    assert calls == [1, 2]
    assert found(3) == 30 and found(1) == 10 and calls == [1, 2, 3]


def test_a_construction_leaves_work_for_the_next(monkeypatch) -> None:
    """The circuit gets four fifths, and the lookup is still tried with the rest."""
    monkeypatch.setattr(compiling, "SECONDS", 0.4)
    tried = []
    first_proven = compiling._Search.first_proven

    def counted(search, construction, options):
        tried.append((construction.name, left()))
        return first_proven(search, construction, options)

    monkeypatch.setattr(compiling._Search, "first_proven", counted)
    with pytest.raises(NotProvenError):
        tf.compile("sin(2*x*y)*exp(z)", "x=0..1, y=0..1, z=0..1", 1e-5)
    assert [name for name, _ in tried] == ["circuit", "lookup", "partition"]
    assert tried[0][1] == pytest.approx(0.8 * 0.4e6, rel=0.1) and tried[1][1] > 0


HOPELESS = "exp(-x*y)*sin(3*x + y)", "x=0..1, y=0..1", 3e-6


def test_a_refusal_says_how_close_it_came_and_does_not_depend_on_what_was_asked_before() -> None:
    said = []
    for _ in range(2):
        with pytest.raises(NotProvenError) as caught:
            tf.compile(*HOPELESS, dtype="float32", construction="circuit")
        said.append((caught.value.best_bound, str(caught.value)))
    assert said[0] == said[1] and 3e-6 < said[0][0] < 1e-4


def test_larger_formulas_may_take_more() -> None:
    usual = [
        compiling._usual_seconds(compiling._read(f, compiling.box_of(on)))
        for f, on in (("x", "x=0..1"), ("x1", "x1..x12=0..1"), (["x"] * 18, "x=0..1"), ("x1", "x1..x600=0..1"))
    ]
    assert usual == [compiling.SECONDS, 2 * compiling.SECONDS, 3 * compiling.SECONDS, compiling._MOST_SECONDS]


def test_a_longer_time_limit_allows_more_work(monkeypatch) -> None:
    seen = []
    monkeypatch.setattr(compiling._Search, "run", lambda search, options: seen.append(left()))
    tf.compile("x", "x=0..1", time_limit=1000)
    tf.compile("x", "x=0..1", time_limit=1)
    assert seen[0] == pytest.approx(1000 * limits.SECOND, rel=1e-3)
    assert seen[1] == pytest.approx(compiling.SECONDS * limits.SECOND, rel=1e-3)
