"""What a formula's value is, from its text alone: an evaluator that shares nothing with the package.

Python's own parser reads the text, mpmath evaluates it to many digits, NumPy to a few for finding bad points.
A text means what docs/functions.md says: decimals are exact, ``**`` is a power, names of the box win over pi and E.
A quotient 0/0 and a logarithm of 0 are taken as limits (the claims are about continuous extensions), by looks beside the point.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

DIGITS = 60
#: How far beside a point 0/0 is looked at (in powers of ten), and the digits that needs.
_BESIDE, _MANY_DIGITS = (40, 44), 260


class Undefined(ArithmeticError):
    """The formula has no real value here."""


def _root(x: Any) -> Any:
    if x < -(mpmath.mpf(10) ** (10 - DIGITS)):  # what is 0 by an identity may be rounded down
        raise Undefined
    return mpmath.sqrt(max(x, 0))


def _log(x: Any) -> Any:
    if x == 0:
        raise ZeroDivisionError
    if not x > 0:
        raise Undefined
    return mpmath.log(x)


def _arc(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def found(x: Any) -> Any:
        if abs(x) > 1 + mpmath.mpf(10) ** (10 - DIGITS):  # what is 1 by an identity may be rounded up
            raise Undefined
        return mpmath.re(function(min(max(x, -1), 1)))

    return found


def _power(base: Any, by: Any) -> Any:
    whole = by == int(by)
    if base == 0 and by < 0:
        raise ZeroDivisionError
    if not whole and base < 0:
        raise Undefined
    return mpmath.power(base, int(by)) if whole else mpmath.power(base, by) if base else mpmath.mpf(0)


def _above(function: Callable[[Any], Any], low: int) -> Callable[[Any], Any]:
    def found(x: Any) -> Any:
        if not x > low:
            raise Undefined
        return function(x)

    return found


def _real(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def found(x: Any) -> Any:
        value = function(x)
        if mpmath.im(value) or not mpmath.isfinite(value):
            raise Undefined
        return mpmath.re(value)

    return found


def _angle(y: Any, x: Any) -> Any:
    if y == 0 and x <= 0:
        raise Undefined
    return mpmath.atan2(y, x)


def _half(x: Any) -> Any:
    """tanh(x/2), for the smooth steps."""
    return mpmath.tanh(x / 2)


#: What is beyond the elementary functions, by mpmath: names as in formulas, orders first.
SPECIAL: dict[str, Callable[..., Any]] = {
    "asinh": mpmath.asinh, "acosh": _real(mpmath.acosh), "atanh": _real(mpmath.atanh),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.root(abs(x), 3),
    "erf": mpmath.erf, "erfc": mpmath.erfc, "zeta": _above(mpmath.zeta, 1), "lambertw": _real(mpmath.lambertw),
    "gamma": _above(mpmath.gamma, 0), "lgamma": _above(mpmath.loggamma, 0), "digamma": _above(mpmath.digamma, 0),
    "airyai": mpmath.airyai, "airybi": mpmath.airybi, "Si": mpmath.si, "Ci": _above(mpmath.ci, 0),
    "Ei": _real(mpmath.ei), "li": _above(mpmath.li, 0), "fresnels": mpmath.fresnels, "fresnelc": mpmath.fresnelc,
    "ellipk": _real(mpmath.ellipk), "ellipe": _real(mpmath.ellipe),
    **{name: getattr(mpmath, name) for name in ("besselj", "bessely", "besseli", "besselk")},
    **{f"{kind}{n}": lambda x, kind=kind, n=n: getattr(mpmath, f"bessel{kind}")(n, x) for kind in "jyik" for n in (0, 1)},
    "legendre": mpmath.legendre, "hermite": mpmath.hermite, "laguerre": lambda n, x: mpmath.laguerre(n, 0, x),
    "chebyshevt": mpmath.chebyt, "chebyshevu": mpmath.chebyu,
    "log2": lambda x: _log(x) / mpmath.log(2), "log10": lambda x: _log(x) / mpmath.log(10),
    "log1p": lambda x: _log(1 + x), "exp2": lambda x: mpmath.power(2, x), "expm1": mpmath.expm1,
    "pow": _power, "hypot": mpmath.hypot, "atan2": _angle,
    **{name: getattr(mpmath, name) for name in ("sec", "csc", "cot", "sech", "csch", "coth")},
    "sigmoid": lambda x: (1 + _half(x)) / 2, "silu": lambda x: x * (1 + _half(x)) / 2,
    "logit": lambda x: _log(x) - _log(1 - x), "softplus": lambda x: mpmath.log1p(mpmath.exp(x)),
    "relu": lambda x: max(x, mpmath.mpf(0)), "gelu": lambda x: x * mpmath.ncdf(x), "softsign": lambda x: x / (1 + abs(x)),
    "floor": mpmath.floor, "ceil": mpmath.ceil, "sign": mpmath.sign, "heaviside": lambda x: (1 + mpmath.sign(x)) / 2,
    "mod": lambda x, y: x - y * mpmath.floor(x / y), "round": lambda x: mpmath.floor(x + 0.5),
    "trunc": lambda x: mpmath.sign(x) * mpmath.floor(abs(x)),
    "fmod": lambda x, y: x - y * mpmath.sign(x / y) * mpmath.floor(abs(x / y)),
    "xlogx": lambda x: mpmath.mpf(0) if x == 0 else x * _log(x),
    "clip": lambda x, low, high: min(max(x, low), high), "radians": mpmath.radians, "degrees": mpmath.degrees,
    "Phi": mpmath.ncdf, "sum": lambda *terms: mpmath.fsum(terms), "prod": lambda *factors: mpmath.fprod(factors),
    "factorial": lambda x: _above(mpmath.gamma, 0)(x + 1),
    "beta": lambda x, y: _above(lambda t: mpmath.beta(t, _above(lambda v: v, 0)(y)), 0)(x),
}  # fmt: skip


def _roughly(function: Callable[..., Any]) -> Callable[..., Any]:
    def found(*values: Any) -> float:
        try:
            return float(function(*(mpmath.mpf(float(v)) for v in values)))
        except (Undefined, ArithmeticError, ValueError):
            return float("nan")

    return np.vectorize(found, otypes=[float])


PRECISE: dict[str, Callable[..., Any]] = {
    **SPECIAL,
    **{name: getattr(mpmath, name) for name in ("sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "exp")},
    "sqrt": _root,
    "log": _log,
    "asin": _arc(mpmath.asin),
    "acos": _arc(mpmath.acos),
    "abs": abs,
    "min": min,
    "max": max,
    "sinc": lambda x: mpmath.sin(x) / x if x else mpmath.mpf(1),
}
ROUGH: dict[str, Callable[..., Any]] = {
    **{name: _roughly(function) for name, function in SPECIAL.items()},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "log", "sqrt", "abs")},
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinc": lambda x: np.sinc(x / np.pi),
    "min": lambda *a: np.minimum.reduce(np.broadcast_arrays(*a)),
        "max": lambda *a: np.maximum.reduce(np.broadcast_arrays(*a)),
}  # fmt: skip


_COMPARED = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}


class Truth:
    """One formula, by its text."""

    def __init__(self, text: str, names: Sequence[str]) -> None:
        self.text, self.names = text, tuple(names)
        self.tree = ast.parse(text.strip(), mode="eval").body

    def at(self, point: Sequence[float]) -> Any:
        """The value at a point of floats, each taken exactly; None where there is none."""
        try:
            with mpmath.workdps(DIGITS):
                return self._precise({n: mpmath.mpf(v) for n, v in zip(self.names, point, strict=True)})
        except ZeroDivisionError:
            return self._limit(point)
        except Undefined:
            return None

    def _limit(self, point: Sequence[float]) -> Any:
        """The value 1e-40 and 1e-44 away, in a direction that no formula has as a factor."""
        with mpmath.workdps(_MANY_DIGITS):
            found = []
            for far in (sign * mpmath.mpf(10) ** -power for power in _BESIDE for sign in (1, -1)):
                step = [far * (k + mpmath.sqrt(2)) for k in range(len(point))]
                at = {n: mpmath.mpf(v) + s for n, v, s in zip(self.names, point, step, strict=True)}
                try:
                    found.append(self._precise(at))
                except (Undefined, ZeroDivisionError):
                    continue
            if not found or max(found) - min(found) > mpmath.mpf(10) ** (-_BESIDE[0] // 4) or abs(found[0]) > 1e30:
                return None
            return found[0]

    def _precise(self, at: dict[str, Any]) -> Any:
        def number(node: ast.Constant) -> Any:
            exact = Fraction(ast.get_source_segment(self.text.strip(), node) or "")
            return mpmath.mpf(exact.numerator) / exact.denominator

        return self._value(self.tree, at, {"pi": +mpmath.pi, "E": +mpmath.e}, PRECISE, number, _power)

    def rough(self, points: Any) -> Any:
        """Values at samples × inputs, in the best floats there are; not a number where it is undefined."""
        columns = np.asarray(points, dtype=np.longdouble).T
        at = dict(zip(self.names, columns, strict=True))
        constants = {"pi": np.longdouble(np.pi), "E": np.longdouble(np.e)}
        with np.errstate(all="ignore"):
            value = self._value(self.tree, at, constants, ROUGH, lambda node: np.longdouble(node.value), np.power)
        return np.broadcast_to(np.asarray(value, dtype=np.longdouble), (columns.shape[1],))

    def _value(self, node: Any, at: Any, constants: Any, functions: Any, number: Any, power: Any) -> Any:
        if isinstance(node, ast.Constant):
            return number(node)
        if isinstance(node, ast.Name):
            return at[node.id] if node.id in at else constants[node.id]
        if isinstance(node, ast.Call) and node.func.id == "where":
            return self._chosen(node.args, (at, constants, functions, number, power))
        parts = node.args if isinstance(node, ast.Call) else [node.operand] if isinstance(node, ast.UnaryOp) else None
        parts = [node.left, node.right] if parts is None else parts
        values = [self._value(part, at, constants, functions, number, power) for part in parts]
        if isinstance(node, ast.Call):
            return functions[node.func.id](*values)
        if isinstance(node, ast.UnaryOp):
            return -values[0] if isinstance(node.op, ast.USub) else values[0]
        left, right = values
        if isinstance(node.op, ast.Div):
            return left / right
        if isinstance(node.op, ast.Pow):
            return power(left, right)
        return (
            left + right
            if isinstance(node.op, ast.Add)
            else left - right
            if isinstance(node.op, ast.Sub)
            else left * right
        )

    def _chosen(self, parts: list[Any], known: Any) -> Any:
        """One of two values by a comparison; of points, both are evaluated."""
        left, right = (self._value(part, *known) for part in (parts[0].left, parts[0].comparators[0]))
        holds = _COMPARED[type(parts[0].ops[0])](left, right)
        if isinstance(holds, np.ndarray):
            return np.where(holds, *(self._value(part, *known) for part in parts[1:]))
        return self._value(parts[1] if holds else parts[2], *known)


class Domain:
    """The box of a claim, from its text; points are floats that lie in it exactly."""

    def __init__(self, text: str) -> None:
        self.names: list[str] = []
        ends: list[tuple[Any, Any]] = []
        for part in _split(text):
            name, _, interval = part.partition("=")
            self.names.append(name.strip())
            low, _, high = interval.partition("..")
            ends.append((Truth(low, ()).at(()), Truth(high, ()).at(())))
        self.lower = np.array([_inside(low, 1) for low, _ in ends])
        self.upper = np.array([_inside(high, -1) for _, high in ends])

    def points(self, rng: np.random.Generator, count: int) -> Any:
        """Corners, points near the middle, near zero and near the ends, and random ones: samples × inputs."""
        d, low, high = len(self.names), self.lower, self.upper
        share = rng.random((count, d))
        kind = rng.random((count, d))
        share = np.where(kind < 0.15, np.round(share), share)  # faces and corners
        share = np.where((kind > 0.15) & (kind < 0.22), 0.5, share)
        steps = 2.0 ** -rng.integers(2, 50, (count, d))
        share = np.where((kind > 0.22) & (kind < 0.29), steps, share)  # close to an end
        share = np.where((kind > 0.29) & (kind < 0.36), 1 - steps, share)
        x = low + (high - low) * share
        signed = np.where(rng.random((count, d)) < 0.5, steps, -steps) * (kind < 0.40)
        zero = (kind > 0.36) & (kind < 0.42) & (low <= 0) & (high >= 0)
        x = np.where(zero, signed, x)
        if d > 1:  # some points with equal or opposite coordinates
            same = rng.random(count) < 0.06
            x[same] = x[same, :1] * np.where(rng.random((int(same.sum()), d)) < 0.7, 1, -1)
        corners = np.array(np.meshgrid(*zip(low, high, strict=True))).reshape(d, -1).T if d <= 6 else x[:0]
        return np.clip(np.concatenate([corners, x]), low, high)


def _split(text: str) -> list[str]:
    parts, depth = [""], 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _inside(end: Any, direction: int) -> float:
    """The float nearest to an end that does not lie beyond it."""
    found = float(end)
    with mpmath.workdps(DIGITS):
        while (mpmath.mpf(found) - end) * direction < 0:
            found = float(np.nextafter(found, np.inf * direction))
    return found
