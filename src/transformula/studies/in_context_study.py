"""Regression in context: layers against accuracy, loops against layers, and the errors of recurrences."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from flint import fmpq

from transformula.compiler.gallery import prompt_models
from transformula.compiler.gallery.prompt_models import construct_in_context
from transformula.errors import NotProvenError
from transformula.formula.prompt_target import Prompts
from transformula.kernel.arithmetic import at_most
from transformula.kernel.gallery.in_context_rule import prove_in_context
from transformula.learn.distinct_rows import Floats
from transformula.model import Model
from transformula.runtime import reference
from transformula.studies.study_report import Curve, Panel, Report, StudyRun, StudyTable, draw

_PAIRS = 16
_FEATURES = 3
_EPS = 1e-6
#: The largest factors of the recurrences.
_FACTORS = ("1/2", "1", "17/16")


def in_context(run: StudyRun) -> Report:
    """Ridge regression of prompts with 16 pairs and 3 features: how far each depth is from the exact answer."""
    exact = prompt_models.in_context("ridge", pairs=_PAIRS, features=_FEATURES, eps=_EPS)
    assert isinstance(exact.formula, Prompts)
    rows = hard_prompts(exact, run.pick(200, 2000), run.seed)
    wanted = exact.formula.answers(rows)
    depths = run.pick([2, 6, 10], [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12])
    table: list[list[Any]] = []
    for layers in depths:
        steps = prompt_models.in_context("ridge", pairs=_PAIRS, features=_FEATURES, steps=layers)
        weights = construct_in_context(exact.formula.task, "float64", layers - 1)
        newton = reference.run(weights, rows)
        bound = prove_in_context(weights, exact.formula.task).bound
        off = [float(np.abs(found - wanted).max()) for found in (np.reshape(steps(rows), (-1, 1)), newton)]
        table.append([layers, off[0], steps.certificate.rounding, off[1], bound])
    sizes, loops = _sizes(run), [_looped(steps) for steps in run.pick([1, 8], [1, 8, 64, 512])]
    growth = [_grown(a, steps, run) for a in _FACTORS for steps in run.pick([1, 8], [1, 4, 16, 64, 256])]
    return Report(
        run,
        "in-context: ridge regression inside a Transformer",
        "Von Oswald et al. (2212.07677): a layer of linear attention can take a gradient step on the pairs of its "
        "prompt; Giannou et al. (2403.03183): two layers can take a step of Newton's iteration for an inverse. How "
        "many layers does ridge regression to a tolerance take, for every prompt of a box, rounding included?",
        f"{_PAIRS} pairs, {_FEATURES} features, |x|, |y| <= 1, penalty 1, float64. Measured at random prompts and at "
        "the hardest ones, whose pairs are all alike: they have the spectra that the bounds go by.",
        [
            StudyTable(
                "Distance from the exact ridge prediction",
                ["layers", "gradient steps, measured", "proven of the steps themselves", "Newton, measured", "proven"],
                table,
            ),
            StudyTable(
                f"Layers for {_EPS:g}",
                ["pairs", "penalty", "Newton's layers", "proven bound", "gradient steps that the same bound asks for"],
                sizes,
            ),
            StudyTable(
                "Gradient steps, unrolled and looped",
                ["steps", "parameters, unrolled", "looped", "bytes of weights, unrolled", "looped", "proven bound"],
                loops,
            ),
            StudyTable(
                "Recurrences x → a·x + b, |b|, |x| <= 1: the last value",
                ["largest |a|", "steps", "largest value", "measured error", "proven error"],
                growth,
            ),
        ],
        [*_findings(table, sizes, exact), *_more_findings(loops, growth)],
        {"rows": table, "sizes": sizes, "loops": loops, "growth": growth},
        _figure(table, growth),
    )


def _looped(steps: int) -> list[Any]:
    """The same steps with a set of weights each, and with one set for all."""
    apart, loop = (
        prompt_models.in_context("ridge", pairs=_PAIRS, features=_FEATURES, steps=steps, looped=it)
        for it in (False, True)
    )
    assert apart.certificate.bound == loop.certificate.bound
    sizes = [len(model.packed.arrays) for model in (apart, loop)]
    return [steps, apart.parameter_count, loop.parameter_count, *sizes, loop.certificate.bound]


def _grown(a: str, steps: int, run: StudyRun) -> list[Any]:
    """Error of a computed recurrence, at the ends of the box and inside it."""
    model = prompt_models.in_context("recurrence", steps=steps, a=a)
    low, high = np.array(model.box.floats()).T
    rows = np.random.default_rng(run.seed).uniform(low, high, (run.pick(4, 12), 3))
    rows = np.concatenate([high[None], np.nextafter(high, low)[None], rows])
    off = largest = 0.0
    for row, found in zip(rows, np.reshape(model(rows), (len(rows), -1)), strict=True):
        exact = model.exact([fmpq(*float(v).as_integer_ratio()) for v in row])[-1]
        off = max(off, abs(float(fmpq(*float(found[-1]).as_integer_ratio()) - exact)))
        largest = max(largest, abs(float(found[-1])))
    return [a, steps, largest, off, model.certificate.bound]


def hard_prompts(model: Model, count: int, seed: int) -> Floats:
    """Random prompts, and prompts of equal pairs s·(1, ..., 1), whose Gram matrix has the one eigenvalue n d s²."""
    assert isinstance(model.formula, Prompts)
    task = model.formula.task
    inside = np.random.default_rng(seed).uniform(-1, 1, (count, task.size))
    scales = np.geomspace(1e-3, 1, count)[:, None, None]
    x = np.broadcast_to(scales, (count, task.pairs, task.features))
    alike = model.formula.rows(x, np.ones((count, task.pairs)), np.ones((count, task.features)))
    return np.concatenate([inside, alike])


def _sizes(run: StudyRun) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for pairs in run.pick([4], [4, 16, 64]):
        for penalty in (10, 1, "1/4"):
            try:
                model = prompt_models.in_context("ridge", pairs=pairs, features=_FEATURES, penalty=penalty, eps=_EPS)
                rows.append([pairs, penalty, model.layers, model.certificate.bound])
            except NotProvenError as error:
                rows.append([pairs, penalty, "not proven", error.best_bound])
            rows[-1].append(_gradient_steps(pairs, float(Fraction(penalty))))
    return rows


def _gradient_steps(pairs: int, penalty: float) -> int:
    """The fewest k with √(n d) max |1 − rate·a|^k √(a − penalty)/a <= eps, the maximum over the box's spectrum."""
    most = pairs * _FEATURES
    a = penalty + np.geomspace(1e-9, most, 20_000)
    rate = 2 / (2 * penalty + most)
    slope, factor = np.log(np.abs(1 - rate * a) + 1e-300), np.sqrt(most) * np.sqrt(a - penalty) / a
    with np.errstate(divide="ignore"):
        needed = np.where(factor > _EPS, np.log(factor / _EPS) / -slope, 0)
    return int(np.ceil(needed.max()))


