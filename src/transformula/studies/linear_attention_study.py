"""Linear attention learned by least squares, beside gradient training of the same architecture on the same rows."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from transformula.budget import one_thread
from transformula.learn import LinearAttentionRegressor
from transformula.learn.distinct_rows import Floats
from transformula.learn.linear_attention_fit import Heads, features, solve
from transformula.studies.study_report import Curve, Panel, Report, StudyRun, StudyTable, draw

#: Tokens of a sequence.
_POSITIONS = 8
#: Numbers of a token.
_WIDTH = 4


def linear_attention(run: StudyRun) -> Report:
    """Planted heads, with and without noise; then processor time against the width of a token."""
    steps = run.pick(100, 3000)
    rows: list[list[Any]] = []
    curves = []
    with one_thread():
        for noise in (0.0, 0.1):
            for heads in run.pick([1, 2], [1, 2, 3]):
                found, losses = _compared(heads, noise, steps, run)
                rows += found
                if noise == 0:
                    label = f"Adam, {heads} head{'s' if heads > 1 else ''}"
                    curves.append(Curve(label, range(len(losses)), losses, "-"))
        growth = [_timed(width, run) for width in run.pick([2, 4], [2, 3, 4, 6, 8, 10])]
    tail = growth[-2:]  # the small ones take no time
    slope = float(np.diff(np.log([r[3] for r in tail]))[0] / np.diff(np.log([r[1] for r in tail]))[0])
    exact = [r for r in rows if r[0] == "least squares" and r[1] == 0]
    gradient = [r for r in rows if r[0] == "Adam" and r[1] == 0]
    return Report(
        run,
        "linear-attention: heads from least squares",
        "Yau et al. (2410.10101): linear attention can be learned in polynomial time, because its map is linear in "
        "features of degree 3. What does that give on planted heads, beside training them by gradients?",
        f"Sequences of {_POSITIONS} tokens with {_WIDTH} normal numbers, H planted heads with one output at the last "
        f"token, {_rows(run):,} rows, noise relative to the output's deviation, seed {run.seed}. Adam: {steps:,} steps "
        "on all rows, rate 0.01 falling to 0. Errors are root mean squares at new rows without noise, relative to the "
        "output's deviation. Proven is how far the heads, as a Transformer, may be from the polynomial that least "
        "squares found, anywhere in the range of the rows, with rounding and relative to the same. Processor seconds "
        "of the fits, one thread.",
        [
            StudyTable(
                "Planted heads",
                ["by", "noise", "heads planted", "heads found", "relative error", "proven of the heads", "seconds"],
                rows,
            ),
            StudyTable(
                "Time of least squares against the width of a token",
                ["width", "features", "rows", "seconds"],
                growth,
            ),
        ],
        [
            f"Without noise least squares finds the planted map to {max(r[4] for r in exact):.1g}, with "
            f"{', '.join(f'{r[3]} of {r[2]}' for r in exact)} heads that were planted; Adam ends between "
            f"{min(r[4] for r in gradient):.1g} and {max(r[4] for r in gradient):.1g}, though it is told the number of "
            "heads.",
            f"The heads are proven to be that map to {max(r[5] for r in exact):.1g} on the whole range of the rows, in "
            "one layer of linear attention.",
            "With noise the fitted map is generic, and takes as many heads as a token has numbers. Told the number of "
            "heads, it is cut to them after the fit; Adam fits no more numbers than these from the start.",
            f"Between the two largest sizes time grows like (features)^{slope:.1f}, with rows in proportion to "
            "features; the arithmetic of least squares grows with the third power.",
        ],
        {"rows": rows, "growth": growth, "slope": slope},
        _figure(curves, exact, growth),
    )


def _compared(heads: int, noise: float, steps: int, run: StudyRun) -> tuple[list[list[Any]], list[float]]:
    """Planted heads by least squares and by Adam: rows of the table, and Adam's losses."""
    train, test = _planted(heads, noise, run)
    rows: list[list[Any]] = []
    for told in (None, heads) if noise else (None,):
        found, seconds = _fitted(*train, told)
        name = "least squares" if told is None else "least squares, told the heads"
        off = _error(found.predict(test[0]), test)
        rows.append([name, noise, heads, found.n_heads_, off, _proven(found, test), seconds])
    trained, losses, seconds = _trained(heads, *train, steps, run.seed)
    rows.append(["Adam", noise, heads, heads, _error(trained(test[0], each=False), test), "none", seconds])
    return rows, losses


