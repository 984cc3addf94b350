"""What may be asked for beside formula and box, and the checks of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from transformula.constructions.registry import Construction, chosen
from transformula.errors import InputError
from transformula.formulas.peaks import peak
from transformula.formulas.positions import at_every_position
from transformula.kernel.folder.weights import DTYPES
from transformula.kernel.syntax.boxes import MAX_VARIABLES, Formula


@dataclass(frozen=True)
class Options:
    """What the user may ask for beside formula and box.

    ``most`` tokens are all that is still of use in a model; ``known`` is what attempts leave for others of one search.
    """

    eps: float | None = None
    construction: Construction | None = None
    dtype: str = "float64"
    multi_head: bool = False
    layers: int | None = None
    shape: tuple[int, int] | None = None
    most: float = math.inf
    known: dict[str, Any] = field(default_factory=dict, compare=False)


def checked_options(
    eps: float | None,
    construction: str,
    dtype: str,
    multi_head: bool,
    layers: int | None,
    shape: tuple[int, int] | None,
    formula: Formula,
) -> Options:
    """Options that can be used for the formula."""
    check_positive(eps, "eps")
    check_dtype(dtype)
    wanted = chosen(construction)
    if layers not in (None, 1):
        raise InputError("layers must be left out or set to 1")
    if shape is not None:
        shape = _check_shape(shape, formula)
    return Options(None if eps is None else float(eps), wanted, dtype, multi_head, layers, shape)


def absolute(rel: float, eps: float | None, formula: Formula) -> float:
    """A tolerance that is at most rel · sup|f| for every output f."""
    if eps is not None:
        raise InputError("give either eps or rel, not both")
    check_positive(rel, "rel")
    sizes = [peak(expr, formula.box) for expr in formula.outputs]
    if min(sizes) == 0:
        text = formula.texts[sizes.index(0)]
        raise InputError(f"rel needs a value of {text} on the box that is not 0, and found none: give eps")
    absolute = math.nextafter(float(rel) * min(sizes), 0)
    if not 0 < absolute < math.inf:
        raise InputError(f"rel = {rel:g} of the largest value {min(sizes):g} is not a float above 0: give eps")
    return absolute


def check_positive(value: object, name: str) -> None:
    """Refuse what is given and is no number above 0."""
    if value is not None and not (isinstance(value, (int, float)) and math.isfinite(value) and value > 0):
        raise InputError(f"{name} must be a number above 0, not {value!r}")


def check_dtype(dtype: str) -> None:
    """Refuse a format that is not known."""
    if dtype not in DTYPES:
        raise InputError(f"unknown dtype {dtype!r}: choose {' or '.join(DTYPES)}")


def at_positions(formula: Formula, shape: Any) -> Formula:
    """The formula of one position, repeated for all, where it has one position's variables only."""
    try:
        n, d = shape
    except (TypeError, ValueError):
        return formula
    if formula.box.dimension == d == len(formula.outputs) and isinstance(n, int) and 1 < n <= MAX_VARIABLES:
        return at_every_position(formula, n)
    return formula


def _check_shape(shape: Sequence[int], formula: Formula) -> tuple[int, int]:
    if len(shape) != 2 or not all(isinstance(v, int) and v > 0 for v in shape):
        raise InputError(f"shape must be (positions, features), not {shape!r}")
    n, d = shape
    if n * d != formula.box.dimension or n * d != len(formula.outputs):
        raise InputError(
            f"a sequence of shape {n} x {d} needs {n * d} variables and {n * d} formulas "
            f"(or {d} of each, the same for every position), "
            f"not {formula.box.dimension} and {len(formula.outputs)}"
        )
    return n, d
