"""``where``, floor, mod and sign: the continuous formula that the kernel writes for them has the same values."""

from __future__ import annotations

import random
from fractions import Fraction

from fuzz.cases import Case, fuzzer
from fuzz.values import Unknown, Value, between, formula, put, rational
from transformula.kernel.enclosures.intervals import try_range
from transformula.kernel.exceptions import TransformulaError
from transformula.kernel.syntax.boxes import Formula

FUNCTIONS = ("sin", "cos", "abs", "exp", "sqrt", "log", "atan")
LINEAR = (
    "x", "y", "2*x", "x+y", "x-y", "x/2", "-x", "x+1/2", "pi*x", "x/4+1", "2*x-1", "x*pi/2", "3*x", "x-1/4", "y+x/2",
    "x**2", "sin(x)", "x*y", "2-x", "abs(x)",
)  # fmt: skip
LEAVES = (*LINEAR, "x", "y", "1", "1/2", "-1", "3/2")
#: Formulas made of jumps at u that are continuous, for any f or for some.
CONTINUOUS = (
    "abs(mod(u, 1) - 1/2)", "sign(u)*(u)", "sign(u)*(u)*(f)", "mod(u, 1)*(1 - mod(u, 1))", "sin(pi*floor(u))",
    "sin(pi*(u))*floor(u)", "floor(u) + sqrt(mod(u, 1))", "floor(u) + mod(u, 1)*(f)/(f)",
    "min(mod(u, 2), 2 - mod(u, 2))", "heaviside(u)*(u)**2", "(u)*trunc(u) - (u)*floor(u)",
    "abs(sin(pi*(u)))*sign(sin(u))*0", "(floor(u) - floor(u))*log(f)", "0*floor(u) + f", "sign(u)**2*abs(u)",
    "sqrt(abs(u))*sign(u)", "log(1 + abs(u))*sign(u)", "sign(u)*(u)/(u)*(u)", "floor(u)**2*sin(pi*(u))",
    "mod(u, 1)*mod(1 - (u), 1)", "abs(u - floor(u + 1/2))", "ceil(u)*sin(pi*(u))", "(u)*heaviside(u)",
)  # fmt: skip
JUMPS = (
    "floor(u)", "ceil(u)", "sign(u)", "round(u)", "trunc(u)", "heaviside(u)", "mod(u, 2)", "mod(u, -1)", "fmod(u, pi)",
    "mod(u, pi)",
)  # fmt: skip
#: Two pieces at the seam d = 0: most of them meet there.
PIECES = (
    ("f", "f"), ("f + d*(g)", "f"), ("f", "f + d*(g)"), ("(f)*exp(d)", "(f)*cos(d)"), ("abs(d)", "-d"),
    ("sqrt(d)", "0"), ("sqrt(d)", "d**2"),
    ("f + sqrt(d)", "f - sqrt(-d)"), ("log(1 + d)", "d/(1 - d)"), ("f + d", "(f)/(1 - d)"), ("max(d, 0)*(g)", "0"),
    ("sin(d)/d", "1"),
)  # fmt: skip
SIDES = ("x", "y", "2*x-1", "x+y", "x-y/2", "-x", "x-1/4", "4*y+x", "x**2", "abs(x)", "x**3-x", "2*abs(1-2*x)")
SEAMS = ("0", "1/4", "1", "y", "-1/2", "x/2", "log(y)", "1/y", "1/x", "sqrt(x)", "sqrt(y)")


def _piecewise(rng: random.Random) -> str:
    f, g = (rng.choice((formula(rng, 1, LEAVES, FUNCTIONS), "y", "1")) for _ in range(2))
    side, seam = rng.choice(SIDES), rng.choice(SEAMS)
    parts = {"f": f, "g": g, "d": f"({side}) - ({seam})"}
    a, b = (put(piece, **parts) for piece in rng.choice(PIECES))
    if rng.random() < 0.2:
        a = f"where({rng.choice(SIDES)} < {rng.choice(SEAMS)}, {a}, {a})"
    elif rng.random() < 0.2:
        b = _piecewise(rng)
    return f"where({side} {rng.choice(('<', '<=', '>', '>='))} {seam}, {a}, {b})"


def _text(rng: random.Random) -> str:
    kind, f, u = rng.random(), formula(rng, 1, LEAVES, FUNCTIONS), rng.choice(LINEAR)
    if kind < 0.35:
        return put(rng.choice(CONTINUOUS), u=u, f=f)
    if kind < 0.45:
        return put(f"({rng.choice(JUMPS)})*(f) + (f)", u=u, f=f)
    if kind < 0.55:  # the same piece on both sides: what is left is that the condition has to be defined
        return put(f"where({rng.choice(SIDES)} > {rng.choice(SEAMS)}, f, f)", f=rng.choice(("1", "x", "y")))
    return _piecewise(rng)


@fuzzer
def jumps(case: Case) -> None:
    """Write out a formula with jumps, and compare its values with those of the formula as typed."""
    rng, text = case.rng, _text(case.rng)
    ends = {name: sorted(Fraction(rng.randint(-24, 24), rng.choice((4, 8))) for _ in range(2)) for name in "xy"}
    box = ", ".join(f"{name}={a}..{b}" for name, (a, b) in ends.items())
    case.given = f"{text} on {box}"
    try:
        (expr,) = Formula.of(text, box).outputs
    except TransformulaError:
        return
    value = Value(text)
    for _ in range(6):
        point = {name: a + (b - a) * Fraction(rng.randint(0, 16), 16) for name, (a, b) in ends.items()}
        if rng.random() < 0.3:
            point["x"] = min(max(Fraction(rng.choice((0, 1, -1, 2))), ends["x"][0]), ends["x"][1])
        found = try_range(expr, {name: (rational(v),) * 2 for name, v in point.items()})
        try:
            wanted = value.at(point)
        except Unknown:
            continue
        if found is not None:
            case.check("what is written out is defined only where it was", wanted is not None, f"{point}: {found}")
        if found is not None and wanted is not None:
            holds = between(found[0], wanted, found[1])
            case.check("what is written out has the same values", holds, f"{point}: {wanted}, not in {found} of {expr}")
