"""Gumaan VI-B: a deep Transformer distilled into one wide layer, error against width."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from transformula.learn.training import Batchable, Schedule, squared_error, train
from transformula.runtime.matrices import nonzeros
from transformula.studies.study_report import Curve, Panel, Report, StudyRun, StudyTable, draw, timed, trained_layer

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
    """The teacher's target: products and a kink, so that depth helps."""
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
        _figure(rows, teacher_error),
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


def _figure(rows: list[list[Any]], teacher: float) -> Any:
    widths = [r[0] for r in rows]
    curves = [
        Curve("student to teacher", widths, [r[2] for r in rows]),
        Curve("student to function", widths, [r[4] for r in rows], "s-"),
    ]
    levels = {"teacher to function": teacher}
    return draw(Panel("width of the one layer", "mean squared error", curves, levels=levels, ticks=widths))