def _findings(table: list[list[Any]], sizes: list[list[Any]], exact: Model) -> list[str]:
    last = table[-1]
    _, _, newton, _, worst = max((row for row in sizes if isinstance(row[2], int)), key=lambda row: row[4])
    return [
        f"Within {_EPS:g} of the exact ridge prediction at every prompt of the box: {exact.layers} layers of one head, "
        f"proven bound {at_most(exact.certificate.bound, 2)}.",
        f"{last[0]} gradient steps are still off by {last[1]:.2g} at the hardest prompts. They are the algorithm's own "
        f"{last[0]} steps, up to {last[2]:.1g}: what is missing is the algorithm's, not the Transformer's.",
        f"Where gradient steps would need {worst:,} layers by the same bound, Newton and Schulz's iteration needs "
        f"{newton}: a layer a step, where Giannou et al. use two, because the step is taken on the tokens' own vectors "
        "and the inverse itself is never written down.",
    ]


def _more_findings(loops: list[list[Any]], growth: list[list[Any]]) -> list[str]:
    steps, apart, loop, *_ = loops[-1]
    last = {row[0]: row for row in growth}
    said = "; ".join(f"{row[4]:.2g} after {row[1]} steps where |a| <= {a}" for a, row in last.items())
    return [
        f"A loop of {steps} gradient steps has the {loop} parameters of one step, {apart:,} unrolled. The function and "
        "its proof are the same.",
        "The proven error of a recurrence stays where it is below |a| = 1, grows with the square of the steps at 1, "
        f"and like its values beyond: {said}.",
    ]


def _figure(table: list[list[Any]], growth: list[list[Any]]) -> Any:
    layers = [row[0] for row in table]
    ridge = [
        Curve("gradient steps, measured", layers, [row[1] for row in table], "s-"),
        Curve("Newton-Schulz, measured", layers, [max(row[3], 1e-17) for row in table]),
        Curve("Newton-Schulz, proven", layers, [row[4] for row in table], "o--"),
    ]
    recurrences = []
    for k, a in enumerate(_FACTORS):
        rows = [row for row in growth if row[0] == a]
        steps = [row[1] for row in rows]
        recurrences.append(Curve(f"|a| <= {a}, proven", steps, [row[4] for row in rows], "o--", f"C{k}"))
        recurrences.append(Curve("measured", steps, [max(row[3], 1e-17) for row in rows], "s-", f"C{k}"))
    return draw(
        Panel("layers", "distance from the exact prediction", ridge, "ridge regression", "semilogy", {"eps": _EPS}),
        Panel("steps", "error of the last value", recurrences, "recurrences"),
    )
