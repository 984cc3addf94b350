"""Reasons of refusals, and their sentences: the one place where they are worded.

An error of the search carries its reason as a value with its numbers (``error.reason``); decisions are made by type
and number, never by the text. Advice names parameters as Python does (``eps >= 0.1``, ``dtype='float64'``); the command
line and the explorer print them in their own words (`errors.in_words_of`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from transformula.compiler import policy
from transformula.compiler.evidence.definedness import Undefined
from transformula.errors import Advised, NotProvenError, Reason, RefutedError, TransformulaError, closer, closest_bound
from transformula.kernel.arithmetic import at_most
from transformula.kernel.enclosures.balls import float_above
from transformula.kernel.enclosures.intervals import UndefinedError, range_of
from transformula.kernel.enclosures.regions import Region
from transformula.kernel.folder.description import Proof
from transformula.kernel.syntax.boxes import Formula, split_commas
from transformula.kernel.syntax.expression import substitute


class Ending(Enum):
    """Why a search ends before all attempts are tried."""

    WORK = "no proof was found within the usual amount of work for a formula of this size"
    TIME = "the search was ended after {time_limit:g} s"
    INTERRUPT = "interrupted"


@dataclass(frozen=True)
class Shortfall:
    """A proven bound that does not meet the tolerance."""

    proof: Proof
    eps: float | None
    dtype: str

    def error(self, advice: str | None = None) -> NotProvenError:
        """The refusal: the bound, its two parts, and what to ask for; by default this bound, for the same weights."""
        proof, eps = self.proof, self.eps
        parts = f"approximation {at_most(proof.approximation)} + rounding {at_most(proof.rounding)}"
        parts += ", means over the box" if proof.mean else ""
        said = f"the best bound is {at_most(proof.bound)} ({parts})"
        if eps is None:
            said = f"no finite bound is proven: {said}"
        else:
            said = f"eps = {eps:g} is not proven: {said}"
            said += ", and rounding alone is more than eps" * (proof.rounding > eps)
            other = "use dtype='float64'" if proof.rounding > eps and self.dtype == "float32" else ""
            own = f"ask for eps >= {at_most(proof.bound, 2)}", other
            said = _advised(said, *(own if advice is None else (advice,)))
        return NotProvenError(said, best_bound=proof.bound, rounding=proof.rounding, reason=self)


@dataclass(frozen=True)
class Checked:
    """Advice that searches of their own were seen to meet: a tolerance, or other options for the one asked for."""

    eps: float | None = None
    others: dict[str, object] = field(default_factory=dict)
    box: str | None = None  # a smaller one
    share: float = 0.0  # of the smallest |formula|, for one unit of eps; 0 unless pointwise was asked for

    @property
    def text(self) -> str:
        """The advice; empty if nothing was found that holds."""
        found = [] if self.eps is None else [f"ask for eps >= {at_most(self.eps, 2)}"]
        if self.eps is not None and self.share:
            if self.pointwise < 1:
                found = [f"ask for pointwise={at_most(self.pointwise, 2)}"]
            else:  # an error larger than the formula itself
                found = ["narrow the box to where |formula| is larger", *found]
        found += [f"use {name}={value!r}" for name, value in self.others.items()]
        return " or ".join([*found, *([] if self.box is None else [f"narrow the box: {self.box} would work"])])

    @property
    def pointwise(self) -> float:
        """The tolerance relative to |formula| that the larger tolerance stands for."""
        return (self.eps or 0.0) * self.share

    @property
    def advice(self) -> tuple[dict[str, object], ...]:
        """The same as arguments of `compile`."""
        found: list[dict[str, object]] = [{name: value} for name, value in self.others.items()]
        if self.eps is not None and 0 < self.pointwise < 1:
            found = [{"pointwise": float(at_most(self.pointwise, 2))}, *found]
        elif self.eps is not None:
            found = [{"eps": float(at_most(self.eps, 2))}, *found]
        return (*found, *([] if self.box is None else [dict[str, object](on=self.box)]))


def _advised(said: str, *advice: str) -> str:
    given = " or ".join(one for one in advice if one)
    return f"{said}; {given}" if given else said


@dataclass(frozen=True)
class Coarse:
    """Tables or cells that are too coarse: no proof is tried. ``rounding`` is the error that no table can undo."""

    statement: str
    expected: float
    rounding: float | None = None

    def error(self) -> NotProvenError:
        """The refusal."""
        return NotProvenError(self.statement, measured=self.expected, rounding=self.rounding, reason=self)


def check_strain(expected: float, eps: float, said: str, rounding: float | None = None) -> None:
    """Refuse tables whose expected error is so large that a proof is not worth trying."""
    if expected > policy.STRAINED * eps:
        raise Coarse(f"{said} an error of about {expected:.2g}", expected, rounding).error()


def undefined_on_box(what: object) -> NotProvenError:
    """The refusal of a function whose samples are not finite."""
    return NotProvenError(f"{what} is undefined or unbounded on the box: narrow the box")


def unbounded_on_box(what: object, place: str = "") -> NotProvenError:
    """The refusal of a quantity without a finite range."""
    return NotProvenError(f"the range of {what} could not be bounded on the box: narrow the box", place=place)


def beyond_format(what: str, dtype: str) -> NotProvenError:
    """The refusal of weights that the format does not hold."""
    return NotProvenError(f"the {what} of a table are beyond {dtype}'s range: rescale the variables")


def unusable_interval(name: str, interval: str, dtype: str, beyond: bool) -> NotProvenError:
    """The refusal of an interval ``beyond`` the format's range, or of one with hardly any numbers in it."""
    if beyond:
        said = f"the interval {interval} is beyond {dtype}'s range: rescale {name}"
    else:
        said = f"{dtype} has hardly any numbers in the interval {interval}: replace {name} by its distance from one end"
    return NotProvenError(said, place=interval)


