"""Pipelines of scikit-learn that end in one of the estimators, converted by skl2onnx."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from transformula.learn import PolynomialTransformerClassifier, PolynomialTransformerRegressor, register_skl2onnx

skl2onnx = pytest.importorskip("skl2onnx")
rt = pytest.importorskip("onnxruntime")
X = np.random.default_rng(0).normal(size=(200, 3))
Y = X[:, 0] * X[:, 2] + X[:, 2] ** 3


def _run(estimator, targets, kind, **options):
    register_skl2onnx()
    pipeline = make_pipeline(StandardScaler(), estimator).fit(X, targets)
    rows = X.astype(kind)
    file = skl2onnx.to_onnx(pipeline, rows[:1], **options)
    session = rt.InferenceSession(file.SerializeToString())
    return pipeline, rows, session.run(None, {session.get_inputs()[0].name: rows}), session.get_outputs()


@pytest.mark.parametrize(("kind", "most"), [(np.float64, 1e-8), (np.float32, 1e-4)])
@pytest.mark.parametrize("targets", [Y, np.stack([Y, X[:, 1]], axis=1)], ids=["one", "two"])
def test_regressors(targets, kind, most):
    pipeline, rows, (found,), (output,) = _run(PolynomialTransformerRegressor(3), targets, kind)
    assert np.abs(found - pipeline.predict(rows).reshape(len(rows), -1)).max() <= most
    assert output.shape[1] == found.shape[1] and found.dtype == kind


@pytest.mark.parametrize(
    "labels", [Y > 0, np.where(Y > 0, "yes", "no"), np.digitize(Y, [-1, 1])], ids=["bool", "text", "three"]
)
def test_classifiers(labels):
    options = {"options": {"zipmap": False}}
    pipeline, rows, (found, shares), _ = _run(PolynomialTransformerClassifier(3), labels, np.float64, **options)
    assert (found == pipeline.predict(rows)).all()
    assert np.abs(shares - pipeline.predict_proba(rows)).max() <= 1e-8
