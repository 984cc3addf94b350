"""Learning from data: scikit-learn estimators whose models are Transformers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformula.learning.classifier import PolynomialTransformerClassifier
    from transformula.learning.one_layer_regressor import OneLayerTransformerRegressor
    from transformula.learning.regressor import PolynomialTransformerRegressor

_HOME = {
    "OneLayerTransformerRegressor": "one_layer_regressor",
    "PolynomialTransformerClassifier": "classifier",
    "PolynomialTransformerRegressor": "regressor",
}

__all__ = [
    "OneLayerTransformerRegressor",
    "PolynomialTransformerClassifier",
    "PolynomialTransformerRegressor",
]


def __getattr__(name: str) -> Any:
    """Import on first use, so that the trainer alone needs no scikit-learn."""
    if name in _HOME:
        return getattr(import_module(f"transformula.learning.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
