"""What to write instead: hints for formulas that cannot be read, matched to the mistake."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from transformula.kernel.expression import FUNCTIONS

_CALLED = re.compile(rf"\b({'|'.join(FUNCTIONS)})\s+([A-Za-z_]\w*|\d+(?:\.\d+)?)", re.ASCII)
_TIMES = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s*([A-Za-z_]\w*|\()", re.ASCII)
_BARS = re.compile(r"\|([^|]+)\|")
#: Names that other languages use.
_NAMES = {"ln": "log", "arctan": "atan", "arcsin": "asin", "arccos": "acos", "power": "**", "pow": "**"}


def hint(given: object, variables: Iterable[str]) -> str:
    """What the first formula with a known mistake should say, or nothing.

    Examples
    --------
    >>> hint("sin x + 1", ["x"]), hint("2x", ["x"]), hint("x + 1", ["x"])
    ('write sin(x)', 'write 2*x', '')
    """
    names = set(variables)
    texts = [given] if isinstance(given, str) else given if isinstance(given, (list, tuple)) else []
    return next((said for text in texts if isinstance(text, str) for said in _hints(text, names)), "")


def _hints(text: str, names: set[str]) -> Iterator[str]:
    if found := _CALLED.search(text):
        yield f"write {found[1]}({found[2]})"
    for name, ours in _NAMES.items():
        if name not in names and ours in (*FUNCTIONS, "**") and re.search(rf"\b{name}\s*\(", text):
            yield f"write {ours} for {name}"
    if found := _BARS.search(text):
        yield f"write abs({found[1].strip()[:40]})"
    found = _TIMES.search(text)
    if found and not re.match(r"[eE]\d", found[2]):
        yield f"write {found[1]}*{found[2]}"
