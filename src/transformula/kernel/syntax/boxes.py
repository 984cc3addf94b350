"""Boxes of inputs (products of closed intervals whose ends are exact), and formulas on them, exactly as written.

A box is written ``x=0..2*pi, y1..y9=-1/3..0.5``.

A sequence whose positions all compute the same from their own inputs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from flint import arb

from transformula.kernel.arithmetic import precision
from transformula.kernel.enclosures.balls import enclose
from transformula.kernel.enclosures.intervals import range_of
from transformula.kernel.exceptions import BoxError, FormulaError, RefutedError
from transformula.kernel.syntax import expression as ex
from transformula.kernel.syntax.definitions import JUMPS
from transformula.kernel.syntax.expression import Expr
from transformula.kernel.syntax.jumps import continuous
from transformula.kernel.syntax.parsing import parse

MAX_VARIABLES = MAX_OUTPUTS = 1_000
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NUMBERED = re.compile(r"([A-Za-z_]\w*?)(\d{1,9})", re.ASCII)
#: Enough to tell apart any two ends a person would write down.
_COMPARE_BITS = 512


@dataclass(frozen=True)
class Box:
    """A product of closed intervals, one for each variable, in the order given."""

    variables: tuple[str, ...]
    lower: tuple[Expr, ...]
    upper: tuple[Expr, ...]

    def __post_init__(self) -> None:
        if not self.variables:
            raise BoxError("the box has no variables: give one interval for each, like x=0..1")
        if len(self.variables) > MAX_VARIABLES:
            raise BoxError(f"the box has {len(self.variables)} variables; at most {MAX_VARIABLES}")
        for name, low, high in zip(self.variables, self.lower, self.upper, strict=True):
            _check_interval(name, low, high)
            if self.variables.count(name) > 1:
                raise BoxError(f"the box gives {name} twice")

    @classmethod
    def of(cls, given: str | Box) -> Box:
        """A box from its text."""
        if isinstance(given, Box):
            return given
        if not isinstance(given, str):
            raise BoxError(f"a box is text, not {given!r}")
        intervals: list[tuple[str, Expr, Expr]] = []
        for part in split_commas(given):
            names, equals, interval = part.partition("=")
            if not equals:
                raise BoxError(f"cannot read {part!r} in the box: write name=low..high")
            ends = parse_interval(interval, names.strip())
            intervals.extend((name, *ends) for name in expanded_names(names.strip()))
            if len(intervals) > MAX_VARIABLES:
                raise BoxError(f"the box has over {MAX_VARIABLES} variables")
        columns = zip(*intervals, strict=True) if intervals else ((), (), ())
        return cls(*(tuple(column) for column in columns))  # type: ignore[arg-type]

    @property
    def dimension(self) -> int:
        """Number of variables."""
        return len(self.variables)

    def magnitude(self, index: int) -> arb:
        """Upper bound of abs(x) on one interval, as an exact ball."""
        return abs(enclose(self.lower[index])).max(abs(enclose(self.upper[index]))).upper()

    def floats(self) -> list[tuple[float, float]]:
        """The ends rounded to the nearest floats: for plots and sampling, never for proofs."""
        with precision(_COMPARE_BITS):
            ends = zip(self.lower, self.upper, strict=True)
            return [(float(enclose(low)), float(enclose(high))) for low, high in ends]

    def __str__(self) -> str:
        ends = zip(self.variables, self.lower, self.upper, strict=True)
        return ", ".join(f"{name}={low}..{high}" for name, low, high in ends)


def _check_interval(name: object, low: Expr, high: Expr) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BoxError(f"{name!r} is not a variable name: use letters, digits and _")
    if not (isinstance(low, Expr) and isinstance(high, Expr)):
        raise BoxError(f"the ends of {name} must be expressions: make the box from text, with Box.of")
    if name in ex.RESERVED:
        raise BoxError(f"{name} is a function: give the variable another name")
    with precision(_COMPARE_BITS):
        ends = enclose(low), enclose(high)
    if not all(end.is_finite() for end in ends):
        raise BoxError(f"the interval {name}={low}..{high} has an end that is not a number")
    if ends[0] > ends[1]:
        raise BoxError(f"the interval {name}={low}..{high} is reversed: write {high}..{low}")
    if not ends[0] < ends[1]:
        said = f"put the value of {name} into the formula instead"
        raise BoxError(f"the interval {name}={low}..{high} is empty or a single point: {said}")


def split_commas(text: str) -> list[str]:
    """Split at the commas outside parentheses; empty text gives no parts."""
    parts = []
    depth = 0
    start = 0
    for position, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    return [*parts, text[start:].strip()] if text.strip() else parts


def parse_interval(text: str, name: str) -> tuple[Expr, Expr]:
    """The ends of ``low..high``."""
    if "..." in text:
        raise BoxError(f"the interval {text.strip()!r} of {name} has three dots: write 0..0.5, not 0...5")
    low, dots, high = text.partition("..")
    if not dots or not low.strip() or not high.strip():
        raise BoxError(f"cannot read the interval {text.strip()!r} of {name}: write low..high")
    return parse_end(low, name), parse_end(high, name)


def parse_end(text: str, name: str) -> Expr:
    """One end of an interval, or another exact value of a variable."""
    if text.strip().lower().lstrip("+-") in ("nan", "inf", "infinity"):
        raise BoxError(f"{name} is given as {text.strip()}: only finite numbers can be used")
    try:
        return parse(text, ())
    except FormulaError as error:
        raise BoxError(f"the value {text.strip()!r} of {name} cannot be read: {error}") from None


def is_variable_name(name: str) -> bool:
    """Whether a name can be that of a variable."""
    return bool(_NAME.fullmatch(name)) and name not in ex.RESERVED


def expanded_names(text: str) -> list[str]:
    """The names that ``x1..x9`` stands for, or the one name given."""
    first, dots, last = text.partition("..")
    if not dots:
        return [text]
    ends = _NUMBERED.fullmatch(first.strip()), _NUMBERED.fullmatch(last.strip())
    if not ends[0] or not ends[1] or ends[0][1] != ends[1][1]:
        raise BoxError(f"cannot read the names {text[:60]!r}: a range of names looks like x1..x9")
    start = int(ends[0][2])
    stop = int(ends[1][2])
    digits = len(ends[0][2])
    if digits > len(str(start)) and digits != len(ends[1][2]):
        raise BoxError(f"cannot read the names {text[:60]!r}: write both ends with as many digits")
    if not 0 <= stop - start < MAX_VARIABLES:
        raise BoxError(f"the range of names {text[:60]!r} is empty, reversed or too long")
    return [f"{ends[0][1]}{k:0{digits}d}" for k in range(start, stop + 1)]


def _read(text: str, box: Box) -> Expr:
    expr = parse(text, box.variables, jumps=True)
    if not any(node.op in JUMPS for node in ex.walk(expr)):
        return expr
    ends = ((range_of(low, {})[0], range_of(high, {})[1]) for low, high in zip(box.lower, box.upper, strict=True))
    return continuous(expr, dict(zip(box.variables, ends, strict=True)))


@dataclass(frozen=True)
class Formula:
    """Expressions on a box: outputs × inputs; ``typed`` are the texts they were read from, if they were."""

    outputs: tuple[Expr, ...]
    box: Box
    typed: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, given: str | Sequence[str | Expr], on: str | Box) -> Formula:
        """Parse one formula or several on a box; every variable must be declared, but need not be used."""
        box = Box.of(on)
        if not isinstance(given, (str, Sequence)):
            raise FormulaError(f"a formula must be text or a list of texts, not {type(given).__name__}")
        texts = [given] if isinstance(given, str) else list(given)
        if not 0 < len(texts) <= MAX_OUTPUTS:
            raise FormulaError(f"there are {len(texts) or 'no'} formulas to compile: at most {MAX_OUTPUTS} at once")
        outputs = tuple(text if isinstance(text, Expr) else _read(text, box) for text in texts)
        used = frozenset().union(*(e.names for e in outputs))
        if unknown := sorted(used - frozenset(box.variables)):
            raise BoxError(f"the box has no interval for {', '.join(unknown)}")
        return cls(outputs, box, tuple(map(str, texts)))

    @property
    def texts(self) -> tuple[str, ...]:
        """Each output as text."""
        return tuple(str(e) for e in self.outputs)

    def __str__(self) -> str:
        return "; ".join(self.texts)


def formula_of_a_position(formula: Formula, positions: int) -> Formula:
    """The formula of every position in its own inputs; refused if the positions differ.

    Examples
    --------
    >>> str(formula_of_a_position(Formula.of(["sin(a)", "sin(b)"], "a=0..1, b=0..1"), 2))
    'sin(a)'
    """
    box, names = formula.box, formula.box.variables
    inputs, rest = divmod(len(names), positions)
    outputs, left = divmod(len(formula.outputs), positions)
    first = formula.outputs[:outputs]
    same = not rest and not left and not any(ex.variables_of(e) - set(names[:inputs]) for e in first)
    for p in range(1, positions):
        own = slice(p * inputs, (p + 1) * inputs)
        if same:
            swap = {ex.variable(a): ex.variable(b) for a, b in zip(names[:inputs], names[own], strict=True)}
            wanted = tuple(ex.substitute(e, swap) for e in first)
            same = box.lower[own] == box.lower[:inputs] and box.upper[own] == box.upper[:inputs]
            same = same and formula.outputs[p * outputs : (p + 1) * outputs] == wanted
    if not same:
        raise RefutedError("every position computes the same, but the formulas differ")
    return Formula(first, Box(names[:inputs], box.lower[:inputs], box.upper[:inputs]))
