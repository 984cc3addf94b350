"""Linear attention from data: planted heads are found again, up to equivalence, and what is found compiles."""

import numpy as np
import pytest

import transformula as tf
from transformula.errors import NotProvenError
from transformula.kernel.gallery import linear_attention_rule
from transformula.learn import LinearAttentionRegressor
from transformula.learn.linear_attention_fit import Heads


def planted(heads, outputs, width, constant=False, seed=0):
    rng = np.random.default_rng(seed)
    d = width + constant
    return Heads(rng.normal(size=(heads, outputs, d)), rng.normal(size=(heads, d, d)), constant)


def sequences(rows, positions, width, seed=1):
    return np.random.default_rng(seed).normal(size=(rows, positions, width))


@pytest.mark.parametrize(
    ("heads", "outputs", "width", "constant", "each"),
    [(1, 1, 3, False, False), (2, 4, 4, False, False), (2, 1, 4, True, False), (2, 3, 3, True, True)],
)
def test_planted_heads_are_found_again(heads, outputs, width, constant, each):
    """Without noise: the same map, as many heads, and the planted values at new sequences."""
    truth = planted(heads, outputs, width, constant)
    Z = sequences(400, 6, width)
    model = LinearAttentionRegressor(6, constant=constant, each=each).fit(Z, truth(Z, each))
    assert model.n_heads_ == heads and model.residual_ < 1e-12
    assert model.n_features_told_ == model.n_cubic_features_
    assert np.abs(model.fitted_.heads.map() - truth.map()).max() < 1e-10 * np.abs(truth.map()).max()
    new = sequences(100, 6, width, seed=2)
    wanted = truth(new, each).reshape(100, -1)
    assert np.abs(model.predict(new) - wanted).max() < 1e-10 * np.abs(wanted).max()


def test_heads_differ_and_do_the_same():
    """Heads mixed by an invertible matrix are other heads with the same map: data cannot tell them apart."""
    truth = planted(2, 2, 3)
    mixed = Heads(
        np.tensordot([[1.0, 2.0], [0.0, 1.0]], truth.values, 1),
        np.tensordot(np.linalg.inv([[1.0, 2.0], [0.0, 1.0]]).T, truth.queries, 1),
        False,
    )
    assert not np.allclose(mixed.values, truth.values)
    np.testing.assert_allclose(mixed.map(), truth.map(), atol=1e-12)
    Z = sequences(20, 5, 3)
    np.testing.assert_allclose(mixed(Z, each=True), truth(Z, each=True), rtol=1e-10, atol=1e-10)


def test_fewer_heads_than_the_map_needs_say_what_they_miss():
    truth = planted(3, 3, 3)
    Z = sequences(400, 6, 3)
    y = truth(Z, each=False)
    missed = [LinearAttentionRegressor(6, constant=False, heads=h).fit(Z, y).residual_ for h in (1, 2, 3)]
    assert missed[0] > missed[1] > 0.01 and missed[2] < 1e-9


def test_noise_is_averaged_away():
    truth = planted(1, 1, 3)
    Z = sequences(2000, 6, 3)
    clean = truth(Z, each=False)[:, 0]
    noisy = clean + clean.std() * np.random.default_rng(3).normal(size=len(clean))
    model = LinearAttentionRegressor(6, constant=False).fit(Z, noisy)
    new = sequences(500, 6, 3, seed=4)
    wanted = truth(new, each=False)[:, 0]
    # 18 coefficients from 2,000 rows of as much noise as signal: about 18/2000 of the variance
    assert np.mean((model.predict(new) - wanted) ** 2) < 0.03 * np.var(wanted)


def test_what_is_fitted_compiles_and_verifies(tmp_path):
    truth = planted(1, 1, 2, constant=True)
    Z = np.random.default_rng(5).uniform(-1, 1, size=(200, 3, 2))
    fitted = LinearAttentionRegressor(3).fit(Z, truth(Z, each=False)[:, 0])
    model = fitted.to_transformer(box={f"x{k}": (-1, 1) for k in range(1, 7)})
    assert model.construction == "linear-attention" and (model.layers, model.heads, model.tokens) == (1, 1, 3)
    assert 0 < model.certificate.approximation < 1e-8 and tf.verify(model.save(tmp_path / "model")).verified
    rows = Z.reshape(200, -1)
    assert np.abs(model(rows) - fitted.predict(Z)).max() <= 2 * model.certificate.rounding  # the very same heads
    np.testing.assert_array_equal(tf.load(tmp_path / "model")(rows), model(rows))
    by_fang = tf.compile(fitted.to_formula(box=model.box), on=model.box)
    assert by_fang.construction == "polynomial" and by_fang.tokens > 10 * model.tokens
    assert np.abs(by_fang(rows) - model(rows)).max() <= by_fang.certificate.bound + model.certificate.bound


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_targets_of_any_size_are_fitted_and_proven(size):
    Z = np.random.default_rng(6).uniform(-1, 1, size=(100, 3, 2))
    y = size * Z[:, 0, 0] ** 2 * Z[:, -1, 0]
    model = LinearAttentionRegressor(3).fit(Z, y).to_transformer()
    assert model.certificate.bound < 1e-8 * size and tf.verify(model).verified


def test_heads_that_are_too_many_to_be_expanded_say_so(monkeypatch):
    monkeypatch.setattr(linear_attention_rule, "MAX_PRODUCTS", 100)
    Z = np.random.default_rng(6).uniform(-1, 1, size=(100, 3, 2))
    with pytest.raises(NotProvenError, match=r"the heads cannot be proven: .*over 100 products; take fewer tokens"):
        LinearAttentionRegressor(3).fit(Z, Z[:, 0, 0] ** 2).to_transformer()


def test_mistakes_are_one_sentence():
    Z, y = sequences(30, 4, 2), np.zeros(30)
    with pytest.raises(ValueError, match="8 columns, which do not divide into 3 tokens"):
        LinearAttentionRegressor(3).fit(Z.reshape(30, -1), y)
    with pytest.raises(ValueError, match="4 tokens in a row; positions is 3"):
        LinearAttentionRegressor(3).fit(Z, y)
    with pytest.raises(ValueError, match="do not divide into 4 positions"):
        LinearAttentionRegressor(4, each=True).fit(Z, y)
    with pytest.raises(ValueError, match="'heads' parameter"):
        LinearAttentionRegressor(4, heads=0).fit(Z, y)
