"""Tables to prove things about, random formulas, and attacks on proven bounds."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from flint import arb

from transformula.certificates.axis_models import Axis
from transformula.certificates.grid_models import Grid
from transformula.certificates.table_bounds import Table
from transformula.formulas import parse
from transformula.formulas.enclosures import enclose, precision
from transformula.formulas.expression import Expr, variables_of
from transformula.taylor.results import Floats


def numpy_function(expr: Expr, variables: Sequence[str]) -> Callable[..., Floats]:
    """The expression in plain NumPy (for fitting and guessing, never for proofs)."""
    names = {"asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "abs": np.abs}

    def value(node: Expr, known: dict[str, Any]) -> Any:
        if node.number is not None:
            return float(node.number)
        if node.op == "constant":
            return np.pi if node.value == "pi" else np.e
        if node.op == "variable":
            return known[str(node.value)]
        args = [value(a, known) for a in node.args]
        if node.op == "add":
            return sum(args[1:], args[0])
        if node.op == "mul":
            return np.prod(np.broadcast_arrays(*args), axis=0)
        if node.op == "div":
            return args[0] / args[1]
        if node.op == "pow":
            return args[0] ** args[1]
        if node.op in ("min", "max"):
            pick = np.minimum if node.op == "min" else np.maximum
            result = args[0]
            for a in args[1:]:
                result = pick(result, a)
            return result
        return names.get(node.op, getattr(np, node.op, None))(args[0])  # type: ignore[misc]

    return lambda *xs: value(expr, dict(zip(variables, xs, strict=True))) + 0 * sum(xs)


def make_axis(low: float, high: float, tokens: int, beyond: int = 3, width: float = 4.0) -> Axis:
    """Equispaced centres, some beyond each end."""
    h = (high - low) / (tokens - 1 - 2 * beyond)
    centres = low + (np.arange(tokens) - beyond) * h
    variance = width * h * h
    centres = centres.astype(np.float64)
    return Axis(np.asarray(centres / variance), np.asarray(-(centres**2) / (2 * variance)))


def softmax(axis: Axis, x: Floats) -> Floats:
    """Weights at points, shape (points, M)."""
    scores = axis.slopes * x[:, None] + axis.offsets
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def fit_grid(
    expr: Expr,
    variables: Sequence[str],
    box: Sequence[tuple[float, float]],
    tokens: Sequence[int],
    rcond: float = 1e-9,
) -> Grid:
    """A least-squares tensor grid."""
    axes = [make_axis(*ends, m) for ends, m in zip(box, tokens, strict=True)]
    points = [
        (a + b) / 2 - (b - a) / 2 * np.cos(np.pi * np.arange(4 * m) / (4 * m - 1))
        for (a, b), m in zip(box, tokens, strict=True)
    ]
    values = numpy_function(expr, variables)(*np.meshgrid(*points, indexing="ij"))
    for k, (axis, x) in enumerate(zip(axes, points, strict=True)):
        inverse = np.linalg.pinv(softmax(axis, x), rcond=rcond)
        values = np.moveaxis(np.tensordot(inverse, values, axes=([1], [k])), 0, k)
    return Grid(tuple(axes), values)


def fit_table(expr: Expr, low: float, high: float, tokens: int, width: float = 4.0) -> Table:
    """A least-squares table on equispaced centres."""
    axis = make_axis(low, high, tokens, width=width)
    x = np.linspace(low, high, 40 * tokens)
    values = np.linalg.lstsq(softmax(axis, x), numpy_function(expr, ["x"])(x), rcond=1e-13)[0]
    return Table(axis.slopes, axis.offsets, np.asarray(values, dtype=np.float64))


def fit_geometric(expr: Expr, low: float, high: float, centres: Floats, kappa: float = 0.3) -> Table:
    """Slope gaps kappa / (gap of centres), transitions at the midpoints; reweighted fit."""
    centres = np.sort(centres)
    slopes = np.concatenate([[0.0], np.cumsum(kappa / np.diff(centres))])
    slopes -= slopes[-1]
    middles = (centres[1:] + centres[:-1]) / 2
    offsets = np.concatenate([[0.0], np.cumsum(-np.diff(slopes) * middles)])
    between = [np.linspace(p, q, 30) for p, q in pairwise(centres)]
    x = np.unique(np.concatenate([np.linspace(low, high, 2000), *between]))
    x = x[(x >= low) & (x <= high)]
    weights, wanted = softmax(Axis(slopes, offsets), x), numpy_function(expr, ["x"])(x)
    importance = np.ones(len(x))
    for _ in range(40):
        scaled = weights * importance[:, None]
        values = np.linalg.lstsq(scaled, wanted * importance, rcond=1e-14)[0]
        wrong = np.abs(weights @ values - wanted)
        importance *= np.sqrt(wrong / wrong.mean() + 1e-3)
        importance /= importance.max()
    return Table(slopes, offsets, np.asarray(values, dtype=np.float64))


def exact_error(expr: Expr, variables: Sequence[str], grid: Grid | Table, x: Sequence[float]) -> arb:
    """T(x) + alpha.x + gamma - f(x) at a float point, as a narrow ball."""
    with precision(300):
        point = [arb(float(v)) for v in x]
        grid = as_grid(grid)
        values: Any = np.array([arb(float(v)) for v in grid.values.ravel()], dtype=object)
        values = values.reshape(grid.values.shape)
        for axis, v in zip(grid.axes, point, strict=True):
            terms = [
                (arb(float(a)) * v + arb(float(b))).exp()
                for a, b in zip(axis.slopes, axis.offsets, strict=True)
            ]
            total = sum(terms, arb(0))
            values = np.tensordot(np.array([t / total for t in terms], dtype=object), values, 1)
        result: Any = values[()] if isinstance(values, np.ndarray) else values
        for slope, v in zip(grid.slopes, point, strict=False):
            result = result + arb(float(slope)) * v
        known = dict(zip(variables, point, strict=True))
        final: arb = result + arb(float(grid.constant)) - enclose(expr, known)
        return final


def as_grid(table: Grid | Table) -> Grid:
    """A table as a grid of one axis."""
    if isinstance(table, Grid):
        return table
    return Grid((Axis(table.slopes, table.offsets),), table.values, (table.slope,), table.constant)


def float_error(expr: Expr, variables: Sequence[str], grid: Grid | Table, points: Floats) -> Floats:
    """The same in floats at many points, shape (points, d)."""
    grid = as_grid(grid)
    weights = [softmax(axis, points[:, k]) for k, axis in enumerate(grid.axes)]
    result: Any = np.tensordot(weights[0], grid.values, axes=1)
    for w in weights[1:]:
        result = np.einsum("nj,nj...->n...", w, result)
    for k, slope in enumerate(grid.slopes):
        result = result + slope * points[:, k]
    with np.errstate(all="ignore"):
        return np.asarray(
            result + grid.constant - numpy_function(expr, variables)(*points.T), dtype=np.float64
        )


def climb(
    size: Callable[[Floats], Floats],
    box: Sequence[tuple[float, float]],
    seed: int,
    points: int,
    special: Sequence[float] = (),
    keep: int = 12,
) -> Floats:
    """Where ``size`` is largest: random points, a lattice, near ends and kinks, then ascent from the best."""
    rng = np.random.default_rng(seed)
    low, high = np.array(box, dtype=float).T
    x = low + (high - low) * rng.random((points, len(box)))
    side = max(2, int(points ** (1 / len(box))))
    lattice = np.stack(np.meshgrid(*[np.linspace(a, b, side) for a, b in box]), axis=-1)
    tiny = 10.0 ** -rng.uniform(1, 12, (200, len(box)))
    near = [np.clip(s + sign * tiny, low, high) for s in (*special, 0.0) for sign in (1, -1)]
    ends = [low + (high - low) * tiny, high - (high - low) * tiny]
    x = np.concatenate([x, lattice.reshape(-1, len(box)), *near, *ends])
    best = x[np.argsort(size(x))[-keep:]]
    step = (high - low) / side
    for _ in range(25):
        trial = best[:, None] + step * rng.uniform(-1, 1, (1, 40, len(box)))
        trial = np.clip(np.concatenate([best[:, None], trial], axis=1), low, high)
        values = size(trial.reshape(-1, len(box))).reshape(trial.shape[:2])
        best = trial[np.arange(len(best)), values.argmax(axis=1)]
        step = step * 0.7
    return best


def attack(
    expr: Expr,
    variables: Sequence[str],
    box: Sequence[tuple[float, float]],
    grid: Grid | Table,
    seed: int = 0,
    points: int = 20_000,
    special: Sequence[float] = (),
) -> float:
    """Largest error of a table found, judged in 300 bits."""

    def size(at: Floats) -> Floats:
        return np.nan_to_num(np.abs(float_error(expr, variables, grid, at)))

    found = [abs(exact_error(expr, variables, grid, p)) for p in climb(size, box, seed, points, special)]
    return max(float(f.lower()) for f in found if f.is_finite())


def attack_model(model: Any, seed: int = 0, points: int = 4000, keep: int = 6) -> float:
    """Largest |T_w − f| of a compiled model found, judged in 300 bits on the stored weights."""
    from support.balls import BallTransformer
    from support.one_layer_models import truth

    names = model.box.variables
    functions = [numpy_function(expr, names) for expr in model.formula.outputs]
    # float ends may lie a rounding outside an end such as pi
    box = [(np.nextafter(a, b), np.nextafter(b, a)) for a, b in model.box.floats()]

    def size(at: Floats) -> Floats:
        computed = np.asarray(model(at), dtype=float).reshape(len(at), -1)
        with np.errstate(all="ignore"):
            wanted = np.stack([np.broadcast_to(f(*at.T), len(at)) for f in functions], axis=1)
        return np.asarray(np.nan_to_num(np.abs(computed - wanted)).max(axis=1))

    exact, found = BallTransformer(model.weights), [0.0]
    for point in climb(size, box, seed, points, keep=keep):
        with precision(300):
            errors = [abs(a - b) for a, b in zip(exact(point), truth(model, point), strict=True)]
            found += [float(e.lower()) for e in errors if e.is_finite()]
    return max(found)


def random_formula(seed: int, variables: Sequence[str], smooth: bool = False) -> Expr:
    """A random formula that is defined everywhere; kinks and infinite slopes included unless ``smooth``."""
    rng = random.Random(seed)

    def build(depth: int) -> str:
        if depth == 0 or rng.random() < 0.1:
            pick = rng.random()
            return rng.choice(list(variables)) if pick < 0.8 else str(rng.randint(1, 9)) + "/4"
        a, b = build(depth - 1), build(depth - 1)
        forms = [
            f"({a} + {b})", f"({a} - {b})", f"({a})*({b})", f"({a})*({b})",
            f"sin(2*({a}))", f"cos({a})", f"exp(-({a})**2)", f"atan({a})", f"tanh({a})",
            f"sqrt(1/10 + ({a})**2)", f"log(3/2 + sin({a}))", f"({a})/(2 + cos({b}))",
            f"abs({a})", f"min({a}, {b})", f"max({a}, {b})", f"abs({a})**(1/2)",
            f"(1 + ({a})**2)**(-3/2)", f"asin(sin({a})*9/10)", f"sinh(sin({a}))",
            f"cosh(atan({a}))", f"tan(sin({a}))", f"acos(cos({a})/2)", f"(3/2+sin({a}))**({b}/4)",
            f"({a})**3", f"sqrt(abs({a}))", f"({a})**2", f"abs({a})**(7/10)",
        ]  # fmt: skip
        if smooth:
            forms = [f for f in forms if not f.startswith(("abs(", "min(", "max(", "sqrt(abs("))]
        return rng.choice(forms)

    while True:
        text = build(rng.choice([2, 3, 3, 4]))
        expr = parse(text, variables)
        if variables_of(expr) == set(variables):
            return expr
