"""Odd but valid formulas: each must be compiled and verified, or refused in one sentence, soon and in little memory.

``python benchmarks/odd_formulas.py [WORD ...]`` prints a line for each formula (those that contain a WORD) and ends with code 1 if any
crashed, hung or used too much. Every formula has a process of its own with 20 seconds of processor time and 2 GiB.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from typing import Any

import transformula as tf
import transformula.api
import uncached  # noqa: F401
from transformula.errors import TransformulaError

CPU_SECONDS, MAX_BYTES = 20, 2**31
ONE, TWO = "x=1..2", "x=1..2, y=1..2"
UNIT, PAIR = "x=-1..1", "x=-1..1, y=-1..1"
F32: dict[str, Any] = {"dtype": "float32", "eps": 1e-3}


def _nested(name: str, levels: int) -> str:
    return f"{name}(" * levels + "x" + ")" * levels


def _terms(pattern: str, count: int, joint: str = " + ") -> str:
    return joint.join(pattern.replace("#", str(k)) for k in range(1, count + 1))


#: What once crashed or never ended, with today's tolerances of the case.
KNOWN: list[tuple[Any, str, dict[str, Any]]] = [
    ("sqrt((x2-x1)**2+(y2-y1)**2)", "x1..x2=1..5, y1..y2=1..5", {"eps": 1e-9}),
    ("x*(y/x - y/x) + sin(x*y)", TWO, {}), ("exp(0*x*y) + x*y", TWO, {}), ("sin(x)*1e400", UNIT, {}),
    ("sin(x)**(10**1000)", UNIT, {}), ("sin(x)", "x=1e16..1e16+1", {}),
    ("sqrt(x*y)", "x=0..1e-200, y=0..1e200", {"rel": 1e-2}), ("sin(x*y)*sin(cos(3))/cos(3)", TWO, F32),
    ("exp(-800*x)*exp(y)*sin(z)*w", "x=1..2, y=0..1, z=0..1, w=0..1", {}),
    (f"sin({_terms('x#*y#', 50)})", "x1..x50=0..1, y1..y50=0..1", {}),
    ("x**y", "x=0..2, y=1..2", {}), ("2*x**2 - x*y + (0.5*x+0.7*y)**2", PAIR, {"dtype": "float32", "eps": 1e-5}),
]  # fmt: skip
#: Constants that fold to zero, or to nothing.
FOLDED = [
    (text, TWO, options)
    for text in (
        "0*x*y", "x - x + y*0", "(x - x)*sin(y)", "sin(x - x)*y", "cos(x - x)*sin(y)", "exp(x - x) + sin(x*y)", "(x*y)**0",
        "sin(0)*x + y", "log(1)*sin(x*y)", "(sin(x)**2 + cos(x)**2)*y", "x/x*sin(y)", "(x + y)/(x + y)*exp(x)",
        "sin(x*y) - sin(x*y)", "0/(1 + x**2) + y", "sqrt(0)*x + y", "(2 - 2)*x + sin(y)*0", "x*(1/y - 1/y)",
        "x**(1 - 1)*sin(y)", "exp(log(x*y))", "log(exp(x*y))", "abs(x*y) - x*y", "min(x, x) + sin(y)", "max(x - x, 0) + y",
        "sin(x)*0 + 3", "tan(atan(x*y))", "(x - y)*(x + y) - x**2 + y**2 + sin(x)*1e-30",
    )
    for options in ({}, F32)
]  # fmt: skip
SCALES: list[tuple[Any, str, dict[str, Any]]] = [
    ("1e300*sin(x)", UNIT, {}), ("1e300*sin(x)*1e-300", UNIT, {}), ("1e-300*sin(x*y)", PAIR, {}), ("1e-40*sin(x*y)", PAIR, F32),
    ("1e39*sin(x)", UNIT, {"dtype": "float32", "rel": 1e-3}), ("1e30*x*y*z", "x=0..1, y=0..1, z=0..1", {"rel": 1e-6}),
    ("sin(1e10*x)", UNIT, {}), ("sin(1e-10*x)*y", PAIR, {}), ("sin(x*1e300)", "x=0..1e-300", {}), ("x + 1e-300*sin(y)", PAIR, {}),
    ("exp(700*x)", UNIT, {"rel": 1e-3}), ("exp(-1000*x**2)", UNIT, {}), ("exp(exp(exp(x)))", "x=0..2", {"rel": 1e-3}),
    ("x*y", "x=0..1e200, y=0..1e200", {}), ("x*y", "x=0..1e-200, y=0..1e-200", {}), ("sin(x)*y", "x=0..1, y=0..1e300", {"rel": 1e-3}),
    ("x**2", "x=0..1e400", {}), ("sin(x)", "x=0..1e400", {}), ("sin(x)", "x=0..1e-300", {}), ("1/x", "x=1e-300..1", {"rel": 1e-3}),
    ("log(x)", "x=1e-300..1e300", {"rel": 1e-3}), ("sqrt(x)", "x=0..1e-300", {}), ("x/y", "x=1e-200..1, y=1e-200..1", {"rel": 1e-2}),
    ("sin(x)", "x=1e8..1e8+1", {}), ("sin(x)", "x=1e8..1e8+1", F32), ("x**50*y**50", PAIR, {"eps": 1e-3}),
    ("x**200", UNIT, {"eps": 1e-3}), ("tanh(1e6*x)", UNIT, {"eps": 1e-2}), ("1/(1e-12 + x**2)", UNIT, {"rel": 1e-2}),
    ("10**(-400)*x + sin(y)", PAIR, {}), ("x*2**(-1100) + y", PAIR, {}), ("x/10**320 + sin(y)", PAIR, {}),
]  # fmt: skip
BOXES: list[tuple[Any, str, dict[str, Any]]] = [
    ("sin(x)", "x=1..1", {}), ("x + y", "x=1..1, y=0..1", {}), ("sin(x)", "x=2..1", {}), ("sin(x)", "x=1..1+1e-30", {}),
    ("x**2", "x=1..1+1e-30", {}), ("sin(x)*y", "x=0..1e-12, y=0..1", {}), ("sin(x)", "x=-1e-320..1e-320", {}), ("3", "x=0..1", {}),
    ("sin(3)", "x=0..1, y=0..1", F32), ("sin(y)", "x=0..1, y=0..1, z=0..1", {}), ("y", "x1..x900=0..1, y=0..1", {}),
    ("sin(x900)", "x1..x900=0..1", {}), (["sin(x)", "2"], PAIR, {}), ("x", "x=pi..22/7", {}), ("sin(x)", "x=sqrt(2)..sqrt(2)+1e-9", {}),
]  # fmt: skip
NESTED: list[tuple[Any, str, dict[str, Any]]] = [
    (_nested("sin", 200), UNIT, {}), (_nested("sin", 90), UNIT, {}), (_nested("cos", 60), UNIT, F32), (_nested("abs", 90), UNIT, {}),
    (_nested("sqrt", 50), "x=0..1", {"eps": 1e-2}), (_nested("exp", 5), "x=-9..-8", {}), (_nested("tanh", 40), UNIT, {}),
    ("-" * 90 + "x", UNIT, {}), ("(" * 99 + "x" + ")" * 99, UNIT, {}), ("(" * 300 + "x" + ")" * 300, UNIT, {}),
    ("abs(abs(x) - 1/2)", UNIT, {}), ("abs(abs(abs(x) - 1/2) - 1/4)", UNIT, F32), ("min(x, max(y, min(x*y, 1/2)))", PAIR, {"eps": 1e-3}),
    ("max(max(max(x, y), -x), -y)", PAIR, {}), (f"max({_terms('x#', 30, ', ')})", "x1..x30=0..1", {}), ("min(sin(x), cos(x))", "x=0..3", {"eps": 1e-4}),
    ("1/(1 + 1/(1 + 1/(1 + 1/(1 + x**2))))", UNIT, {}), ("sin(sin(x) + sin(y))*sin(sin(x) + sin(y))", PAIR, {"eps": 1e-3}),
    ("sqrt(1 + sqrt(1 + sqrt(1 + x*y)))", "x=0..1, y=0..1", {}), ("exp(-abs(x))*abs(y)", PAIR, {"eps": 1e-3}),
]  # fmt: skip
MANY: list[tuple[Any, str, dict[str, Any]]] = [
    (_terms("x#", 50), "x1..x50=0..1", {}), (_terms("sin(x#)", 50), "x1..x50=0..1", {"eps": 1e-3}), (_terms("x#", 12, "*"), "x1..x12=0..1", {"eps": 1e-3}),
    (_terms("x#", 50, "*"), "x1..x50=0..1", {"eps": 1e-2}), (f"exp(-({_terms('x#**2', 50)}))", "x1..x50=-1..1", {"eps": 1e-3}),
    (f"sqrt(1 + {_terms('x#**2', 20)})", "x1..x20=-1..1", {}), (_terms("sin(#*x)", 40), UNIT, {"eps": 1e-3}), (_terms("x**#/#", 60), UNIT, {}),
    ([f"sin({k}*x)" for k in range(1, 40)], UNIT, {"eps": 1e-2}), (_terms("abs(x - #/20)", 20), UNIT, {}), (f"1/({_terms('x#', 30)})", "x1..x30=1..2", {}),
    ("sin(x*y)*sin(x*y)*sin(x*y) + cos(x*y)", PAIR, {"eps": 1e-4}), ("(x + y)**20", PAIR, {"rel": 1e-9}), (f"log({_terms('exp(x#)', 20)})", "x1..x20=0..1", {"eps": 1e-3}),
]  # fmt: skip
POWERS: list[tuple[Any, str, dict[str, Any]]] = [
    ("x**0", UNIT, {}), ("x**0*sin(y)", PAIR, {}), ("0**0*x", UNIT, {}), ("0**x", ONE, {}), ("0**x", UNIT, {}), ("1**x", UNIT, {}), ("(-1)**x", UNIT, {}),
    ("x**1", UNIT, {}), ("x**-1", ONE, {}), ("x**-1", UNIT, {}), ("x**(1/3)", UNIT, {}), ("x**(1/3)", "x=0..1", {"eps": 1e-2}), ("(-8)**(1/3)*x", ONE, {}),
    ("(-x)**(1/3)", "x=-1..0", {"eps": 1e-2}), ("(x**2)**(1/2)", UNIT, {}), ("(x**3)**(1/3)", "x=0..1", {}), ("x**x", "x=0..1", {"eps": 1e-2}), ("x**x", "x=1/10..2", {}),
    ("x**y", TWO, {}), ("x**y", TWO, F32), ("2**x**y", TWO, {}), ("x**0.1", "x=0..1", {"eps": 1e-1}), ("x**1e-30", ONE, {}), ("x**1e30", "x=0..1/2", {}),
    ("x**2.5", "x=0..2", {}), ("x**(-2.5)", ONE, F32), ("sqrt(x)**2", "x=0..1", {}), ("sqrt(x**2)", UNIT, {}), ("sqrt(x**2 + y**2)**2", PAIR, {}), ("(x - 1)**(1/2)", ONE, {"eps": 1e-2}),
    ("log(x)", "x=0..1", {}), ("1/x", UNIT, {}), ("1/(x - y)", PAIR, {}), ("sin(x)/x", UNIT, {}), ("(1 - cos(x))/x**2", UNIT, {}), ("asin(x)", UNIT, {"eps": 1e-2}), ("acos(2*x)", UNIT, {}),
    ("atan(1/x)", UNIT, {}), ("tan(x)", "x=0..2", {}), ("e^x", UNIT, {}), ("x^2^3", UNIT, {}),
]  # fmt: skip
FORMULAS = [*KNOWN, *FOLDED, *SCALES, *BOXES, *NESTED, *MANY, *POWERS]


def outcome(formula: Any, box: str, options: dict[str, Any]) -> tuple[str, str]:
    """What compiling comes to, and the words to say about it; in this process."""
    try:
        model = tf.compile(formula, box, **options)
        verified = tf.verify(model).verified
    except TransformulaError as error:
        whole = "\n" not in str(error) and len(str(error)) < 1200
        return ("refused" if whole else "RAMBLED"), str(error)
    except BaseException as error:
        return "CRASHED", f"{type(error).__name__}: {error}"
    said = f"{model.construction}, {model.tokens} tokens, within {model.certificate.bound:.2g}"
    return ("compiled" if verified else "DOES NOT VERIFY"), said


def _in_a_process(case: tuple[Any, str, dict[str, Any]]) -> tuple[str, str]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 2))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
        start = time.process_time()
        status, said = outcome(*case)
        os.write(writer, f"{status}\0{time.process_time() - start:5.1f} s  {said[:300]}".encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        status, _, said = pipe.read().decode().partition("\0")
    os.waitpid(child, 0)
    return status or "KILLED", said


def main() -> None:
    bad = 0
    for case in FORMULAS:
        text = str(case[0])
        if all(word in text for word in sys.argv[1:]):
            status, said = _in_a_process(case)
            bad += status.isupper()
            print(f"{status:9} {text[:60]:60} {case[1][:30]:30} {said}", flush=True)
    print(f"{len(FORMULAS)} formulas, {bad} bad")
    raise SystemExit(bad > 0)


if __name__ == "__main__":
    main()
