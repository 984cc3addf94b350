"""Sparse and low rank: numbers are taken out of compiled models, and the rest is proven again.

Every row of the tables is a model with a certificate of its own, proven from its weights against the whole formula.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from flint import fmpq
from scipy.special import softmax

from transformula.api import compile
from transformula.compiler.attempts import Built, Options
from transformula.compiler.certify import package
from transformula.compiler.constructions import LOOKUP, POLYNOMIAL
from transformula.compiler.layout import TableTokens
from transformula.compiler.lookup import fit_part
from transformula.compiler.partition import Wanted, one_layer_built, one_layer_spec
from transformula.compiler.polynomial import ridge_weights, weights_from_terms
from transformula.compiler.prepare import Prepared
from transformula.compiler.ridge_directions import RidgeSum
from transformula.formula.evaluation import evaluate_accurately
from transformula.formula.languages import decimal_text
from transformula.kernel.enclosures.balls import to_fmpq, to_fraction
from transformula.kernel.folder.weights import named_matrices
from transformula.kernel.syntax.boxes import Formula
from transformula.learn.distinct_rows import Floats
from transformula.model import Model
from transformula.studies.study_report import Curve, Panel, Report, StudyRun, StudyTable, draw

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
