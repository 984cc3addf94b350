"""docs/scaling.md: what compiling and proving cost, and what many formulas would take.

``python benchmarks/scaling.py`` measures small families of formulas, simulates a batch of a million on the measured
times, and writes the tables between their marks. Times are of one core's processor, so that others on the machine matter
little; the time the client needs for a folder is a wall time, since it waits for the disk.
"""

from __future__ import annotations

import heapq
import json
import pickle
import random
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import transformula as tf
import uncached  # noqa: F401
from transformula.cluster.batch_jobs import Job, Request, work
from transformula.cluster.batch_run import Journal
from transformula.model_folder import write_folder
from transformula.runtime.matrices import nonzeros

PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
COLUMNS = (
    "what",
    "construction",
    "tokens",
    "layers",
    "parameters",
    "flops",
    "pieces",
    "kB",
    "compile s",
    "verify s",
    "verify ms a piece",
)
TOLERANCES = (1e-2, 1e-4, 1e-6, 1e-8)


def pieces(model: tf.Model) -> int:
    """Intervals, boxes and parts that the proof bounds one by one, from the stored evidence."""
    return _leaves(json.loads(model.packed.evidence))


def _leaves(item: Any) -> int:
    """Edges make one piece fewer than they are; the -1 of trees are leaves."""
    if isinstance(item, dict):
        return sum(_leaves(value) for key, value in item.items() if key != "uses")
    if not isinstance(item, list) or not item:
        return 0
    if all(isinstance(value, float) for value in item):
        return len(item) - 1
    if all(isinstance(value, int) for value in item):
        return item.count(-1)
    return sum(map(_leaves, item))


def row(what: str, formula: str, on: str, eps: float | None, construction: str = "auto") -> list[str]:
    """One line of a table."""
    start = time.process_time()
    model = tf.compile(formula, on=on, eps=eps, construction=construction)
    middle = time.process_time()
    assert tf.verify(model).verified
    end = time.process_time()
    size = sum(len(data) for data in model.contents.values()) / 1000
    counts = (model.tokens, model.layers, model.parameter_count, flops(model), pieces(model))
    numbers = [f"{count:,}" for count in counts]
    each = f"{1000 * (end - middle) / counts[-1]:.2g}" if counts[-1] else ""
    return [what, model.construction, *numbers, f"{size:.0f}", f"{middle - start:.2f}", f"{end - middle:.2f}", each]


def flops(model: tf.Model) -> int:
    """For one input: two for each non-zero weight, five for each token that a head scores, weighs and adds up."""
    heads = sum(len(block.attention.heads) for block in model.weights.blocks)
    return 2 * nonzeros(model.weights) + 5 * heads * model.tokens


