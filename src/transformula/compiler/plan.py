"""The plan: which constructions to try for a formula, and the checks before any of them begins."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from transformula.compiler import policy
from transformula.compiler.attempts import Attempt, BuildTask
from transformula.compiler.constructions import (
    CIRCUIT,
    CONSTRUCTIONS,
    LOOKUP,
    PARTITION,
    POLYNOMIAL,
    RIDGE_FAMILY,
    Construction,
)
from transformula.compiler.options import Options
from transformula.compiler.prepare import Prepared, check_length
from transformula.errors import InputError, NotProvenError
from transformula.kernel.enclosures.intervals import UndefinedError, range_of
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.syntax.boxes import Box
from transformula.kernel.syntax.expression import walk
from transformula.kernel.syntax.printing import short_text

#: Constructions that compete by size; a later round is for when none of the earlier ones was proven.
Round = tuple[Construction, ...]


def rounds(ground: Prepared, options: Options) -> list[Round]:
    """The rounds of a search."""
    if options.construction is not None:
        return [(options.construction,)]
    if options.layers == 1:
        return [(LOOKUP,), (PARTITION,)]
    if options.shape is None and ground.is_polynomial:
        # without eps the claim is that of an exact polynomial: nothing else will do
        return [(POLYNOMIAL,), *([] if options.eps is None else _approximations(ground))]
    return _approximations(ground)


def _approximations(ground: Prepared) -> list[Round]:
    forms = max((len(part.forms) for split in ground.splits for part in split.parts), default=0)
    # a grid would be far larger, or not accurate where ReLUs are exact or a root is steep
    if forms > policy.MAX_GRID_FORMS or _needs_relus(ground) or _steep_inside(ground):
        return [(CIRCUIT,), (LOOKUP,), (PARTITION,)]
    if forms > 1:
        return [(CIRCUIT, LOOKUP), (PARTITION,)]  # the circuit's size limits the grids that are worth trying
    return [(LOOKUP,), (CIRCUIT,), (PARTITION,)]  # functions of one form fit in one layer


def _needs_relus(ground: Prepared) -> bool:
    """Whether a summand has an abs, min or max in it that is not just one of an affine expression."""
    nodes = (node for split in ground.splits for part in split.parts for node in walk(part.expr))
    return any(node.op in ("abs", "min", "max") for node in nodes)


def _steep_inside(ground: Prepared) -> bool:
    """Whether an argument of a cube root may change its sign: no single table is accurate on both sides of 0."""
    ends = Region.of_box(ground.formula.box).ends
    inside = [node.args[0] for expr in ground.formula.outputs for node in walk(expr) if node.op == "cbrt"]
    try:
        return any(low < 0 < high for low, high in (range_of(expr, ends) for expr in inside))
    except UndefinedError:
        return False


def attempts(construction: Construction, task: BuildTask) -> Iterator[Attempt]:
    """Models of one construction to try, cheapest first, once nothing rules it out."""
    assert construction.attempts is not None, f"{construction.name} is not made from formulas"
    check_options(construction, task.options)
    if construction.family is not RIDGE_FAMILY:  # its tables are fitted in floats, and its circuit is compared
        _check_floats(task.formula.box, task.options.dtype)
        check_length(task.ground)
    yield from construction.attempts(task)


def check_options(construction: Construction, options: Options) -> None:
    """Refuse options that the construction does not take."""
    name, takes = construction.name, construction.options
    if options.multi_head and "multi_head" not in takes:
        raise InputError("multi_head only applies to the polynomial construction")
    if options.layers == 1 and "layers" not in takes:
        raise InputError(f"a single layer needs the construction {_taking('layers')}: {name} has several layers")
    if options.shape is not None and "shape" not in takes:
        raise InputError(
            f"sequences need the construction {_taking('shape')}: {name} is for functions, not for sequences"
        )


def _taking(option: str) -> str:
    """The constructions that take an option, as text."""
    *first, last = (name for name, made in CONSTRUCTIONS.items() if option in made.options)
    return f"{', '.join(first)} or {last}"


def _check_floats(box: Box, dtype: str) -> None:
    """Refuse intervals that leave the format's range, or are so narrow that hardly a float lies in them."""
    for name, ends, low, high in zip(box.variables, box.floats(), box.lower, box.upper, strict=True):
        size, text = max(map(abs, ends)), f"{name}={short_text(low):.30}..{short_text(high):.30}"
        if not size < float(np.finfo(dtype).max):
            raise NotProvenError(f"the interval {text} is beyond {dtype}'s range: rescale {name}", place=text)
        if not ends[1] - ends[0] > policy.FEWEST_FLOATS * float(np.spacing(np.array(size, dtype))):
            raise NotProvenError(
                f"{dtype} has hardly any numbers in the interval {text}: replace {name} by its distance from one end",
                place=text,
            )
