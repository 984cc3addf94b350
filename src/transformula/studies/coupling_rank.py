r"""Error against head dimension, from the singular values of the temporal coupling (Jiang and Li, 2305.18475).

Position t of a sequence takes the mean of values x_s with softmax weights exp(K(t, s)) / Σ_s exp(K(t, s)). The matrix K
is the *temporal coupling*. A head of dimension m has scores ⟨q_t, k_s⟩, a matrix of rank m: by Eckart and Young the
best one in mean square is K_m, cut after m singular values, and what is cut has the mean square Σ_{k>m} σ_k². Where
σ_k falls like k^-p, its root falls like m^-(p − 1/2): the theory's rate. For every sequence

    |output − wanted| <= max|x| (exp(2e) − 1),        e = max |K − K_m|,

because scores that are off by at most e change every weight by a factor between exp(−2e) and exp(2e).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transformula.learning.rows import Floats
from transformula.studies.report import Report, Run, Table, new_figure

#: Name → coupling of times in [0, 1], and the power p of its singular values, None where they fall faster than any.
COUPLINGS: dict[str, tuple[Any, int | None]] = {
    "kink, −4|t − s|": (lambda t, s: -4 * np.abs(t - s), 2),
    "smooth twice, 8|t − s|³": (lambda t, s: 8 * np.abs(t - s) ** 3, 4),
    "analytic, 4/(1 + 25(t − s)²)": (lambda t, s: 4 / (1 + 25 * (t - s) ** 2), None),
}


def study(run: Run) -> Report:
    """Cut the coupling at every head dimension, and measure softmax attention with it."""
    length = run.pick(128, 512)
    dimensions = run.pick([1, 2, 4, 8, 16], [1, 2, 3, 4, 6, 8, 12, 16, 24, 32])
    tables, curves, slopes = [], {}, []
    for name, (coupling, power) in COUPLINGS.items():
        rows = errors_of(coupling, length, dimensions)
        tables.append(
            Table(name, ["head dimension", "root mean square cut", "bound", "measured, worst sequence"], rows)
        )
        tail = [row for row in rows if row[0] >= 4 and row[3] > 1e-13]  # below is rounding
        slope = -float(np.polyfit(np.log([r[0] for r in tail]), np.log([r[3] for r in tail]), 1)[0])
        slopes.append([name, "faster than any power" if power is None else f"m^-{power - 0.5:g}", f"m^-{slope:.2f}"])
        curves[name] = (rows, power)
    return Report(
        run,
        "coupling-rank: error against the dimension of a head",
        "Jiang and Li (2305.18475): how well attention approximates a relation of sequences goes by how fast the "
        "singular values of its temporal coupling fall, because a head of dimension m has scores of rank m.",
        f"{length} positions at times in [0, 1], one softmax head whose queries and keys are the leading singular "
        "vectors of the coupling. The worst sequence of values in [−1, 1] is known: its error is the sum of "
        "|weight − wanted weight|. The bound is exp(2e) − 1, e the largest error of a score.",
        [*tables, Table("Rates", ["coupling", "theory", "measured from dimension 4 on"], slopes)],
        [
            *(f"{name}: error falls like {measured}; theory says {theory}." for name, theory, measured in slopes),
            "Over these few dimensions the power of an analytic coupling is no rate: it grows with them.",
        ],
        {"slopes": slopes, "rows": {name: rows for name, (rows, _) in curves.items()}},
        _figure(curves),
    )


def errors_of(coupling: Any, length: int, dimensions: list[int]) -> list[list[Any]]:
    """For each dimension: what is cut in root mean square, the bound, and the worst error of softmax attention."""
    t = (np.arange(length) + 0.5) / length
    K = coupling(t[:, None], t[None])
    left, s, right = np.linalg.svd(K)
    wanted = _softmax(K)
    rows: list[list[Any]] = []
    for m in dimensions:
        queries, keys = left[:, :m] * np.sqrt(s[:m]), right[:m].T * np.sqrt(s[:m])
        cut = queries @ keys.T
        bound = float(np.expm1(2 * np.abs(cut - K).max()))
        rows.append(
            [
                m,
                float(np.sqrt(np.sum(s[m:] ** 2)) / length),
                bound,
                float(np.abs(_softmax(cut) - wanted).sum(axis=1).max()),
            ]
        )
    return rows


def _softmax(scores: Floats) -> Floats:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _figure(curves: dict[str, tuple[list[list[Any]], int | None]]) -> Any:
    figure, axes = new_figure(width=6.2)
    for k, (name, (rows, power)) in enumerate(curves.items()):
        m = np.array([row[0] for row in rows])
        axes.loglog(m, [max(row[3], 1e-16) for row in rows], "o-", color=f"C{k}", label=name)
        if power is not None:
            axes.loglog(m, rows[3][3] * (m / m[3]) ** (0.5 - power), "--", color=f"C{k}", label=f"m^-{power - 0.5:g}")
    axes.set(xlabel="head dimension", ylabel="worst error of attention")
    axes.legend()
    return figure
