"""Tables of the square that were found once and for all (benchmarks/squares.py): every circuit needs one.

They are candidates like any other: what they are good for is proven in each model anew.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from transformula.constructions.tables.table import Table
from transformula.constructions.tables.tasks import acceptable

PATH = Path(__file__).with_name("squares.json")


@lru_cache(maxsize=1)
def squares() -> dict[str, tuple[Table, ...]]:
    """By format, smallest first; a larger one comes closer."""
    rows = json.loads(PATH.read_text())
    return {dtype: tuple(_table(row, dtype) for row in tables) for dtype, tables in rows.items()}


def _table(row: dict[str, Any], dtype: str) -> Table:
    slopes, offsets, values = (np.array(row[part]) for part in ("slopes", "offsets", "values"))
    return Table(slopes, offsets, values, 0.0, row["error"], row["rounding"], dtype)


def ready_square(eps: float, dtype: str) -> Table | None:
    """The smallest stored table of u² on −1.001..1.001 within ``eps``.

    Examples
    --------
    >>> ready_square(1e-8, "float64").size, ready_square(1e-20, "float64")
    (3, None)
    """
    return next((table for table in squares()[dtype] if acceptable(table, eps)), None)
