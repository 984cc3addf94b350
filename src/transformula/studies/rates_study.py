"""Error against tokens or cells in 1 to 3 dimensions, proven: one layer, two softmax layers, local polynomials."""

from __future__ import annotations

from typing import Any

import numpy as np
from flint import arb

from transformula.api import compile
from transformula.compiler.attempts import BuildTask, Options
from transformula.compiler.certify import package
from transformula.compiler.constructions import LOCAL
from transformula.compiler.evidence.table_pieces import find_pieces
from transformula.compiler.gallery.attention_only import anchors
from transformula.compiler.gallery.local_polynomials import local_attempts
from transformula.compiler.layout import TableTokens
from transformula.compiler.prepare import Prepared
from transformula.errors import NotProvenError
from transformula.internals import tables_of
from transformula.kernel.syntax.boxes import Formula
from transformula.kernel.syntax.expression import variable
from transformula.kernel.tables.table_error import SoftmaxTable, table_error
from transformula.model import Model
from transformula.studies.study_report import Curve, Panel, Report, StudyRun, StudyTable, draw, log_slope, timed

TARGETS = {
    1: ("sin(3*x1)", "x1=-1..1"),
    2: ("sin(2*x1 + x2)*exp(-x2**2)", "x1..x2=-1..1"),
    3: ("exp(-(x1 + x2/2)**2 - x3**2)", "x1..x3=-1..1"),
}
_SETTING = "Targets: " + "; ".join(f"{f} on {box}" for f, box in TARGETS.values()) + ". Nothing is random."
#: Tolerances by dimension, for each construction.
_PARTITION = {1: (0.3, 0.1, 0.03, 0.01, 0.003), 2: (0.6, 0.4, 0.2, 0.1), 3: (0.6, 0.4, 0.25)}
_LOOKUP = {
    1: (1e-1, 1e-2, 1e-4, 1e-6, 1e-8, 1e-10),
    2: (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6),
    3: (1e-1, 3e-2, 1e-2, 1e-3),
}
_ATTENTION_ONLY = {1: (0.3, 0.1, 0.03, 0.01, 0.003), 2: (0.6, 0.4, 0.2, 0.1, 0.05), 3: (0.6, 0.4, 0.25, 0.15)}
#: Tolerances by dimension and degree.
_LOCAL = {
    (1, 1): (1e-2, 1e-3, 1e-4, 1e-5), (1, 2): (1e-2, 1e-3, 1e-4, 1e-5, 1e-6), (1, 3): (1e-3, 1e-4, 1e-5, 1e-6, 1e-7),
    (2, 1): (1e-1, 3e-2, 1e-2, 3e-3), (2, 2): (1e-1, 1e-2, 3e-3, 1e-3), (2, 3): (3e-2, 1e-2, 1e-3, 1e-4),
    (3, 1): (2e-1, 1e-1, 5e-2, 2e-2), (3, 2): (3e-2, 1e-2, 3e-3, 1e-3), (3, 3): (1e-2, 3e-3, 1e-3, 2e-4),
}  # fmt: skip
#: Errors of lines drawn by anchors.
_LINES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8, 1e-10)
#: Sharpness of the choice of the nearest anchor, in units in which neighbours are 2 apart.
_SHARP = 400.0


def rates(run: StudyRun) -> Report:
    """Compile one smooth function a dimension to several tolerances; every error is a proven bound."""
    cut = run.pick(3, 99)
    rows: list[list[Any]] = []
    for construction, ladders in (("partition", _PARTITION), ("lookup", _LOOKUP)):
        for d, ladder in ladders.items():
            for eps in ladder[:cut]:
                try:
                    model, seconds = timed(compile, *TARGETS[d], eps=eps, construction=construction)
                except NotProvenError:
                    continue
                rows.append([construction, d, eps, model.memory_tokens, model.certificate.bound, seconds])
    slopes = {d: log_slope(*_points(rows, "partition", d)) for d in TARGETS}
    decays = {d: _spectral_rate(*_points(rows, "lookup", d), d) for d in TARGETS}
    fits = [[d, slopes[d], -1.0 / d, decays[d]] for d in TARGETS]
    findings = [
        "`partition` (Theorem 1 as written) falls like tokens^slope with slopes "
        + ", ".join(f"{slopes[d]:.2f}" for d in TARGETS)
        + " in 1, 2 and 3 dimensions; a Lipschitz function on cells of side h gives −1/d.",
        "`lookup` (the same architecture, values solved) falls geometrically in the tokens along an axis, "
        + ", ".join(f"by a factor {10 ** -decays[d]:.3g}" for d in TARGETS)
        + " for each further one in 1, 2 and 3 dimensions.",
        *_same_error(rows),
    ]
    return Report(
        run,
        "rates: error against tokens",
        "Gumaan's Theorem 1 promises some one-layer Transformer for every error, and leaves open how large "
        "it must be. Here the error is the certificate's bound on the whole box, not a sample.",
        _SETTING,
        [
            StudyTable(
                "Compiled models",
                ["construction", "dimension", "asked eps", "memory tokens", "proven error", "seconds"],
                rows,
            ),
            StudyTable(
                "Fitted rates",
                ["dimension", "partition: log-log slope", "theory", "lookup: log10(error) per axis token"],
                fits,
            ),
        ],
        findings,
        {"models": rows, "partition_slopes": slopes, "lookup_decay": decays},
        _rates_figure(rows, slopes),
    )


