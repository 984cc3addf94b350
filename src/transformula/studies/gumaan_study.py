"""Gumaan VI: one layer for sin x1 + sin x2, for sorting and for a deep Transformer's answers, built and trained."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from transformula.api import compile, memorize
from transformula.learn.training import Batchable, Schedule, squared_error, train
from transformula.model import Model
from transformula.runtime.matrices import nonzeros
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
        _sorting_figure(trained),
    )


def _constructed(run: StudyRun) -> list[Any]:
    formulas = ["min(x1, x2)", "max(x1, x2)"]
    model, seconds = timed(compile, formulas, "x1..x2=0..1", eps=1e-9, shape=(2, 1), layers=1)
    X = np.random.default_rng(run.seed).uniform(size=(1000, 2))
    miss = np.abs(model(X).reshape(len(X), 2) - np.sort(X, axis=1))
    return ["constructed", 2, model.memory_tokens, *_sorting_errors(miss, model.certificate.bound), seconds]


def _memorised(n: int, digits: int) -> list[Any]:
    X = np.array(list(product(range(digits), repeat=n)), dtype=float)
    model, seconds = timed(memorize, X, np.sort(X, axis=1), eps=1e-6)
    miss = np.abs(model(X) - np.sort(X, axis=1))
    return ["memorised", n, model.memory_tokens, *_sorting_errors(miss, model.certificate.bound), seconds]


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
    return ["trained", n, 0, *_sorting_errors(miss, None), seconds]


def _sorting_errors(miss: Any, bound: float | None) -> list[Any]:
    right = float(np.mean(miss.max(axis=1) < 0.05))
    return [float(miss.mean()), float(miss.max()), bound, right]


def _sorting_figure(rows: list[list[Any]]) -> Any:
    lengths = [r[1] for r in rows]
    curves = [
        Curve("mean error", lengths, [r[3] for r in rows]),
        Curve("worst error", lengths, [r[4] for r in rows], "s-"),
    ]
    label = "error of the trained layer"
    return draw(Panel("length of the sequence", label, curves, scale="semilogy", ticks=lengths))


INPUTS = 4


class Teacher(nn.Module):
    """A small encoder of the usual kind: one token per input, layer norm, four heads, ReLU, mean, readout."""

    def __init__(self, layers: int, width: int, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Linear(1, width, dtype=torch.float64)
        self.position = nn.Parameter(torch.randn(INPUTS, width, dtype=torch.float64))
        block = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True, dtype=torch.float64
        )
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.readout = nn.Linear(width, 1, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        """Samples × inputs to samples × 1."""
        out: Tensor = self.readout(self.blocks(self.embed(x[:, :, None]) + self.position).mean(dim=1))
        return out


def target(x: Any) -> Any:
    """The teacher's target: products and an absolute value, so that depth helps."""
    return np.sin(2 * x[:, 0] * x[:, 1]) + np.abs(x[:, 2] - x[:, 3]) + 0.5 * x[:, 0] * x[:, 2] * x[:, 3]


def distillation(run: StudyRun) -> Report:
    """Train a teacher of several layers, then students of one layer on its outputs."""
    layers, width = 4, 32
    rng = np.random.default_rng(run.seed)
    X = rng.uniform(-1, 1, size=(run.pick(1500, 4000), INPUTS))
    X_new, X_test = rng.uniform(-1, 1, size=(2 * len(X), INPUTS)), rng.uniform(-1, 1, size=(2000, INPUTS))
    (teacher, losses), teaching = timed(_teach, X, layers, width, run)
    wisdom = {name: _predict(teacher, rows) for name, rows in (("new", X_new), ("test", X_test))}
    teacher_error = float(np.mean((wisdom["test"] - target(X_test)) ** 2))
    sizes = run.pick((4, 16), (2, 4, 8, 16, 32, 64))
    rows = [_student_row(size, (X_new, wisdom["new"]), (X_test, wisdom["test"]), run) for size in sizes]
    parameters = sum(p.numel() for p in teacher.parameters())
    findings = [
        f"The teacher ({layers} layers, width {width}, {parameters} parameters) has a test error of "
        f"{teacher_error:.2g} against the function it learned.",
        f"One layer copies it with a mean squared error of {rows[0][2]:.2g} at width {rows[0][0]} and "
        f"{rows[-1][2]:.2g} at width {rows[-1][0]} ({100 * rows[-1][3]:.1f} % of its variance).",
        f"Against the function itself the widest student has {rows[-1][4]:.2g}, the teacher {teacher_error:.2g}.",
    ]
    return Report(
        run,
        "distillation: a deep Transformer into one wide layer",
        "Gumaan VI-B: 'it might be possible to distill a deep Transformer into a single-layer Transformer "
        "with a very large internal dimension'.",
        f"Teacher: torch encoder, {layers} layers, width {width}, 4 heads, trained on {len(X)} rows of a "
        f"function of {INPUTS} variables. Students: one data token, 2 heads, memory tokens = width, "
        f"4 · width hidden units, trained on the teacher's answers at {len(X_new)} new rows; 2000 test rows, "
        f"seed {run.seed}.",
        [
            StudyTable(
                "Students of one layer",
                ["width", "parameters", "MSE to teacher", "R² to teacher", "MSE to function", "seconds"],
                rows,
            )
        ],
        findings,
        {"students": rows, "teacher_mse": teacher_error, "teacher_loss": losses[-1], "teacher_s": teaching},
        _distillation_figure(rows, teacher_error),
    )


def _student_row(size: int, train: tuple[Any, Any], test: tuple[Any, Any], run: StudyRun) -> list[Any]:
    """Width, parameters, errors and seconds of a student of the teacher's answers (X, y)."""
    student, seconds = timed(
        trained_layer,
        *train,
        run.seed,
        heads=2,
        width=size,
        key_width=max(2, size // 2),
        memory_tokens=size,
        hidden=4 * size,
        epochs=run.pick(15, 40),
        learning_rate=0.01,
    )
    X, wisdom = test
    answers = student.predict(X)
    copy = float(np.mean((answers - wisdom) ** 2))
    true = float(np.mean((answers - target(X)) ** 2))
    parameters = nonzeros(student.weights_) + student.weights_.memory.nonzeros
    return [size, parameters, copy, 1 - copy / float(np.var(wisdom)), true, seconds]


def _teach(X: Any, layers: int, width: int, run: StudyRun) -> tuple[Teacher, list[float]]:
    teacher = Teacher(layers, width, run.seed)
    ones = torch.ones(len(X), dtype=torch.float64)
    data = Batchable(torch.from_numpy(X), torch.from_numpy(target(X))[:, None], ones)
    schedule = Schedule(epochs=run.pick(6, 25), batch_size=128, start=3e-4, peak=3e-3, seed=run.seed)
    return teacher, train(teacher, data, squared_error, schedule).training


def _predict(teacher: Teacher, X: Any) -> Any:
    with torch.no_grad():
        return teacher(torch.from_numpy(X)).numpy()[:, 0]


def _distillation_figure(rows: list[list[Any]], teacher: float) -> Any:
    widths = [r[0] for r in rows]
    curves = [
        Curve("student to teacher", widths, [r[2] for r in rows]),
        Curve("student to function", widths, [r[4] for r in rows], "s-"),
    ]
    levels = {"teacher to function": teacher}
    return draw(Panel("width of the one layer", "mean squared error", curves, levels=levels, ticks=widths))
