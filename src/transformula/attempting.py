"""Attempts, one after the other, and what is known of them at any moment.

*How much.* A search may take `ALL` seconds of work as long as it may still succeed: nothing has failed yet, or what
came closest misses the tolerance by little and not by its rounding. Otherwise it ends after `DOUBTFUL` seconds. Only
a longer time limit allows more.

*A refusal has a bound.* A little of the work, and of a time limit, is kept. If nothing sensible is proven in the end,
it goes into coarser models, whose bounds say what to ask for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from transformula.constructions.attempts import ASK, Attempt
from transformula.constructions.chooser import DEFAULT_EPS, Round, attempts, rounds
from transformula.constructions.options import Options
from transformula.constructions.registry import Construction
from transformula.errors import (
    InputError,
    NotProvenError,
    RefutedError,
    TransformulaError,
    UnboundedError,
    closer,
    closest_bound,
)
from transformula.kernel.balls import float_above
from transformula.kernel.boxes import Formula
from transformula.kernel.claim import Certificate, Proof
from transformula.kernel.digits import at_most
from transformula.kernel.intervals import UndefinedError, range_of
from transformula.kernel.regions import Region
from transformula.kernel.work import counted
from transformula.limits import SECOND, Limit, OutOfTime, OutOfWork, checkpoint, left, limited, part_of_the_rest
from transformula.model import Model
from transformula.packaging import claimed, package
from transformula.packing import shortfall

#: Seconds of work for formulas of up to so many variables and outputs: all that a search may take, what one may take
#: that has come nowhere near, and what is kept for a bound. Larger formulas may take more, up to so many times.
ALL, DOUBTFUL, KEPT, _SMALL, _MOST_TIMES = 22.0, 4.5, 4.5, 6, 4.0
#: The part of a time limit after which a bound is looked for.
_IN_TIME = 0.8
#: A construction may take this part of what is left, so that others can still be tried.
_EACH = 0.9
#: Seconds of work after which an attempt of which nothing at all is proven speaks against others like it.
_LONG = 3.0
#: Within this factor of the tolerance a search has come close.
_CLOSE = 10.0
#: Other tables round a little better or worse; beyond this factor only another circuit helps.
_HOPELESS = 20.0
#: Bounds this many times too large are not the tables' fault.
_FAR_OFF = 1000.0
#: Tables that are no more accurate do not help where the bound is so many times too large.
_TOO_COARSE = 2.0
#: The parts of a formula's own range that a bound is of use below, and that the first coarse model is to meet; then
#: the middle between tolerance and bound is tried, as long as that is a gain.
_OF_USE, _COARSE, _GAIN = 0.25, 1 / 16, 1.1
#: More than the error that was measured, for a proof.
_ROOM = 1.5
OUT_OF_WORK = "no proof was found with the work that is usual for a formula of this size"
_BEYOND_FLOATS = "numbers beyond the range of floats came up: rescale the variables or the formula"
#: A single layer may have so many times the numbers of several.
_ONE_LAYER = 1.5


class Search:
    """Looks for the smallest model that is proven to meet the tolerance."""

    def __init__(self, formula: Formula, time_limit: float | None) -> None:
        self.formula, self.time_limit = formula, time_limit
        self.proven: list[Model] = []
        self.closest: NotProvenError | None = None
        self.found = self.expected = math.inf  # errors of tables that were found, and of those that rounding allows
        self.refusals: list[TransformulaError] = []
        self.limit: Limit | None = None
        self.doubtful = False  # whether a proof took so long that it was given up
        self.ended = ""
        self.eps: float | None = None
        self.goal = math.inf  # the coarser tolerance that is tried
        self.dtype = "float64"

    def seconds(self, usual: float) -> float:
        """So many seconds of work, more for large formulas and for who has the time."""
        size = max(self.formula.box.dimension, len(self.formula.outputs))
        return max(usual * min(max(1.0, size / _SMALL), _MOST_TIMES), self.time_limit or 0.0)

    def kept(self, spent: float) -> float:
        """Seconds of work for a bound: less after a search that has taken long, but never less than half."""
        return max(min(self.seconds(KEPT), self.seconds(DOUBTFUL + KEPT) - spent), self.seconds(KEPT) / 2)

    @property
    def most(self) -> float:
        """What the search may take in all."""
        return self.seconds(ALL + KEPT)

    def run(self, options: Options) -> Model:
        """The smallest model of the first round in which one is proven, or a refusal with the best bound."""
        kinds = [kind for some in rounds(self.formula, options) for kind in some]
        self.eps, self.dtype = _tolerance(kinds[-1], options), options.dtype
        in_time, before = None if self.time_limit is None else _IN_TIME * self.time_limit, counted()
        try:
            with limited(self.seconds(ALL), in_time) as self.limit:
                self.compete(options)
        except OutOfWork:
            self.ended = OUT_OF_WORK
        except OutOfTime:
            self.ended = f"the time is up after {self.time_limit:g} s"
        if not self.proven:
            self.limit = None
            with suppress(OutOfTime, OutOfWork), limited(self.kept((counted() - before) / SECOND)):
                self.look_coarser(kinds, options)
        if self.proven:
            return min(self.proven, key=_size)
        if self.ended:
            raise self.refusal(self.ended)
        telling = _most_telling([*self.refusals, *([] if self.closest is None else [self.closest])])
        bound = _spread(self.formula)
        if not isinstance(telling, NotProvenError) or telling.measured is None or bound == math.inf:
            raise telling
        reason = f"{str(telling).removesuffix(ASK)}; the formula itself stays within {at_most(bound)} of a constant"
        raise NotProvenError(
            f"{reason}: ask for eps >= {at_most(bound, 2)}", bound, telling.place, telling.measured, telling.rounding
        )

    def compete(self, options: Options) -> None:
        """Constructions, round by round, until one is proven; each may take a part of the work that is left."""
        *first, last = rounds(self.formula, options)
        for kinds in first:
            self.try_each(kinds, options, _EACH)
            if self.proven:
                return
        self.try_each(last, options, 1.0)

    def try_each(self, kinds: Round, options: Options, part: float) -> None:
        """Add what constructions can prove to ``proven``, and why they cannot to ``refusals``."""
        for kind in kinds:
            of_use = min((model.memory_tokens for model in self.proven), default=math.inf)
            if not of_use:
                return
            try:
                with part_of_the_rest(part):
                    self.proven.append(self.first_proven(kind, replace(options, most=of_use)))
            except (NotProvenError, InputError) as error:
                self.refusals.append(error)
            except OutOfWork:
                checkpoint()  # goes on if it was this construction's part only
                self.ended = OUT_OF_WORK

    def first_proven(self, construction: Construction, options: Options) -> Model:
        """The first attempt of a construction whose proof closes, or the refusal that came closest."""
        closest: NotProvenError | None = None
        hopeless: set[int] = set()
        eps = _tolerance(construction, options)
        last = ""
        tried: Attempt | None = None
        error: NotProvenError | None = None
        try:
            for attempt in attempts(construction, self.formula, options):
                checkpoint()
                if attempt.group in hopeless or (tried and error and _is_no_better(attempt, tried, error, eps)):
                    continue
                tried, before = attempt, left()
                try:
                    built = attempt.build()
                    built.evidence.loose = self.limit is None
                    return package(attempt.construction, built, self.formula, options)
                except NotProvenError as missed:
                    error, closest = missed, closer(missed, closest)
                    self.note(missed)
                    again = isinstance(missed, RefutedError) and str(missed) == last  # whatever the tables are
                    in_vain = isinstance(missed, RefutedError) or (
                        missed.best_bound is None and missed.measured is None
                    )
                    if in_vain and before - left() > _LONG * SECOND:
                        again, self.doubtful = True, True
                        self.note(missed)
                    far_off = _is_hopeless(missed, eps)
                    if in_vain or far_off or self.limit is None:  # a coarser model is not to begin with these tables
                        options.known.pop("fitted", None)
                    if again or far_off:
                        hopeless.add(attempt.group)
                    last = str(missed)
        except OverflowError:
            closest = closer(NotProvenError(_BEYOND_FLOATS), closest)
        except TransformulaError:
            if closest is None:
                raise  # else what was almost proven says more than why the rest could not even be begun
        assert closest is not None, "a construction yields attempts or raises"
        if isinstance(closest, RefutedError):  # said of weights that were just made: errors went too far
            other = "" if options.dtype == "float64" else ", or use float64"
            raise NotProvenError(
                f"no {construction.name} could be proven, errors carry too far: {closest}; "
                f"ask for a larger eps or take a smaller box{other}",
                place=closest.place,
            )
        raise closest

    def note(self, error: NotProvenError) -> None:
        """Remember what came closest; if that is not close, the search has less to spend."""
        if self.limit is None and error.best_bound is not None:
            message = str(error).replace(f"eps = {self.goal:g} is", f"eps = {self.eps:g} is", 1)
            error = NotProvenError(message, error.best_bound, error.place, error.measured, error.rounding)
        self.closest = closer(error, self.closest)
        if error.measured is not None and error.rounding is None:
            self.found = min(error.measured, self.found)
        elif error.measured is not None:
            self.expected = min(error.measured, self.expected)
        if self.limit is not None and self.eps is not None:
            close = _is_close(self.closest, self.eps) and not self.doubtful
            self.limit.after(self.seconds(ALL if close else DOUBTFUL))

    def look_coarser(self, kinds: Sequence[Construction], options: Options) -> None:
        """Prove something, and then something better, as long as there is work left."""
        measured = min(self.bound, self.found, self.expected) < math.inf
        if self.eps is None or not (self.ended or measured):  # what could not even be begun has its reason
            return
        options.known["coarse"] = True
        reach = _spread(self.formula)
        while True:
            goal, found = _COARSE * reach, _ROOM * self.found
            if self.bound < _OF_USE * reach:
                least = min(found, _ROOM * self.expected)
                goal = max(math.sqrt(self.bound * self.eps), least if least < math.inf else 0.0)
            elif found < _OF_USE * reach:
                goal = found
            before = self.bound
            if not self.eps < goal < min(before / _GAIN, math.inf):
                return
            self.try_goal(goal, kinds, options)
            if not self.bound < before:
                return

    def try_goal(self, goal: float, kinds: Sequence[Construction], options: Options) -> None:
        """Remember the bound of the first construction that is proven to meet a larger tolerance."""
        assert self.eps is not None
        self.goal = goal
        for kind in kinds:
            with suppress(NotProvenError, InputError):
                model = self.first_proven(kind, replace(options, eps=goal))
                if model.certificate.bound <= self.eps:
                    self.proven.append(claimed(model, self.eps))
                self.closest = closer(self.missed(model.certificate), self.closest)
                return

    def missed(self, found: Proof | Certificate) -> NotProvenError:
        """What is said of a proof that does not meet the tolerance."""
        proof = Proof(found.approximation, found.rounding, mean=found.mean)
        return NotProvenError(shortfall(proof, self.eps, self.dtype), proof.bound, rounding=proof.rounding)

    @property
    def bound(self) -> float:
        """The smallest that is proven."""
        return math.inf if self.closest is None or self.closest.best_bound is None else self.closest.best_bound

    def stopped(self, why: str) -> NotProvenError:
        """The refusal of a search that was not finished."""
        self.ended = why
        return self.refusal(why)

    def refusal(self, why: str) -> NotProvenError:
        """What is known when the search has to end: how close it came, where it stopped, and what to ask for."""
        found = self.closest or NotProvenError("")
        bound, near = found.best_bound, f" ({found.place})" if found.place else ""
        if bound is not None:
            said = f"the best bound proven so far is {at_most(bound)}{near}"
        else:
            bound, said = _spread(self.formula), "no model is proven so far"
            if found.measured is not None:
                said += f", the best has an error of about {found.measured:.3g}{near}"
            if bound < math.inf:
                said += f", and the formula itself stays within {at_most(bound)} of a constant"
        known = bound if bound < math.inf else None
        advice = "ask for a larger eps" if known is None else f"ask for eps >= {at_most(known, 2)}"
        rounding = found.rounding or 0.0
        if self.eps is not None and rounding > self.eps:  # which no search makes less
            said += f", and rounding alone is {at_most(rounding)}"
        elif self.ended:
            advice += ", or allow more time"
        return NotProvenError(f"{why}: {said}; {advice}", known, found.place, found.measured, found.rounding)


def _tolerance(construction: Construction, options: Options) -> float | None:
    """What a model has to meet; None for an exact one that may claim what it can."""
    return DEFAULT_EPS if options.eps is None and not construction.exact else options.eps


def _spread(formula: Formula) -> float:
    """How far the outputs are from constants at most, as far as that is known at once."""
    ends = Region.of_box(formula.box).ends
    try:
        ranges = [range_of(expr, ends) for expr in formula.outputs]
    except UndefinedError:
        return math.inf
    return max((float_above((high - low) / 2) for low, high in ranges), default=0.0)


def _is_close(error: NotProvenError, eps: float) -> bool:
    """Whether a little more might do: what is not even measured speaks for nothing, and rounding stays what it is."""
    reached = closest_bound(error)
    return reached == math.inf or (reached <= _CLOSE * eps and (error.rounding or 0.0) <= eps)


def _is_no_better(attempt: Attempt, tried: Attempt, error: NotProvenError, eps: float | None) -> bool:
    """Whether tables that are no more accurate than the last are to be tried where those were far too coarse."""
    if eps is None or error.best_bound is None or attempt.group != tried.group:
        return False
    if attempt.tables is None or tried.tables is None or attempt.tables < tried.tables:
        return False
    return error.best_bound > _TOO_COARSE * eps and (error.rounding or 0.0) < error.best_bound / 2


def _is_hopeless(error: NotProvenError, eps: float | None) -> bool:
    """Whether attempts of the same group, which differ in their tables only, would fail as well."""
    rounding, bound = error.rounding or 0.0, error.best_bound or 0.0
    far = eps is not None and (rounding > _HOPELESS * eps or bound > _FAR_OFF * eps)
    return far or isinstance(error, UnboundedError)


def _size(model: Model) -> tuple[int, float]:
    """Its memory tokens, then its numbers, of which a single layer may have half as many again."""
    return model.memory_tokens, model.parameter_count / (_ONE_LAYER if model.layers == 1 else 1.0)


def _most_telling(refusals: Sequence[TransformulaError]) -> TransformulaError:
    """The proof that came closest; if nothing could even be built, the first reason."""
    closest: NotProvenError | None = None
    for error in refusals:
        if isinstance(error, NotProvenError):
            closest = closer(error, closest)
    return closest or refusals[0]