def _points(rows: list[list[Any]], *key: Any) -> tuple[list[float], list[float]]:
    """Tokens and errors of the rows that begin with the key."""
    chosen = [row for row in rows if row[: len(key)] == list(key)]
    return [float(row[3]) for row in chosen], [float(row[4]) for row in chosen]


def _spectral_rate(tokens: list[float], errors: list[float], d: int) -> float:
    """The slope of log10 error against tokens^(1/d)."""
    return float(np.polyfit(np.array(tokens) ** (1 / d), np.log10(errors), 1)[0])


def _same_error(rows: list[list[Any]]) -> list[str]:
    sentences = []
    for d in TARGETS:
        n, e = _points(rows, "partition", d)
        m, f = _points(rows, "lookup", d)
        close = [(a, b) for a, b in zip(m, f, strict=True) if b <= min(e)]
        if close:
            sentences.append(
                f"In {d} dimension{'s' if d > 1 else ''} an error of {min(e):.2g} takes {max(n):.0f} tokens "
                f"by partition and {close[0][0]:.0f} by lookup."
            )
    return sentences


def _rates_figure(rows: list[list[Any]], slopes: dict[int, float]) -> Any:
    points = {(name, d): _points(rows, name, d) for name in ("partition", "lookup") for d in TARGETS}
    partition = [Curve(f"{d}-D, slope {slopes[d]:.2f}", *points["partition", d]) for d in TARGETS]
    lookup = []
    for d in TARGETS:
        tokens, errors = points["lookup", d]
        lookup.append(Curve(f"{d}-D", [n ** (1 / d) for n in tokens], errors, "s-"))
    return draw(
        Panel("memory tokens", "proven error", partition, "partition"),
        Panel("memory tokens along an axis", "proven error", lookup, "lookup", "semilogy"),
    )


def _with_theory(label: str, x: list[float], errors: list[float], slope: float, color: str) -> list[Curve]:
    """Measured errors, and the theory's slope through the first of them."""
    theory = [errors[0] * (v / x[0]) ** slope for v in x]
    return [Curve(label, x, errors, "o-", color), Curve("", x, theory, ":", color)]


