"""Gumaan VI-A: sorting a sequence with one layer: constructed, memorised, and trained."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from transformula.api import compile, memorize
from transformula.studies.study_report import Curve, Panel, Report, StudyRun, StudyTable, draw, timed, trained_layer


def sorting(run: StudyRun) -> Report:
    """Sort n numbers: two by an exact ReLU layer, lists of digits by lookup, real numbers by training."""
    rows: list[list[Any]] = [_constructed(run)]
    for n, digits in run.pick([(2, 4), (3, 3)], [(2, 8), (3, 6), (4, 5)]):
        rows.append(_memorised(n, digits))
    lengths = run.pick((2, 3), (2, 3, 4, 5))
    for n in lengths:
        rows.append(_trained(n, run))
    trained = [r for r in rows if r[0] == "trained"]
    findings = [
        f"Two numbers are sorted by ReLU alone, min and max, with a proven error of {rows[0][5]:.1e} on the "
        "whole square.",
        "Every list of digits is sorted with a proven bound by storing it: "
        + ", ".join(f"{r[2]} tokens for lists of {r[1]}" for r in rows if r[0] == "memorised")
        + "; the number of tokens grows exponentially with the length.",
        "Trained on 4000 random sequences, one layer orders "
        + ", ".join(f"{100 * r[6]:.0f} % for n = {r[1]}" for r in trained)
        + f" of unseen sequences to within 0.05 in every place; its mean error grows from "
        f"{trained[0][3]:.2g} to {trained[-1][3]:.2g}.",
    ]
    columns = ["how", "length n", "memory tokens", "mean error", "worst error", "proven bound", "right within 0.05"]
    return Report(
        run,
        "sorting: one layer orders a sequence",
        "Gumaan VI-A: in theory one layer can sort, 'although in practice more layers or training tricks "
        "might be needed'.",
        f"Trained: one token per number, sinusoidal positions, 4 heads, width 32, 128 hidden units, Adam, 4000 "
        f"sequences uniform in [0, 1]^n, 1000 test sequences, seed {run.seed}.",
        [StudyTable("Sorting", [*columns, "seconds"], rows)],
        findings,
        {"rows": rows},
        _figure(trained),
    )


def _constructed(run: StudyRun) -> list[Any]:
    formulas = ["min(x1, x2)", "max(x1, x2)"]
    model, seconds = timed(compile, formulas, "x1..x2=0..1", eps=1e-9, shape=(2, 1), layers=1)
    X = np.random.default_rng(run.seed).uniform(size=(1000, 2))
    miss = np.abs(model(X).reshape(len(X), 2) - np.sort(X, axis=1))
    return ["constructed", 2, model.memory_tokens, *_errors(miss, model.certificate.bound), seconds]


def _memorised(n: int, digits: int) -> list[Any]:
    X = np.array(list(product(range(digits), repeat=n)), dtype=float)
    model, seconds = timed(memorize, X, np.sort(X, axis=1), eps=1e-6)
    miss = np.abs(model(X) - np.sort(X, axis=1))
    return ["memorised", n, model.memory_tokens, *_errors(miss, model.certificate.bound), seconds]


def _trained(n: int, run: StudyRun) -> list[Any]:
    rng = np.random.default_rng(run.seed)
    X, X_test = rng.uniform(size=(4000, n)), rng.uniform(size=(1000, n))
    model, seconds = timed(
        trained_layer,
        X,
        np.sort(X, axis=1),
        run.seed,
        heads=4,
        width=32,
        memory_tokens=0,
        hidden=128,
        tokens="each",
        positions="sinusoidal",
        epochs=run.pick(10, 60),
        learning_rate=0.01,
    )
    miss = np.abs(model.predict(X_test) - np.sort(X_test, axis=1))
    return ["trained", n, 0, *_errors(miss, None), seconds]


def _errors(miss: Any, bound: float | None) -> list[Any]:
    right = float(np.mean(miss.max(axis=1) < 0.05))
    return [float(miss.mean()), float(miss.max()), bound, right]


def _figure(rows: list[list[Any]]) -> Any:
    lengths = [r[1] for r in rows]
    curves = [
        Curve("mean error", lengths, [r[3] for r in rows]),
        Curve("worst error", lengths, [r[4] for r in rows], "s-"),
    ]
    label = "error of the trained layer"
    return draw(Panel("length of the sequence", label, curves, scale="semilogy", ticks=lengths))
