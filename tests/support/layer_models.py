"""Models of several softmax layers without a feed-forward layer, compiled when first asked for."""

from functools import cache

import transformula as tf

#: name: formula, box, eps in float64, eps in float32, construction
FORMULAS = {
    "attention only": ("x*sin(y) + abs(x - 1/3) + y/7", "x=0..1, y=0..2", 0.6, 0.8, "attention-only"),
    "attention only, two outputs": (
        ["sqrt(x) + pi", "exp(x - 2*y)"], "x=0..1, y=-1/2..1/3", 0.1, 0.4, "attention-only",
    ),
    "local lines": ("x*exp(-y)", "x=-1..1, y=0..1", 0.02, 0.04, "local-polynomials"),
    "local polynomials": ("1/(1 + 25*x**2)", "x=-1..1", 1e-4, 3e-3, "local-polynomials"),
    "local polynomials, two outputs": (
        ["sin(2*x)", "x**3 - 1/3"], "x=-1..1", 1e-2, 2e-2, "local-polynomials",
    ),
}  # fmt: skip
DTYPES = ("float64", "float32")


@cache
def layered(name: str, dtype: str = "float64") -> tf.Model:
    formula, box, fine, coarse, construction = FORMULAS[name]
    return tf.compile(
        formula, on=box, eps=fine if dtype == "float64" else coarse, dtype=dtype, construction=construction
    )
