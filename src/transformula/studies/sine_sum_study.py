"""Gumaan VI: sin x1 + sin x2 on [0, 2π]² by one layer, trained against heads and width, and constructed."""

from __future__ import annotations

from typing import Any

import numpy as np

from transformula.api import compile
from transformula.model import Model
from transformula.studies.study_report import Curve, Panel, Report, StudyRun, StudyTable, draw, timed, trained_layer

FORMULA = "sin(x1) + sin(x2)"
BOX = "x1..x2=0..2*pi"
_AXIS = np.linspace(0, 2 * np.pi, 101)
_GRID = np.stack([m.ravel() for m in np.meshgrid(_AXIS, _AXIS)], axis=1)


def _truth(x: Any) -> Any:
    return np.sin(x).sum(axis=1)


def _errors(values: Any) -> tuple[float, float]:
    """Root mean square and largest error on the grid."""
    miss = np.abs(values - _truth(_GRID))
    return float(np.sqrt(np.mean(miss**2))), float(miss.max())


def _rows(run: StudyRun, count: int) -> Any:
    return np.random.default_rng(run.seed).uniform(0, 2 * np.pi, size=(count, 2))


def _heads(count: int) -> str:
    return f"{count} head{'s' if count > 1 else ''}"


def sine_sum(run: StudyRun) -> Report:
    """Train a grid of sizes on the same rows; compile the same function for comparison."""
    heads = run.pick((1, 2), (1, 2, 4))
    widths = run.pick((4, 16), (4, 8, 16, 32))
    epochs = run.pick(30, 150)
    X = _rows(run, run.pick(1000, 2000))
    rows: list[list[Any]] = []
    for h in heads:
        for w in widths:
            sizes = {"heads": h, "width": w, "key_width": 8, "memory_tokens": 16, "hidden": 2 * w}
            training = {"epochs": epochs, "learning_rate": 0.01}
            model, seconds = timed(trained_layer, X, _truth(X), run.seed, **sizes, **training)
            rows.append([f"trained, {_heads(h)}, width {w}", h, w, *_errors(model.predict(_GRID)), seconds])
    built, seconds = timed(compile, FORMULA, BOX, eps=1e-6)
    name = f"compiled, {built.heads} heads, {built.memory_tokens} memory tokens"
    compiled: list[Any] = [name, built.heads, built.weights.width, *_errors(built(_GRID)), seconds]
    trained = sorted(rows, key=lambda r: r[3])
    rows.append(compiled)
    findings = [
        f"The smallest layer ({heads[0]} head, width {widths[0]}) has an rms error of {rows[0][3]:.2g}, the "
        f"best ({trained[0][0]}) {trained[0][3]:.2g}, its worst point on the grid {trained[0][4]:.2g}.",
        f"The compiled layer is within {built.certificate.bound:.1e} everywhere, proven, after "
        f"{compiled[5]:.2f} s instead of {sum(r[5] for r in trained):.0f} s of training for the whole grid.",
    ]
    curves = [
        Curve(f"trained, {_heads(h)}", widths, [r[3] for w in widths for r in trained if r[1:3] == [h, w]])
        for h in heads
    ]
    return Report(
        run,
        "sine-sum: sin x1 + sin x2 by one layer",
        "Gumaan VI-A expects the error to decrease as heads or model dimension grow, and gives no numbers.",
        f"{len(X)} rows uniform in [0, 2π]², no noise, 16 memory tokens, hidden units twice the width, Adam, "
        f"{epochs} epochs, one-cycle rate up to 0.01; errors on a 101 × 101 grid, seed {run.seed}.",
        [StudyTable("Error", ["layer", "heads", "width", "rms error", "worst on the grid", "seconds"], rows)],
        findings,
        {"rows": rows, "proven": built.certificate.bound},
        draw(Panel("width", "rms error", curves, levels={"compiled": compiled[3]}, ticks=widths)),
    )


def existence_vs_training(run: StudyRun) -> Report:
    """Compile to several tolerances; train the same sizes from random numbers, and from the compiled ones."""
    tolerances = run.pick((1e-2, 1e-4), (1e-2, 1e-4, 1e-6, 1e-8))
    seeds = range(run.seed, run.seed + run.pick(1, 3))
    epochs = run.pick(60, 200)
    rows = [_at_one_size(eps, run, seeds, epochs) for eps in tolerances]
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
    tokens = [r[2] for r in rows]
    curves = [
        Curve("constructed", tokens, [r[4] for r in rows]),
        Curve("trained, best seed", tokens, [r[6] for r in rows], "s-"),
        Curve("trained, median", tokens, [r[7] for r in rows], "^--"),
        Curve("trained from compiled weights", tokens, [r[8] for r in rows], "d:"),
    ]
    return Report(
        run,
        "existence-vs-training: the gap the theorem leaves open",
        "Gumaan VI-C: the theorem 'does not guarantee that gradient-based training will find these parameters'.",
        f"{FORMULA} on [0, 2π]². The trained layers have the heads, memory tokens, width and query width of "
        "the compiled ones (which need no feed-forward units here; the trained ones have one); 2000 rows "
        f"without noise, standardised, Adam, {epochs} epochs, one-cycle rate up to 0.02, {len(seeds)} seeds "
        f"from {run.seed}. Worst error on a 101 × 101 grid.",
        [StudyTable("Worst error at equal size", columns, rows)],
        findings,
        {"rows": rows, "gaps": gaps},
        draw(Panel("memory tokens (both heads)", "worst error on the grid", curves, scale="semilogy")),
    )


def _at_one_size(eps: float, run: StudyRun, seeds: range, epochs: int) -> list[Any]:
    """The errors of a compiled model, of layers of its size trained from random numbers, and of its own weights."""
    X = _rows(run, 2000)
    model, built = timed(compile, FORMULA, BOX, eps=eps)
    trained, times = [], []
    for seed in seeds:
        layer, seconds = timed(_same_size, model, X, seed, epochs)
        trained.append(_errors(layer.predict(_GRID))[1])
        times.append(seconds)
    tuned = trained_layer(X, _truth(X), run.seed, warm_start_from=model, epochs=20, learning_rate=1e-6)
    return [
        eps,
        model.heads,
        model.memory_tokens,
        model.weights.width,
        _errors(model(_GRID))[1],
        model.certificate.bound,
        min(trained),
        float(np.median(trained)),
        _errors(tuned.predict(_GRID))[1],
        built,
        float(np.mean(times)),
    ]


def _same_size(model: Model, X: Any, seed: int, epochs: int) -> Any:
    """A layer of the compiled model's size, trained from random numbers."""
    return trained_layer(
        X,
        _truth(X),
        seed,
        heads=model.heads,
        width=model.weights.width,
        key_width=model.weights.blocks[0].attention.heads[0].query.shape[0],
        memory_tokens=model.memory_tokens,
        hidden=1,
        epochs=epochs,
        learning_rate=0.02,
    )
