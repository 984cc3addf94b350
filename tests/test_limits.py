"""One count of work ends a search, at the same place on every machine and whatever was asked before."""

import math

import pytest

import transformula as tf
from transformula import budget as limits
from transformula.budget import OutOfWork, checkpoint, counting, left, limited, part_of_the_rest, remembered, spend
from transformula.compiler import driver, policy
from transformula.compiler.attempts import Attempt, BuildTask, Options
from transformula.compiler.constructions import CIRCUIT, CONSTRUCTIONS
from transformula.compiler.evidence import finder
from transformula.compiler.prepare import Prepared
from transformula.compiler.refusal import Ending, when_refuted
from transformula.errors import NotProvenError, Reason, RefutedError, advice_of
from transformula.kernel.syntax.boxes import Box, Formula


def test_work_ends_at_a_checkpoint() -> None:
    with limited(3.0):
        spend(2.0e6)
        checkpoint()
        assert left() == pytest.approx(1e6)
        spend(1.5e6)
        assert left() == 0.0
        with pytest.raises(OutOfWork):
            checkpoint()
    checkpoint()
    assert left() == math.inf


def test_a_part_is_a_part_of_what_is_left() -> None:
    with limited(4.0):
        spend(2e6)
        with part_of_the_rest(0.5):
            assert left() == pytest.approx(1e6)
            with part_of_the_rest(0.5):
                spend(0.6e6)
                with pytest.raises(OutOfWork):
                    checkpoint()
            checkpoint()
        assert left() == pytest.approx(1.4e6)
    with part_of_the_rest(0.5):
        assert left() == math.inf


def test_work_that_is_counted_inside_counts_outside_too() -> None:
    with limited(5.0):
        with counting() as spent:
            spend(0.75e6)
            assert spent() == pytest.approx(0.75e6) and left() == pytest.approx(4.25e6)
        assert left() == pytest.approx(4.25e6)
    assert left() == math.inf


def test_the_search_for_one_proof_may_take_a_part_of_the_work(monkeypatch) -> None:
    """More is a refusal of this attempt, not the end of the search."""
    monkeypatch.setattr(policy, "USUAL_SEARCH", 10.0)
    monkeypatch.setattr(policy, "SEARCH_PART", 0.0)
    monkeypatch.setattr(policy, "AFTER_FAILURE", 0.0)
    with pytest.raises(NotProvenError, match="no model is proven so far"):
        tf.compile("sin(x)", "x=0..1", 1e-3, construction="lookup")


def test_a_model_that_takes_long_to_check_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(finder, "_MAX_CHECK", 1000.0)
    with pytest.raises(NotProvenError, match="to check this model would take too much work"):
        tf.compile("sin(x)", "x=0..1", 1e-3, construction="lookup")


def test_what_is_remembered_counts_as_when_it_was_done() -> None:
    calls = []

    @remembered(2)
    def found(x: int) -> int:
        calls.append(x)
        spend(1e6 * x)
        return 10 * x

    for _ in range(3):
        with limited(9.0):
            assert [found(1), found(2), found(1)] == [10, 20, 10]
            assert left() == pytest.approx(5e6)
    assert calls == [1, 2]
    assert found(3) == 30 and found(1) == 10 and calls == [1, 2, 3]


def test_a_limit_inside_another_ends_with_it_and_may_be_moved() -> None:
    with limited(4.0) as outer, limited(9.0) as inner:
        assert left() == pytest.approx(4e6)
        inner.after(3.0)
        assert left() == pytest.approx(3e6)
        inner.after(9.0)
        spend(1e6)
        outer.after(2.0)
        assert left() == pytest.approx(1e6)
        spend(1.5e6)
        with pytest.raises(OutOfWork):
            checkpoint()


def test_a_construction_leaves_work_for_the_next(monkeypatch) -> None:
    """The circuit gets nine tenths, and the lookup is still tried with the rest."""
    monkeypatch.setattr(policy, "ALL", 0.4)
    monkeypatch.setattr(policy, "KEPT", 0.0)
    monkeypatch.setattr(policy, "AFTER_FAILURE", 0.0)
    monkeypatch.setattr(policy, "LEAST_KEPT", 0.0)
    tried = []
    first_proven = driver.Search.first_proven

    def counted(search, construction, task):
        tried.append((construction.name, left()))
        return first_proven(search, construction, task)

    monkeypatch.setattr(driver.Search, "first_proven", counted)
    with pytest.raises(NotProvenError):
        tf.compile("sin(2*x*y)*exp(z)", "x=0..1, y=0..1, z=0..1", 1e-5)
    assert [name for name, _ in tried[:2]] == ["circuit", "lookup"]
    assert tried[0][1] == pytest.approx(0.9 * 0.4e6, rel=0.1) and tried[1][1] > 0


def test_a_search_in_which_an_attempt_has_failed_may_take_less() -> None:
    for error, seconds in [
        (NotProvenError("near", best_bound=5e-6, rounding=1e-8), policy.AFTER_FAILURE),
        (NotProvenError("nothing is known"), policy.ALL),
        (NotProvenError("tables that miss", measured=1e-3), policy.AFTER_FAILURE),
    ]:
        search = driver.Search(Formula.of(["sin(x)"], Box.of("x=0..1")), None, {})
        search.eps = 1e-6
        with limited(100.0) as search.limit:
            search.note(error)
            assert left() == pytest.approx(seconds * limits.SECOND)
            search.note(NotProvenError("closer", best_bound=2e-6, rounding=1e-8))
            assert left() == pytest.approx(policy.AFTER_FAILURE * limits.SECOND)


