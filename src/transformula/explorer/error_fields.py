"""Errors as the page shows them: which field they belong to, where in it, and what would help."""

from __future__ import annotations

import math
import re
from typing import Any

from transformula.errors import BoxError, FormulaError, NotProvenError, TransformulaError, closest_bound

_POSITION = re.compile(r"at character (\d+)$")


def refusal(error: TransformulaError, offset: int = 0, length: int = 0) -> dict[str, Any]:
    """The error as plain data; ``offset`` is where its formula begins in the field, ``length`` its size."""
    message = str(error)
    found: dict[str, Any] = {"field": _field(error, message), "message": message, "kind": "input"}
    if isinstance(error, FormulaError):
        match = _POSITION.search(message)
        at_end = message.endswith("at the end")
        if match or at_end:
            found["position"] = offset + (int(match[1]) - 1 if match else length)
    if isinstance(error, NotProvenError):
        found |= {"kind": "not proven", "best_bound": error.best_bound, "place": error.place}
        close = closest_bound(error)
        found |= {"closest": close if math.isfinite(close) else None}
    return found


def _field(error: TransformulaError, message: str) -> str:
    if isinstance(error, FormulaError):
        return "formula"
    if isinstance(error, BoxError):
        return "box"
    if isinstance(error, NotProvenError):
        return ""
    return "eps" if message.startswith("eps") else "construction"
