"""Hostile input through the command line: forged folders, texts that are no formulas, files that are no tables.

``python benchmarks/hostile.py OUT.json [--inputs 600]`` draws inputs by seed and runs ``python -m transformula`` on each in a
process of its own, in a folder that also holds files of somebody else. What must hold of every run:

* it ends with exit code 0, 1 or 2 (an error that is the package's own fault has another), and prints no traceback;
* with ``--json`` stdout is one JSON object;
* a folder is called proven only if the kernel accepts it;
* the other files are as they were;
* it takes at most 10 s of processor time and 1 GB.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))
import forging

SECONDS, MEGABYTES = 10.0, 1024.0
KINDS = ("folder", "text", "csv")
BASES = ["sine", "sum", "grid", "sequence", "cells", "product32", "bent", "cubic", "heads", "memory"]
FORMULAS = ("sin(3*x) + y", "x*y/(1 + y**2)", "x**3 - 2*x*y", "max(x, y) + abs(x - 1/3)", "sqrt(x + 2)*exp(y)")
PIECES = (
    "(", ")", "**", "*", "/", "-", "+", ",", "..", "=", "x", "y", "z", "sin(", "log(", "tan(", "1e999", "1e-999", "0", "0/0",
    "1/0", "10**10**10", "9" * 400, "\x00", "\n", "\t", "\u202e", "é", "²", "π", "∞", "nan", "inf", "None", "__class__",
    "x.y", "x[0]", "lambda: 0", "'", '"', "\\", "$(touch gone)", "`id`", "%s", "{0}", "#", ";", "<script>", "e**x", "sin x",
    "()" * 40, "(" * 300, "-" * 3000, "x**" * 50 + "x", "+x" * 3000, "sin(" * 400 + "x" + ")" * 400, "x1..x99=0..1",
)  # fmt: skip
BOXES = (
    "x=-1..1, y=0..1",
    "x=0..1",
    "x=-1..1, y=1..0",
    "x=0...1, y=0..1",
    "x=-1e308..1e308, y=0..1",
    "",
    "x",
    "x=1..1, y=1..1",
)
EPS = ("1e-3", "0.1", "0", "-1", "nan", "inf", "1e-400", "1e400", "1e-17", "x", "")
CELLS = (
    "1", "2.5", "-3e4", "1e308", "1e-308", "1e400", "nan", "inf", "", " ", "x", "=1+1", "1,5", "0x10", "1_000", "½", "\x00", '"', '""',
    "é" * 50, "9" * 500, "1;2", "\t", "true", "2026-01-01",
)  # fmt: skip


@dataclass
class Run:
    """What is run, on which files, and whether the word "proven" is allowed."""

    arguments: list[str]
    files: dict[str, bytes]
    proven: bool
    stdin: bytes = b""


def folder_run(bases: dict[str, forging.Folder], rng: random.Random) -> Run:
    """A forged folder, all hashes made to fit, read by one of the verbs."""
    _, _, folder, _ = forging.changed(bases, rng.randrange(10**9))
    files = forging.written(folder)
    if files is None:
        return folder_run(bases, rng)
    verified = forging.judge(files)["verified"]
    inputs = folder.body.get("inputs", []) if isinstance(folder.body, dict) else []
    names = (
        [name for name in inputs if isinstance(name, str) and name.isidentifier()] if isinstance(inputs, list) else []
    )
    point = ",".join(f"{name}={rng.choice(('0', '1/3', '0.5'))}" for name in names) or "x=0"
    verb = rng.choice((
        ["verify", "m"], ["show", "m"], ["show", "m", "--tables"], ["show", "m", "--svg", "made.svg"], ["eval", "m", "--at", point],
        ["eval", "m", "--at", point, "--exact"], ["export", "m", "--to", "onnx", "--out", "made.onnx"], ["report", "m", "--out", "made.html"],
    ))  # fmt: skip
    more = (
        ["--json"]
        if verb[0] in ("verify", "show", "eval", "export") and "--svg" not in verb and rng.random() < 0.5
        else []
    )
    return Run([*verb, *more], {f"m/{name}": data for name, data in files.items()}, verified)


def text_run(_: Any, rng: random.Random) -> Run:
    """A formula with something put into it, taken out of it or doubled; an odd box, eps or option."""
    text = rng.choice(FORMULAS)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at, to = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        text = rng.choice((
            text[:at] + rng.choice(PIECES) + text[at:], text[:at] + text[to:], text[:to] + text[at:],
            text[:at] + "".join(chr(rng.randrange(1, 0x3000)) for _ in range(rng.randrange(1, 9))) + text[to:],
        ))  # fmt: skip
    box = rng.choice(BOXES) if rng.random() < 0.4 else BOXES[0]
    eps = rng.choice(EPS) if rng.random() < 0.3 else "0.1"
    more = rng.choice(
        (
            [],
            [],
            ["--json"],
            ["--construction", rng.choice(("circuit", "lookup", "partition", "none"))],
            ["--dtype", "float32"],
        )
    )
    whole = ["--on", box, "--eps", eps, "--out", "made", *more]
    if "\x00" in text or rng.random() < 0.2:
        return Run(["compile", "-", *whole], {}, True, text.encode("utf-8", "surrogatepass"))
    return Run(["compile", "--file", "f.txt", *whole], {"f.txt": text.encode("utf-8", "surrogatepass")}, True)


def csv_run(_: Any, rng: random.Random) -> Run:
    """A table with odd cells, rows of other lengths, odd bytes, odd headers; fitted, or evaluated."""
    mark, columns = rng.choice((",", ";", "\t", "|")), rng.choice((1, 2, 2, 3, 8))
    names = [rng.choice((f"c{k}", "x", "sq ft", "é", "__proto__", "", "1", "a,b", "pi", "sin")) for k in range(columns)]
    odd = rng.choice((0.0, 0.02, 0.3))
    rows = [
        mark.join(
            rng.choice(CELLS) if rng.random() < odd else f"{rng.gauss(0, 3):.3f}"
            for _ in range(columns + (rng.random() < odd / 8))
        )
        for _ in range(rng.choice((0, 1, 2, 30, 200)))
    ]
    text = rng.choice(("\n", "\r\n", "\r")).join([mark.join(names), *rows, ""])
    data = rng.choice(
        (text.encode(), b"\xef\xbb\xbf" + text.encode(), text.encode("utf-16"), text.encode("latin-1", "replace"))
    )
    if rng.random() < 0.1:
        data = bytes(rng.randrange(256) for _ in range(rng.randrange(2000)))
    target = rng.choice((*names, names[-1], "y"))
    fit = [
        "fit",
        "t.csv",
        "--target",
        target,
        "--degree",
        rng.choice(("1", "2", "3", "0", "-1", "99")),
        "--out",
        "made",
    ]
    fit += rng.choice(
        ([], ["--test", rng.choice(("0", "0.5", "1", "nan"))], ["--seed", rng.choice(("0", "-1", "x"))], ["--json"])
    )
    read = ["eval", "old", "--csv", "t.csv", "--out", rng.choice(("made.csv", "-"))]
    return Run(rng.choice((fit, fit, read)), {"t.csv": data}, True)


MAKERS = {"folder": folder_run, "text": text_run, "csv": csv_run}


def one(bases: dict[str, forging.Folder], old: dict[str, bytes], seed: int) -> dict[str, Any]:
    """Draw an input, run it in a folder of its own, and judge what was left behind."""
    kind = KINDS[seed % len(KINDS)]
    run = MAKERS[kind](bases, random.Random(f"{kind} {seed}"))
    with tempfile.TemporaryDirectory() as place:
        where = Path(place)
        kept = {f"old/{name}": data for name, data in old.items()} | {"keep.txt": b"somebody else's\n"} | run.files
        for name, data in kept.items():
            (where / name).parent.mkdir(parents=True, exist_ok=True)
            (where / name).write_bytes(data)
        command = [sys.executable, "-m", "transformula", *run.arguments]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = subprocess.Popen(
            command,
            cwd=where,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=_limited,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        out, err = ended.communicate(run.stdin)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        problems = list(_problems(run, ended.returncode, out, err))
        problems += [f"{name} was changed" for name, data in kept.items() if not _same(where / name, data)]
        problems += ["something was executed"] if (where / "gone").exists() else []
    problems += [f"{seconds:.1f} s"] if seconds > SECONDS else []
    said = (err or out).decode("utf-8", "replace").strip()[-300:]
    return {
        "kind": kind,
        "arguments": run.arguments,
        "code": ended.returncode,
        "seconds": round(seconds, 2),
        "problems": problems,
        "said": said,
    }


def _limited() -> None:
    """Processor time only: torch and onnxruntime reserve addresses that they never use."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(3 * SECONDS), int(3 * SECONDS)))