def test_what_fails_late_and_shows_nothing_ends_the_search() -> None:
    search = driver.Search(Formula.of(["sin(x)"], Box.of("x=0..1")), None, {})
    search.eps = 1e-6
    with limited(policy.ALL) as search.limit:
        spend((policy.AFTER_FAILURE + 1) * limits.SECOND)
        checkpoint()
        search.note(NotProvenError("nothing is known"))
        with pytest.raises(OutOfWork):
            checkpoint()


@pytest.mark.parametrize(("seconds", "tried"), [(0.1, 3), (4.0, 1)])
def test_a_long_attempt_of_which_nothing_is_proven_speaks_against_others_like_it(seconds, tried, monkeypatch) -> None:
    """And its tables, which may be why, are not what a coarser model begins with."""
    begun = []

    def build() -> None:
        begun.append(left())
        spend(seconds * limits.SECOND)
        raise NotProvenError("the scores of a table are too large for float64")

    alike = [Attempt(CONSTRUCTIONS["circuit"], build, group=0) for _ in range(3)]
    monkeypatch.setattr(driver, "attempts", lambda *_: iter(alike))
    formula = Formula.of(["sin(x)"], Box.of("x=0..1"))
    search = driver.Search(formula, None, {})
    search.eps, task = 1e-6, BuildTask(Prepared(formula), Options(eps=1e-6))
    task.findings.fitted["a table"] = None
    with limited(policy.ALL) as search.limit, pytest.raises((NotProvenError, OutOfWork)):
        search.first_proven(CONSTRUCTIONS["circuit"], task)
    assert len(begun) == tried and not task.findings.fitted


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
        driver.Search(Formula.of(texts, Box.of(on)), None, {}).seconds(10.0)
        for texts, on in (
            (["x"], "x=0..1"),
            (["x1"], "x1..x12=0..1"),
            (["x"] * 18, "x=0..1"),
            (["x1"], "x1..x600=0..1"),
        )
    ]
    assert usual == [10.0, 20.0, 30.0, 40.0]


def test_a_longer_time_limit_allows_more_work(monkeypatch) -> None:
    seen = []
    monkeypatch.setattr(driver.Search, "run", lambda *_: seen.append(left()))
    tf.compile("x", "x=0..1", time_limit=1000)
    tf.compile("x", "x=0..1", time_limit=1)
    assert seen[0] == pytest.approx(1000 * limits.SECOND, rel=1e-3)
    assert seen[1] == pytest.approx(
        (policy.ALL + policy.AFTER_FAILURE + policy.LEAST_KEPT + policy.ADVICE) * limits.SECOND, rel=1e-3
    )


F32 = {"dtype": "float32"}
#: More than can be had: each is refused after a little work, with a bound that holds and the way out.
REFUSALS = [
    ("asin(n*sin(t))", "n=0..1, t=1..5", {"rel": 1e-3, **F32}, 0.05, policy.REFUSED),
    ("sin(1000*x*y)*exp(z)", "x=0..1, y=0..1, z=0..1", {"eps": 1e-6}, 6.0, policy.REFUSED),
    ("sin(x)", "x=0..1", {"eps": 1e-7, "construction": "lookup", **F32}, 9e-7, 2.0),
    (
        "softplus(a*b + c)*sigmoid(d)",
        "a=-1..1, b=-1..1, c=-1..1, d=-1..1",
        {"eps": 1e-5, **F32},
        2e-5,
        policy.AFTER_FAILURE,
    ),
]


@pytest.mark.parametrize(("formula", "box", "options", "most", "seconds"), REFUSALS, ids=[case[0] for case in REFUSALS])
def test_a_refusal_takes_little_work_and_has_a_bound(formula, box, options, most, seconds) -> None:
    with counting() as spent:
        with pytest.raises(NotProvenError) as caught:
            tf.compile(formula, box, **options)
        assert spent() < 1.1 * (seconds + policy.ADVICE) * limits.SECOND
    assert caught.value.best_bound <= most
    first = advice_of(caught.value)[0]
    asked = {"formula": formula, "on": box, **options, **first}
    if "eps" in first:
        asked["rel"] = None
    tf.compile(**asked)


def test_more_time_is_not_advised_where_rounding_alone_is_too_much() -> None:
    search = driver.Search(Formula.of("x*y", Box.of("x=0..1, y=0..1")), None, {})
    search.eps = 1e-9
    search.closest = NotProvenError("", 2e-6, rounding=4e-7)
    said = str(search.stopped(Ending.WORK))
    assert "rounding alone is 4" in said and "more time" not in said
    search.closest = NotProvenError("", 2e-6, rounding=4e-10)
    assert "more time" not in str(search.stopped(Ending.WORK))  # nothing says that it would help
    search.unfinished["lookup"] = None
    assert "or allow more time" not in str(search.stopped(Ending.WORK))
    assert "allow more time, such as time_limit=" in str(search.stopped(Ending.WORK))


def test_circuits_that_cannot_be_compared_or_are_refuted_twice_are_given_up():
    """Other tables do not help a group of attempts; other groups are still tried."""
    attempt = Attempt(CIRCUIT, lambda: None, group=0)
    trial = driver.Trial()
    trial.failed(attempt, NotProvenError("rounding", best_bound=3e-6, rounding=2e-6), 1.0)
    trial.failed(attempt, RefutedError("errors went too far"), 1.0)
    assert not trial.hopeless
    trial.failed(attempt, RefutedError("errors went too far again"), 1.0)
    assert trial.hopeless == {0}
    trial = driver.Trial()
    trial.failed(attempt, RefutedError("a normal form is too long", reason=Reason.UNCOMPARED), 5e6)
    assert trial.hopeless == {0}
    assert "fewer factors" in str(when_refuted("circuit", trial.closest, "float64"))
