"""Honest folders, compiled once in a process, for the fuzzers that change them."""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path

import forging

#: Few and small: lookup, circuit, polynomial (with rationals), yun, and those that the attacks need.
NAMES = ("sine", "product32", "cubic32", "steps", "bent", "cells", "fourteenth", "waves32", "line")


@lru_cache
def honest(*names: str) -> dict[str, forging.Folder]:
    """The base models of `forging` with these names."""
    with tempfile.TemporaryDirectory() as place:
        forging.compile_bases(Path(place), list(names))
        return {name: forging.Folder.read(Path(place) / name) for name in names}
