"""FPBench's expressions with bounded inputs, from the files that a user points to: how many are proven.

``python benchmarks/fpbench.py FILE.fpcore ... [--rel 1e-6]`` converts every FPCore whose arguments all have two numeric
bounds in its precondition and whose body has no loop, compiles it in a process of its own at ``--rel`` of its largest
value, and prints a line for each and the counts. FPBench itself is not part of this repository.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import resource
import time
from collections import Counter
from pathlib import Path
from typing import Any

import transformula as tf
import uncached  # noqa: F401
from transformula.errors import TransformulaError

CPU_SECONDS = 60
_TOKEN = re.compile(r';[^\n]*|"[^"]*"|[()\[\]]|[^\s()\[\]";]+')
_NAMES = {"fabs": "abs", "fmax": "max", "fmin": "min", "E": "exp(1)", "PI": "pi", "PI_2": "(pi/2)", "PI_4": "(pi/4)",
          "SQRT2": "sqrt(2)", "LN2": "log(2)", "LN10": "log(10)", "M_PI": "pi"}  # fmt: skip
_COMPARED = ("<", ">", "<=", ">=")


class UnsupportedError(Exception):
    """A construct of FPCore that is no formula: a loop, an array."""


def trees(text: str) -> list[Any]:
    """The S-expressions of a file as nested lists."""
    stack: list[list[Any]] = [[]]
    for token in _TOKEN.findall(text):
        if token[0] in "([":
            stack.append([])
        elif token[0] in ")]":
            done = stack.pop()
            stack[-1].append(done)
        elif token[0] != ";":
            stack[-1].append(token)
    return stack[0]


def formula_of(tree: Any, names: dict[str, str]) -> str:
    """A body as text of ours; ``names`` gives what let-bound names stand for."""
    if isinstance(tree, str):
        return names.get(tree) or _NAMES.get(tree) or (f"({tree})" if tree[0] in "-+" else tree)
    head, *rest = tree
    if head in ("let", "let*"):
        inner = dict(names)
        for name, value in rest[0]:
            inner[name] = formula_of(value, inner if head == "let*" else names)
        return formula_of(rest[1], inner)
    if head == "!":
        return formula_of(rest[-1], names)
    if head == "cast":
        return formula_of(rest[0], names)
    if head == "if":
        return _choice(rest[0], *(formula_of(part, names) for part in rest[1:]), names)
    if not isinstance(head, str) or head.startswith(("while", "for", "array", "tensor", "dim", "ref", "digits")):
        raise UnsupportedError(str(head))
    args = [formula_of(part, names) for part in rest]
    if head in ("+", "*", "/") or (head == "-" and len(args) > 1):
        return f"({head.join(args)})"
    if head == "-":
        return f"(-{args[0]})"
    if head == "fma":
        return f"({args[0]}*{args[1]} + {args[2]})"
    if head == "pow":
        return f"({args[0]}**{args[1]})"
    return f"{_NAMES.get(head, head)}({', '.join(args)})"


def _choice(test: Any, yes: str, no: str, names: dict[str, str]) -> str:
    if test[0] == "and":
        return yes if len(test) == 1 else _choice(test[1], _choice(["and", *test[2:]], yes, no, names), no, names)
    if test[0] == "or":
        return no if len(test) == 1 else _choice(test[1], yes, _choice(["or", *test[2:]], yes, no, names), names)
    if test[0] not in _COMPARED or len(test) != 3:
        raise UnsupportedError(str(test[0]))
    left, right = (formula_of(part, names) for part in test[1:])
    return f"where({left} {test[0]} {right}, {yes}, {no})"


def box_of(names: list[str], condition: Any) -> str | None:
    """The box of a precondition, or None if an argument has no two numeric bounds."""
    low, high = dict[str, str](), dict[str, str]()
    parts = condition[1:] if condition and condition[0] == "and" else [condition]
    for part in parts:
        if not part or part[0] not in _COMPARED or any(isinstance(end, list) for end in part[1:]):
            return None
        chain = part[1:] if part[0][0] == "<" else part[:0:-1]
        for left, right in itertools.pairwise(chain):
            if right in names and left not in names:
                low[right] = left
            if left in names and right not in names:
                high[left] = right
    bounded = names and all(name in low and name in high for name in names)
    return ", ".join(f"{n}={low[n]}..{high[n]}" for n in names) if bounded else None


def cores(text: str) -> list[tuple[str, str, str]]:
    """Name, formula and box of every core of a file with bounded inputs and no loop."""
    found = []
    for core in trees(text):
        at = next(k for k, part in enumerate(core) if isinstance(part, list))
        keys = dict(zip(core[at + 1 : -1 : 2], core[at + 2 : -1 : 2], strict=False))
        arguments = [part[-1] if isinstance(part, list) else part for part in core[at]]
        safe = {
            name: re.sub(r"\W", "_", name) + ("_" if name in tf.kernel.syntax.expression.RESERVED else "")
            for name in arguments
        }
        box = box_of(arguments, keys.get(":pre"))
        if box is not None:
            try:
                text_ = formula_of(core[-1], safe)
            except UnsupportedError:
                continue
            for name in arguments:
                box = re.sub(rf"(?<!\w){re.escape(name)}=", f"{safe[name]}=", box)
            found.append((str(keys.get(":name", "?")).strip('"'), text_, box))
    return found


def _measured(formula: str, box: str, rel: float) -> str:
    """The outcome of one compile in a process of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 2))
        start = time.process_time()
        try:
            model = tf.compile(formula, box, rel=rel)
            said = f"proven\0{model.construction}, {model.memory_tokens} tokens, within {model.certificate.bound:.3g}"
        except TransformulaError as error:
            said = f"refused\0{error}"
        os.write(writer, f"{said} ({time.process_time() - start:.1f} s)".encode()[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said or "killed\0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--rel", type=float, default=1e-6)
    asked = parser.parse_args()
    counts: Counter[str] = Counter()
    for path in asked.files:
        for name, formula, box in cores(path.read_text(encoding="utf-8")):
            status, _, said = _measured(formula, box, asked.rel).partition("\0")
            counts[status] += 1
            print(f"{status:8} {name[:40]:40} {said[:400]}", flush=True)
    print(f"{sum(counts.values())} expressions: {dict(counts)}")


if __name__ == "__main__":
    main()