def too_many_cells(tokens: float) -> NotProvenError:
    """The refusal of a partition."""
    most = policy.MOST_POINTS
    return NotProvenError(f"the partition would need about {tokens:.2g} tokens, more than {most:.0g}")


def too_steep(place: float) -> NotProvenError:
    """The refusal of cells that have no width in floats."""
    said = f"the function is so steep near {place:.6g} that a cell would be narrower than two floats"
    return NotProvenError(said)


def no_polynomial(expr: object, degree: int, goal: float, error: float) -> NotProvenError:
    """The refusal of an approximation by polynomials."""
    said = f"no polynomial of degree up to {degree} comes within {goal:.2g} of {expr}"
    return NotProvenError(f"{said}: the best has an error of about {error:.2g}", measured=error)


def no_table(ends: tuple[float, float], eps: float, dtype: str, reached: float, resolved: bool) -> str:
    """Why a table was not found; circuits and lookups say so in their own refusals."""
    hint = "" if resolved else "; f looks discontinuous or noisy"
    said = f"no table on [{ends[0]}, {ends[1]}] met eps = {eps:g} in {dtype}: best total error {reached:.3g}{hint}"
    return said


def beyond_floats() -> NotProvenError:
    """The refusal of an attempt whose arithmetic failed."""
    return NotProvenError("the computation left the range of floats: rescale the variables or the formula")


def when_refuted(name: str, closest: NotProvenError, dtype: str) -> NotProvenError:
    """The refusal of a construction none of whose attempts is proven; a refuted attempt is put in words."""
    if not isinstance(closest, RefutedError):
        return closest
    if closest.reason is Reason.UNCOMPARED:
        said = f"no {name} could be compared with the formula: {closest}; "
        advice = "write the formula with fewer factors or terms, or compile its parts"
    else:  # the weights were just made, so their errors went too far
        said = f"no {name} could be proven, because errors grow too much on the way: {closest}; "
        other = "" if dtype == "float64" else ", or use float64"
        advice = f"ask for a larger eps or take a smaller box{other}"
    return NotProvenError(said + advice, place=closest.place)


