r"""Error against head dimension, from the singular values of the temporal coupling (Jiang and Li, 2305.18475).

Position t of a sequence takes the mean of values x_s with softmax weights exp(K(t, s)) / Σ_s exp(K(t, s)). The matrix K
is the *temporal coupling*. A head of dimension m has scores ⟨q_t, k_s⟩, a matrix of rank m: by Eckart and Young the
best one in mean square is K_m, cut after m singular values, and the rest has the mean square Σ_{k>m} σ_k². Where
σ_k falls like k^-p, its root falls like m^-(p − 1/2): the theory's rate. For every sequence

    |output − wanted| <= max|x| (exp(2e) − 1),        e = max |K − K_m|,

because scores that are off by at most e change every weight by a factor between exp(−2e) and exp(2e).

Such a head is what kernel regression in context is made of: with n pairs and m features, keys k_s in place of x_s, the
values in place of y_s, and q_t as the query. `in_context` writes its weights and proves its rounding for every prompt;
e is taken from the floats of q and k in rational arithmetic.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from flint import fmpq
from scipy.fft import dct
from scipy.special import softmax

from transformula.compiler.gallery.prompt_models import in_context
from transformula.formula.prompt_target import Prompts
from transformula.kernel.arithmetic import at_most
from transformula.kernel.enclosures.balls import to_fmpq, to_fraction
from transformula.learn.distinct_rows import Floats
from transformula.studies.study_report import Curve, Panel, Report, StudyRun, StudyTable, draw, log_slope

#: Name → coupling of times in [0, 1], and the power p of its singular values, None where they fall faster than any.
COUPLINGS: dict[str, tuple[Any, int | None]] = {
    "kink, −4|t − s|": (lambda t, s: -4 * abs(t - s), 2),
    "smooth twice, 8|t − s|³": (lambda t, s: 8 * abs(t - s) ** 3, 4),
    "analytic, 4/(1 + 25(t − s)²)": (lambda t, s: 4 / (1 + 25 * (t - s) ** 2), None),
}
#: Positions of the sequences that are run as Transformers: a prompt of n pairs with m features has n·m + n + m numbers.
_POSITIONS = 48


def coupling_rank(run: StudyRun) -> Report:
    """Cut the coupling at every head dimension, and measure softmax attention with it."""
    length = run.pick(128, 512)
    dimensions = run.pick([1, 2, 4, 8, 16], [1, 2, 3, 4, 6, 8, 12, 16, 24, 32])
    columns = ["head dimension", "root mean square cut", "bound", "measured, worst sequence"]
    measured = {name: errors_of(coupling, length, dimensions) for name, (coupling, _) in COUPLINGS.items()}
    slopes = []
    for name, (_, power) in COUPLINGS.items():
        tail = [row for row in measured[name] if row[0] >= 4 and row[3] > 1e-13]  # below is rounding
        theory = "faster than any power" if power is None else f"m^-{power - 0.5:g}"
        slopes.append([name, theory, _rate(measured[name][-2:], 1), _rate(tail, 3)])
    built = [
        [name, *transformer_row(coupling, m)]
        for name, (coupling, _) in COUPLINGS.items()
        for m in run.pick([2, 8], [1, 2, 4, 8, 16])
    ]
    return Report(
        run,
        "coupling-rank: error against the dimension of a head",
        "Jiang and Li (2305.18475): how well attention approximates a relation of sequences depends on how fast the "
        "singular values of its temporal coupling fall, because a head of dimension m has scores of rank m.",
        f"{length} positions at times in [0, 1], one softmax head whose queries and keys are the leading singular "
        "vectors of the coupling. The worst sequence of values in [−1, 1] is known: its error is the sum of "
        "|weight − wanted weight|. The bound is exp(2e) − 1, e the largest error of a score. As Transformers: "
        f"{_POSITIONS} positions, the weights of `in-context kernel` with a certificate; the bound is that of the "
        "coupling, in rational arithmetic, and of the certificate together.",
        [
            *(StudyTable(name, columns, rows) for name, rows in measured.items()),
            StudyTable(
                "Rates", ["coupling", "theory", "truncation, last dimensions", "attention, from dimension 4 on"], slopes
            ),
            StudyTable(
                f"As Transformers, {_POSITIONS} positions",
                ["coupling", "head dimension", "parameters", "certificate", "bound", "measured, worst sequence"],
                built,
            ),
        ],
        [
            *(
                f"{name}: the truncation error falls like {cut} at the largest dimensions ({theory} in theory), "
                f"attention's worst error like {worst}."
                for name, theory, cut, worst in slopes
            ),
            "As the dimension grows, the truncation error approaches the theory's power, where there is one; "
            "attention's own error falls at least as fast.",
            "For the analytic coupling a fitted power is not a rate: it grows with the dimensions.",
            f"Rounding of the Transformers is proven to be at most {at_most(max(row[3] for row in built), 1)}, for all "
            "values, queries and keys of the box: the rest of the error is truncation.",
        ],
        {"slopes": slopes, "built": built, "rows": measured},
        _figure(measured),
    )


def errors_of(coupling: Any, length: int, dimensions: list[int]) -> list[list[Any]]:
    """Root mean square of the part cut off, bound, and worst error of softmax attention, for each dimension."""
    t = (np.arange(length) + 0.5) / length
    K = coupling(t[:, None], t[None])
    left, s, right = np.linalg.svd(K)
    wanted = softmax(K, axis=1)
    rows: list[list[Any]] = []
    for m in dimensions:
        queries, keys = left[:, :m] * np.sqrt(s[:m]), right[:m].T * np.sqrt(s[:m])
        cut = queries @ keys.T
        bound = float(np.expm1(2 * np.abs(cut - K).max()))
        worst = float(np.abs(softmax(cut, axis=1) - wanted).sum(axis=1).max())
        rows.append([m, float(np.sqrt(np.sum(s[m:] ** 2)) / length), bound, worst])
    return rows


def _rate(rows: list[list[Any]], column: int) -> str:
    """The power of the dimension by which a column falls."""
    return f"m^{log_slope([row[0] for row in rows], [row[column] for row in rows]):.2f}"


def transformer_row(coupling: Any, m: int) -> list[Any]:
    """A head of dimension m as a certified model: its parameters, certificate, bound, and worst error as it is run."""
    n = _POSITIONS
    times = [Fraction(2 * i + 1, 2 * n) for i in range(n)]
    exact = [[coupling(t, s) for s in times] for t in times]
    wanted = np.array([[float(k) for k in row] for row in exact])
    left, s, right = np.linalg.svd(wanted)
    # a rotation changes no score, and spreads the first feature, which is the largest, over all of them
    turn = dct(np.eye(m), norm="ortho")
    queries, keys = (left[:, :m] * np.sqrt(s[:m])) @ turn, (right[:m].T * np.sqrt(s[:m])) @ turn
    reach = math.ceil(256 * max(np.abs(queries).max(), np.abs(keys).max())) / 256
    model = in_context("kernel", pairs=n, features=m, x=reach)
    assert isinstance(model.formula, Prompts)
    off = max(
        abs(to_fmpq(exact[i][j]) - sum((a * b for a, b in zip(q, k, strict=True)), fmpq(0)))
        for i, q in enumerate(_rationals(queries))
        for j, k in enumerate(_rationals(keys))
    )
    values = np.sign(softmax(queries @ keys.T, axis=1) - softmax(wanted, axis=1))
    answers = model(model.formula.rows(np.broadcast_to(keys, (n, n, m)), values, queries))
    worst = float(np.abs(answers - (softmax(wanted, axis=1) * values).sum(axis=1)).max())
    bound = math.expm1(2 * float(to_fraction(off))) + model.certificate.bound
    return [m, model.parameter_count, model.certificate.bound, bound, worst]


def _rationals(rows: Floats) -> list[list[fmpq]]:
    return [[fmpq(*v.as_integer_ratio()) for v in row] for row in rows.tolist()]


def _figure(measured: dict[str, list[list[Any]]]) -> Any:
    drawn = []
    for k, (name, (_, power)) in enumerate(COUPLINGS.items()):
        rows = measured[name]
        m = np.array([row[0] for row in rows])
        drawn.append(Curve(name, m, [max(row[3], 1e-16) for row in rows], "o-", f"C{k}"))
        if power is not None:
            theory = rows[3][3] * (m / m[3]) ** (0.5 - power)
            drawn.append(Curve(f"m^-{power - 0.5:g}", m, theory, "--", f"C{k}"))
    return draw(Panel("head dimension", "worst error of attention", drawn), width=6.2)
