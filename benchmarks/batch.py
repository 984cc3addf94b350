"""Sixty formulas, and a model of many heads, on one worker and on two.

``python benchmarks/batch.py [batch|heads]`` prints wall times, processor times and the load of the machine. On a machine
that others use too, wall times mean little: then the bound that processor times put on the speed-up, main process plus
half of what the workers did, says what two free cores would give.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import transformula as tf
import uncached  # noqa: F401

TARGETS = {"batch": 1.7, "heads": 1.4}
SHAPES = (
    ("sin({k}*x)", "x=0..2"), ("exp(-{k}*x)*y", "x=0..1, y=0..1"), ("sqrt(x + {k})*y - z", "x=0..2, y=0..1, z=0..1"),
    ("x**3 - {k}*x*y + y**2", "x=-2..2, y=-2..2"), ("log(1 + {k}*x) + y/({k} + x)", "x=0..2, y=0..1"),
)  # fmt: skip
FORMULAS = [
    {"name": f"f{n}_{k}_{eps:g}", "formula": text.format(k=k), "box": box, "eps": eps}
    for n, (text, box) in enumerate(SHAPES)
    for k in (1, 2, 3)
    for eps in (1e-2, 1e-3, 1e-4, 1e-5)
]
HEADS = {
    "formula": " + ".join(f"sin({7 + k}/7*x{k})" for k in range(1, 17)),
    "on": "x1..x16=0..3",
    "eps": 1e-6,
    "construction": "lookup",
}


def processor() -> tuple[float, float]:
    """Seconds of this process, and of the workers that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own, others = (use.ru_utime + use.ru_stime for use in both)
    return own, others


def measured(task: Callable[[], Any]) -> tuple[Any, float, float, float]:
    """What a task returns, its wall time, and the processor time here and in workers."""
    before, start = processor(), time.perf_counter()
    value = task()
    wall = time.perf_counter() - start
    after = processor()
    return value, wall, after[0] - before[0], after[1] - before[1]


def batch(jobs: int) -> dict[str, bytes]:
    """All folders' bytes."""
    with tempfile.TemporaryDirectory() as where:
        summary = tf.batch(FORMULAS, where, jobs=jobs)
        assert not summary.failed, summary.failed
        return {str(path.relative_to(where)): path.read_bytes() for path in sorted(Path(where).glob("*/*"))}


def heads(jobs: int) -> Any:
    """The bytes of a compiled model of many heads."""
    if jobs == 1:
        return tf.compile(**HEADS).contents
    with tf.workers(jobs=jobs):
        return tf.compile(**HEADS).contents


def main(names: list[str]) -> None:
    """Measure, and compare the results bit by bit."""
    for name in names or list(TARGETS):
        task = {"batch": batch, "heads": heads}[name]
        print(f"{name}: load of the machine {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores", flush=True)
        results, walls, bounds = [], [], []
        for jobs in (1, 2):
            value, wall, own, others = measured(lambda task=task, jobs=jobs: task(jobs))  # type: ignore[misc]
            results.append(value)
            walls.append(wall)
            bounds.append(own + others / jobs)
            print(
                f"  {jobs} worker(s): wall {wall:.1f} s, processor {own:.1f} s here + {others:.1f} s in workers",
                flush=True,
            )
        print(
            f"  wall {walls[0] / walls[1]:.2f}x, by processor time {bounds[0] / bounds[1]:.2f}x (wanted {TARGETS[name]}x)"
        )
        print(f"  same bytes: {results[0] == results[1]}")


if __name__ == "__main__":
    main(sys.argv[1:])
