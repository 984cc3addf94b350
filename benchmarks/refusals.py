"""Formulas that are refused: the seconds that takes, and whether what the refusal advises succeeds.

``python benchmarks/refusals.py [WORD ...]`` prints a line for each (those with all these words); every formula has a process
of its own, and times are of the processor. A refusal above 10 seconds, or advice that fails when it is followed, is an
error. Formulas that are proven by now are listed as such.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import transformula as tf
import uncached  # noqa: F401
from transformula.errors import NotProvenError, TransformulaError, advice_of

MOST_SECONDS = 10.0
F32: dict[str, Any] = {"dtype": "float32"}
UNIT, PAIR = "x=0..1", "x=0..1, y=0..1"
SIX = "a=0..1, b=0..1, c=0..1, d=0..1, f=0..1, g=0..1"


def _as(construction: str, **more: Any) -> dict[str, Any]:
    return {"construction": construction, **more}


#: Formula, box, options.
REFUSED: list[tuple[Any, str, dict[str, Any]]] = [
    # undefined or unbounded on the box
    ("log(x)", "x=-1..1", {}), ("1/x", "x=-1..1", {}), ("1/(x - y)", PAIR, {}), ("tan(x)", "x=0..2", {}),
    ("sqrt(x*y - 1/2)", PAIR, {}), ("asin(x + y)", PAIR, {}), ("log(x)", UNIT, {}), ("1/sqrt(x)", UNIT, {}),
    ("x^y", "x=0..1, y=-1..1", {}), ("gamma(x)", "x=-1/2..2", {}), ("acosh(x*y)", "x=0..2, y=0..2", {}),
    ("log(sin(x))", "x=0..3", {}), ("1/(1 - v**2/c**2)**(1/2)", "v=0..3e8, c=299792458", {}),
    ("sqrt(1 - x**2 - y**2)", "x=-1..1, y=-1..1", {}),
    # tolerances below rounding
    ("exp(x)", UNIT, {"eps": 1e-15}), ("sin(x)*exp(y)", PAIR, {"eps": 1e-16}), ("x**2*y", "x=0..1e6, y=0..1", {"eps": 1e-12}),
    ("x*y", PAIR, {"eps": 1e-9, **F32}), ("exp(x)", "x=0..20", {"eps": 1e-3, **F32}), ("a*b*c*d*f*g", SIX, {"eps": 1e-8, **F32}),
    ("sqrt(x)", UNIT, {"eps": 1e-14}), ("sin(x)/x", "x=-3..3", {"eps": 1e-15}), ("tanh(50*x)", "x=-1..1", {"eps": 1e-14}),
    ("x + y", "x=0..1e6, y=0..1", {"eps": 1e-12, **F32}), ("exp(x)", UNIT, {"eps": 1e-7, **F32}),
    # sums that cancel, large values
    ("(x + 1e9) - 1e9*cos(x)", UNIT, {"eps": 1e-9}), ("exp(x) - exp(x - 1e-9)", "x=0..10", {"eps": 1e-14}),
    ("exp(x**2)*sin(y)", "x=0..5, y=0..3", {"eps": 1e-6}), ("x**20*sin(y)*z", "x=0..3, y=0..3, z=0..10", {"eps": 1e-6}),
    ("log(1 + exp(50*x)) - 50*max(x, 0)", "x=-1..1", {"eps": 1e-12}), ("sqrt(x**2 + 1e12) - 1e6", UNIT, {"eps": 1e-12}),
    # many oscillations, and steep places
    ("sin(1000*x)", "x=0..10", {"eps": 1e-3}), ("sin(1/x)", "x=0.001..1", {}), ("sin(300*x*y)", PAIR, {}),
    (" + ".join(f"cos(7**{k}*pi*x)/2**{k}" for k in range(6)), "x=-1..1", {}),
    ("atan(sin(2*pi*x)/(1.01 + cos(2*pi*x)))", "x=0..4", {}), ("sin(exp(5*x))*y", PAIR, {}),
    ("exp(-1e6*(x - y)**2)", PAIR, {}), ("tanh(1e5*(x - 1/3))", UNIT, {}), ("x**(1/50)", UNIT, {}),
    ("sin(50*x)*cos(50*y)*sin(50*z)", "x=0..1, y=0..1, z=0..1", {"eps": 1e-9}),
    # found to be slow
    ("x**(a - 1)*(1 - x)**(b - 1)*gamma(a + b)/(gamma(a)*gamma(b))", "x=0.01..0.99, a=0.5..5, b=0.5..5", {}),
    ("x**(a - 1)*(1 - x)**(b - 1)/beta(a, b)", "x=0..1, a=2..5, b=2..5", {}),
    ("d1 = (log(S/K) + (r + s**2/2)*T)/(s*sqrt(T)); S*Phi(d1) - K*exp(-r*T)*Phi(d1 - s*sqrt(T))",
     "S=50..150, K=50..150, r=0..0.1, s=0.05..0.5, T=0.1..2", {}),
    ("x**y", "x=1/10..2, y=1..2", _as("lookup")), ("x**y", "x=1/10..2, y=-2..2", _as("lookup", eps=1e-9)),
    ("sin(x)", UNIT, _as("corollary", eps=1e-25)), ("sin(30*x)", "x=0..3", _as("corollary", eps=1e-4)),
    ("exp(x*y*z)*sin(a)", "x=0..2, y=0..2, z=0..2, a=0..6", _as("corollary", eps=1e-6)),
    ("abs(x - y)", PAIR, _as("corollary", eps=1e-3)), ("1/(1 + 25*x*x*y*y)", "x=-1..1, y=-1..1", _as("corollary", eps=1e-6)),
    ("exp(-x*y)*sin(3*x + y)", PAIR, _as("corollary", eps=1e-9, **F32)),
    # constructions that do not fit
    ("sin(a)*sin(b)*sin(c)*sin(d)*sin(f)", SIX.replace("0..1", "0..3")[:-8], _as("lookup")),
    ("sin(x*y*z)", "x=0..3, y=0..3, z=0..3", _as("lookup", eps=1e-6)), ("sin(x + y*z)", "x=0..3, y=0..3, z=0..3", _as("partition")),
    ("sin(100*x)", "x=0..10", _as("partition", eps=1e-3)), ("exp(x*y)", "x=0..3, y=0..3", _as("partition", eps=1e-6)),
    ("abs(x)", "x=-1..1", _as("polynomial", eps=1e-6)), ("exp(x)", UNIT, _as("polynomial", eps=1e-6)),
    ("sin(x)*exp(y)*z", "x=0..3, y=0..3, z=0..3", {"layers": 1}), ("sqrt(x**2 + y**2 + z**2 + a**2)", SIX[:0] + "x=0..1, y=0..1, z=0..1, a=0..1", _as("lookup")),
    ("sin(x)*y", "x=0..3, y=0..3", _as("yun", eps=1e-4)), ("a*b + c*d + sin(f*g)", SIX, _as("partition", eps=1e-2)),
    # jumps
    ("where(Re < 2300, 64/Re, 0.316/Re**0.25)", "Re=500..5000", {}), ("floor(x)", "x=0..3", {}), ("sign(x)*x + sign(x)", "x=-1..1", {}),
    ("x - floor(x)", "x=0..2", {}), ("where(x > y, 1, 0)", PAIR, {}), ("where(x*x < 1/4, 1, 2)", UNIT, {}),
    # several variables
    ("sqrt((x1 - x2)**2 + (y1 - y2)**2)/(z1 - z2)", "x1=0..1, x2=0..1, y1=0..1, y2=0..1, z1=0..1, z2=2..3", {"eps": 1e-13}),
    ("asin(x*exp(1 - x))", "x=0..2", {"eps": 1e-3}), ("acos(sin(p)*sin(q) + cos(p)*cos(q)*cos(l))", "p=0..1, q=0..1, l=0..1", {}),
    ("x*y*z/(x + y + z)", "x=0..1, y=0..1, z=0..1", {}), ("exp(-a*b)*log(1 + c*d)*sqrt(f + g)", SIX, {"eps": 1e-14}),
    ("asin(n*sin(theta2))", "n=0..1, theta2=1..5", {"rel": 1e-3, **F32}), ("asin(lambd/(n*d))", "lambd=1..2, d=2..5, n=1..5", {"rel": 1e-3, **F32}),
    ("x", UNIT, {"pointwise": 1e-3}), ("exp(-x)*sin(y)", "x=0..30, y=0.1..3", {"pointwise": 1e-9}), ("exp(-x)", "x=0..30", {"pointwise": 1e-9, **F32}),
]  # fmt: skip


def outcome(formula: Any, box: str, options: dict[str, Any]) -> list[str]:
    """Proven or refused, seconds, and what was said; then what came of each piece of advice."""
    start = time.process_time()
    try:
        model = tf.compile(formula, box, **options)
    except TransformulaError as error:
        seconds = time.process_time() - start
        kind = "refused" if isinstance(error, NotProvenError) else "input"
        return [
            kind,
            f"{seconds:.1f}",
            str(error),
            *(_followed(one, formula, box, options) for one in advice_of(error)),
        ]
    bound = model.certificate.bound
    return ["proven", f"{time.process_time() - start:.1f}", f"{model.construction}, {model.tokens} tokens, {bound:.2g}"]


def _followed(advice: dict[str, Any], formula: Any, box: str, options: dict[str, Any]) -> str:
    tolerances = ("eps", "rel", "pointwise")
    kept = {name: value for name, value in options.items() if name not in tolerances or not {*tolerances} & {*advice}}
    asked = {"formula": formula, "on": box, **kept, **advice}
    start = time.process_time()
    try:
        model = tf.compile(asked.pop("formula"), asked.pop("on"), **asked)
    except TransformulaError as error:
        return f"FAILS {advice} ({time.process_time() - start:.1f} s): {error}"
    return f"holds {advice} ({time.process_time() - start:.1f} s): {model.certificate.bound:.2g}"


def in_a_process(case: tuple[Any, str, dict[str, Any]]) -> list[str]:
    """The outcome, found in a process of its own."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            said = outcome(*case)
        except BaseException as error:
            said = ["CRASHED", "inf", f"{type(error).__name__}: {error}"]
        with os.fdopen(writer, "wb") as pipe:
            pipe.write("\0".join(said).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    os.wait()
    return said.split("\0") if said else ["CRASHED", "inf", ""]


def main(words: list[str]) -> None:
    """Run them and print; the exit code says whether something is wrong."""
    bad = []
    for case in REFUSED:
        text = f"{case[0]} on {case[1]} {case[2] or ''}"
        if all(word in text for word in words):
            kind, seconds, said, *followed = in_a_process(case)
            print(f"{kind:8}{seconds:>6} s  {text}\n          {said}", *followed, sep="\n          ", flush=True)
            slow = kind == "refused" and not float(seconds) <= MOST_SECONDS
            if slow or kind == "CRASHED" or any(one.startswith("FAILS") for one in followed):
                bad.append(text)
    print(f"{len(bad)} bad:", *bad, sep="\n")
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main(sys.argv[1:])