def _rows(run: StudyRun) -> int:
    return int(run.pick(500, 2000))


def _planted(heads: int, noise: float, run: StudyRun) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    rng = np.random.default_rng([run.seed, heads])
    truth = Heads(rng.normal(size=(heads, 1, _WIDTH)), rng.normal(size=(heads, _WIDTH, _WIDTH)), False)
    Z, new = rng.normal(size=(_rows(run), _POSITIONS, _WIDTH)), rng.normal(size=(1000, _POSITIONS, _WIDTH))
    clean, wanted = truth(Z, each=False), truth(new, each=False)
    return (Z, clean + noise * clean.std() * rng.normal(size=clean.shape)), (new, wanted)


def _error(found: Floats, test: tuple[Floats, Floats]) -> float:
    return float(np.sqrt(np.mean((found - test[1]) ** 2)) / test[1].std())


def _proven(found: LinearAttentionRegressor, test: tuple[Floats, Floats]) -> float:
    return float(found.to_transformer().certificate.bound / test[1].std())


def _fitted(Z: Floats, y: Floats, heads: int | None) -> tuple[LinearAttentionRegressor, float]:
    start = time.process_time()
    model = LinearAttentionRegressor(Z.shape[1], constant=False, heads=heads).fit(Z, y)
    return model, time.process_time() - start


def _trained(heads: int, Z: Floats, y: Floats, steps: int, seed: int) -> tuple[Heads, list[float], float]:
    """The same architecture by Adam, on targets of deviation 1; losses are relative root mean squares."""
    start = time.process_time()
    generator = torch.Generator().manual_seed(seed)
    z, scale = torch.from_numpy(Z), float(y.std())
    target = torch.from_numpy(y / scale)
    moments = z.mT @ z / z.shape[1]
    V = (torch.randn(heads, 1, z.shape[2], generator=generator, dtype=torch.float64) / 2).requires_grad_()
    Q = (torch.randn(heads, z.shape[2], z.shape[2], generator=generator, dtype=torch.float64) / 2).requires_grad_()
    optimizer = torch.optim.Adam([V, Q], lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        read = torch.einsum("rbc,hce,re->rhb", moments, Q, z[:, -1])
        loss = torch.mean((torch.einsum("hab,rhb->ra", V, read) - target) ** 2)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()) ** 0.5)
    values = V.detach().numpy() * scale / z.shape[1]
    return Heads(values, Q.detach().numpy(), False), losses, time.process_time() - start


def _timed(width: int, run: StudyRun) -> list[Any]:
    """Least squares alone, with ten rows a feature; the search for fewer heads promises no time, and is left out."""
    rng = np.random.default_rng(run.seed)
    count = width * width * (width + 1) // 2
    Z = rng.normal(size=(10 * count, _POSITIONS, width))
    heads = Heads(rng.normal(size=(2, 1, width)), rng.normal(size=(2, width, width)), False)
    y = heads(Z, each=False)
    start = time.process_time()
    solve(features(Z, False, False), y, np.ones(len(Z)), width, None, False)
    return [width, count, len(Z), time.process_time() - start]


def _figure(curves: list[Curve], exact: list[list[Any]], growth: list[list[Any]]) -> Any:
    levels = {"least squares, new rows": max(r[4] for r in exact)}
    times = [Curve("least squares", [r[1] for r in growth], [r[3] for r in growth])]
    return draw(
        Panel("steps", "relative error", curves, "without noise", "semilogy", levels),
        Panel("features", "processor seconds", times, "ten rows a feature"),
    )
