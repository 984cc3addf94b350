"""Finite maps in one layer: proven by construction, attempted by training, and stored in few parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from transformula.api import memorize
from transformula.compiler.gallery.memories import MOST_BITS, stored_words
from transformula.errors import TransformulaError
from transformula.studies.study_report import (
    Curve,
    Panel,
    Report,
    StudyRun,
    StudyTable,
    draw,
    log_slope,
    timed,
    trained_layer,
)

#: Inputs of the samples that are stored in few parameters.
_INPUTS = 4


def memorization(run: StudyRun) -> Report:
    """Random points with random labels in [−1, 1]: worst error over the points, built and trained."""
    sizes = run.pick([16, 64], [16, 32, 64, 128, 256])
    epochs = run.pick(300, 1500)
    rows: list[list[Any]] = []
    for size in sizes:
        rng = np.random.default_rng(run.seed)
        X, y = rng.uniform(-1, 1, size=(size, 3)), rng.uniform(-1, 1, size=size)
        built, seconds = timed(memorize, X, y, eps=1e-6)
        worst = float(np.abs(built(X) - y).max())
        rows.append([size, "memorised", built.memory_tokens, worst, built.certificate.bound, seconds])
        for tokens in (size // 4, size):
            options = {"heads": 1, "memory_tokens": tokens, "epochs": epochs, "batch_size": size, "learning_rate": 0.01}
            model, seconds = timed(trained_layer, X, y, run.seed, **options)
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
            StudyTable(
                "Worst error over the samples",
                ["samples", "how", "memory tokens", "worst error", "proven bound", "seconds"],
                rows,
            )
        ],
        findings,
        {"rows": rows},
        _memorization_figure(rows, sizes),
    )


def _memorization_figure(rows: list[list[Any]], sizes: list[int]) -> Any:
    trained = [r for r in rows if r[1] == "trained"]
    curves = [Curve("memorised (proven)", sizes, [r[4] for r in rows if r[1] == "memorised"])]
    for share, label in ((4, "trained, tokens = samples/4"), (1, "trained, tokens = samples")):
        curves.append(Curve(label, sizes, [r[3] for r in trained if r[2] == r[0] // share], "s-"))
    return draw(Panel("samples", "worst error at a sample", curves, ticks=sizes))


def compact_memory(run: StudyRun) -> Report:
    """Random points with random labels 0 and 1: parameters of the compact and of the plain memory."""
    sizes = run.pick([30, 100, 300], [30, 100, 300, 1000, 3000, 10_000])
    rows: list[list[Any]] = []
    for size in sizes:
        rng = np.random.default_rng(run.seed)
        X, y = rng.uniform(-1, 1, size=(size, _INPUTS)), rng.integers(0, 2, size=size)
        small, plain = memorize(X, y, compact=True), memorize(X, y)
        bits, exact = stored_words(small.weights).bits, bool(np.all(small(X) == y))
        rows.append([size, small.parameter_count, small.layers, bits, exact, plain.parameter_count])
    formats = [[name, *_largest(name, run)] for name in ("float64", "float32")]
    parameters = {row[0]: row[1] for row in rows}
    inside = [row for row in rows if row[3] < MOST_BITS["float64"]] or rows
    slope = log_slope([r[0] for r in inside], [r[1] for r in inside])
    findings = [
        f"{n} labels take {parameters[n]} parameters, and come out exactly." for n in (1000,) if n in parameters
    ]
    findings += [
        f"As long as words may grow ({MOST_BITS['float64']} bits in float64), parameters grow like N^{slope:.2f}; one "
        "token a sample is N^1. Kajitsuka and Sato have √(N log N), with words of about √N log N bits: more than a "
        "float holds from a few dozen samples on. Here a word holds labels only, and the samples' places are told "
        "apart by their bucket.",
        "From there on words are full, and parameters grow with N, at a smaller constant.",
    ]
    return Report(
        run,
        "compact-memory: labels as bits of words",
        "Kajitsuka and Sato (2307.14023, 2409.17677): about √N parameters are enough for a Transformer to memorise N "
        "samples. How many does a model take whose every weight is a float, and whose every answer is proven?",
        f"Points uniform in [−1, 1]^{_INPUTS}, labels 0 and 1 at random, seed {run.seed}. Parameters are all non-zero "
        "numbers.",
        [
            StudyTable(
                "Parameters against samples, float64",
                ["samples", "compact", "layers", "bits of a word", "all answers exact", "one token a sample"],
                rows,
            ),
            StudyTable(
                "The most samples that were proven", ["dtype", "samples tried", "proven up to", "then"], formats
            ),
        ],
        findings,
        {"rows": rows, "formats": formats},
        _compact_figure(rows),
    )


def _largest(dtype: str, run: StudyRun) -> tuple[str, int, str]:
    """Most samples that a format carries, by doubling, and the refusal of one more doubling."""
    most, said = 0, ""
    counts = [2**k for k in range(3, run.pick(7, 13))]
    for size in counts:
        rng = np.random.default_rng(run.seed)
        X, y = rng.uniform(-1, 1, size=(size, _INPUTS)).astype(dtype), rng.integers(0, 2, size=size)
        try:
            memorize(X, y, compact=True, dtype=dtype)
        except TransformulaError as error:
            said = str(error)
            break
        most = size
    return f"{counts[0]} to {counts[-1]}, doubling", most, said


def _compact_figure(rows: list[list[Any]]) -> Any:
    samples = [row[0] for row in rows]
    rate = np.sqrt(np.array(samples) * np.log(samples))
    curves = [
        Curve("one token a sample", samples, [row[5] for row in rows], "s-"),
        Curve("compact", samples, [row[1] for row in rows]),
        Curve("√(N log N), through the first point", samples, rate * rows[0][1] / rate[0], "--", "0.6"),
    ]
    return draw(Panel("samples", "parameters", curves))
