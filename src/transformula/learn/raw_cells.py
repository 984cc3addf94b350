"""Cells of raw tables, from wherever they come: as text, as numbers with thousands separators, as dates.

A raw column is an array of floats with NaN for empty cells, or of texts with "" for empty cells. Booleans are the texts
true and false, so that a table says the same in a CSV file, a Parquet file and a data frame.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformula.errors import InputError, brief
from transformula.learn.distinct_rows import Floats

#: Column → floats (NaN for empty cells) or text (an object array, "" for empty cells).
Cells = Mapping[str, NDArray[Any]]
#: Texts that stand for an empty cell, in lower case.
EMPTY_TEXTS = ("", "na", "n/a", "#n/a", "nan", "null", "?")
BOOLEANS = ("true", "false")
PLAIN, ENGLISH, GERMAN, BINARY = "", "1,234.5", "1.234,5", "0/1"
#: How numbers are written: as float() reads them, with marks for thousands in one of two ways, or only 0 and 1.
NUMBER_FORMS = (PLAIN, ENGLISH, GERMAN, BINARY)
_DAYS = (
    *("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%d.%m.%y", "%m/%d/%y"),
    *("%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y"),
)
DATE_FORMS = ("iso", *(day + time for time in ("", " %H:%M", " %H:%M:%S") for day in _DAYS))
#: Share of the cells that must be numbers (or dates) for the others to be read as empty; in short columns all but one.
_MOSTLY = 0.95
#: Fewest numbers beside which one other text is a mistake.
_FEWEST = 8
_MARKED = {
    ENGLISH: re.compile(r"[+-]?([1-9]\d{0,2}(,\d{3})+|\d+)(\.\d*)?", re.ASCII),
    GERMAN: re.compile(r"[+-]?([1-9]\d{0,2}(\.\d{3})+|\d+)(,\d*)?", re.ASCII),
}
#: Currency, percent and blanks or apostrophes between thousands.
_AROUND = re.compile(r"[\s'’%$€£¥]")
_UNIX = datetime(1970, 1, 1)


def as_text(cells: NDArray[Any]) -> NDArray[Any]:
    """Cells as texts, "" where one is empty; whole numbers without a decimal point, booleans in lower case."""
    if cells.dtype.kind == "f":
        return np.array(["" if math.isnan(v) else repr(v).removesuffix(".0") for v in cells.tolist()], dtype=object)
    return np.array(list(map(_plain_text, cells.tolist())), dtype=object)


def _plain_text(text: str) -> str:
    lower = text.lower()
    return "" if lower in EMPTY_TEXTS else lower if lower in BOOLEANS else text


def as_numbers(cells: NDArray[Any], form: str = PLAIN) -> Floats:
    """Cells as floats, NaN where one is empty, infinite or not a number.

    Examples
    --------
    >>> as_numbers(np.array(["$1,250.50", "12 %", "", "x"], dtype=object), "1,234.5").tolist()
    [1250.5, 12.0, nan, nan]
    """
    if cells.dtype.kind == "f":
        return np.where(np.isfinite(cells), cells, np.nan)
    if form in _MARKED:
        values = np.array([_marked(text, form) for text in cells.tolist()], dtype=float)
    else:
        try:
            values = cells.astype(np.float64)  # texts too
        except ValueError:
            values = np.array([_number(text) for text in cells.tolist()], dtype=float)
    return np.where(np.isfinite(values), values, np.nan)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _marked(text: str, form: str) -> float:
    """A number with marks for thousands, a currency or a percent sign."""
    text = _AROUND.sub("", text)
    if not _MARKED[form].fullmatch(text):
        return _number(text) if form == ENGLISH else math.nan
    if form == GERMAN:
        text = text.replace(".", "").replace(",", ".")
    return _number(text.replace(",", ""))


def number_form(cells: NDArray[Any]) -> str:
    """The way in which most cells are numbers; of several the plain one, then that in which most of them are whole.

    Examples
    --------
    >>> forms = (["1.5", "2"], ["1,250", "13,500"], ["0,5", "1.250"], ["147.219 €", "98.500 €"])
    >>> [number_form(np.array(cells, dtype=object)) for cells in forms]
    ['', '1,234.5', '1.234,5', '1.234,5']
    """
    if cells.dtype.kind == "f":
        return PLAIN
    levels = Counter(cells.tolist())
    texts, times = np.array(list(levels), dtype=object), np.array(list(levels.values()))

    def rank(form: str) -> tuple[int, bool, int]:
        values = as_numbers(texts, form)
        return int(times @ ~np.isnan(values)), form == PLAIN, int(times @ (values % 1 == 0))

    return max((PLAIN, ENGLISH, GERMAN), key=rank)


def as_days(cells: NDArray[Any], form: str) -> Floats:
    """Dates as days since 1970-01-01, NaN where a cell is empty or written otherwise."""
    return np.array([_days(text, form) for text in as_text(cells)], dtype=float)


def _days(text: str, form: str) -> float:
    try:
        when = datetime.fromisoformat(text) if form == "iso" else datetime.strptime(text, form)
    except ValueError:
        return math.nan
    return (when.replace(tzinfo=None) - _UNIX).total_seconds() / 86400


def date_form(levels: Mapping[str, int]) -> str:
    """The way in which almost all texts are dates, or ""; day first where both orders would do."""
    some = list(islice(levels, 20))
    for form in DATE_FORMS:
        if all(math.isnan(_days(text, form)) for text in some):
            continue
        odd = sum(count for text, count in levels.items() if len(text) < 6 or math.isnan(_days(text, form)))
        total = sum(levels.values())
        if mostly(total - odd, total):
            return form
    return ""


def mostly(read: int, count: int) -> bool:
    """Whether so many of the cells could be read that the others are mistakes.

    Examples
    --------
    >>> [mostly(*pair) for pair in ((8, 9), (7, 8), (95, 100), (94, 100))]
    [True, False, True, False]
    """
    return read >= _MOSTLY * count or (read >= _FEWEST and read == count - 1)


def odd_cells(cells: NDArray[Any], values: Floats, rows: bool = True) -> str:
    """Cells that are neither empty nor read, in words; ``rows`` says whether the table has all rows, in their order."""
    if cells.dtype.kind == "f":
        return ""
    odd = [(text, k) for k, text in enumerate(as_text(cells).tolist(), 1) if text and math.isnan(values[k - 1])]
    said = [brief(text) + (f" (row {k})" if rows else "") for text, k in odd[:3]]
    if len(odd) > 3:
        return f"{len(odd)} cells such as {said[0]} are read as empty"
    cell, are = ("cells", "are") if len(odd) > 1 else ("cell", "is")
    return f"the {cell} {', '.join(said)} {are} read as empty" if odd else ""


def cells_of(table: Any) -> dict[str, NDArray[Any]]:
    """Raw columns of a data frame (pandas, polars), an Arrow table or a dict of columns."""
    names = [str(name) for name in getattr(table, "column_names", None) or list(getattr(table, "columns", table))]
    if doubled := [name for name in names if names.count(name) > 1]:
        raise InputError(f"the table has the column {brief(doubled[0])} twice")
    found = {}
    for name in getattr(table, "column_names", None) or list(getattr(table, "columns", table)):
        column = np.asarray(table[name])
        if column.dtype.kind in "fiu":
            found[str(name)] = column.astype(np.float64)
        elif column.dtype.kind == "m":
            found[str(name)] = column / np.timedelta64(1, "D")
        elif column.dtype.kind == "M":
            texts = column.astype("datetime64[s]").astype(str).tolist()
            found[str(name)] = np.array(["" if text == "NaT" else text for text in texts], dtype=object)
        else:  # what is not equal to itself is NaN or pandas' NaT
            texts = ["" if _is_empty(value) else str(value).strip() for value in column.tolist()]
            found[str(name)] = np.array(texts, dtype=object)
    return found


def _is_empty(value: Any) -> bool:
    """Whether a cell is None, NaN, pandas' NaT or pandas' NA (which is neither equal nor unequal to itself)."""
    return value is None or type(value).__name__ == "NAType" or bool(value != value)
