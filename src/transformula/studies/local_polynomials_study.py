"""Shi and Liao: local polynomials under a softmax partition of unity, error against cells for several degrees."""

from __future__ import annotations

import math
import time
from typing import Any

from transformula.compiler.attempts import BuildTask
from transformula.compiler.certify import package
from transformula.compiler.constructions import LOCAL
from transformula.compiler.gallery.local_polynomials import local_attempts
from transformula.compiler.options import Options
from transformula.compiler.prepare import Prepared
from transformula.errors import NotProvenError
from transformula.internals import tables_of
from transformula.kernel.syntax.boxes import Formula
from transformula.model import Model
from transformula.studies.rates import TARGETS, power_slope
from transformula.studies.study_report import Report, Run, Table, new_figure

_EPS = {
    (1, 1): (1e-2, 1e-3, 1e-4, 1e-5), (1, 2): (1e-2, 1e-3, 1e-4, 1e-5, 1e-6), (1, 3): (1e-3, 1e-4, 1e-5, 1e-6, 1e-7),
    (2, 1): (1e-1, 3e-2, 1e-2, 3e-3), (2, 2): (1e-1, 1e-2, 3e-3, 1e-3), (2, 3): (3e-2, 1e-2, 1e-3, 1e-4),
    (3, 1): (2e-1, 1e-1, 5e-2, 2e-2), (3, 2): (3e-2, 1e-2, 3e-3, 1e-3), (3, 3): (1e-2, 3e-3, 1e-3, 2e-4),
}  # fmt: skip


def study(run: Run) -> Report:
    """Compile one smooth function a dimension with polynomials of degree 1 to 3; every error is a proven bound."""
    rows: list[list[Any]] = []
    wanted = {key: ladder for key, ladder in _EPS.items() if sum(key) <= run.pick(3, 6)}
    for (d, degree), ladder in wanted.items():
        for eps in ladder[: run.pick(3, 99)]:
            start = time.perf_counter()
            model = _compiled(*TARGETS[d], eps, degree)
            if model is not None:
                cells, seconds = len(next(tables_of(model)).slopes), time.perf_counter() - start
                found = [cells, model.heads, model.parameter_count, model.certificate.bound, seconds]
                rows.append([d, degree, eps, *found])
    fits = [[d, m, _slope(rows, d, m), -(m + 1) / d] for d, m in wanted]
    worst = max(abs(fit[2] / fit[3] - 1) for fit in fits)
    findings = [
        f"The slopes of error against cells are those of the theory, −(m + 1)/d, to {100 * worst:.0f} % or better: "
        "tokens grow like ε^(−d/α) with α = m + 1.",
        "The paper has α ≤ 1 and constants as local models; polynomials carry the rate beyond, in the same two layers.",
    ]
    return Report(
        run,
        "local-polynomials: error against cells",
        "Shi and Liao (2605.08811) join local approximations by the softmax as a partition of unity, with O(ε^(−d/α)) "
        "parameters for α-Hölder functions, α ≤ 1. Here local models are polynomials of degree m.",
        "Targets: " + "; ".join(f"{f} on {box}" for f, box in TARGETS.values()) + ". Nothing is random.",
        [
            Table(
                "Compiled models",
                ["dimension", "degree", "asked eps", "cells", "heads", "parameters", "proven error", "seconds"],
                rows,
            ),
            Table("Fitted rates", ["dimension", "degree", "log-log slope", "theory"], fits),
        ],
        findings,
        {"models": rows, "fits": fits},
        _figure(rows, fits),
    )


def _compiled(formula: str, box: str, eps: float, degree: int) -> Model | None:
    """The first model that is proven, if any."""
    task = BuildTask(Prepared(Formula.of(formula, box)), Options(eps=eps))
    try:
        for attempt in local_attempts(task, degree):
            try:
                return package(LOCAL, attempt.build(), task.formula, task.options)
            except NotProvenError:
                continue
    except NotProvenError:
        pass
    return None


def _points(rows: list[list[Any]], d: int, degree: int) -> tuple[list[float], list[float]]:
    chosen = [(float(r[3]), float(r[6])) for r in rows if r[:2] == [d, degree]]
    return [n for n, _ in chosen], [e for _, e in chosen]


def _slope(rows: list[list[Any]], d: int, degree: int) -> float:
    return power_slope(*_points(rows, d, degree))


def _figure(rows: list[list[Any]], fits: list[list[Any]]) -> Any:
    dimensions = sorted({fit[0] for fit in fits})
    figure, axes = new_figure(columns=len(dimensions))
    for side, d in zip(axes, dimensions, strict=True):
        for _, m, slope, theory in (fit for fit in fits if fit[0] == d):
            n, e = _points(rows, d, m)
            (line,) = side.loglog(n, e, "o-", label=f"degree {m}, slope {slope:.2f}")
            side.loglog(n, [e[0] * math.pow(v / n[0], theory) for v in n], ":", color=line.get_color())
        side.set(title=f"{d}-D (dotted: theory)", xlabel="cells", ylabel="proven error")
        side.legend()
    return figure
