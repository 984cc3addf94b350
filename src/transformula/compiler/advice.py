"""Advice of a refusal: options, a tolerance or a smaller box that a search of its own is seen to meet."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from transformula.budget import OutOfWork, checkpoint, limited, part_of_the_rest
from transformula.compiler import policy
from transformula.compiler.attempts import BuildTask, Findings, rounds
from transformula.compiler.constructions import PARTITION
from transformula.compiler.refusal import spread
from transformula.errors import TransformulaError, closest_bound
from transformula.formula.evaluation import peak
from transformula.kernel.arithmetic import at_most
from transformula.kernel.syntax.boxes import Formula

if TYPE_CHECKING:
    from transformula.compiler.driver import Search


class AdviceSearch:
    """Looks for what to ask for instead of a task that a search has refused; what holds is added to its ``checked``."""

    def __init__(self, refused: Search, task: BuildTask, eps: float) -> None:
        self.refused, self.task, self.eps = refused, task, eps
        self.add(share=(task.options.pointwise or 0.0) / eps)

    def look(self) -> None:
        """Other options, a larger tolerance, or else a smaller box."""
        options, closest = self.task.options, self.refused.closest
        if options.dtype == "float32" and self.meets(self.task, dtype="float64"):
            self.add(others={"dtype": "float64"})
        elif options.construction and self.meets(self.task, construction=None):
            self.add(others={"construction": "auto"})
        if self.refused.ending or (closest is not None and closest_bound(closest) < math.inf):
            try:
                with part_of_the_rest(policy.EACH_ADVICE):
                    near = self.refused.bound < policy.WORTH_SAYING * self.reach
                    self.look_above_the_bound() if near else self.look_below_the_range()
            except OutOfWork:
                checkpoint()  # goes on if it was this part only
        checked = self.refused.checked
        constant = checked.eps is not None and not checked.eps < policy.WORTH_SAYING * self.reach
        if constant and checked.others:
            self.add(eps=None)
        elif constant or not checked.advice:
            self.look_for_box()

    def look_above_the_bound(self) -> None:
        """A tolerance near the best bound: one that is easily met, then tighter or wider ones."""
        bound, met = self.refused.bound, self.refused.met
        *tighter, usual = (room * bound for room in policy.ADVICE_ROOM)
        if self.tolerates(usual):
            for eps in reversed(tighter):
                if not self.tolerates(max(eps, met) if met < usual else eps):
                    return
        else:
            wider = (room * bound for room in policy.WIDE_ROOM)
            any(self.tolerates(eps) for eps in wider if eps < self.reach)

    def look_below_the_range(self) -> None:
        """A tolerance between the best error of tables and the formula's own range."""
        refused, high = self.refused, self.reach
        measured = policy.ROOM * min(refused.fitted_error, refused.format_error)
        low = max(self.eps, measured if measured < high else 0.0)
        while 0 < policy.ADVICE_ROOM[-1] * low < high < math.inf:  # halve the orders of magnitude in between
            middle = math.sqrt(low * high)
            low, high = (low, middle) if self.tolerates(middle) else (middle, high)
        if refused.checked.eps is None:
            self.tolerates(policy.ADVICE_ROOM[0] * self.reach)

    def look_for_box(self) -> None:
        """A box around the middle of the one that was given, for the tolerance that was asked for."""
        given = self.task.formula
        for share in policy.SMALLER_BOXES if self.task.options.shape is None else ():
            ends = (_middle(low, high, share) for low, high in given.box.floats())
            box = ", ".join(f"{n}={low}..{high}" for n, (low, high) in zip(given.box.variables, ends, strict=True))
            try:
                met = self.meets(self.refused.task_of(Formula.of(given.typed, box)))
            except TransformulaError:  # no numbers in between, or the tolerance is relative to 0
                continue
            if met:
                self.add(box=box, eps=None)
                return

    @cached_property
    def reach(self) -> float:
        """About the tolerance that a constant meets."""
        formula = self.task.formula
        return min(spread(formula), max(peak(expr, formula.box) for expr in formula.outputs))

    def tolerates(self, eps: float) -> bool:
        """Whether a larger tolerance, rounded up, is met; then it is the advice."""
        rounded = float(at_most(eps, 2)) if eps < math.inf else math.inf
        if met := rounded < math.inf and self.meets(self.task, eps=rounded):
            self.add(eps=rounded)
        return met

    def add(self, **found: Any) -> None:
        """Remember advice."""
        self.refused.checked = replace(self.refused.checked, **found)

    def meets(self, task: BuildTask, **asked: Any) -> bool:
        """Whether a search that begins anew proves a model of a task with other options."""
        options = replace(task.options, **({"eps": task.options.eps or task.options.usual} | asked))
        task = task.at(options.eps or task.eps)
        circuits = task.findings.circuits if options.dtype == task.options.dtype else None
        search = type(self.refused)(task.formula, None, {})
        search.eps = options.eps
        anew = BuildTask(task.ground, options, Findings(circuits=circuits))
        plan = rounds(task.ground, options)  # without a last resort of very many tokens
        try:
            with part_of_the_rest(policy.EACH_ADVICE), limited(search.seconds(policy.ALL)) as search.limit:
                search.compete([kinds for kinds in plan if kinds != (PARTITION,) or len(plan) == 1], anew)
        except TransformulaError:
            return False
        except OutOfWork:
            checkpoint()  # goes on if it was this search's part only
        return bool(search.proven)


def _middle(low: float, high: float, share: float) -> tuple[str, str]:
    """Short decimals around the middle of an interval."""
    middle, half = (low + high) / 2, share * (high - low) / 2
    return f"{middle - half:.3g}", f"{middle + half:.3g}"
