"""Every function a formula may contain: compiled on two boxes, verified, and attacked with mpmath.

``python benchmarks/functions.py`` compiles each at 1e-6 in float64 and at 1e-3 in float32, loads and verifies the saved
folder, compares the running weights with mpmath at many points, and writes docs/functions.md. With names, only these
are tried and nothing is written.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import transformula as tf
import uncached  # noqa: F401
from transformula.errors import TransformulaError
from transformula.kernel.functions.function_table import FUNCTIONS
from transformula.kernel.syntax.definitions import ALIASES, DEFINITIONS, JUMPING, POLYNOMIALS, known
from truth import Domain, Truth

PAGE = Path(__file__).resolve().parent.parent / "docs" / "functions.md"
#: A call and two boxes for each name.
BOXES = {
    "sin": ("sin(x)", "x=0..6", "x=-20..1"), "cos": ("cos(x)", "x=-1..1", "x=0..12"),
    "tan": ("tan(x)", "x=-1..1", "x=2..4"), "asin": ("asin(x)", "x=-0.9..0.9", "x=0..0.99"),
    "acos": ("acos(x)", "x=-0.9..0.9", "x=0..0.99"), "atan": ("atan(x)", "x=-3..3", "x=1..50"),
    "sinh": ("sinh(x)", "x=-2..2", "x=0..4"), "cosh": ("cosh(x)", "x=-2..2", "x=1..4"),
    "tanh": ("tanh(x)", "x=-2..2", "x=-9..9"), "exp": ("exp(x)", "x=-3..1", "x=0..3"),
    "log": ("log(x)", "x=0.1..2", "x=1..100"), "sqrt": ("sqrt(x)", "x=0.1..2", "x=1..100"),
    "abs": ("abs(x)", "x=-1..2", "x=-9..9"), "sinc": ("sinc(x)", "x=-4..4", "x=1..12"),
    "cbrt": ("cbrt(x)", "x=0.1..8", "x=-9..-1"),
    "asinh": ("asinh(x)", "x=-2..2", "x=1..50"), "acosh": ("acosh(x)", "x=1.1..3", "x=2..50"),
    "atanh": ("atanh(x)", "x=-0.9..0.9", "x=0..0.99"),
    "erf": ("erf(x)", "x=-2..2", "x=-6..6"), "erfc": ("erfc(x)", "x=-1..3", "x=0..6"),
    "gamma": ("gamma(x)", "x=0.5..4", "x=1..5"), "lgamma": ("lgamma(x)", "x=0.5..4", "x=1..30"),
    "digamma": ("digamma(x)", "x=0.5..4", "x=1..30"), "zeta": ("zeta(x)", "x=1.5..4", "x=2..12"),
    "lambertw": ("lambertw(x)", "x=-0.3..1", "x=0..50"),
    "airyai": ("airyai(x)", "x=-4..4", "x=0..5"), "airybi": ("airybi(x)", "x=-4..1", "x=0..2"),
    "Si": ("Si(x)", "x=-4..4", "x=0..20"), "Ci": ("Ci(x)", "x=0.5..8", "x=1..20"),
    "Ei": ("Ei(x)", "x=0.2..2", "x=-4..-0.2"), "li": ("li(x)", "x=1.2..4", "x=0.1..0.9"),
    "fresnels": ("fresnels(x)", "x=-2..2", "x=0..4"), "fresnelc": ("fresnelc(x)", "x=-2..2", "x=0..4"),
    "ellipk": ("ellipk(x)", "x=-1..0.9", "x=0..0.99"), "ellipe": ("ellipe(x)", "x=-1..0.9", "x=0..0.99"),
    "min": ("min(x, y)", "x=-1..1, y=-1..1", "x=0..2, y=-1..3"),
    "max": ("max(x, y)", "x=-1..1, y=-1..1", "x=0..2, y=-1..3"),
    "log2": ("log2(x)", "x=0.1..2", "x=1..100"), "log10": ("log10(x)", "x=0.1..2", "x=1..100"),
    "log1p": ("log1p(x)", "x=-0.9..1", "x=0..50"), "exp2": ("exp2(x)", "x=-3..1", "x=0..3"),
    "expm1": ("expm1(x)", "x=-3..1", "x=0..3"), "pow": ("pow(x, 5/2)", "x=0.1..2", "x=1..4"),
    "hypot": ("hypot(x, y)", "x=1..2, y=-1..1", "x=3..4, y=1..5"),
    "atan2": ("atan2(y, x)", "x=1..2, y=-1..1", "x=-1..1, y=1..2"),
    "sec": ("sec(x)", "x=-1..1", "x=2..4"), "csc": ("csc(x)", "x=0.5..2", "x=-2..-1"),
    "cot": ("cot(x)", "x=0.5..2", "x=-2..-1"), "sech": ("sech(x)", "x=-2..2", "x=0..6"),
    "csch": ("csch(x)", "x=0.5..2", "x=-6..-1"), "coth": ("coth(x)", "x=0.5..2", "x=-6..-1"),
    "sigmoid": ("sigmoid(x)", "x=-4..4", "x=-12..12"), "logit": ("logit(x)", "x=0.1..0.9", "x=0.01..0.5"),
    "softplus": ("softplus(x)", "x=-4..4", "x=-12..12"), "relu": ("relu(x)", "x=-4..4", "x=-1..2"),
    "gelu": ("gelu(x)", "x=-4..4", "x=-9..9"), "silu": ("silu(x)", "x=-4..4", "x=-9..9"),
    "softsign": ("softsign(x)", "x=-4..4", "x=0..9"), "factorial": ("factorial(x)", "x=-0.5..3", "x=0..4"),
    "beta": ("beta(x, 3/2)", "x=0.5..4", "x=1..5"), "clip": ("clip(x, 0, 1)", "x=-1..2", "x=0..4"),
    "xlogx": ("xlogx(x)", "x=0..1", "x=0..4"), "radians": ("radians(x)", "x=0..360", "x=-90..90"), "degrees": ("degrees(x)", "x=0..1", "x=-3..3"),
    "Phi": ("Phi(x)", "x=-3..3", "x=-6..6"),
    "sum": ("sum(x, sin(x), 1)", "x=0..1", "x=0..4"), "prod": ("prod(x, sin(x))", "x=0..1", "x=0..4"),
    "besselj": ("besselj(3/2, x)", "x=0.5..8", "x=1..20"), "bessely": ("bessely(2, x)", "x=1..8", "x=2..20"),
    "besseli": ("besseli(2, x)", "x=-3..3", "x=0..4"), "besselk": ("besselk(1/2, x)", "x=0.5..4", "x=1..9"),
    "j0": ("j0(x)", "x=0..8", "x=-20..20"), "j1": ("j1(x)", "x=0..8", "x=-20..20"),
    "y0": ("y0(x)", "x=0.2..8", "x=1..20"), "y1": ("y1(x)", "x=0.5..8", "x=1..20"),
    "i0": ("i0(x)", "x=-3..3", "x=0..4"), "i1": ("i1(x)", "x=-3..3", "x=0..4"),
    "k0": ("k0(x)", "x=0.2..4", "x=1..9"), "k1": ("k1(x)", "x=0.5..4", "x=1..9"),
    "legendre": ("legendre(5, x)", "x=-1..1", "x=0..2"), "hermite": ("hermite(4, x)", "x=-1..1", "x=0..2"),
    "laguerre": ("laguerre(4, x)", "x=0..1", "x=0..4"), "chebyshevt": ("chebyshevt(6, x)", "x=-1..1", "x=0..1"),
    "chebyshevu": ("chebyshevu(5, x)", "x=-1..1", "x=0..1"),
}  # fmt: skip
SETTINGS = (("float64", 1e-6), ("float32", 1e-3))


def attacked(model: Any, text: str, box: str, points: int, seed: int = 0) -> float:
    """The largest error found of the running weights, inputs in the model's own floats."""
    domain, truth = Domain(box), Truth(text, [part.partition("=")[0].strip() for part in box.split(",")])
    at = domain.points(np.random.default_rng(seed), points).astype(model.weights.dtype)
    at = at[((at >= domain.lower) & (at <= domain.upper)).all(axis=1)]
    said, rough = np.asarray(model(at), dtype=float).reshape(-1), truth.rough(at.astype(float))
    worst = np.argsort(-np.abs(said - rough.astype(float)))[:20]  # nan last
    found = [(said[k], truth.at(at[k].astype(float))) for k in worst.tolist()]
    return max((float(abs(value - real)) for value, real in found if real is not None), default=float("nan"))


