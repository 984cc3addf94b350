"""One model in every runtime, beside the floor that its arithmetic sets: one table, JSON, and docs/runtimes.md.

``python benchmarks/runtimes.py [--models FOLDER] [--json FILE] [--points N] [NAME ...]``: models are kept in FOLDER;
with names nothing is written to docs.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

import transformula as tf
from compiling import F2, F2_BOX
from plain_formula import numexpr_function, plain_function
from transformula.errors import ModelFileError
from transformula.export.onnx_files import onnx_bytes
from transformula.runtime.onnx_graph import GraphWriter, file_bytes, import_onnx

HERE = Path(__file__).parent
#: name: formula, box, eps
NAMED: dict[str, tuple[str, str, float | None]] = {
    "f2*": (F2, F2_BOX, None),
    "sin x1 + sin x2": ("sin(x1) + sin(x2)", "x1..x2=-3..3", 1e-6),
    "exp(-x*y)*sin(3x+y)": ("exp(-x*y)*sin(3*x + y)", "x=0..2, y=0..2", 1e-5),
}
PAGE = HERE.parent / "docs" / "runtimes.md"
HEADER = """# The runtimes, and the floor

The same program in NumPy (`model(array)`), torch (`model(tensor)`, and *module*: `model.to_torch()`) and onnxruntime
(`export --to onnx`): {points:,} points, float64, on one core. Written by `make bench`.

- *low floor*: `np.exp` of points × M numbers and one product of that array with a vector, in the same run. M is the number
  of tokens of all tables that are read (for a polynomial, its directions). *high floor*: the product is with an M × M matrix.
- *low floor* to *onnx* are milliseconds of one core's time, the best of several rounds in which floors and runtimes
  alternate; in brackets the multiples of the low and of the high floor.
- A tensor that needs no gradient is evaluated by NumPy on the same memory; *module* is what runs with gradients, and
  *compiled* the same module through torch.compile, in brackets as a multiple of *ndarray*.
- On a GPU ([gpu.md](gpu.md)) the forward and backward passes take at most 4 times the forward pass alone where gradients of the
  points are asked for; with those of the stored numbers too, 3 to 15 times, and a partition 34 times.
- *formula*, *numexpr*, *torch*: the formula itself in NumPy, through numexpr and through torch.compile.
- *latency*: a batch of one in onnxruntime; *MLP*: a ReLU network of as many layers and about as many parameters, written as
  an ONNX file in the same way.
- onnxruntime's Exp takes 4 to 5 ns per float64 number, NumPy's about 1, so ONNX is compared with the high floor.

"""
#: Where the section that parity.py writes begins.
PARITY = "## Parity"
FLOORS = ("low", "high")
RUNTIMES = ("ndarray", "tensor", "module", "onnx")
PLAIN = ("formula", "numexpr", "torch")
#: The floor that a runtime is held to, and how many times that it may take.
HELD, TARGET = {"ndarray": "low", "tensor": "low", "onnx": "high"}, 3.0


def formulas() -> dict[str, tuple[str, str, float | None]]:
    """Formula, box and eps of the named models and of the cases."""
    rows = csv.DictReader((HERE / "formulas.csv").read_text().splitlines())
    return NAMED | {row["name"]: (row["formula"], row["on"], float(row["eps"])) for row in rows}


def models(folder: Path, names: list[str], dtype: str = "float64") -> dict[str, tf.Model]:
    """The named models and the cases, compiled once and kept; in float32 within a thousandth of their largest value."""
    found = {}
    for k, (name, (formula, box, eps)) in enumerate(formulas().items()):
        if names and name not in names:
            continue
        place = folder / (f"{k:02d}" if dtype == "float64" else f"{k:02d}_{dtype}")
        tolerance = {"eps": eps} if dtype == "float64" or eps is None else {"rel": 1e-3}
        try:
            found[name] = tf.load(place)
        except ModelFileError:
            found[name] = tf.compile(formula, on=box, dtype=dtype, **tolerance)
            found[name].save(place)
    return found


def in_turns(
    tasks: dict[str, Callable[[], object]], least: float = 1.0, fewest: int = 3, runs: int = 5
) -> dict[str, float]:
    """Milliseconds of a core's time, the best of several rounds in which the tasks take turns of some runs."""
    best, start, rounds = dict.fromkeys(tasks, float("inf")), time.process_time(), 0
    while rounds < fewest or time.process_time() - start < least:
        for name, task in [turn for turn in tasks.items() for _ in range(runs)]:
            before = time.process_time()
            task()
            best[name] = min(best[name], time.process_time() - before)
        rounds += 1
    return {name: 1000 * seconds for name, seconds in best.items()}


