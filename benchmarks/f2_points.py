"""A million points of f2* against the NumPy code that sympy writes for the same formula."""

from __future__ import annotations

import numpy as np

from compiling import F2, F2_BOX
from report import Line, seconds

POINTS = 1_000_000


def measure() -> list[Line]:
    """Both in this process, turn by turn."""
    import sympy

    import transformula as tf

    model = tf.compile(F2, on=F2_BOX)
    names = sympy.symbols("x1:10")
    lambdified = sympy.lambdify(names, sympy.sympify(F2), "numpy")
    x = np.random.default_rng(0).uniform(-3, 3, size=(POINTS, 9))
    columns = np.ascontiguousarray(x.T)  # the best case for NumPy

    def ours() -> object:
        return model(x)

    def theirs() -> object:
        return lambdified(*columns)

    difference = float(np.max(np.abs(ours() - theirs())))
    assert difference < 1e-10, difference
    a, b = seconds(ours, 7), seconds(theirs, 7)
    return [
        Line(f"f2* at 10^6 points, against lambdify (differ by {difference:.0e})", f"{a:.3f} s", f"{b:.3f} s",
             f"{a / b:.2f}x its time", "<= 2x", a <= 2 * b)
    ]  # fmt: skip
