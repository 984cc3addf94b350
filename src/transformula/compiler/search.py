"""The search for a model: attempts one after the other, and what is known at any moment.

*How much work.* A search may take `ALL` seconds of work as long as nothing has failed, or a failure does not tell how
close it came. Once that is known, the search ends after `CLOSE` seconds if the tolerance was missed by little and not
because of rounding, and otherwise after `DOUBTFUL` seconds. Only a longer time limit allows more.

*A refusal has a bound.* A part of the work, and of a time limit, is kept back. If nothing useful is proven in the end,
it is spent on coarser models, whose bounds say which tolerance to ask for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from transformula.budget import (
    SECOND,
    Limit,
    OutOfTime,
    OutOfWork,
    checkpoint,
    counted,
    left,
    limited,
    part_of_the_rest,
)
from transformula.compiler.attempts import Attempt
from transformula.compiler.constructions import Construction
from transformula.compiler.options import Options
from transformula.compiler.package import claimed, package
from transformula.compiler.plan import DEFAULT_EPS, Round, attempts, rounds
from transformula.compiler.refusal import missed, spread, when_all_is_tried, when_it_has_to_end
from transformula.compiler.trial import Trial, is_close
from transformula.errors import InputError, NotProvenError, TransformulaError, closer, closest_bound
from transformula.kernel.syntax.boxes import Formula
from transformula.model import Model

#: Seconds of work: for a search in all, for one that has come close, and for one that has not; the number of variables
#: or outputs up to which they hold, and the largest factor by which larger formulas may take more.
ALL, CLOSE, DOUBTFUL, _SMALL, _MOST_TIMES = 22.0, 6.0, 4.0, 6, 4.0
#: Seconds of work for a refusal in all; how many of them are kept for a bound, fewer after a long search; the fewest.
REFUSED, KEPT, _LEAST_KEPT = 8.0, 4.0, 1.0
#: The fraction of a time limit after which the search for a bound begins.
_IN_TIME = 0.8
#: A construction may use this fraction of what is left, so that others can still be tried.
_EACH = 0.9
#: Fractions of the formula's own range: a bound is useful below the first, and the first coarse model is to meet the
#: second. Then the middle between tolerance and bound is tried, if it is below the bound by the third, a factor.
_OF_USE, _COARSE, _GAIN = 0.25, 1 / 16, 1.25
#: How much a coarser model may round, as a fraction of the rounding of the closest attempt.
_LESS_ROUNDING = 0.25
#: A proof needs this factor more than the measured error.
_ROOM = 1.5
OUT_OF_WORK = "no proof was found within the usual amount of work for a formula of this size"
#: What the arithmetic of fits and searches raises where numbers leave the range of floats: the attempt has failed.
_LOST = (ArithmeticError, np.linalg.LinAlgError)
_BEYOND_FLOATS = "the computation left the range of floats: rescale the variables or the formula"
#: A single layer may have this many times the parameters of several layers.
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
        """That many seconds of work, scaled up for large formulas and for a long time limit."""
        size = max(self.formula.box.dimension, len(self.formula.outputs))
        return max(usual * min(max(1.0, size / _SMALL), _MOST_TIMES), self.time_limit or 0.0)

    def kept(self, spent: float) -> float:
        """Seconds of work kept for finding a bound to report, after so many seconds of search."""
        return max(min(self.seconds(KEPT), self.seconds(REFUSED) - spent), self.seconds(_LEAST_KEPT))

    @property
    def most(self) -> float:
        """Seconds of work that the search may take in all."""
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
            self.ended = f"the search was ended after {self.time_limit:g} s"
        if not self.proven:
            self.limit = None
            with suppress(OutOfTime, OutOfWork), limited(self.kept((counted() - before) / SECOND)):
                self.look_coarser(kinds, options)
        if self.proven:
            return min(self.proven, key=_size)
        if self.ended:
            raise self.stopped(self.ended)
        raise when_all_is_tried(self.formula, [*self.refusals, *([] if self.closest is None else [self.closest])])

    def compete(self, options: Options) -> None:
        """Constructions, round by round, until one is proven; each may take a part of the work that is left."""
        *first, last = rounds(self.formula, options)
        for kinds in first:
            self.try_each(kinds, options, _EACH)
            if self.proven:
                return
        self.try_each(last, options, 1.0)

    def try_each(self, kinds: Round, options: Options, part: float) -> None:
        """Try each construction: models go to ``proven``, and the reasons of failures to ``refusals``."""
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
        """The first attempt of a construction that is proven; raises the refusal that came closest if none is."""
        trial = Trial(construction, _tolerance(construction, options))
        try:
            for attempt in trial.in_turn(attempts(construction, self.formula, options)):
                checkpoint()
                if trial.is_worth(attempt) and (model := self.attempted(attempt, trial, options)) is not None:
                    return model
        except _LOST:
            trial.closest = closer(NotProvenError(_BEYOND_FLOATS), trial.closest)
        except TransformulaError:
            if trial.closest is None:
                raise  # else what was almost proven says more than why the rest could not even be begun
        raise trial.refusal(options.dtype)

    def attempted(self, attempt: Attempt, trial: Trial, options: Options) -> Model | None:
        """The model if it is proven; otherwise None, and the failure is noted."""
        before = left()
        try:
            with np.errstate(all="ignore"):  # numbers beyond floats are refused by what is made of them
                built = attempt.build()
            built.evidence.loose = self.limit is None
            return package(attempt.construction, built, self.formula, options)
        except NotProvenError as refused:
            error = refused
        except _LOST:
            error = NotProvenError(_BEYOND_FLOATS)
        self.doubtful |= trial.failed(attempt, error, before - left())
        self.note(error)
        if self.limit is None or trial.shows_nothing(error) or trial.is_far_off(error):
            options.known.pop("fitted", None)  # a coarser model is not to begin with these tables
        return None

    def note(self, error: NotProvenError) -> None:
        """Remember the closest result so far; the work that the search may still take depends on it."""
        if self.limit is None and error.best_bound is not None:
            message = str(error).replace(f"eps = {self.goal:g} is", f"eps = {self.eps:g} is", 1)
            error = NotProvenError(message, error.best_bound, error.place, error.measured, error.rounding)
        self.closest = closer(error, self.closest)
        if error.measured is not None and error.rounding is None:
            self.found = min(error.measured, self.found)
        elif error.measured is not None:
            self.expected = min(error.measured, self.expected)
        if self.limit is not None and self.eps is not None:
            self.limit.after(self.seconds(self.allowed(self.closest, self.eps, self.limit.spent)))

    def allowed(self, closest: NotProvenError, eps: float, spent: float) -> float:
        """Seconds of work in all for a search in which something has failed, after so many are spent."""
        if self.doubtful:
            return DOUBTFUL
        if closest_bound(closest) == math.inf:  # what is not even measured speaks for nothing, if it came soon
            return ALL if spent < self.seconds(CLOSE) else CLOSE
        return CLOSE if is_close(closest, eps) else DOUBTFUL

    def look_coarser(self, kinds: Sequence[Construction], options: Options) -> None:
        """Prove a coarse bound, then better ones, as long as there is work left."""
        measured = min(self.bound, self.found, self.expected) < math.inf
        if self.eps is None or not (self.ended or measured):  # what could not even be begun has its reason
            return
        options.known["coarse"] = True
        reach = spread(self.formula)
        while True:
            before, goal = self.bound, self.coarser(self.eps, reach)
            if not self.eps < goal < min(before / _GAIN, math.inf):
                return
            self.try_goal(goal, kinds, options)
            if not self.bound < before:
                return

    def coarser(self, eps: float, reach: float) -> float:
        """A tolerance that might be met: at first coarse, by how much the formula varies, then closer to ``eps``."""
        found = _ROOM * self.found
        if self.closest is not None and self.bound < _OF_USE * reach:
            least = min(found, _ROOM * self.expected)
            halfway = max(math.sqrt(self.bound * eps), _LESS_ROUNDING * (self.closest.rounding or 0.0))
            return max(halfway, least if least < math.inf else 0.0)
        return found if found < _OF_USE * reach else _COARSE * reach

    def try_goal(self, goal: float, kinds: Sequence[Construction], options: Options) -> None:
        """Remember the bound of the first construction that is proven to meet a larger tolerance."""
        assert self.eps is not None
        self.goal = goal
        for kind in kinds:
            with suppress(NotProvenError, InputError):
                model = self.first_proven(kind, replace(options, eps=goal))
                if model.certificate.bound <= self.eps:
                    self.proven.append(claimed(model, self.eps))
                self.closest = closer(missed(model.certificate, self.eps, self.dtype), self.closest)
                return

    @property
    def bound(self) -> float:
        """The smallest bound proven so far."""
        return math.inf if self.closest is None or self.closest.best_bound is None else self.closest.best_bound

    def stopped(self, why: str) -> NotProvenError:
        """The refusal of a search that was not finished."""
        self.ended = why
        return when_it_has_to_end(why, self.formula, self.eps, self.closest)


def _tolerance(construction: Construction, options: Options) -> float | None:
    """The tolerance that a model has to meet; None for an exact one, which may claim whatever it can prove."""
    return DEFAULT_EPS if options.eps is None and not construction.exact else options.eps


def _size(model: Model) -> tuple[int, float]:
    """Memory tokens, then parameters; a single layer may have half as many parameters again."""
    return model.memory_tokens, model.parameter_count / (_ONE_LAYER if model.layers == 1 else 1.0)