def tried(name: str, box: str, dtype: str, eps: float, points: int = 2000) -> dict[str, Any]:
    """Compile, save, load, verify and attack one function on one box."""
    start, text = time.process_time(), BOXES[name][0]
    try:
        model = tf.compile(text, on=box, eps=eps, dtype=dtype)
    except TransformulaError as error:
        return {"call": text, "box": box, "dtype": dtype, "refused": str(error).splitlines()[0]}
    seconds = time.process_time() - start
    with tempfile.TemporaryDirectory() as folder:
        checked = tf.verify(model.save(Path(folder) / "model"))
    return {"call": text, "box": box, "dtype": dtype, "tokens": model.memory_tokens, "bound": model.certificate.bound,
            "verified": checked.verified, "error": attacked(model, text, box, points), "seconds": seconds}  # fmt: skip


def sweep(names: list[str]) -> Iterator[dict[str, Any]]:
    """All of these names, on both boxes, in both types of floats."""
    for name in names:
        for box in BOXES[name][1:]:
            for dtype, eps in SETTINGS:
                found = tried(name, box, dtype, eps)
                good = found.get("verified") and found["error"] <= found["bound"] <= eps
                print("ok " if good else "BAD", found, flush=True)
                yield found | {"good": good}


INTRODUCTION = """# Functions

A name before a bracket is a function; the same name without one is a variable (`gamma*x + gamma(x)`), except that
variables cannot have the names of elementary functions. `0.1` is 1/10, `ln` is `log`, `arcsin` is `asin`, and so on.
Every number in the second table is printed by `python benchmarks/functions.py`, which writes this page: each function is
compiled at 1e-6 in float64 and at 1e-3 in float32, verified from the saved folder, and compared with mpmath at 2,000
points (*error*, the largest found).

- `besselj(n, x)`, `bessely`, `besseli`, `besselk`: the order `n` is a whole number or a half; `j0`, `j1`, `y0`, ... for short.
- `legendre(n, x)`, `hermite` (the physicists'), `laguerre`, `chebyshevt`, `chebyshevu`: polynomials of degree `n`.
- `ellipk(m)` and `ellipe(m)` take the parameter m = k², as SciPy, mpmath and SymPy do. `fresnels` and `fresnelc` integrate
  sin and cos of πt²/2. `lambertw` is the principal branch, `Ei` and `li` are principal values.
- `gamma`, `lgamma`, `digamma` take positive numbers, `zeta` numbers above 1; `cbrt` any number.
- `atan2(y, x)` is refused where the box meets its branch cut, y = 0 with x ≤ 0.
- `where(x > 2*y, a, b)` and `Piecewise((a, x < 0), (b, x < 1), (c, True))`: each condition is linear in one of its variables,
  or a polynomial of one variable up to degree 8 whose factors over the rationals have degree 1 or 2, as in `x*x - x >= 0`, `x**2 < 2`
  and `abs(2*x - 1) < 3`. It is proven that the pieces meet on the seam (their normal forms are equal there); a jump is refused with its place and size.
- `floor`, `ceil`, `round`, `trunc`, `mod(x, c)`, `fmod`, `sign`, `heaviside` jump, and only formulas that are continuous on the
  whole box can be compiled, such as the triangle wave `abs(x - floor(x + 1/2))`, `mod(x, 1)*(1 - mod(x, 1))`, `x*sign(x)` or
  `sin(pi*mod(x, 1))`. As for `where`, it is proven that the pieces meet, a jump is refused with its place and size, and a
  box may contain at most 200 jumps. `sign(0)` is 0, `heaviside(0)` is 1/2, and `mod(x, c)` has the sign of `c`, as in Python.
- Quotients are extended continuously where they have a limit: `sin(x)/x`, `besselj(1, x)/x`, `expm1(x)/x`, `log1p(x)/x`, `(1 - cos(x))/x**2`,
  `x/tanh(x)`, `(sin(x) - x*cos(x))/x**3`, `x**4*exp(x)/(exp(x) - 1)**2`. So are sums of quotients, `coth(x) - 1/x`, differences over a
  diagonal, `(sin(x) - sin(y))/(x - y)`, quotients whose functions vanish together, `(1 - exp(-n*(1 - c)))/(1 - c*exp(-n*(1 - c)))` at c = 1, and
  `x**x`, `x*log(x)**2`, `sqrt(x)*log(x)` from 0, and quotients of inputs from 0 that are 0/0 at a corner, `x*y/(x + y)`, `1/(1/a + 1/b + 1/c)`,
  `x*y/sqrt(x**2 + y**2)`, `x**2/(x + y)`. The remainders are written `exp_rest1(x)` = (exp(x) - 1)/x, `cos_rest2(x)` = (cos(x) - 1)/x**2,
  `log_rest1_at1(x)` = log(x)/(x - 1); you may use these names too, for every function whose first terms are exact.
- Functions beyond the elementary ones are enclosed by Arb, with all derivatives ([trust.md](trust.md)); a new function is
  one entry in `kernel/functions/special_functions.py`.
"""