def attention_only(run: StudyRun) -> Report:
    """Models of one function a dimension to several tolerances, and lines of more and more anchors, all proven."""
    rows: list[list[Any]] = []
    for d, ladder in _ATTENTION_ONLY.items():
        for eps in ladder[: run.pick(2, 99)]:
            try:
                model, seconds = timed(compile, *TARGETS[d], eps=eps, construction="attention-only")
            except NotProvenError:
                continue
            tokens = [sum(len(t.slopes) for t in tables_of(model) if t.block == b) for b in (0, 1)]
            forms = sum(t.block == 0 for t in tables_of(model))
            rows.append([d, eps, forms, tokens[0] // forms, tokens[1], model.certificate.bound, seconds])
    slopes = {d: log_slope([r[4] for r in rows if r[0] == d], [r[5] for r in rows if r[0] == d]) for d in TARGETS}
    lines = [_line(goal) for goal in _LINES[: run.pick(3, 99)]]
    growth = log_slope([row[0] for row in lines], [row[2] for row in lines])
    findings = [
        "The error falls like tokens^slope with slopes "
        + ", ".join(f"{slopes[d]:.2f}" for d in TARGETS)
        + " in 1, 2 and 3 dimensions; for a Lipschitz function the theory has −1/d: tokens grow like ε^(−d/α), α = 1.",
        f"With the nearest anchor alone the error of a line falls like p^{growth:.2f} with p anchors, as the paper's "
        f"O(1/p) says. With weights as wide as the anchors are apart, {lines[-1][0]} anchors are proven to err by "
        f"{lines[-1][1]:.1g} at most.",
    ]
    return Report(
        run,
        "attention-only: two softmax layers",
        "Hu et al. (2504.15956) approximate continuous functions by two layers of softmax attention alone. Here the "
        "first layer interpolates each linear form by anchors, and the second chooses among cells with f's values.",
        _SETTING,
        [
            StudyTable(
                "Compiled models",
                ["dimension", "asked eps", "lines", "anchors", "cells", "proven error", "seconds"],
                rows,
            ),
            StudyTable(
                "Fitted rates", ["dimension", "log-log slope", "theory"], [[d, slopes[d], -1 / d] for d in TARGETS]
            ),
            StudyTable(
                "A line on −1..1 by anchors: proven errors",
                ["anchors", "weights as wide as the anchors are apart", "nearest anchor alone"],
                lines,
            ),
        ],
        findings,
        {"models": rows, "slopes": slopes, "lines": lines, "nearest_slope": growth},
        _attention_only_figure(rows, slopes, lines),
    )


def _line(goal: float) -> list[Any]:
    """Number of anchors for an error, their proven error, and that of as many where the nearest decides."""
    soft = anchors(goal, "float64")
    places = np.linspace(-1, 1, len(soft.values))
    sharpness = _SHARP / (places[1] - places[0]) ** 2
    nearest = TableTokens(sharpness * places[:, None], -sharpness / 2 * places[:, None] ** 2, places[:, None])
    return [len(places), _proven(soft), _proven(nearest)]


def _proven(table: TableTokens) -> float:
    """sup|T − u| on −1..1."""
    slopes, offsets, values = (v[:, 0].astype(np.float64) for v in (table.slopes, table.offsets, table.values))
    softmax = SoftmaxTable((slopes,), (offsets,), values)
    ends, line = (arb(-1), arb(1)), variable("u")
    return table_error(softmax, line, ("u",), [ends], find_pieces(softmax, line, ends))


def _attention_only_figure(rows: list[list[Any]], slopes: dict[int, float], lines: list[list[Any]]) -> Any:
    layers = []
    for k, d in enumerate(TARGETS):
        own = [r for r in rows if r[0] == d]
        cells, errors = [float(r[4]) for r in own], [float(r[5]) for r in own]
        layers += _with_theory(f"{d}-D, slope {slopes[d]:.2f}", cells, errors, -1 / d, f"C{k}")
    counts = [r[0] for r in lines]
    by_anchors = [
        Curve("as wide as they are apart", counts, [r[1] for r in lines]),
        Curve("nearest anchor", counts, [r[2] for r in lines], "s-"),
    ]
    return draw(
        Panel("cells", "proven error", layers, "two layers (dotted: theory)"),
        Panel("anchors", "proven error", by_anchors, "a line", "semilogy"),
    )


def local_polynomials(run: StudyRun) -> Report:
    """Compile one smooth function a dimension with polynomials of degree 1 to 3; every error is a proven bound."""
    rows: list[list[Any]] = []
    wanted = {key: ladder for key, ladder in _LOCAL.items() if sum(key) <= run.pick(3, 6)}
    for (d, degree), ladder in wanted.items():
        for eps in ladder[: run.pick(3, 99)]:
            model, seconds = timed(_compiled, *TARGETS[d], eps, degree)
            if model is not None:
                sizes = len(next(tables_of(model)).slopes), model.most_heads, model.parameter_count
                rows.append([d, degree, eps, *sizes, model.certificate.bound, seconds])
    fits = [[d, m, log_slope(*_cells(rows, d, m)), -(m + 1) / d] for d, m in wanted]
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
        _SETTING,
        [
            StudyTable(
                "Compiled models",
                ["dimension", "degree", "asked eps", "cells", "most heads", "parameters", "proven error", "seconds"],
                rows,
            ),
            StudyTable("Fitted rates", ["dimension", "degree", "log-log slope", "theory"], fits),
        ],
        findings,
        {"models": rows, "fits": fits},
        _local_figure(rows, fits),
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


def _cells(rows: list[list[Any]], d: int, degree: int) -> tuple[list[float], list[float]]:
    chosen = [row for row in rows if row[:2] == [d, degree]]
    return [float(row[3]) for row in chosen], [float(row[6]) for row in chosen]


def _local_figure(rows: list[list[Any]], fits: list[list[Any]]) -> Any:
    panels = []
    for d in sorted({fit[0] for fit in fits}):
        curves = []
        for _, m, slope, theory in (fit for fit in fits if fit[0] == d):
            curves += _with_theory(f"degree {m}, slope {slope:.2f}", *_cells(rows, d, m), theory, f"C{m - 1}")
        panels.append(Panel("cells", "proven error", curves, f"{d}-D (dotted: theory)"))
    return draw(*panels)
