"""Any finite map, certified at every sample; contradictions are named."""

import numpy as np
import pytest
from scipy.spatial import cKDTree

import transformula as tf
from support.balls import BallTransformer
from transformula.compiler.gallery.memories import closest_pair
from transformula.errors import InputError, NotProvenError


def _check(model, x, y, eps):
    x, y = np.asarray(x, float), np.asarray(y, float)
    y = y[:, None] if y.ndim == 1 else y
    values = np.asarray(model(x), float).reshape(len(x), -1)
    assert np.abs(values - y).max() <= model.certificate.bound <= eps
    exact = BallTransformer(model.weights)
    for row in range(0, len(x), max(1, len(x) // 5)):
        at = exact(np.atleast_1d(x[row]))
        wrong = max(float(abs(v - t).lower()) for v, t in zip(at, map(float, y[row]), strict=True))
        assert wrong <= model.certificate.approximation
    assert tf.verify(model).verified and model.layers == 1 and model.construction == "memorize"


@pytest.mark.parametrize("seed", range(6))
def test_random_maps(seed):
    rng = np.random.default_rng(seed)
    count, inputs, outputs = int(rng.integers(2, 60)), int(rng.integers(1, 5)), int(rng.integers(1, 4))
    x = rng.normal(size=(count, inputs)) * 10 ** rng.uniform(-2, 2)
    y = rng.normal(size=(count, outputs)) * 10 ** rng.uniform(-2, 3)
    _check(tf.memorize(x, y, eps=1e-6), x, y, 1e-6)


def test_one_token_a_sample():
    x, y = np.random.default_rng(0).normal(size=(200, 3)), np.arange(200.0)
    model = tf.memorize(x, y, eps=1e-4)
    assert model.memory_tokens == 200 and model.heads == 1
    _check(model, x, y, 1e-4)


def test_float32():
    x, y = np.random.default_rng(0).normal(size=(30, 2)), np.random.default_rng(1).normal(size=30)
    model = tf.memorize(x, y, eps=1e-2, dtype="float32")
    assert model(x).dtype == np.float32
    _check(model, x, y, 1e-2)


def test_repeated_samples_are_merged():
    model = tf.memorize([[0, 1], [2, 3], [0, 1], [-0.0, 1]], [5, 6, 5, 5])
    assert model.memory_tokens == 2
    assert model([[0, 1], [2, 3]]) == pytest.approx([5, 6], abs=1e-6)


def test_contradictions_name_both_rows():
    with pytest.raises(InputError, match=r"rows 1 and 3 contradict each other.*\(2, 3\).*\(6\).*\(7\)"):
        tf.memorize([[0, 1], [2, 3], [4, 5], [2, 3]], [5, 6, 1, 7])


def test_one_sample_and_constant_columns():
    _check(tf.memorize([[1.5]], [[2.0, -3.0]]), [[1.5]], [[2.0, -3.0]], 1e-6)
    x = np.column_stack([np.full(9, 7.0), np.arange(9.0), np.zeros(9)])
    _check(tf.memorize(x, np.arange(9.0) ** 2), x, np.arange(9.0) ** 2, 1e-6)
    _check(tf.memorize([[1], [2]], [0, 0]), [[1], [2]], [0, 0], 1e-6)


def test_near_duplicates_are_told_apart_or_refused():
    x = np.array([0.0, 1e-3, 1.0])
    _check(tf.memorize(x, [1, -1, 2], eps=1e-6), x[:, None], [1, -1, 2], 1e-6)
    with pytest.raises(NotProvenError):
        tf.memorize([0.0, 1e-14, 1.0], [1, -1, 2], eps=1e-6)
    with pytest.raises(InputError, match="same point in this dtype: use float64"):
        tf.memorize([[1.0], [1.0 + 1e-12]], [1, -1], dtype="float32")


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        ([[1.0], [np.nan]], [1, 2], "row 1 of X is not finite"),
        ([[1.0], [2.0]], [1, np.inf], "row 1 of Y is not finite"),
        ([[1.0], [2.0]], [1, 2, 3], "X has 2 rows and Y has 3"),
        ([], [], "no rows|one row per sample"),
        (np.zeros((2, 2, 2)), [1, 2], "one row per sample"),
        ([["a"], ["b"]], [1, 2], "table of numbers"),
        ([[1, 2], [3]], [1, 2], "table of numbers"),
        (np.zeros((2, 0)), [1, 2], "one row per sample"),
        ([[1.0]], [1], "eps"),
    ],
)
def test_what_is_no_table_is_refused(x, y, said):
    with pytest.raises(InputError, match=said):
        tf.memorize(x, y, eps=0 if said == "eps" else 1e-6)


def test_a_tolerance_below_the_dtype_is_refused():
    x, y = np.random.default_rng(0).normal(size=(30, 2)), 100 * np.random.default_rng(1).normal(size=30)
    with pytest.raises(NotProvenError, match="float64") as error:
        tf.memorize(x, y, eps=1e-7, dtype="float32")
    assert error.value.best_bound > 1e-7


def test_it_is_saved_with_its_samples(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(12, 2)), np.random.default_rng(1).normal(size=(12, 2))
    loaded = tf.load(tf.memorize(x, y).save(tmp_path / "m"))
    assert np.array_equal(loaded.formula.x, x) and np.array_equal(loaded.formula.y, y)
    _check(loaded, x, y, 1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_the_closest_pair_is_the_one_a_tree_finds(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(400, 1 + seed))
    if seed % 2:
        x = np.unique(rng.integers(0, 5, size=x.shape), axis=0).astype(float)  # a lattice: many equal distances
    distance, first, second = closest_pair(x)
    assert distance == np.linalg.norm(x[first] - x[second]) and first < second
    assert distance == pytest.approx(cKDTree(x).query(x, k=2)[0][:, 1].min(), rel=1e-12)
