"""A compiled model beside what else people would use for the same function: sizes, errors, times; and how costs grow.

``python benchmarks/alternatives.py [--seconds 40] [NAME ...]`` prints the tables; without names it writes docs/alternatives.md.
The alternatives are made as large as they must be to reach the compiled model's *proven* bound at the points where they are
measured, or as large as the limits allow: 1,000 monomials, 100,000 grid points, ``--seconds`` of processor time for training.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import sympy
import torch
from scipy.interpolate import RegularGridInterpolator
from scipy.sparse.linalg import spsolve
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures
from threadpoolctl import threadpool_limits

import transformula as tf
import uncached  # noqa: F401
from growth import growth, growth_table
from kan import Kan
from runtimes import milliseconds
from samples import GRAVITY, GRAVITY_BOX, points_of

PAGE = Path(__file__).parent.parent / "docs" / "alternatives.md"
#: name: formula, box, eps
FUNCTIONS = {
    "Runge": ("1/(1 + 25*x**2)", "x=-1..1", 1e-6),
    "sin x1 + sin x2": ("sin(x1) + sin(x2)", "x1..x2=-3..3", 1e-6),
    "exp(-x*y)*sin(3x+y)": ("exp(-x*y)*sin(3*x + y)", "x=0..2, y=0..2", 1e-5),
    "gravity": (GRAVITY, GRAVITY_BOX, 1e-3),
}
POINTS, TRAINING = 100_000, 20_000
MAX_MONOMIALS, MAX_GRID = 1_000, 100_000
HEADER = """# Compared with the alternatives

The same function by other methods, float64, one core, in one run of `python benchmarks/alternatives.py`. *sup error* is the
largest at {points:,} random points, corners included; only the compiled model's bound holds everywhere. Alternatives grow until
they reach the compiled model's bound at these points, or their limit: {monomials:,} monomials, {grid:,} grid points,
{seconds:.0f} s of processor time for each training (Adam, then L-BFGS). *make* is the processor time to compile and prove, to
fit or to train the row's model (smaller ones tried before are not counted); *ms* is for all points at once.

"""


@dataclass(frozen=True)
class Line:
    """One way to compute a function."""

    name: str
    numbers: int | None
    error: float
    bound: float | None
    make: float
    ms: float


def lines_of(formula: str, box: str, eps: float, seconds: float) -> Iterator[Line]:
    """The formula itself, ours, and the alternatives."""
    start = time.process_time()
    model = tf.compile(formula, on=box, eps=eps)
    made = time.process_time() - start
    X = points_of(model, POINTS, 0)
    names = model.box.variables
    direct = sympy.lambdify(sympy.symbols(names), sympy.sympify(formula, {n: sympy.Symbol(n) for n in names}), "numpy")
    truth = direct(*X.T)
    goal = model.certificate.bound
    yield Line("formula in NumPy", None, 0.0, None, 0.0, milliseconds(lambda: direct(*X.T)))
    error = float(np.abs(model(X) - truth).max())
    own = f"compiled ({model.construction}, {model.memory_tokens} memory tokens)"
    yield Line(own, model.parameter_count, error, goal, made, milliseconds(lambda: model(X)))
    low, high = np.array(model.box.floats()).T
    yield polynomial(direct, low, high, X, truth, goal)
    if len(low) <= 3:
        yield interpolated(direct, low, high, X, truth, goal)
    for name, network in (("MLP", perceptron), ("KAN", kan)):
        yield trained(name, network, direct, low, high, X, truth, goal, seconds)


def polynomial(direct: Callable[..., Any], low: Any, high: Any, X: Any, truth: Any, goal: float) -> Line:
    """Least squares on all monomials of scaled inputs: the least degree that is good enough, or the best."""
    rng = np.random.default_rng(1)
    d = len(low)
    found: tuple[Line, Any] | None = None
    for degree in range(1, 200):
        terms = comb(d + degree, degree)
        if terms > MAX_MONOMIALS:
            break
        rows = low + (high - low) * (0.5 - 0.5 * np.cos(np.pi * rng.random((max(4 * terms, 200), d))))
        fitted = make_pipeline(MinMaxScaler((-1, 1)), PolynomialFeatures(degree), LinearRegression(fit_intercept=False))
        start = time.process_time()
        fitted.fit(rows, direct(*rows.T))
        made = time.process_time() - start
        error = float(np.abs(fitted.predict(X) - truth).max())
        if found is None or error < found[0].error:
            found = Line(f"PolynomialFeatures({degree})", terms, error, None, made, 0.0), fitted
        if error <= goal:
            break
    assert found is not None
    line, fitted = found
    return Line(line.name, line.numbers, line.error, None, line.make, milliseconds(lambda: fitted.predict(X), 0.05, 2))


def interpolated(direct: Callable[..., Any], low: Any, high: Any, X: Any, truth: Any, goal: float) -> Line:
    """A cubic spline on a grid, the coarsest that is good enough."""
    per_axis = 8
    while True:
        axes = [np.linspace(a, b, per_axis) for a, b in zip(low, high, strict=True)]
        start = time.process_time()
        values = direct(*np.meshgrid(*axes, indexing="ij"))
        spline = RegularGridInterpolator(axes, values, method="cubic", solver=spsolve)  # the default stops at 1e-6
        made = time.process_time() - start
        error = float(np.abs(spline(X) - truth).max())
        following = int(1.5 * per_axis)
        if error <= goal or following ** len(low) > MAX_GRID:
            break
        per_axis = following
    name = f"RegularGridInterpolator (cubic, {per_axis} an axis)"
    return Line(name, per_axis ** len(low), error, None, made, milliseconds(lambda: spline(X), 0.05, 2))


def perceptron(inputs: int) -> torch.nn.Module:
    """Two hidden layers of tanh."""
    parts = [
        torch.nn.Linear(inputs, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, 1),
    ]
    return torch.nn.Sequential(*parts).double()


def kan(inputs: int) -> torch.nn.Module:
    """One hidden layer of 2d + 1 units, as Kolmogorov's theorem has it."""
    return Kan((inputs, 2 * inputs + 1, 1)).double()


