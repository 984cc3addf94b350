"""Models on a GPU: time, memory and error at a million points, float32. ``python benchmarks/gpu.py [PAGE.md]``.

Each model runs as `Model.to_torch` gives it (the program, with fused kernels where Triton is installed). The error is
that against float64 on the CPU at some of the points, beside what the certificate allows for rounding. The dense quintic
stands beside the bare matrix product of its directions, and its gradients beside the same sums written in plain torch.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import transformula as tf
from compiling import dense_text
from samples import GRAVITY, GRAVITY_BOX

POINTS, CHECKED = 1_000_000, 2_000
F2 = "x1**5 + 3*x2**4 + 2*x3**3 + 5*x3*x4 + 3*x5**2 + 2*x6*x7*x8 + 2*x9"
QUINTIC = "dense quintic, 10 variables"
MODELS = {
    "f2*": (F2, "x1..x9=-3..3", {}),
    QUINTIC: ("", "x1..x10=-1..1", {}),
    "sin x1 + sin x2": ("sin(x1) + sin(x2)", "x1..x2=0..2*pi", {"rel": 1e-3, "construction": "lookup"}),
    "exp(-x*y)*sin(3x+y)": ("exp(-x*y)*sin(3*x+y)", "x=0..1, y=0..1", {"rel": 1e-3, "construction": "circuit"}),
    "gravity": (GRAVITY, GRAVITY_BOX, {"rel": 1e-3}),
    "partition": ("x*sin(3*y)", "x=0..1, y=0..1", {"eps": 0.0035, "construction": "partition", "dtype": "float64"}),
}


PAGE = """# On a GPU

{points:,} points, {where}. Written by `python benchmarks/gpu.py docs/gpu.md` on a machine with a GPU.

- *ms*: `model.to_torch()` on points already on the device, the mean of ten runs after three warm-up runs.
- *GB*: memory allocated while it runs, beyond inputs and weights.
- *difference to the CPU*: at some of the points; each may be off by the certificate's rounding, so twice that is
  *allowed*.

{table}
"""


@dataclass(frozen=True)
class Line:
    """One row of the table."""

    name: str
    tokens: int
    dtype: str
    time: float
    memory: float | None = None
    off: float | None = None
    allowed: float | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """As text."""
        more = [("-" if v is None else f"{v:.2g}") for v in (self.memory, self.off, self.allowed)]
        return self.name, f"{self.tokens:,}", self.dtype, f"{self.time:.2f}", *more


def milliseconds(work: Callable[[], object], times: int = 10) -> float:
    """The mean of some runs after a warm-up, by the device's own clock."""
    for _ in range(3):
        work()
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(times):
        work()
    stop.record()
    torch.cuda.synchronize()
    return start.elapsed_time(stop) / times


def gigabytes(work: Callable[[], object]) -> float:
    """What is allocated at most while it runs, beyond what was there."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 1e9


def measured(name: str) -> list[Line]:
    """One model, and what it stands beside."""
    formula, box, options = MODELS[name]
    dtype = options.get("dtype", "float32")
    text = dense_text(10, 5) if name == QUINTIC else formula
    model = tf.compile(text, on=box, **({"dtype": dtype} | options))
    module = model.to_torch().cuda()
    ends = np.array([list(map(float, pair)) for pair in model.box.floats()])
    x = np.random.default_rng(1).uniform(ends[:, 0], ends[:, 1], (POINTS, len(ends))).astype(dtype)
    given = torch.from_numpy(x).cuda()
    with torch.no_grad():
        time, memory = milliseconds(lambda: module(given)), gigabytes(lambda: module(given))
        found = module(given)[:CHECKED].double().cpu().numpy()
    wanted = np.asarray(model(x[:CHECKED]), dtype=np.float64).reshape(CHECKED, -1)
    off = float(np.abs(found - wanted).max())
    line = Line(name, model.tokens, dtype, time, memory, off, 2 * model.certificate.rounding)
    assert off <= line.allowed, line
    return [line, *(beside_products(module, given) if name == QUINTIC else [])]


def product_time(x: torch.Tensor, f: torch.Tensor) -> float:
    """X F' into memory that is there already."""
    space = x.new_empty(len(x), len(f))
    return milliseconds(lambda: torch.matmul(x, f.T, out=space))


def beside_products(module: torch.nn.Module, x: torch.Tensor) -> list[Line]:
    """The bare product X F', and gradients of everything, fused and in plain torch."""
    powers = next(m for m in module.modules() if hasattr(m, "directions"))
    f, c = powers.directions.detach(), powers.coefficients.detach()
    tokens = len(f)
    lines = [Line("  bare product X F'", tokens, "float32", product_time(x, f))]

    def plain(points: torch.Tensor, directions: torch.Tensor, coefficients: torch.Tensor) -> torch.Tensor:
        t = points @ directions.T
        total = torch.zeros_like(t)
        for s in range(len(coefficients) - 1, 0, -1):
            total = (total + coefficients[s, 0]) * t
        return total.sum(dim=1)

    def backward(run: Callable[[], torch.Tensor], *leaves: torch.Tensor) -> None:
        for leaf in leaves:
            leaf.grad = None
        run().sum().backward()

    given = x.clone().requires_grad_()
    leaves = [given, *module.parameters()]
    own = [given, f.clone().requires_grad_(), c.clone().requires_grad_()]
    for name, work in (
        ("  forward and backward", lambda: backward(lambda: module(given), *leaves)),
        ("  the same in plain torch", lambda: backward(lambda: plain(*own), *own)),
    ):
        lines.append(Line(name, tokens, "float32", milliseconds(work, 3), gigabytes(work)))
        for leaf in (*leaves, *own):
            leaf.grad = None
        torch.cuda.empty_cache()
    return lines


def main() -> int:
    """Measure all models; write the page if one is named."""
    if not torch.cuda.is_available():
        print("there is no GPU here")
        return 1
    lines = [line for name in MODELS for line in measured(name)]
    header = ("model", "tokens", "dtype", "ms", "GB", "difference to the CPU", "allowed")
    table = [header, ("---", *(["---:"] * 6)), *(line.cells for line in lines)]
    text = "\n".join("| " + " | ".join(row) + " |" for row in table)
    where = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {platform.python_version()}"
    page = PAGE.format(points=POINTS, where=where, table=text)
    print(page)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
