"""How long compiling (construction and proof together) takes, after imports."""

from __future__ import annotations

import random
from fractions import Fraction
from functools import partial

from report import Line, limit, seconds

F2 = "x1**5 + 3*x2**4 + 2*x3**3 + 5*x3*x4 + 3*x5**2 + 2*x6*x7*x8 + 2*x9"
F2_BOX = "x1..x9=-3..3"


def dense_text(variables: int, degree: int, seed: int = 0) -> str:
    """Every monomial up to the degree, with random rational coefficients."""
    rng = random.Random(seed)
    terms = []
    for exponents in _exponents(variables, degree):
        powers = [f"x{k + 1}**{e}" for k, e in enumerate(exponents) if e]
        terms.append("*".join([f"({Fraction(rng.randint(1, 99), 100)})", *powers]))
    return " + ".join(terms)


def _exponents(variables: int, degree: int) -> list[tuple[int, ...]]:
    if variables == 0:
        return [()]
    return [(e, *rest) for e in range(degree + 1) for rest in _exponents(variables - 1, degree - e)]


def measure() -> list[Line]:
    """f2*, a high degree, and many terms."""
    import transformula as tf

    tf.compile("x", on="x=0..1")
    cases = [
        ("f2*", F2, F2_BOX, 5, 0.5),
        ("degree 12 in 3 variables (455 terms)", dense_text(3, 12), "x1..x3=-1..1", 2, 10),
        ("degree 5 in 10 variables (3003 terms)", dense_text(10, 5), "x1..x10=-1..1", 1, 30),
    ]
    return [
        limit(f"compile {name}", seconds(partial(tf.compile, text, on=box), repeat), at_most)
        for name, text, box, repeat, at_most in cases
    ]