def trained(
    name: str, network: Callable[[int], torch.nn.Module], direct: Callable[..., Any], low: Any, high: Any, X: Any, truth: Any,
    goal: float, seconds: float,
) -> Line:  # fmt: skip
    """Half of the time by Adam, half by L-BFGS, on points of the box."""
    torch.manual_seed(0)
    rng = np.random.default_rng(2)
    module = network(len(low))

    def scaled(points: Any) -> torch.Tensor:
        return torch.as_tensor(2 * (points - low) / (high - low) - 1)

    rows = low + (high - low) * rng.random((TRAINING, len(low)))
    inputs, targets = scaled(rows), torch.as_tensor(direct(*rows.T))
    shift, scale = targets.mean(), targets.std()
    start = time.process_time()
    adam = torch.optim.Adam(module.parameters(), lr=3e-3)
    while time.process_time() - start < seconds / 2:
        batch = torch.as_tensor(rng.integers(0, TRAINING, 1000))
        loss = ((module(inputs[batch])[:, 0] - (targets[batch] - shift) / scale) ** 2).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    newton = torch.optim.LBFGS(module.parameters(), max_iter=10, history_size=20, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        newton.zero_grad()
        loss = ((module(inputs)[:, 0] - (targets - shift) / scale) ** 2).mean()
        loss.backward()
        return loss

    with torch.no_grad():
        places = scaled(X)
    while time.process_time() - start < seconds:
        newton.step(closure)
    made = time.process_time() - start

    def predicted() -> Any:
        with torch.no_grad():
            return (module(places)[:, 0] * scale + shift).numpy()

    numbers = sum(p.numel() for p in module.parameters())
    error = float(np.abs(predicted() - truth).max())
    return Line(f"{name}, trained", numbers, error, None, made, milliseconds(predicted, 0.05, 2))


def table(name: str, lines: list[Line]) -> str:
    """One function as Markdown."""
    rows = [
        f"## {name}".replace("*", r"\*"),
        "",
        "| by | numbers | sup error | proven bound | make s | ms |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for line in lines:
        numbers = "" if line.numbers is None else f"{line.numbers:,}"
        bound = "" if line.bound is None else f"{line.bound:.1e}"
        error = "0" if line.error == 0 else f"{line.error:.1e}"
        rows.append(f"| {line.name} | {numbers} | {error} | {bound} | {line.make:.2f} | {line.ms:.1f} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Measure, print, and write the page if nothing was left out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*FUNCTIONS, []], metavar="NAME")
    parser.add_argument("--seconds", type=float, default=15.0, help="of training, for each network")
    parser.add_argument("--json", type=Path, help="write the numbers to a file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    parts, facts = [], {}
    with threadpool_limits(1):
        for name in given.names or FUNCTIONS:
            lines = list(lines_of(*FUNCTIONS[name], given.seconds))
            parts.append(table(name, lines))
            facts[name] = [asdict(line) for line in lines]
            print(parts[-1], flush=True)
        rows = growth()
    parts.append(growth_table(rows))
    print(parts[-1])
    if given.json:
        given.json.write_text(json.dumps({"functions": facts, "growth": rows}, indent=1))
    if not given.names:
        header = HEADER.format(points=POINTS, monomials=MAX_MONOMIALS, grid=MAX_GRID, seconds=given.seconds)
        PAGE.write_text(header + "\n".join(parts))


if __name__ == "__main__":
    main()
