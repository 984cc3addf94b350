"""Stored tables of the square (squares.json, made by benchmarks/squares.py), which every circuit needs.

They are candidates like any other: their errors are proven in each model anew.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from transformula.compiler.tables.fit_task import acceptable
from transformula.compiler.tables.softmax_table import FittedTable

PATH = Path(__file__).with_name("squares.json")


@lru_cache(maxsize=1)
def squares() -> dict[str, tuple[FittedTable, ...]]:
    """By format, smallest first; a larger one comes closer."""
    rows = json.loads(PATH.read_text())
    return {dtype: tuple(_table(row, dtype) for row in tables) for dtype, tables in rows.items()}


def _table(row: dict[str, Any], dtype: str) -> FittedTable:
    slopes, offsets, values = (np.array(row[part]) for part in ("slopes", "offsets", "values"))
    return FittedTable((slopes,), (offsets,), values, 0.0, row["error"], row["rounding"], dtype)


def ready_square(eps: float, dtype: str) -> FittedTable:
    """The smallest stored table of u² on −1.001..1.001 within ``eps``, or the closest there is.

    Examples
    --------
    >>> ready_square(1e-8, "float64").size, ready_square(1e-20, "float64").size
    (3, 11)
    """
    stored = squares()[dtype]
    return next((table for table in stored if acceptable(table, eps)), stored[-1])
