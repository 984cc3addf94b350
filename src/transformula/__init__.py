"""Formulas in, Transformers out, with a proof.

>>> import transformula as tf
>>> model = tf.compile("x**2 + y**2", on="x=-10..10, y=-10..10")
>>> float(model([3, 4]))
25.0
>>> tf.verify(model).verified
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformula.api import compile, load, memorize, verify
    from transformula.cluster.batch_run import batch
    from transformula.cluster.engines import workers
    from transformula.compiler.comparison import Comparison, compare
    from transformula.compiler.gallery.prompt_models import in_context
    from transformula.formula.latex import from_latex
    from transformula.kernel.check import Verification
    from transformula.kernel.syntax.boxes import Box, Formula
    from transformula.learn import (
        LinearAttentionRegressor,
        OneLayerTransformerRegressor,
        PolynomialTransformerClassifier,
        PolynomialTransformerRegressor,
    )
    from transformula.model import Model

__version__ = "0.1.0"

_HOME = {
    "batch": "transformula.cluster.batch_run",
    "Comparison": "transformula.compiler.comparison",
    "compare": "transformula.compiler.comparison",
    "compile": "transformula.api",
    "from_latex": "transformula.formula.latex",
    "in_context": "transformula.compiler.gallery.prompt_models",
    "load": "transformula.api",
    "load_ipython_extension": "transformula.show.card",
    "memorize": "transformula.api",
    "verify": "transformula.api",
    "workers": "transformula.cluster.engines",
    "Box": "transformula.kernel.syntax.boxes",
    "Formula": "transformula.kernel.syntax.boxes",
    "Model": "transformula.model",
    "LinearAttentionRegressor": "transformula.learn",
    "OneLayerTransformerRegressor": "transformula.learn",
    "PolynomialTransformerClassifier": "transformula.learn",
    "PolynomialTransformerRegressor": "transformula.learn",
    "Verification": "transformula.kernel.check",
}

__all__ = [
    "Box",
    "Comparison",
    "Formula",
    "LinearAttentionRegressor",
    "Model",
    "OneLayerTransformerRegressor",
    "PolynomialTransformerClassifier",
    "PolynomialTransformerRegressor",
    "Verification",
    "batch",
    "compare",
    "compile",
    "from_latex",
    "in_context",
    "load",
    "memorize",
    "verify",
    "workers",
]


def __getattr__(name: str) -> Any:
    """Import on first use, so that the command line starts at once."""
    if name in _HOME:
        return globals().setdefault(name, getattr(import_module(_HOME[name]), name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
