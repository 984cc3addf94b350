"""A formula as a function of arrays in NumPy, numexpr or torch: what a user would run instead of a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

#: The functions of the case formulas.
FUNCTIONS = ("sin", "cos", "exp", "log", "sqrt", "tanh", "abs")


def plain_function(text: str, variables: Sequence[str], library: Any) -> Callable[[Any], Any]:
    """A function of samples × variables; ``library`` is the module numpy or torch."""

    def either(name: str) -> Callable[[Any], Any]:
        array, number = getattr(library, name), getattr(math, name, abs)
        return lambda value: number(value) if isinstance(value, float | int) else array(value)

    names = {name: either(name) for name in FUNCTIONS} | {"pi": math.pi}
    run = eval(f"lambda {', '.join(variables)}: {text}", names)  # texts of our own benchmarks
    return lambda x: run(*(x[:, k] for k in range(len(variables))))


def numexpr_function(text: str, variables: Sequence[str]) -> Callable[[Any], Any]:
    """The same through numexpr, on one thread."""
    import numexpr

    numexpr.set_num_threads(1)
    code = numexpr.NumExpr(
        text.replace("pi", repr(math.pi)), [(name, numexpr.necompiler.double) for name in variables], truediv=True
    )
    return lambda x: code(*(x[:, k] for k in range(len(variables))))