def page(rows: list[dict[str, Any]]) -> str:
    """docs/functions.md."""
    lines = [INTRODUCTION, "| written | stands for |", "| --- | --- |",
             *(f"| `{name}` | `{text}` |" for name, text in (DEFINITIONS | JUMPING).items()),
             *(f"| `{name}` | `{ours}` |" for name, ours in ALIASES.items()), "",
             "| call | box | floats | tokens | proven bound | error | seconds to compile |",
             "| --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for row in rows:
        if "refused" in row:
            lines.append(f"| `{row['call']}` | {row['box']} | {row['dtype']} | refused: {row['refused']} | | | |")
            continue
        numbers = f"{row['tokens']} | {row['bound']:.1e} | {row['error']:.1e} | {row['seconds']:.1f}"
        lines.append(f"| `{row['call']}` | {row['box']} | {row['dtype']} | {numbers} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    missing = set(known()) - set(BOXES)
    if missing:
        sys.exit(f"no boxes for {', '.join(sorted(missing))}")
    rows = list(sweep(sys.argv[1:] or list(BOXES)))
    bad = [row for row in rows if not row["good"]]
    if len(sys.argv) == 1:
        PAGE.write_text(page(rows), encoding="utf-8")
    print(f"{len(rows) - len(bad)} of {len(rows)} are proven, verified and hold; {len(FUNCTIONS)} entries, "
          f"{len(DEFINITIONS)} definitions, {len(POLYNOMIALS)} polynomials")  # fmt: skip
    sys.exit(bool(bad))
