"""Finished models, kept in memory for drawing and downloading: a bounded, least-recently-used shelf."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kept:
    """A model's files by name, and the facts the page shows."""

    files: dict[str, bytes]
    facts: dict[str, Any]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(map(len, self.files.values()))


class Shelf:
    """Models by an identifier nobody can guess; the one not asked for longest goes first.

    Examples
    --------
    >>> shelf = Shelf(models=1, size=1000)
    >>> first, second = (shelf.put(Kept({"model.json": b"{}"}, {})) for _ in range(2))
    >>> shelf.get(first) is None, shelf.get(second) is None
    (True, False)
    """

    def __init__(self, models: int, size: int) -> None:
        self.models, self.size = models, size
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    def put(self, kept: Kept) -> str:
        """Keep a model; returns its identifier."""
        identifier = secrets.token_urlsafe(16)
        self._kept[identifier] = kept
        while len(self._kept) > 1 and (
            len(self._kept) > self.models or sum(k.size for k in self._kept.values()) > self.size
        ):
            self._kept.popitem(last=False)
        return identifier

    def get(self, identifier: str) -> Kept | None:
        """The model, or None if it was never here or has had to make room."""
        if identifier in self._kept:
            self._kept.move_to_end(identifier)
        return self._kept.get(identifier)

    def __len__(self) -> int:
        return len(self._kept)
