"""The driver: parse → prepare → plan → build → prove → store.

A search may take `ALL` seconds of work as long as no attempt has failed with a known error, and `AFTER_FAILURE` seconds
once one has, or a longer time limit. A part is kept back for coarser models, whose bounds say which eps to ask for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

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
from transformula.compiler import policy
from transformula.compiler.attempts import (
    Attempt,
    BuildTask,
    Round,
    at_positions,
    attempts,
    checked_options,
    known_shape,
    positive,
    rounds,
)
from transformula.compiler.certify import claimed, package
from transformula.compiler.constructions import CIRCUIT, Construction
from transformula.compiler.evidence.definedness import Undefined
from transformula.compiler.prepare import Prepared
from transformula.compiler.refusal import (
    Checked,
    Ending,
    Shortfall,
    beyond_floats,
    spread,
    when_all_is_tried,
    when_ended,
    when_pointwise,
    when_refuted,
    when_undefined,
    with_constants,
)
from transformula.errors import (
    Advised,
    InputError,
    NotProvenError,
    Reason,
    RefutedError,
    SearchInterrupted,
    TransformulaError,
    UnboundedError,
    UnfinishedError,
    closer,
    closest_bound,
)
from transformula.formula.given_box import box_and_constants
from transformula.formula.notations import given_formula
from transformula.kernel.folder.description import Proof
from transformula.kernel.syntax.boxes import Formula
from transformula.model import Model

#: Exceptions of fits and searches whose numbers leave the range of floats: the attempt has failed.
_LOST = (ArithmeticError, np.linalg.LinAlgError)


def compile_formula(given: Any, on: Any, *, shape: Any = None, time_limit: Any = None, **asked: Any) -> Model:
    """The smallest model that is proven to meet the tolerance, or a refusal; see `transformula.compile`."""
    sequence, seconds = known_shape(shape), positive(time_limit, "time_limit")
    formula = parse_formula(given, on, sequence)
    try:
        return _found(formula, seconds, shape=sequence, **asked)
    except NotProvenError as error:
        constants = box_and_constants(on)[1]
        if isinstance(error.reason, Undefined):
            error.reason = when_undefined(error.reason, formula, constants)
        elif isinstance(error.reason, Advised):
            error.reason = with_constants(error.reason, constants)
        raise


def _found(formula: Formula, seconds: float | None, **asked: Any) -> Model:
    """The model that a search finds."""
    search = Search(formula, seconds, asked)
    with search.budget():
        task = search.task_of(formula)
        try:
            return search.run(rounds(task.ground, task.options), task)  # build → prove → store
        except NotProvenError as error:
            raise when_pointwise(error, task.options.pointwise, task.options.eps) from None


def parse_formula(given: Any, on: Any, shape: tuple[int, int] | None = None) -> Formula:
    """The formula as `compile` understands it; for a known mistake, the error says what to write instead."""
    return at_positions(given_formula(given, on), known_shape(shape))


def make(attempt: Attempt, task: BuildTask, most_work: float | None = None) -> Model:
    """Build an attempt's weights, prove them (with so much work at most), and store them."""
    with np.errstate(all="ignore"):  # numbers beyond floats are refused by what is made of them
        built = attempt.build()
    built.evidence.most_work = most_work or built.evidence.most_work
    return package(attempt.construction, built, task.formula, task.options)


