"""Options of a model, and their checks."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any

from transformula.compiler import policy
from transformula.compiler.constructions import Construction, chosen
from transformula.compiler.evidence.range_trees import find_tree
from transformula.compiler.prepare import Prepared
from transformula.errors import InputError, NotProvenError, Option, brief
from transformula.formula.evaluation import peak
from transformula.formula.notations import at_every_position
from transformula.kernel.enclosures.balls import float_below, to_fmpq
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.folder.evidence import Evidence
from transformula.kernel.folder.weights import DTYPES
from transformula.kernel.rules.relative_rule import inverse_of, largest_inverse
from transformula.kernel.syntax.boxes import MAX_VARIABLES, Formula
from transformula.kernel.syntax.expression import short_text

#: Claims are this much above what was proven here, so that the last digits of another machine's
#: libraries cannot make an honest certificate fail.
CLAIM_MARGIN = 1.001


@dataclass(frozen=True)
class Options:
    """Options of a model beside formula and box."""

    eps: float | None = None  # None: none was asked for
    construction: Construction | None = None
    dtype: str = "float64"
    multi_head: bool = False
    layers: int | None = None
    shape: tuple[int, int] | None = None
    inverse: tuple[list[int], ...] = ()  # trees that bound 1/f, for a claim relative to |f|
    usual: float = policy.DEFAULT_EPS  # tolerance of an approximation where none was asked for

    def tolerance(self, exact: bool) -> float | None:
        """The tolerance that a model has to meet; None for an exact one, which may claim whatever it can prove."""
        return self.usual if self.eps is None and not exact else self.eps


def checked_options(
    ground: Prepared,
    eps: float | None,
    rel: float | None,
    construction: str,
    dtype: str,
    multi_head: bool,
    layers: int | None,
    shape: tuple[int, int] | None,
    pointwise: float | None = None,
) -> Options:
    """Options that can be used for the formula; a relative tolerance becomes an absolute one."""
    if sum(given is not None for given in (eps, rel, pointwise)) > 1:
        raise InputError("give one of eps, rel and pointwise, not several")
    inverse: tuple[list[int], ...] = ()
    if rel is not None:
        eps = absolute(rel, ground)
    elif pointwise is not None:
        eps, inverse = everywhere(pointwise, ground)
    tolerance = positive(eps, "eps")
    form = known_dtype(dtype)
    wanted = chosen(construction)
    if not (layers is None or (isinstance(layers, Real) and layers == 1)):
        raise InputError("layers must be left out or set to 1")
    if shape is not None:
        _check_shape(shape, ground.formula)
    usual = policy.DEFAULT_EPS if tolerance or ground.is_polynomial else _fitting(ground)
    return Options(tolerance, wanted, form, multi_head, layers, shape, inverse, usual)


def _fitting(ground: Prepared) -> float:
    """The usual tolerance, or that share of the formula's largest value where that is beyond 1000 or below 1/1000."""
    formula = ground.defined
    size = max(peak(expr, formula.box) for expr in formula.outputs)
    if size < policy.FAINT or policy.PLAIN_SIZE[0] <= size <= policy.PLAIN_SIZE[1]:
        return policy.DEFAULT_EPS
    fitting = 10.0 ** math.floor(math.log10(policy.DEFAULT_EPS * size))
    return fitting if 0 < fitting < math.inf else policy.DEFAULT_EPS


def absolute(rel: Any, ground: Prepared) -> float:
    """A tolerance that is at most rel · sup|f| for every output f, once f is shown to be defined."""
    formula = ground.defined
    share = positive(rel, "rel")
    assert share is not None
    sizes = [peak(expr, formula.box) for expr in formula.outputs]
    if min(sizes) == 0:
        text = formula.texts[sizes.index(0)]
        raise InputError(f"rel needs a value of {text} on the box that is not 0, and found none: give eps")
    absolute = math.nextafter(share * min(sizes), 0)
    if not 0 < absolute < math.inf:
        raise InputError(f"rel = {share:g} of the largest value {min(sizes):g} is not a float above 0: give eps")
    return absolute


def everywhere(pointwise: Any, ground: Prepared) -> tuple[float, tuple[list[int], ...]]:
    """A tolerance that is at most pointwise · |f| at every point, and trees of the box that show it."""
    formula, share = ground.formula, positive(pointwise, "pointwise")
    assert share is not None
    region, trees = Region.of_box(ground.defined.box), []
    for expr in formula.outputs:
        try:
            trees.append(find_tree(inverse_of(expr), region))
        except NotProvenError:
            said = (
                f"{short_text(expr)} is not seen to stay away from 0 on the box, where a relative error has no meaning"
            )
            raise NotProvenError(f"{said}: give eps, or narrow the box") from None
    largest = largest_inverse(formula, Evidence({"inverse": trees}))
    found = float_below(to_fmpq(Fraction(share) / (largest * Fraction(CLAIM_MARGIN) ** 2)))
    if not found > 0:
        raise InputError(f"pointwise = {share:g} of the smallest |formula| is not a float above 0: give eps")
    return found, tuple(trees)


def positive(value: Any, name: str) -> float | None:
    """A number above 0 of any kind, as a float; None stays None.

    Examples
    --------
    >>> from fractions import Fraction
    >>> positive(Fraction(1, 8), "eps"), positive(None, "eps")
    (0.125, None)
    """
    if value is None:
        return None
    try:
        known = isinstance(value, (Real, Decimal)) and not isinstance(value, bool)
        found = float(value) if known else math.nan
    except (OverflowError, ValueError):  # beyond the range of floats
        found = math.nan
    if not 0 < found < math.inf:
        raise InputError(f"{name} must be a number above 0, not {brief(value)}", Option(name))
    return found


def known_dtype(dtype: Any) -> str:
    """The name of a format; NumPy's own types are read as well."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", getattr(dtype, "__name__", None))
    if name not in DTYPES:
        raise InputError(f"unknown dtype {brief(dtype)}: choose {' or '.join(DTYPES)}")
    return str(name)


def known_shape(shape: Any) -> tuple[int, int] | None:
    """A sequence's positions and features; None stays None."""
    if shape is None:
        return None
    try:
        n, d = (operator.index(value) for value in shape if not isinstance(value, bool))
    except (TypeError, ValueError):
        n = d = 0
    if not (n > 0 and d > 0):
        raise InputError(f"shape must be (positions, features), not {brief(shape)}")
    return n, d


def at_positions(formula: Formula, shape: tuple[int, int] | None) -> Formula:
    """The formula of one position, repeated for all, where it has one position's variables only."""
    n, d = shape or (1, 0)
    if formula.box.dimension == d == len(formula.outputs) and 1 < n <= MAX_VARIABLES:
        return at_every_position(formula, n)
    return formula


def _check_shape(shape: tuple[int, int], formula: Formula) -> None:
    n, d = shape
    if n * d != formula.box.dimension or n * d != len(formula.outputs):
        raise InputError(
            f"a sequence of shape {n} x {d} needs {n * d} variables and {n * d} formulas "
            f"(or {d} of each, the same for every position), "
            f"not {formula.box.dimension} and {len(formula.outputs)}"
        )
