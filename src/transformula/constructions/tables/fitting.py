r"""Fit the smallest table: search over the number of tokens, many starts, minimax refinement.

For a size M every start of :mod:`placement` gets a few Levenberg-Marquardt steps; the best are
refined and equalised (Lawson).  Sizes grow, guided by the observed rate, until the tolerance is
met, then shrink: by bisection down to the largest size that failed, and by removing single tokens
from the table found.  Budgets count arithmetic, not seconds, so results are deterministic.

Behaviour: for analytic f the error falls spectrally, with about three real parameters a token;
for algebraic singularities it falls like exp(-c sqrt(M)).  Limits: nothing is proven here; the
error is measured on a dense sample that clusters where f is hard, and the landscape is not
convex, so M is small but not certified minimal.  A jump of f cannot be fitted in the sup-norm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from transformula.constructions.tables.placement import Scores, split, starts, without, worst_tokens
from transformula.constructions.tables.solving import Problem, State, equalise, improve, solve_values
from transformula.constructions.tables.table import Function, Table
from transformula.constructions.tables.tasks import APPROXIMATION_SHARE, CannotFit, Task, prepare
from transformula.patience import keep_going

__all__ = ["THOROUGH", "CannotFit", "Effort", "fit_table"]

WARM = 3  # warm starts tried for a size
ALWAYS_COLD = 5  # up to this size all starts are tried; above, mostly grown ones, which do better
COLD_RATIO = 1.4  # growth of the size after which all starts are tried again
CHAIN = 16  # a table of M tokens grows by at most 1 + M / CHAIN tokens at once
MAX_SHRINK = 60  # removing tokens from larger tables costs tens of seconds
LIGHT_RATIO = 1.2  # growth of the size in the last resort
OVERTIME = 1.6  # factor on the budget while the goal is close
UNRESOLVED = 0.25  # factor on the budget when sampling met a jump or noise
WITHIN_REACH = 30.0  # equalising with moving scores gains about this factor at best


@dataclass(frozen=True)
class Effort:
    """How hard to search, in floating-point operations (about 2.5e9 a second on one core)."""

    per_size: float = 1.5e9
    growing: float = 9e9
    total: float = 1.2e10
    quick_steps: int = 8
    finalists: int = 4
    long_steps: int = 80
    lawson_rounds: int = 25


THOROUGH = Effort(per_size=5e9, growing=3e10, total=5e10, quick_steps=20, finalists=10)
LIGHT = Effort(quick_steps=0, finalists=2, long_steps=3, lawson_rounds=3, growing=2e10)


def fit_table(
    f: Function,
    lower: float,
    upper: float,
    eps: float,
    dtype: str = "float64",
    singular: Sequence[float] = (),
    *,
    linear: bool = True,
    effort: Effort | None = None,
    max_tokens: int = 400,
) -> Table:
    """Find a small table with ``|T - f| + rounding <= eps`` on [lower, upper].

    Parameters
    ----------
    f : vectorised callable, float64 to float64
    lower, upper : float
        Ends of the interval, finite, ``lower < upper``.
    eps : float
        Total tolerance; the measured approximation error is kept below 0.7 eps.
    dtype : {"float64", "float32"}
        The arithmetic the table will run in; the weights returned are representable in it.
    singular : sequence of float
        Points where f is not smooth, if known; others are found by adaptive sampling.
    linear : bool
        Whether ``alpha * x`` may be added to the head's output.
    effort : Effort, optional
        Budgets of the search.
    max_tokens : int
        Largest size tried.

    Returns
    -------
    Table

    Raises
    ------
    CannotFit
        With the best table found in ``.best``.

    Examples
    --------
    >>> fit_table(np.tanh, -1.0, 1.0, 1e-9).size
    2
    """
    effort = effort or Effort()
    with np.errstate(over="ignore", invalid="ignore"):  # candidates that run away are dropped by their cost
        task = prepare(f, lower, upper, eps, dtype, singular, linear)
        found = _grow(task, effort, max_tokens) or _grow(task, LIGHT, max_tokens)
        if found is None and task.best is not None and task.best.total_error <= eps:
            return task.best  # without headroom: whether it is enough is for the proof to say
        if found is None:
            raise CannotFit(_complaint(task, lower, upper), task.best)
        return _shrink(task, effort, *found)


def _complaint(task: Task, lower: float, upper: float) -> str:
    reached = task.best.total_error if task.best is not None else np.inf
    hint = "" if task.leaves.resolved else "; f looks discontinuous or noisy"
    return (
        f"no table on [{lower}, {upper}] met eps = {task.eps:g} in {task.dtype}: "
        f"best total error {reached:.3g}{hint}; raise eps, narrow the interval or raise the effort"
    )


def _grow(task: Task, effort: Effort, limit: int) -> tuple[Table, State, int] | None:
    """Increase the size until a table is accepted; also return the last size that failed."""
    failed, size = 0, task.least_size()
    light = effort is LIGHT
    if light and task.best is not None:
        size = max(size, task.best.size)
    parent: State | None = None  # the best failure so far, whose tokens are split
    history: list[tuple[int, float]] = []
    budget = effort.growing if task.leaves.resolved else UNRESOLVED * effort.growing
    budget += task.work
    while size <= limit and task.work < budget * (OVERTIME if _near(task, history) else 1.0):
        warm = [] if light else _grown(task, parent, size)
        cold = not warm or size <= ALWAYS_COLD or size >= COLD_RATIO * max(task.searched)
        table, sup, state = _attempt(task, effort, size, warm, cold)
        if table is not None and state is not None:
            return table, state, failed
        failed = size
        if not history or sup < min(entry[1] for entry in history):
            parent = state
        history.append((size, sup))
        size = int(np.ceil(LIGHT_RATIO * size)) if light else _next_size(task, history)
    return None


def _near(task: Task, history: Sequence[tuple[int, float]]) -> bool:
    """Whether the last size came close to the goal, so that more work is well spent."""
    return bool(history) and history[-1][1] < WITHIN_REACH * task.goal


def _next_size(task: Task, history: Sequence[tuple[int, float]]) -> int:
    """Extrapolate log(error) over the sizes tried, cautiously; jump while nothing is resolved."""
    size, sup = history[-1]
    if len(history) < 2 or size < 4:
        return size + 1
    if not sup < 0.02 * task.range:
        return int(np.ceil(1.3 * size))
    before, sup_before = history[-2]
    rate = np.log(sup_before / max(sup, 1e-300)) / (size - before)
    need = np.log(max(sup / task.goal, 1.0)) / max(rate, 0.1)
    return size + int(np.clip(0.6 * need, 1, 1 + size // CHAIN))


def _shrink(task: Task, effort: Effort, table: Table, state: State, failed: int) -> Table:
    """Remove tokens while the tolerance holds.

    Sizes never tried are bisected; a size that failed before is tried again from the table now
    known, less a token, and from the cold starts if it has not seen them yet.
    """
    budget = max(effort.total, task.work + effort.total - effort.growing)
    while 1 < table.size <= MAX_SHRINK and task.work < budget:
        untried = table.size - failed > 1
        size = (table.size + failed) // 2 if untried else table.size - 1
        warm, cold = _pruned(task, state, size), size not in task.searched
        smaller, _, small_state = _attempt(task, effort, size, warm, cold)
        if smaller is not None and small_state is not None:
            table, state, failed = smaller, small_state, min(failed, size - 1)
        elif untried:
            failed = size
        else:
            break
    return table


def _grown(task: Task, state: State | None, size: int) -> list[Scores]:
    """Warm starts larger than ``state``: split the tokens where the error is largest."""
    if state is None:
        return []
    problem, missing = task.problem(size), size - len(state.slopes)
    solved = solve_values(problem, state.slopes, state.offsets)
    errors, scores = solved.errors(problem), (state.slopes, state.offsets)
    tokens = worst_tokens(errors, solved.softmax, solved.values[:, 0], max(WARM, missing))
    if missing > len(tokens):
        return []
    if missing == 1:
        return [split(scores, problem.points, solved.softmax, [token]) for token in tokens]
    return [split(scores, problem.points, solved.softmax, tokens[:missing])]


def _pruned(task: Task, state: State, size: int) -> list[Scores]:
    """Scores of ``size`` tokens left after removing, one by one, the token missed least."""
    scores = state.slopes, state.offsets
    problem = task.problem(size)
    rivals = [scores]
    while len(scores[0]) > size:
        rivals = [without(scores, k) for k in range(len(scores[0]))]
        rivals.sort(key=lambda rival: solve_values(problem, *rival).cost)
        scores = rivals[0]
    task.work += problem.work
    return rivals[:WARM]


def _attempt(
    task: Task, effort: Effort, size: int, warm: Sequence[Scores], cold: bool = True
) -> tuple[Table | None, float, State | None]:
    """Look for an acceptable table of ``size`` tokens.

    Returns the table or None, and the smallest sup-norm met with its state.
    """
    problem = task.problem(size)
    if cold:
        task.searched.add(size)
    fresh = starts(task.normalised_leaves(), size) if cold else ()
    pool = _screen(task, effort, problem, [*warm, *fresh])
    found: Table | None = None
    best: tuple[float, State] | None = None
    finalists = effort.finalists if cold else min(2, effort.finalists)
    for _, price, state in pool[:finalists]:
        found, sup, state = _refine(task, effort, problem, state, price)
        if found is not None or best is None or sup < best[0]:
            best = sup, state
        if found is not None or problem.work > effort.per_size:
            break
    task.work += problem.work
    if best is None:
        return None, np.inf, None
    if found is None:
        task.finish(best[1])  # for the record: the task keeps the best table it has seen
    return found, *best


def _screen(
    task: Task, effort: Effort, problem: Problem, candidates: Sequence[Scores]
) -> list[tuple[float, float, State]]:
    """A few steps from every start at every price; distinct (sup, price, state), best first."""
    base, pool = problem.mu, []
    for scores, price in product(candidates, task.prices(problem)):
        keep_going()
        problem.mu = price
        state = improve(problem, solve_values(problem, *scores), effort.quick_steps)
        if np.isfinite(state.cost):
            pool.append((state.sup(problem), price, state))
            if pool[-1][0] <= task.goal:
                break
        if problem.work > 0.5 * effort.per_size:
            break
    problem.mu = base
    pool.sort(key=lambda entry: entry[:2])
    distinct = pool[:1]
    for entry in pool[1:]:  # an equal sup-norm is the same minimum found again
        if entry[0] > 1.01 * distinct[-1][0]:
            distinct.append(entry)
    return distinct


def _refine(
    task: Task, effort: Effort, problem: Problem, state: State, price: float
) -> tuple[Table | None, float, State]:
    """Many steps, then minimax, first at the given price and then at that of rounding itself."""
    base, sup = problem.mu, np.inf
    for mu in dict.fromkeys((price, base)):
        keep_going()
        problem.mu = mu
        state = solve_values(problem, state.slopes, state.offsets)
        state = improve(problem, state, effort.long_steps)
        sup = state.sup(problem)
        if sup < WITHIN_REACH * task.goal:
            state, sup = equalise(problem, state, task.goal, effort.lawson_rounds)
        if sup <= 1.2 * APPROXIMATION_SHARE * task.eps:
            break
    table = None
    if sup <= 1.2 * APPROXIMATION_SHARE * task.eps:
        table = _accepted(task, problem, state)
    problem.mu = base
    return table, sup, state


def _accepted(task: Task, problem: Problem, state: State) -> Table | None:
    """The finished table if it is accepted.

    When rounding alone spoils the total, large values are made dearer and the scores move again.
    """
    for _ in range(4):
        table = task.finish(state)
        if task.accepts(table):
            return table
        if table.error_estimate > APPROXIMATION_SHARE * task.eps:
            return None
        problem.mu *= 5
        state = improve(problem, solve_values(problem, state.slopes, state.offsets), 30)
    return None
