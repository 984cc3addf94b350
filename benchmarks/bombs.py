"""Formulas and boxes that keep a check busy: long sums of special constants, thousands of pieces, deep nesting.

`BOMBS` names functions of a size; each gives what to put into a model.json. A check of such a folder must end within
the limits of its process (`kernel.isolation`), with a verdict.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

#: Functions and arguments at which one constant of many bits takes long; # is replaced by a number.
SLOW = (
    "zeta(2.#)", "ellipk(.#)", "li(.#1)", "gamma(9.#)", "lambertw(99.#)", "airyai(-30.#)", "Ci(999.#)",
    "fresnels(30.#)", "besselj(50, 99.#)", "besselk(99/2, 9.#)", "bessely(-50, 30.#)", "digamma(.#1)", "erf(9.#)",
    "Ei(-99.#)", "lgamma(1000000.#)", "exp_rest4(.#1)", "gamma_rest1_at1(1.#)", "zeta_rest1_at2(2.#1)",
)  # fmt: skip


def _sum(texts: Any) -> str:
    return " + ".join(texts)


def _constants(rng: random.Random, count: int) -> str:
    text = rng.choice(SLOW)
    return _sum(text.replace("#", f"{k:05d}") for k in range(count))


def _pieces(count: int, piece: str) -> str:
    parts = (f"({piece.replace('#', str(k))}, x < {k}/1000)" for k in range(1, count))
    return f"Piecewise({', '.join(parts)}, ({piece.replace('#', '1000')}, True))"


def _nested(text: str, depth: int) -> str:
    inner = "x"
    for _ in range(depth):
        inner = text.replace("#", inner)
    return inner


#: From a generator and a size between 0 and 1.
BOMBS: dict[str, Callable[[random.Random, float], dict[str, Any]]] = {
    "pieces": lambda rng, s: {"formulas": [_pieces(int(1 + 900 * s), rng.choice(("x*#/1000", "x")))]},
    "smooth pieces": lambda rng, s: {"formulas": [_pieces(int(1 + 300 * s), "sin(x)**3 + exp(x*sin(x))")]},
    "triangle waves": lambda rng, s: {
        "formulas": [_sum(f"abs(mod({k}*x, 1) - 1/2)" for k in range(1, int(2 + 100 * s)))]
    },
    "many jumps": lambda rng, s: {
        "formulas": ["*".join(f"abs(mod({int(1 + 199 * s) - k}*x, 1) - 1/2)" for k in range(rng.randint(1, 4)))]
    },
    "nested jumps": lambda rng, s: {"formulas": [_nested("abs(mod(7*(#), 1) - 1/2)", int(1 + 12 * s))]},
    "signs": lambda rng, s: {"formulas": [_sum(f"sign(x - {k}/300)*(x - {k}/300)" for k in range(int(1 + 300 * s)))]},
    "product of signs": lambda rng, s: {
        "formulas": ["*".join(f"(sign(x - {k}/300)*(x - {k}/300) + 1)" for k in range(int(1 + 200 * s)))]
    },
    "signs of long sums": lambda rng, s: {
        "formulas": [
            _sum(f"sign({_sum(f'{j}*sin({j + k}*x)' for j in range(1, 400))})" for k in range(int(1 + 150 * s)))
        ]
    },
    "constants": lambda rng, s: {"formulas": [f"x*({_constants(rng, int(1 + 30_000 * s))})"]},
    "constants in the box": lambda rng, s: {"box": f"x=0..({_constants(rng, int(1 + 30_000 * s))})"},
    "many outputs": lambda rng, s: {"formulas": ["where(x < 1/2, sin(x) + x**3, sin(x) + x**3)"] * int(1 + 999 * s)},
    "nested functions": lambda rng, s: {
        "formulas": [_nested(rng.choice(("gelu(#)", "sin(#)", "silu(#)")), int(1 + 40 * s))]
    },
    "powers": lambda rng, s: {"formulas": [f"(x + pi + sin(x) + {rng.randint(1, 9)})**{int(2 + 2000 * s)}"]},
    "product of sums": lambda rng, s: {
        "formulas": ["*".join(f"(x + {k}*pi + sin({k}*x))" for k in range(int(1 + 60 * s)))]
    },
}
