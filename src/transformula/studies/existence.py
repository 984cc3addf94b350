"""Gumaan VI-C: the theorem gives existence only. One architecture, constructed against trained."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from transformula.api import compile
from transformula.learn import OneLayerTransformerRegressor
from transformula.learn.training import AS_IN_PAPERS
from transformula.studies.study_report import Report, Run, Table, new_figure

FORMULA, BOX = "sin(x1) + sin(x2)", "x1..x2=0..2*pi"


def study(run: Run) -> Report:
    """Compile to several tolerances; train the same sizes from random numbers, and from the compiled ones."""
    tolerances = run.pick((1e-2, 1e-4), (1e-2, 1e-4, 1e-6, 1e-8))
    seeds = range(run.seed, run.seed + run.pick(1, 3))
    epochs = run.pick(60, 200)
    rng = np.random.default_rng(run.seed)
    X = rng.uniform(0, 2 * np.pi, size=(2000, 2))
    axis = np.linspace(0, 2 * np.pi, 101)
    grid = np.stack([m.ravel() for m in np.meshgrid(axis, axis)], axis=1)
    rows: list[list[Any]] = []
    for eps in tolerances:
        start = time.perf_counter()
        model = compile(FORMULA, BOX, eps=eps)
        built = time.perf_counter() - start
        trained, seconds = [], 0.0
        for seed in seeds:
            start = time.perf_counter()
            fitted = OneLayerTransformerRegressor(
                heads=model.heads,
                width=model.weights.width,
                key_width=model.weights.blocks[0].attention.heads[0].query.shape[0],
                memory_tokens=model.memory_tokens,
                hidden=1,
                epochs=epochs,
                learning_rate=0.02,
                random_state=seed,
                **AS_IN_PAPERS,
            ).fit(X, _truth(X))
            seconds += time.perf_counter() - start
            trained.append(_worst(fitted.predict(grid), grid))
        tuned = OneLayerTransformerRegressor(
            warm_start_from=model,
            epochs=20,
            learning_rate=1e-6,
            random_state=run.seed,
            **AS_IN_PAPERS,
        ).fit(X, _truth(X))
        rows.append(
            [
                eps,
                model.heads,
                model.memory_tokens,
                model.weights.width,
                _worst(model(grid), grid),
                model.certificate.bound,
                min(trained),
                float(np.median(trained)),
                _worst(tuned.predict(grid), grid),
                built,
                seconds / len(seeds),
            ]
        )
    gaps = [r[6] / r[4] for r in rows]
    findings = [
        f"At the size that constructs {rows[-1][4]:.1e}, training from random numbers stops at "
        f"{rows[-1][6]:.2g} in the best of {len(seeds)} runs: a factor {gaps[-1]:.1e}.",
        "The gap grows with the size, "
        + ", ".join(f"{g:.1e}" for g in gaps)
        + ": the constructed error falls spectrally, the trained one hardly at all.",
        f"Trained from the compiled weights (20 epochs, learning rate 1e-6) the error moves from "
        f"{rows[-1][4]:.1e} to {rows[-1][8]:.1e}: Adam's steps of fixed size disturb what algebra found.",
    ]
    columns = ["eps", "heads", "memory tokens", "width", "constructed, on a grid", "constructed, proven"]
    columns += ["trained, best", "trained, median", "trained from compiled", "s to construct", "s to train"]
    return Report(
        run,
        "existence-vs-training: the gap the theorem leaves open",
        "Gumaan VI-C: the theorem 'does not guarantee that gradient-based training will find these parameters'.",
        f"{FORMULA} on [0, 2π]². The trained layers have the heads, memory tokens, width and query width of "
        "the compiled ones (which need no feed-forward units here; the trained ones have one); 2000 rows "
        f"without noise, standardised, Adam, {epochs} epochs, one-cycle rate up to 0.02, {len(seeds)} seeds "
        f"from {run.seed}. Worst error on a 101 × 101 grid.",
        [Table("Worst error at equal size", columns, rows)],
        findings,
        {"rows": rows, "gaps": gaps},
        _figure(rows),
    )


def _truth(x: Any) -> Any:
    return np.sin(x).sum(axis=1)


def _worst(values: Any, x: Any) -> float:
    return float(np.abs(values - _truth(x)).max())


def _figure(rows: list[list[Any]]) -> Any:
    figure, axes = new_figure()
    tokens = [r[2] for r in rows]
    axes.semilogy(tokens, [r[4] for r in rows], "o-", label="constructed")
    axes.semilogy(tokens, [r[6] for r in rows], "s-", label="trained, best seed")
    axes.semilogy(tokens, [r[7] for r in rows], "^--", label="trained, median")
    axes.semilogy(tokens, [r[8] for r in rows], "d:", label="trained from compiled weights")
    axes.set(xlabel="memory tokens (both heads)", ylabel="worst error on the grid")
    axes.legend()
    return figure
