"""Gumaan VI-A: sin x1 + sin x2 on [0, 2π]² by one trained layer, against heads and width."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from transformula.api import compile
from transformula.learn import OneLayerTransformerRegressor
from transformula.learn.training import AS_IN_PAPERS
from transformula.studies.study_report import Report, Run, Table, name_ticks, new_figure


def study(run: Run) -> Report:
    """Train a grid of sizes on the same rows; compile the same function for comparison."""
    heads = run.pick((1, 2), (1, 2, 4))
    widths = run.pick((4, 16), (4, 8, 16, 32))
    epochs = run.pick(30, 150)
    rng = np.random.default_rng(run.seed)
    X = rng.uniform(0, 2 * np.pi, size=(run.pick(1000, 2000), 2))
    y = np.sin(X).sum(axis=1)
    axis = np.linspace(0, 2 * np.pi, 101)
    grid = np.stack([m.ravel() for m in np.meshgrid(axis, axis)], axis=1)
    truth = np.sin(grid).sum(axis=1)
    rows: list[list[Any]] = []
    for h in heads:
        for w in widths:
            start = time.perf_counter()
            model = OneLayerTransformerRegressor(
                heads=h,
                width=w,
                key_width=8,
                memory_tokens=16,
                hidden=2 * w,
                epochs=epochs,
                learning_rate=0.01,
                random_state=run.seed,
                **AS_IN_PAPERS,
            ).fit(X, y)
            seconds = time.perf_counter() - start
            miss = np.abs(model.predict(grid) - truth)
            rms = float(np.sqrt(np.mean(miss**2)))
            rows.append([f"trained, {h} head{'s' if h > 1 else ''}, width {w}", h, w, rms, float(miss.max()), seconds])
    start = time.perf_counter()
    built = compile("sin(x1) + sin(x2)", on="x1..x2=0..2*pi", eps=1e-6)
    seconds = time.perf_counter() - start
    miss = np.abs(built(grid) - truth)
    name = f"compiled, {built.heads} heads, {built.memory_tokens} memory tokens"
    rms = float(np.sqrt(np.mean(miss**2)))
    compiled = [name, built.heads, built.weights.width, rms, float(miss.max()), seconds]
    trained = sorted(rows, key=lambda r: r[3])
    rows.append(compiled)
    findings = [
        f"The smallest layer ({heads[0]} head, width {widths[0]}) has an rms error of {rows[0][3]:.2g}, the "
        f"best ({trained[0][0]}) {trained[0][3]:.2g}, its worst point on the grid {trained[0][4]:.2g}.",
        f"The compiled layer is within {built.certificate.bound:.1e} everywhere, proven, after "
        f"{compiled[5]:.2f} s instead of {sum(r[5] for r in trained):.0f} s of training for the whole grid.",
    ]
    return Report(
        run,
        "sine-sum: sin x1 + sin x2 by one layer",
        "Gumaan VI-A expects the error to decrease as heads or model dimension grow, and gives no numbers.",
        f"{len(X)} rows uniform in [0, 2π]², no noise, 16 memory tokens, hidden units twice the width, Adam, "
        f"{epochs} epochs, one-cycle rate up to 0.01; errors on a 101 × 101 grid, seed {run.seed}.",
        [Table("Error", ["layer", "heads", "width", "rms error", "worst on the grid", "seconds"], rows)],
        findings,
        {"rows": rows, "proven": built.certificate.bound},
        _figure(trained, heads, compiled),
    )


def _figure(rows: list[list[Any]], heads: tuple[int, ...], compiled: list[Any]) -> Any:
    figure, axes = new_figure()
    for h in heads:
        points = sorted((r[2], r[3]) for r in rows if r[1] == h)
        axes.loglog(*zip(*points, strict=True), "o-", label=f"trained, {h} head{'s' if h > 1 else ''}")
    axes.axhline(compiled[3], color="k", linestyle="--", label="compiled")
    axes.set(xlabel="width", ylabel="rms error")
    name_ticks(axes, sorted({r[2] for r in rows}))
    axes.legend()
    return figure
