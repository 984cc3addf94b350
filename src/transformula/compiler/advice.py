"""Advice of a refusal: options, a tolerance or a smaller box that a search of its own is seen to meet."""

from __future__ import annotations

import math
from contextlib import suppress
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
        if options.dtype == "float32" and self.meets(self.task, policy.FOR_TOLERANCE, dtype="float64"):
            self.add(others={"dtype": "float64"})
        elif options.construction and self.meets(self.task, policy.FOR_TOLERANCE, construction=None):
            self.add(others={"construction": "auto"})
        if closest is not None and closest_bound(closest) < math.inf:
            with suppress(OutOfWork), part_of_the_rest(policy.FOR_TOLERANCE):
                self.look_for_tolerance()
        checked = self.refused.checked
        constant = checked.eps is not None and not checked.eps < policy.WORTH_SAYING * self.reach
        if constant and checked.others:
            self.add(eps=None)
        elif constant or not checked.advice:
            self.look_for_box()
            if self.refused.ending and not self.refused.checked.advice:
                self.look_for_tolerance()

    def look_for_tolerance(self) -> None:
        """A tolerance near the best bound, or else between it and the formula's own range."""
        refused, bound, high = self.refused, self.refused.bound, self.reach
        if bound < policy.WORTH_SAYING * high:
            tight, usual = (room * bound for room in policy.ADVICE_ROOM)
            if self.tolerates(usual):
                self.tolerates(max(tight, refused.met) if refused.met < usual else tight)
                return
        found = policy.ROOM * min(refused.fitted_error, refused.format_error)
        low = max(bound if bound < high else 0.0, found if found < high else 0.0, self.eps)
        while 0 < policy.NEAR_ADVICE * low < high < math.inf:  # halve the orders of magnitude in between
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
                with part_of_the_rest(policy.EACH_ADVICE):
                    task = self.refused.task_of(Formula.of(given.typed, box))
                    if not self.meets(task, 1.0):
                        return
            except (OutOfWork, TransformulaError):  # no numbers in between, or the tolerance is relative to 0
                checkpoint()
                return
            self.add(box=box, eps=None)

    @cached_property
    def reach(self) -> float:
        """About the tolerance that a constant meets."""
        formula = self.task.formula
        return min(spread(formula), max(peak(expr, formula.box) for expr in formula.outputs))

    def tolerates(self, eps: float) -> bool:
        """Whether a larger tolerance, rounded up, is met; then it is the advice."""
        rounded = float(at_most(eps, 2)) if eps < math.inf else math.inf
        if met := rounded < math.inf and self.meets(self.task, policy.EACH_ADVICE / 2, eps=rounded):
            self.add(eps=rounded)
        return met

    def add(self, **found: Any) -> None:
        """Remember advice."""
        self.refused.checked = replace(self.refused.checked, **found)

    def meets(self, task: BuildTask, part: float, **asked: Any) -> bool:
        """Whether a search that begins anew, with a part of the work that is left, proves a model."""
        options = replace(task.options, **({"eps": task.options.eps or task.options.usual} | asked))
        task = task.at(options.eps or task.eps)
        circuits = task.findings.circuits if options.dtype == task.options.dtype else None
        search = type(self.refused)(task.formula, None, {})
        search.eps = options.eps
        anew = BuildTask(task.ground, options, Findings(circuits=circuits))
        plan = rounds(task.ground, options)  # without a last resort of very many tokens
        try:
            with part_of_the_rest(part), limited(search.seconds(policy.ALL)) as search.limit:
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
