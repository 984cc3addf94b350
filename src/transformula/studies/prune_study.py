r"""Sparse and low rank: numbers are taken out of compiled models, and the rest is proven again.

Every row of the tables is a model with a certificate of its own, proven from its weights against the whole formula.

*Coupling rank.* Error against head dimension, from singular values of the temporal coupling (Jiang and Li, 2305.18475).

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
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from flint import fmpq
from scipy.fft import dct
from scipy.special import softmax

from transformula.api import compile
from transformula.compiler.attempts import Built, Options
from transformula.compiler.certify import package
from transformula.compiler.constructions import LOOKUP, POLYNOMIAL
from transformula.compiler.gallery.prompt_models import in_context
from transformula.compiler.layout import TableTokens
from transformula.compiler.lookup import fit_part
from transformula.compiler.partition import Wanted, one_layer_built, one_layer_spec
from transformula.compiler.polynomial import ridge_weights, weights_from_terms
from transformula.compiler.prepare import Prepared
from transformula.compiler.ridge_directions import RidgeSum
from transformula.formula.evaluation import evaluate_accurately
from transformula.formula.languages import decimal_text
from transformula.formula.prompt_target import Prompts
from transformula.kernel.arithmetic import at_most
from transformula.kernel.enclosures.balls import to_fmpq, to_fraction
from transformula.kernel.folder.weights import named_matrices
from transformula.kernel.syntax.boxes import Formula
from transformula.learn.distinct_rows import Floats
from transformula.model import Model
from transformula.studies.study_report import Curve, Panel, Report, StudyRun, StudyTable, draw, log_slope

_LOOKUP = "sin(x)"
_ON = "x=0..2*pi"
_EPS = 1e-6
#: Bits of a direction's numbers after the point.
_DIRECTION_BITS = 20


def prune(run: StudyRun) -> Report:
    """A quadratic form by entries and by directions, a table by tokens, each proven again."""
    size = run.pick(4, 8)
    matrix = _matrix(size, run.seed)
    formula = _quadratic(matrix)
    whole = compile(formula.texts, formula.box, construction=POLYNOMIAL.name)
    sparse = [_row(kept, _sparse(matrix, formula, kept)) for kept in _counts(size, run)]
    low = [_row(kept, _low_rank(matrix, formula, kept)) for kept in range(1, size + 1)]
    first = compile(_LOOKUP, _ON, _EPS, LOOKUP.name)
    tables: dict[Wanted, TableTokens] = {}
    counts = range(first.memory_tokens, 1, run.pick(-3, -1))
    tokens = [_tokens_row(count, tables) for count in counts]
    rank = _fewest(low, 0.01 * _peak(matrix))
    entries = _fewest(sparse, 0.01 * _peak(matrix))
    return Report(
        run,
        "prune: fewer numbers, proven again",
        "Compiled models hold no redundancy by accident, but a formula may: how does the proven error grow when small "
        "coefficients, directions or tokens are taken out?",
        f"A quadratic form in {size} variables on [−1, 1]^{size} with eigenvalues 1, 1/4, 1/16, ... in random "
        f"directions, by Fang's construction; {_LOOKUP} on {_ON} as a softmax table. Non-zeros are all "
        f"stored numbers that are not 0. Seed {run.seed}.",
        [
            StudyTable(
                "Quadratic form, largest entries kept", ["entries", "tokens", "non-zeros", "proven bound"], sparse
            ),
            StudyTable(
                "Quadratic form, leading directions kept", ["directions", "tokens", "non-zeros", "proven bound"], low
            ),
            StudyTable(
                "Table, tokens taken out",
                ["tokens", "non-zeros", "proven bound, values as they were", "proven bound, values solved again"],
                tokens,
            ),
        ],
        [
            f"All of the quadratic form takes {_nonzeros(whole)} non-zeros as it is compiled. Within 1 % of its "
            f"largest value it takes {_said(rank, 'directions')}, or {_said(entries, 'entries')}.",
            f"The table was compiled to {_EPS:g} with {first.memory_tokens} tokens. Taking tokens out costs more than "
            "their share: softmax weights are normalised, so what is left moves everywhere. Solving for the values "
            "again repairs what can be repaired.",
        ],
        {"sparse": sparse, "low_rank": low, "tokens": tokens, "whole": _nonzeros(whole)},
        _figure(sparse, low, tokens),
    )


def _matrix(size: int, seed: int) -> Floats:
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]
    return np.asarray(np.round((rotation * 0.25 ** np.arange(size)) @ rotation.T, 6))


def _counts(size: int, run: StudyRun) -> list[int]:
    most = size * (size + 1) // 2
    return [*range(1, most, run.pick(3, 5)), most]


def _peak(matrix: Floats) -> float:
    """The largest value at the corners of the box, where a positive form has it."""
    corners = np.array(np.meshgrid(*[[-1, 1]] * len(matrix))).reshape(len(matrix), -1)
    return float(np.einsum("ik,ij,jk->k", corners, matrix, corners).max())


def _terms(matrix: Floats) -> dict[tuple[int, ...], fmpq]:
    size = len(matrix)
    terms = {}
    for i in range(size):
        for j in range(i, size):
            exponents = [0] * size
            exponents[i] += 1
            exponents[j] += 1
            value = Fraction(round(matrix[i, j] * 10**6), 10**6)
            terms[tuple(exponents)] = to_fmpq(value if i == j else 2 * value)
    return terms


def _quadratic(matrix: Floats) -> Formula:
    text = ""
    for exponents, value in _terms(matrix).items():
        factors = "*".join(f"x{k + 1}" for k, e in enumerate(exponents) for _ in range(e))
        exact = to_fraction(value)
        text += f" {'-' if exact < 0 else '+'} {decimal_text(abs(exact))}*{factors}"
    return Formula.of(text.lstrip(" +"), ", ".join(f"x{k + 1}=-1..1" for k in range(len(matrix))))


def _sparse(matrix: Floats, formula: Formula, kept: int) -> Model:
    """The largest coefficients; on [−1, 1] a coefficient is what its term can weigh."""
    terms = _terms(matrix)
    largest = sorted(terms, key=lambda e: -abs(terms[e]))[:kept]
    weights = next(weights_from_terms([{e: terms[e] for e in largest}], formula.box, "float64", False))
    return package(POLYNOMIAL, Built(weights), formula, Options())


def _low_rank(matrix: Floats, formula: Formula, kept: int) -> Model:
    """The leading eigenvectors, rounded to whole multiples of 2^-20: Σ λ (v·x)²."""
    values, vectors = np.linalg.eigh(matrix)
    total = RidgeSum(1)
    for k in np.argsort(-np.abs(values))[:kept]:
        direction = [fmpq(round(v * 2**_DIRECTION_BITS), 2**_DIRECTION_BITS) for v in vectors[:, k]]
        total.add(direction, 2, 0, to_fmpq(Fraction(float(values[k]))))
    return package(POLYNOMIAL, Built(ridge_weights(total, [fmpq(0)], formula.box, "float64")), formula, Options())


def _row(kept: int, model: Model) -> list[Any]:
    return [kept, model.weights.tokens, _nonzeros(model), model.certificate.bound]


def _nonzeros(model: Model) -> int:
    return sum(int(np.count_nonzero(matrix.values)) for _, matrix in named_matrices(model.weights))


def _tokens_row(count: int, tables: dict[Wanted, TableTokens]) -> list[Any]:
    models = [_fewer_tokens(count, solved, tables) for solved in (False, True)]
    return [count, _nonzeros(models[1]), *(model.certificate.bound for model in models)]


def _fewer_tokens(count: int, solved: bool, tables: dict[Wanted, TableTokens]) -> Model:
    """The compiled table with tokens taken out evenly, and its values as they were, or solved for again."""
    formula = Formula.of(_LOOKUP, _ON)
    ground = Prepared(formula)
    measured = 0.0

    def fit(parts: Sequence[Wanted]) -> list[TableTokens]:
        nonlocal measured
        part, ranges, eps = parts[0]
        if parts[0] not in tables:
            tables[parts[0]] = fit_part(part, ranges, eps)
        table = tables[parts[0]]
        keep = np.unique(np.linspace(0, len(table.values) - 1, count).round().astype(int))
        u = np.linspace(*ranges[0], 2001)
        wanted = evaluate_accurately(part.expr, ["u1"], [u]) - table.linear * u
        scores = np.outer(u, table.slopes[keep, 0]) + table.offsets[keep, 0]
        shares = softmax(scores, axis=1)
        values = np.linalg.lstsq(shares, wanted, rcond=1e-13)[0] if solved else table.values[keep, 0]
        measured = float(np.abs(shares @ values - wanted).max())
        return [TableTokens(table.slopes[keep], table.offsets[keep], values[:, None], table.linear)]

    spec = one_layer_spec(ground, _EPS, fit, "float64", None)
    built = one_layer_built(ground, spec, target=2 * measured)
    return package(LOOKUP, built, formula, Options(eps=1e30))


def _fewest(rows: list[list[Any]], most: float) -> list[Any] | None:
    return min((row for row in rows if row[3] <= most), key=lambda row: row[2], default=None)


def _said(row: list[Any] | None, what: str) -> str:
    return f"more than all {what}" if row is None else f"{row[2]} non-zeros with {row[0]} {what}"


def _figure(sparse: list[list[Any]], low: list[list[Any]], tokens: list[list[Any]]) -> Any:
    kept = [
        Curve(label, [row[2] for row in rows], [max(row[3], 1e-16) for row in rows], mark)
        for label, rows, mark in (("largest entries", sparse, "s-"), ("leading directions", low, "o-"))
    ]
    table = [
        Curve(label, [row[1] for row in tokens], [row[column] for row in tokens], mark)
        for label, column, mark in (("values as they were", 2, "s-"), ("values solved again", 3, "o-"))
    ]
    return draw(
        Panel("non-zeros", "proven bound", kept, "quadratic form", "semilogy"),
        Panel("non-zeros", "proven bound", table, "softmax table", "semilogy"),
    )


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
        _coupling_figure(measured),
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


def _coupling_figure(measured: dict[str, list[list[Any]]]) -> Any:
    drawn = []
    for k, (name, (_, power)) in enumerate(COUPLINGS.items()):
        rows = measured[name]
        m = np.array([row[0] for row in rows])
        drawn.append(Curve(name, m, [max(row[3], 1e-16) for row in rows], "o-", f"C{k}"))
        if power is not None:
            theory = rows[3][3] * (m / m[3]) ** (0.5 - power)
            drawn.append(Curve(f"m^-{power - 0.5:g}", m, theory, "--", f"C{k}"))
    return draw(Panel("head dimension", "worst error of attention", drawn), width=6.2)