def milliseconds(task: Callable[[], object], least: float = 0.15, fewest: int = 5) -> float:
    """The same of one task alone."""
    return in_turns({"": task}, least, fewest, runs=1)[""]


def measure(name: str, model: tf.Model, points: int) -> dict[str, Any]:
    """One model everywhere."""
    import torch

    torch.compiler.reset()
    low, high = np.array(model.box.floats()).T
    rng = np.random.default_rng(0)
    x = rng.uniform(low, high, size=(points, len(low)))
    tensor, names = torch.from_numpy(x), model.box.variables
    onnx, module = (
        session(onnx_bytes(model.packed, model.certificate, proven=True)),
        model.to_torch().requires_grad_(False),
    )
    compiled, text = torch.compile(module), formulas()[name][0]
    plain = plain_function(text, names, np), torch.compile(plain_function(text, names, torch), dynamic=False)
    runs: dict[str, Callable[[], Any]] = {
        "ndarray": lambda: model(x),
        "tensor": lambda: model(tensor).numpy(),
        "module": lambda: module(tensor).numpy().squeeze(),
        "compiled": lambda: compiled(tensor).numpy().squeeze(),
        "onnx": lambda: onnx.run(None, {"x": x})[0].reshape(points, -1).squeeze(),
    }
    wanted = runs["ndarray"]()
    for runtime, run in runs.items():
        assert np.abs(run() - wanted).max() <= 2 * model.certificate.rounding, runtime
    tokens = model.program.tokens
    size = max(tokens, 1)
    scores, values = rng.uniform(-5, 0, size=(points, size)), rng.normal(size=(size, size))
    floors = {"low": lambda: np.exp(scores) @ values[0], "high": lambda: np.exp(scores) @ values}
    formula = {"formula": lambda: plain[0](x), "torch": lambda: plain[1](tensor)}
    with contextlib.suppress(ImportError):
        numexpr = numexpr_function(text, names)
        formula["numexpr"] = lambda: numexpr(x)
    times = in_turns(floors | formula | runs)
    one, mlp = x[:1], session(_mlp(len(low), model.weights.outputs, model.layers, model.parameter_count))
    alone = {"latency": lambda: onnx.run(None, {"x": one}), "mlp": lambda: mlp.run(None, {"x": one})}
    latencies = in_turns(alone, least=0.1, fewest=60)
    return {
        "construction": model.construction,
        "layers": model.layers,
        "tokens": tokens,
        **{f"{name}_ms": t for name, t in times.items()},
        **{f"{name}_{f}_floors": times[name] / times[f] for name in runs for f in FLOORS},
        "latency_us": 1000 * latencies["latency"],
        "mlp_latency_us": 1000 * latencies["mlp"],
    }


