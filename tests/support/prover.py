"""Random formulas, their values in NumPy, and attacks on proven bounds."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformula.kernel.arithmetic import precision
from transformula.kernel.syntax.expression import Expr, variables_of
from transformula.kernel.syntax.parsing import parse

Floats = NDArray[np.float64]
_NAMES: dict[str, Callable[[Any], Any]] = {
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinc": lambda x: np.sinc(x / np.pi),
}


def numpy_function(expr: Expr, variables: Sequence[str]) -> Callable[..., Floats]:
    """The expression in plain NumPy (for fitting and guessing, never for proofs)."""

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
        return (_NAMES.get(node.op) or getattr(np, node.op))(args[0])

    return lambda *xs: value(expr, dict(zip(variables, xs, strict=True))) + 0 * sum(xs)


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
            f"(1 + ({a})**2)**(-3/2)", f"asin(sin({a})*9/10)", f"sinh(sin({a}))", f"sinc({a})",
            f"cosh(atan({a}))", f"tan(sin({a}))", f"acos(cos({a})/2)", f"(3/2+sin({a}))**({b}/4)",
            f"({a})**3", f"sqrt(abs({a}))", f"({a})**2", f"abs({a})**(7/10)",
        ]  # fmt: skip
        if smooth:
            forms = [f for f in forms if not f.startswith(("abs(", "min(", "max(", "sqrt(abs("))]
        return rng.choice(forms)

    while True:
        expr = parse(build(rng.choice([2, 3, 3, 4])), variables)
        if variables_of(expr) == set(variables):
            return expr


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
