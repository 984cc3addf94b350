"""Advice on a formula that jumps: its pieces with their boxes, a box that ends before the jump, or a ramp."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from transformula.errors import FormulaError
from transformula.formula.evaluation import evaluate
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.boxes import Box, Formula, split_commas
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.syntax.parsing import parse

#: Width of an advised ramp, and of what an advised box leaves out, as a share of the interval of the variable.
_SHARE = 0.01
_WHERE = re.compile(r"\bwhere\s*\(")
_SIGN = re.compile(r"[<>]=?")


@dataclass(frozen=True)
class WhereCall:
    """A call of where in a text, whose first piece is taken where left < right (or else where it is larger)."""

    text: str
    start: int
    end: int
    left: str
    right: str
    smaller: bool
    pieces: tuple[str, str]

    def instead(self, piece: str) -> str:
        """The text with something else in place of the call."""
        alone = self.start == 0 and self.end == len(self.text)
        return piece if alone else f"{self.text[: self.start]}({piece}){self.text[self.end :]}"


def where_calls(text: str) -> Iterator[WhereCall]:
    """The calls of where in a text, the outermost first.

    Examples
    --------
    >>> [call.instead(call.pieces[0]) for call in where_calls("2*where(x > 1, x, where(x < 0, 1, 2))")]
    ['2*(x)', '2*where(x > 1, x, (1))']
    """
    for found in _WHERE.finditer(text):
        depth, end = 1, found.end()
        while depth and end < len(text):
            depth += (text[end] == "(") - (text[end] == ")")
            end += 1
        test, *pieces = split_commas(text[found.end() : end - 1])
        if len(pieces) == 2 and (sign := _SIGN.search(test)):
            sides = test[: sign.start()].strip(), test[sign.end() :].strip()
            yield WhereCall(text, found.start(), end, *sides, sign[0][0] == "<", (pieces[0], pieces[1]))


def advice_on_jump(
    place: str, texts: Sequence[str], box: Box, constants: Mapping[str, str]
) -> tuple[str, tuple[dict[str, object], ...]]:
    """Advice on a formula that jumps at a place such as ``x = 1/2``, in words and as arguments of `compile`."""
    held = "".join(f", {name}={value}" for name, value in constants.items())
    name, _, at = place.partition(" = ")
    found: list[dict[str, object]] = []
    calls = [*where_calls(texts[0])] if len(texts) == 1 else []
    if name in box.variables and calls:
        at = _inside(calls[0], box, name, at)
        place = f"{name} = {at}"
    cut = parse(at) if name in box.variables else None
    parts = [] if cut is None or cut.names else [*_sides(box, name, cut)]
    for part in parts:
        if text := next(_alone(calls, part), ""):
            found.append({"formula": text, "on": f"{part}{held}"})
    said = "compile the pieces alone, " + " and ".join(f"{one['formula']} on {one['on']}" for one in found)
    if not found:
        shorter = next((b for part in parts for b in _shorter(part, name, cut) if _reads(texts, b)), None)
        said = "" if shorter is None else f"end the box before it, {shorter}"
        if shorter is not None:
            found.append({"on": f"{shorter}{held}"})
    ramp, width = _ramp(place, box)
    for call in calls[:1]:
        a, b = call.pieces if call.smaller else call.pieces[::-1]
        joined = f"({a}) + (({b}) - ({a}))*{ramp}"
        taken = [piece for part in parts if (piece := _taken(call, part)) is not None]
        if len(taken) == 2 and cut is not None:
            joined = _joined(name, at, str(ex.add(cut, parse(width))), ramp, *taken)
        joined = call.instead(joined)
        if _reads([joined], box):
            found.append({"formula": joined})
    return f"{said}, or join the pieces by a ramp such as {ramp}".removeprefix(", or "), tuple(found)


def _inside(call: WhereCall, box: Box, name: str, at: str) -> str:
    """A place inside the box at which a condition on one variable changes; ``at`` where there is none, or it is one."""
    low, high = box.floats()[box.variables.index(name)]
    try:
        difference = parse(f"({call.left}) - ({call.right})", (name,))
    except FormulaError:  # of other variables too
        return at
    x = np.linspace(low, high, 1003)[1:-1]
    below = evaluate(difference, (name,), [x]) + 0 * x < 0
    changes = np.flatnonzero(below[1:] != below[:-1])
    if low < float(enclose(parse(at))) < high or not changes.size:
        return at
    a, b = x[changes[0]], x[changes[0] + 1]
    for _ in range(60):
        middle = (a + b) / 2
        same = bool(evaluate(difference, (name,), [np.array([middle])])[0] < 0) == bool(below[changes[0]])
        a, b = (middle, b) if same else (a, middle)
    return str(Fraction(float(b)).limit_denominator(10_000))


def _joined(name: str, start: str, end: str, ramp: str, a: str, b: str) -> str:
    """The piece a up to the start of a ramp, b from its end, and straight from one to the other in between.

    Examples
    --------
    >>> _joined("x", "1", "2", "ramp", "x**2", "1/x")
    'min(x, 1)**2 + 1/max(x, 2) - (1/2) + (1/2 - (1**2))*ramp'
    """

    def at(text: str, value: str) -> str:
        return re.sub(rf"(?<![\w.]){name}(?!\w)", value, text)

    first, last = (at(text, value if value.isalnum() else f"({value})") for text, value in ((a, start), (b, end)))
    held = at(a, f"min({name}, {start})"), at(b, f"max({name}, {end})")
    return f"{held[0]} + {held[1]} - ({last}) + ({last} - ({first}))*{ramp}"


def _sides(box: Box, name: str, cut: Expr) -> Iterator[Box]:
    """The box on either side of a cut, or all of it if the cut is not inside."""
    k = box.variables.index(name)
    low, at, high = (enclose(end) for end in (box.lower[k], cut, box.upper[k]))
    if low < at and at < high:
        yield Box(box.variables, box.lower, (*box.upper[:k], cut, *box.upper[k + 1 :]))
        yield Box(box.variables, (*box.lower[:k], cut, *box.lower[k + 1 :]), box.upper)
    else:
        yield box


def _alone(calls: Sequence[WhereCall], part: Box) -> Iterator[str]:
    """The formula of a part of the box, with the piece that a choice takes there."""
    for call in calls:
        piece = _taken(call, part)
        if piece is not None and _reads([text := call.instead(piece)], part):
            yield text


def _taken(call: WhereCall, part: Box) -> str | None:
    """The piece that a choice takes at all of some points of a part of the box."""
    shares = np.arange(1.0, 34.0) * 0.6180339887498949
    ends = enumerate(part.floats())
    points = [np.asarray(low + (shares * (k + 1) % 1) * (high - low), dtype=np.float64) for k, (low, high) in ends]
    try:
        sides = [parse(side, part.variables) for side in (call.left, call.right)]
    except FormulaError:
        return None
    left, right = (evaluate(side, part.variables, points) + 0 * points[0] for side in sides)
    return call.pieces[bool(left[0] < right[0]) != call.smaller] if len(set((left < right).tolist())) == 1 else None


def _shorter(part: Box, name: str, cut: Expr | None) -> Iterator[Box]:
    """The part without a little at the end that is the cut."""
    k = part.variables.index(name)
    low, high = part.floats()[k]
    away = _SHARE * (high - low)
    if part.upper[k] == cut:
        yield Box(part.variables, part.lower, (*part.upper[:k], parse(f"{high - away:.6g}"), *part.upper[k + 1 :]))
    elif part.lower[k] == cut:
        yield Box(part.variables, (*part.lower[:k], parse(f"{low + away:.6g}"), *part.lower[k + 1 :]), part.upper)


def _reads(texts: Sequence[str], box: Box) -> bool:
    """Whether formulas are read, so that none jumps."""
    try:
        Formula.of(list(texts), box)
    except FormulaError:
        return False
    return True


def _ramp(place: str, box: Box) -> tuple[str, str]:
    """A ramp over one percent of the interval of the variable that jumps, from where it jumps, and its width."""
    name, _, at = place.partition(" = ")
    if name not in box.variables:
        name, at = box.variables[0], "0"
    low, high = box.floats()[box.variables.index(name)]
    shifted = name if at == "0" else f"({name} + {at[1:]})" if at[0] == "-" else f"({name} - {at})"
    shifted = f"({name} - ({at}))" if re.search(r"[+*-]", at[1:]) else shifted
    width = float(f"{(high - low) * _SHARE:.1g}")
    return f"min(max({shifted}/{width:g}, 0), 1)", f"{width:g}"