class Search:
    """Looks for the smallest model that is proven to meet the tolerance, round by round."""

    def __init__(self, formula: Formula, time_limit: float | None, asked: Mapping[str, Any]) -> None:
        self.formula = formula
        self.time_limit = time_limit
        self.asked = asked
        self.begun = 0.0  # work that was counted before the search
        self.eps: float | None = None
        self.proven: list[Model] = []
        self.closest: NotProvenError | None = None
        self.refusals: list[TransformulaError] = []
        self.unfinished: dict[str, tuple[Attempt, BuildTask]] = {}  # by construction: the first proof cut short
        self.again: set[str] = set()  # constructions whose proof was looked for once more
        self.fitted_error = math.inf  # smallest error of tables that were found
        self.format_error = math.inf  # smallest error of tables as accurate as the format allows
        self.limit: Limit | None = None  # None while coarser models are looked for
        self.ending: Ending | None = None
        self.met = math.inf  # smallest tolerance that a coarser model was made for
        self.checked = Checked()

    @contextmanager
    def budget(self) -> Iterator[None]:
        """Work and time for everything; running out of either, or an interrupt, becomes the refusal."""
        try:
            most = policy.ALL + policy.AFTER_FAILURE + policy.LEAST_KEPT + policy.ADVICE
            with limited(self.seconds(most), self.time_limit):
                self.begun = counted()
                yield
        except OutOfTime:
            raise self.stopped(Ending.TIME) from None
        except OutOfWork:
            raise self.stopped(Ending.WORK) from None
        except KeyboardInterrupt:
            raise SearchInterrupted(str(self.stopped(Ending.INTERRUPT))) from None

    def seconds(self, usual: float) -> float:
        """A budget in seconds, scaled up for large formulas and for a long time limit."""
        size = max(self.formula.box.dimension, len(self.formula.outputs))
        return max(usual * min(max(1.0, size / policy.SMALL), policy.MOST_TIMES), self.time_limit or 0.0)

    @property
    def spent(self) -> float:
        """Seconds of work since the search began."""
        return (counted() - self.begun) / SECOND

    def task_of(self, formula: Formula) -> BuildTask:
        """The task of the formula, or of the same on another box, with the options that were asked for."""
        ground = Prepared(formula)
        options = checked_options(ground.nearest, **self.asked)
        if options.construction in (None, CIRCUIT):
            try:
                with limited(self.seconds(policy.KEPT)):
                    ground = ground.floored(options.eps or options.usual)
            except OutOfWork:
                checkpoint()  # goes on without floors if it was their part only
        return BuildTask(ground, options)

    def run(self, plan: Sequence[Round], task: BuildTask) -> Model:
        """The smallest model of the first round in which one is proven, or a refusal with the best bound."""
        kinds = [kind for some in plan for kind in some]
        self.eps = task.options.tolerance(kinds[-1].exact)
        in_time = None if self.time_limit is None else policy.IN_TIME * self.time_limit
        try:
            with limited(self.seconds(policy.ALL) - self.spent, in_time) as self.limit:
                try:
                    self.compete(plan, task)
                except OutOfWork:
                    self.ending = Ending.WORK
                self.finish()
        except OutOfWork:
            self.ending = Ending.WORK
        except OutOfTime:
            self.ending = Ending.TIME
        if not self.proven:
            self.limit = None
            kept = min(self.seconds(policy.KEPT), self.seconds(policy.REFUSED) - self.spent)
            with suppress(OutOfTime, OutOfWork), limited(max(kept, self.seconds(policy.LEAST_KEPT))):
                self.look_coarser(kinds, task)
        if self.proven:
            return min(self.proven, key=_size)
        rest = max(self.seconds(policy.WHOLE) - self.spent, self.seconds(policy.ADVICE))
        with suppress(OutOfTime, OutOfWork), limited(rest):
            if self.eps is not None and not (self.closest is None and self.ending is None):
                from transformula.compiler.advice import AdviceSearch

                AdviceSearch(self, task, self.eps).look()
        if self.ending is not None:
            raise self.stopped(self.ending)
        found = [*self.refusals, *([] if self.closest is None else [self.closest])]
        raise when_all_is_tried(self.formula, found, self.checked)

    def compete(self, plan: Sequence[Round], task: BuildTask) -> None:
        """Constructions, round by round, until one is proven; each may take a part of the work that is left."""
        for number, kinds in enumerate(plan, 1):
            if number == len(plan):
                self.finish()
            if not self.proven:
                self.try_each(kinds, task, 1.0 if number == len(plan) else policy.EACH)
            if self.proven:
                return

    def finish(self) -> None:
        """Look for the proofs that were cut short once more, with all the work that is left."""
        assert self.limit is not None, "coarser models are not looked for yet"
        for name in [] if self.proven else [name for name in self.unfinished if name not in self.again]:
            self.again.add(name)
            attempt, task = self.unfinished[name]
            self.limit.after(self.limit.spent + self.seconds(policy.AFTER_FAILURE))
            with suppress(TransformulaError, *_LOST):
                self.proven.append(make(attempt, task, left()))
                return
            del self.unfinished[name]

    def try_each(self, kinds: Round, task: BuildTask, part: float) -> None:
        """Try each construction: models go to ``proven``, and the reasons of failures to ``refusals``."""
        for kind in kinds:
            most = min((model.memory_tokens for model in self.proven), default=math.inf)
            if not most:
                return
            try:
                with part_of_the_rest(part):
                    self.proven.append(self.first_proven(kind, replace(task, most=most)))
            except (NotProvenError, InputError) as error:
                self.refusals.append(error)
                if isinstance(error, NotProvenError):  # perhaps of what could not be built
                    self.note(error)
            except OutOfWork:
                checkpoint()  # goes on if it was this construction's part only
                self.ending = Ending.WORK

    def first_proven(self, construction: Construction, task: BuildTask) -> Model:
        """The first attempt of a construction that is proven; raises the refusal that came closest if none is."""
        trial = Trial()
        try:
            for attempt in attempts(construction, task):
                checkpoint()
                if attempt.group not in trial.hopeless and (model := self.attempted(attempt, trial, task)) is not None:
                    return model
        except _LOST:
            trial.closest = closer(beyond_floats(), trial.closest)
        except TransformulaError:
            if trial.closest is None:
                raise  # else an attempt that was almost proven says more than why the others could not be built
        assert trial.closest is not None, "a construction yields attempts or raises"
        raise when_refuted(construction.name, trial.closest, task.options.dtype)

    def attempted(self, attempt: Attempt, trial: Trial, task: BuildTask) -> Model | None:
        """The model if it is proven; otherwise None, and the failure is noted."""
        before = left()
        try:
            return make(attempt, task)
        except NotProvenError as refused:
            error = refused
        except _LOST:
            error = beyond_floats()
        if isinstance(error, UnfinishedError) and self.limit is not None:
            self.unfinished.setdefault(attempt.construction.name, (attempt, task))
        trial.failed(attempt, error, before - left())
        self.note(error)
        if self.limit is None or shows_nothing(error) or isinstance(error, UnboundedError):
            task.findings.fitted.clear()  # a coarser model is not to begin with these tables
        return None

    def note(self, error: NotProvenError) -> None:
        """Remember the closest result so far; the work that the search may still take depends on it."""
        if self.limit is None and isinstance(error.reason, Shortfall):
            error = replace(error.reason, eps=self.eps).error()  # of the tolerance that was asked for
        self.closest = closer(error, self.closest)
        if error.rounding is None:
            self.fitted_error = min(error.measured or math.inf, self.fitted_error)
        else:
            self.format_error = min(error.measured or math.inf, self.format_error)
        if self.limit is not None and self.eps is not None:
            unknown = closest_bound(self.closest) == math.inf and self.limit.spent < self.seconds(policy.AFTER_FAILURE)
            self.limit.after(self.seconds(policy.ALL if unknown else policy.AFTER_FAILURE))

    def look_coarser(self, kinds: Sequence[Construction], task: BuildTask) -> None:
        """Prove a coarse bound, then better ones, as long as there is work left."""
        measured = min(self.bound, self.fitted_error, self.format_error) < math.inf
        if self.eps is None or not (self.ending or measured):  # an attempt that could not be built has its reason
            return
        task.findings.coarse = True
        reach, climb = spread(self.formula), 1.0
        while True:
            before, goal = self.bound, climb * self.coarser(self.eps, reach)
            if not self.eps < goal < min(before, math.inf):
                return
            self.try_goal(goal, self.eps, kinds, task)
            if self.bound == math.inf and goal < policy.COARSE * reach:
                climb *= policy.CLIMB
            elif not self.bound < before:
                return

    def coarser(self, eps: float, reach: float) -> float:
        """A tolerance that might be met: at first coarse, by how much the formula varies, then closer to ``eps``."""
        found = policy.ROOM * self.fitted_error
        if self.closest is not None and self.bound < policy.WORTH_SAYING * reach:
            least = min(found, policy.ROOM * self.format_error)
            return max(math.sqrt(self.bound * eps), least if least < math.inf else 0.0)
        return found if found < policy.WORTH_SAYING * reach else policy.COARSE * reach

    def try_goal(self, goal: float, eps: float, kinds: Sequence[Construction], task: BuildTask) -> None:
        """Remember the bound of the first construction that is proven to meet a larger tolerance."""
        for kind in kinds:
            with suppress(NotProvenError, InputError):
                model = self.first_proven(kind, replace(task, options=replace(task.options, eps=goal)))
                certificate, self.met = model.certificate, min(goal, self.met)
                if certificate.bound <= eps:
                    self.proven.append(claimed(model, eps))
                proof = Proof(certificate.approximation, certificate.rounding, mean=certificate.mean)
                self.closest = closer(Shortfall(proof, eps, task.options.dtype).error(), self.closest)
                return

    @property
    def bound(self) -> float:
        """The smallest bound proven so far."""
        return math.inf if self.closest is None or self.closest.best_bound is None else self.closest.best_bound

    def stopped(self, ending: Ending) -> NotProvenError:
        """The refusal of a search that was not finished."""
        known = self.formula, self.eps, self.closest, self.checked, bool(self.unfinished)
        return when_ended(ending, self.time_limit, *known)


class Trial:
    """The attempts of one construction: which groups are ruled out, and the refusal that came closest."""

    def __init__(self) -> None:
        self.closest: NotProvenError | None = None
        self.hopeless: set[int] = set()  # groups of attempts
        self.refuted: set[int] = set()  # groups in which an attempt was refuted

    def failed(self, attempt: Attempt, error: NotProvenError, work: float) -> None:
        """Learn from a failed attempt and the work it took."""
        refuted = isinstance(error, RefutedError)
        uncompared = refuted and error.reason is Reason.UNCOMPARED
        again = refuted and attempt.group in self.refuted  # other tables did not help
        useless = shows_nothing(error) and work > policy.KEPT * SECOND
        if uncompared or again or useless or isinstance(error, UnboundedError):
            self.hopeless.add(attempt.group)
        if refuted:
            self.refuted.add(attempt.group)
        self.closest = closer(error, self.closest)


def shows_nothing(error: NotProvenError) -> bool:
    """Whether a failure does not even say how far off it is."""
    return isinstance(error, RefutedError) or (error.best_bound is None and error.measured is None)


def _size(model: Model) -> tuple[int, int]:
    """Memory tokens, then parameters."""
    return model.memory_tokens, model.parameter_count
