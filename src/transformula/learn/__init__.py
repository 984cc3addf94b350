"""Estimators for scikit-learn whose models are Transformers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from transformula.optional import require

if TYPE_CHECKING:
    from transformula.learn.classifier import PolynomialTransformerClassifier
    from transformula.learn.fitted_table import TableModel
    from transformula.learn.linear_attention_regressor import LinearAttentionRegressor
    from transformula.learn.one_layer_regressor import OneLayerTransformerRegressor
    from transformula.learn.raw_onnx import register_skl2onnx
    from transformula.learn.regressor import PolynomialTransformerRegressor
    from transformula.learn.table_fit import fit_table

_HOME = {  # name → module, and the packages it needs
    "TableModel": ("fitted_table", ("sklearn",)),
    "LinearAttentionRegressor": ("linear_attention_regressor", ("sklearn",)),
    "OneLayerTransformerRegressor": ("one_layer_regressor", ("sklearn", "torch")),
    "PolynomialTransformerClassifier": ("classifier", ("sklearn",)),
    "PolynomialTransformerRegressor": ("regressor", ("sklearn",)),
    "fit_table": ("table_fit", ("sklearn",)),
    "register_skl2onnx": ("raw_onnx", ("sklearn",)),
}

__all__ = [
    "LinearAttentionRegressor",
    "OneLayerTransformerRegressor",
    "PolynomialTransformerClassifier",
    "PolynomialTransformerRegressor",
    "TableModel",
    "fit_table",
    "register_skl2onnx",
]


def __getattr__(name: str) -> Any:
    """Import on first use, so that the trainer alone needs no scikit-learn."""
    if name in _HOME:
        module, needed = _HOME[name]
        require(name, *needed)
        return getattr(import_module(f"transformula.learn.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
