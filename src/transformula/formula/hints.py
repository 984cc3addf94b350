"""Hints for formulas that cannot be read, matched to the mistake."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from transformula.errors import Reason
from transformula.kernel.syntax.definitions import ALIASES, JUMPING, JUMPS, known
from transformula.kernel.syntax.expression import CONSTANTS, RESERVED

_CALLED = re.compile(rf"\b({'|'.join(RESERVED)})\s+([A-Za-z_]\w*|\d+(?:\.\d+)?)", re.ASCII)
_TIMES = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s*([A-Za-z_]\w*|\()", re.ASCII)
_REMAINDER = re.compile(r"([A-Za-z_]\w*|\d+)\s*%\s*([A-Za-z_]\w*|\d+(?:\.\d+)?)", re.ASCII)
_BARS = re.compile(r"\|([^|]+)\|")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\s*\()(?!\w)", re.ASCII)
_CONSTANTS = (*CONSTANTS, "e")
_BEFORE_BRACKET = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\s*\(", re.ASCII)


#: Advice on the kernel's refusals of a formula.
ADVICE: dict[object, str] = {
    Reason.JUMP: "end the box there, or join the pieces by a ramp such as min(max(100*x, 0), 1)",
    Reason.CONDITION: "write where(x < -1, .., where(x < 1, .., ..)) for abs(x) < 1, or use min and max",
}


def hint(given: object, variables: Iterable[str]) -> str:
    """Advice on the first formula with a known mistake, or nothing.

    Examples
    --------
    >>> hint("sin x + 1", ["x"]), hint("2x", ["x"]), hint("x + 1", ["x"]), hint("x + y", ["x"])
    ('write sin(x)', 'write 2*x', '', 'add y=low..high to the box')
    """
    names = set(variables)
    texts = [given] if isinstance(given, str) else given if isinstance(given, (list, tuple)) else []
    return next((said for text in texts if isinstance(text, str) for said in _hints(text, names)), "")


def _hints(text: str, names: set[str]) -> Iterator[str]:
    if "\\" in text:
        yield "formulas in LaTeX are read with --latex (tf.from_latex in Python)"
    if found := _CALLED.search(text):
        yield f"write {found[1]}({found[2]})"
    functions = (*known(), *JUMPS, *JUMPING, *ALIASES)
    for name in _BEFORE_BRACKET.findall(text):
        if name not in functions and name not in names and (near := get_close_matches(name, functions, 1, 0.7)):
            yield f"the nearest function is {near[0]}"
    if found := _REMAINDER.search(text):
        yield f"write mod({found[1]}, {found[2]})"
    if found := _BARS.search(text):
        yield f"write abs({found[1].strip()[:40]})"
    found = _TIMES.search(text)
    if found and not re.match(r"[eE]\d", found[2]):
        yield f"write {found[1]}*{found[2]}"
    for name in _NAME.findall(text):
        if name not in names and name not in functions and name not in _CONSTANTS:
            yield f"add {name[:40]}=low..high to the box"
