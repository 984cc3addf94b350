"""Gumaan, Theorem 1: how the error falls with the number of memory tokens, in 1 to 3 dimensions."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from transformula.api import compile
from transformula.errors import NotProvenError
from transformula.studies.study_report import Report, Run, Table, new_figure

TARGETS = {
    1: ("sin(3*x1)", "x1=-1..1"),
    2: ("sin(2*x1 + x2)*exp(-x2**2)", "x1..x2=-1..1"),
    3: ("exp(-(x1 + x2/2)**2 - x3**2)", "x1..x3=-1..1"),
}
_PARTITION = {1: (0.3, 0.1, 0.03, 0.01, 0.003), 2: (0.6, 0.4, 0.2, 0.1), 3: (0.6, 0.4, 0.25)}
_LOOKUP = {
    1: (1e-1, 1e-2, 1e-4, 1e-6, 1e-8, 1e-10),
    2: (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6),
    3: (1e-1, 3e-2, 1e-2, 1e-3),
}


def study(run: Run) -> Report:
    """Compile one smooth function a dimension to several tolerances; every error is a proven bound."""
    cut = run.pick(3, 99)
    rows: list[list[Any]] = []
    for construction, ladders in (("partition", _PARTITION), ("lookup", _LOOKUP)):
        for d, ladder in ladders.items():
            for eps in ladder[:cut]:
                start = time.perf_counter()
                try:
                    model = compile(*TARGETS[d], eps=eps, construction=construction)
                except NotProvenError:
                    continue
                seconds = time.perf_counter() - start
                rows.append([construction, d, eps, model.memory_tokens, model.certificate.bound, seconds])
    slopes = {d: power_slope(*_points(rows, "partition", d)) for d in TARGETS}
    decays = {d: spectral_rate(*_points(rows, "lookup", d), d) for d in TARGETS}
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
        "Targets: " + "; ".join(f"{f} on {box}" for f, box in TARGETS.values()) + ". Nothing is random.",
        [
            Table(
                "Compiled models",
                ["construction", "dimension", "asked eps", "memory tokens", "proven error", "seconds"],
                rows,
            ),
            Table(
                "Fitted rates",
                ["dimension", "partition: log-log slope", "theory", "lookup: log10(error) per axis token"],
                fits,
            ),
        ],
        findings,
        {"models": rows, "partition_slopes": slopes, "lookup_decay": decays},
        _figure(rows, slopes),
    )


def _points(rows: list[list[Any]], construction: str, d: int) -> tuple[list[float], list[float]]:
    chosen = [(float(r[3]), float(r[4])) for r in rows if r[0] == construction and r[1] == d]
    return [n for n, _ in chosen], [e for _, e in chosen]


def power_slope(tokens: list[float], errors: list[float]) -> float:
    """The slope of log error against log tokens.

    Examples
    --------
    >>> round(power_slope([10.0, 100.0], [1.0, 0.1]), 6)
    -1.0
    """
    return float(np.polyfit(np.log(tokens), np.log(errors), 1)[0])


def spectral_rate(tokens: list[float], errors: list[float], d: int) -> float:
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


def _figure(rows: list[list[Any]], slopes: dict[int, float]) -> Any:
    figure, axes = new_figure(columns=2)
    for d in TARGETS:
        n, e = _points(rows, "partition", d)
        axes[0].loglog(n, e, "o-", label=f"{d}-D, slope {slopes[d]:.2f}")
        n, e = _points(rows, "lookup", d)
        axes[1].semilogy([math.pow(v, 1 / d) for v in n], e, "s-", label=f"{d}-D")
    axes[0].set(title="partition", xlabel="memory tokens", ylabel="proven error")
    axes[1].set(title="lookup", xlabel="memory tokens along an axis", ylabel="proven error")
    for side in axes:
        side.legend()
    return figure
