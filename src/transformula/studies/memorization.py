"""Gumaan VI-A: any finite map can be stored; proven by construction, attempted by training."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from transformula.api import memorize
from transformula.learn import OneLayerTransformerRegressor
from transformula.learn.training import AS_IN_PAPERS
from transformula.studies.study_report import Report, Run, Table, name_ticks, new_figure


def study(run: Run) -> Report:
    """Random points with random labels in [−1, 1]: worst error over the points, built and trained."""
    sizes = run.pick([16, 64], [16, 32, 64, 128, 256])
    epochs = run.pick(300, 1500)
    rows: list[list[Any]] = []
    for size in sizes:
        rng = np.random.default_rng(run.seed)
        X, y = rng.uniform(-1, 1, size=(size, 3)), rng.uniform(-1, 1, size=size)
        start = time.perf_counter()
        built = memorize(X, y, eps=1e-6)
        seconds = time.perf_counter() - start
        worst = float(np.abs(built(X) - y).max())
        rows.append([size, "memorised", built.memory_tokens, worst, built.certificate.bound, seconds])
        for tokens in (size // 4, size):
            start = time.perf_counter()
            model = OneLayerTransformerRegressor(
                heads=1,
                memory_tokens=tokens,
                epochs=epochs,
                batch_size=size,
                learning_rate=0.01,
                random_state=run.seed,
                **AS_IN_PAPERS,
            ).fit(X, y)
            seconds = time.perf_counter() - start
            worst = float(np.abs(model.predict(X) - y).max())
            rows.append([size, "trained", tokens, worst, None, seconds])
    last = [r for r in rows if r[0] == sizes[-1]]
    findings = [
        f"The construction stores {sizes[-1]} random labels with a proven error of {last[0][4]:.1e} at every "
        f"one, in {last[0][5]:.2f} s.",
        f"Trained for {epochs} epochs, a layer with as many memory tokens is off by {last[2][3]:.2g} at its "
        f"worst point, and one with a quarter of them by {last[1][3]:.2g} (labels lie in [−1, 1]).",
        "With few samples training succeeds too. With many, capacity is not the obstacle, since one token a "
        "sample suffices: optimisation is.",
    ]
    return Report(
        run,
        "memorization: finite maps in one layer",
        "Gumaan VI-A: a large enough one-layer Transformer can memorise any finite map; training is expected "
        "to do so when the model is overparameterised.",
        f"Points uniform in [−1, 1]³, labels uniform in [−1, 1], seed {run.seed}. Trained: one head, width "
        f"16, 32 hidden units, Adam, full batches, {epochs} epochs, one-cycle rate up to 0.01.",
        [
            Table(
                "Worst error over the samples",
                ["samples", "how", "memory tokens", "worst error", "proven bound", "seconds"],
                rows,
            )
        ],
        findings,
        {"rows": rows},
        _figure(rows, sizes),
    )


def _figure(rows: list[list[Any]], sizes: list[int]) -> Any:
    figure, axes = new_figure()
    axes.loglog(sizes, [r[4] for r in rows if r[1] == "memorised"], "o-", label="memorised (proven)")
    trained = [r for r in rows if r[1] == "trained"]
    for share, label in ((4, "trained, tokens = samples/4"), (1, "trained, tokens = samples")):
        axes.loglog(sizes, [r[3] for r in trained if r[2] == r[0] // share], "s-", label=label)
    axes.set(xlabel="samples", ylabel="worst error at a sample")
    name_ticks(axes, sizes)
    axes.legend()
    return figure