def families() -> dict[str, list[list[str]]]:
    """Tolerance, dimension and formula size, one at a time."""
    wave, product = ("sin(x)", "x=0..2*pi"), ("sin(x*y)", "x=0..2, y=0..2")
    by_eps = [row(f"sin(x), eps {eps:g}", *wave, eps, "lookup") for eps in TOLERANCES]
    by_eps += [row(f"sin(x*y), eps {eps:g}", *product, eps, "lookup") for eps in TOLERANCES[:3]]
    by_eps += [row(f"sin(x*y), eps {eps:g}", *product, eps, "partition") for eps in (0.2, 0.1, 0.05)]
    by_eps += [row(f"sin(x*y), eps {eps:g}", *product, eps, "circuit") for eps in TOLERANCES[:3]]
    by_dimension = []
    for d in (1, 2, 3, 4):
        text, box = f"cos({'*'.join(f'x{k}' for k in range(1, d + 1))})", f"x1..x{d}=0..1" if d > 1 else "x1=0..1"
        by_dimension.append(row(f"a table of {d} variable{'s' * (d > 1)}", text, box, 1e-4, "lookup"))
    for d in (2, 4, 8, 16):
        text = f"exp(-({' + '.join(f'x{k}**2' for k in range(1, d + 1))})/2)"
        by_dimension.append(row(f"a circuit of {d} inputs", text, f"x1..x{d}=0..1", 1e-4, "circuit"))
    by_size = []
    for n in (4, 8, 16, 32):
        text = " + ".join(f"sin({k + 1}*x{k % 4 + 1}/7)*x{(k + 1) % 4 + 1}" for k in range(n))
        by_size.append(row(f"{n} products of a sine", text, "x1..x4=0..1", 1e-4, "circuit"))
    for n in (10, 100, 1000):
        text = " + ".join(f"{k + 1}/7*x1**{k % 6}*x2**{k // 6 % 6}*x3**{k // 36}" for k in range(n) if k // 36 < 12)
        by_size.append(row(f"{min(n, 432)} monomials", text, "x1..x3=-1..1", None, "polynomial"))
    return {"Tolerance": by_eps, "Dimension": by_dimension, "Formula size": by_size}


def client_seconds(count: int = 40) -> tuple[float, float]:
    """What the client does for each formula, alone and in order: unpickle, write the folder, write the line."""
    done = work(Job(Request("wave", "sin(x)*y", "x=0..1, y=0..1", 1e-3), "compile"))
    data = pickle.dumps(done)
    with tempfile.TemporaryDirectory() as where:
        start, used = time.perf_counter(), time.process_time()
        with Journal(Path(where), forget=True) as journal:
            for k in range(count):
                back = pickle.loads(data)
                write_folder(Path(where) / f"wave{k}", back.folder)
                journal.add({"name": f"wave{k}", "facts": back.facts, "seconds": back.seconds, "error": ""})
        return (time.perf_counter() - start) / count, (time.process_time() - used) / count


def simulated(formulas: int, workers: int, times: list[float], client: float) -> float:
    """Hours of a batch: one client settles results one after the other, and then gives the worker its next formula."""
    rng = random.Random(0)
    ready = [rng.choice(times) for _ in range(workers)]  # when each has its first result
    heapq.heapify(ready)
    settled, given = 0.0, workers
    while ready:
        settled = max(settled, heapq.heappop(ready)) + client
        if given < formulas:
            given += 1
            heapq.heappush(ready, settled + rng.choice(times))
    return settled / 3600


def million(tables: dict[str, list[list[str]]]) -> list[str]:
    """The table of the simulation."""
    times = [float(line[-3]) for rows in tables.values() for line in rows]
    wall, used = client_seconds()
    mean = sum(times) / len(times)
    lines = [
        f"Compile times of the {len(times)} models above: {mean:.2f} s on average. The client needs {1000 * wall:.1f} ms for "
        f"a folder, {1000 * used:.1f} ms of them its processor's.", "",
        "| workers | hours for 10^6 formulas | busy workers | limit |", "| ---: | ---: | ---: | --- |",
    ]  # fmt: skip
    for workers in (2, 64, 256, 1024):
        hours = simulated(1_000_000, workers, times, wall)
        busy = 1_000_000 * mean / 3600 / hours / workers
        lines.append(
            f"| {workers:,} | {hours:,.1f} | {100 * busy:.0f} % | {'compiling' if busy > 0.9 else 'the client'} |"
        )
    return lines


def main() -> None:
    """Measure, print, and write the page."""
    tables = families()
    lines = []
    for title, rows in tables.items():
        lines += [
            f"### {title}",
            "",
            "| " + " | ".join(COLUMNS) + " |",
            "|" + " --- |" * 2 + " ---: |" * (len(COLUMNS) - 2),
        ]
        lines += ["| " + " | ".join(cells) + " |" for cells in rows] + [""]
    lines += ["### A million formulas (simulated)", "", *million(tables)]
    text = "\n".join(lines)
    print(text)
    marks = re.compile(r"(<!-- costs: [^>]*-->\n).*?(<!-- end of costs -->)", re.DOTALL)
    PAGE.write_text(marks.sub(lambda found: found[1] + text + "\n" + found[2], PAGE.read_text()))


if __name__ == "__main__":
    main()
