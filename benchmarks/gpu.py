"""Every case on a GPU beside its formula through torch.compile: time, memory, gradients and error at a million points.

``python benchmarks/gpu.py [--models FOLDER] [--page docs/gpu.md] [NAME ...]``. Each model runs as `Model.to_torch` gives
it. The error is that against the CPU at some of the points, beside what the certificate allows for rounding. The dense
quintic stands beside the bare matrix product of its directions.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import torch

import transformula as tf
from compiling import dense_text
from exp_ulps import MARK
from plain_formula import plain_function
from runtimes import formulas, models
from transformula.runtime.program.packed_steps import Softmax

POINTS, CHECKED = 1_000_000, 2_000
QUINTIC, PARTITION = "dense quintic, 10 variables", "x*sin(3y), partition"
#: Numbers and repetitions from which the device's rate of exponentials is measured.
NUMBERS, TIMES = 1 << 22, 64
#: Times as slow as the formula, or as the floor where that is slower, and forward and backward as forward.
TARGET, BACKWARD, MEGABYTES = 2.0, 4.0, 100.0
COLUMNS = (
    "model", "tokens", "dtype", "ms", "formula", "floor", "ratio", "device", "points", "numbers", "MB", "difference", "allowed",
)  # fmt: skip
PAGE = """# On a GPU

{points:,} points, {where}. Written by `python benchmarks/gpu.py --page docs/gpu.md` on a machine with a GPU.

- *ms*: `model.to_torch()` on points already on the device, the best of ten means of twenty runs, after three warm-up runs.
- *formula*: the formula itself through torch.compile, in the same run. *floor*: a kernel that reads the inputs and writes
  one output, and the model's exponentials at the rate at which this device takes them (float32 {rates[0]:.2g} and float64
  {rates[1]:.2g} in a second). *ratio*: ms over the larger of the two.
- *device*: the same work replayed as a CUDA graph, without what Python takes for a call (about 0.04 ms, and 0.2 ms more
  with gradients). *points*, *numbers*: forward and backward replayed, with gradients of the points, and of the stored
  numbers too.
- *MB*: memory allocated while it runs, beyond inputs, outputs and weights.
- *difference* to the CPU at some of the points; each may be off by the certificate's rounding, so twice that is *allowed*.

{table}

{verdict}

"""
RATE = """launches = {{"forward": (256, 4, 1 << 30)}}
@kernel
def forward(x, w, y, samples):
    place = tl.program_id(0).to(tl.int64)*256 + tl.arange(0, 256)
    value = tl.load(x + place, mask=place < samples, other=0.0)
    for _ in range({times}):
        value = exp(-value)
    tl.store(y + place, value, mask=place < samples)
"""


def milliseconds(work: Callable[[], object], times: int = 20) -> float:
    """The mean of some runs after a warm-up, by the device's own clock; the best of ten such means."""
    for _ in range(3):
        work()
    found = []
    for _ in range(10):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for _ in range(times):
            work()
        stop.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(stop) / times)
    return min(found)


def replayed(work: Callable[[], object]) -> float:
    """The time of the device alone: the work as a CUDA graph."""
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=side):
        work()
    return milliseconds(graph.replay)