def _same(path: Path, data: bytes) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(data).digest()


def _problems(run: Run, code: int, out: bytes, err: bytes) -> Iterator[str]:
    both = (out + err).decode("utf-8", "replace")
    if code not in (0, 1, 2):
        yield f"exit code {code}"
    if "Traceback (most recent call last)" in both:
        yield "a traceback"
    if code == 0 and "proven" in both and "not proven" not in both and not run.proven:
        yield "called proven though the kernel refuses it"
    if "--json" in run.arguments:
        try:
            json.loads(out)
        except ValueError:
            yield "stdout is not one JSON object"


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts by kind and exit code, the slowest, the largest, and what went wrong."""
    return {
        "inputs": len(results),
        "kinds": dict(Counter(r["kind"] for r in results)),
        "exit codes": dict(Counter(str(r["code"]) for r in results)),
        "slowest": max(r["seconds"] for r in results),
        "megabytes": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024),
        "problems": sum(bool(r["problems"]) for r in results),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--inputs", type=int, default=600)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        bases = forging.prepared(Path(place), BASES)
        old = bases["cubic"].files()
        results = []
        for seed in range(given.first, given.first + given.inputs):
            results.append(one(bases, old, seed))
            if results[-1]["problems"]:
                print(seed, json.dumps(results[-1]), flush=True)
    found = summary(results)
    given.out.write_text(json.dumps({"summary": found}, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    sys.exit(1 if found["problems"] or found["megabytes"] > MEGABYTES else 0)


if __name__ == "__main__":
    main()
