"""One layer: how many tokens, how tight the proof, how long it takes.

``python benchmarks/one_layer.py`` prints the whole table. "Found" is the largest |T − f| found by random
points, a lattice and ascent, in floats; "proven" is the certificate's approximation.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from report import Line

FRANKE = (
    "0.75*exp(-((9*x-2)**2 + (9*y-2)**2)/4) + 0.75*exp(-(9*x+1)**2/49 - (9*y+1)/10)"
    " + 0.5*exp(-((9*x-7)**2 + (9*y-3)**2)/4) - 0.2*exp(-(9*x-4)**2 - (9*y-7)**2)"
)
SINES, SQUARE = "sin(x1) + sin(x2)", "x1..x2=0..2*pi"

#: name, formula, box, eps, options, most memory tokens, most seconds to compile
CASES: list[tuple[str, str, str, float, dict[str, Any], float, float]] = [
    (SINES, SINES, SQUARE, 1e-6, {}, 40, 5),
    (SINES, SINES, SQUARE, 1e-9, {}, 60, 30),
    ("exp(x)", "exp(x)", "x=-1..1", 1e-8, {}, 16, 30),
    ("1/(1 + 25 x^2)", "1/(1 + 25*x**2)", "x=-1..1", 1e-6, {}, 64, 30),
    ("tanh(50 x)", "tanh(50*x)", "x=-1..1", 1e-9, {}, 4, 30),
    ("sin(20 pi x)", "sin(20*pi*x)", "x=0..1", 1e-6, {}, 128, 30),
    ("sqrt(x)", "sqrt(x)", "x=0..1", 1e-4, {}, 24, 30),
    ("log(x)", "log(x)", "x=0.01..1", 1e-6, {}, 24, 30),
    ("|x|^(1/3)", "abs(x)**(1/3)", "x=-1..1", 1e-2, {}, 32, 30),
    ("|x - 1/3|", "abs(x - 1/3)", "x=-1..1", 1e-9, {}, 0, 30),
    ("Franke", FRANKE, "x=0..1, y=0..1", 1e-4, {}, 400, 30),
    ("Franke", FRANKE, "x=0..1, y=0..1", 1e-6, {}, 900, 60),
    ("exp(-x1 x2) sin(3 x1 + x2)", "exp(-x1*x2)*sin(3*x1 + x2)", "x1..x2=0..2", 1e-5, {}, 400, 30),
    ("exp(-r^2/2) cos(x + y z)", "exp(-(x**2 + y**2 + z**2)/2)*cos(x + y*z)", "x=-1..1, y=-1..1, z=-1..1",
     1e-3, {}, 8000, 120),
    (SINES, SINES, SQUARE, 0.05, {"construction": "partition"}, 176, 30),
    ("sin(x)", "sin(x)", "x=-pi..pi", 1e-8, {"construction": "polynomial"}, 0, 30),
    ("exp(x1) cos(x2)", "exp(x1)*cos(x2)", "x1..x2=-1..1", 1e-6, {"construction": "polynomial"}, 0, 30),
]  # fmt: skip


@dataclass(frozen=True)
class Row:
    """What one case gave."""

    name: str
    eps: float
    construction: str
    layers: int
    heads: int
    tokens: int
    proven: float
    found: float
    compiling: float
    verifying: float
    verified: bool
    met: bool


def attack(model: Any, points: int = 40_000, rounds: int = 25) -> float:
    """The largest error found in floats."""
    from transformula.formula.evaluation import evaluate

    rng = np.random.default_rng(0)
    low, high = np.array(model.box.floats()).T
    expr, names = model.formula.outputs[0], model.box.variables

    def error(x: np.ndarray) -> np.ndarray:
        return np.nan_to_num(np.abs(np.asarray(model(x)) - evaluate(expr, names, list(x.T))))

    side = max(2, int(points ** (1 / len(low))))
    axes = [np.linspace(a, b, side) for a, b in zip(low, high, strict=True)]
    lattice = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, len(low))
    x = np.concatenate([rng.uniform(low, high, (points, len(low))), lattice])
    best = x[np.argsort(error(x))[-12:]]
    step = (high - low) / side
    for _ in range(rounds):
        trial = best[:, None] + step * rng.uniform(-1, 1, (1, 40, len(low)))
        trial = np.clip(np.concatenate([best[:, None], trial], axis=1), low, high)
        values = error(trial.reshape(-1, len(low))).reshape(trial.shape[:2])
        best = trial[np.arange(len(best)), values.argmax(axis=1)]
        step = 0.7 * step
    return float(error(best).max())


def run() -> list[Row]:
    """Compile, verify and attack every case."""
    import transformula as tf

    tf.compile("sin(x)", on="x=0..1", eps=1e-2, construction="lookup")
    rows = []
    for name, formula, box, eps, options, most, slowest in CASES:
        start = time.perf_counter()
        model = tf.compile(formula, on=box, eps=eps, **({"construction": "lookup"} | options))
        middle = time.perf_counter()
        verified = tf.verify(model).verified
        end = time.perf_counter()
        met = verified and model.memory_tokens <= most and middle - start <= slowest
        rows.append(
            Row(name, eps, model.construction, model.layers, model.heads, model.memory_tokens,
                model.certificate.approximation, attack(model), middle - start, end - middle, verified, met)
        )  # fmt: skip
    return rows


def measure() -> list[Line]:
    """The rows as lines of the common report."""
    return [
        Line(
            f"{r.name}, eps {r.eps:g}, {r.construction}: {r.layers} layers, {r.heads} heads, "
            f"{r.tokens} tokens",
            f"{r.compiling:.2f} s", f"verify {r.verifying:.2f} s", f"proven {r.proven:.2g}",
            f"found {r.found:.2g}", r.met,
        )
        for r in run()
    ]  # fmt: skip


def main() -> int:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    rows = run()
    table = Table(title="one layer is enough")
    titles = ("formula", "eps", "construction", "layers", "heads", "tokens", "proven", "found")
    for title in (*titles, "compile s", "verify s", ""):
        table.add_column(title, overflow="fold")
    for r in rows:
        table.add_row(
            r.name, f"{r.eps:g}", r.construction, str(r.layers), str(r.heads), str(r.tokens),
            f"{r.proven:.2e}", f"{r.found:.2e}", f"{r.compiling:.2f}", f"{r.verifying:.2f}",
            "met" if r.met else "MISSED",
        )  # fmt: skip
    Console(width=140).print(table)
    return int(not all(r.met for r in rows))


if __name__ == "__main__":
    sys.exit(main())
