"""Shapes at the edge of what can be proven: each is proven, or refused soon with the best bound and the reason.

``python benchmarks/shapes.py [NAME ...]`` prints a line for each (those that are named) and, if all were run, writes
docs/shapes.md. Every shape has a process of its own; times are of the processor. One above 20 seconds is an error, and so
is a refusal above 10 for up to six variables.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import transformula as tf
import uncached  # noqa: F401
from transformula.errors import NotProvenError
from transformula.kernel.syntax.boxes import Box
from transformula.show.page_parts import counted

PAGE = Path(__file__).parent.parent / "docs" / "shapes.md"
MOST_SECONDS, REFUSED = 20.0, 10.0
F32: dict[str, Any] = {"dtype": "float32", "rel": 1e-3}


def _arm(part: str) -> str:
    return " + ".join(f"L{k}*{part}({' + '.join(f't{i}' for i in range(1, k + 1))})" for k in range(1, 5))


#: Name, formula, box, options (1e-6 in float64 where nothing is said).
SHAPES: list[tuple[str, Any, str, dict[str, Any]]] = [
    ("acosh from 1", "acosh(x)", "x=1..3", {}),
    ("half circle", "sqrt(1 - x**2)*y", "x=-1..1, y=-1..1", {}),
    ("root of x(1 - x)", "sqrt(x*(1 - x))*y", "x=0..1, y=-1..1", {}),
    ("I.26.2", "asin(n*sin(theta2))", "n=0..1, theta2=1..5", {}),
    ("I.26.2, float32", "asin(n*sin(theta2))", "n=0..1, theta2=1..5", F32),
    ("I.30.5", "asin(lambd/(n*d))", "lambd=1..2, d=2..5, n=1..5", {}),
    ("I.30.5, float32", "asin(lambd/(n*d))", "lambd=1..2, d=2..5, n=1..5", F32),
    ("Weierstrass", " + ".join(f"cos(7**{k}*pi*x)/2**{k}" for k in range(6)), "x=-1..1", {}),
    ("smooth sawtooth", "atan(sin(2*pi*x)/(1.01 + cos(2*pi*x)))", "x=0..4", {}),
    ("cube root of abs(x)", "abs(x)**(1/3)", "x=-1..1", {}),
    ("cube root through 0", "cbrt(x)", "x=-1..1", {}),
    ("robot arm", f"sqrt(({_arm('cos')})**2 + ({_arm('sin')})**2)", "t1..t4=0..2*pi, L1..L4=0..1", {}),
    ("Friedman 2", "sqrt(x1**2 + (x2*x3 - 1/(x2*x4))**2)",
     "x1=0..100, x2=40*pi..560*pi, x3=0..1, x4=1..11", {"rel": 1e-6}),
    ("product of 16", "*".join(f"x{k}" for k in range(1, 17)), "x1..x16=0..1", {"eps": 1e-6}),
    ("sin(300xy)", "sin(300*x*y)", "x=0..1, y=0..1", {}),
    ("exp·sin, float32", "exp(-x*y)*sin(3*x + y)", "x=0..1, y=0..1", {"dtype": "float32", "eps": 3e-6}),
]  # fmt: skip
HEADER = """# Shapes at the edge of what can be proven

The tolerance is 1e-6 in float64 unless the row says otherwise. Written by `python benchmarks/shapes.py`; seconds are
processor time of one core.

| shape | answer | memory tokens | bound | seconds | model, or why not |
| --- | --- | ---: | ---: | ---: | --- |
"""


def outcome(formula: Any, box: str, options: dict[str, Any]) -> list[str]:
    """Proven or refused, tokens, bound, seconds, and what is said."""
    start = time.process_time()
    try:
        model = tf.compile(formula, box, **options)
    except NotProvenError as error:
        bound = "-" if error.best_bound is None else f"{error.best_bound:.2e}"
        return ["refused", "-", bound, f"{time.process_time() - start:.1f}", str(error).replace("|", "¦")]
    seconds = time.process_time() - start
    if not tf.verify(model).verified:
        raise SystemExit(f"{formula} does not verify")
    bound = f"{model.certificate.bound:.2e}"
    return [
        "proven",
        str(model.memory_tokens),
        bound,
        f"{seconds:.1f}",
        f"{model.construction}, {counted(model.layers, 'layer')}",
    ]


def _in_a_process(case: tuple[Any, str, dict[str, Any]]) -> list[str]:
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, "\0".join(outcome(*case)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    os.wait()
    return said.split("\0") if said else ["CRASHED", "-", "-", "inf", ""]


def main(names: list[str]) -> None:
    """Run, print, and write the page if every shape was run."""
    rows = []
    for name, *case in SHAPES:
        if not names or name in names:
            rows.append([name, *_in_a_process((case[0], case[1], case[2]))])
            print(" | ".join(rows[-1]), flush=True)
    if not names:
        PAGE.write_text(HEADER + "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n")
    small = {name: Box.of(box).dimension <= 6 for name, _, box, _ in SHAPES}
    slow = [r[0] for r in rows if not float(r[4]) <= (REFUSED if r[1] == "refused" and small[r[0]] else MOST_SECONDS)]
    if slow:
        raise SystemExit(f"too slow: {', '.join(slow)}")


if __name__ == "__main__":
    main(sys.argv[1:])