def when_all_is_tried(formula: Formula, refusals: Sequence[TransformulaError], checked: Checked) -> TransformulaError:
    """The most informative refusal; if only errors of tables are known, with the formula's spread as a bound."""
    closest: NotProvenError | None = None
    bound = spread(formula)
    for error in sorted(refusals, key=lambda one: (getattr(one, "best_bound", None) or 0.0) > bound):
        if isinstance(error, NotProvenError) and (closest is None or not (error.best_bound or 0.0) > bound):
            closest = closer(error, closest)  # a bound above that of a constant says nothing
    if closest is None:  # nothing could even be built: the first reason
        return refusals[0]
    advice, reason = checked.text, Advised(checked.advice)
    if isinstance(closest.reason, Shortfall):
        error = closest.reason.error(advice)
        error.reason = reason
        return error
    known, said = closest.best_bound, str(closest)
    if closest.measured is not None and bound < math.inf:
        known, said = bound, f"{said}; the formula itself stays within {at_most(bound)} of a constant"
    elif not advice:
        return closest
    return NotProvenError(_advised(said, advice), known, closest.place, closest.measured, closest.rounding, reason)


def when_ended(
    ending: Ending,
    time_limit: float | None,
    formula: Formula,
    eps: float | None,
    closest: NotProvenError | None,
    checked: Checked,
    unfinished: bool = False,
) -> NotProvenError:
    """The refusal of a search that was not finished: what is known, and what was checked to help.

    More time is advised where it ran out, and where nothing else helps but the tables of a model met the tolerance and
    only the search for its proof was cut short (``unfinished``).
    """
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
    rounding, more = found.rounding or 0.0, ""
    if eps is not None and rounding > eps:  # which no search reduces
        said += f", and rounding alone is {at_most(rounding)}"
    elif ending is Ending.TIME and time_limit is not None:
        more = f"allow more time than time_limit={time_limit:g}"
    elif ending is Ending.WORK and unfinished and not checked.advice:
        more = f"allow more time, such as time_limit={4 * (policy.ALL + policy.AFTER_FAILURE):.0f}"
    said = _advised(f"{ending.value.format(time_limit=time_limit)}: {said}", checked.text, more)
    return NotProvenError(said, known, found.place, found.measured, found.rounding, Advised(checked.advice))


def when_undefined(reason: Undefined, formula: Formula, constants: Mapping[str, str]) -> Advised:
    """A smaller box, with all its variables and constants, and a formula that is kept inside the domain of a part."""
    found: list[dict[str, object]] = []
    if reason.smaller is not None:
        parts = [part.partition("=") for part in split_commas(f"{formula.box}, {reason.smaller}")]
        ends = {name: value for name, _, value in parts}
        found.append({"on": ", ".join(f"{name}={value}" for name, value in ends.items())})
    if reason.kept is not None:
        outputs = [str(substitute(expr, {reason.part: reason.kept})) for expr in formula.outputs]
        found.append({"formula": outputs if len(outputs) > 1 else outputs[0]})
    return with_constants(Advised(tuple(found)), constants)


def with_constants(reason: Advised, constants: Mapping[str, str]) -> Advised:
    """Advice whose boxes also have the constants of the box that was given."""
    held = "".join(f", {name}={value}" for name, value in constants.items())
    return Advised(tuple({**one, "on": f"{one['on']}{held}"} if "on" in one else one for one in reason.advice))


def when_pointwise(error: NotProvenError, pointwise: float | None, eps: float | None) -> NotProvenError:
    """The refusal in terms of the relative tolerance that was asked for; others are returned as they came."""
    if pointwise is None or eps is None or closest_bound(error) == math.inf:
        return error
    said = f"pointwise = {pointwise:g} of the smallest |formula| is an eps of {eps:g}: {error}"
    return NotProvenError(said, error.best_bound, error.place, error.measured, error.rounding, error.reason)


def spread(formula: Formula) -> float:
    """An upper bound on how far the outputs are from constants; infinite if plain intervals give none."""
    ends = Region.of_box(formula.box).ends
    try:
        ranges = [range_of(expr, ends) for expr in formula.outputs]
    except UndefinedError:
        return math.inf
    return max((float_above((high - low) / 2) for low, high in ranges), default=0.0)