def session(data: bytes) -> Any:
    """onnxruntime on one thread."""
    runtime = import_onnx(runtime=True)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _mlp(inputs: int, outputs: int, layers: int, parameters: int) -> bytes:
    """A ReLU network of so many hidden layers and about so many parameters."""
    width = 1
    while width * (inputs + outputs + 1) + (layers - 1) * width * (width + 1) + outputs < parameters:
        width += 1
    sizes, rng = [inputs, *[width] * layers, outputs], np.random.default_rng(0)

    class Network(GraphWriter):
        def graph(self, onnx: Any) -> Any:
            made = "x"
            for k, (rows, columns) in enumerate(pairwise(sizes)):
                parts = [
                    self.constant(f"{k}.w", rng.normal(size=(rows, columns))),
                    self.constant(f"{k}.b", np.ones(columns)),
                ]
                last = k == layers
                made = self.node("y" if last else f"{k}.sum", "Gemm", made, *parts)
                made = made if last else self.node(f"{k}.relu", "Relu", made)
            return self.finished(onnx, [["batch", inputs], ["batch", outputs]])

    return file_bytes(Network("float64"), 0, {}, "")


def _times(row: dict[str, Any], runtime: str, floor: str) -> str:
    return f"{row[f'{runtime}_{floor}_floors']:.1f}x"


def _slow(row: dict[str, Any], runtime: str, floor: str) -> bool:
    return bool(row[f"{runtime}_{floor}_floors"] > TARGET)


def _cells(name: str, row: dict[str, Any]) -> list[str]:
    """A line of the table."""
    times = [f"{row[key]:.1f}" if key in row else "-" for key in ("low_ms", "high_ms", *(f"{c}_ms" for c in PLAIN))]
    runs = [f"{row[f'{r}_ms']:.1f} ({', '.join(_times(row, r, f) for f in FLOORS)})" for r in RUNTIMES]
    runs.append(f"{row['compiled_ms']:.1f} ({row['compiled_ms'] / row['ndarray_ms']:.2f}x)")
    latency = [f"{row[key]:.0f}" for key in ("latency_us", "mlp_latency_us")]
    return [name, str(row["layers"]), str(row["tokens"]), *times, *runs, *latency]


def options() -> argparse.Namespace:
    """What this and `parity` take on the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--models", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--points", type=int, default=100_000)
    return parser.parse_args()


def main() -> int:
    """Measure, print, write; the exit code says whether every runtime is within the target of its floor."""
    given = options()
    import torch

    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with threadpool_limits(1), tempfile.TemporaryDirectory() as scratch:
        found = {
            name: measure(name, m, given.points)
            for name, m in models(given.models or Path(scratch), given.names).items()
        }
    titles = (
        "model",
        "layers",
        "tokens",
        "low floor",
        "high floor",
        *PLAIN,
        *RUNTIMES,
        "compiled",
        "latency us",
        "MLP us",
    )
    lines = [_cells(name, row) for name, row in found.items()]
    table = Table(*titles, title=f"{given.points:,} points, float64, one core: ms, in brackets multiples of the floors")
    for line in lines:
        table.add_row(*line)
    Console(width=220).print(table)
    if not given.names:
        ruled = [titles, ["---"] * len(titles), *lines]
        rows = "".join(f"| {' | '.join(r)} |\n" for r in ruled).replace("*", r"\*")
        parity = PAGE.read_text().partition(PARITY)  # the section that parity.py writes
        PAGE.write_text(HEADER.format(points=given.points) + rows + "\n" + "".join(parity[1:]))
    if given.json is not None:
        given.json.write_text(json.dumps({"points": given.points, "models": found}, indent=1) + "\n")
    slow = [
        f"{name}: {r} {_times(row, r, f)}" for name, row in found.items() for r, f in HELD.items() if _slow(row, r, f)
    ]
    slow += [f"{name}: latency {row['latency_us'] / row['mlp_latency_us']:.1f}x" for name, row in found.items()
             if row["latency_us"] > TARGET * row["mlp_latency_us"]]  # fmt: skip
    print(*(slow or [f"everything is within {TARGET:g}x"]), sep="\n")
    return int(bool(slow))


if __name__ == "__main__":
    sys.exit(main())
