"""Prompts as rows of numbers, and the algorithms in floats."""

import numpy as np
import pytest

import transformula as tf
from support.in_context_models import MODELS, RATIONAL, exact_answer, fractions, learner, prompts
from transformula.errors import PointError

RNG = np.random.default_rng(0)
X, Y, Q = RNG.uniform(-1, 1, (7, 5, 2)), RNG.uniform(-1, 1, (7, 5)), RNG.uniform(-1, 1, (7, 2))


def test_rows_are_in_the_order_of_the_inputs():
    model = learner("descent")
    rows = model.formula.rows(X, Y, Q)
    assert rows.shape == (7, len(model.weights.inputs)) and model.weights.inputs == model.box.variables
    named = dict(zip(model.weights.inputs, rows[3], strict=True))
    assert named["x2_1"] == X[3, 1, 0] and named["y5"] == Y[3, 4] and named["q2"] == Q[3, 1]
    assert np.array_equal(model.formula.rows(X[3], Y[3], Q[3]), rows[3:4])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((X[:, :4], Y, Q), "x has the shape .7, 4, 2., not prompts x 5 x 2"),
        ((X, Y[:, :3], Q), "y has the shape"),
        ((X, Y, Q[None]), "query has the shape"),
        ((X, Y[:3], Q), "7, 3, 7 of x, y and query"),
    ],
)
def test_prompts_of_another_shape_are_refused(given, said):
    with pytest.raises(PointError, match=said):
        learner("descent").formula.rows(*given)


def test_a_recurrence_has_no_pairs():
    with pytest.raises(PointError, match="a row a, b, x"):
        learner("recurrence").formula.rows(X, Y, Q)


@pytest.mark.parametrize("name", RATIONAL)
def test_the_algorithms_in_floats_are_the_exact_ones(name):
    model = learner(name)
    rows = prompts(model, 5)
    exact = np.array([[float(v) for v in exact_answer(model, fractions(row))] for row in rows])
    assert np.allclose(model.formula.answers(rows), exact, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", MODELS)
def test_models_say_what_they_are(name):
    model = learner(name)
    assert model.formula.words[:50] in repr(model) and model.where in repr(model)
    assert len(model.token_labels) == model.tokens and len(model.formula.texts) == model.weights.outputs
    assert "prompt" in model._repr_html_()


def test_tensors_and_folders(tmp_path):
    import torch

    model = learner("descent")
    rows = torch.tensor(model.formula.rows(X, Y, Q), requires_grad=True)
    answers = model(rows)
    assert torch.autograd.grad(answers.sum(), rows)[0].abs().sum() > 0
    loaded = tf.load(model.save(tmp_path / "model"))
    assert loaded.formula == model.formula and np.array_equal(
        loaded(rows.detach().numpy()), model(rows.detach().numpy())
    )
