"""States add up: in any order, from any cut of the rows, to what all rows at once would give."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.array_parts import ArrayReader
from transformula.cluster.table_parts import ReadParts
from transformula.learn import states
from transformula.learn.distinct_rows import Rows
from transformula.learn.solver_choice import Settings
from transformula.learn.solvers.exact_fit import fit_exact
from transformula.learn.solvers.features import all_terms, orthonormal_basis
from transformula.learn.solvers.gram import Gram
from transformula.learn.solvers.sparse_fit import fit_sparse
from transformula.learn.states import HeldOut, RowSample, Survey, fit_parts, row_hashes, survey_of

rng = np.random.default_rng(0)
X = rng.normal(size=(600, 3)) * [1.0, 30.0, 0.01] + [0.0, 1e4, 5.0]
Y = np.column_stack([X[:, 0] * X[:, 1], X[:, 2] ** 2]) + rng.normal(size=(600, 2))
W = rng.integers(0, 4, size=600).astype(float)
BASIS = orthonormal_basis(X, 2)


def _gram(x, y, w):
    return Gram(all_terms(3, 2), BASIS, Y.mean(axis=0)).add(x, y, w)


def _numbers(state):
    """Everything a state holds, for comparing."""
    if isinstance(state, Gram):
        return [np.triu(state.matrix), state.right, state.squares, state.total, state.rows]
    if isinstance(state, RowSample):
        return [state.hashes, state.table, state.weight]
    return [state.rows, state.held_rows, state.range.low, state.range.high, *_numbers(state.sample)]


MAKERS = {
    "gram": _gram,
    "sample": lambda x, y, w: RowSample.of(x, y, w, 50, 7),
    "survey": lambda x, y, w: Survey.of(x, y, w, 50, HeldOut(0.3, 7)),
}


@pytest.mark.parametrize("kind", MAKERS)
@given(cuts=st.sets(st.integers(1, 599), max_size=6), order=st.randoms(use_true_random=False), data=st.data())
def test_any_order_of_any_parts_adds_up_to_the_whole(kind, cuts, order, data):
    make, ends = MAKERS[kind], [0, *sorted(cuts), 600]
    parts = [make(X[a:b], Y[a:b], W[a:b]) for a, b in pairwise(ends)]
    order.shuffle(parts)
    while len(parts) > 1:  # any tree of additions
        k = data.draw(st.integers(0, len(parts) - 2))
        parts[k : k + 2] = [parts[k] + parts[k + 1]]
    for one, other in zip(_numbers(pickle.loads(pickle.dumps(parts[0]))), _numbers(make(X, Y, W)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11 * np.abs(other).max())


def test_addition_commutes_and_changes_nothing():
    a, b = _gram(X[:200], Y[:200], None), _gram(X[200:], Y[200:], None)
    before = _numbers(a)[0].copy()
    for one, other in zip(_numbers(a + b), _numbers(b + a), strict=True):
        assert np.array_equal(one, other)
    assert np.array_equal(np.triu(a.matrix), before) and a.rows == 200


def test_equal_rows_are_one_row_of_the_sample_and_never_on_both_sides_of_a_split():
    twice = np.vstack([X, X[::-1]]), np.vstack([Y, Y[::-1]])
    sample = RowSample.of(*twice, None, 10_000, 0)
    assert len(sample.weight) == 600 and set(sample.weight) == {2.0}
    held = HeldOut(0.5, 3).held(*twice)
    assert np.array_equal(held[:600], held[600:][::-1])
    assert row_hashes(np.array([[0.0]]), 1) == row_hashes(np.array([[-0.0]]), 1)


def test_the_share_that_is_held_out_is_the_share_asked_for():
    many = rng.integers(0, 50, size=(40_000, 3)).astype(float)  # numbers with few different bits
    for seed in (0, 1, 2**32 - 1):
        held = HeldOut(0.2, seed).held(many[:, :2], many[:, 2:])
        assert abs(held.mean() - 0.2) < 0.01
        sample = row_hashes(many, seed)
        assert abs(np.mean(held[sample < np.median(sample)]) - 0.2) < 0.02, "the two hashes depend on each other"


def _parts(x, y, cuts):
    ends = [0, *cuts, len(x)]
    return ReadParts(3, y.shape[1], tuple(ArrayReader(x[a:b], y[a:b]) for a, b in pairwise(ends)))


@pytest.fixture
def small_samples(monkeypatch):
    """Samples of 200 rows, so that 2,000 rows are a large table."""
    monkeypatch.setattr(states, "_LEAST_SAMPLE", 200)
    monkeypatch.setattr(states, "_MOST_SAMPLE", 200)


@pytest.mark.parametrize("solver", ["exact", "sparse", "lowrank", "auto"])
def test_a_streamed_fit_does_not_depend_on_the_parts(small_samples, solver):
    x = rng.uniform(-1, 1, size=(2000, 3))
    y = (x[:, :1] + x[:, 1:2]) ** 3 - x[:, 2:] + 0.1 * rng.normal(size=(2000, 1))
    found = []
    for cuts, order in [([], np.arange(2000)), ([50, 700], rng.permutation(2000)), ([1999], np.arange(2000)[::-1])]:
        parts, split = _parts(x[order], y[order], cuts), HeldOut(0.25, 1)
        survey = survey_of(parts, split)
        assert not survey.complete and 400 < survey.held_rows < 600
        found.append(fit_parts(parts, solver, Settings(3), survey, split).predict(x))
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-9, atol=1e-9)
    assert np.std(found[0] - y) < 0.105


def test_a_table_that_fits_the_sample_is_fitted_as_in_memory():
    fit = fit_parts(parts := _parts(X, Y, [100, 101]), "exact", Settings(2), survey_of(parts, HeldOut()), HeldOut())
    np.testing.assert_allclose(fit.predict(X), fit_exact(Rows.of(X, Y), 2).predict(X), rtol=1e-10)


def test_the_state_gives_the_equations_solution(small_samples):
    x, y = rng.uniform(2, 3, size=(3000, 3)), rng.normal(size=(3000, 2))
    fit = fit_parts(parts := _parts(x, y, [9]), "exact", Settings(3, ridge=0.0), survey_of(parts, HeldOut()), HeldOut())
    np.testing.assert_allclose(fit.predict(x), fit_exact(Rows.of(x, y), 3, ridge=0.0).predict(x), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_selected_terms_get_the_coefficients_of_all_rows(noise):
    x = rng.uniform(1, 3, size=(800, 4))
    y = np.column_stack([x[:, 0] ** 3 - 2 * x[:, 1] * x[:, 2], 4 + x[:, 3]]) + noise * rng.normal(size=(800, 2))
    w = rng.uniform(0.5, 2.0, size=800)
    whole, some = fit_sparse(Rows(x, y, w), 3), fit_sparse(Rows(x[:400], y[:400], w[:400]), 3)
    assert whole.terms.exponents.tolist() == some.terms.exponents.tolist()
    assert np.array_equal(whole.selected, some.selected)
    total = []
    for rows in (slice(300), slice(300, None)):
        total.append(Gram(some.terms, some.basis, np.zeros(2)))
        some.add_residuals(total[-1], x[rows], y[rows], w[rows])
    found = some.corrected(total[0] + total[1], some.ridge)
    np.testing.assert_allclose(found.predict(x), whole.predict(x), rtol=1e-9)
