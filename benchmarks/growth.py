"""How costs grow with points, tolerance, tokens and variables: the last table of docs/alternatives.md."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np

import transformula as tf
from runtimes import milliseconds
from samples import GRAVITY, GRAVITY_BOX, points_of


def exponent(sizes: list[float], costs: list[float]) -> float:
    """The slope of a line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def growth() -> list[dict[str, object]]:
    """How costs grow, each along one size with the rest held."""
    rows: list[dict[str, object]] = []

    def row(what: str, sizes: list[float], cost: str, costs: list[float]) -> None:
        rows.append({"grows": what, "sizes": sizes, "cost": cost, "costs": costs, "exponent": exponent(sizes, costs)})

    model = tf.compile(GRAVITY, on=GRAVITY_BOX, eps=1e-3)
    counts = [10.0**k for k in (3, 4, 5, 6)]
    row(
        "points",
        counts,
        "ms, gravity",
        [milliseconds(lambda n=n: model(points_of(model, int(n), 3)), 0.05, 2) for n in counts],
    )
    eps = [10.0**-k for k in range(2, 11, 2)]
    sines = [tf.compile("sin(x)", on="x=0..2*pi", eps=e, construction="lookup") for e in eps]
    row("1/eps", [1 / e for e in eps], "memory tokens, lookup of sin x", [m.memory_tokens for m in sines])
    eps = [0.1, 0.03, 0.01, 0.003]
    cells = [tf.compile("sin(x)*y", on="x=0..2, y=0..1", eps=e, construction="partition") for e in eps]
    row("1/eps", [1 / e for e in eps], "memory tokens, partition of sin(x) y", [m.memory_tokens for m in cells])
    tokens = [float(m.memory_tokens) for m in cells]
    X = points_of(cells[0], 100_000, 4)
    row("tokens", tokens, "ms, partition, 100,000 points", [milliseconds(lambda m=m: m(X), 0.05, 2) for m in cells])
    variables = [2.0, 4.0, 8.0, 16.0]
    seconds, sizes = [], []
    for d in variables:
        names = [f"x{k}" for k in range(1, int(d) + 1)]
        start = time.process_time()
        built = tf.compile(
            "exp(" + " + ".join(f"{a}*{b}" for a, b in pairwise(names)) + ")",
            on=f"x1..x{int(d)}=0..1/4",
            eps=1e-4,
        )
        seconds.append(time.process_time() - start)
        sizes.append(float(built.memory_tokens))
    row("variables", variables, "memory tokens, circuit of exp(sum of products)", sizes)
    row("variables", variables, "s to compile it", seconds)
    return rows


def growth_table(rows: list[dict[str, object]]) -> str:
    """The same as Markdown."""
    lines = [
        "## Growth",
        "",
        "| what grows | from .. to | cost | first .. last | exponent |",
        "| --- | --- | --- | --- | ---: |",
    ]
    for row in rows:
        sizes, costs = (f"{row[k][0]:.3g} .. {row[k][-1]:.3g}" for k in ("sizes", "costs"))  # type: ignore[index]
        lines.append(f"| {row['grows']} | {sizes} | {row['cost']} | {costs} | {row['exponent']:.2f} |")
    return "\n".join(lines) + "\n"
