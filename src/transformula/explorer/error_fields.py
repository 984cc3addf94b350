"""Errors as the page shows them: which field they belong to, where in it, and what would help."""

from __future__ import annotations

import math
from typing import Any

from transformula.errors import BoxError, FormulaError, NotProvenError, Option, TransformulaError, closest_bound


def refusal(error: TransformulaError, offset: int = 0, length: int = 0) -> dict[str, Any]:
    """The error as plain data; ``offset`` is where its formula begins in the field, ``length`` its size."""
    found: dict[str, Any] = {"field": _field(error), "message": str(error), "kind": "input"}
    if isinstance(error, FormulaError) and error.position is not None:
        found["position"] = offset + (length if error.position < 0 else error.position)
    if isinstance(error, NotProvenError):
        found |= {"kind": "not proven", "best_bound": error.best_bound, "place": error.place}
        close = closest_bound(error)
        found |= {"closest": close if math.isfinite(close) else None}
    return found


def _field(error: TransformulaError) -> str:
    if isinstance(error, FormulaError):
        return "formula"
    if isinstance(error, BoxError):
        return "box"
    if isinstance(error, NotProvenError):
        return ""
    return "eps" if error.reason == Option("eps") else "construction"
