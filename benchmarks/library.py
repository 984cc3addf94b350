"""Fit powers and logarithms with tables of every size, and keep the scores in library.json beside the solver.

A compile starts from them (`compiler.tables.one_size`). By scaling, only the ratio of a range's ends matters; between
two ratios that are stored, scores change little. (Those of sines and bell curves change too much: their tables live
on cancellations.) Each function starts from those before it, so neighbours follow each other; nothing is random, and
what is there already is not looked at. ``python benchmarks/library.py`` takes some minutes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from transformula.budget import one_thread
from transformula.compiler import policy
from transformula.compiler.tables import one_size as library
from transformula.compiler.tables.descent import FitState, Fresh, equalise, improve
from transformula.compiler.tables.fit_task import FitTask, prepare
from transformula.compiler.tables.softmax_table import Function
from transformula.compiler.tables.start_scores import Scores, split, starts, worst_tokens

MOST = 12  # tokens
LEAST_ERROR = 1e-12  # relative to the function: closer than this no table is asked for
GAIN = 0.7  # of the error of a table with one token less: what gains less is not kept
FINALISTS, NEIGHBOURS = 5, 6
DIGITS = 5
RATIOS = (1.1, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.5, 9.0, 13.0, 18.0, 27.0, 40.0, 80.0, 150.0, 400.0, 1000.0)
POWERS = (-1.0, -2.0, -3.0, -0.5, 0.5, 1.5)
MOST_RATIO = {-3.0: 40.0, -2.0: 150.0, 1.5: 40.0}
RARE = (-3.0, 1.5)  # of these powers, every second ratio

Stored = tuple[np.ndarray, np.ndarray, float]


def functions() -> Iterator[tuple[str, Function]]:
    """On −1..1, with a range of any size."""
    for power in POWERS:
        for ratio in RATIOS[:: 2 if power in RARE else 1]:
            if ratio <= MOST_RATIO.get(power, np.inf):
                yield f"u^{power:g}, 1..{ratio:g}", lambda t, p=power, r=ratio: _between(t, r) ** p
    for ratio in RATIOS:
        yield f"log u, 1..{ratio:g}", lambda t, r=ratio: np.log(_between(t, r))


def _between(t: np.ndarray, ratio: float) -> np.ndarray:
    return 1 + (t + 1) / 2 * (ratio - 1)


def fitted(function: Function, stored: dict[int, list[Scores]]) -> Iterator[FitState]:
    """The best states found, of ever more tokens."""
    size = float(np.ptp(function(np.linspace(-1, 1, 501))))
    task = prepare(lambda t: function(t) / size, -1.0, 1.0, 1e-11, "float64", linear=False, most_crossings=MOST)
    before: FitState | None = None
    for tokens in range(2, MOST + 1):
        state = _best(task, tokens, before, stored.get(tokens, []))
        if before is None or state.sup < GAIN * before.sup:
            yield state
        before = state if before is None or state.sup < before.sup else before
        if before.sup < LEAST_ERROR:
            return


def _best(task: FitTask, tokens: int, before: FitState | None, stored: list[Scores]) -> FitState:
    problem = task.problem(tokens)
    task.eps = 0.1 * before.sup if before is not None else 0.1
    near = improve(problem, [Fresh(*scores, problem.price) for scores in stored], 0)
    near = sorted(near, key=lambda state: state.sup)[:NEIGHBOURS]
    tried = [*starts(task.normalised_leaves(), tokens, task.poles), *((state.slopes, state.offsets) for state in near)]
    if before is not None and len(before.slopes) == tokens - 1:
        worst = worst_tokens(before.errors, before.softmax, before.values[:, 0], 3)
        points = task.problem(tokens - 1).points
        tried += [split((before.slopes, before.offsets), points, before.softmax, [k], policy.TURNS[0]) for k in worst]
    pool = improve(problem, [Fresh(*scores, price) for scores in tried for price in task.prices(problem, tokens)], 10)
    pool = sorted((state for state in pool if np.isfinite(state.cost)), key=lambda state: state.sup)
    distinct = [b for a, b in zip([None, *pool], pool, strict=False) if a is None or b.sup > 1.01 * a.sup]
    long = improve(problem, distinct[:FINALISTS], 100)
    return min(equalise(problem, long, 0.0, 30), key=lambda state: state.sup)


def main() -> None:
    """Fit, and write."""
    stored: dict[int, list[Stored]] = {}
    with one_thread(), np.errstate(over="ignore", invalid="ignore"):
        for name, function in functions():
            states = list(fitted(function, {size: [(a, b) for a, b, _ in known] for size, known in stored.items()}))
            for state in states:
                order = np.argsort(state.slopes, kind="stable")
                middle = order[len(order) // 2]  # the gauge
                slopes, offsets = state.slopes - state.slopes[middle], state.offsets - state.offsets[middle]
                stored.setdefault(len(order), []).append((slopes[order], offsets[order], state.sup))
            print(name, *(f"{len(state.slopes)}: {state.sup:.0e}" for state in states), flush=True)
    rows = {
        str(size): [[_short(slopes), _short(offsets), float(f"{error:.2g}")] for slopes, offsets, error in stored[size]]
        for size in sorted(stored)
    }
    library.LIBRARY.write_text(json.dumps(rows, separators=(",", ":")) + "\n")


def _short(numbers: np.ndarray) -> list[float]:
    return [float(f"{number:.{DIGITS}g}") for number in numbers]


if __name__ == "__main__":
    main()
