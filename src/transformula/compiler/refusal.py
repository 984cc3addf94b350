"""The message of a search that ends without a model: how close it came, where, and what to ask for."""

from __future__ import annotations

import math
from collections.abc import Sequence

from transformula.compiler.attempts import ASK
from transformula.compiler.certify import shortfall
from transformula.errors import NotProvenError, TransformulaError, closer
from transformula.kernel.digits import at_most
from transformula.kernel.enclosures.balls import float_above
from transformula.kernel.enclosures.intervals import UndefinedError, range_of
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.folder.certificate import Certificate, Proof
from transformula.kernel.syntax.boxes import Formula


def spread(formula: Formula) -> float:
    """An upper bound on how far the outputs are from constants; infinite if plain intervals give none."""
    ends = Region.of_box(formula.box).ends
    try:
        ranges = [range_of(expr, ends) for expr in formula.outputs]
    except UndefinedError:
        return math.inf
    return max((float_above((high - low) / 2) for low, high in ranges), default=0.0)


def missed(found: Proof | Certificate, eps: float | None, dtype: str) -> NotProvenError:
    """The refusal for a proof that does not meet the tolerance."""
    proof = Proof(found.approximation, found.rounding, mean=found.mean)
    return NotProvenError(shortfall(proof, eps, dtype), proof.bound, rounding=proof.rounding)


def when_all_is_tried(formula: Formula, refusals: Sequence[TransformulaError]) -> TransformulaError:
    """The most informative refusal; if only errors of tables are known, with the formula's spread as a bound."""
    telling, bound = _most_telling(refusals), spread(formula)
    if not isinstance(telling, NotProvenError) or telling.measured is None or bound == math.inf:
        return telling
    reason = f"{str(telling).removesuffix(ASK)}; the formula itself stays within {at_most(bound)} of a constant"
    return NotProvenError(
        f"{reason}: ask for eps >= {at_most(bound, 2)}", bound, telling.place, telling.measured, telling.rounding
    )


def _most_telling(refusals: Sequence[TransformulaError]) -> TransformulaError:
    """The refusal of the proof that came closest; if nothing could even be built, the first reason."""
    closest: NotProvenError | None = None
    for error in refusals:
        if isinstance(error, NotProvenError):
            closest = closer(error, closest)
    return closest or refusals[0]


def when_it_has_to_end(why: str, formula: Formula, eps: float | None, closest: NotProvenError | None) -> NotProvenError:
    """The refusal when the search has to end: what is known, and what might help."""
    found = closest or NotProvenError("")
    bound, near = found.best_bound, f" ({found.place})" if found.place else ""
    if bound is not None:
        said = f"the best bound proven so far is {at_most(bound)}{near}"
    else:
        bound, said = spread(formula), "no model is proven so far"
        if found.measured is not None:
            said += f", the best has an error of about {found.measured:.3g}{near}"
        if bound < math.inf:
            said += f", and the formula itself stays within {at_most(bound)} of a constant"
    known = bound if bound < math.inf else None
    advice = "ask for a larger eps" if known is None else f"ask for eps >= {at_most(known, 2)}"
    rounding = found.rounding or 0.0
    if eps is not None and rounding > eps:  # which no search makes less
        said += f", and rounding alone is {at_most(rounding)}"
    else:
        advice += ", or allow more time"
    return NotProvenError(f"{why}: {said}; {advice}", known, found.place, found.measured, found.rounding)
