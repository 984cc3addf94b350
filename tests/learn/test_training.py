"""Gradient training: resuming is exact, early stopping keeps the best, compiled weights can be a start."""

import numpy as np
import pytest
import torch

import transformula as tf
from transformula.learn import (
    OneLayerTransformerRegressor,
    PolynomialTransformerClassifier,
    PolynomialTransformerRegressor,
    training,
)
from transformula.runtime.reference import run

rng = np.random.default_rng(0)
X = rng.normal(size=(150, 2))
y = X[:, 0] ** 2 - X[:, 1]


def _makers(path):
    return {
        "sgd": lambda p=path: PolynomialTransformerRegressor(
            2, "sgd", epochs=25, batch_size=32, checkpoint=p, checkpoint_every=4
        ),
        "adam": lambda p=path: PolynomialTransformerRegressor(
            2, "adam", epochs=25, batch_size=32, checkpoint=p, checkpoint_every=4, early_stopping=True
        ),
        "one layer": lambda p=path: OneLayerTransformerRegressor(
            epochs=25, batch_size=32, checkpoint=p, checkpoint_every=4
        ),
    }


@pytest.mark.parametrize("kind", ["sgd", "adam", "one layer"])
def test_an_interrupted_training_resumes_to_the_same_numbers(kind, tmp_path, monkeypatch):
    path = tmp_path / "run.pt"
    whole = _makers(None)[kind](None).fit(X, y)
    steps = []
    step = training.Trainer.step

    def interrupted(*args):
        steps.append(1)
        if len(steps) == 60:
            raise KeyboardInterrupt
        return step(*args)

    monkeypatch.setattr(training.Trainer, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _makers(path)[kind]().fit(X, y)
    assert path.exists() and not list(tmp_path.glob(".*.part"))
    steps.clear()
    steps.extend([1] * 100)
    resumed = _makers(path)[kind]().fit(X, y)
    assert len(steps) - 100 < 25 * 5, "it started again from the beginning"
    assert np.array_equal(resumed.predict(X), whole.predict(X))
    assert resumed.history_.training == whole.history_.training


def test_a_checkpoint_of_other_data_is_refused(tmp_path):
    path = tmp_path / "run.pt"
    make = _makers(path)["sgd"]
    make().fit(X, y)
    with pytest.raises(ValueError, match="other data or other settings"):
        make().fit(X, y + 1)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match="not a checkpoint"):
        make().fit(X, y)


def test_early_stopping_stops_and_keeps_the_best():
    noisy = y + 0.3 * rng.normal(size=150)
    model = PolynomialTransformerRegressor(3, "adam", epochs=500, early_stopping=True, validation_fraction=0.3).fit(
        X, noisy
    )
    history = model.history_
    assert len(history.training) < 500
    assert history.best_epoch == int(np.argmin(history.validation))


def test_the_papers_training_learns_f1():
    from transformula.studies.fang_f2_study import f1_sample

    sample = f1_sample(seed=1)
    model = PolynomialTransformerRegressor(
        2,
        "sgd",
        n_directions=10,
        epochs=600,
        batch_size=5000,
        learning_rate=1e-3,
        start_rate=1e-4,
        standardize=False,
        **training.AS_IN_PAPERS,
    ).fit(sample.X, sample.y)
    assert model.n_terms_ == 41
    assert np.mean((model.predict(sample.X_test) - sample.f_test) ** 2) <= 0.02


def test_classes_by_gradient():
    label = np.where((X**2).sum(axis=1) < 1, "in", "out")
    model = PolynomialTransformerClassifier(2, "adam", learning_rate=0.05).fit(X, label)
    assert model.score(X, label) > 0.95
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


@pytest.mark.parametrize("tokens, memory", [("one", 8), ("each", 4), ("each", 0)])
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
def test_the_trained_layer_is_what_the_reference_executor_runs(tokens, memory, positions):
    model = OneLayerTransformerRegressor(tokens=tokens, memory_tokens=memory, positions=positions, epochs=3).fit(
        X, np.column_stack([y, -y])
    )
    np.testing.assert_allclose(run(model.weights_, X), model.predict(X), atol=1e-12)


def test_compiled_weights_are_a_start():
    compiled = tf.compile("sin(x1) + x2", on="x1..x2=-3..3", eps=1e-3)
    Z = rng.uniform(-3, 3, size=(200, 2))
    target = np.sin(Z[:, 0]) + Z[:, 1]
    model = OneLayerTransformerRegressor(warm_start_from=compiled, epochs=1, learning_rate=1e-9)
    assert np.abs(model.fit(Z, target).predict(Z) - target).max() < 1.1e-3
    np.testing.assert_allclose(model.predict(Z), compiled(Z), atol=1e-5)
    with pytest.raises(ValueError, match="2 inputs"):
        model.fit(Z[:, :1], target)
    with pytest.raises(ValueError, match="one layer"):
        OneLayerTransformerRegressor(warm_start_from=tf.compile("x1*x2", on="x1..x2=-1..1")).fit(Z, target)


def test_threads_are_left_as_they_were():
    before = torch.get_num_threads()
    PolynomialTransformerRegressor(2, "adam", epochs=2).fit(X, y)
    assert torch.get_num_threads() == before
