"""Proven error against memory tokens for both strengths of the one-layer theorem.

Writes docs/one_layer.md with its figure and numbers. Run with ``make figures``.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import transformula as tf
from transformula.errors import NotProvenError

DOCS = Path(__file__).resolve().parent.parent / "docs"
HERE = DOCS / "figures"
INTRODUCTION = """# Error against tokens, for both versions of the theorem

![Proven error against memory tokens](figures/error_against_tokens.png)

Every point is a compiled one-layer Transformer with a certificate; the error is the proven bound on the
whole box, rounding included (float64). `partition` is Gumaan's theorem as written: sharp cells, sampled
values. `lookup` is the same architecture with solved values; its search is a heuristic, so the tokens do
not always fall with the tolerance. Made by `make figures`, which also writes the numbers to
[figures/error_against_tokens.json](figures/error_against_tokens.json).
"""
FRANKE = (
    "3/4*exp(-((9*x-2)**2 + (9*y-2)**2)/4) + 3/4*exp(-(9*x+1)**2/49 - (9*y+1)/10)"
    " + 1/2*exp(-((9*x-7)**2 + (9*y-3)**2)/4) - 1/5*exp(-(9*x-4)**2 - (9*y-7)**2)"
)
CASES = {
    "sin(x) on [0, 2π]": ("sin(x)", "x=0..2*pi", 12),
    "1/(1 + 25x²) on [−1, 1]": ("1/(1 + 25*x**2)", "x=-1..1", 12),
    "√x on [0, 1]": ("sqrt(x)", "x=0..1", 6),
    "Franke on [0, 1]²": (FRANKE, "x=0..1, y=0..1", 8),
}
PARTITION_DECADES = {1: 4, 2: 2}


def measure(formula: str, on: str, eps: float, construction: str) -> dict[str, float] | None:
    start = time.perf_counter()
    try:
        model = tf.compile(formula, on, eps, construction)
    except NotProvenError:
        return None
    return {
        "eps": eps,
        "tokens": model.memory_tokens,
        "proven": model.certificate.bound,
        "seconds": round(time.perf_counter() - start, 2),
    }


def curves() -> dict[str, dict[str, list[dict[str, float]]]]:
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for name, (formula, on, decades) in CASES.items():
        limits = {"lookup": decades, "partition": PARTITION_DECADES[on.count("=")]}
        found[name] = {
            construction: [
                point
                for k in range(1, limit + 1)
                if (point := measure(formula, on, 10.0**-k, construction)) is not None
            ]
            for construction, limit in limits.items()
        }
        print(name, json.dumps(found[name]), flush=True)
    return found


def draw(found: dict[str, dict[str, list[dict[str, float]]]]) -> None:
    figure, axes = plt.subplots(2, 2, figsize=(9, 7), sharex=True, sharey=True)
    marks = {"partition": ("s", "#c44e52"), "lookup": ("o", "#2a6fbb")}
    for axis, (name, by_construction) in zip(axes.flat, found.items(), strict=True):
        for construction, points in by_construction.items():
            mark, colour = marks[construction]
            tokens, errors = [p["tokens"] for p in points], [p["proven"] for p in points]
            axis.loglog(tokens, errors, mark + "-", color=colour, label=construction)
        axis.set(title=name, xlim=(1, 1e5))
        axis.grid(alpha=0.3)
    figure.supxlabel("memory tokens")
    figure.supylabel("proven error on the whole box")
    axes.flat[0].legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(HERE / "error_against_tokens.png", dpi=100)


def write_page(found: dict[str, dict[str, list[dict[str, float]]]]) -> None:
    lines = [INTRODUCTION]
    for name, by_construction in found.items():
        heads = " | ".join(f"{c} tokens | {c} proven" for c in by_construction)
        lines += [f"## {name}", "", f"| eps | {heads} |", "| --- |" + " ---: | ---: |" * len(by_construction)]
        for eps in sorted({p["eps"] for points in by_construction.values() for p in points}, reverse=True):
            cells = []
            for points in by_construction.values():
                point = next((p for p in points if p["eps"] == eps), None)
                cells += [str(point["tokens"]), f"{point['proven']:.2e}"] if point else ["", ""]
            lines.append(f"| {eps:.0e} | {' | '.join(cells)} |")
        lines.append("")
    (DOCS / "one_layer.md").write_text("\n".join(lines))


def main() -> None:
    HERE.mkdir(parents=True, exist_ok=True)
    found = curves()
    (HERE / "error_against_tokens.json").write_text(json.dumps(found, indent=1) + "\n")
    draw(found)
    write_page(found)


if __name__ == "__main__":
    main()
