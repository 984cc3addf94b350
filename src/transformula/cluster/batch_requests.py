"""Requests of a batch: one for each row of its table, read and checked before any work is done."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from transformula.errors import InputError

#: Verbs of a batch. All but the first use existing folders, and compile only missing ones.
VERBS = ("compile", "verify", "export", "report")
#: Names of columns; ``on`` is a synonym of ``box``.
COLUMNS = ("name", "formula", "box", "on", "eps", "rel", "dtype", "construction")
_NEEDED = ("name", "formula", "box")
_NAME = re.compile(r"\w(?:[\w .,+=()-]{0,98}[\w)+-])?")
#: Names that Windows reserves for devices.
_DEVICES = re.compile(r"(con|prn|aux|nul|(com|lpt)[0-9])(\..*)?", re.IGNORECASE)
#: Files of the batch itself, beside the model folders.
OWN_FILES = ("batch.jsonl", "summary.csv", "summary.html", "summary.json")


@dataclass(frozen=True)
class Request:
    """One formula to compile, with its options."""

    name: str
    formula: str
    box: str
    eps: float | None = None
    rel: float | None = None
    dtype: str = "float64"
    construction: str = "auto"

    @property
    def asked(self) -> dict[str, Any]:
        """All fields but the name: they determine the model."""
        return {key: value for key, value in asdict(self).items() if key != "name"}


def read_requests(rows: Iterable[Mapping[str, Any]], places: Iterable[str] | None = None) -> list[Request]:
    """Requests from rows; ``places`` are the rows' positions in their source, for messages.

    Examples
    --------
    >>> read_requests([{"name": "wave", "formula": "sin(x)", "box": "x=0..1", "eps": "1e-3"}])[0].eps
    0.001
    >>> read_requests([{"name": "../x", "formula": "x", "box": "x=0..1"}])
    Traceback (most recent call last):
    transformula.kernel.exceptions.InputError: row 1: the name '../x' cannot be a folder name: ...
    """
    requests: list[Request] = []
    seen: dict[str, str] = {}
    listed = list(rows)
    where = [f"row {k + 1}" for k in range(len(listed))] if places is None else list(places)
    for row, place in zip(listed, where, strict=True):
        request = _request(row, place)
        same = unicodedata.normalize("NFKC", request.name).casefold()
        if same in seen:
            clash = (
                "is given twice"
                if seen[same] == request.name
                else f"is the same as {seen[same]!r} on some file systems"
            )
            raise InputError(f"{place}: the name {request.name!r} {clash}: give each formula a name of its own")
        seen[same] = request.name
        requests.append(request)
    if not requests:
        raise InputError("there is no formula in the table")
    return requests


def check_columns(names: Iterable[str], source: str) -> None:
    """Refuse a table with a column missing, unknown or given twice."""
    names = list(names)
    for name in names:
        if name not in COLUMNS:
            raise InputError(f"{source} has a column {name!r}, which is not known: use {', '.join(COLUMNS)}")
        if names.count(name) > 1:
            raise InputError(f"{source} has the column {name} twice")
    if {"box", "on"} <= set(names):
        raise InputError(f"{source} has the columns box and on, which mean the same: keep one")
    for name in _NEEDED:
        if name not in names and not (name == "box" and "on" in names):
            raise InputError(f"{source} has no column {name} (it has {', '.join(names) or 'none'})")


def _request(row: Mapping[str, Any], place: str) -> Request:
    check_columns(row, place)
    cells = {("box" if key == "on" else key): value for key, value in row.items() if value not in (None, "")}
    for key in _NEEDED:
        if not str(cells.get(key, "")).strip():
            raise InputError(f"{place}: {key} is empty")
    name = str(cells["name"]).strip()
    _check_name(name, place)
    numbers = {key: _number(cells[key], key, place) for key in ("eps", "rel") if key in cells}
    words = {key: str(cells[key]).strip() for key in ("formula", "box", "dtype", "construction") if key in cells}
    return Request(name=name, **words, **numbers)  # type: ignore[arg-type]


def _check_name(name: str, place: str) -> None:
    if not _NAME.fullmatch(name):
        shown = name if len(name) <= 60 else name[:57] + "..."
        raise InputError(
            f"{place}: the name {shown!r} cannot be a folder name: use letters, digits and . , + - = ( ) _"
        )
    if _DEVICES.fullmatch(name) or name.casefold() in OWN_FILES:
        raise InputError(f"{place}: the name {name!r} is taken by something else: choose another")


def _number(cell: Any, key: str, place: str) -> float:
    try:
        value = float(cell)
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{place}: {key} is {str(cell)[:40]!r}, not a number above 0")
    return value