def megabytes(work: Callable[[], torch.Tensor]) -> float:
    """What is allocated at most while it runs, beyond what was there and the result."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = work()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before - result.nbytes) / 1e6


def exponentials(dtype: str) -> float:
    """How many the device takes in a second."""
    from transformula.runtime.program.triton_program import forward_rows

    x = torch.rand(NUMBERS, 1, dtype=getattr(torch, dtype), device="cuda")
    many, none = (RATE.format(times=times) for times in (TIMES, 0))
    spent = [milliseconds(lambda text=text: forward_rows(x, x, text, 1)) for text in (many, none)]
    return 1000 * NUMBERS * TIMES / (spent[0] - spent[1])


def measured(name: str, model: tf.Model, text: str | None, rates: dict[str, float]) -> dict[str, Any]:
    """One model beside its formula."""
    dtype = model.weights.dtype
    module = model.to_torch().cuda()
    low, high = np.array(model.box.floats()).T
    x = np.random.default_rng(1).uniform(low, high, (POINTS, len(low))).astype(dtype)
    given = torch.from_numpy(x).cuda()
    with torch.no_grad():
        time, memory = milliseconds(lambda: module(given)), megabytes(lambda: module(given))
        device = replayed(lambda: module(given)) if name != PARTITION else time
        found = module(given)[:CHECKED].double().cpu().numpy()
    wanted = np.asarray(model(x[:CHECKED]), dtype=np.float64).reshape(CHECKED, -1)
    row = {"model": name, "tokens": model.program.tokens, "dtype": dtype, "ms": time, "device": device, "MB": memory}
    row |= {"difference": float(np.abs(found - wanted).max()), "allowed": 2 * model.certificate.rounding}
    ones = given.new_ones(POINTS, len(module.outputs))
    given.requires_grad_()
    for column, leaves in (("points", [given]), ("numbers", [given, module.numbers])):
        module.numbers.requires_grad_(len(leaves) > 1)
        timed = milliseconds if name == PARTITION else replayed
        row[column] = timed(lambda leaves=leaves: torch.autograd.grad(module(given), leaves, ones))
    given.requires_grad_(False)
    if text is not None:
        torch._dynamo.reset()
        formula = torch.compile(plain_function(text, model.box.variables, torch), dynamic=False)
        one, exps = given.new_empty(POINTS, 1), sum(s.tokens for s in module.steps if isinstance(s.step, Softmax))
        row["formula"] = milliseconds(lambda: formula(given))
        moved = milliseconds(lambda: torch.sum(given, 1, keepdim=True, out=one))
        row["floor"] = moved + 1000 * POINTS * exps / rates[dtype]
        row["ratio"] = time / max(row["formula"], row["floor"])
    return row


def product_row(module: torch.nn.Module) -> dict[str, Any]:
    """X F' of the dense quintic into memory that is there already."""
    f = torch.from_numpy(module.steps[0].step.directions).cuda()
    x, space = torch.rand(POINTS, f.shape[1], dtype=f.dtype, device="cuda"), f.new_empty(POINTS, len(f))
    time = milliseconds(lambda: torch.matmul(x, f.T, out=space))
    return {"model": "  bare product X F'", "tokens": len(f), "dtype": "float32", "ms": time}


def cells(row: dict[str, Any]) -> list[str]:
    """A line of the table."""
    return [row[c] if isinstance(row.get(c), str) else f"{row[c]:.3g}" if c in row else "-" for c in COLUMNS]


def missed(row: dict[str, Any]) -> list[str]:
    """Targets that a case misses."""
    name, found = f"{row['model']} {row['dtype']}", []
    if not row["difference"] <= row["allowed"]:
        found.append(f"{name} is off by more than its rounding")
    if "ratio" in row and not row["ratio"] <= TARGET:
        found.append(f"{name} takes {row['ratio']:.1f}x")
    if "ratio" in row and not row["MB"] <= MEGABYTES:
        found.append(f"{name} takes {row['MB']:.0f} MB")
    found += [f"{name} forward and backward ({c}) take {row[c] / row['device']:.1f}x forward" for c in ("points", "numbers")
              if not row[c] <= BACKWARD * row["device"]]  # fmt: skip
    return found


def main() -> int:
    """Measure all cases; write the page if one is named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--models", type=Path)
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("there is no GPU here")
        return 1
    rates = {dtype: exponentials(dtype) for dtype in ("float32", "float64")}
    rows, texts = [], formulas()
    with tempfile.TemporaryDirectory() as scratch:
        for dtype in rates:
            for name, model in models(given.models or Path(scratch), given.names, dtype).items():
                rows.append(measured(name, model, texts[name][0], rates))
                print(*cells(rows[-1]), flush=True)
    if not given.names:
        quintic = tf.compile(dense_text(10, 5), on="x1..x10=-1..1", dtype="float32")
        rows += [measured(QUINTIC, quintic, None, rates), product_row(quintic.to_torch())]
        rows.append(measured(PARTITION, tf.compile("x*sin(3*y)", on="x=0..1, y=0..1", eps=0.0035, construction="partition", time_limit=120), None, rates))  # fmt: skip
    lines = [COLUMNS, ["---", *["---:"] * (len(COLUMNS) - 1)], *map(cells, rows)]
    where = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {platform.python_version()}"
    misses = [line for row in rows if "difference" in row for line in missed(row)]
    verdict = "\n".join(f"- {line}" for line in misses) or "Every case is within its targets."
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    table, verdict = (part.replace("*", r"\*") for part in (table, verdict))
    text = PAGE.format(points=POINTS, where=where, rates=list(rates.values()), table=table, verdict=verdict)
    print(text)
    if given.page:
        given.page.write_text(text + "".join(given.page.read_text().partition(MARK)[1:]))
    return int(bool(misses))


if __name__ == "__main__":
    sys.exit(main())
