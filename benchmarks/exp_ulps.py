"""The largest error of exp on each target, in units in the last place: ``python benchmarks/exp_ulps.py [--arguments N] [PAGE.md]``.

The rounding model (`kernel.rounding.formats`) counts `EXP_ULPS` units for every exponential. Arguments are random between
the logarithms of the smallest normal and of the largest number, half of them evenly and half by their magnitude. The
reference for float32 is float64, and for float64 it is the 80-bit format. CUDA's exponential is the one that the fused
kernels call. With a page its section on exp is replaced. The exit code says whether every target is within the model.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import torch
from numpy.typing import NDArray

from transformula.kernel.rounding.formats import EXP_ULPS

Array = NDArray[Any]
BLOCK = 1_000_000
WIDER = {"float32": np.float64, "float64": np.longdouble}
MARK = "## exp\n"
#: A kernel that takes nothing but exponentials, with the names of `triton_program`.
KERNEL = """launches = {"forward": (256, 4, 1 << 30)}
@kernel
def forward(x, w, y, samples):
    place = tl.program_id(0).to(tl.int64)*256 + tl.arange(0, 256)
    tl.store(y + place, exp(tl.load(x + place, mask=place < samples, other=0.0)), mask=place < samples)
"""


def targets(dtype: str) -> dict[str, Callable[[Array], Array]]:
    """Every exponential that a runtime may call here."""
    compiled = torch.compile(torch.exp)
    found: dict[str, Callable[[Array], Array]] = {
        "NumPy": np.exp,
        "torch, CPU": lambda x: torch.exp(torch.from_numpy(x)).numpy(),
        "torch.compile, CPU": lambda x: compiled(torch.from_numpy(x)).numpy(),
    }
    try:
        from runtimes import session
        from transformula.runtime.onnx_graph import GraphWriter, file_bytes

        class Exponential(GraphWriter):
            def graph(self, onnx: Any) -> Any:
                self.node("y", "Exp", "x")
                return self.finished(onnx, [["batch", 1], ["batch", 1]])

        onnx = session(file_bytes(Exponential(dtype), 0, {}, ""))
        found["onnxruntime, CPU"] = lambda x: onnx.run(None, {"x": x[:, None]})[0][:, 0]
    except ImportError:
        print("onnxruntime is not installed")
    if torch.cuda.is_available():
        from transformula.runtime.program.triton_program import forward_rows

        def fused(x: Array) -> Array:
            given = torch.from_numpy(x).cuda()[:, None]
            return forward_rows(given, given, KERNEL, 1)[:, 0].cpu().numpy()

        found["torch, CUDA"] = lambda x: torch.exp(torch.from_numpy(x).cuda()).cpu().numpy()
        found["fused kernels, CUDA"] = fused
    return found


def arguments(dtype: str, count: int) -> Iterator[Array]:
    """Blocks of arguments whose exponentials are normal numbers."""
    rng, info = np.random.default_rng(0), np.finfo(dtype)
    low, high = float(np.log(info.tiny)) + 1e-3, float(np.log(info.max)) - 1e-3
    for _ in range(0, count, BLOCK):
        even = rng.uniform(low, high, BLOCK // 2)
        sizes = np.exp(rng.uniform(np.log(float(info.eps)), np.log(high), BLOCK // 2))
        yield np.concatenate([even, sizes * rng.choice([-1, 1], BLOCK // 2)]).clip(low, high).astype(dtype)


def largest_errors(dtype: str, count: int) -> dict[str, float]:
    """For each target the largest error, in units in the last place of the exact exponential."""
    found = dict.fromkeys(runs := targets(dtype), 0.0)
    for x in arguments(dtype, count):
        exact = np.exp(x.astype(WIDER[dtype]))
        unit = np.spacing(exact.astype(dtype))
        for name, run in runs.items():
            error = float((np.abs(run(x).astype(WIDER[dtype]) - exact) / unit).max())
            found[name] = max(found[name], error) if error == error else np.inf
    return found


def main() -> int:
    """Measure and print; write the section if a page is named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("page", nargs="?", type=Path)
    parser.add_argument("--arguments", type=int, default=100_000_000)
    given = parser.parse_args()
    found = {dtype: largest_errors(dtype, given.arguments) for dtype in WIDER}
    rows = ["| exp of | float32 | float64 |", "| --- | ---: | ---: |"]
    rows += [f"| {name} | {found['float32'][name]:.2f} | {found['float64'][name]:.2f} |" for name in found["float32"]]
    said = f"The largest error at {given.arguments:,} arguments, in units in the last place; the rounding model counts {EXP_ULPS}.\n"
    section = "\n".join(
        [MARK, said + f"Written by `python benchmarks/exp_ulps.py` ({torch.__version__}).\n", *rows, ""]
    )
    print(section)
    if given.page:
        given.page.write_text(given.page.read_text().partition(MARK)[0] + section)
    return int(not all(error <= EXP_ULPS for errors in found.values() for error in errors.values()))


if __name__ == "__main__":
    sys.exit(main())
