"""Memorisation with few parameters: how they grow with the samples, beside one token a sample and the theory's rate."""

from __future__ import annotations

from typing import Any

import numpy as np

from transformula.api import memorize
from transformula.compiler.gallery.compact_memory import MOST_BITS, stored_words
from transformula.errors import TransformulaError
from transformula.studies.study_report import Report, Run, Table, new_figure

_INPUTS = 4


def study(run: Run) -> Report:
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
    slope = float(np.polyfit(np.log([r[0] for r in inside]), np.log([r[1] for r in inside]), 1)[0])
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
            Table(
                "Parameters against samples, float64",
                ["samples", "compact", "layers", "bits of a word", "all answers exact", "one token a sample"],
                rows,
            ),
            Table("The most samples that were proven", ["dtype", "samples tried", "proven up to", "then"], formats),
        ],
        findings,
        {"rows": rows, "formats": formats},
        _figure(rows),
    )


def _largest(dtype: str, run: Run) -> tuple[str, int, str]:
    """How many samples a format carries, by doubling, and what is said of one more doubling."""
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


def _figure(rows: list[list[Any]]) -> Any:
    figure, axes = new_figure()
    samples = [row[0] for row in rows]
    axes.loglog(samples, [row[5] for row in rows], "s-", label="one token a sample")
    axes.loglog(samples, [row[1] for row in rows], "o-", label="compact")
    rate = np.sqrt(np.array(samples) * np.log(samples))
    axes.loglog(samples, rate * rows[0][1] / rate[0], "--", color="0.6", label="√(N log N), through the first point")
    axes.set(xlabel="samples", ylabel="parameters")
    axes.legend()
    return figure
