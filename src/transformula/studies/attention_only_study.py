"""Hu et al.: two softmax layers without feed-forward layers, error against tokens; and how well anchors draw a line."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from flint import arb

from transformula.api import compile
from transformula.compiler.evidence.table_pieces import find_pieces
from transformula.compiler.gallery.attention_only import anchors
from transformula.compiler.softmax_layout import Tokens
from transformula.errors import NotProvenError
from transformula.internals import tables_of
from transformula.kernel.syntax.expression import variable
from transformula.kernel.tables.table_error import SoftmaxTable as Softmax
from transformula.kernel.tables.table_error import table_error
from transformula.studies.rates import TARGETS, power_slope
from transformula.studies.study_report import Report, Run, Table, new_figure

_EPS = {1: (0.3, 0.1, 0.03, 0.01, 0.003), 2: (0.6, 0.4, 0.2, 0.1, 0.05), 3: (0.6, 0.4, 0.25, 0.15)}
_LINES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8, 1e-10)
#: How sharply the nearest anchor is picked, in units in which neighbours are 2 apart.
_SHARP = 400.0


def study(run: Run) -> Report:
    """Models of one function a dimension to several tolerances, and lines of more and more anchors, all proven."""
    rows: list[list[Any]] = []
    for d, ladder in _EPS.items():
        for eps in ladder[: run.pick(2, 99)]:
            start = time.perf_counter()
            try:
                model = compile(*TARGETS[d], eps=eps, construction="attention-only")
            except NotProvenError:
                continue
            tokens = [sum(len(t.slopes) for t in tables_of(model) if t.block == b) for b in (0, 1)]
            bound, seconds = model.certificate.bound, time.perf_counter() - start
            forms = sum(t.block == 0 for t in tables_of(model))
            rows.append([d, eps, forms, tokens[0] // forms, tokens[1], bound, seconds])
    slopes = {d: power_slope([r[4] for r in rows if r[0] == d], [r[5] for r in rows if r[0] == d]) for d in TARGETS}
    lines = [_line(goal) for goal in _LINES[: run.pick(3, 99)]]
    growth = power_slope([row[0] for row in lines], [row[2] for row in lines])
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
        "Targets: " + "; ".join(f"{f} on {box}" for f, box in TARGETS.values()) + ". Nothing is random.",
        [
            Table(
                "Compiled models",
                ["dimension", "asked eps", "lines", "anchors", "cells", "proven error", "seconds"],
                rows,
            ),
            Table("Fitted rates", ["dimension", "log-log slope", "theory"], [[d, slopes[d], -1 / d] for d in TARGETS]),
            Table(
                "A line on −1..1 by anchors: proven errors",
                ["anchors", "weights as wide as the anchors are apart", "nearest anchor alone"],
                lines,
            ),
        ],
        findings,
        {"models": rows, "slopes": slopes, "lines": lines, "nearest_slope": growth},
        _figure(rows, slopes, lines),
    )


def _line(goal: float) -> list[Any]:
    """How many anchors it takes, their proven error, and that of as many where the nearest decides."""
    soft = anchors(goal, "float64")
    places = np.linspace(-1, 1, len(soft.values))
    sharpness = _SHARP / (places[1] - places[0]) ** 2
    nearest = Tokens(sharpness * places[:, None], -sharpness / 2 * places[:, None] ** 2, places[:, None])
    return [len(places), _proven(soft), _proven(nearest)]


def _proven(table: Tokens) -> float:
    """sup|T − u| on −1..1."""
    slopes, offsets, values = (v[:, 0].astype(np.float64) for v in (table.slopes, table.offsets, table.values))
    softmax = Softmax((slopes,), (offsets,), values)
    ends, line = (arb(-1), arb(1)), variable("u")
    return table_error(softmax, line, ("u",), [ends], find_pieces(softmax, line, ends))


def _figure(rows: list[list[Any]], slopes: dict[int, float], lines: list[list[Any]]) -> Any:
    figure, axes = new_figure(columns=2)
    for d in TARGETS:
        own = [r for r in rows if r[0] == d]
        n, e = [float(r[4]) for r in own], [float(r[5]) for r in own]
        (line,) = axes[0].loglog(n, e, "o-", label=f"{d}-D, slope {slopes[d]:.2f}")
        theory = [e[0] * math.pow(v / n[0], -1 / d) for v in n]
        axes[0].loglog(n, theory, ":", color=line.get_color())
    axes[0].set(title="two layers (dotted: theory)", xlabel="cells", ylabel="proven error")
    axes[1].semilogy([r[0] for r in lines], [r[1] for r in lines], "o-", label="as wide as they are apart")
    axes[1].semilogy([r[0] for r in lines], [r[2] for r in lines], "s-", label="nearest anchor")
    axes[1].set(title="a line", xlabel="anchors", ylabel="proven error")
    for side in axes:
        side.legend()
    return figure
