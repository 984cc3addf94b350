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
    from transformula.comparing import Comparison, compare
    from transformula.compiling import compile, load, memorize, verify
    from transformula.formulas.latex import from_latex
    from transformula.kernel.check import Verification
    from transformula.kernel.syntax.boxes import Box, Formula
    from transformula.learning import (
        LinearAttentionRegressor,
        OneLayerTransformerRegressor,
        PolynomialTransformerClassifier,
        PolynomialTransformerRegressor,
    )
    from transformula.model import Model
    from transformula.prompting import in_context
    from transformula.scaling.proofs import workers
    from transformula.sweeps.batch import batch

__version__ = "0.1.0"

_HOME = {
    "batch": "transformula.sweeps.batch",
    "Comparison": "transformula.comparing",
    "compare": "transformula.comparing",
    "compile": "transformula.compiling",
    "from_latex": "transformula.formulas.latex",
    "in_context": "transformula.prompting",
    "load": "transformula.compiling",
    "memorize": "transformula.compiling",
    "verify": "transformula.compiling",
    "workers": "transformula.scaling.proofs",
    "Box": "transformula.kernel.syntax.boxes",
    "Formula": "transformula.kernel.syntax.boxes",
    "Model": "transformula.model",
    "LinearAttentionRegressor": "transformula.learning",
    "OneLayerTransformerRegressor": "transformula.learning",
    "PolynomialTransformerClassifier": "transformula.learning",
    "PolynomialTransformerRegressor": "transformula.learning",
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
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
